// A server that the product calls: a model API, a chat route, an agent.
import http from 'node:http'

/**
 * An HTTP server that keeps idle connections open. One that closes them after a while may do so at the instant at which the product writes
 * its next request on one; that request is lost, and the run fails (the product's own side gives an idle connection up after five seconds, as
 * Node's would).
 */
export const upstream = (handler) => http.createServer({ keepAliveTimeout: 0 }, handler)

//! Finished answers: JSON, typed errors, and the heads of streams.

use serde_json::{Map, Value};
use web_sys::ReadableStream;
use worker::{Headers, Response, ResponseBuilder, console_error};

use crate::core::error::{Code, Failure};
use crate::core::ids::percent_encode;
use crate::dialect::cors::RESUMABLE_STREAM_ID;

/// A JSON answer.
pub fn json(status: u16, body: &Value) -> Response {
    let headers = Headers::new();
    let _ = headers.set("content-type", "application/json");
    let _ = headers.set("cache-control", "no-store");
    ResponseBuilder::new().with_status(status).with_headers(headers).fixed(body.to_string().into_bytes())
}

/// `{error, code, retryable}` with the code's status.
pub fn error(code: Code) -> Response {
    explained(code, code.message(), Map::new())
}

/// A typed error with words of its own and the facts that the client needs to act on it.
pub fn explained(code: Code, words: &str, facts: Map<String, Value>) -> Response {
    let mut body = Map::new();
    body.insert("error".into(), words.into());
    body.insert("code".into(), code.as_str().into());
    if code.retryable() {
        body.insert("retryable".into(), true.into());
    }
    body.extend(facts);
    json(code.status(), &Value::Object(body))
}

/// A failure of the service itself: logged in full, answered without a word of it.
pub fn internal(what: &dyn std::fmt::Display) -> Response {
    console_error!("{what}");
    error(Code::FrameworkInternalError)
}

/// The configuration cannot be used; the words name the variable and quote no value.
pub fn misconfigured(failure: &Failure) -> Response {
    console_error!("{failure}");
    explained(failure.code, &failure.internal, Map::new())
}

/// 413, with the limit and the size when it is known (`spec/helix.md` 5.1).
pub fn too_large(limit: usize, size: Option<usize>) -> Response {
    let mut facts = Map::new();
    facts.insert("retryable".into(), false.into());
    facts.insert("cause".into(), "request_body".into());
    facts.insert("limitBytes".into(), limit.into());
    facts.insert("sizeBytes".into(), size.map_or(Value::Null, Value::from));
    let code = Code::ValidationPayloadTooLarge;
    explained(code, code.message(), facts)
}

/// The head of an event stream. Proxies must neither compress nor buffer it (`spec/ai-sdk.md` A.9).
fn event_headers(chat: bool) -> Headers {
    let headers = Headers::new();
    let _ = headers.set("content-type", "text/event-stream");
    let _ = headers.set("cache-control", "no-cache, no-transform");
    let _ = headers.set("x-accel-buffering", "no");
    if chat {
        let _ = headers.set("connection", "keep-alive");
        let _ = headers.set("x-vercel-ai-ui-message-stream", "v1");
    }
    headers
}

/// Names the stream to clients that keep such a name to resume by (assistant-ui): the session's id. Bytes that a header cannot carry
/// are escaped as in a path, where the same name stands.
pub fn name_stream(response: &Response, session: &str) {
    let plain = session.bytes().all(|byte| byte.is_ascii_graphic());
    let name = if plain { session.to_owned() } else { percent_encode(session) };
    let _ = response.headers().set(RESUMABLE_STREAM_ID, &name);
}

/// An event stream.
pub fn events(stream: ReadableStream, chat: bool) -> Response {
    ResponseBuilder::new().with_headers(event_headers(chat)).stream(stream)
}

/// An event stream that is over already.
pub fn events_of(frames: &[u8], chat: bool) -> Response {
    ResponseBuilder::new().with_headers(event_headers(chat)).fixed(frames.to_vec())
}

/// 204 without a body: nothing to resume.
pub fn nothing() -> Response {
    ResponseBuilder::new().with_status(204).empty()
}

/// Nobody reads this answer: the client has left.
pub fn gone() -> Response {
    ResponseBuilder::new().with_status(499).empty()
}

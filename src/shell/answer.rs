//! Finished answers: JSON, typed errors, and the heads of streams.

use serde_json::{Map, Value};
use web_sys::ReadableStream;
use worker::{Headers, Response, ResponseBuilder, console_error};

use super::heart::response;
use crate::core::engine::answer::Answer;
use crate::core::error::{Code, Failure};
use crate::core::ids::percent_encode;
use crate::dialect::cors::RESUMABLE_STREAM_ID;

/// A JSON answer.
pub fn json(status: u16, body: &Value) -> Response {
    response(Answer::json(status, body))
}

/// `{error, code, retryable}` with the code's status.
pub fn error(code: Code) -> Response {
    response(Answer::error(code))
}

/// A typed error with words of its own and the facts that the client needs to act on it.
pub fn explained(code: Code, words: &str, facts: Map<String, Value>) -> Response {
    response(Answer::explained(code, words, facts))
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

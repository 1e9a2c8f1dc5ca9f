//! Finished answers: JSON, typed errors, and the heads of streams.

use serde_json::{Map, Value};
use worker::{Response, ResponseBuilder, console_error};

use super::heart::response;
use crate::core::engine::action::Head;
use crate::core::engine::answer::Answer;
use crate::core::error::{Code, Failure};
use crate::core::ids::percent_encode;
use crate::dialect::cors::RESUMABLE_STREAM_ID;
use crate::session::response::Dialect;

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

/// Names the stream to clients that keep such a name to resume by (assistant-ui): the session's id. Bytes that a header cannot carry
/// are escaped as in a path, where the same name stands.
pub fn name_stream(response: &Response, session: &str) {
    let plain = session.bytes().all(|byte| byte.is_ascii_graphic());
    let name = if plain { session.to_owned() } else { percent_encode(session) };
    let _ = response.headers().set(RESUMABLE_STREAM_ID, &name);
}

/// An event stream that is over already.
pub fn events_of(frames: &[u8], dialect: Dialect) -> Response {
    let Head { status, headers } = dialect.head();
    response(Answer { status, headers, body: frames.to_vec() })
}

/// 204 without a body: nothing to resume.
pub fn nothing() -> Response {
    ResponseBuilder::new().with_status(204).empty()
}

//! Why a call is refused, in the words of the chat surface.

use serde_json::{Map, Value, json};
use worker::Response;

use crate::core::command::NotFound;
use crate::core::counters::add;
use crate::core::error::Code;
use crate::core::ids::{Cursor, percent_encode};
use crate::core::snapshot;
use crate::core::storage::RunRow;
use crate::core::view::Fault;
use crate::shell::answer;
use crate::shell::host::{Host, HostError};
use crate::shell::readers::ReaderError;
use crate::shell::request::BodyError;

impl Host {
    pub(super) fn beyond(&self, head: Cursor) -> Response {
        self.see_snapshot(Code::StateCursorBeyondHead, json!({ "head": head }))
    }

    pub(super) fn below_floor(&self, floor: Cursor) -> Response {
        self.count(|counters| add(&mut counters.truncated, 1));
        self.see_snapshot(Code::Truncated, json!({ "floor": floor }))
    }

    /// The cursor lies outside of the log; the answer says where to read on.
    pub(super) fn see_snapshot(&self, code: Code, place: Value) -> Response {
        let mut facts = facts(place);
        facts.insert("snapshot".into(), format!("/api/chat/{}/snapshot", percent_encode(&self.name)).into());
        answer::explained(code, code.message(), facts)
    }

    /// `spec/helix.md` E15: nothing to follow, because the run failed.
    pub(super) fn stream_failed(&self, run: &RunRow) -> Response {
        let fault = Fault::of(run);
        let code = fault.code;
        let body = json!({
            "error": "stream_failed",
            "code": code.as_str(),
            "retryable": code.retryable(),
            "sessionId": self.name,
            "streamId": self.name,
            "message": fault.words(),
            "errorDetail": snapshot::fault_detail(&fault),
        });
        answer::json(409, &body)
    }
}

/// `spec/helix.md` E12: what the client wants to go on with is not there.
pub(super) fn resume_unknown() -> Response {
    not_resumable("The message is not one that can be resumed; read the snapshot", "resume_message_unknown")
}

/// A continuation that does not exist, and why.
pub(super) fn not_resumable(words: &str, cause: &str) -> Response {
    answer::explained(Code::StateNotResumable, words, facts(json!({ "cause": cause })))
}

/// `spec/helix.md` E13: no run has said anything in time.
pub(super) fn not_live() -> Response {
    let code = Code::TransportStreamDrop;
    let response = answer::explained(code, "No run has started", facts(json!({ "cause": "run_not_live" })));
    let _ = response.headers().set("retry-after", "1");
    response
}

/// `spec/helix.md` E14: the committed part of a reply could not be read.
pub(super) fn history_unread(error: &HostError) -> Response {
    if matches!(error, HostError::Storage(error) if error.is_lasting()) {
        return unreadable(error);
    }
    worker::console_error!("{error}");
    answer::error(Code::StateHistoryIncomplete)
}

/// A failure behind a commit: the request must not be repeated, so it is never a 503 (`spec/helix.md` E7, E11).
pub(super) fn committed(response: Response) -> Response {
    if response.status_code() == 503 { answer::error(Code::FrameworkInternalError) } else { response }
}

pub(super) fn facts(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

pub(super) fn absent(_: NotFound) -> Response {
    answer::error(Code::StateSessionNotFound)
}

pub(super) fn stream_absent() -> Response {
    answer::explained(Code::StateSessionNotFound, "Stream not found", Map::new())
}

pub(super) fn unread(error: &BodyError, limit: usize) -> Response {
    match error {
        BodyError::TooLarge(size) => answer::too_large(limit, *size),
        BodyError::NotJson => answer::error(Code::ValidationMediaType),
        BodyError::Broken => answer::explained(Code::ValidationError, "the body could not be read", Map::new()),
    }
}

pub(super) fn unopened(error: &ReaderError) -> Response {
    match error {
        ReaderError::Host(error) => unreadable(error),
        ReaderError::Stream(error) => answer::internal(&crate::shell::bindings::error_text(error)),
    }
}

/// A read that failed before it changed anything may be repeated.
pub(super) fn unreadable(error: &HostError) -> Response {
    worker::console_error!("{error}");
    let code = Code::StateHistoryIncomplete;
    match error {
        HostError::Storage(error) if error.is_lasting() => {
            let facts = facts(json!({ "cause": error.cause(), "retryable": false }));
            answer::explained(code, code.message(), facts).with_status(409)
        }
        HostError::Storage(error) => answer::explained(code, code.message(), facts(json!({ "cause": error.cause() }))),
        HostError::Busy => answer::error(Code::FrameworkInternalError),
    }
}

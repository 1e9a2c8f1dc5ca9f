//! Why a call is refused, in the words of the chat surface.

use serde_json::{Map, Value, json};
use worker::Response;

use crate::core::command::NotFound;
use crate::core::counters::add;
use crate::core::error::Code;
use crate::core::ids::Cursor;
use crate::core::snapshot;
use crate::core::storage::{RunRow, StorageError};
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
        facts.insert("snapshot".into(), format!("/api/chat/{}/snapshot", encode(&self.name)).into());
        answer::explained(code, code.message(), facts)
    }

    /// `spec/helix.md` E15: nothing to follow, because the run failed.
    pub(super) fn stream_failed(&self, run: &RunRow) -> Response {
        let code = run.error.unwrap_or(Code::FrameworkInternalError);
        let body = json!({
            "error": "stream_failed",
            "code": code.as_str(),
            "retryable": code.retryable(),
            "sessionId": self.name,
            "streamId": self.name,
            "message": code.message(),
            "errorDetail": snapshot::failure_detail(Some(run)),
        });
        answer::json(409, &body)
    }
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
    match error {
        HostError::Storage(StorageError::Corrupt(_) | StorageError::TooLarge(_)) => {
            let code = Code::StateHistoryIncomplete;
            let facts = facts(json!({ "cause": "corrupt_row", "retryable": false }));
            let body = answer::explained(code, code.message(), facts);
            body.with_status(409)
        }
        HostError::Storage(StorageError::Failed(_)) => {
            let code = Code::StateHistoryIncomplete;
            answer::explained(code, code.message(), facts(json!({ "cause": "store_error" })))
        }
        HostError::Busy => answer::error(Code::FrameworkInternalError),
    }
}

/// A session id as one path segment.
pub(super) fn encode(name: &str) -> String {
    String::from(js_sys::encode_uri_component(name))
}

//! Every refusal of a call as its answer: code, words, and the facts that a client needs to act on it (`spec/helix.md` section 7).

use serde_json::{Map, Value, json};

use crate::core::command::{NotFound, StartRefused};
use crate::core::engine::answer::Answer;
use crate::core::error::{Code, Failure};
use crate::core::ids::{Cursor, percent_encode};
use crate::core::snapshot;
use crate::core::storage::{RunRow, StorageError};
use crate::core::view::Fault;

/// Why a call is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such session, or it is somebody else's.
    Absent,
    /// The same, in the words of the wire.
    StreamAbsent,
    /// There is no such run in the session.
    NoSuchRun,
    /// What was sent cannot be taken; the words say what to change.
    Invalid(String),
    /// The same, under a code of its own.
    Rejected(Code, String),
    /// A code in its own words.
    Coded(Code),
    /// A code in its own words, with facts.
    Told(Code, Map<String, Value>),
    /// A code in other words, with facts.
    Explained(Code, String, Map<String, Value>),
    /// A run did not start.
    Start(StartRefused),
    /// The conversation is not what it was when the client asked: the words, and the cause.
    Conflict(&'static str, &'static str),
    /// The deployment cannot do this; the words name the variable and quote no value.
    Misconfigured(Failure),
    /// Nobody reads this answer: the client has left.
    Gone,
    /// The cursor lies behind the log's end, which is here.
    Beyond(Cursor),
    /// What the cursor asks for is gone; the log begins here.
    BelowFloor(Cursor),
    /// The page's snapshot is too old to be completed by one reply.
    Stale,
    /// A continuation that does not exist: the words, and the cause.
    NotResumable(&'static str, &'static str),
    /// No run has said anything in time (`spec/helix.md` E13).
    NotLive,
    /// There is nothing to follow, because this run failed (`spec/helix.md` E15).
    StreamFailed(Box<RunRow>),
    /// The rows could not be read, before anything was changed.
    Unread(StorageError),
    /// The committed part of a reply could not be read (`spec/helix.md` E14).
    HistoryUnread(StorageError),
    /// A body larger than the limit, both in bytes; its size when the sender declared it (`spec/helix.md` 5.1).
    TooLarge {
        /// The limit.
        limit: usize,
        /// The size.
        size: Option<usize>,
    },
    /// A failure of the service itself; what happened is for the log line.
    Failed(String),
    /// A refusal behind a commit: the request must not be repeated, so it is never a 503 (`spec/helix.md` E7, E11).
    Committed(Box<Refusal>),
}

impl From<StartRefused> for Refusal {
    fn from(refused: StartRefused) -> Self {
        Self::Start(refused)
    }
}

impl From<NotFound> for Refusal {
    fn from(_: NotFound) -> Self {
        Self::Absent
    }
}

impl From<StorageError> for Refusal {
    fn from(error: StorageError) -> Self {
        Self::Unread(error)
    }
}

impl Refusal {
    /// The message that a client wants to go on with is not there (`spec/helix.md` E12).
    pub const RESUME_UNKNOWN: Self =
        Self::NotResumable("The message is not one that can be resumed; read the snapshot", "resume_message_unknown");

    /// The answer. `session` is the session's id, as its clients write it.
    pub fn answer(&self, session: &str) -> Answer {
        match self {
            Self::Absent => Answer::error(Code::StateSessionNotFound),
            Self::StreamAbsent => Answer::explained(Code::StateSessionNotFound, "Stream not found", Map::new()),
            Self::NoSuchRun => Answer::explained(Code::StateSessionNotFound, "No such run", Map::new()),
            Self::Rejected(code, words) => Answer::explained(*code, words, Map::new()),
            Self::Coded(code) => Answer::error(*code),
            Self::Told(code, facts) => Answer::explained(*code, code.message(), facts.clone()),
            Self::Explained(code, words, facts) => Answer::explained(*code, words, facts.clone()),
            Self::Start(refused) => not_started(session, refused),
            Self::Conflict(words, cause) => {
                Answer::explained(Code::StateRunStartConflict, words, facts(json!({ "cause": cause })))
            }
            Self::Misconfigured(failure) => Answer::explained(failure.code, &failure.internal, Map::new()),
            Self::Gone => Answer::empty(499),
            Self::Invalid(words) => Answer::explained(Code::ValidationError, words, Map::new()),
            Self::Beyond(head) => see_snapshot(session, Code::StateCursorBeyondHead, json!({ "head": head })),
            Self::BelowFloor(floor) => see_snapshot(session, Code::Truncated, json!({ "floor": floor })),
            Self::Stale => see_snapshot(session, Code::StateSnapshotStale, Value::Null),
            Self::NotResumable(words, cause) => {
                Answer::explained(Code::StateNotResumable, words, facts(json!({ "cause": cause })))
            }
            Self::NotLive => {
                let facts = facts(json!({ "cause": "run_not_live" }));
                Answer::explained(Code::TransportStreamDrop, "No run has started", facts)
                    .with_header("retry-after", "1")
            }
            Self::StreamFailed(run) => stream_failed(session, run),
            Self::Unread(error) => unread(error),
            Self::HistoryUnread(error) if error.is_lasting() => unread(error),
            Self::HistoryUnread(_) => Answer::error(Code::StateHistoryIncomplete),
            Self::TooLarge { limit, size } => too_large(*limit, *size),
            Self::Failed(_) => Answer::error(Code::FrameworkInternalError),
            Self::Committed(refusal) => match refusal.answer(session) {
                answer if answer.status == 503 => Answer::error(Code::FrameworkInternalError),
                answer => answer,
            },
        }
    }

    /// The same, of a request that has committed something.
    #[must_use]
    pub fn committed(self) -> Self {
        Self::Committed(Box::new(self))
    }

    /// What the operator is told of it, when it is the service's own fault.
    pub fn fault(&self) -> Option<String> {
        match self {
            Self::Unread(error) | Self::HistoryUnread(error) => Some(error.to_string()),
            Self::Misconfigured(failure) => Some(failure.to_string()),
            Self::Failed(words) => Some(words.clone()),
            Self::Committed(refusal) => refusal.fault(),
            _ => None,
        }
    }
}

fn not_started(session: &str, refused: &StartRefused) -> Answer {
    let code = refused.code();
    match refused {
        StartRefused::AlreadyRunning(run) => {
            let attach = format!("/api/chat/{}/stream", percent_encode(session));
            Answer::explained(code, code.message(), facts(json!({ "runId": run, "attach": attach })))
        }
        StartRefused::Conflict => {
            Answer::explained(code, code.message(), facts(json!({ "cause": "entry_status_changed" })))
        }
        StartRefused::IdTaken(_) => Answer::explained(code, &refused.to_string(), Map::new()),
        StartRefused::NotFound(_) | StartRefused::Full(_) => Answer::error(code),
    }
}

/// The fields of a JSON object.
pub fn facts(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// The cursor lies outside of the log; the answer says where to read on.
fn see_snapshot(session: &str, code: Code, place: Value) -> Answer {
    let mut facts = facts(place);
    facts.insert("snapshot".into(), format!("/api/chat/{}/snapshot", percent_encode(session)).into());
    Answer::explained(code, code.message(), facts)
}

fn stream_failed(session: &str, run: &RunRow) -> Answer {
    let fault = Fault::of(run);
    let code = fault.code;
    let body = json!({
        "error": "stream_failed",
        "code": code.as_str(),
        "retryable": code.retryable(),
        "sessionId": session,
        "streamId": session,
        "message": fault.words(),
        "errorDetail": snapshot::fault_detail(&fault),
    });
    Answer::json(409, &body)
}

/// A read that failed before it changed anything may be repeated, unless the rows will never be read.
fn unread(error: &StorageError) -> Answer {
    let code = Code::StateHistoryIncomplete;
    let mut facts = facts(json!({ "cause": error.cause() }));
    if error.is_lasting() {
        facts.insert("retryable".into(), false.into());
        return Answer::explained(code, code.message(), facts).with_status(409);
    }
    Answer::explained(code, code.message(), facts)
}

/// 413, with the limit, and the size when it is known.
pub fn too_large(limit: usize, size: Option<usize>) -> Answer {
    let code = Code::ValidationPayloadTooLarge;
    let facts = json!({ "retryable": false, "cause": "request_body", "limitBytes": limit, "sizeBytes": size });
    Answer::explained(code, code.message(), self::facts(facts))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(refusal: &Refusal) -> (u16, Value) {
        let answer = refusal.answer("a b");
        (answer.status, serde_json::from_slice(&answer.body).unwrap())
    }

    #[test]
    fn a_refusal_says_what_to_do_next() {
        let at = Cursor::new(7).unwrap();
        let (status, body) = said(&Refusal::Beyond(at));
        assert_eq!((status, &body["head"], &body["snapshot"]), (409, &json!(7), &json!("/api/chat/a%20b/snapshot")));
        let (status, body) = said(&Refusal::BelowFloor(at));
        assert_eq!((status, &body["code"], &body["floor"]), (Code::Truncated.status(), &json!("TRUNCATED"), &json!(7)));
        let (status, body) = said(&Refusal::TooLarge { limit: 10, size: None });
        assert_eq!((status, &body["limitBytes"], &body["sizeBytes"]), (413, &json!(10), &Value::Null));
        assert_eq!(Refusal::NotLive.answer("s").headers.last(), Some(&("retry-after", "1".into())));
    }

    #[test]
    fn rows_that_will_never_be_read_are_no_passing_failure() {
        let lasting = StorageError::Corrupt("message.json");
        let passing = StorageError::Failed("busy".into());
        for refused in [Refusal::Unread, Refusal::HistoryUnread] {
            let (status, body) = said(&refused(lasting.clone()));
            assert_eq!((status, &body["retryable"], &body["cause"]), (409, &json!(false), &json!("corrupt_row")));
            assert_eq!(said(&refused(passing.clone())).0, Code::StateHistoryIncomplete.status());
        }
    }

    #[test]
    fn what_has_committed_something_is_never_to_be_repeated() {
        let passing = Refusal::Unread(StorageError::Failed("busy".into()));
        assert_eq!(said(&passing).0, 503);
        assert_eq!(said(&passing.clone().committed()).0, 500);
        assert_eq!(said(&Refusal::Absent.committed()), said(&Refusal::Absent));
        assert_eq!(passing.committed().fault(), Some(StorageError::Failed("busy".into()).to_string()));
    }

    #[test]
    fn not_yours_and_not_there_are_one_answer() {
        assert_eq!(Refusal::from(NotFound).answer("one"), Refusal::Absent.answer("other"));
    }
}

//! The committed conversation at one checkpoint (`spec/helix.md` section 6), and what a page that has read it gets when it reconnects.
//!
//! Between the two anything may happen: the reply may go on, end, fail, be stopped, or be followed by another one. So a snapshot names the
//! cursor that its messages cover, and a reconnect that brings it back is told everything that came since, or that too much has come.

use serde_json::{Value, json};

use super::caller::Caller;
use super::command::NotFound;
use super::error::Code;
use super::ids::{Cursor, percent_encode};
use super::run::RunStatus;
use super::run::StreamStatus;
use super::session::Session;
use super::storage::{MessageRow, RunRow, StorageError};
use super::view::Fault;

/// Everything of a snapshot but its messages: read first, so that the rows can be bounded by it.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    message_count: u32,
    body: Value,
    session_id: String,
    /// Everything up to here is in the messages.
    covered: Cursor,
    in_flight: Option<InFlight>,
}

/// What a live run has committed so far.
#[derive(Clone, Copy, Debug, PartialEq)]
struct InFlight {
    /// Its first message.
    index: u32,
    /// The cursor before the run.
    start: Cursor,
}

/// Reads the snapshot's frame from the latest checkpoint.
///
/// # Errors
/// [`NotFound`].
pub fn read(session: &Session, caller: &Caller, session_id: &str) -> Result<Snapshot, NotFound> {
    let row = session.authorise(caller)?;
    let checkpoint = session.checkpoint();
    let run = session.run();
    let status = status(run.map(|run| run.status), row.status);
    let live = run.filter(|_| matches!(status, StreamStatus::Active | StreamStatus::Paused));
    let state = match checkpoint.and_then(|checkpoint| checkpoint.state.as_deref()) {
        Some(text) => serde_json::from_str(text).unwrap_or(Value::Null),
        None => Value::Null,
    };
    let mut body = json!({
        "sessionId": session_id,
        "messages": [],
        "streamSequence": 0,
        "reconnect": null,
        "state": state,
        "status": status,
        "latestTruncateCheckpointId": session.truncated(),
        "checkpointId": checkpoint.map(|checkpoint| checkpoint.id.as_str()),
        "stepCount": checkpoint.map_or(0, |checkpoint| checkpoint.step_count),
    });
    if let Some(map) = body.as_object_mut() {
        if let Some(run) = live {
            map.insert("resumeMessageId".into(), run.message_id.as_str().into());
        }
        if status == StreamStatus::Failed {
            let fault = run.map_or_else(|| Fault::from(Code::FrameworkInternalError), Fault::of);
            map.insert("errorDetail".into(), fault_detail(&fault));
        }
    }
    Ok(Snapshot {
        message_count: session.message_count(),
        body,
        session_id: session_id.to_owned(),
        covered: checkpoint.map_or(Cursor::START, |checkpoint| checkpoint.sequence),
        in_flight: live.map(|run| InFlight { index: run.message_index, start: run.start }),
    })
}

/// What a page gets that reconnects.
#[derive(Clone, Debug, PartialEq)]
pub enum Reconnect {
    /// It has all there is.
    Nothing,
    /// The whole response of this run, up to its terminal.
    Whole(Box<RunRow>),
    /// Its snapshot is too old to be completed by one reply.
    Stale,
    /// Its snapshot is one of another log, whose session had the same id; this log ends here.
    Beyond(Cursor),
}

/// Decides what a reconnect gets; `since` is the cursor of the page's snapshot, if it names one. Without it only a live run is told.
///
/// A run that is running is always told: what it says next lies behind every cursor. One that waits for its page has said all it can.
pub fn reconnect(session: &Session, caller: &Caller, since: Option<Cursor>) -> Reconnect {
    let run = session.authorise(caller).ok().and_then(|_| session.run());
    let Some(run) = run else { return Reconnect::Nothing };
    let whole = Reconnect::Whole(Box::new(run.clone()));
    let Some(since) = since else {
        return if run.status.is_live() { whole } else { Reconnect::Nothing };
    };
    let head = session.log().head();
    // Retention keeps messages: a run without chunks is told from its message, if it has left one.
    let can_be_told = run.start >= session.log().floor() || run.message_index < session.message_count();
    if since > head {
        Reconnect::Beyond(head)
    } else if since < run.start {
        Reconnect::Stale
    } else if since == head && (!run.status.is_live() || has_said_all(run, head)) {
        Reconnect::Nothing
    } else if can_be_told {
        whole
    } else {
        Reconnect::Stale
    }
}

/// Whether a paused run has said all it can: another one goes on. A run without chunks has said nothing that a snapshot could hold.
fn has_said_all(run: &RunRow, head: Cursor) -> bool {
    run.status.is_suspended() && head > run.start
}

/// What clients may know of the failure that ended a run: its class, and when to try again if the model API said so.
pub fn fault_detail(fault: &Fault) -> Value {
    let mut detail = error_detail(fault.code);
    if let (Value::Object(detail), Some(after)) = (&mut detail, fault.retry_after_ms) {
        detail.insert("retryAfterMs".into(), after.into());
    }
    detail
}

/// Code, category and retryability of a failure, without free text.
pub fn error_detail(code: Code) -> Value {
    json!({ "code": code.as_str(), "category": code.category(), "retryable": code.retryable() })
}

/// The run decides, in this order (`spec/helix.md` 6.2).
fn status(run: Option<RunStatus>, stream: StreamStatus) -> StreamStatus {
    match run {
        Some(status) if status.is_suspended() => StreamStatus::Paused,
        Some(RunStatus::Running) if stream == StreamStatus::Paused => StreamStatus::Paused,
        Some(RunStatus::Running) => StreamStatus::Active,
        Some(RunStatus::Failed) => StreamStatus::Failed,
        _ if stream == StreamStatus::Failed => StreamStatus::Failed,
        _ => StreamStatus::Ended,
    }
}

impl Snapshot {
    /// Messages to read, from the first.
    pub fn message_count(&self) -> u32 {
        self.message_count
    }

    /// Puts the messages in, the cursor that they cover, and the address that tells what came since. `seed` leaves out what the live run
    /// has committed, for a client that is told the run from its start.
    ///
    /// # Errors
    /// [`StorageError::Corrupt`] when a stored message is not JSON.
    pub fn with_messages(mut self, rows: &[MessageRow], seed: bool) -> Result<Value, StorageError> {
        let left_out = self.in_flight.filter(|_| seed);
        let covered = left_out.map_or(self.covered, |live| live.start);
        let messages = rows
            .iter()
            .filter(|row| left_out.is_none_or(|live| row.index < live.index))
            .map(|row| serde_json::from_str(&row.json).map_err(|_| StorageError::Corrupt("message.json")))
            .collect::<Result<Vec<Value>, _>>()?;
        if let Some(map) = self.body.as_object_mut() {
            map.insert("messages".into(), Value::Array(messages));
            map.insert("streamSequence".into(), covered.get().into());
            let at = format!("/api/chat/{}/stream?since={covered}", percent_encode(&self.session_id));
            map.insert("reconnect".into(), at.into());
        }
        Ok(self.body)
    }
}

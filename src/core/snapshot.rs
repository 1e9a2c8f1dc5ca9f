//! The committed conversation at one checkpoint (`spec/helix.md` section 6).

use serde_json::{Value, json};

use super::caller::Caller;
use super::command::NotFound;
use super::error::Code;
use super::run::RunStatus;
use super::session::{Session, StreamStatus};
use super::storage::{MessageRow, RunRow, StorageError};

/// Everything of a snapshot but its messages: read first, so that the rows can be bounded by it.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    message_count: u32,
    body: Value,
    resume_message_id: Option<String>,
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
    let resume_message_id = run
        .filter(|_| matches!(status, StreamStatus::Active | StreamStatus::Paused))
        .map(|run| run.message_id.as_str().to_owned());
    let state = match checkpoint.and_then(|checkpoint| checkpoint.state.as_deref()) {
        Some(text) => serde_json::from_str(text).unwrap_or(Value::Null),
        None => Value::Null,
    };
    let mut body = json!({
        "sessionId": session_id,
        "messages": [],
        "streamSequence": checkpoint.map_or(0, |checkpoint| checkpoint.sequence.get()),
        "state": state,
        "status": status,
        "latestTruncateCheckpointId": session.truncated(),
        "checkpointId": checkpoint.map(|checkpoint| checkpoint.id.as_str()),
        "stepCount": checkpoint.map_or(0, |checkpoint| checkpoint.step_count),
    });
    if let Some(map) = body.as_object_mut() {
        if let Some(id) = &resume_message_id {
            map.insert("resumeMessageId".into(), id.as_str().into());
        }
        if status == StreamStatus::Failed {
            map.insert("errorDetail".into(), failure_detail(run));
        }
    }
    Ok(Snapshot { message_count: session.message_count(), body, resume_message_id })
}

/// What clients may know of the failure that ended a run: its class, and when to try again if the model API said so.
pub fn failure_detail(run: Option<&RunRow>) -> Value {
    let mut detail = error_detail(run.and_then(|run| run.error).unwrap_or(Code::FrameworkInternalError));
    if let (Value::Object(detail), Some(after)) = (&mut detail, run.and_then(|run| run.retry_after_ms)) {
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
        Some(RunStatus::SuspendedClientTool) => StreamStatus::Paused,
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

    /// Puts the messages in. `seed` leaves the in-flight message out, for a client that resumes it from its start.
    ///
    /// # Errors
    /// [`StorageError::Corrupt`] when a stored message is not JSON.
    pub fn with_messages(mut self, rows: &[MessageRow], seed: bool) -> Result<Value, StorageError> {
        let messages = rows
            .iter()
            .filter(|row| !seed || self.resume_message_id.as_deref() != Some(row.id.as_str()))
            .map(|row| serde_json::from_str(&row.json).map_err(|_| StorageError::Corrupt("message.json")))
            .collect::<Result<Vec<Value>, _>>()?;
        if let Some(map) = self.body.as_object_mut() {
            map.insert("messages".into(), Value::Array(messages));
        }
        Ok(self.body)
    }
}

//! Events of the chat stream that tell a client to read the snapshot again (`spec/helix.md` 1.9, 5.7 and 5.9).
//!
//! They are about the response, not about the conversation: no committed message holds one (the fold passes them by), no
//! model is sent one, and only a client that understands them gets them (`lens`). They are `data-*` parts with an `id`
//! made of what identifies the event, so that a client which is told twice holds it once.

use serde_json::{Value, json};

use crate::core::chunk::Chunk;
use crate::core::ids::{AttemptId, CheckpointId, Cursor, RunId};
use crate::core::storage::CheckpointRow;

/// The log was rewound, or a crashed step's content no longer counts.
pub const STREAM_RESYNC: &str = "data-stream-resync";
/// A new attempt of a step replaces content that clients were already sent.
pub const ATTEMPT_SUPERSEDED: &str = "data-attempt-superseded";
/// A result for a call that stands in an earlier message than the response's.
pub const OUTPUT_ELSEWHERE: &str = "data-tool-output-elsewhere";
/// Around a replayed prefix; transient, so it is never part of a message.
pub const REPLAY: &str = "data-helix-replay";

/// Whether chunks and parts of this type are events of a response. Producers may not write them, and messages never hold
/// them.
pub fn is_event(kind: &str) -> bool {
    matches!(kind, STREAM_RESYNC | ATTEMPT_SUPERSEDED | OUTPUT_ELSEWHERE | REPLAY)
}

/// Why the transcript changed. `branch` is reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The turn is run again.
    Retry,
    /// The session went back to a checkpoint.
    Rollback,
    /// A crashed step's content no longer counts.
    CrashRecovery,
}

impl Reason {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Rollback => "rollback",
            Self::CrashRecovery => "crash_recovery",
        }
    }
}

/// A resync, identified by its run and checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resync {
    /// The checkpoint that the transcript now stands at.
    pub checkpoint: CheckpointId,
    /// Steps done at it.
    pub step_count: u32,
    /// Messages at it.
    pub message_count: u64,
    /// Its place in the log.
    pub from: Cursor,
    /// Why.
    pub reason: Reason,
    /// The run that writes from here on.
    pub run: Option<RunId>,
    /// The `truncate` checkpoint that a rewind's start has written; a client whose snapshot names it skips the event.
    pub truncated: Option<CheckpointId>,
}

impl Resync {
    /// What a run says that goes on after the death of its object, from the last commit.
    pub fn recovered(last: &CheckpointRow, run: &RunId) -> Self {
        Self {
            checkpoint: last.id.clone(),
            step_count: if last.run == *run { last.step_count } else { 0 },
            message_count: u64::from(last.message_count),
            from: last.sequence,
            reason: Reason::CrashRecovery,
            run: Some(run.clone()),
            truncated: None,
        }
    }

    /// The chunk; one per rewind, after the run's `start` and before its content.
    pub fn chunk(&self) -> Chunk {
        let mut data = json!({
            "checkpointId": self.checkpoint,
            "stepCount": self.step_count,
            "messageCount": self.message_count,
            "fromSequence": self.from,
            "reason": self.reason.as_str(),
        });
        if let Some(run) = &self.run {
            set(&mut data, "runId", run.as_str());
        }
        if let Some(truncated) = &self.truncated {
            set(&mut data, "truncateCheckpointId", truncated.as_str());
        }
        let run = self.run.as_ref().map_or("", RunId::as_str);
        event(STREAM_RESYNC, &format!("{run}:{}", self.checkpoint), data)
    }
}

/// A step's new attempt and the one that it replaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptSuperseded<'a> {
    /// The run.
    pub run: &'a RunId,
    /// The agent that writes it.
    pub agent: &'a str,
    /// Number of the step, from 1.
    pub step: u32,
    /// The new attempt.
    pub attempt: &'a AttemptId,
    /// The attempt that no longer counts.
    pub superseded: &'a AttemptId,
}

impl AttemptSuperseded<'_> {
    /// The chunk.
    pub fn chunk(&self) -> Chunk {
        let data = json!({
            "reason": "attempt_superseded",
            "runId": self.run,
            "agentId": self.agent,
            "step": self.step,
            "attemptId": self.attempt,
            "supersededAttemptId": self.superseded,
        });
        event(ATTEMPT_SUPERSEDED, self.superseded.as_str(), data)
    }
}

/// The attempt that an [`ATTEMPT_SUPERSEDED`] chunk takes back.
pub(super) fn superseded_by(chunk: &Chunk) -> Option<&str> {
    chunk.get("data")?.get("supersededAttemptId")?.as_str()
}

/// The chunk for a result of a call that the response does not show.
pub fn output_elsewhere(call: &str, tool: &str, run: Option<&str>) -> Chunk {
    let mut data = json!({ "reason": "tool_output_elsewhere", "toolCallId": call, "toolName": tool });
    if let Some(run) = run {
        set(&mut data, "runId", run);
    }
    event(OUTPUT_ELSEWHERE, call, data)
}

fn event(kind: &str, id: &str, data: Value) -> Chunk {
    Chunk::new(kind).with("id", id).with("data", data)
}

fn set(data: &mut Value, key: &str, value: &str) {
    if let Value::Object(map) = data {
        map.insert(key.into(), value.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_have_their_literal_keys() {
        let resync = Resync {
            checkpoint: CheckpointId::new("cp_1"),
            step_count: 2,
            message_count: 3,
            from: Cursor::new(40).unwrap(),
            reason: Reason::Retry,
            run: Some(RunId::new("r")),
            truncated: Some(CheckpointId::new("cp_2")),
        };
        assert_eq!(
            Value::Object(resync.chunk().into_map()),
            json!({"type": "data-stream-resync", "id": "r:cp_1", "data": {"checkpointId": "cp_1", "stepCount": 2,
                "messageCount": 3, "fromSequence": 40, "reason": "retry", "runId": "r", "truncateCheckpointId": "cp_2"}})
        );
        let recovery = Resync { reason: Reason::CrashRecovery, run: None, truncated: None, ..resync };
        assert_eq!(
            recovery.chunk().get("data"),
            Some(
                &json!({"checkpointId": "cp_1", "stepCount": 2, "messageCount": 3, "fromSequence": 40, "reason": "crash_recovery"})
            )
        );
        let (run, old, new) = (RunId::new("r"), AttemptId::new("r-1-1"), AttemptId::new("r-1-2"));
        let event = AttemptSuperseded { run: &run, agent: "demo", step: 1, attempt: &new, superseded: &old };
        assert_eq!(
            event.chunk().get("data"),
            Some(&json!({"reason": "attempt_superseded", "runId": "r", "agentId": "demo", "step": 1,
                "attemptId": "r-1-2", "supersededAttemptId": "r-1-1"}))
        );
        assert_eq!(superseded_by(&event.chunk()), Some("r-1-1"));
        assert_eq!(
            output_elsewhere("c", "search", Some("r")).get("data"),
            Some(&json!({"reason": "tool_output_elsewhere", "toolCallId": "c", "toolName": "search", "runId": "r"}))
        );
    }
}

//! The chunk types that chat knows, and where each keeps its facts (`spec/helix.md` 10.2).
//!
//! | type | keys |
//! |---|---|
//! | `text_delta` | `delta` |
//! | `thinking` | `content`, `isComplete` |
//! | `tool_arg_stream_start` | `toolCallId`, `toolName` |
//! | `tool_arg_stream_delta` | `toolCallId`, `delta` (also `argsTextDelta`, `textDelta`: the name is not public) |
//! | `tool_start` | `toolCallId`, `toolName`, `arguments` |
//! | `tool_end` | `toolCallId`, `result`, `success`, `error` (a text, or an object with `message`) |
//! | `approval_request` (also `tool_approval_request`; names not public) | `toolCallId`; `toolName` and `arguments` when the call is new |
//! | `approval_response` (also `tool_approval_response`; names not public) | `toolCallId`, `approved`, `reason` |
//! | `state_patch` | `patches` (also `patch`, `operations`, `ops`: the name is not public), an array of RFC 6902 operations |
//! | `custom` (also `custom_event`; names not public) | `eventName`, `data` |
//! | `output` | `output` (also `data`) |
//! | `stream_resync` (name not public) | the keys of `data-stream-resync`, on the chunk or in its `data` |
//! | `step_start`, `step_committed` | `core::chunk::lifecycle` |
//!
//! Every other type (`error`, `run_*`, `subagent_*`, …) is for the wire alone. A failure is told by the run's terminal.

use serde_json::{Map, Value};

use crate::core::chunk::Chunk;
use crate::dialect::ui::resync::STREAM_RESYNC;

/// What a chunk says to chat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    Text,
    Thinking,
    InputStart,
    InputDelta,
    ToolStart,
    ToolEnd,
    ApprovalRequest,
    ApprovalResponse,
    StatePatch,
    Custom,
    Output,
    Resync,
}

impl Word {
    /// The word of a chunk type; `None` for what chat leaves out, and for lifecycle chunks.
    pub(super) fn of(kind: &str) -> Option<Self> {
        Some(match kind {
            "text_delta" => Self::Text,
            "thinking" => Self::Thinking,
            "tool_arg_stream_start" => Self::InputStart,
            "tool_arg_stream_delta" => Self::InputDelta,
            "tool_start" => Self::ToolStart,
            "tool_end" => Self::ToolEnd,
            "approval_request" | "tool_approval_request" => Self::ApprovalRequest,
            "approval_response" | "tool_approval_response" => Self::ApprovalResponse,
            STATE_PATCH => Self::StatePatch,
            "custom" | "custom_event" => Self::Custom,
            "output" => Self::Output,
            "stream_resync" => Self::Resync,
            _ => return None,
        })
    }
}

/// Whether a chunk begins its call, or says it once more. An approval's request may be a call's first word, too.
pub fn begins_call(chunk: &Chunk) -> bool {
    match Word::of(chunk.kind()) {
        Some(Word::InputStart | Word::ToolStart) => true,
        Some(Word::ApprovalRequest) => chunk.text("toolName").is_some(),
        _ => false,
    }
}

/// The type of a chunk that patches the session's state.
pub const STATE_PATCH: &str = "state_patch";

/// The operations of a `state_patch`; `None` when it is none, or holds no array.
pub fn state_operations(chunk: &Chunk) -> Option<&Value> {
    if chunk.kind() != STATE_PATCH {
        return None;
    }
    ["patches", "patch", "operations", "ops"].iter().filter_map(|key| chunk.get(key)).find(|value| value.is_array())
}

/// A piece of a tool input's text.
pub(super) fn input_delta(chunk: &Chunk) -> Option<&str> {
    ["delta", "argsTextDelta", "textDelta"].iter().find_map(|key| chunk.text(key))
}

/// How a failed call failed; `None` when it did not.
pub fn failure(chunk: &Chunk) -> Option<&str> {
    let said = match chunk.get("error") {
        Some(Value::String(text)) => Some(text.as_str()),
        Some(Value::Object(error)) => error.get("message").and_then(Value::as_str).or(Some(UNNAMED_FAILURE)),
        _ => None,
    };
    match chunk.get("success").and_then(Value::as_bool) {
        Some(true) => None,
        Some(false) => Some(said.unwrap_or(UNNAMED_FAILURE)),
        None => said,
    }
}

const UNNAMED_FAILURE: &str = "The tool failed";

/// The event that a `stream_resync` chunk is to chat; `None` without the checkpoint that identifies it.
pub(super) fn resync(chunk: &Chunk) -> Option<Chunk> {
    let said = chunk.get("data").and_then(Value::as_object).unwrap_or(chunk.as_map());
    let keys = ["checkpointId", "stepCount", "messageCount", "fromSequence", "reason", "runId", "truncateCheckpointId"];
    let data: Map<String, Value> =
        keys.iter().filter_map(|key| Some(((*key).to_owned(), said.get(*key)?.clone()))).collect();
    let checkpoint = data.get("checkpointId")?.as_str()?;
    let id = format!("{}:{checkpoint}", chunk.text("runId").unwrap_or_default());
    Some(Chunk::new(STREAM_RESYNC).with("id", id).with("data", data))
}

//! What a producer hands to the log: chunks, and commits of the message so far.

use serde_json::Value;

use super::call_ids::CallName;
use super::chunk::Chunk;
use super::ids::AttemptId;
use super::storage::MessageRow;

/// One thing to write, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// A chunk; with the attempt and its step from the attempt's `step_start` on.
    Chunk {
        /// The chunk, without its stamp.
        chunk: Chunk,
        /// The attempt and step that wrote it.
        attempt: Option<(AttemptId, u32)>,
    },
    /// An earlier message has changed by the chunk before this record.
    Amend(MessageRow),
    /// The conversation is whole up to the chunk before this record.
    Commit(Commit),
    /// A call has got its name: stored with the chunk behind this record, that begins it.
    Call(CallName),
}

/// A commit of the response message.
#[derive(Clone, Debug, PartialEq)]
pub struct Commit {
    /// The UI message.
    pub message: Value,
    /// Steps that this run has finished.
    pub step_count: u32,
    /// The conversation's state from here on, as JSON text; `None` leaves it.
    pub state: Option<String>,
}

//! The rows of a session (DESIGN.md section 5) and the writes that change them.

use serde::{Deserialize, Serialize};

use crate::core::ids::{AttemptId, CheckpointId, Cursor, MessageId, RunId, Sequence};
use crate::core::run::StreamStatus;
use crate::core::run::{EntryKind, Fence, RunStatus, Vocabulary};
use crate::core::time::{Millis, UnixMillis};

/// The one row of table `session`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SessionRow {
    /// Whose session it is; `None` while everybody is one anonymous caller.
    pub owner: Option<String>,
    /// Random text that makes this session's message ids unique across sessions.
    pub salt: String,
    /// When the session was created.
    pub created: UnixMillis,
    /// The highest sequence that retention has removed.
    pub floor: Cursor,
    /// The run that holds the claim, or held it last.
    pub run: Option<RunId>,
    /// The stream's own status.
    pub status: StreamStatus,
}

/// A row of table `run`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunRow {
    /// The run's number within the session: 1, 2, 3 …
    pub turn: u32,
    /// The run's id.
    pub id: RunId,
    /// Where the run stands.
    pub status: RunStatus,
    /// What started it.
    pub entry: EntryKind,
    /// The client's idempotency key and the hash of its input.
    pub request_key: Option<String>,
    /// Hash of the entry's input.
    pub input_hash: Option<String>,
    /// Cursor that precedes the run's first chunk.
    pub start: Cursor,
    /// The run's last chunk, once it has ended.
    pub end: Option<Cursor>,
    /// Index of the UI message that the response writes.
    pub message_index: u32,
    /// Id of that message.
    pub message_id: MessageId,
    /// Until when the producer is believed alive.
    pub lease_until: UnixMillis,
    /// Fence within the run: a producer that re-claims gets a higher one.
    pub epoch: u32,
    /// Attempts of the current step.
    pub attempts: u32,
    /// The language of the run's chunks.
    pub vocabulary: Vocabulary,
    /// The agent that was chosen for it.
    pub agent: String,
    /// When the run was started.
    pub started: UnixMillis,
    /// When it ended.
    pub ended: Option<UnixMillis>,
    /// Code of the failure that ended it, as on the wire.
    pub error: Option<crate::core::error::Code>,
    /// How long to wait before trying again, in ms, when the model API said so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// What clients are told of the failure, when it is the app's own text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_text: Option<String>,
    /// When its producer is outside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub push: Option<Pushed>,
    /// What must outlive the object that it runs in.
    #[serde(default, skip_serializing_if = "Life::is_plain")]
    pub life: Life,
}

/// What is known of a running run beside what it says: how often its object died, and since when nobody follows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Life {
    /// Objects that died while a producer in them was writing the run. A producer's own failures are not counted here.
    pub deaths: u32,
    /// When its next attempt begins, while it pauses behind a death.
    pub again_at: Option<UnixMillis>,
    /// Since when nobody follows it; `None` while somebody does, and where nobody asks.
    pub unfollowed: Option<UnixMillis>,
}

impl Life {
    /// Whether there is nothing to tell.
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }
}

/// What is kept of a run whose producer is outside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pushed {
    /// How long the producer may be silent, in ms.
    pub lease: Millis,
    /// The number that its next chunk or operation had when the log's head was at `at`; each chunk stored since took one.
    pub next: u64,
    /// See [`Pushed::next`].
    pub at: Cursor,
    /// What it said with its end: `output` and `usage`, as JSON text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
}

impl RunRow {
    /// What a write of this run must carry now.
    pub fn fence(&self) -> Fence {
        Fence { run: self.id.clone(), epoch: self.epoch }
    }
}

/// A row of table `chunk_block`: finished frames, or one part of a frame that is too large for a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BlockRow {
    /// First sequence × 1024 + part.
    pub key: u64,
    /// Last sequence.
    pub last: Sequence,
    /// The run that wrote it.
    pub run: RunId,
    /// The attempt that wrote it.
    pub attempt: Option<AttemptId>,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// A whole block, its parts put together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Block {
    /// First sequence.
    pub first: Sequence,
    /// Last sequence.
    pub last: Sequence,
    /// The run that wrote it.
    pub run: RunId,
    /// The attempt that wrote it.
    pub attempt: Option<AttemptId>,
    /// Finished frames, `first` to `last`.
    pub bytes: Vec<u8>,
}

/// A row of table `message`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MessageRow {
    /// Place in the conversation: 0, 1, 2 …
    pub index: u32,
    /// The UI message's id.
    pub id: MessageId,
    /// `user`, `assistant` or `system`.
    pub role: String,
    /// The run that wrote it, or that it started.
    pub run: Option<RunId>,
    /// The UI message.
    pub json: String,
}

/// A message without its JSON: what it is and who said it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MessagePlace {
    /// The UI message's id.
    pub id: MessageId,
    /// `user`, `assistant` or `system`.
    pub role: String,
}

/// A row of table `call`: a name that a tool call has taken. Their order is that in which the calls began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CallRow {
    /// The name.
    pub id: String,
    /// The producer's own id, when it is another.
    pub own: Option<String>,
    /// The turn of the run that began the call.
    pub turn: u32,
}

/// What a checkpoint stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointKind {
    /// A run's start with its input.
    Entry,
    /// A finished step.
    Step,
    /// A run's end.
    End,
    /// A rewind of the conversation.
    Truncate,
}

/// A row of table `checkpoint`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckpointRow {
    /// 1, 2, 3 …
    pub ordinal: u32,
    /// The checkpoint's id.
    pub id: CheckpointId,
    /// What it stands for.
    pub kind: CheckpointKind,
    /// Messages that it covers, from the first.
    pub message_count: u32,
    /// The cursor: everything up to here is in those messages.
    pub sequence: Cursor,
    /// Steps that the run has finished.
    pub step_count: u32,
    /// Custom state as JSON text; `None` when there is none.
    pub state: Option<String>,
    /// The run that committed it.
    pub run: RunId,
}

/// A row of table `held_answer`: what a client has answered while the session's run was still writing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HeldRow {
    /// 1, 2, 3 … in the order in which they came.
    pub ordinal: u32,
    /// The answer as JSON text.
    pub json: String,
}

/// A row of table `queued`: a message that waits for its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct QueuedRow {
    /// Its place: the lowest is answered next.
    pub place: u32,
    /// The UI message's id.
    pub message: MessageId,
    /// The run that will answer it.
    pub run: RunId,
    /// The agent that was chosen for it.
    pub agent: String,
    /// The client's idempotency key.
    pub request_key: Option<String>,
    /// Hash of the message's content.
    pub input_hash: String,
    /// Where a producer outside reaches the service.
    pub origin: Option<String>,
    /// When it was queued.
    pub queued: UnixMillis,
    /// The UI message; empty in [`Stored`].
    pub json: String,
}

/// What a session is rebuilt from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stored {
    /// The session.
    pub session: SessionRow,
    /// The run with the highest turn.
    pub run: Option<RunRow>,
    /// The latest checkpoint.
    pub checkpoint: Option<CheckpointRow>,
    /// Id of the latest `truncate` checkpoint.
    pub truncated: Option<CheckpointId>,
    /// The last block without its bytes, and their number.
    pub last_block: Option<(BlockRow, usize)>,
    /// Every call, in the order in which they began.
    pub calls: Vec<CallRow>,
    /// Answers that wait for the run to wait for them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<HeldRow>,
    /// The messages that wait for their answer, in order, without their JSON.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub queue: Vec<QueuedRow>,
}

/// One change. A list of them is applied whole or not at all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Write {
    /// Inserts or replaces the session's row.
    Session(SessionRow),
    /// Inserts or replaces a run, by its turn.
    Run(RunRow),
    /// Inserts a block.
    OpenBlock(BlockRow),
    /// Appends bytes to a block.
    ExtendBlock {
        /// The block's key.
        key: u64,
        /// Its last sequence afterwards.
        last: Sequence,
        /// The bytes to append.
        bytes: Vec<u8>,
    },
    /// Removes the blocks that end at this cursor or before it.
    TrimBlocks(Cursor),
    /// Inserts or replaces a message, by its index.
    Message(MessageRow),
    /// Removes the messages from this index on.
    TruncateMessages(u32),
    /// Inserts a checkpoint.
    Checkpoint(CheckpointRow),
    /// Inserts a call behind those that are there.
    Call(CallRow),
    /// Inserts an answer that is held.
    Hold(HeldRow),
    /// Removes all of them.
    DropHeld,
    /// Inserts or replaces a message that waits, by its place.
    Enqueue(QueuedRow),
    /// Removes the message that waits at this place.
    Dequeue(u32),
    /// Removes every table.
    DropAll,
}

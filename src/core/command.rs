//! What the session machine is asked, what it answers, and why it refuses.

use thiserror::Error;

use super::caller::Caller;
use super::error::Code;
use super::ids::{Cursor, MessageId, RunId, SequenceOutOfRange};
use super::log::Ticket;
use super::record::Record;
use super::run::{Fence, Vocabulary};
use super::storage::Write;
use super::time::{Millis, UnixMillis};

/// No such session, or not yours.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("session not found")]
pub struct NotFound;

/// Why a run did not start.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum StartRefused {
    /// The session belongs to somebody else.
    #[error(transparent)]
    NotFound(#[from] NotFound),
    /// A run is running.
    #[error("run {0} is running")]
    AlreadyRunning(RunId),
    /// The log has no numbers left.
    #[error(transparent)]
    Full(#[from] SequenceOutOfRange),
}

/// Why a run's write changed nothing.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum WriteRefused {
    /// Another run holds the session, or the producer's epoch is stale.
    #[error("the run no longer holds the session")]
    Superseded,
    /// The run has ended already; the first terminal won.
    #[error("the run has ended")]
    Ended,
    /// The log has no numbers left.
    #[error(transparent)]
    Full(#[from] SequenceOutOfRange),
    /// The session may not grow by this, or does not know yet how large it is. Let [`Session::retain`] make room and write once more:
    /// when that is refused too, the run alone is too large, and fails with [`Code::StateSessionFull`].
    ///
    /// [`Session::retain`]: super::session::Session::retain
    #[error("there is no room for {wanted} bytes more")]
    NoRoom {
        /// Bytes that the write would add.
        wanted: u64,
    },
}

impl StartRefused {
    /// The code of the answer.
    pub fn code(&self) -> Code {
        match self {
            Self::NotFound(_) => Code::StateSessionNotFound,
            Self::AlreadyRunning(_) => Code::StateAlreadyRunning,
            Self::Full(_) => Code::FrameworkInternalError,
        }
    }
}

/// A user message that starts a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// Its id, as the client made it.
    pub id: MessageId,
    /// The UI message as JSON text.
    pub json: String,
}

/// What a run is started with.
pub struct Start<'a> {
    /// The moment.
    pub now: UnixMillis,
    /// Who asks; owns the session if this creates it.
    pub caller: &'a Caller,
    /// Fresh id of the run.
    pub run: RunId,
    /// Fresh random text, used if this creates the session.
    pub salt: &'a str,
    /// Name of the agent that answers.
    pub agent: &'a str,
    /// The language of the run's chunks.
    pub vocabulary: Vocabulary,
    /// How long the producer may be silent.
    pub lease: Millis,
    /// The message to answer.
    pub input: Input,
    /// The run's first records, given the id of the message that the response writes.
    pub opening: &'a dyn Fn(&RunId, &MessageId) -> Vec<Record>,
}

/// Writes that hold together or not at all, and the ticket that confirms them.
#[derive(Debug, PartialEq, Eq)]
pub struct Effects {
    /// In the order in which they must be applied.
    pub writes: Vec<Write>,
    /// Chunks among them.
    pub chunks: u64,
    /// Comes back in [`Session::confirmed`] once the writes are durable.
    pub ticket: Ticket,
}

/// A run that has started.
#[derive(Debug)]
pub struct Started {
    /// What to write.
    pub effects: Effects,
    /// What the producer must carry.
    pub fence: Fence,
    /// Id of the message that the response writes.
    pub message_id: MessageId,
    /// Cursor that precedes the run's first chunk.
    pub start: Cursor,
}

/// What a request to stop meets.
#[derive(Debug, PartialEq, Eq)]
pub enum StopTarget {
    /// Nothing is running.
    Idle,
    /// The request names a run that is not the current one.
    Stale,
    /// This run is to be stopped.
    Running(Fence),
}

/// A dead run that has to be settled.
#[derive(Debug, PartialEq, Eq)]
pub enum Due {
    /// The object that produced the run is gone.
    Orphaned(Fence),
    /// The producer was silent for longer than its lease.
    Lapsed(Fence),
}

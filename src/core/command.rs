//! What the session machine is asked, what it answers, and why it refuses.

use thiserror::Error;

use super::call_ids::CallIds;
use super::caller::Caller;
use super::error::Code;
use super::ids::{CheckpointId, Cursor, MessageId, RequestKey, RunId, SequenceOutOfRange};
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
    /// The session is not what it was when this was decided, or planned.
    #[error("the session has changed")]
    Conflict,
    /// A message has an id of the form that replies get.
    #[error("the message id {id} is one of those that replies get; give the message one of its own", id = .0.as_str())]
    IdTaken(MessageId),
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
    /// Another process has claimed the run since.
    #[error("the producer's epoch is stale; the current one is {0}")]
    StaleEpoch(u32),
    /// A number is missing before this one.
    #[error("the expected number is {0}")]
    Gap(u64),
    /// The commit's place is not one: above the head, or below the last commit.
    #[error("the commit's place lies outside of {0} to {1}")]
    Place(Cursor, Cursor),
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

impl WriteRefused {
    /// The code of the answer.
    pub fn code(&self) -> Code {
        match self {
            Self::Superseded => Code::StateRunSuperseded,
            Self::Ended => Code::StateRunEnded,
            Self::StaleEpoch(_) => Code::StateProducerFenced,
            Self::Gap(_) => Code::StateProducerGap,
            Self::Place(..) => Code::ValidationError,
            Self::NoRoom { .. } => Code::StateSessionFull,
            Self::Full(_) => Code::FrameworkInternalError,
        }
    }
}

impl StartRefused {
    /// The code of the answer.
    pub fn code(&self) -> Code {
        match self {
            Self::NotFound(_) => Code::StateSessionNotFound,
            Self::AlreadyRunning(_) => Code::StateAlreadyRunning,
            Self::Conflict => Code::StateRunStartConflict,
            Self::IdTaken(_) => Code::ValidationError,
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

/// What a run answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A new user message.
    Send {
        /// The message.
        input: Input,
        /// The suspended run that this one supersedes.
        abandoned: Option<Abandoned>,
    },
    /// The last answers to a suspended run's calls: the new run continues its message.
    Results {
        /// That message with the answers, as JSON text; `None` when the run paused before it had stored any.
        message: Option<String>,
    },
    /// Messages that a producer outside brings, none or several.
    Push {
        /// The messages, with their roles.
        inputs: Vec<(Input, String)>,
        /// Whether a live run is superseded.
        supersede: bool,
        /// The suspended run that is superseded; a running one leaves its calls given up in its last words.
        abandoned: Option<Abandoned>,
    },
    /// A turn once more, or another message in the place of an old one.
    Rewind {
        /// Messages that stay, from the first.
        keep: u32,
        /// The message that takes the place of what is cut.
        input: Option<Input>,
        /// Why.
        cause: RewindCause,
    },
}

impl Entry {
    /// The messages that it brings.
    pub fn inputs(&self) -> impl Iterator<Item = &Input> {
        let (one, several): (Option<&Input>, &[(Input, String)]) = match self {
            Self::Send { input, .. } => (Some(input), &[]),
            Self::Rewind { input, .. } => (input.as_ref(), &[]),
            Self::Push { inputs, .. } => (None, inputs),
            Self::Results { .. } => (None, &[]),
        };
        one.into_iter().chain(several.iter().map(|(input, _)| input))
    }
}

/// A live run whose place another one takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Abandoned {
    /// Its message with the calls given up, as JSON text; `None` when it paused before it had stored any.
    pub message: Option<String>,
}

/// Why a conversation is cut back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RewindCause {
    /// The turn is run again.
    Retry,
    /// The session goes back to a checkpoint, or to before an edited message.
    Rollback,
}

/// The client's idempotency key of a send, and what it was sent with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyed {
    /// The key.
    pub key: RequestKey,
    /// Hash of the message's content.
    pub input_hash: String,
}

/// A cut that has just been decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewound {
    /// The `truncate` checkpoint.
    pub checkpoint: CheckpointId,
    /// Messages at it.
    pub message_count: u32,
    /// Its place in the log.
    pub from: Cursor,
    /// Why.
    pub cause: RewindCause,
}

/// What a run's first records are made from.
#[derive(Clone, Debug)]
pub struct Opening {
    /// The run.
    pub run: RunId,
    /// The message that it writes.
    pub message_id: MessageId,
    /// The cut that its start makes.
    pub rewound: Option<Rewound>,
    /// Where the conversation stands, when the run takes the place of one that is running, without a cut.
    pub displaced: Option<Rewound>,
    /// The names that the session's calls have taken.
    pub calls: CallIds,
}

/// What a run is started with, apart from its first records.
#[derive(Clone, Debug)]
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
    /// The client's key, if it gave one.
    pub key: Option<Keyed>,
    /// What the run answers.
    pub entry: Entry,
    /// How long the producer outside may be silent, when there is one.
    pub push: Option<Millis>,
    /// The conversation's state from here on, as JSON text, if it changes.
    pub state: Option<String>,
}

/// What becomes of a live run whose place another one takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Displacement {
    /// It is stopped, as by a request to stop.
    Interrupted,
    /// It is superseded.
    Superseded,
}

/// What a live run leaves behind whose place another one takes.
#[derive(Clone, Copy, Debug)]
pub struct LastWords<'a> {
    /// The run.
    pub fence: &'a Fence,
    /// What it says last, and the commit of its message as far as it came.
    pub records: &'a [Record],
    /// What becomes of it.
    pub displacement: Displacement,
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
    /// The run whose place it took, if that was running or suspended and is not continued.
    pub superseded: Option<RunId>,
}

/// What a request to stop meets.
#[derive(Debug, PartialEq, Eq)]
pub enum StopTarget {
    /// Nothing is running.
    Idle,
    /// The request names a run that is not the current one.
    Stale,
    /// This run, running or suspended, is to be stopped.
    Live(Fence),
}

/// A run that has to be settled before anything else is answered.
#[derive(Debug, PartialEq, Eq)]
pub enum Due {
    /// The object that produced the run is gone.
    Orphaned(Fence),
    /// The producer was silent for longer than its lease.
    Lapsed(Fence),
    /// The run waits, and answers that came earlier are not told yet.
    Answered(Fence),
}

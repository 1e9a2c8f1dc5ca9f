//! Why the body of a push producer's request is refused, in words that say what to change.

use thiserror::Error;

use crate::core::error::Code;
use crate::core::ids::{InvalidRequestKey, SequenceOutOfRange};
use crate::core::state::StateRefused;
use crate::dialect::ui::message::Invalid;

/// Why a body was refused.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Refusal {
    /// Not JSON, or nested deeper than 128 levels.
    #[error("the body must be JSON")]
    NotJson,
    /// JSON of another kind.
    #[error("the body must be {0}")]
    NotA(&'static str),
    /// A key has a value that cannot be used, or is missing.
    #[error("{key} must be {expected}")]
    WrongType {
        /// The key.
        key: &'static str,
        /// What it must be.
        expected: &'static str,
    },
    /// Two keys of which one excludes the other.
    #[error("{0} and {1} cannot be said at once")]
    Both(&'static str, &'static str),
    /// A run's id that cannot stand in a path or in an approval's id.
    #[error(
        "runId must have 1 to 256 bytes without control characters and without / ? # % \\ and ::, and not be . or .."
    )]
    RunId,
    /// A message is not a UI message.
    #[error("messages[{index}]: {invalid}")]
    Message {
        /// Its place.
        index: usize,
        /// What is wrong with it.
        invalid: Invalid,
    },
    /// A message without what every message has.
    #[error("messages[{0}] must be an object with a string id and a string role, nested at most 100 levels")]
    Outline(usize),
    /// Two messages of one id.
    #[error("messages[{0}] has the id of a message before it")]
    Twice(usize),
    /// The id of a message that is stored, or that a reply will have.
    #[error("messages: a message of the id {0:?} is there already; name the run, or give the message an id of its own")]
    IdTaken(String),
    /// The request key.
    #[error(transparent)]
    RequestKey(#[from] InvalidRequestKey),
    /// The state.
    #[error(transparent)]
    State(#[from] StateRefused),
    /// The sequence.
    #[error("throughSequence: {0}")]
    Sequence(#[from] SequenceOutOfRange),
}

impl Refusal {
    /// The code of the answer.
    pub fn code(&self) -> Code {
        Code::ValidationError
    }
}

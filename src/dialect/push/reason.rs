//! Why a pushed chunk, or a commit without messages, was refused.

use thiserror::Error;

use crate::core::state::StateRefused;
use crate::dialect::ui::fold::FoldError;

/// Why a chunk was refused, in words that say what to change.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Reason {
    /// No object, or one without a string `type`.
    #[error("a chunk is a JSON object with a string `type`")]
    NotAChunk,
    /// Nested too deeply.
    #[error("a chunk must not be nested deeper than {} levels", crate::core::chunk::MAX_DEPTH)]
    TooDeep,
    /// A type that UI message streams do not have.
    #[error("{0} is not a chunk type of AI SDK UI message streams")]
    UnknownType(String),
    /// A key is missing or has a value of another type.
    #[error("{kind} needs {key} to be {expected}")]
    Key {
        /// The chunk's type.
        kind: String,
        /// The key.
        key: &'static str,
        /// What it must be.
        expected: &'static str,
    },
    /// An event that only the service writes.
    #[error("{0} is written by the service only")]
    Event(String),
    /// `error`.
    #[error("a run does not fail by a chunk of type error: use fail")]
    UseFail,
    /// `abort`.
    #[error("a run is not stopped by a chunk of type abort: use end with the status interrupted")]
    UseEnd,
    /// Something behind `finish`.
    #[error("finish was the run's last chunk: end the run")]
    AfterFinish,
    /// A text or reasoning part whose id is open.
    #[error("{kind} for {id}, which is open already")]
    AlreadyOpen {
        /// The chunk's type.
        kind: String,
        /// The part's id.
        id: String,
    },
    /// `finish-step` without a step.
    #[error("finish-step without start-step before it")]
    NoStep,
    /// `reset-step` behind content.
    #[error("reset-step cannot take back what clients have read: start a new run that supersedes this one")]
    Reset,
    /// The id of a call of an earlier step.
    #[error("the id {0} belongs to an earlier tool call of this message: give each call its own")]
    CallTaken(String),
    /// A call's second name.
    #[error("the call {call} has begun as one of the {dynamic} {tool}")]
    CallName {
        /// The call's id.
        call: String,
        /// What kind of tool.
        dynamic: &'static str,
        /// The tool's name.
        tool: String,
    },
    /// A chunk that does not fit where its call stands.
    #[error("{kind} does not fit the call {call} in the state {state}")]
    CallState {
        /// The chunk's type.
        kind: String,
        /// The call's id.
        call: String,
        /// Where it stands.
        state: String,
    },
    /// Clients would fail on it at this place.
    #[error(transparent)]
    Fold(#[from] FoldError),
    /// A `state_patch` that cannot be applied.
    #[error(transparent)]
    State(#[from] StateRefused),
    /// An attempt's id that is too long.
    #[error("attemptId must have at most 256 bytes")]
    AttemptId,
    /// An attempt's id once more, in another step.
    #[error("attemptId {0} belongs to an earlier step: give each attempt its own")]
    AttemptUsed(String),
    /// The log has no numbers left.
    #[error("the log is full")]
    Full,
}

/// A refused chunk and its place in the request, from 0.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("chunk {index}: {reason}")]
pub struct Refused {
    /// Its place among the request's chunks.
    pub index: usize,
    /// Why.
    pub reason: Reason,
}

/// Why nothing can be committed without messages.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum NotWhole {
    /// The log is not there, or is no longer than this.
    #[error("the run has no chunk at this sequence")]
    NoSuchPlace,
    /// The place lies in the middle of a part.
    #[error("the message is not whole here: {0} is still open")]
    Open(String),
    /// No step is finished.
    #[error("no step is finished yet")]
    NoStep,
    /// Opaque chunks make no message.
    #[error("chunks of this vocabulary make no message: give messages")]
    Opaque,
}

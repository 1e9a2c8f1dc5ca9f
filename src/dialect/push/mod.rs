//! The push protocol: a producer outside writes a run over HTTP. This file is the map of the room.
//!
//! * [`numbers`]: the `Producer-Epoch` and `Producer-Seq` headers.
//! * [`body`]: what the requests say; [`fields`] reads their keys; [`refusal`]: why one is refused. [`append`]: a JSON body of
//!   chunks; [`ndjson`]: one that stays open; [`ending`]: the end, the failure and the pause of a run.
//! * [`own_messages`]: the messages that requests bring, and that no id is there twice.
//! * [`admit`]: what a pushed chunk becomes in the log, and the message that a commit folds; [`reason`] says why not,
//!   `held` keeps what clients answered meanwhile, [`elsewhere`] a result for an earlier message's call,
//!   `ui_rules` which UI chunks clients would fail on, `helix_marks` which attempt a Helix chunk belongs to.

pub mod admit;
#[cfg(test)]
mod admit_tests;
pub mod append;
pub mod body;
pub mod elsewhere;
pub mod ending;
mod fields;
mod held;
mod helix_marks;
pub mod ndjson;
pub mod numbers;
pub mod own_messages;
pub mod reason;
pub mod refusal;
mod ui_rules;

//! One execution that answers one entry: its status, its fence and its outcome.

use serde::{Deserialize, Serialize};

use super::error::Code;
use super::ids::RunId;

/// Where a run stands (`spec/helix.md` 1.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// Executing.
    Running,
    /// Waiting for a client's tool result or approval.
    SuspendedClientTool,
    /// Its producer waits for sub-agents of its own.
    SuspendedAwaitingChildren,
    /// Its producer has done a step in part, and goes on with it by itself.
    SuspendedStepPartial,
    /// Finished.
    Completed,
    /// Ended by a failure.
    Failed,
    /// Stopped by request.
    Interrupted,
    /// Another run took the session.
    Superseded,
}

/// The stream's own status (`spec/helix.md` 1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamStatus {
    /// A run is writing.
    Active,
    /// The run is suspended.
    Paused,
    /// The last run finished or was stopped.
    Ended,
    /// The last run failed.
    Failed,
}

impl RunStatus {
    /// Whether the run still counts as live: running or suspended.
    pub fn is_live(self) -> bool {
        self == Self::Running || self.is_suspended()
    }

    /// Whether the run has paused, whoever it waits for.
    pub fn is_suspended(self) -> bool {
        self == Self::SuspendedClientTool || self.is_paused_for_itself()
    }

    /// Whether the run waits for its own producer: no client can answer it, and to a send it is as good as running.
    pub fn is_paused_for_itself(self) -> bool {
        matches!(self, Self::SuspendedAwaitingChildren | Self::SuspendedStepPartial)
    }

    /// Whether a reply is under way that a new message would disturb.
    pub fn is_busy(self) -> bool {
        self == Self::Running || self.is_paused_for_itself()
    }
}

/// What started a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// A new user message.
    Send,
    /// Answers to a suspended run's calls.
    ToolResult,
    /// The same turn again.
    Retry,
    /// Another message in the place of an old one.
    Edit,
}

/// The language of a run's chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Vocabulary {
    /// AI SDK UI message chunks.
    Ui,
    /// Helix chunks, projected for chat (`spec/helix.md` section 10).
    Helix,
    /// Any JSON, on the wire only.
    Opaque,
}

/// What every write of a run carries; a stale one changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    /// The run.
    pub run: RunId,
    /// The producer's claim within the run.
    pub epoch: u32,
}

/// What a producer outside waits for by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnPause {
    /// Sub-agents.
    AwaitingChildren,
    /// The rest of a step.
    StepPartial,
}

/// How a run ends. The first one wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The producer finished.
    Completed,
    /// The run waits for answers to its calls.
    Suspended,
    /// The run waits for its own producer.
    Paused(OwnPause),
    /// Somebody asked to stop.
    Interrupted,
    /// The producer failed, or died.
    Failed(Code),
}

impl Outcome {
    /// The status that a run with this outcome has.
    pub fn status(self) -> RunStatus {
        match self {
            Self::Completed => RunStatus::Completed,
            Self::Suspended => RunStatus::SuspendedClientTool,
            Self::Paused(OwnPause::AwaitingChildren) => RunStatus::SuspendedAwaitingChildren,
            Self::Paused(OwnPause::StepPartial) => RunStatus::SuspendedStepPartial,
            Self::Interrupted => RunStatus::Interrupted,
            Self::Failed(_) => RunStatus::Failed,
        }
    }
}

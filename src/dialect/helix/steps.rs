//! The projector's part for steps and their attempts (`spec/helix.md` 1.8).

use std::collections::BTreeSet;

use serde_json::Value;

use crate::core::chunk::Chunk;
use crate::core::ids::{AttemptId, RunId};
use crate::dialect::ui::resync::AttemptSuperseded;

/// Agent in events of a chunk that names none.
const UNNAMED_AGENT: &str = "assistant";

/// The step that is open.
#[derive(Clone, Debug)]
struct Step {
    attempt: Option<String>,
    number: Option<u64>,
    /// Attempts of the same step before this one.
    earlier: Vec<String>,
    has_content: bool,
}

/// The steps of a run so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Steps {
    open: Option<Step>,
    lost: BTreeSet<String>,
    seen: BTreeSet<String>,
}

impl Steps {
    /// The attempt that content belongs to now.
    pub fn attempt(&self) -> Option<&str> {
        self.open.as_ref()?.attempt.as_deref()
    }

    /// Whether an attempt has lost its step.
    pub fn lost(&self, attempt: Option<&str>) -> bool {
        attempt.is_some_and(|attempt| self.lost.contains(attempt))
    }

    /// Whether a chunk comes from an attempt that has lost its step.
    pub fn has_lost(&self, chunk: &Chunk) -> bool {
        self.lost(chunk.text("attemptId"))
    }

    /// Something is shown of the open attempt.
    pub fn has_content(&mut self) {
        if let Some(step) = &mut self.open {
            step.has_content = true;
        }
    }

    /// A chunk of the attempt that is open.
    pub fn stamp(&self, chunk: Chunk, run: &RunId) -> Chunk {
        let step = self.open.as_ref();
        stamped(chunk, run, step.and_then(|step| step.attempt.as_deref()), step.and_then(|step| step.number))
    }

    /// Whether this `step_start` says once more what is open, or comes late from an attempt that is over.
    pub fn is_known(&self, chunk: &Chunk) -> bool {
        chunk.text("attemptId").is_some_and(|attempt| self.seen.contains(attempt))
    }

    /// Whether this `step_start` begins another attempt of the open step.
    pub fn is_retried_by(&self, chunk: &Chunk) -> bool {
        let same = |step: &Step| {
            step.number.is_some()
                && step.number == number(chunk)
                && step.attempt.is_some()
                && chunk.text("attemptId").is_some()
        };
        self.open.as_ref().is_some_and(same)
    }

    /// Opens a step, or a new attempt of the open one.
    pub fn begin(&mut self, chunk: &Chunk, run: &RunId, out: &mut Vec<Chunk>) {
        let before = if self.is_retried_by(chunk) { self.open.take() } else { None };
        out.push(chunk.clone());
        let attempt = chunk.text("attemptId").map(str::to_owned);
        self.seen.extend(attempt.clone());
        let mut step = Step { attempt, number: number(chunk), earlier: Vec::new(), has_content: false };
        if let Some(Step { attempt: Some(lost), earlier, has_content, .. }) = before {
            if let (true, Some(attempt)) = (has_content, &step.attempt) {
                let event = AttemptSuperseded {
                    run,
                    agent: chunk.text("agentId").unwrap_or(UNNAMED_AGENT),
                    step: step.number.and_then(|step| u32::try_from(step).ok()).unwrap_or_default(),
                    attempt: &AttemptId::new(attempt.as_str()),
                    superseded: &AttemptId::new(lost.as_str()),
                };
                out.push(event.chunk().with("runId", run.as_str()));
            }
            self.lost.insert(lost.clone());
            step.earlier = earlier;
            step.earlier.push(lost);
        }
        self.open = Some(step);
        out.push(self.stamp(Chunk::new("start-step"), run));
    }

    /// Ends the open step without a commit of its own.
    pub fn finish(&mut self, run: &RunId, out: &mut Vec<Chunk>) {
        if self.open.is_some() {
            out.push(self.stamp(Chunk::new("finish-step"), run));
            self.open = None;
        }
    }

    /// Whether this `step_committed` is about the open step.
    pub fn is_committed_by(&self, chunk: &Chunk) -> bool {
        self.open.as_ref().is_some_and(|step| step.attempt.as_deref() == chunk.text("attemptId"))
    }

    /// Whether this `step_committed` names an attempt before the open one.
    pub fn wins_back(&self, chunk: &Chunk) -> bool {
        let named = chunk.text("committedAttemptId");
        self.open.as_ref().is_some_and(|step| step.earlier.iter().any(|earlier| Some(earlier.as_str()) == named))
    }

    /// Ends the open step with its commit.
    pub fn commit(&mut self, chunk: &Chunk, run: &RunId, out: &mut Vec<Chunk>) {
        let back = self.wins_back(chunk);
        let Some(step) = self.open.take() else { return };
        let winner = chunk.text("committedAttemptId").filter(|_| back).or(step.attempt.as_deref());
        out.push(stamped(Chunk::new("finish-step"), run, winner, step.number));
        if let (true, Some(winner)) = (back, winner) {
            self.lost.remove(winner);
            self.lost.extend(step.attempt.clone());
        }
        // `Attempts` and `Fold` know a commit by the attempt that was open.
        out.push(stamped(chunk.clone(), run, step.attempt.as_deref(), step.number));
    }
}

fn number(chunk: &Chunk) -> Option<u64> {
    chunk.get("step").and_then(Value::as_u64)
}

/// The chunk as the log would have stored it.
pub(super) fn stamped(chunk: Chunk, run: &RunId, attempt: Option<&str>, step: Option<u64>) -> Chunk {
    let chunk = chunk.with("runId", run.as_str());
    match (attempt, step) {
        (Some(attempt), Some(step)) => chunk.with("attemptId", attempt).with("step", step),
        (Some(attempt), None) => chunk.with("attemptId", attempt),
        (None, _) => chunk,
    }
}

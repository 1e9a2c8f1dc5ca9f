//! New attempts, and what the writer puts into the log for responses rather than for the message.

use serde_json::{Map, Value};

use super::{Phase, RunWriter};
use crate::core::chunk::{CONTINUES, Chunk, STAMP_KEYS, is_too_deep, lifecycle};
use crate::core::ids::AttemptId;
use crate::core::record::Record;
use crate::dialect::ui::calls::tool_of;
use crate::dialect::ui::fold::tool::call_of;
use crate::dialect::ui::resync::{ATTEMPT_SUPERSEDED, AttemptSuperseded};
use crate::dialect::ui::vocabulary::shape;

/// Stands for the agent in events of a run whose agent has no name.
pub(super) const UNNAMED_AGENT: &str = "assistant";

impl RunWriter {
    /// Begins a new attempt of the step that is open: what the last one wrote no longer counts. Nothing when no step
    /// is open.
    ///
    /// When the last one had content, a `data-attempt-superseded` event follows the new `step_start`. Its open parts get
    /// no ends: a replay leaves them out with all the rest, a stock response that has sent any breaks its body, and an
    /// aware client reads the snapshot again upon the event.
    pub fn restart_step(&mut self) -> Vec<Record> {
        let mut out = Vec::new();
        if let Phase::Step { .. } = self.phase {
            let superseded = (!self.step_is_empty()).then(|| self.attempt_id());
            self.begin_attempt(&mut out, self.attempt.saturating_add(1), superseded.as_ref());
        }
        out
    }

    /// As [`RunWriter::restart_step`], for a run whose object died. When the step had content, clients are told with `resync` that it counts
    /// no more; it stands behind the new attempt's beginning and before its content.
    pub fn recover_step(&mut self, resync: Chunk) -> Vec<Record> {
        let mut out = self.restart_step();
        let is_event =
            |record: &Record| matches!(record, Record::Chunk { chunk, .. } if chunk.kind() == ATTEMPT_SUPERSEDED);
        if out.iter().any(is_event) {
            out.extend(self.announce(resync));
        }
        out
    }

    /// An event for clients (`resync`), at this place of the log. It belongs to no attempt, so that it outlives all.
    pub fn announce(&self, event: Chunk) -> Vec<Record> {
        if self.phase == Phase::Ended { Vec::new() } else { vec![Record::Chunk { chunk: event, attempt: None }] }
    }

    /// An answer to a call of the message that the run continues, as its client gave it. It stands behind the run's `start`, so that
    /// every follower learns of it.
    pub fn inherit(&mut self, mut answer: Chunk) -> Vec<Record> {
        for key in STAMP_KEYS {
            answer.remove(key);
        }
        let mut out = Vec::new();
        self.emit(&mut out, answer);
        out
    }

    /// Steps that were finished.
    pub fn steps_done(&self) -> u32 {
        self.steps_done
    }

    /// Whether the last step is finished and no other has begun.
    pub fn is_between_steps(&self) -> bool {
        self.phase == Phase::Between
    }

    /// Whether nothing is committed yet that a new attempt would repeat.
    pub fn may_restart(&self) -> bool {
        self.steps_done == 0 && !matches!(self.phase, Phase::Uncommitted | Phase::Ended)
    }

    /// Whether a new attempt would take this call back.
    pub fn takes_back(&self, call: &str) -> bool {
        let at = self.fold.find_call(call);
        matches!(self.phase, Phase::Step { .. }) && at.is_some_and(|at| at >= self.step_base)
    }

    /// A result for a call of an earlier message than the run's, which somebody else has put there: the run's message
    /// does not change, and a response shows the result only if it owns the call (`spec/helix.md` 5.7).
    pub fn answer_earlier(&self, tool: &str, mut result: Chunk) -> Vec<Record> {
        for key in STAMP_KEYS {
            result.remove(key);
        }
        let fits = result.kind().starts_with("tool-output-")
            && shape(result.kind()).is_some_and(|shape| shape.lacks(result.as_map()).is_none())
            && !result.as_map().values().any(is_too_deep);
        if fits { self.announce(result.with(CONTINUES, tool)) } else { Vec::new() }
    }

    pub(super) fn begin_attempt(&mut self, out: &mut Vec<Record>, attempt: u32, superseded: Option<&AttemptId>) {
        self.attempt = attempt;
        self.phase = Phase::Step { asked: false };
        self.emit(out, Chunk::new(lifecycle::STEP_START));
        if let Some(superseded) = superseded {
            let (run, agent, step) = (&self.run, self.agent.as_str(), self.step);
            let event = AttemptSuperseded { run, agent, step, attempt: &self.attempt_id(), superseded };
            out.extend(self.announce(event.chunk()));
        }
        self.emit(out, Chunk::new("start-step"));
    }
}

/// Marks a chunk that changes a call of the continued message; a part that is no call needs no mark. The call is named too,
/// because an approval's answer names only the approval.
pub(super) fn continuing(chunk: Chunk, part: &Map<String, Value>) -> Chunk {
    match tool_of(part) {
        Some(tool) => chunk.with("toolCallId", call_of(part)).with(CONTINUES, tool),
        None => chunk,
    }
}

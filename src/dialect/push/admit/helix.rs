//! Admission of Helix chunks.

use serde_json::Value;

use super::{Admission, Admitted, Done, Language};
use crate::core::chunk::{CONTINUES, Chunk, lifecycle};
use crate::core::ids::Sequence;
use crate::dialect::helix::projector::apply;
use crate::dialect::push::reason::Reason;
use crate::dialect::ui::resync::is_event;

impl Admission {
    pub(super) fn admit_helix(&mut self, mut chunk: Chunk, sequence: Sequence) -> Result<Admitted, Reason> {
        if is_event(chunk.kind()) {
            return Err(Reason::Event(chunk.kind().into()));
        }
        chunk.remove("runId");
        chunk.remove(CONTINUES);
        let state = self.patched_by(&chunk)?;
        let Language::Helix { marks, .. } = &mut self.language else { return Err(Reason::NotAChunk) };
        let attempt = marks.mark(&chunk)?;
        let mut stored = chunk.clone().with("runId", self.run.as_str());
        if let Some((id, step)) = &attempt {
            stored = stored.with("attemptId", id.as_str()).with("step", *step);
        } else {
            stored.remove("attemptId");
        }
        self.take_helix(&stored, sequence, state);
        Ok(Admitted { chunk, attempt, name: None })
    }

    pub(super) fn take_helix(&mut self, stored: &Chunk, sequence: Sequence, state: Option<Value>) {
        let clean = stored.kind() == lifecycle::STEP_START && self.step_from.is_some() && self.half_said().is_none();
        let before = self.at;
        let Language::Helix { projector, .. } = &mut self.language else { return };
        let retried = projector.is_retried_by(stored);
        let seen = projector.project(stored);
        self.state = state.or(self.state.take());
        if retried {
            self.state.clone_from(&self.state_before);
        }
        let mut ended = false;
        for chunk in &seen {
            apply(&mut self.fold, chunk);
            match chunk.kind() {
                "start-step" => {
                    self.step_from = Some(self.fold.part_count());
                    self.state_before.clone_from(&self.state);
                }
                "finish-step" => {
                    ended = true;
                    self.step_from = None;
                    self.steps = self.steps.saturating_add(1);
                }
                _ => {}
            }
        }
        if ended && self.step_from.is_none() {
            self.done = Some(Done { cursor: sequence.cursor(), step_count: self.steps });
        } else if clean && ended {
            // The next step has begun without a commit of this one: it ended before that.
            self.done = Some(Done { cursor: before, step_count: self.steps });
        }
    }
}

//! A writer in the place of one that died.

use serde_json::Value;

use super::{Phase, RunWriter};
use crate::core::chunk::{Chunk, lifecycle};
use crate::core::ids::RunId;

impl RunWriter {
    /// A writer at the run's last commit: `message` as it was committed with `steps_done` steps. The chunks behind that commit are
    /// replayed next. `continues`: the message was begun by an earlier run.
    pub fn resume(run: RunId, message: Value, steps_done: u32, continues: bool) -> Self {
        let mut writer = Self::continuing(run, message);
        writer.step = steps_done;
        writer.steps_done = steps_done;
        if !continues {
            writer.inherited = 0;
        }
        writer
    }

    /// Takes note of the run's next stored chunk. Who has taken note of all of them, from the start or from a commit, is in the place of
    /// the writer that died.
    pub fn replay(&mut self, chunk: &Chunk) {
        match chunk.kind() {
            lifecycle::STEP_START => {
                let step = chunk.get("step").and_then(Value::as_u64).and_then(|step| u32::try_from(step).ok());
                let step = step.unwrap_or_else(|| self.step.saturating_add(1));
                if step == self.step && self.phase != Phase::Between {
                    self.attempt = self.attempt.saturating_add(1);
                } else {
                    self.attempt = 1;
                    self.step_base = self.fold.parts.len();
                }
                self.step = step;
                self.phase = Phase::Step { asked: true };
            }
            lifecycle::STEP_COMMITTED => {
                self.steps_done = self.step;
                self.phase = Phase::Between;
                self.committed = self.fold.message();
            }
            "finish-step" if matches!(self.phase, Phase::Step { .. }) => self.phase = Phase::Uncommitted,
            "finish" => self.phase = Phase::Ended,
            _ => {}
        }
        // The log was written by a writer: a chunk that does not fold is a damaged one, and costs only itself.
        drop(self.fold.apply(chunk));
    }
}

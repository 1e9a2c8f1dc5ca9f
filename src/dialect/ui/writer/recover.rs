//! A writer in the place of one that died.

use serde_json::Value;

use super::{Phase, RunWriter};
use crate::core::chunk::{Chunk, lifecycle};
use crate::core::ids::{MessageId, RunId};

impl RunWriter {
    /// A writer in the place of one that died, from the run's stored chunks.
    pub fn recover<'a>(run: RunId, message_id: MessageId, stored: impl Iterator<Item = &'a Chunk>) -> Self {
        Self::new(run, message_id).replayed(stored)
    }

    /// As [`RunWriter::recover`], for a run that continues a committed message (as it was when the run began).
    pub fn recover_continuing<'a>(run: RunId, message: Value, stored: impl Iterator<Item = &'a Chunk>) -> Self {
        Self::continuing(run, message).replayed(stored)
    }

    fn replayed<'a>(mut self, stored: impl Iterator<Item = &'a Chunk>) -> Self {
        for chunk in stored {
            self.replay(chunk);
        }
        self
    }

    /// Takes note of the run's next stored chunk, as [`RunWriter::recover`] does of all of them.
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

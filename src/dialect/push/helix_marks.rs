//! Which attempt and step a pushed Helix chunk is stamped with.
//!
//! A producer that names its attempts is taken at its word. For one that does not, each `step_start` begins an attempt `run-step-n`, and
//! what follows belongs to it until the step is committed. A `step_start` without a number is the next step, never a retry.

use serde_json::Value;

use super::admit::Reason;
use crate::core::chunk::{Chunk, lifecycle};
use crate::core::ids::{AttemptId, RunId};

/// Longest attempt id, in bytes: it stands on every chunk of the attempt.
const MAX_ID_BYTES: usize = 256;

#[derive(Clone, Debug)]
struct Open {
    attempt: AttemptId,
    step: u32,
    /// Number of the attempt in its step.
    nth: u32,
    /// Whether the id was made here.
    derived: bool,
}

/// The marks of a run's chunks so far.
#[derive(Clone, Debug)]
pub(super) struct Marks {
    run: RunId,
    open: Option<Open>,
    step: u32,
}

impl Marks {
    pub fn new(run: RunId) -> Self {
        Self { run, open: None, step: 0 }
    }

    /// The mark of the run's next chunk, pushed or read again.
    pub fn mark(&mut self, chunk: &Chunk) -> Result<Option<(AttemptId, u32)>, Reason> {
        let named = chunk.text("attemptId").filter(|id| !id.is_empty());
        if named.is_some_and(|id| id.len() > MAX_ID_BYTES) {
            return Err(Reason::AttemptId);
        }
        let step = chunk.get("step").and_then(Value::as_u64).and_then(|step| u32::try_from(step).ok());
        let open = self.open.as_ref();
        match chunk.kind() {
            lifecycle::STEP_START => {
                let step = step.unwrap_or(self.step.saturating_add(1));
                let before = open.filter(|open| open.step == step);
                let again = before.is_some_and(|open| named == Some(open.attempt.as_str()));
                let nth = before.map_or(1, |open| open.nth.saturating_add(u32::from(!again)));
                let derived = AttemptId::new(format!("{}-{step}-{nth}", self.run));
                let attempt = named.map_or(derived.clone(), AttemptId::new);
                let mark = (attempt.clone(), step);
                self.step = step;
                self.open = Some(Open { derived: attempt == derived, attempt, step, nth });
                Ok(Some(mark))
            }
            lifecycle::STEP_COMMITTED => {
                let about = open.filter(|open| step.is_none_or(|step| step == open.step));
                let mark = about.map(|open| (open.attempt.clone(), open.step));
                if mark.is_some() {
                    self.open = None;
                }
                Ok(mark.or_else(|| Some((AttemptId::new(named?), step?))))
            }
            _ => Ok(match (named, open) {
                (Some(id), open) => {
                    Some((AttemptId::new(id), step.or(open.map(|open| open.step)).unwrap_or(self.step)))
                }
                (None, Some(open)) if open.derived => Some((open.attempt.clone(), open.step)),
                (None, _) => None,
            }),
        }
    }
}

//! Which attempt and step a pushed Helix chunk is stamped with.
//!
//! A producer that names its attempts is taken at its word. For one that does not, each `step_start` begins an attempt `run-step-n`, and
//! what follows belongs to it until the step is committed. A `step_start` without a number is the next step, never a retry; one with the
//! number of a step that is over is the next step, too: numbers only grow, so that nothing that is over is taken back.

use std::collections::BTreeMap;

use serde_json::Value;

use super::reason::Reason;
use crate::core::chunk::{Chunk, lifecycle};
use crate::core::ids::{AttemptId, RunId};

/// Longest attempt id, in bytes: it stands on every chunk of the attempt.
const MAX_ID_BYTES: usize = 256;

#[derive(Clone, Debug)]
struct Open {
    attempt: AttemptId,
    step: u32,
    /// The step's number in the producer's words.
    said: Option<u32>,
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
    /// The last step's number.
    step: u32,
    /// Attempts so far, each with its step.
    used: BTreeMap<String, u32>,
}

impl Marks {
    pub fn new(run: RunId) -> Self {
        Self { run, open: None, step: 0, used: BTreeMap::new() }
    }

    /// The mark of the run's next chunk, pushed or read again.
    pub fn mark(&mut self, chunk: &Chunk) -> Result<Option<(AttemptId, u32)>, Reason> {
        let named = chunk.text("attemptId").filter(|id| !id.is_empty());
        if named.is_some_and(|id| id.len() > MAX_ID_BYTES) {
            return Err(Reason::AttemptId);
        }
        let step = chunk.get("step").and_then(Value::as_u64).and_then(|step| u32::try_from(step).ok());
        match chunk.kind() {
            lifecycle::STEP_START => self.begin(named, step).map(Some),
            lifecycle::STEP_COMMITTED => {
                let about = |open: &&Open| step.is_none() || step == open.said || named == Some(open.attempt.as_str());
                let mark = self.open.as_ref().filter(about).map(|open| (open.attempt.clone(), open.step));
                if mark.is_some() {
                    self.open = None;
                }
                Ok(mark)
            }
            _ => Ok(match (named, &self.open) {
                (Some(id), open) => {
                    let open = open.as_ref().filter(|open| open.attempt.as_str() == id).map(|open| open.step);
                    Some((AttemptId::new(id), open.or(self.used.get(id).copied()).or(step).unwrap_or(self.step)))
                }
                (None, Some(open)) if open.derived => Some((open.attempt.clone(), open.step)),
                (None, _) => None,
            }),
        }
    }

    fn begin(&mut self, named: Option<&str>, said: Option<u32>) -> Result<(AttemptId, u32), Reason> {
        let before = self.open.as_ref().filter(|open| said.is_some() && open.said == said);
        let step = match (before, said) {
            (Some(open), _) => open.step,
            (None, Some(said)) if said > self.step => said,
            _ => self.step.saturating_add(1),
        };
        if let Some((id, used)) = named.and_then(|id| Some((id, *self.used.get(id)?))) {
            // The same word again, or a late one of an attempt that has lost.
            return if before.is_some() && used == step {
                Ok((AttemptId::new(id), step))
            } else {
                Err(Reason::AttemptUsed(id.into()))
            };
        }
        let derived = |nth: u32| format!("{}-{step}-{nth}", self.run);
        let mut nth = before.map_or(1, |open| open.nth.saturating_add(1));
        while named.is_none() && self.used.contains_key(&derived(nth)) {
            nth = nth.saturating_add(1);
        }
        let made = derived(nth);
        let id = named.unwrap_or(&made);
        let attempt = AttemptId::new(id);
        self.used.insert(id.to_owned(), step);
        self.step = step;
        self.open = Some(Open { attempt: attempt.clone(), step, said: said.or(Some(step)), nth, derived: id == made });
        Ok((attempt, step))
    }
}

//! Which attempts of a run's steps a replay leaves out (`spec/helix.md` 1.8).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::core::chunk::{Chunk, lifecycle};

/// The attempts that lost their step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Superseded(BTreeSet<String>);

impl Superseded {
    /// Reads a run's chunks, in order. The winner of a step is the attempt that its commit names, if it streamed in the
    /// step; else the one that began last. Clocks play no part.
    pub fn of<'a>(chunks: impl Iterator<Item = &'a Chunk>) -> Self {
        let mut lost = BTreeSet::new();
        // Attempts of the steps that are not committed, oldest first.
        let mut open: BTreeMap<u64, Vec<String>> = BTreeMap::new();
        for chunk in chunks {
            let Some(step) = chunk.get("step").and_then(Value::as_u64) else { continue };
            match (chunk.kind(), chunk.text("attemptId")) {
                (lifecycle::STEP_START, Some(attempt)) => {
                    let attempts = open.entry(step).or_default();
                    if !attempts.iter().any(|one| one == attempt) {
                        attempts.push(attempt.to_owned());
                    }
                }
                (lifecycle::STEP_COMMITTED, _) => {
                    let attempts = open.remove(&step).unwrap_or_default();
                    lose_all_but(&mut lost, attempts, chunk.text("committedAttemptId"));
                }
                _ => {}
            }
        }
        for attempts in open.into_values() {
            lose_all_but(&mut lost, attempts, None);
        }
        Self(lost)
    }

    /// Whether a replay leaves this chunk out. The writer stamps only what belongs to the attempt itself: a result that
    /// outlives it carries no attempt.
    pub fn leaves_out(&self, chunk: &Chunk) -> bool {
        chunk.text("attemptId").is_some_and(|attempt| self.0.contains(attempt))
    }

    /// Whether nothing is left out.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn lose_all_but(lost: &mut BTreeSet<String>, attempts: Vec<String>, named: Option<&str>) {
    let named = named.filter(|name| attempts.iter().any(|attempt| attempt == name)).map(str::to_owned);
    let winner = named.or_else(|| attempts.last().cloned());
    lost.extend(attempts.into_iter().filter(|attempt| Some(attempt) != winner.as_ref()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn lost(chunks: Value) -> Vec<String> {
        let chunks: Vec<Chunk> =
            chunks.as_array().unwrap().iter().map(|chunk| Chunk::parse(chunk.clone()).unwrap()).collect();
        let superseded = Superseded::of(chunks.iter());
        let kinds = chunks.iter().filter(|chunk| superseded.leaves_out(chunk));
        kinds.map(|chunk| format!("{} {}", chunk.kind(), chunk.text("attemptId").unwrap())).collect()
    }

    fn two_attempts(committed: Option<&str>) -> Value {
        let mut chunks = vec![
            json!({"type": "run_started"}),
            json!({"type": "step_start", "step": 1, "attemptId": "a"}),
            json!({"type": "start-step", "step": 1, "attemptId": "a"}),
            json!({"type": "tool-output-available"}),
            json!({"type": "step_start", "step": 1, "attemptId": "b"}),
            json!({"type": "start-step", "step": 1, "attemptId": "b"}),
        ];
        if let Some(id) = committed {
            chunks.push(json!({"type": "step_committed", "step": 1, "attemptId": "b", "committedAttemptId": id}));
            chunks.push(json!({"type": "step_start", "step": 2, "attemptId": "c"}));
        }
        Value::Array(chunks)
    }

    #[test]
    fn the_last_attempt_wins_unless_the_commit_names_another() {
        for committed in [None, Some("b"), Some(""), Some("never seen")] {
            assert_eq!(lost(two_attempts(committed)), ["step_start a", "start-step a"], "{committed:?}");
        }
        assert_eq!(lost(two_attempts(Some("a"))), ["step_start b", "start-step b", "step_committed b"]);
    }
}

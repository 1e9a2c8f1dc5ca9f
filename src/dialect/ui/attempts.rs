//! Which attempts of a run's steps a replay leaves out (`spec/helix.md` 1.8).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::delta::{self, Delta};
use super::resync::is_event;
use super::vocabulary::{flag, shape};
use crate::core::chunk::{Chunk, lifecycle};
use crate::core::frame::{self, BadFrame};
use crate::core::ids::{Cursor, Sequence};

/// The attempts that lost their step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Superseded(BTreeSet<String>);

impl Superseded {
    /// Whether a replay leaves this chunk out. The writer stamps only what belongs to the attempt itself: a result that
    /// outlives it carries no attempt.
    pub fn leaves_out(&self, chunk: &Chunk) -> bool {
        chunk.text("attemptId").is_some_and(|attempt| self.contains(attempt))
    }

    /// Whether the attempt lost its step.
    pub fn contains(&self, attempt: &str) -> bool {
        self.0.contains(attempt)
    }

    /// Whether nothing is left out.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds an attempt; `false` when it is there already.
    pub(super) fn insert(&mut self, attempt: &str) -> bool {
        !self.contains(attempt) && self.0.insert(attempt.into())
    }

    /// Takes an attempt out again; `false` when it is not there.
    pub(super) fn remove(&mut self, attempt: &str) -> bool {
        self.0.remove(attempt)
    }

    /// The attempts' ids.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

/// A run's attempts, kept current while its chunks are stored, or read again from its rows.
///
/// The winner of a step is the attempt that its commit names, if it streamed in the step; before that, and when the
/// commit names none, the one that began last by place in the log. Clocks play no part.
#[derive(Clone, Debug, Default)]
pub struct Attempts {
    superseded: Superseded,
    /// Attempts of the steps that are not committed, oldest first.
    open: BTreeMap<u64, Vec<String>>,
    /// First content of each attempt that may still lose its step, or has lost it.
    content: BTreeMap<String, Sequence>,
    won_back: BTreeSet<String>,
}

impl Attempts {
    /// The attempts of a run's stored chunks.
    pub fn of<'a>(chunks: impl Iterator<Item = (Sequence, &'a Chunk)>) -> Self {
        let mut attempts = Self::default();
        for (sequence, chunk) in chunks {
            attempts.see(sequence, chunk);
        }
        attempts
    }

    /// Takes note of the run's next chunk. `true` when an attempt has lost its step by it, or won it back.
    pub fn see(&mut self, sequence: Sequence, chunk: &Chunk) -> bool {
        let Some(attempt) = chunk.text("attemptId") else { return false };
        if is_content(chunk) {
            self.note(sequence, attempt);
            return false;
        }
        let Some(step) = chunk.get("step").and_then(Value::as_u64) else { return false };
        match chunk.kind() {
            lifecycle::STEP_START => {
                let attempts = self.open.entry(step).or_default();
                if !attempts.iter().any(|one| one == attempt) {
                    attempts.push(attempt.to_owned());
                }
                let attempts = attempts.clone();
                self.decide(&attempts, None)
            }
            lifecycle::STEP_COMMITTED => {
                let attempts = self.open.remove(&step).unwrap_or_default();
                let changed = self.decide(&attempts, chunk.text("committedAttemptId"));
                self.content.retain(|id, _| self.superseded.contains(id) || !attempts.contains(id));
                changed
            }
            _ => false,
        }
    }

    /// Takes note of a row of the run's stored frames; plain deltas are not decoded.
    ///
    /// # Errors
    /// [`BadFrame`] when the bytes are not stored frames.
    pub fn see_stored(&mut self, bytes: &[u8]) -> Result<(), BadFrame> {
        for stored in frame::split(bytes) {
            let stored = stored?;
            match delta::of_frame(stored) {
                Some(Delta { attempt: None, .. }) => {}
                Some(Delta { attempt: Some(attempt), .. }) if self.content.contains_key(attempt) => {}
                _ => {
                    let stored = frame::decode_one(stored)?;
                    self.see(stored.sequence, &stored.chunk);
                }
            }
        }
        Ok(())
    }

    /// The attempts that have lost their step.
    pub fn superseded(&self) -> &Superseded {
        &self.superseded
    }

    /// The attempts that had lost their step until its commit named them. The run's own writer names none.
    pub fn won_back(&self) -> impl Iterator<Item = &str> {
        self.won_back.iter().map(String::as_str)
    }

    /// Whether somebody who has everything up to `cursor` has content of this attempt, if the attempt may still be, or
    /// has been, superseded.
    pub fn was_sent(&self, attempt: &str, cursor: Cursor) -> bool {
        self.content.get(attempt).is_some_and(|first| !cursor.lacks(*first))
    }

    fn note(&mut self, sequence: Sequence, attempt: &str) {
        if !self.content.contains_key(attempt) {
            self.content.insert(attempt.to_owned(), sequence);
        }
    }

    fn decide(&mut self, attempts: &[String], named: Option<&str>) -> bool {
        let named = named.filter(|name| attempts.iter().any(|attempt| attempt == name));
        let winner = named.or_else(|| attempts.last().map(String::as_str));
        let mut changed = false;
        if let Some(winner) = winner.filter(|winner| self.superseded.remove(winner)) {
            self.won_back.insert(winner.to_owned());
            changed = true;
        }
        for lost in attempts.iter().filter(|attempt| Some(attempt.as_str()) != winner) {
            changed |= self.superseded.insert(lost);
        }
        changed
    }
}

/// Whether a chunk is something of its attempt that a chat client shows, and so something that would be shown twice when
/// the attempt is superseded. A step's boundary shows nothing.
pub fn is_content(chunk: &Chunk) -> bool {
    let kind = chunk.kind();
    let frame =
        matches!(kind, "start" | "finish" | "start-step" | "finish-step" | "message-metadata" | "abort" | "error");
    let shown = shape(kind).is_some() && !frame && !is_event(kind) && flag(chunk, "transient") != Some(true);
    shown && chunk.text("attemptId").is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn numbered(chunks: Value) -> Vec<(Sequence, Chunk)> {
        let chunks = chunks.as_array().unwrap().iter().enumerate();
        let number = |at| Sequence::new(at as u64 + 1).unwrap();
        chunks.map(|(at, chunk)| (number(at), Chunk::parse(chunk.clone()).unwrap())).collect()
    }

    fn read(chunks: &[(Sequence, Chunk)]) -> Attempts {
        Attempts::of(chunks.iter().map(|(sequence, chunk)| (*sequence, chunk)))
    }

    fn lost(chunks: Value) -> Vec<String> {
        let chunks = numbered(chunks);
        let attempts = read(&chunks);
        let kinds = chunks.iter().map(|(_, chunk)| chunk).filter(|chunk| attempts.superseded().leaves_out(chunk));
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

    #[test]
    fn a_change_is_told_once_and_content_is_known_by_its_place() {
        let chunks = numbered(json!([
            {"type": "step_start", "step": 1, "attemptId": "a"},
            {"type": "start-step", "step": 1, "attemptId": "a"},
            {"type": "text-start", "id": "t", "step": 1, "attemptId": "a"},
            {"type": "text-delta", "id": "t", "delta": "x", "step": 1, "attemptId": "a"},
            {"type": "step_start", "step": 1, "attemptId": "b"},
            {"type": "text-start", "id": "t", "step": 1, "attemptId": "b"},
            {"type": "step_committed", "step": 1, "attemptId": "b", "committedAttemptId": "b"},
        ]));
        let mut attempts = Attempts::default();
        let told: Vec<bool> = chunks.iter().map(|(sequence, chunk)| attempts.see(*sequence, chunk)).collect();
        assert_eq!(told, [false, false, false, false, true, false, false]);
        let at = |cursor| Cursor::new(cursor).unwrap();
        assert!(!attempts.was_sent("a", at(2)) && attempts.was_sent("a", at(3)) && attempts.was_sent("a", at(9)));
        assert!(!attempts.was_sent("b", at(9)), "a committed attempt is never taken back");
        assert_eq!(attempts.superseded().ids().collect::<Vec<_>>(), ["a"]);
    }

    #[test]
    fn what_is_content() {
        let stamped = |kind: &str| Chunk::new(kind).with("attemptId", "a");
        for kind in ["text-start", "text-delta", "reasoning-delta", "tool-input-start", "file", "source-url", "data-x"]
        {
            assert!(is_content(&stamped(kind)), "{kind}");
            assert!(!is_content(&Chunk::new(kind)), "{kind} of no attempt");
        }
        for kind in
            ["step_start", "start-step", "finish-step", "message-metadata", "data-attempt-superseded", "text_delta"]
        {
            assert!(!is_content(&stamped(kind)), "{kind}");
        }
        assert!(!is_content(&stamped("data-x").with("transient", true)));
    }
}

//! What one chat response shows of the log (`spec/helix.md` 1.8, 5.7 and 5.9).
//!
//! Everything that the answer needs stands in the chunk or in the lens, so a slice of the log is projected once for all
//! responses with equal lenses.

use std::collections::BTreeSet;

use super::attempts::{Attempts, Superseded};
use super::resync::{ATTEMPT_SUPERSEDED, REPLAY, is_event, output_elsewhere, superseded_by};
use super::vocabulary::flag;
use crate::core::chunk::{CONTINUES, Chunk};
use crate::core::ids::Cursor;

/// What one response shows. The default is a stock client that holds nothing and has been sent nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Lens {
    /// Whether the client understands resync events; only such a client gets any.
    pub aware: bool,
    /// Calls that the response's message holds besides those that its run has begun: of the replayed prefix, of what was
    /// opened again, or of the message that the client continues.
    pub owned: BTreeSet<String>,
    /// Attempts whose content is left out.
    pub superseded: Superseded,
    /// Those of them of which the client has content all the same, from this response or an earlier one.
    pub witnessed: BTreeSet<String>,
}

impl Lens {
    /// Brings the lens up to date with the run's attempts, for a response whose client has everything up to `cursor`:
    /// when the response opens, and again whenever [`Attempts::see`] reports a change, before more is sent.
    ///
    /// `true` when the client holds what no longer counts, or lacks what now does. A stock response then breaks its body
    /// (DESIGN.md invariant 12); an aware one goes on, and the event that tells it stands in the log.
    pub fn follow(&mut self, attempts: &Attempts, cursor: Cursor) -> bool {
        let mut taken_back = false;
        for lost in attempts.superseded().ids() {
            if self.superseded.insert(lost) && attempts.was_sent(lost, cursor) {
                self.witnessed.insert(lost.to_owned());
                taken_back = true;
            }
        }
        for winner in attempts.won_back() {
            taken_back |= self.superseded.remove(winner);
        }
        taken_back
    }

    /// The chunk as this response shows it, or `None`.
    pub fn show(&self, chunk: Chunk) -> Option<Chunk> {
        if is_event(chunk.kind()) {
            return self.shows_event(&chunk).then_some(chunk);
        }
        if self.superseded.leaves_out(&chunk) {
            return None;
        }
        let Some(tool) = chunk.text(CONTINUES).filter(|_| chunk.kind().starts_with("tool-")) else {
            return Some(chunk);
        };
        let call = chunk.text("toolCallId").unwrap_or_default();
        if self.owned.contains(call) {
            return Some(chunk);
        }
        // A call has one final result, so there is one event; and whoever reads again upon it sees that result. What comes
        // before it (a half result, a question) would lead to a reading that is too early, and to none later.
        let tells = self.aware && is_final(&chunk);
        tells.then(|| output_elsewhere(call, tool, chunk.text("runId")))
    }

    /// A new attempt is told only to those whom the old one was shown. A marker of a replay stands in a log by mistake.
    fn shows_event(&self, chunk: &Chunk) -> bool {
        let told = match chunk.kind() {
            REPLAY => false,
            ATTEMPT_SUPERSEDED => superseded_by(chunk)
                .is_none_or(|attempt| self.witnessed.contains(attempt) || !self.superseded.contains(attempt)),
            _ => true,
        };
        self.aware && told
    }
}

/// The calls that these chunks begin: what a response owns after its synthesised opening.
pub fn begun(opening: &[Chunk]) -> BTreeSet<String> {
    let begins = opening.iter().filter(|chunk| chunk.kind().starts_with("tool-input-"));
    begins.filter_map(|chunk| chunk.text("toolCallId")).map(str::to_owned).collect()
}

/// Whether a chunk settles its call.
fn is_final(chunk: &Chunk) -> bool {
    match chunk.kind() {
        "tool-output-available" => flag(chunk, "preliminary") != Some(true),
        "tool-output-error" | "tool-output-denied" => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::ids::Sequence;
    use serde_json::{Value, json};

    fn chunk(value: Value) -> Chunk {
        Chunk::parse(value).unwrap()
    }

    fn at(cursor: u64) -> Cursor {
        Cursor::new(cursor).unwrap()
    }

    fn kinds(lens: &Lens, chunks: &[Chunk]) -> Vec<String> {
        chunks.iter().filter_map(|chunk| lens.show(chunk.clone())).map(|chunk| chunk.kind().to_owned()).collect()
    }

    #[test]
    fn a_result_for_an_earlier_call_is_shown_to_its_owner_and_told_once_to_others() {
        let mark = |kind: &str| {
            chunk(json!({"type": kind, "toolCallId": "c", "approvalId": "p", "output": 1, "errorText": "e",
                "runId": "r", "continues": "search"}))
        };
        let chunks = [
            mark("tool-approval-request"),
            mark("tool-output-available").with("preliminary", true),
            mark("tool-output-available"),
        ];
        let owner = Lens { owned: ["c".to_owned()].into(), ..Lens::default() };
        assert_eq!(kinds(&owner, &chunks), ["tool-approval-request", "tool-output-available", "tool-output-available"]);
        assert_eq!(kinds(&Lens::default(), &chunks), [""; 0]);
        let aware = Lens { aware: true, ..Lens::default() };
        assert_eq!(kinds(&aware, &chunks), ["data-tool-output-elsewhere"]);
        for kind in ["tool-output-error", "tool-output-denied"] {
            let told = aware.show(mark(kind)).unwrap();
            assert_eq!(
                told.get("data"),
                Some(
                    &json!({"reason": "tool_output_elsewhere", "toolCallId": "c", "toolName": "search", "runId": "r"})
                )
            );
            assert_eq!(told.text("id"), Some("c"));
        }
        let own = chunk(json!({"type": "tool-output-denied", "toolCallId": "c", "runId": "r"}));
        assert!(Lens::default().show(own).is_some());
    }

    #[test]
    fn only_aware_responses_get_events_and_none_gets_a_stored_marker() {
        let events: Vec<Chunk> = ["data-stream-resync", "data-attempt-superseded", "data-tool-output-elsewhere"]
            .into_iter()
            .map(|kind| Chunk::new(kind).with("data", json!({})))
            .collect();
        assert_eq!(kinds(&Lens::default(), &events).len(), 0);
        let aware = Lens { aware: true, ..Lens::default() };
        assert_eq!(kinds(&aware, &events).len(), 3);
        assert_eq!(aware.show(Chunk::new("data-helix-replay").with("data", json!({}))), None);
    }

    /// A step whose first attempt began to speak.
    fn retried() -> Vec<Chunk> {
        [
            json!({"type": "step_start", "step": 1, "attemptId": "a"}),
            json!({"type": "text-start", "id": "t", "step": 1, "attemptId": "a"}),
            json!({"type": "text-delta", "id": "t", "delta": "x", "step": 1, "attemptId": "a"}),
            json!({"type": "step_start", "step": 1, "attemptId": "b"}),
            json!({"type": "data-attempt-superseded", "data": {"supersededAttemptId": "a"}}),
            json!({"type": "text-start", "id": "t", "step": 1, "attemptId": "b"}),
        ]
        .map(chunk)
        .into()
    }

    fn seen(chunks: &[Chunk]) -> Attempts {
        let number = |at| Sequence::new(at as u64 + 1).unwrap();
        Attempts::of(chunks.iter().enumerate().map(|(at, chunk)| (number(at), chunk)))
    }

    #[test]
    fn a_new_attempt_is_told_to_those_whom_the_old_one_was_shown() {
        let log = retried();
        let all = seen(&log);
        for (cursor, aware, follows, rest) in [
            (0, true, false, vec!["step_start", "text-start"]),
            (1, true, false, vec!["step_start", "text-start"]),
            (2, true, true, vec!["step_start", "data-attempt-superseded", "text-start"]),
            (3, true, true, vec!["step_start", "data-attempt-superseded", "text-start"]),
            (3, false, true, vec!["step_start", "text-start"]),
            (5, true, true, vec!["text-start"]),
        ] {
            let mut lens = Lens { aware, ..Lens::default() };
            assert_eq!(lens.follow(&all, at(cursor)), follows, "{cursor}");
            assert_eq!(kinds(&lens, &log[cursor as usize..]), rest, "{cursor}");
            assert!(!lens.follow(&all, at(6)), "a change is told once");
        }
    }

    #[test]
    fn a_live_response_learns_of_the_switch_when_it_happens() {
        let log = retried();
        let mut attempts = seen(&log[..3]);
        let mut lens = Lens { aware: true, ..Lens::default() };
        assert!(!lens.follow(&attempts, at(0)));
        assert_eq!(kinds(&lens, &log[..3]), ["step_start", "text-start", "text-delta"]);
        let mut late = lens.clone();
        assert!(attempts.see(Sequence::new(4).unwrap(), &log[3]));
        assert!(lens.follow(&attempts, at(3)));
        assert_eq!(kinds(&lens, &log[3..]), ["step_start", "data-attempt-superseded", "text-start"]);
        assert!(!late.follow(&attempts, at(1)), "it has sent none of the content yet");
        assert_eq!(kinds(&late, &log[1..]), ["step_start", "text-start"]);
    }

    #[test]
    fn an_attempt_that_wins_back_its_step_is_missing_where_it_was_left_out() {
        let mut log = retried();
        let mut lens = Lens::default();
        lens.follow(&seen(&log), at(0));
        log.push(chunk(json!({"type": "step_committed", "step": 1, "attemptId": "b", "committedAttemptId": "a"})));
        let attempts = seen(&log);
        assert!(lens.follow(&attempts, at(6)));
        let mut fresh = Lens::default();
        assert!(!fresh.follow(&attempts, at(0)));
        assert_eq!(kinds(&fresh, &log), ["step_start", "text-start", "text-delta"]);
    }
}

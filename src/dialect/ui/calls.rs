//! The writer's repairs of tool chunks, so that a message holds each call once and every version reads it the same.
//!
//! Many producers number their calls anew in each turn or step, so a call is named by the session ([`CallIds`]): the first use of an id
//! keeps it, a repeat is another call and becomes `<id>_<n>`. An input that says a call of the message once more is that call:
//!
//! * in the step that is open;
//! * a call that the user has granted and nobody has answered: its producer says it again before it brings the result;
//! * a call of the continued message's last step, word for word, before a step is begun: a client reads that as the call that it holds.
//!
//! Whatever else speaks of a call means the last one of its message to which the producer gave the id.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::fold::tool::{Which, is_granted, is_settled, state_of};
use super::fold::{Fold, kind_of};
use crate::core::approval::approval_id;
use crate::core::call_ids::{CallIds, CallName};
use crate::core::chunk::Chunk;
use crate::core::ids::RunId;

/// A tool part's tool; `None` for other parts.
pub(super) fn tool_of(part: &Map<String, Value>) -> Option<&str> {
    match kind_of(part) {
        "dynamic-tool" => part.get("toolName").and_then(Value::as_str),
        kind => kind.strip_prefix("tool-"),
    }
}

/// Whether a chunk of this type begins its call, or says it once more.
pub(in crate::dialect) fn begins_call(kind: &str) -> bool {
    matches!(kind, "tool-input-start" | "tool-input-available" | "tool-input-error")
}

/// The names under which the message holds the calls to which producers gave an id, the newest first; the id itself is the name of a call
/// of which the session keeps no track.
pub(in crate::dialect) fn names<'a>(fold: &'a Fold, ids: &'a CallIds, own: &'a str) -> impl Iterator<Item = &'a str> {
    let untracked = (!ids.is_taken(own)).then_some(own);
    ids.uses(own).rev().chain(untracked).filter(|id| fold.find_call(id).is_some())
}

/// The name of the call that a chunk means which does not begin it: the newest one without a result, if there is one.
pub(in crate::dialect) fn meant<'a>(fold: &'a Fold, ids: &'a CallIds, own: &'a str) -> &'a str {
    let waits = |id: &&str| fold.call(id).is_some_and(|call| !call.is_settled());
    let waiting = names(fold, ids, own).find(waits);
    waiting.or_else(|| names(fold, ids, own).next()).or_else(|| ids.uses(own).next_back()).unwrap_or(own)
}

/// The call that an input says once more. `step`: the first part of the step that is open; `continues`: the run goes on with a message and
/// has begun no step yet, so that a client holds the message's last one for the current.
pub(in crate::dialect) fn repeated<'a>(
    fold: &'a Fold,
    ids: &'a CallIds,
    (step, continues): (Option<usize>, bool),
    chunk: &'a Chunk,
) -> Option<&'a str> {
    let own = chunk.text("toolCallId")?;
    names(fold, ids, own).find(|id| {
        let Some((at, part)) = fold.find_call(id).and_then(|at| Some((at, fold.parts.get(at)?))) else { return false };
        let word_for_word = || {
            chunk.kind() == "tool-input-available"
                && chunk.text("toolName") == tool_of(part)
                && chunk.get("input") == part.get("input")
        };
        step.is_some_and(|begin| at >= begin)
            || is_granted_only(part)
            || continues && at >= fold.step_begin() && word_for_word()
    })
}

/// Whether a call has the user's grant and nothing else.
pub(in crate::dialect) fn is_granted_only(part: &Map<String, Value>) -> bool {
    state_of(part) == "approval-responded" && is_granted(part)
}

/// The id of an approval, when its call is named: one that is made of the call's id is made of the name.
pub(in crate::dialect) fn approval_of<'a>(run: &RunId, approval: &'a str, own: &str, id: &str) -> Cow<'a, str> {
    if own == id {
        Cow::Borrowed(approval)
    } else if approval == own {
        Cow::Owned(id.to_owned())
    } else if approval == approval_id(run, own) {
        Cow::Owned(approval_id(run, id))
    } else {
        Cow::Borrowed(approval)
    }
}

/// The approval that a producer means which waits for the user's word, and its call: also one that was named with its call.
pub(in crate::dialect) fn asked<'a>(fold: &'a Fold, ids: &'a CallIds, own: &'a str) -> Option<(&'a str, &'a str)> {
    std::iter::once(own).chain(ids.uses(own).rev()).find_map(|id| {
        let mut asking = fold.calls().filter(|call| call.state() == "approval-requested");
        asking.find(|call| call.approval() == Some(id)).map(|call| (id, call.id()))
    })
}

/// The calls of a run, as its writer names them.
#[derive(Clone, Debug, Default)]
pub(super) struct Calls {
    pub ids: CallIds,
}

/// What is to be stored for a tool chunk.
#[derive(Debug, PartialEq)]
pub(super) struct Admitted {
    /// The name that the call gets.
    pub name: Option<CallName>,
    /// Whether it changes a call that stands before the step.
    pub earlier: bool,
    pub chunk: Chunk,
}

impl Calls {
    /// The chunk to store, or `None` for one that a client would fail on, or that would take a call back to a state
    /// that it has left (clients would lose its result). `place`: as of [`repeated`].
    pub(super) fn admit(
        &mut self,
        run: &RunId,
        fold: &Fold,
        (step, continues): (Option<usize>, bool),
        chunk: Chunk,
    ) -> Option<Admitted> {
        if chunk.kind() == "tool-approval-response" {
            let own = chunk.text("approvalId")?.to_owned();
            let (id, call) = asked(fold, &self.ids, &own)?;
            let chunk = chunk.with("approvalId", id).with("toolCallId", call);
            return Some(Admitted { name: None, earlier: false, chunk });
        }
        let own = chunk.text("toolCallId")?.to_owned();
        let (mut name, mut known) = (None, None);
        let id = if begins_call(chunk.kind()) {
            known = repeated(fold, &self.ids, (step, continues), &chunk).map(str::to_owned);
            match &known {
                Some(id) => id.clone(),
                None => {
                    name = self.ids.next_name(&own, |id| fold.find_call(id).is_some());
                    name.iter().for_each(|name| self.ids.take(name.clone()));
                    name.as_ref().map_or_else(|| own.clone(), |name| name.id.clone())
                }
            }
        } else {
            meant(fold, &self.ids, &own).to_owned()
        };
        let mut chunk = chunk.with("toolCallId", id.as_str());
        if let Some(approval) = chunk.text("approvalId") {
            let approval = approval_of(run, approval, &own, &id).into_owned();
            chunk = chunk.with("approvalId", approval);
        }
        let at = known.as_deref().and_then(|id| fold.find_call(id));
        let earlier = at.is_some_and(|at| step.is_none_or(|begin| at < begin));
        let chunk = match chunk.kind() {
            _ if earlier => restated(fold, step, at?, chunk),
            kind if kind.starts_with("tool-input-") => input(fold, step, &id, chunk),
            _ => answer(fold, &id, chunk),
        };
        chunk.map(|chunk| Admitted { name, earlier, chunk })
    }
}

/// A call of an earlier step once more: clients hold it, so only another input than the one that the user has granted is news, as long as
/// they would find the call.
fn restated(fold: &Fold, step: Option<usize>, at: usize, chunk: Chunk) -> Option<Chunk> {
    let part = fold.parts.get(at)?;
    let differs = chunk.kind() == "tool-input-available" && chunk.get("input") != part.get("input");
    let found = step.is_none() && at >= fold.step_begin();
    (differs && found && !is_settled(part) && chunk.text("toolName") == tool_of(part)).then(|| {
        let dynamic = kind_of(part) == "dynamic-tool";
        if dynamic { chunk.with("dynamic", true) } else { chunk }
    })
}

fn input(fold: &Fold, step: Option<usize>, id: &str, mut chunk: Chunk) -> Option<Chunk> {
    let known = step.and_then(|_| fold.find_in_step(id, Which::Any)).and_then(|at| fold.parts.get(at));
    let state = known.map(state_of);
    let fits = match chunk.kind() {
        "tool-input-delta" => state == Some("input-streaming"),
        "tool-input-start" => matches!(state, None | Some("input-streaming")),
        _ => matches!(state, None | Some("input-streaming" | "input-available")),
    };
    if !fits {
        return None;
    }
    if let Some(part) = known.filter(|_| chunk.kind() != "tool-input-delta") {
        // A second name, or static after dynamic, would become a second part on some versions: the first word counts.
        chunk.remove("dynamic");
        chunk = match kind_of(part).strip_prefix("tool-") {
            Some(name) => chunk.with("toolName", name),
            None => chunk.with("toolName", part.get("toolName").cloned().unwrap_or_default()).with("dynamic", true),
        };
    }
    Some(chunk)
}

/// An approval request, a denial or a result: its call is known and has no final result yet.
fn answer(fold: &Fold, id: &str, chunk: Chunk) -> Option<Chunk> {
    let part = fold.parts.get(fold.find_call(id)?)?;
    let fits = match chunk.kind() {
        "tool-approval-request" => !matches!(state_of(part), "approval-responded" | "output-available"),
        "tool-output-denied" => state_of(part) != "output-available",
        _ => true,
    };
    (fits && !is_settled(part)).then_some(chunk)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::ids::MessageId;
    use serde_json::{Value, json};

    fn chunk(value: Value) -> Chunk {
        Chunk::parse(value).unwrap()
    }

    fn call(kind: &str) -> Chunk {
        chunk(json!({"type": kind, "toolCallId": "c", "toolName": "n", "input": 1, "output": 2, "inputTextDelta": "{"}))
    }

    fn admit(calls: &mut Calls, fold: &Fold, step: Option<usize>, chunk: Chunk) -> Option<Chunk> {
        calls.admit(&RunId::new("r"), fold, (step, true), chunk).map(|admitted| admitted.chunk)
    }

    #[test]
    fn a_repeated_id_gets_a_number_and_its_answers_follow() {
        let mut fold = Fold::new(&MessageId::new("m"));
        let mut calls = Calls::default();
        for step in ["c", "c_2", "c_3"] {
            fold.apply(&Chunk::new("start-step")).unwrap();
            let begin = Some(fold.parts.len());
            for kind in ["tool-input-start", "tool-input-delta", "tool-input-available", "tool-output-available"] {
                let admitted = admit(&mut calls, &fold, begin, call(kind)).unwrap();
                assert_eq!(admitted.text("toolCallId"), Some(step), "{kind}");
                fold.apply(&admitted).unwrap();
            }
        }
    }

    #[test]
    fn an_id_of_an_earlier_run_is_taken() {
        let mut calls = Calls::default();
        calls.ids.name("c");
        calls.ids.begin_run(2);
        let fold = Fold::new(&MessageId::new("m"));
        let admitted = calls.admit(&RunId::new("r"), &fold, (Some(0), false), call("tool-input-start")).unwrap();
        let name = CallName { id: "c_2".into(), own: Some("c".into()) };
        assert_eq!((admitted.chunk.text("toolCallId"), admitted.name), (Some("c_2"), Some(name)));
    }

    /// A message whose call `c` has this approval, and the calls of a run that continues it.
    fn asked_before(approval: Value, state: &str) -> (Fold, Calls) {
        let part = json!({"type": "tool-n", "toolCallId": "c", "state": state, "input": 1, "approval": approval});
        let message = json!({"id": "m", "role": "assistant", "parts": [{"type": "step-start"}, part]});
        let mut calls = Calls::default();
        calls.ids.name("c");
        calls.ids.begin_run(2);
        (Fold::continuing(message), calls)
    }

    #[test]
    fn a_granted_call_that_is_said_again_is_that_call() {
        for opens_a_step in [false, true] {
            let (mut fold, mut calls) = asked_before(json!({"id": "c", "approved": true}), "approval-responded");
            let step = opens_a_step.then(|| {
                fold.apply(&Chunk::new("start-step")).unwrap();
                fold.parts.len()
            });
            for kind in ["tool-input-start", "tool-input-delta", "tool-input-available"] {
                assert_eq!(admit(&mut calls, &fold, step, call(kind)), None, "{kind}");
            }
            let output = admit(&mut calls, &fold, step, call("tool-output-available")).unwrap();
            assert_eq!(output.text("toolCallId"), Some("c"));
            fold.apply(&output).unwrap();
            // Its use is over.
            let place = (Some(fold.parts.len()), false);
            let next = calls.admit(&RunId::new("r"), &fold, place, call("tool-input-available")).unwrap();
            assert_eq!(next.chunk.text("toolCallId"), Some("c_2"));
        }
    }

    #[test]
    fn a_granted_call_takes_another_input_where_clients_find_it() {
        let (fold, mut calls) = asked_before(json!({"id": "c", "approved": true}), "approval-responded");
        let other = call("tool-input-available").with("input", 2);
        let admitted = calls.admit(&RunId::new("r"), &fold, (None, true), other).unwrap();
        assert_eq!((admitted.earlier, admitted.chunk.text("toolCallId"), admitted.name), (true, Some("c"), None));
    }

    #[test]
    fn an_answered_call_is_said_again_word_for_word_or_is_another() {
        let (fold, mut calls) = asked_before(json!({"id": "c", "approved": false}), "output-denied");
        assert_eq!(admit(&mut calls, &fold, None, call("tool-input-available")), None);
        assert_eq!(admit(&mut calls, &fold, None, call("tool-output-denied")), None);
        let other = admit(&mut calls, &fold, None, call("tool-input-available").with("input", 2)).unwrap();
        assert_eq!(other.text("toolCallId"), Some("c_2"));
    }

    #[test]
    fn a_late_result_is_for_the_call_that_lacks_one() {
        let mut fold = Fold::new(&MessageId::new("m"));
        let mut calls = Calls::default();
        for expected in ["c", "c_2"] {
            fold.apply(&Chunk::new("start-step")).unwrap();
            let begin = Some(fold.parts.len());
            fold.apply(&admit(&mut calls, &fold, begin, call("tool-input-available")).unwrap()).unwrap();
            if expected == "c_2" {
                for id in ["c_2", "c"] {
                    let output = admit(&mut calls, &fold, begin, call("tool-output-available")).unwrap();
                    assert_eq!(output.text("toolCallId"), Some(id));
                    fold.apply(&output).unwrap();
                }
            }
        }
    }

    #[test]
    fn an_approval_is_named_with_its_call() {
        for (own, first, second) in [("c", "c", "c_2"), ("r::c", "r::c", "r::c_2"), ("x", "x", "x")] {
            let mut fold = Fold::new(&MessageId::new("m"));
            let mut calls = Calls::default();
            for expected in [first, second] {
                fold.apply(&Chunk::new("start-step")).unwrap();
                let begin = Some(fold.parts.len());
                let ask = Chunk::new("tool-approval-request").with("toolCallId", "c").with("approvalId", own);
                for said in [call("tool-input-available"), ask] {
                    fold.apply(&admit(&mut calls, &fold, begin, said).unwrap()).unwrap();
                }
                let asked = fold.parts.last().unwrap().get("approval").unwrap();
                assert_eq!(asked, &json!({"id": expected}));
                let word = Chunk::new("tool-approval-response").with("approvalId", own).with("approved", true);
                if own != "r::c" {
                    let word = admit(&mut calls, &fold, begin, word).unwrap();
                    assert_eq!(word.text("approvalId"), Some(expected));
                    fold.apply(&word).unwrap();
                    assert!(is_granted_only(fold.parts.last().unwrap()), "the call that was asked about");
                }
                fold.apply(&admit(&mut calls, &fold, begin, call("tool-output-available")).unwrap()).unwrap();
            }
        }
    }

    #[test]
    fn the_first_name_and_kind_of_a_call_count() {
        let mut fold = Fold::new(&MessageId::new("m"));
        let mut calls = Calls::default();
        let begun = admit(&mut calls, &fold, Some(0), call("tool-input-start").with("dynamic", true)).unwrap();
        fold.apply(&begun).unwrap();
        let said = call("tool-input-available").with("toolName", "other");
        let admitted = admit(&mut calls, &fold, Some(0), said).unwrap();
        assert_eq!(admitted.text("toolName"), Some("n"));
        assert_eq!(admitted.get("dynamic"), Some(&json!(true)));
    }

    #[test]
    fn nothing_takes_back_a_result() {
        let mut fold = Fold::new(&MessageId::new("m"));
        let mut calls = Calls::default();
        for kind in ["tool-input-available", "tool-output-available"] {
            let said = admit(&mut calls, &fold, Some(0), call(kind)).unwrap();
            fold.apply(&said).unwrap();
        }
        for kind in [
            "tool-input-start",
            "tool-input-delta",
            "tool-input-available",
            "tool-output-available",
            "tool-output-denied",
        ] {
            assert_eq!(admit(&mut calls, &fold, Some(0), call(kind)), None, "{kind}");
        }
        assert_eq!(admit(&mut calls, &Fold::new(&MessageId::new("m")), None, call("tool-output-available")), None);
    }
}

//! Answers to the calls of a run that is still writing: what a client was shown it may answer at once.
//!
//! They are held ([`crate::core::session::Session::hold`]), each with the call that it names, and count when the run waits for answers.
//! A call takes its first answer; the one exception is a grant, which the result of the granted call may follow.

use serde_json::{Map, Value};

use super::tool_result::{Answer, Outcome, apply, chunks, find, fits, waits};
use crate::core::approval::Executor;
use crate::core::chunk::Chunk;

/// An answer that is held, and what its continuation needs to know of the request that brought it.
#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    /// The answer.
    pub answer: Answer,
    /// The origin under which a producer outside reaches the service, when it is to be told of the run that goes on.
    pub origin: Option<String>,
}

/// What held answers come to.
#[derive(Clone, Debug, PartialEq)]
pub struct Settled {
    /// The reply with those answers in it that its calls wait for.
    pub message: Value,
    /// What is told of them.
    pub told: Vec<Chunk>,
}

impl Held {
    /// The answer as it is stored.
    pub fn to_text(&self) -> String {
        let (kind, said) = match &self.answer.outcome {
            Outcome::Output(output) => ("output", Some(output.clone())),
            Outcome::Error(text) => ("error", Some(text.as_str().into())),
            Outcome::Approved { reason } => ("approved", reason.clone().map(Value::from)),
            Outcome::Denied { reason } => ("denied", reason.clone().map(Value::from)),
        };
        let mut map = Map::from_iter([("call".to_owned(), self.answer.tool_call_id.as_str().into())]);
        map.insert("kind".into(), kind.into());
        map.extend(said.map(|said| ("said".to_owned(), said)));
        map.extend(self.origin.as_deref().map(|origin| ("origin".to_owned(), origin.into())));
        Value::Object(map).to_string()
    }

    /// Reads what [`Held::to_text`] has written; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let Value::Object(mut map) = serde_json::from_str(text).ok()? else { return None };
        let said = map.remove("said");
        let words = said.as_ref().and_then(Value::as_str).map(str::to_owned);
        let outcome = match map.get("kind")?.as_str()? {
            "output" => Outcome::Output(said?),
            "error" => Outcome::Error(words?),
            "approved" => Outcome::Approved { reason: words },
            "denied" => Outcome::Denied { reason: words },
            _ => return None,
        };
        let text = |key: &str| map.get(key).and_then(Value::as_str).map(str::to_owned);
        Some(Self { answer: Answer { tool_call_id: text("call")?, outcome }, origin: text("origin") })
    }
}

/// The reply as it is once the held answers count. One whose call has its result by now, or is gone with its attempt, is left out.
pub fn settle<'a>(message: Value, held: impl IntoIterator<Item = &'a Answer>, executor: Executor) -> Settled {
    let mut settled = Settled { message, told: Vec::new() };
    for answer in held {
        let waits =
            find(&settled.message, &answer.tool_call_id).is_some_and(|part| fits(part, &answer.outcome, executor));
        if waits {
            let one = std::slice::from_ref(answer);
            settled.told.extend(chunks(one, &settled.message, executor));
            settled.message = apply(settled.message, one);
        }
    }
    settled
}

impl Settled {
    /// Whether the reply waited for the held answers, and now waits for nothing.
    pub fn goes_on(&self, executor: Executor) -> bool {
        !self.told.is_empty() && !waits(&self.message, &[], executor)
    }
}

/// Whether a call's held answers say what this one says; `None` when none is held for the call. The first word counts: one that says
/// otherwise is refused.
pub fn agrees<'a>(held: impl IntoIterator<Item = &'a Answer>, call: &str, said: &Outcome) -> Option<bool> {
    let mut of_call = held.into_iter().filter(|answer| answer.tool_call_id == call).peekable();
    of_call.peek()?;
    Some(of_call.any(|answer| is_same(&answer.outcome, said)))
}

fn is_same(one: &Outcome, other: &Outcome) -> bool {
    match (one, other) {
        (Outcome::Approved { .. }, Outcome::Approved { .. }) | (Outcome::Denied { .. }, Outcome::Denied { .. }) => true,
        _ => one == other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn message() -> Value {
        json!({"id": "a1", "role": "assistant", "parts": [
            {"type": "tool-f", "toolCallId": "c", "state": "input-available", "input": {}},
            {"type": "tool-g", "toolCallId": "d", "state": "approval-requested", "input": {}, "approval": {"id": "run::d"}},
            {"type": "tool-h", "toolCallId": "e", "state": "output-available", "input": {}, "output": 1},
        ]})
    }

    fn answer(call: &str, outcome: Outcome) -> Answer {
        Answer { tool_call_id: call.into(), outcome }
    }

    fn states(message: &Value) -> Vec<&str> {
        message["parts"].as_array().unwrap().iter().map(|part| part["state"].as_str().unwrap()).collect()
    }

    fn outcomes() -> impl Strategy<Value = Outcome> {
        let words = || "\\PC{0,6}".prop_map(String::from);
        let reason = || proptest::option::of(words());
        prop_oneof![
            any::<i64>().prop_map(|number| Outcome::Output(json!({"n": number}))),
            Just(Outcome::Output(Value::Null)),
            words().prop_map(Outcome::Error),
            reason().prop_map(|reason| Outcome::Approved { reason }),
            reason().prop_map(|reason| Outcome::Denied { reason }),
        ]
    }

    proptest! {
        #[test]
        fn what_is_stored_is_read_again(call in "\\PC{1,8}", outcome in outcomes(), origin in proptest::option::of("[a-z]{1,4}")) {
            let held = Held { answer: answer(&call, outcome), origin };
            prop_assert_eq!(Held::parse(&held.to_text()), Some(held));
        }

        #[test]
        fn what_counts_is_told_and_nothing_counts_twice(
            held in proptest::collection::vec(("[c-f]", outcomes()), 0..6),
            producer in any::<bool>(),
        ) {
            let executor = if producer { Executor::Producer } else { Executor::Client };
            let held: Vec<Answer> = held.into_iter().map(|(call, outcome)| answer(&call, outcome)).collect();
            let settled = settle(message(), &held, executor);
            prop_assert_eq!(settled.told.is_empty(), settled.message == message());
            // What was said first about a call is what stands there: saying it all again changes nothing but a grant's result.
            let again = settle(settled.message.clone(), held.iter().filter(|answer| {
                !matches!(answer.outcome, Outcome::Output(_) | Outcome::Error(_))
            }), executor);
            prop_assert_eq!(&again.message, &settled.message);
            let first = held.iter().find(|answer| answer.tool_call_id == "c" && fits(find(&message(), "c").unwrap(), &answer.outcome, executor));
            if let Some(Answer { outcome: Outcome::Output(output), .. }) = first {
                prop_assert_eq!(&settled.message["parts"][0]["output"], output);
            }
        }
    }

    #[test]
    fn a_grant_may_be_followed_by_its_result() {
        let grant = answer("d", Outcome::Approved { reason: None });
        let result = answer("d", Outcome::Output(json!(7)));
        let other = answer("c", Outcome::Error("no".into()));
        let granted = settle(message(), [&grant, &other], Executor::Client);
        assert_eq!(states(&granted.message), ["output-error", "approval-responded", "output-available"]);
        assert!(granted.goes_on(Executor::Client), "the continuation offers the granted call");
        let done = settle(message(), [&grant, &result, &other], Executor::Client);
        assert_eq!(states(&done.message), ["output-error", "output-available", "output-available"]);
        let by_producer = settle(message(), [&grant, &result], Executor::Producer);
        assert_eq!(states(&by_producer.message), ["input-available", "approval-responded", "output-available"]);
        assert!(!by_producer.goes_on(Executor::Producer), "c waits");
    }

    #[test]
    fn an_answer_to_what_is_over_or_gone_counts_for_nothing() {
        let held = [answer("e", Outcome::Output(json!(2))), answer("gone", Outcome::Output(json!(2)))];
        let settled = settle(message(), &held, Executor::Client);
        assert_eq!((&settled.message, settled.goes_on(Executor::Client)), (&message(), false));
    }

    #[test]
    fn the_first_word_counts() {
        let held = [answer("d", Outcome::Approved { reason: None }), answer("d", Outcome::Output(json!(7)))];
        let agrees = |call: &str, outcome| agrees(&held, call, &outcome);
        assert_eq!(agrees("c", Outcome::Output(json!(7))), None);
        assert_eq!(agrees("d", Outcome::Approved { reason: Some("again".into()) }), Some(true));
        assert_eq!(agrees("d", Outcome::Output(json!(7))), Some(true));
        assert_eq!(agrees("d", Outcome::Output(json!(8))), Some(false));
        assert_eq!(agrees("d", Outcome::Denied { reason: None }), Some(false));
    }
}

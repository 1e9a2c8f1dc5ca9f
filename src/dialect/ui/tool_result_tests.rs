//! Answers against stored replies.

use super::*;
use crate::dialect::ui::message::validate_message;
use proptest::prelude::*;
use serde_json::json;

fn message(parts: &[Value]) -> Value {
    json!({"id": "a1", "role": "assistant", "metadata": {"a": 1}, "parts": parts})
}

fn part(state: &str, extra: Value) -> Value {
    let mut part = json!({"type": "tool-f", "toolCallId": "c", "state": state, "input": {"x": 1}});
    part.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    part
}

fn asked() -> Value {
    part("approval-requested", json!({"approval": {"id": "run::c"}}))
}

fn responded(granted: bool) -> Value {
    part("approval-responded", json!({"approval": {"id": "run::c", "approved": granted}}))
}

fn answer(outcome: Outcome) -> Answer {
    Answer { tool_call_id: "c".into(), outcome }
}

fn new(sent: Value, stored: Value) -> Result<Vec<Outcome>, InvalidResult> {
    let answers = answers_of_message(&message(&[sent]), &message(&[stored]), Executor::Client)?;
    Ok(answers.into_iter().map(|answer| answer.outcome).collect())
}

#[test]
fn says_which_calls_wait_and_for_what() {
    let kind = |part: Value, executor| pending(&message(&[part]), executor).first().map(|call| call.awaited);
    let provider = json!({"providerExecuted": true});
    for (part, client, producer) in [
        (part("input-streaming", json!({})), None, None),
        (part("input-available", json!({})), Some(Awaited::Result), Some(Awaited::Result)),
        (part("input-available", provider.clone()), None, None),
        (asked(), Some(Awaited::Approval), Some(Awaited::Approval)),
        (
            part("approval-requested", json!({"approval": {"id": "a"}, "providerExecuted": true})),
            Some(Awaited::Approval),
            Some(Awaited::Approval),
        ),
        (responded(true), Some(Awaited::Result), None),
        (responded(false), None, None),
        (part("output-available", json!({"output": 1})), None, None),
        (part("output-error", json!({"errorText": "e"})), None, None),
        (json!({"type": "text", "text": "t"}), None, None),
    ] {
        assert_eq!(kind(part.clone(), Executor::Client), client, "{part}");
        assert_eq!(kind(part.clone(), Executor::Producer), producer, "{part}");
    }
    let dynamic =
        json!({"type": "dynamic-tool", "toolName": "g", "toolCallId": "d", "state": "input-available", "input": 1});
    let calls = pending(&message(&[part("input-available", json!({})), dynamic]), Executor::Client);
    let named: Vec<_> = calls.iter().map(|call| (call.tool_call_id.as_str(), call.tool_name.as_str())).collect();
    assert_eq!(named, [("c", "f"), ("d", "g")]);
}

#[test]
fn a_stock_clients_answers_are_found() {
    let waits = || part("input-available", json!({}));
    let output = part("output-available", json!({"output": {"y": 2}}));
    assert_eq!(new(output.clone(), waits()), Ok(vec![Outcome::Output(json!({"y": 2}))]));
    // A tool that returned `undefined`.
    assert_eq!(new(part("output-available", json!({})), waits()), Ok(vec![Outcome::Output(Value::Null)]));
    assert_eq!(new(part("output-available", json!({"output": 1, "preliminary": true})), waits()), Ok(vec![]));
    assert_eq!(new(part("output-error", json!({"errorText": "e"})), waits()), Ok(vec![Outcome::Error("e".into())]));
    assert_eq!(new(waits(), waits()), Ok(vec![]));
    assert_eq!(new(responded(true), asked()), Ok(vec![Outcome::Approved { reason: None }]));
    let denied = part("approval-responded", json!({"approval": {"id": "run::c", "approved": false, "reason": "no"}}));
    assert_eq!(new(denied, asked()), Ok(vec![Outcome::Denied { reason: Some("no".into()) }]));
    // Approved, then offered again: some versions keep the approval on the part, some do not.
    let granted = json!({"output": 1, "approval": {"id": "run::c", "approved": true}});
    assert_eq!(new(part("output-available", granted.clone()), responded(true)), Ok(vec![Outcome::Output(json!(1))]));
    assert_eq!(new(output.clone(), responded(true)), Ok(vec![Outcome::Output(json!({"y": 2}))]));
    // Approved and executed in one request.
    assert_eq!(new(part("output-available", granted), asked()), Ok(vec![Outcome::Output(json!(1))]));
    // Executed before the approval came (a careless `onToolCall`): only the approval counts.
    let careless = part("approval-responded", json!({"output": 1, "approval": {"id": "run::c", "approved": true}}));
    assert_eq!(new(careless, asked()), Ok(vec![Outcome::Approved { reason: None }]));
}

#[test]
fn the_first_answer_counts_and_calls_of_others_are_none() {
    let output = |value: u8| part("output-available", json!({"output": value}));
    assert_eq!(new(output(2), output(1)), Ok(vec![]));
    assert_eq!(new(output(2), part("output-error", json!({"errorText": "stopped"}))), Ok(vec![]));
    assert_eq!(new(responded(false), responded(true)), Ok(vec![]));
    assert_eq!(
        new(responded(true), part("output-denied", json!({"approval": {"id": "run::c", "approved": false}}))),
        Ok(vec![])
    );
    assert_eq!(new(output(1), part("input-streaming", json!({}))), Ok(vec![]));
    assert_eq!(new(output(1), part("input-available", json!({"providerExecuted": true}))), Ok(vec![]));
    assert_eq!(new(output(1), part("input-available", json!({"toolCallId": "other"}))), Ok(vec![]));
    let twice = message(&[output(1), output(2)]);
    let stored = message(&[part("input-available", json!({}))]);
    assert_eq!(answers_of_message(&twice, &stored, Executor::Client), Ok(vec![answer(Outcome::Output(json!(1)))]));
}

#[test]
fn an_answer_that_does_not_fit_is_refused() {
    let waits = || part("input-available", json!({}));
    let mut deep = json!(1);
    for _ in 0..110 {
        deep = json!([deep]);
    }
    for (sent, stored) in [
        (part("output-available", json!({"output": 1})), asked()),
        (part("output-error", json!({"errorText": "e"})), asked()),
        (part("approval-responded", json!({"approval": {"id": "other::c", "approved": true}})), asked()),
        (part("approval-responded", json!({"approval": {"approved": true}})), asked()),
        (part("approval-responded", json!({"approval": {"id": "run::c"}})), asked()),
        (part("output-error", json!({})), waits()),
        (part("output-error", json!({"errorText": "x".repeat(MAX_ERROR_BYTES + 1)})), waits()),
        (part("output-available", json!({"output": "x".repeat(MAX_OUTPUT_BYTES)})), waits()),
        (part("output-available", json!({"output": deep})), waits()),
    ] {
        assert_eq!(new(sent.clone(), stored.clone()), Err(InvalidResult), "{stored}");
    }
    assert_eq!(
        (InvalidResult.code().status(), InvalidResult.to_string().as_str()),
        (400, "The tool result is not valid")
    );
}

#[test]
fn a_reply_takes_its_answers() {
    let reason = || Some("so".to_owned());
    for (stored, outcome, expected) in [
        (part("input-available", json!({})), Outcome::Output(json!(1)), part("output-available", json!({"output": 1}))),
        (
            part("input-available", json!({})),
            Outcome::Error("e".into()),
            part("output-error", json!({"errorText": "e"})),
        ),
        (
            asked(),
            Outcome::Approved { reason: reason() },
            part("approval-responded", json!({"approval": {"id": "run::c", "approved": true, "reason": "so"}})),
        ),
        (asked(), Outcome::Denied { reason: None }, responded(false)),
        (
            asked(),
            Outcome::Output(json!(1)),
            part("output-available", json!({"output": 1, "approval": {"id": "run::c", "approved": true}})),
        ),
        (
            responded(true),
            Outcome::Output(json!(1)),
            part("output-available", json!({"output": 1, "approval": {"id": "run::c", "approved": true}})),
        ),
    ] {
        let applied = apply(message(&[stored]), &[answer(outcome)]);
        assert_eq!(applied, message(&[expected]));
        validate_message(&applied).unwrap();
    }
    let unknown = Answer { tool_call_id: "x".into(), outcome: Outcome::Output(json!(1)) };
    assert_eq!(apply(message(&[asked()]), &[unknown]), message(&[asked()]));
}

#[test]
fn an_abandoned_reply_tells_what_was_not_executed() {
    let denied = part("output-denied", json!({"approval": {"id": "run::c", "approved": false}}));
    let error = |extra: Value| {
        let mut part = part("output-error", extra);
        part.as_object_mut().unwrap().insert("errorText".into(), ABANDONED.into());
        part
    };
    for (stored, expected) in [
        (part("input-available", json!({})), error(json!({}))),
        (asked(), error(json!({}))),
        (responded(true), error(json!({"approval": {"id": "run::c", "approved": true}}))),
        (responded(false), denied.clone()),
        (denied.clone(), denied),
        (part("output-available", json!({"output": 1})), part("output-available", json!({"output": 1}))),
        (part("input-streaming", json!({})), part("input-streaming", json!({}))),
        (json!({"type": "text", "text": "t"}), json!({"type": "text", "text": "t"})),
    ] {
        let abandoned = abandon(message(&[stored]));
        assert_eq!(abandoned, message(&[expected]));
        validate_message(&abandoned).unwrap();
        assert!(pending(&abandoned, Executor::Client).is_empty());
    }
    assert_eq!(abandon(json!({"id": "a"})), json!({"id": "a"}));
}

#[test]
fn the_continuation_shows_the_answers() {
    let told = |part: Value, outcome, executor| {
        let chunks = chunks(&[answer(outcome)], &message(&[part]), executor);
        Value::Array(chunks.into_iter().map(|chunk| Value::Object(chunk.into_map())).collect())
    };
    let waits = || part("input-available", json!({}));
    assert_eq!(
        told(waits(), Outcome::Output(json!(1)), Executor::Client),
        json!([{"type": "tool-output-available", "output": 1, "toolCallId": "c"}])
    );
    assert_eq!(
        told(
            part("input-available", json!({"type": "dynamic-tool", "toolName": "g"})),
            Outcome::Error("e".into()),
            Executor::Client
        ),
        json!([{"type": "tool-output-error", "errorText": "e", "toolCallId": "c", "dynamic": true}])
    );
    assert_eq!(
        told(asked(), Outcome::Denied { reason: None }, Executor::Client),
        json!([{"type": "tool-output-denied", "toolCallId": "c"}])
    );
    assert_eq!(
        told(asked(), Outcome::Approved { reason: None }, Executor::Client),
        json!([{"type": "tool-input-available", "toolCallId": "c", "toolName": "f", "input": {"x": 1}}])
    );
    assert_eq!(
        told(asked(), Outcome::Approved { reason: Some("so".into()) }, Executor::Producer),
        json!([{"type": "tool-approval-response", "approvalId": "run::c", "toolCallId": "c", "approved": true, "reason": "so"}])
    );
}

fn states() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(part("input-streaming", json!({}))),
        Just(part("input-available", json!({}))),
        Just(part("input-available", json!({"providerExecuted": true}))),
        Just(asked()),
        Just(responded(true)),
        Just(responded(false)),
        Just(part("output-available", json!({"output": 1}))),
        Just(part("output-available", json!({"output": 1, "approval": {"id": "run::c", "approved": true}}))),
        Just(part("output-error", json!({"errorText": "e"}))),
        Just(part("output-denied", json!({"approval": {"id": "run::c", "approved": false}}))),
    ]
}

proptest! {
    /// Whatever a client sends: a reply that took it is valid, and the same request brings nothing new.
    #[test]
    fn an_answer_is_taken_once(sent in states(), stored in states()) {
        let (sent, stored) = (message(&[sent]), message(&[stored]));
        for executor in [Executor::Client, Executor::Producer] {
            if let Ok(answers) = answers_of_message(&sent, &stored, executor) {
                let applied = apply(stored.clone(), &answers);
                prop_assert!(validate_message(&applied).is_ok(), "{applied}");
                prop_assert_eq!(answers_of_message(&sent, &applied, executor), Ok(vec![]));
                // A follower that folds the continuation's first chunks over the reply sees what is stored, or the call offered again.
                let mut fold = Fold::continuing(applied.clone());
                for chunk in chunks(&answers, &applied, executor) {
                    prop_assert_eq!(fold.apply(&chunk), Ok(()));
                }
                prop_assert!(validate_message(&fold.message().unwrap()).is_ok());
                prop_assert_eq!(pending(&fold.message().unwrap(), executor), pending(&applied, executor));
            }
        }
    }
}

#[test]
fn a_result_may_name_the_approval_that_the_store_has_let_go() {
    let offered = part("input-available", json!({}));
    let granted = json!({"id": "run::c", "approved": true});
    let sent = part("output-available", json!({"output": 1, "approval": granted}));
    assert_eq!(new(sent, offered.clone()), Ok(vec![Outcome::Output(json!(1))]));
    assert_eq!(new(responded(true), offered.clone()), Ok(vec![]), "the first word counts");
    let other = part("approval-responded", json!({"approval": {"id": "run::d", "approved": true}}));
    assert_eq!(new(other, offered), Err(InvalidResult));
}

#[test]
fn a_granted_call_does_not_hold_the_continuation_up_that_offers_it() {
    let other = json!({"type": "tool-g", "toolCallId": "d", "state": "input-available", "input": 1});
    let message = message(&[responded(true), other]);
    let answered = Answer { tool_call_id: "d".into(), outcome: Outcome::Output(json!(1)) };
    assert!(waits(&message, &[], Executor::Client));
    assert!(!waits(&message, &[answered], Executor::Client));
}

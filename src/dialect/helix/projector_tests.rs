use proptest::prelude::*;
use serde_json::{Value, json};

use super::projector::{Projector, apply};
use crate::core::call_ids::CallIds;
use crate::core::chunk::{CONTINUES, Chunk};
use crate::core::ids::{Cursor, MessageId, RunId, Sequence};
use crate::core::run::Vocabulary;
use crate::dialect::push::admit::{Admission, Opened};
use crate::dialect::ui::attempts::Attempts;
use crate::dialect::ui::fold::Fold;
use crate::dialect::ui::lens::{Lens, begun};
use crate::dialect::ui::message::validate_message;
use crate::dialect::ui::reopen::reopen;
use crate::dialect::ui::sanitise::sanitise;
use crate::dialect::ui::testing::{Client, chunk, seed, stamp};
use crate::dialect::ui::vocabulary::Floor;

fn projector() -> Projector {
    Projector::new(RunId::new("r"), MessageId::new("m"))
}

/// The projection as a client of the newest release sees it, in order.
fn seen(chunks: &[Value]) -> Vec<Value> {
    let mut projector = projector();
    let mut out: Vec<Chunk> = chunks.iter().flat_map(|value| projector.project(&chunk(value.clone()))).collect();
    out.extend(projector.close());
    let frame = |chunk: Chunk| sanitise(chunk, Floor::NEWEST).map(Value::Object);
    out.into_iter().filter_map(frame).collect()
}

fn kinds(chunks: &[Value]) -> String {
    seen(chunks).iter().map(|chunk| chunk["type"].as_str().unwrap().to_owned()).collect::<Vec<_>>().join(" ")
}

#[test]
fn blocks_end_when_another_one_comes() {
    assert_eq!(
        json!(seen(&[
            json!({"type": "run_started", "runId": "r"}),
            json!({"type": "thinking", "content": "hm", "isComplete": false}),
            json!({"type": "thinking", "content": "hm.", "isComplete": true}),
            json!({"type": "text_delta", "delta": "a"}),
            json!({"type": "text_delta", "delta": ""}),
            json!({"type": "text_delta", "delta": "b"}),
            json!({"type": "thinking", "content": "well", "isComplete": true}),
        ])),
        json!([
            {"type": "start", "messageId": "m"},
            {"type": "reasoning-start", "id": "b1"},
            {"type": "reasoning-delta", "id": "b1", "delta": "hm"},
            {"type": "reasoning-delta", "id": "b1", "delta": "."},
            {"type": "reasoning-end", "id": "b1"},
            {"type": "text-start", "id": "b2"},
            {"type": "text-delta", "id": "b2", "delta": "a"},
            {"type": "text-delta", "id": "b2", "delta": "b"},
            {"type": "text-end", "id": "b2"},
            {"type": "reasoning-start", "id": "b3"},
            {"type": "reasoning-delta", "id": "b3", "delta": "well"},
            {"type": "reasoning-end", "id": "b3"},
        ])
    );
}

#[test]
fn a_call_streams_its_input_asks_and_ends() {
    assert_eq!(
        json!(seen(&[
            json!({"type": "start", "messageId": "m"}),
            json!({"type": "step_start", "step": 1, "attemptId": "a"}),
            json!({"type": "tool_arg_stream_start", "toolCallId": "c", "toolName": "t"}),
            json!({"type": "tool_arg_stream_delta", "toolCallId": "c", "delta": "{}"}),
            json!({"type": "tool_start", "toolCallId": "c", "toolName": "t", "arguments": {}}),
            json!({"type": "tool_start", "toolCallId": "c", "toolName": "t", "arguments": {}}),
            json!({"type": "tool_end", "toolCallId": "c", "result": 7, "success": true}),
            json!({"type": "approval_request", "toolCallId": "d", "toolName": "t", "arguments": 1}),
            json!({"type": "tool_end", "toolCallId": "d", "success": false, "error": {"message": "no"}}),
            json!({"type": "tool_end", "toolCallId": "d", "success": true, "result": 1}),
            json!({"type": "step_committed", "step": 1, "attemptId": "a", "committedAttemptId": "a"}),
            json!({"type": "step_start", "step": 2, "attemptId": "b"}),
        ])),
        json!([
            {"type": "start", "messageId": "m"},
            {"type": "start-step"},
            {"type": "tool-input-start", "toolCallId": "c", "toolName": "t"},
            {"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": "{}"},
            {"type": "tool-input-available", "toolCallId": "c", "toolName": "t", "input": {}},
            {"type": "tool-output-available", "toolCallId": "c", "output": 7},
            {"type": "tool-input-available", "toolCallId": "d", "toolName": "t", "input": 1},
            {"type": "tool-approval-request", "approvalId": "r::d", "toolCallId": "d"},
            {"type": "tool-output-error", "toolCallId": "d", "errorText": "no"},
            {"type": "finish-step"},
            {"type": "start-step"},
            {"type": "finish-step"},
        ])
    );
}

#[test]
fn data_goes_by_name_and_the_rest_is_for_the_wire() {
    assert_eq!(
        json!(seen(&[
            json!({"type": "custom", "eventName": "weather", "data": {"sun": true}}),
            json!({"type": "custom", "eventName": "stream-resync", "data": {}}),
            json!({"type": "state_patch", "patches": [{"op": "add", "path": "/a", "value": 1}]}),
            json!({"type": "output", "output": {"answer": 42}}),
            json!({"type": "error", "code": "x"}),
            json!({"type": "subagent_start", "agentId": "s"}),
            json!({"type": "run_paused"}),
            json!({"type": "text-delta", "id": "forged", "delta": "x"}),
            json!({"type": "tool-output-available", "toolCallId": "forged", "output": "x"}),
            json!({"type": "stream_resync", "checkpointId": "cp", "reason": "retry", "secret": 1, "runId": "r"}),
        ])),
        json!([
            {"type": "start", "messageId": "m"},
            {"type": "data-weather", "data": {"sun": true}},
            {"type": "data-state-patch", "data": [{"op": "add", "path": "/a", "value": 1}], "transient": true},
            {"type": "data-output", "data": {"answer": 42}, "id": "output"},
            {"type": "data-stream-resync", "id": "r:cp", "data": {"checkpointId": "cp", "reason": "retry", "runId": "r"}},
        ])
    );
}

#[test]
fn a_result_for_a_call_elsewhere_is_marked_once() {
    let mut projector = Projector::continuing(RunId::new("r"), &Fold::continuing(seed()));
    let end = chunk(json!({"type": "tool_end", "toolCallId": "a", "result": 1}));
    let out = projector.project(&end);
    assert_eq!(out.last().unwrap().text(CONTINUES), Some("n"));
    assert_eq!(projector.project(&end), []);
    let other = chunk(json!({"type": "tool_end", "toolCallId": "z", "toolName": "far", "result": 1}));
    assert_eq!(projector.project(&other)[0].text(CONTINUES), Some("far"));
    assert_eq!(projector.project(&other), []);
    let own = chunk(json!({"type": "tool-output-denied", "toolCallId": "y", "continues": "near"}));
    assert_eq!(projector.project(&own), [own]);
}

#[test]
fn another_attempt_is_told_and_late_words_of_the_lost_one_are_not() {
    let chunks = [
        json!({"type": "step_start", "step": 1, "attemptId": "a"}),
        json!({"type": "text_delta", "delta": "wrong", "attemptId": "a", "step": 1}),
        json!({"type": "step_start", "step": 1, "attemptId": "b", "agentId": "bot"}),
        json!({"type": "text_delta", "delta": "late", "attemptId": "a", "step": 1}),
        json!({"type": "text_delta", "delta": "right", "attemptId": "b", "step": 1}),
        json!({"type": "step_committed", "step": 1, "attemptId": "b", "committedAttemptId": "b"}),
    ];
    assert_eq!(
        kinds(&chunks),
        "start start-step text-start text-delta text-end data-attempt-superseded start-step text-start text-delta text-end finish-step"
    );
    let event = seen(&chunks)[5].clone();
    assert_eq!(event["data"]["supersededAttemptId"], "a");
    assert_eq!(event["data"]["agentId"], "bot");
}

fn helix_chunk() -> impl Strategy<Value = Value> {
    let kind = prop::sample::select(vec![
        "step_start",
        "step_start",
        "step_start",
        "step_committed",
        "step_committed",
        "text_delta",
        "text_delta",
        "text_delta",
        "thinking",
        "thinking",
        "tool_arg_stream_start",
        "tool_arg_stream_start",
        "tool_arg_stream_delta",
        "tool_arg_stream_delta",
        "tool_start",
        "tool_start",
        "tool_end",
        "tool_end",
        "approval_request",
        "approval_response",
        "state_patch",
        "custom",
        "output",
        "error",
        "run_paused",
        "weather",
        "text-delta",
    ]);
    let attempt = prop::sample::select(vec!["", "", "a", "b", "c"]);
    let call = prop::sample::select(vec!["a", "b", "c"]);
    (kind, attempt, call, 0..4_u64, any::<[bool; 3]>()).prop_map(|(kind, attempt, call, step, [flag, other, bare])| {
        let mut map = json!({
            "type": kind, "delta": "x", "content": "y", "isComplete": flag, "toolCallId": call, "toolName": "n",
            "arguments": {"q": 1}, "result": 1, "success": flag, "approved": other, "eventName": "e", "data": step,
            "patches": [{"op": "add", "path": "/a", "value": 1}], "output": 3, "id": "0", "committedAttemptId": attempt,
        });
        let map = map.as_object_mut().unwrap();
        if !attempt.is_empty() {
            map.insert("attemptId".into(), attempt.into());
        }
        if step > 0 {
            map.insert("step".into(), step.div_ceil(2).into());
        }
        if bare {
            map.shift_remove("arguments");
        }
        Value::Object(map.clone())
    })
}

fn base(continues: bool) -> Fold {
    if continues { Fold::continuing(seed()) } else { Fold::new(&MessageId::new("m")) }
}

/// Reads chunks as a client of 6.0.0 does that holds only `opening`.
fn read(opening: &[Chunk], rest: &[Chunk]) {
    let lens = Lens { owned: begun(opening), ..Lens::default() };
    let frames = opening.iter().chain(rest).filter_map(|chunk| lens.show(chunk.clone()));
    let (mut client, mut fold) = (Client::default(), Fold::new(&MessageId::new("m")));
    for frame in frames.filter_map(|chunk| sanitise(chunk, Floor::default())) {
        client.read(&frame);
        fold.apply(&Chunk::parse(Value::Object(frame)).unwrap()).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn what_a_client_reads_from_any_cursor_is_a_valid_stream_of_one_message(
        values in prop::collection::vec(helix_chunk(), 0..40), continues in any::<bool>(),
    ) {
        let (run, message_id, at) = (RunId::new("r"), MessageId::new("m"), Cursor::START);
        let opened = Opened {
            vocabulary: Vocabulary::Helix, run: run.clone(), message_id, base: continues.then(seed), state: None, at,
            calls: CallIds::default(),
        };
        let mut admission = Admission::new(opened.clone());
        let mut log = vec![chunk(json!({"type": "run_started", "runId": "r"})), chunk(json!({"type": "start", "messageId": "m", "runId": "r"}))];
        for value in values {
            if let Ok(admitted) = admission.admit(value) {
                log.push(stamp(&admitted.chunk, admitted.attempt.as_ref()));
            }
        }
        let fresh = || if continues { Projector::continuing(run.clone(), &base(true)) } else { projector() };
        let mut whole = fresh();
        let mut projected: Vec<Vec<Chunk>> = log.iter().map(|chunk| whole.project(chunk)).collect();
        projected.push(whole.close());
        let number = |at: usize| Sequence::new(at as u64 + 1).unwrap();
        let numbered = projected.iter().enumerate().flat_map(|(at, made)| made.iter().map(move |chunk| (number(at), chunk)));
        let attempts = Attempts::of(numbered);
        let lost = attempts.superseded();

        // The fold that follows attempts, and the one that never sees a lost attempt, agree; and so does the commit.
        let (mut all, mut kept) = (base(continues), base(continues));
        for chunk in projected.iter().flatten() {
            let folded = all.apply(chunk);
            prop_assert!(folded.is_ok() || chunk.text(CONTINUES).is_some(), "{:?} {:?}", folded, chunk);
            if !lost.leaves_out(chunk) {
                apply(&mut kept, chunk);
            }
        }
        prop_assert_eq!(all.message(), kept.message());
        prop_assert_eq!(admission.last().unwrap().message, all.message());
        if let Some(message) = all.message() {
            prop_assert_eq!(validate_message(&message), Ok(()));
        }

        // From every cursor on.
        let surviving = |made: &[Vec<Chunk>]| -> Vec<Chunk> {
            made.iter().flatten().filter(|chunk| !lost.leaves_out(chunk)).cloned().collect()
        };
        read(&[], &surviving(&projected));
        for at in 1..=log.len() {
            let (mut again, mut fold) = (fresh(), base(continues));
            again.replay(log[..at].iter(), lost, &mut fold);
            let mut rest: Vec<Vec<Chunk>> = log[at..].iter().map(|chunk| again.project(chunk)).collect();
            rest.push(again.close());
            prop_assert_eq!(&rest[..], &projected[at..]);
            read(&reopen(&fold), &surviving(&rest));
        }
        let mut replayed = Admission::new(opened);
        for (at, chunk) in log[2..].iter().enumerate() {
            replayed.replay(number(at), chunk);
        }
        prop_assert_eq!(replayed.last(), admission.last());
        prop_assert_eq!(replayed.commit(), admission.commit());
    }
}

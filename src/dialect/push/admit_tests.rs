use proptest::prelude::*;
use serde_json::{Value, json};

use super::admit::*;
use super::reason::{NotWhole, Reason};
use crate::core::call_ids::CallIds;
use crate::core::chunk::CONTINUES;
use crate::core::chunk::Chunk;
use crate::core::ids::{Cursor, MessageId, RunId, Sequence};
use crate::core::record::Record;
use crate::core::run::Vocabulary;
use crate::dialect::ui::fold::Fold;
use crate::dialect::ui::lens::{Lens, begun};
use crate::dialect::ui::message::validate_message;
use crate::dialect::ui::reopen::reopen;
use crate::dialect::ui::sanitise::sanitise;
use crate::dialect::ui::testing::{producer_chunk, seed, stamp};
use crate::dialect::ui::vocabulary::Floor;

fn opened(vocabulary: Vocabulary, base: Option<Value>) -> Opened {
    let at = Cursor::new(2).unwrap();
    Opened {
        vocabulary,
        run: RunId::new("r"),
        message_id: MessageId::new("m"),
        base,
        state: None,
        at,
        calls: CallIds::default(),
    }
}

fn ui() -> Admission {
    Admission::new(opened(Vocabulary::Ui, None))
}

fn numbered(chunks: &[Chunk]) -> impl Iterator<Item = (Sequence, &Chunk)> {
    chunks.iter().enumerate().map(|(at, chunk)| (Sequence::new(at as u64 + 3).unwrap(), chunk))
}

fn stored(records: &[Record]) -> Vec<Chunk> {
    let chunk = |record: &Record| match record {
        Record::Chunk { chunk, attempt } => Some(stamp(chunk, attempt.as_ref())),
        Record::Call(_) | Record::Amend(_) => None,
        _ => panic!("only chunks are pushed"),
    };
    records.iter().filter_map(chunk).collect()
}

fn admit(admission: &mut Admission, value: Value) -> Chunk {
    admission.admit(value.clone()).unwrap_or_else(|reason| panic!("{value}: {reason}")).chunk
}

/// What a stock client of this floor reads, which holds nothing of the message.
fn read(chunks: &[Chunk], opening: &[Chunk], floor: &str) -> Result<Fold, String> {
    let floor: Floor = floor.parse().unwrap();
    let lens = Lens { owned: begun(opening), ..Lens::default() };
    let mut fold = Fold::new(&MessageId::new("m"));
    for chunk in opening.iter().chain(chunks).filter_map(|chunk| lens.show(chunk.clone())) {
        if let Some(frame) = sanitise(chunk, floor) {
            let frame = Chunk::parse(Value::Object(frame)).unwrap();
            fold.apply(&frame).map_err(|error| format!("{error}: {frame:?}"))?;
        }
    }
    Ok(fold)
}

#[test]
fn a_run_has_its_start_already() {
    let mut admission = ui();
    let said = admit(&mut admission, json!({"type": "start", "messageId": "theirs"}));
    assert_eq!(Value::Object(said.into_map()), json!({"type": "producer_start", "messageId": "theirs"}));
    let said = admit(&mut admission, json!({"type": "start", "messageMetadata": {"a": 1}, "runId": "forged"}));
    assert_eq!(Value::Object(said.into_map()), json!({"type": "message-metadata", "messageMetadata": {"a": 1}}));
    assert_eq!(admission.at().get(), 4);
}

#[test]
fn refusals_say_what_to_change() {
    let mut admission = ui();
    for value in [
        json!({"type": "start-step"}),
        json!({"type": "text-start", "id": "t"}),
        json!({"type": "tool-input-available", "toolCallId": "c", "toolName": "x", "input": 1}),
        json!({"type": "tool-output-available", "toolCallId": "c", "output": 1}),
    ] {
        admit(&mut admission, value);
    }
    for (value, words) in [
        (json!(7), "a chunk is a JSON object with a string `type`"),
        (json!({"type": "text_delta"}), "text_delta is not a chunk type of AI SDK UI message streams"),
        (json!({"type": "step_start"}), "step_start is not a chunk type of AI SDK UI message streams"),
        (json!({"type": "text-delta", "id": "t"}), "text-delta needs delta to be a string"),
        (
            json!({"type": "text-delta", "id": "t", "delta": "x", "providerMetadata": {"flat": 1}}),
            "text-delta needs providerMetadata to be an object of objects",
        ),
        (json!({"type": "text-start", "id": "t"}), "text-start for t, which is open already"),
        (json!({"type": "text-end", "id": "u"}), "text-end for u, which is not open"),
        (json!({"type": "error", "errorText": "e"}), "a run does not fail by a chunk of type error: use fail"),
        (
            json!({"type": "abort"}),
            "a run is not stopped by a chunk of type abort: use end with the status interrupted",
        ),
        (
            json!({"type": "reset-step"}),
            "reset-step cannot take back what clients have read: start a new run that supersedes this one",
        ),
        (json!({"type": "data-stream-resync", "data": {}}), "data-stream-resync is written by the service only"),
        (json!({"type": "tool-output-available", "toolCallId": "d", "output": 1}), "no tool call d in this message"),
        (
            json!({"type": "tool-output-error", "toolCallId": "c", "errorText": "e"}),
            "tool-output-error does not fit the call c in the state output-available",
        ),
        (
            json!({"type": "state_patch", "patches": [{"op": "remove", "path": "/x"}]}),
            "operation 0 does not fit the state at its path",
        ),
    ] {
        assert_eq!(admission.admit(value).unwrap_err().to_string(), words);
    }
    admit(&mut admission, json!({"type": "text-end", "id": "t"}));
    admit(&mut admission, json!({"type": "finish-step"}));
    assert_eq!(admission.admit(json!({"type": "finish-step"})), Err(Reason::NoStep));
    admit(&mut admission, json!({"type": "start-step"}));
    admit(&mut admission, json!({"type": "reset-step"}));
    admit(&mut admission, json!({"type": "tool-input-start", "toolCallId": "e", "toolName": "x", "dynamic": true}));
    let other = json!({"type": "tool-input-available", "toolCallId": "e", "toolName": "x", "input": 1});
    assert_eq!(admission.admit(other).unwrap_err().to_string(), "the call e has begun as one of the dynamic tool x");
    admit(&mut admission, json!({"type": "finish", "finishReason": "odd"}));
    assert_eq!(admission.admit(json!({"type": "start-step"})), Err(Reason::AfterFinish));
    let mut deep = json!(1);
    for _ in 0..101 {
        deep = json!([deep]);
    }
    assert_eq!(ui().admit(json!({"type": "data-x", "data": deep})), Err(Reason::TooDeep));
}

/// The id of each chunk's call, as it is stored.
fn names(admission: &mut Admission, values: impl IntoIterator<Item = Value>) -> Vec<String> {
    values.into_iter().map(|value| admit(admission, value).text("toolCallId").unwrap_or_default().to_owned()).collect()
}

#[test]
fn a_repeated_id_is_another_call_and_its_answers_follow() {
    let said = |kind: &str| json!({"type": kind, "toolCallId": "c", "toolName": "x", "input": 1, "output": 2});
    let call = || [said("tool-input-start"), said("tool-input-available"), said("tool-output-available")];
    let mut admission = ui();
    let mut of_step = |expected: &str| {
        admit(&mut admission, json!({"type": "start-step"}));
        assert_eq!(names(&mut admission, call()), [expected; 3]);
        assert!(admission.admit(said("tool-input-available")).is_err(), "not once more in its step");
        admit(&mut admission, json!({"type": "finish-step"}));
    };
    ["c", "c_2"].into_iter().for_each(&mut of_step);
    let mut calls = CallIds::default();
    calls.begin_run(1);
    calls.name("c");
    calls.begin_run(2);
    let mut later = Admission::new(Opened { calls: calls.clone(), ..opened(Vocabulary::Ui, None) });
    assert_eq!(names(&mut later, call()[..2].to_vec()), ["c_2"; 2], "an earlier run's id is taken, without a step too");
    assert_eq!(later.pending_calls(), ["c"], "the producer knows its own");
    let ask = json!({"type": "tool-approval-request", "toolCallId": "c", "approvalId": "c"});
    assert_eq!(admit(&mut later, ask).text("approvalId"), Some("r::c_2"));
    assert_eq!(names(&mut later, [said("tool-output-available")]), ["c_2"]);

    let helix = |kind: &str| json!({"type": kind, "toolCallId": "c", "toolName": "x", "arguments": 1, "result": 2});
    let call = || ["tool_arg_stream_start", "tool_start", "tool_end"].map(helix);
    let mut later = Admission::new(Opened { calls, ..opened(Vocabulary::Helix, None) });
    for expected in ["c_2", "c_3"] {
        admit(&mut later, json!({"type": "step_start"}));
        assert_eq!(names(&mut later, call()), [expected; 3]);
        assert_eq!(names(&mut later, [helix("tool_start")]), [expected], "said once more");
        admit(&mut later, json!({"type": "step_committed"}));
    }
    let message = later.last().unwrap().message.unwrap();
    let calls: Vec<_> = message["parts"].as_array().unwrap().iter().filter_map(|part| part.get("toolCallId")).collect();
    assert_eq!(calls, ["c_2", "c_3"]);
}

#[test]
fn a_call_of_an_attempt_that_is_tried_again_is_another() {
    let mut admission = Admission::new(opened(Vocabulary::Helix, None));
    let start = json!({"type": "tool_start", "toolCallId": "c", "toolName": "x", "arguments": 1});
    for expected in ["c", "c_2"] {
        admit(&mut admission, json!({"type": "step_start", "step": 1}));
        assert_eq!(names(&mut admission, [start.clone()]), [expected]);
    }
    let end = json!({"type": "tool_end", "toolCallId": "c", "toolName": "x", "result": 2});
    assert_eq!(names(&mut admission, [end]), ["c_2"]);
}

#[test]
fn a_granted_call_that_is_said_again_is_that_call() {
    let part = json!({"type": "tool-x", "toolCallId": "c", "state": "approval-responded", "input": 1,
        "approval": {"id": "r0::c", "approved": true}});
    let base = json!({"id": "m", "role": "assistant", "parts": [{"type": "step-start"}, part]});
    let said = |kind: &str| json!({"type": kind, "toolCallId": "c", "toolName": "x", "input": 1, "inputTextDelta": "1", "output": 2});
    for opens_a_step in [false, true] {
        let mut calls = CallIds::default();
        calls.begin_run(1);
        calls.name("c");
        calls.begin_run(2);
        let mut admission = Admission::new(Opened { calls, ..opened(Vocabulary::Ui, Some(base.clone())) });
        if opens_a_step {
            admit(&mut admission, json!({"type": "start-step"}));
        }
        for kind in ["tool-input-start", "tool-input-delta", "tool-input-available"] {
            let stored = admit(&mut admission, said(kind));
            assert_eq!(
                (stored.kind(), stored.text("toolCallId"), stored.text("said")),
                (PRODUCER_INPUT, Some("c"), Some(kind))
            );
        }
        let output = admit(&mut admission, said("tool-output-available"));
        assert_eq!((output.text("toolCallId"), output.text(CONTINUES)), (Some("c"), Some("x")));
        let parts = admission.here().unwrap().message.unwrap()["parts"].clone();
        let calls: Vec<_> = parts.as_array().unwrap().iter().filter(|part| part.get("toolCallId").is_some()).collect();
        assert_eq!((calls.len(), &calls[0]["state"]), (1, &json!("output-available")));
    }
}

#[test]
fn approvals_are_named_after_their_run_and_answered_by_either_name() {
    let mut admission = ui();
    let mut log = vec![admit(
        &mut admission,
        json!({"type": "tool-input-available", "toolCallId": "c", "toolName": "x", "input": 1}),
    )];
    log.push(admit(&mut admission, json!({"type": "tool-approval-request", "toolCallId": "c", "approvalId": "p"})));
    assert_eq!(log[1].text("approvalId"), Some("r::c"));
    let mut again = ui();
    numbered(&log).for_each(|(sequence, chunk)| again.replay(sequence, chunk));
    let answer = json!({"type": "tool-approval-response", "approvalId": "p", "approved": true});
    assert_eq!(admit(&mut again, answer.clone()).text("approvalId"), Some("r::c"));
    assert_eq!(admit(&mut admission, answer.clone().clone()).text("approvalId"), Some("r::c"));
    assert!(admission.admit(answer).is_err());
    let mut signed = ui();
    admit(&mut signed, json!({"type": "tool-input-available", "toolCallId": "c", "toolName": "x", "input": 1}));
    let request = json!({"type": "tool-approval-request", "toolCallId": "c", "approvalId": "p", "signature": "s"});
    assert_eq!(admit(&mut signed, request).text("approvalId"), Some("p"));
}

/// What a commit at this place covers: the run's chunks are read up to there.
fn read_through(vocabulary: Vocabulary, log: &[Chunk], cursor: Cursor) -> Result<Folded, NotWhole> {
    let mut admission = Admission::new(opened(vocabulary, None));
    let stored = numbered(log).take_while(|(sequence, _)| !cursor.lacks(*sequence));
    stored.for_each(|(sequence, chunk)| admission.replay(sequence, chunk));
    admission.through(cursor)
}

/// What a commit of the run covers, whose chunks so far are these.
fn covered(admission: &Admission, vocabulary: Vocabulary, log: &[Chunk]) -> Folded {
    match admission.commit().unwrap() {
        Covered::Here(folded) => folded,
        Covered::Through(Done { cursor, step_count }) => {
            Folded { step_count, ..read_through(vocabulary, log, cursor).unwrap() }
        }
    }
}

fn admit_all(admission: &mut Admission, values: &[Value]) -> Vec<Record> {
    values.iter().flat_map(|value| admission.admit(value.clone()).unwrap().records()).collect()
}

/// One step of a run, in both languages.
fn step_of(vocabulary: Vocabulary, step: u32) -> Vec<Value> {
    let (call, text) = (format!("c{step}"), format!("t{step}"));
    match vocabulary {
        Vocabulary::Helix => vec![
            json!({"type": "step_start", "step": step}),
            json!({"type": "text_delta", "delta": "Let me look. "}),
            json!({"type": "tool_start", "toolCallId": call, "toolName": "look", "arguments": {"n": step}}),
            json!({"type": "tool_end", "toolCallId": call, "result": "seen", "success": true}),
            json!({"type": "step_committed", "step": step}),
        ],
        _ => vec![
            json!({"type": "start-step"}),
            json!({"type": "text-start", "id": text}),
            json!({"type": "text-delta", "id": text, "delta": "Let me look. "}),
            json!({"type": "text-end", "id": text}),
            json!({"type": "tool-input-start", "toolCallId": call, "toolName": "look"}),
            json!({"type": "tool-input-available", "toolCallId": call, "toolName": "look", "input": {"n": step}}),
            json!({"type": "tool-output-available", "toolCallId": call, "output": "seen"}),
            json!({"type": "finish-step"}),
        ],
    }
}

#[test]
fn a_chunk_costs_the_same_however_long_the_run_is() {
    for vocabulary in [Vocabulary::Ui, Vocabulary::Helix] {
        let ratio = || {
            let mut admission = Admission::new(opened(vocabulary, None));
            let mut times = Vec::new();
            for three_hundred in 0..4 {
                let values: Vec<Value> =
                    (0..300).flat_map(|step| step_of(vocabulary, three_hundred * 300 + step + 1)).collect();
                let began = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
                values.into_iter().for_each(|value| drop(admission.admit(value).unwrap()));
                let took = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().saturating_sub(began);
                times.push(took.as_secs_f64());
            }
            times[3] / times[0]
        };
        // The machine may do something else meanwhile; what grows with the run is ten times slower at its end, each time.
        let best = (0..5).map(|_| ratio()).fold(f64::INFINITY, f64::min);
        assert!(best < 1.5, "{vocabulary:?}: steps 900 to 1,200 take {best} times as long as the first 300");
    }
}

#[test]
fn a_commit_covers_whole_steps_and_a_place_in_a_part_is_refused() {
    let mut admission = ui();
    assert_eq!(covered(&admission, Vocabulary::Ui, &[]).message, None);
    let mut log = Vec::new();
    for value in [
        json!({"type": "start-step"}),
        json!({"type": "text-start", "id": "t"}),
        json!({"type": "text-delta", "id": "t", "delta": "hi"}),
        json!({"type": "state_patch", "patches": [{"op": "add", "path": "/n", "value": 1}]}),
        json!({"type": "text-end", "id": "t"}),
        json!({"type": "finish-step"}),
        json!({"type": "start-step"}),
        json!({"type": "tool-input-start", "toolCallId": "c", "toolName": "x"}),
    ] {
        log.push(admit(&mut admission, value));
    }
    let folded = covered(&admission, Vocabulary::Ui, &log);
    assert_eq!((folded.cursor.get(), folded.step_count, &folded.state), (8, 1, &Some(json!({"n": 1}))));
    let parts = json!([{"type": "step-start"}, {"type": "text", "text": "hi", "state": "done"}]);
    assert_eq!(folded.message.as_ref().unwrap()["parts"], parts);
    let through = |cursor| read_through(Vocabulary::Ui, &log, Cursor::new(cursor).unwrap());
    assert_eq!(through(8), Ok(folded));
    assert_eq!(through(9).unwrap().message.unwrap()["parts"].as_array().unwrap().len(), 3);
    assert_eq!(through(5).unwrap_err().to_string(), "the message is not whole here: the text part t is still open");
    assert_eq!(
        through(10).unwrap_err().to_string(),
        "the message is not whole here: the input of the call c is still open"
    );
    assert_eq!(through(11), Err(NotWhole::NoSuchPlace));
    assert_eq!(ui().here().unwrap().message, None);
}

#[test]
fn what_is_open_is_closed_and_a_call_is_answered_when_nobody_is_left_to() {
    let begin = || {
        let mut admission = ui();
        for value in [
            json!({"type": "start-step"}),
            json!({"type": "reasoning-start", "id": "t"}),
            json!({"type": "tool-input-available", "toolCallId": "c", "toolName": "x", "input": 1}),
            json!({"type": "tool-input-available", "toolCallId": "d", "toolName": "x", "input": 1}),
            json!({"type": "tool-approval-request", "toolCallId": "d", "approvalId": "p"}),
        ] {
            admit(&mut admission, value);
        }
        admission
    };
    let kinds = |closing: Vec<Admitted>| closing.iter().map(|one| one.chunk.kind().to_owned()).collect::<Vec<_>>();
    let mut admission = begin();
    assert_eq!(admission.pending_calls(), ["c", "d"]);
    assert_eq!(
        kinds(admission.close(true)),
        ["tool-output-error", "tool-output-denied", "reasoning-end", "finish-step"]
    );
    assert!(admission.pending_calls().is_empty());
    let last = admission.last().unwrap();
    assert_eq!((last.step_count, validate_message(&last.message.unwrap())), (1, Ok(())));
    assert_eq!(kinds(begin().close(false)), ["reasoning-end", "finish-step"]);
}

#[test]
fn helix_chunks_come_as_they_are_with_the_runs_id_and_an_attempt() {
    let mut admission = Admission::new(opened(Vocabulary::Helix, None));
    let mut log = Vec::new();
    let mut marks = Vec::new();
    for value in [
        json!({"type": "run_started", "runId": "theirs", "agentId": "a", "step": 0}),
        json!({"type": "step_start", "step": 1}),
        json!({"type": "text_delta", "delta": "hi", "step": 1, "timestamp": 5}),
        json!({"type": "weather", "sun": true}),
        json!({"type": "step_committed", "committedAttemptId": ""}),
        json!({"type": "step_start", "step": 2, "attemptId": "x"}),
        json!({"type": "tool_start", "toolCallId": "c", "toolName": "t", "arguments": {}, "step": 2}),
    ] {
        let admitted = admission.admit(value).unwrap();
        marks.push(admitted.attempt.as_ref().map(|(id, step)| format!("{id} {step}")).unwrap_or_default());
        log.push(stamp(&admitted.chunk, admitted.attempt.as_ref()));
    }
    assert_eq!(marks, ["", "r-1-1 1", "r-1-1 1", "r-1-1 1", "r-1-1 1", "x 2", ""]);
    assert_eq!(log[2].get("timestamp"), Some(&json!(5)));
    let folded = covered(&admission, Vocabulary::Helix, &log);
    assert_eq!((folded.cursor.get(), folded.step_count), (7, 1));
    let parts = json!([{"type": "step-start"}, {"type": "text", "text": "hi", "state": "done"}]);
    assert_eq!(folded.message.unwrap()["parts"], parts);
    let mut again = Admission::new(opened(Vocabulary::Helix, None));
    numbered(&log).for_each(|(sequence, chunk)| again.replay(sequence, chunk));
    assert_eq!((again.commit(), again.last()), (admission.commit(), admission.last()));
    assert_eq!(again.pending_calls(), ["c"]);
    let closing = again.close(true);
    assert_eq!(closing[0].chunk.kind(), "tool_end");
    let last = again.last().unwrap().message.unwrap();
    assert_eq!(last["parts"][3]["state"], "output-error");
    assert_eq!(
        admission.admit(json!({"type": "data-helix-replay", "data": 1})).unwrap_err().to_string(),
        "data-helix-replay is written by the service only"
    );
}

#[test]
fn a_retried_step_takes_its_patches_back() {
    let mut admission = Admission::new(opened(Vocabulary::Helix, None));
    for value in [
        json!({"type": "step_start", "step": 1, "attemptId": "a"}),
        json!({"type": "state_patch", "patches": [{"op": "add", "path": "/n", "value": 1}], "attemptId": "a"}),
        json!({"type": "step_start", "step": 1, "attemptId": "b"}),
        json!({"type": "state_patch", "ops": [{"op": "add", "path": "/m", "value": 2}], "attemptId": "b"}),
    ] {
        admission.admit(value).unwrap();
    }
    assert_eq!(admission.state(), Some(&json!({"m": 2})));
    assert!(admission.admit(json!({"type": "state_patch"})).is_err());
}

#[test]
fn opaque_values_are_kept_whole() {
    let mut admission = Admission::new(opened(Vocabulary::Opaque, None));
    for (value, stored) in [
        (json!(7), json!({"type": "opaque", "value": 7})),
        (json!({"type": "x", "a": null}), json!({"type": "x", "a": null})),
        (json!({"type": "x", "step": 3}), json!({"type": "opaque", "value": {"type": "x", "step": 3}})),
        (json!({"type": "opaque"}), json!({"type": "opaque", "value": {"type": "opaque"}})),
        (json!({"type": 1}), json!({"type": "opaque", "value": {"type": 1}})),
    ] {
        assert_eq!(Value::Object(admit(&mut admission, value).into_map()), stored);
    }
    assert_eq!(admission.commit(), Err(NotWhole::Opaque));
    assert!(admission.close(true).is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn no_client_fails_on_what_is_admitted_and_a_refusal_changes_nothing(
        values in prop::collection::vec(producer_chunk(), 0..40), continues in any::<bool>(),
    ) {
        let base = continues.then(seed);
        let mut admission = Admission::new(opened(Vocabulary::Ui, base.clone()));
        let (mut log, mut calls) = (Vec::new(), CallIds::default());
        for value in values {
            let before = format!("{admission:?}");
            match admission.admit(value) {
                Ok(Admitted { chunk, attempt, name }) => {
                    name.into_iter().for_each(|name| calls.take(name));
                    log.push(stamp(&chunk, attempt.as_ref()));
                }
                Err(_) => prop_assert_eq!(before, format!("{admission:?}")),
            }
            prop_assert_eq!(admission.at().get(), log.len() as u64 + 2);
        }
        let mut copy = admission.clone();
        log.extend(copy.close(true).into_iter().map(|one| stamp(&one.chunk, one.attempt.as_ref())));
        let mut fold = base.clone().map_or_else(|| Fold::new(&MessageId::new("m")), Fold::continuing);
        for (at, chunk) in log.iter().enumerate() {
            for floor in ["6.0.0", "6.0.230", "7.0.173"] {
                prop_assert!(read(&log[at..], &reopen(&fold), floor).is_ok(), "{:?}", read(&log[at..], &reopen(&fold), floor).err());
            }
            prop_assert_eq!(fold.apply(chunk), Ok(()));
            if let Some(message) = fold.message() {
                prop_assert_eq!(validate_message(&message), Ok(()));
            }
        }
        prop_assert_eq!(copy.last().unwrap().message, fold.message());
        let mut again = Admission::new(Opened { calls, ..opened(Vocabulary::Ui, base) });
        numbered(&log).for_each(|(sequence, chunk)| again.replay(sequence, chunk));
        prop_assert_eq!((again.commit(), again.last(), again.at()), (copy.commit(), copy.last(), copy.at()));
        prop_assert_eq!((again.pending_calls(), again.is_finished()), (copy.pending_calls(), copy.is_finished()));
    }

    #[test]
    fn a_body_sent_again_makes_the_same_log(
        values in prop::collection::vec(producer_chunk(), 1..40), cut in 0..40_usize, from in 0..40_usize,
    ) {
        let mut probe = ui();
        let values: Vec<Value> = values.into_iter().filter(|value| probe.admit(value.clone()).is_ok()).collect();
        let mut whole = ui();
        let log = admit_all(&mut whole, &values);
        let cut = cut.min(values.len());
        let from = from.min(cut);
        // The first body breaks off behind `cut` lines; the second one begins anew at `from`.
        let mut second = ui();
        let mut twice = admit_all(&mut second, &values[..cut]);
        let sent = &values[from..];
        twice.extend(admit_all(&mut second, &sent[cut - from..]));
        prop_assert_eq!(stored(&twice), stored(&log));
        prop_assert_eq!(format!("{second:?}"), format!("{whole:?}"));
    }
}

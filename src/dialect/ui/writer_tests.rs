use proptest::prelude::*;
use serde_json::{Map, json};

use super::*;
use crate::dialect::ui::message::validate_message;
use crate::dialect::ui::reopen::reopen;
use crate::dialect::ui::testing::*;

/// The entries in one line: types, and commits with their step count.
fn story(entries: &[Record]) -> String {
    let mut words = Vec::new();
    for entry in entries {
        match entry {
            Record::Chunk { chunk, .. } => words.push(chunk.kind().to_owned()),
            Record::Commit(commit) => words.push(format!("commit({})", commit.step_count)),
            Record::Call(_) | Record::Amend(_) => {}
        }
    }
    words.join(" ")
}

#[test]
fn a_well_formed_run_passes_through() {
    let entries = run(&[
        json!({"type": "start", "messageId": "theirs", "messageMetadata": {"a": 1}}),
        json!({"type": "start-step"}),
        json!({"type": "text-start", "id": "t"}),
        json!({"type": "text-delta", "id": "t", "delta": "hi"}),
        json!({"type": "text-end", "id": "t"}),
        json!({"type": "finish-step"}),
        json!({"type": "finish", "finishReason": "length", "messageMetadata": {"b": 2}}),
    ]);
    assert_eq!(
        story(&entries),
        "run_started start message-metadata step_start start-step text-start text-delta text-end finish-step commit(1) \
         step_committed finish commit(1)"
    );
    let Record::Chunk { chunk: committed, attempt } = &entries[10] else { panic!("a chunk") };
    assert_eq!(committed.text("committedAttemptId"), Some("r-1-1"));
    assert_eq!(attempt.as_ref().unwrap().1, 1);
    assert_eq!(
        last_commit(&entries).unwrap().message,
        json!({"id": "m", "role": "assistant", "metadata": {"a": 1, "b": 2}, "parts": [
            {"type": "step-start"}, {"type": "text", "text": "hi", "state": "done"},
        ]})
    );
}

#[test]
fn what_is_missing_is_added() {
    let entries = run(&[json!({"type": "text-delta", "id": "t", "delta": "hi"})]);
    assert_eq!(
        story(&entries),
        "run_started start step_start start-step text-start text-delta text-end finish-step commit(1) step_committed finish"
    );
    assert_eq!(story(&run(&[])), "run_started start finish");
    let Some(Record::Chunk { chunk, attempt: None }) = entries.last() else { panic!("a chunk") };
    assert_eq!(chunk.text("finishReason"), Some("stop"));
}

#[test]
fn early_content_joins_the_step_that_the_producer_opens() {
    let entries = run(&[
        json!({"type": "data-x", "data": 1}),
        json!({"type": "start-step"}),
        json!({"type": "start-step"}),
        json!({"type": "text-start", "id": "t"}),
        json!({"type": "start-step"}),
        json!({"type": "finish-step"}),
        json!({"type": "finish-step"}),
    ]);
    assert_eq!(
        story(&entries),
        "run_started start step_start start-step data-x text-start text-end finish-step commit(1) step_committed \
         step_start start-step finish-step commit(2) step_committed finish"
    );
}

#[test]
fn what_clients_would_fail_on_is_dropped_or_repaired() {
    let mut writer = writer();
    writer.open();
    writer.write(chunk(json!({"type": "start-step"})));
    for dropped in [
        json!({"type": "text-end", "id": "t"}),
        json!({"type": "text-delta", "delta": "no id"}),
        json!({"type": "tool-output-available", "toolCallId": "c", "output": 1}),
        json!({"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": "{"}),
        json!({"type": "tool-approval-response", "approvalId": "p", "approved": true}),
        json!({"type": "abort"}),
        json!({"type": "error", "errorText": "e"}),
        json!({"type": "step_committed"}),
        json!({"type": "message-metadata", "messageMetadata": null}),
    ] {
        assert_eq!(writer.write(chunk(dropped.clone())), [], "{dropped}");
    }
    let unknown = writer.write(chunk(json!({"type": "state_patch", "ops": [], "runId": "forged"})));
    assert_eq!(story(&unknown), "state_patch");
    assert_eq!(stored(&unknown)[0].text("runId"), Some("r"));
    writer.write(chunk(json!({"type": "text-start", "id": "t"})));
    assert_eq!(story(&writer.write(chunk(json!({"type": "text-start", "id": "t"})))), "text-end text-start");
    let input = writer.write(chunk(json!({"type": "tool-input-available", "toolCallId": "c", "toolName": "x"})));
    assert_eq!(stored(&input)[0].get("input"), Some(&Value::Null));
    let output = writer.write(chunk(json!({"type": "tool-output-available", "toolCallId": "c"})));
    assert_eq!(stored(&output)[0].get("output"), Some(&Value::Null));
    for late in [
        json!({"type": "tool-output-error", "toolCallId": "c", "errorText": "e"}),
        json!({"type": "tool-input-start", "toolCallId": "c", "toolName": "x"}),
        json!({"type": "tool-approval-request", "toolCallId": "c", "approvalId": "p"}),
    ] {
        assert_eq!(writer.write(chunk(late)), []);
    }
}

#[test]
fn the_last_finish_wins_and_null_is_dropped() {
    let entries = run(&[
        json!({"type": "finish", "finishReason": "error"}),
        json!({"type": "finish", "finishReason": null, "messageMetadata": null}),
    ]);
    assert_eq!(stored(&entries).last().unwrap().as_map().len(), 2, "type and runId");
}

#[test]
fn a_reset_step_is_a_new_attempt() {
    let entries = run(&[
        json!({"type": "start-step"}),
        json!({"type": "text-delta", "id": "t", "delta": "wrong"}),
        json!({"type": "reset-step"}),
        json!({"type": "text-delta", "id": "t", "delta": "right"}),
    ]);
    assert_eq!(
        story(&entries),
        "run_started start step_start start-step text-start text-delta step_start data-attempt-superseded start-step \
         text-start text-delta text-end finish-step commit(1) step_committed finish"
    );
    let commit = last_commit(&entries).unwrap();
    assert_eq!(
        commit.message["parts"],
        json!([{"type": "step-start"}, {"type": "text", "text": "right", "state": "done"}])
    );
    let committed = stored(&entries).into_iter().find(|chunk| chunk.kind() == "step_committed").unwrap();
    assert_eq!(committed.text("committedAttemptId"), Some("r-1-2"));
}

#[test]
fn a_stop_keeps_what_was_produced_and_leaves_no_call_unanswered() {
    let mut writer = writer();
    let mut entries = writer.open();
    for value in [
        json!({"type": "text-delta", "id": "t", "delta": "hal"}),
        json!({"type": "tool-input-available", "toolCallId": "a", "toolName": "x", "input": 1}),
        json!({"type": "tool-input-available", "toolCallId": "b", "toolName": "x", "input": 2}),
        json!({"type": "tool-approval-request", "toolCallId": "b", "approvalId": "p"}),
        json!({"type": "tool-input-start", "toolCallId": "c", "toolName": "x"}),
    ] {
        entries.extend(writer.write(chunk(value)));
    }
    let closing = writer.stop();
    assert_eq!(story(&closing), "tool-output-error tool-output-denied text-end finish-step commit(1) step_committed");
    assert_eq!(
        last_commit(&closing).unwrap().message["parts"],
        json!([
            {"type": "step-start"},
            {"type": "text", "text": "hal", "state": "done"},
            {"type": "tool-x", "toolCallId": "a", "state": "output-error", "input": 1, "errorText": NOT_EXECUTED},
            {"type": "tool-x", "toolCallId": "b", "state": "output-denied", "input": 2, "approval": {"id": "p", "approved": false}},
            {"type": "tool-x", "toolCallId": "c", "state": "input-streaming"},
        ])
    );
    assert_eq!(writer.write(chunk(json!({"type": "text-delta", "id": "t", "delta": "late"}))), []);
    assert_eq!(writer.fail(), []);
}

#[test]
fn a_stop_with_nothing_commits_nothing() {
    let mut empty = writer();
    empty.open();
    assert_eq!(story(&empty.stop()), "");
    let mut begun = writer();
    begun.open();
    begun.write(chunk(json!({"type": "start-step"})));
    assert_eq!(story(&begun.fail()), "finish-step");
}

#[test]
fn a_completed_run_may_leave_calls_pending() {
    let entries = run(&[
        json!({"type": "tool-input-available", "toolCallId": "a", "toolName": "x", "input": 1}),
        json!({"type": "finish", "finishReason": "tool-calls"}),
    ]);
    assert_eq!(last_commit(&entries).unwrap().message["parts"][1]["state"], "input-available");
}

#[test]
fn a_continued_message_takes_results_before_its_first_step() {
    let message = json!({"id": "a", "role": "assistant", "parts": [
        {"type": "tool-x", "toolCallId": "c", "state": "input-available", "input": 1},
    ]});
    let mut writer = RunWriter::continuing(RunId::new("r"), message);
    let mut entries = writer.open();
    entries.extend(writer.write(chunk(json!({"type": "tool-output-available", "toolCallId": "c", "output": 2}))));
    entries.extend(writer.complete());
    assert_eq!(story(&entries), "run_started start tool-output-available finish commit(0)");
    assert_eq!(stored(&entries)[1].text("messageId"), Some("a"));
    assert_eq!(last_commit(&entries).unwrap().message["parts"][0]["output"], 2);
}

/// A writer in the place of one that died after this log.
fn recovered(log: &[Chunk]) -> RunWriter {
    let mut writer = writer();
    log.iter().for_each(|chunk| writer.replay(chunk));
    writer
}

#[test]
fn a_recovered_writer_retries_the_step_under_a_new_attempt() {
    let mut first = writer();
    let mut entries = first.open();
    entries.extend(first.write(chunk(json!({"type": "text-delta", "id": "t", "delta": "lost"}))));
    let log = stored(&entries);
    let mut second = recovered(&log).named("demo");
    let retry = second.restart_step();
    assert_eq!(story(&retry), "step_start data-attempt-superseded start-step");
    let retry = stored(&retry);
    assert_eq!(retry[0].text("attemptId"), Some("r-1-2"));
    assert_eq!(retry[1].get("attemptId"), None, "the event outlives its attempt");
    assert_eq!(
        retry[1].get("data"),
        Some(&json!({"reason": "attempt_superseded", "runId": "r", "agentId": "demo", "step": 1,
            "attemptId": "r-1-2", "supersededAttemptId": "r-1-1"}))
    );
    second.write(chunk(json!({"type": "text-delta", "id": "t", "delta": "kept"})));
    let parts = last_commit(&second.complete()).unwrap().message["parts"].clone();
    assert_eq!(parts, json!([{"type": "step-start"}, {"type": "text", "text": "kept", "state": "done"}]));
}

#[test]
fn a_recovery_is_told_when_the_step_had_content() {
    let resync = || chunk(json!({"type": "data-stream-resync", "id": "r:cp", "data": {"reason": "crash_recovery"}}));
    let mut writer = writer();
    writer.open();
    assert_eq!(writer.recover_step(resync()), [], "nothing was begun");
    writer.write(chunk(json!({"type": "start-step"})));
    assert_eq!(story(&writer.recover_step(resync())), "step_start start-step");
    writer.write(chunk(json!({"type": "text-delta", "id": "t", "delta": "lost"})));
    let told = writer.recover_step(resync());
    assert_eq!(story(&told), "step_start data-attempt-superseded start-step data-stream-resync");
    assert!(matches!(told.last(), Some(Record::Chunk { attempt: None, .. })), "it outlives the attempt");
}

#[test]
fn an_attempt_without_content_is_superseded_without_an_event() {
    let mut writer = writer();
    writer.open();
    assert_eq!(writer.restart_step(), []);
    writer.write(chunk(json!({"type": "start-step"})));
    assert_eq!(story(&writer.restart_step()), "step_start start-step");
    assert_eq!(writer.fold().message().unwrap()["parts"], json!([{"type": "step-start"}]));
}

#[test]
fn what_answers_a_call_of_the_continued_message_says_so() {
    let mut message = seed();
    message["parts"].as_array_mut().unwrap().push(
        json!({"type": "dynamic-tool", "toolName": "d", "toolCallId": "b", "state": "approval-requested", "input": 1,
            "approval": {"id": "p"}}),
    );
    let mut writer = RunWriter::continuing(RunId::new("r"), message);
    let mut entries = writer.open();
    for value in [
        json!({"type": "tool-output-available", "toolCallId": "a", "output": 1, "continues": "forged"}),
        json!({"type": "tool-approval-response", "approvalId": "p", "approved": true}),
        json!({"type": "tool-output-available", "toolCallId": "b", "output": 2}),
        json!({"type": "tool-input-available", "toolCallId": "own", "toolName": "x", "input": 1, "continues": "forged"}),
        json!({"type": "tool-output-available", "toolCallId": "own", "output": 3, "continues": "forged"}),
        json!({"type": "data-stream-resync", "data": "forged"}),
        json!({"type": "data-helix-replay", "data": "forged"}),
    ] {
        entries.extend(writer.write(chunk(value)));
    }
    let log = stored(&entries);
    let of =
        |key: &str| log.iter().map(|chunk| chunk.text(key).unwrap_or("-").to_owned()).collect::<Vec<_>>().join(" ");
    assert_eq!(of("continues"), "- - n d d - - - -");
    assert_eq!(of("toolCallId"), "- - a b b - - own own");
}

#[test]
fn a_result_for_an_earlier_message_changes_no_part() {
    let mut writer = writer();
    writer.open();
    let result = chunk(json!({"type": "tool-output-error", "toolCallId": "c", "errorText": "e", "step": 7}));
    let entries = writer.answer_earlier("x", result);
    assert_eq!(stored(&entries)[0].text("continues"), Some("x"));
    assert_eq!(stored(&entries)[0].get("step"), None);
    assert_eq!(writer.fold().message(), None);
    for unfit in [json!({"type": "tool-output-error", "toolCallId": "c"}), json!({"type": "text-start", "id": "t"})] {
        assert_eq!(writer.answer_earlier("x", chunk(unfit)), []);
    }
    writer.complete();
    assert_eq!(writer.announce(Chunk::new("data-stream-resync")), []);
}

/// The frame by which a client of a continued message already knows its call.
fn seed_call() -> Map<String, Value> {
    chunk(json!({"type": "tool-input-available", "toolCallId": "a", "toolName": "n", "input": 1})).into_map()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_client_reads_what_the_writer_emits(
        chunks in prop::collection::vec(producer_chunk(), 0..40),
        continues in any::<bool>(),
        ending in 0..3_u8,
    ) {
        let (mut writer, mut fold) = match continues {
            true => (RunWriter::continuing(RunId::new("r"), seed()), Fold::continuing(seed())),
            false => (writer(), Fold::new(&MessageId::new("m"))),
        };
        let mut entries = writer.open();
        for value in &chunks {
            entries.extend(writer.write(chunk(value.clone())));
        }
        entries.extend(match ending {
            0 => writer.complete(),
            1 => writer.stop(),
            _ => writer.fail(),
        });
        let mut client = Client::default();
        if continues {
            client.started = true;
            client.read(&seed_call());
        }
        client.read_all(&surviving(&stored(&entries)));
        prop_assert!(client.text.is_empty() && client.reasoning.is_empty());
        prop_assert_eq!(client.finished, ending == 0);

        for entry in &entries {
            match entry {
                Record::Chunk { chunk, attempt } => fold.apply(&stamp(chunk, attempt.as_ref())).unwrap(),
                Record::Commit(commit) => {
                    prop_assert_eq!(fold.message(), Some(commit.message.clone()));
                    validate_message(&commit.message).unwrap();
                }
                Record::Call(_) | Record::Amend(_) => {}
            }
            if let Some(message) = fold.message() {
                validate_message(&message).unwrap_or_else(|error| panic!("{error}: {message}"));
            }
        }
        if fold.has_content() && (!continues || last_commit(&entries).is_some()) {
            prop_assert_eq!(fold.message(), last_commit(&entries).map(|commit| commit.message.clone()));
        }
    }

    #[test]
    fn a_response_may_begin_anywhere(chunks in prop::collection::vec(producer_chunk(), 0..40), cut in any::<prop::sample::Index>()) {
        let log = surviving(&stored(&run(&chunks)));
        let (seen, rest) = log.split_at(cut.index(log.len()));
        let mut fold = Fold::new(&MessageId::new("m"));
        for chunk in seen {
            fold.apply(chunk).unwrap();
        }
        let mut client = Client::default();
        client.read_all(&reopen(&fold));
        client.read_all(rest);
        prop_assert!(client.finished);
    }

    #[test]
    fn a_run_that_died_anywhere_can_be_closed(chunks in prop::collection::vec(producer_chunk(), 0..40), cut in any::<prop::sample::Index>()) {
        let entries = run(&chunks);
        let mut log = stored(&entries[..cut.index(entries.len())]);
        prop_assume!(log.len() > 1);
        let mut writer = recovered(&log);
        let closing = writer.fail();
        log.extend(stored(&closing));
        let mut client = Client::default();
        client.read_all(&surviving(&log));
        prop_assert!(client.text.is_empty() && client.reasoning.is_empty());
        let mut fold = Fold::new(&MessageId::new("m"));
        for chunk in &log {
            fold.apply(chunk).unwrap();
        }
        if let Some(commit) = last_commit(&closing) {
            prop_assert_eq!(fold.message(), Some(commit.message.clone()));
        }
        let again = recovered(&log).fail();
        prop_assert!(stored(&again).is_empty(), "{:?}", again);
    }
}

/// A value of so many nested arrays.
fn nested(levels: usize) -> Value {
    (0..levels).fold(json!(1), |inner, _| json!([inner]))
}

#[test]
fn what_is_stored_can_be_read_again_however_deep_the_model_nests() {
    for levels in [90, 99, 100, 120, 126] {
        let chunks = [
            json!({"type": "tool-input-start", "toolCallId": "c", "toolName": "n"}),
            json!({"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": nested(levels).to_string()}),
            json!({"type": "tool-input-available", "toolCallId": "c", "toolName": "n", "input": nested(levels)}),
            json!({"type": "tool-output-available", "toolCallId": "c", "output": nested(levels)}),
            json!({"type": "data-x", "data": nested(levels)}),
        ];
        let records = run(&chunks);
        for record in &records {
            let text = match record {
                Record::Chunk { chunk, .. } => json!({"sequence": 1, "chunk": chunk.as_map()}).to_string(),
                Record::Commit(commit) => json!({"messages": [commit.message]}).to_string(),
                Record::Call(_) | Record::Amend(_) => continue,
            };
            serde_json::from_str::<Value>(&text).unwrap_or_else(|error| panic!("{levels} levels: {error}"));
        }
        validate_message(&last_commit(&records).unwrap().message).unwrap();
        assert_eq!(story(&records).contains("tool-input-error"), levels > 99, "{levels}");
    }
}

#[test]
fn a_long_streamed_input_takes_time_in_proportion() {
    let mut writer = writer();
    writer.open();
    writer.write(chunk(json!({"type": "tool-input-start", "toolCallId": "c", "toolName": "n"})));
    let began = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    for _ in 0..20_000 {
        writer.write(chunk(json!({"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": "[1, 2, 3"})));
    }
    // Reading the text so far at each delta takes minutes; in proportion, it is well under a second.
    assert!(std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().saturating_sub(began).as_secs() < 10);
}

#[test]
fn an_approval_that_is_named_like_its_call_is_the_runs_or_stays_the_routes() {
    for (keeps, expected) in [(false, ["r::c", "r::c_2"]), (true, ["c", "c_2"])] {
        let mut writer = writer().keeping_approvals(keeps);
        writer.open();
        let named = expected.map(|_| {
            writer.write(Chunk::new("start-step"));
            let asked: Vec<Chunk> = [
                json!({"type": "tool-input-available", "toolCallId": "c", "toolName": "n", "input": 1}),
                json!({"type": "tool-approval-request", "toolCallId": "c", "approvalId": "c"}),
            ]
            .into_iter()
            .flat_map(|said| stored(&writer.write(chunk(said))))
            .collect();
            writer.write(chunk(json!({"type": "tool-output-available", "toolCallId": "c", "output": 1})));
            asked[1].text("approvalId").unwrap().to_owned()
        });
        assert_eq!(named, expected);
    }
}

/// A run whose first attempt has shown a text and a call, and whose next ones have shown nothing.
fn lost_attempts(more: u32) -> (RunWriter, Vec<Record>) {
    let mut writer = writer();
    let mut entries = writer.open();
    for said in [
        json!({"type": "text-delta", "id": "t", "delta": "shown"}),
        json!({"type": "tool-input-available", "toolCallId": "c", "toolName": "look", "input": {"a": 1}}),
        json!({"type": "text-delta", "id": "u", "delta": " and cut"}),
    ] {
        entries.extend(writer.write(chunk(said)));
    }
    for _ in 0..more {
        entries.extend(writer.restart_step());
    }
    (writer, entries)
}

#[test]
fn when_the_last_attempt_ends_with_nothing_the_reply_is_what_was_shown_before_it() {
    for (more, stops) in [(1, false), (3, false), (2, true)] {
        let (mut writer, mut entries) = lost_attempts(more);
        entries.extend(if stops { writer.stop() } else { writer.fail() });
        let message = last_commit(&entries).unwrap().message.clone();
        assert_eq!(
            message["parts"],
            json!([{"type": "step-start"}, {"type": "text", "text": "shown", "state": "done"},
                {"type": "tool-look", "toolCallId": "c", "state": "output-error", "input": {"a": 1},
                    "errorText": "Not executed: the reply was interrupted"},
                {"type": "text", "text": " and cut", "state": "done"}])
        );
        // Whoever reads the log leaves the lost attempts out, and has it once.
        let committed = stored(&entries).into_iter().find(|chunk| chunk.kind() == "step_committed").unwrap();
        assert_eq!(committed.text("committedAttemptId"), Some(format!("r-1-{}", more + 1).as_str()));
        let mut fold = Fold::new(&MessageId::new("m"));
        for record in &entries {
            if let Record::Chunk { chunk, attempt } = record {
                fold.apply(&stamp(chunk, attempt.as_ref())).unwrap();
            }
        }
        assert_eq!(fold.message().unwrap()["parts"], message["parts"]);
    }
}

#[test]
fn a_writer_that_knows_the_lost_attempts_from_the_log_only_keeps_the_same() {
    let (_, entries) = lost_attempts(2);
    let log: Vec<Chunk> = entries
        .iter()
        .filter_map(|record| match record {
            Record::Chunk { chunk, attempt } => Some(stamp(chunk, attempt.as_ref())),
            _ => None,
        })
        .collect();
    let mut second = recovered(&log);
    let parts = last_commit(&second.fail()).unwrap().message["parts"].clone();
    assert_eq!([&parts[1]["text"], &parts[3]["text"]], ["shown", " and cut"]);
}

#[test]
fn what_the_last_attempt_has_shown_itself_is_the_reply() {
    let (mut writer, _) = lost_attempts(1);
    writer.write(chunk(json!({"type": "text-delta", "id": "t", "delta": "newer"})));
    let parts = last_commit(&writer.fail()).unwrap().message["parts"].clone();
    assert_eq!(parts, json!([{"type": "step-start"}, {"type": "text", "text": "newer", "state": "done"}]));
    let (mut writer, _) = lost_attempts(1);
    let parts = last_commit(&writer.complete()).unwrap().message["parts"].clone();
    assert_eq!(parts, json!([{"type": "step-start"}]), "an answer without a word is an answer");
}

use proptest::prelude::*;

use super::*;
use crate::core::ids::{MessageId, RunId};
use crate::core::record::Record;
use crate::dialect::ui::fold::Fold;
use crate::dialect::ui::lens::{Lens, begun};
use crate::dialect::ui::message::validate_message;
use crate::dialect::ui::testing::*;
use crate::dialect::ui::writer::RunWriter;

fn told(part: Value) -> Value {
    let message = json!({"id": "m", "role": "assistant", "parts": [part]});
    prefix(&message, false).into_iter().skip(1).map(|chunk| Value::Object(chunk.into_map())).collect()
}

fn folded<'a>(chunks: impl IntoIterator<Item = &'a Chunk>) -> Option<Value> {
    let mut fold = Fold::new(&MessageId::new("new"));
    for chunk in chunks {
        fold.apply(chunk).unwrap_or_else(|error| panic!("{error}: {chunk:?}"));
    }
    fold.message()
}

/// The message without what the head of `replay` lists.
fn replayable(message: &Value) -> Option<Value> {
    let mut out = Map::new();
    for key in ["id", "role", "metadata"] {
        out.extend(message.get(key).filter(|value| !value.is_null()).map(|value| (key.to_owned(), value.clone())));
    }
    let parts: Vec<Value> = parts(message).filter_map(|part| replayable_part(part.clone())).collect();
    (!parts.is_empty()).then(|| {
        out.insert("parts".into(), Value::Array(parts));
        Value::Object(out)
    })
}

fn replayable_part(mut part: Map<String, Value>) -> Option<Value> {
    if matches!(kind_of(&part), "custom" | "reasoning-file" | "steering-message") {
        return None;
    }
    for key in ["filename", "citations", "toolMetadata", "resultProviderMetadata", "inputEncoding"] {
        if kind_of(&part) != "source-document" {
            part.shift_remove(key);
        }
    }
    let mut escaped = Value::Object(part);
    escape_keys(&mut escaped);
    let Value::Object(mut part) = escaped else { return None };
    if tool_of(&part).is_some() {
        let approval = part.shift_remove("approval").unwrap_or_default();
        let denied = json!({"id": call_of(&part), "approved": false});
        match (state_of(&part), approval["approved"].as_bool()) {
            ("approval-requested", _) => drop(part.insert("approval".into(), json!({"id": approval["id"]}))),
            ("approval-responded", Some(true)) => drop(part.insert("state".into(), "input-available".into())),
            ("approval-responded" | "output-denied", _) => {
                part.insert("state".into(), "output-denied".into());
                part.insert("approval".into(), denied);
            }
            ("input-streaming", _) => drop(part.shift_remove("callProviderMetadata")),
            _ => {}
        }
    }
    Some(Value::Object(part))
}

#[test]
fn start_carries_the_id_and_the_metadata_and_markers_are_transient() {
    let message = json!({"id": "m", "role": "assistant", "metadata": {"a": 1}, "parts": [
        {"type": "step-start"}, {"type": "text", "text": "hi", "state": "done"}, {"type": "step-start"},
    ]});
    let marked: Vec<Value> = prefix(&message, true).into_iter().map(|chunk| Value::Object(chunk.into_map())).collect();
    assert_eq!(
        json!(marked),
        json!([
            {"type": "start", "messageId": "m", "messageMetadata": {"a": 1}},
            {"type": "data-helix-replay", "data": {"phase": "begin", "messageId": "m"}, "transient": true},
            {"type": "start-step"},
            {"type": "text-start", "id": "replay-1"},
            {"type": "text-delta", "id": "replay-1", "delta": "hi"},
            {"type": "text-end", "id": "replay-1"},
            {"type": "finish-step"},
            {"type": "start-step"},
            {"type": "finish-step"},
            {"type": "data-helix-replay", "data": {"phase": "end", "messageId": "m"}, "transient": true},
        ])
    );
    let plain = prefix(&message, false);
    assert_eq!(plain.len(), marked.len() - 2);
    assert_eq!(folded(&plain), folded(&prefix(&message, true)));
}

#[test]
fn every_part_that_is_no_call() {
    let metadata = json!({"p": {"k": 1}});
    for (part, chunks) in [
        (
            json!({"type": "reasoning", "id": "r", "text": "hm", "state": "done", "providerMetadata": metadata}),
            json!([{"type": "reasoning-start", "id": "r", "providerMetadata": metadata},
                {"type": "reasoning-delta", "id": "r", "delta": "hm"}, {"type": "reasoning-end", "id": "r"}]),
        ),
        (json!({"type": "text", "text": "", "state": "streaming"}), json!([{"type": "text-start", "id": "replay-0"}])),
        (
            json!({"type": "file", "url": "u", "mediaType": "m", "filename": "f"}),
            json!([{"type": "file", "url": "u", "mediaType": "m"}]),
        ),
        (
            json!({"type": "source-url", "sourceId": "s", "url": "u", "title": "t"}),
            json!([{"type": "source-url", "sourceId": "s", "url": "u", "title": "t"}]),
        ),
        (
            json!({"type": "source-document", "sourceId": "s", "mediaType": "m", "title": "t", "filename": "f"}),
            json!([{"type": "source-document", "sourceId": "s", "mediaType": "m", "title": "t", "filename": "f"}]),
        ),
        (
            json!({"type": "data-x", "id": "d", "data": {"__proto__": null}}),
            json!([{"type": "data-x", "id": "d", "data": {"$__proto__": null}}]),
        ),
        (json!({"type": "data-stream-resync", "data": {}}), json!([])),
        (json!({"type": "custom", "kind": "a.b"}), json!([])),
        (json!({"type": "file", "url": "u"}), json!([])),
        (json!({"type": "image"}), json!([])),
    ] {
        assert_eq!(told(part.clone()), chunks, "{part}");
    }
}

#[test]
fn every_state_of_a_call() {
    let available = json!({"type": "tool-input-available", "toolCallId": "c", "toolName": "x", "input": {"q": 1}});
    let call = |more: Value| {
        let mut part = json!({"type": "tool-x", "toolCallId": "c", "input": {"q": 1}});
        part.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        part
    };
    let ask = json!({"type": "tool-approval-request", "approvalId": "r::c", "toolCallId": "c"});
    let deny = json!({"type": "tool-output-denied", "toolCallId": "c"});
    for (part, rest) in [
        (call(json!({"state": "input-available"})), vec![]),
        (call(json!({"state": "approval-requested", "approval": {"id": "r::c", "signature": "s"}})), vec![ask]),
        (call(json!({"state": "approval-responded", "approval": {"id": "r::c", "approved": true}})), vec![]),
        (
            call(json!({"state": "approval-responded", "approval": {"id": "r::c", "approved": false}})),
            vec![deny.clone()],
        ),
        (call(json!({"state": "output-denied", "approval": {"id": "r::c", "approved": false}})), vec![deny]),
        (
            call(json!({"state": "output-available", "output": null, "resultProviderMetadata": {"p": {}}})),
            vec![json!({"type": "tool-output-available", "toolCallId": "c", "output": null})],
        ),
        (
            call(json!({"state": "output-available", "output": 1, "preliminary": true})),
            vec![json!({"type": "tool-output-available", "toolCallId": "c", "output": 1, "preliminary": true})],
        ),
        (
            call(json!({"state": "output-error", "errorText": "e"})),
            vec![json!({"type": "tool-output-error", "toolCallId": "c", "errorText": "e"})],
        ),
    ] {
        let mut chunks = vec![available.clone()];
        chunks.extend(rest);
        assert_eq!(told(part.clone()), Value::Array(chunks), "{part}");
    }
    let dynamic = json!({"type": "dynamic-tool", "toolName": "x", "toolCallId": "c", "state": "output-available", "input": 1,
        "output": 2, "title": "X", "providerExecuted": true, "callProviderMetadata": {"p": {}}, "toolMetadata": {}});
    assert_eq!(
        told(dynamic),
        json!([
            {"type": "tool-input-available", "toolCallId": "c", "toolName": "x", "providerExecuted": true, "title": "X",
                "dynamic": true, "input": 1, "providerMetadata": {"p": {}}},
            {"type": "tool-output-available", "toolCallId": "c", "output": 2, "providerExecuted": true, "dynamic": true},
        ])
    );
    let unread =
        json!({"type": "tool-x", "toolCallId": "c", "state": "output-error", "rawInput": "{", "errorText": "e"});
    assert_eq!(
        told(unread),
        json!([{"type": "tool-input-error", "toolCallId": "c", "toolName": "x", "input": "{", "errorText": "e"}])
    );
    let streaming = json!({"type": "tool-x", "toolCallId": "c", "state": "input-streaming", "input": {"q": "a\"b"}});
    assert_eq!(
        told(streaming),
        json!([
            {"type": "tool-input-start", "toolCallId": "c", "toolName": "x"},
            {"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": "{\"q\":\"a\\\"b\"}"},
        ])
    );
    let nameless =
        json!({"type": "dynamic-tool", "toolCallId": "c", "state": "output-available", "input": 1, "output": 2});
    assert_eq!(told(nameless), json!([]), "a result without its call would fail the response");
}

#[test]
fn owned_calls_are_those_of_all_tool_parts() {
    let message = json!({"parts": [
        {"type": "tool-x", "toolCallId": "a"}, {"type": "dynamic-tool", "toolName": "x", "toolCallId": "b"},
        {"type": "text", "toolCallId": "c"}, {"type": "tool-x"}, {"type": "dynamic-tool", "toolCallId": "d"}, 7,
    ]});
    assert_eq!(owned_calls(&message), ["a".to_owned(), "b".to_owned()].into());
    assert_eq!(owned_calls(&json!("text")), BTreeSet::new());
}

/// As [`replayable`], for a message that goes on: an input that had not ended at the prefix may have got its result since. The text of one
/// that cannot be read stands for the input while an approval is asked for, and is forgotten with the result.
fn lasting(message: &Value) -> Option<Value> {
    let mut message = replayable(message)?;
    for part in message["parts"].as_array_mut().unwrap() {
        let part = part.as_object_mut().unwrap();
        part.shift_remove("callProviderMetadata");
        if part.get("input").is_some_and(Value::is_string) {
            part.insert("input".into(), Value::Null);
        }
    }
    Some(message)
}

/// Splits the entries at each commit: the message, and the chunks behind it.
fn commits(entries: &[Record]) -> Vec<(Value, Vec<Chunk>)> {
    let at = entries.iter().enumerate().filter_map(|(at, entry)| match entry {
        Record::Commit(commit) => Some((commit.message.clone(), stored(&entries[at..]))),
        Record::Chunk { .. } | Record::Call(_) | Record::Amend(_) => None,
    });
    at.collect()
}

fn shown(lens: &Lens, chunks: &[Chunk]) -> Vec<Chunk> {
    surviving(chunks).into_iter().filter_map(|chunk| lens.show(chunk)).filter(|chunk| chunk.kind() != "start").collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn a_prefix_and_the_tail_are_the_message(chunks in prop::collection::vec(producer_chunk(), 0..40), continues in any::<bool>()) {
        let mut writer = match continues {
            true => RunWriter::continuing(RunId::new("r"), seed()),
            false => writer(),
        };
        let mut entries = writer.open();
        for value in &chunks {
            entries.extend(writer.write(chunk(value.clone())));
        }
        entries.extend(writer.complete());
        let mut starts = commits(&entries);
        if continues {
            starts.push((seed(), stored(&entries)));
        }
        let whole = last_commit(&entries).map(|commit| commit.message.clone());
        for (message, tail) in starts {
            let prefix = prefix(&message, true);
            for chunk in &prefix {
                prop_assert_eq!(sanitise(chunk.clone(), Floor::default()), Some(chunk.as_map().clone()));
            }
            let mut client = Client::default();
            client.read_all(&prefix);
            prop_assert_eq!(folded(&prefix), replayable(&message));
            if let Some(message) = folded(&prefix) {
                validate_message(&message).unwrap();
            }
            prop_assert_eq!(begun(&prefix), owned_calls(&message));

            let lens = Lens { owned: owned_calls(&message), ..Lens::default() };
            let tail = shown(&lens, &tail);
            client.read_all(&tail);
            let both = folded(prefix.iter().chain(&tail));
            prop_assert_eq!(both.as_ref().and_then(lasting), whole.as_ref().or(Some(&message)).and_then(lasting));
        }
    }

    #[test]
    fn a_response_that_owns_nothing_is_not_failed_by_a_continued_run(chunks in prop::collection::vec(producer_chunk(), 0..40), aware in any::<bool>()) {
        let mut writer = RunWriter::continuing(RunId::new("r"), seed());
        let mut entries = writer.open();
        for value in &chunks {
            entries.extend(writer.write(chunk(value.clone())));
        }
        entries.extend(writer.fail());
        let lens = Lens { aware, ..Lens::default() };
        let shown: Vec<Chunk> = surviving(&stored(&entries)).into_iter().filter_map(|chunk| lens.show(chunk)).collect();
        let mut client = Client::default();
        client.read_all(&shown);
        let told = shown.iter().filter(|chunk| chunk.kind() == "data-tool-output-elsewhere").count();
        prop_assert_eq!(told, usize::from(aware), "the seed's one call is settled once");
    }
}

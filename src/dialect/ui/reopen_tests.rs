use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::core::ids::{MessageId, RunId};
use crate::dialect::ui::testing::*;
use crate::dialect::ui::writer::RunWriter;

/// A client that holds the message of `before` and reads a response that opens with [`reopen`] and goes on with `rest`: a part that
/// is opened again is the part that it holds.
fn joined(before: &Fold, rest: &[Chunk]) -> Value {
    let mut response = Fold::new(&MessageId::new("m"));
    for chunk in reopen(before).iter().chain(rest) {
        response.apply(chunk).unwrap_or_else(|error| panic!("{error}: {chunk:?}"));
    }
    let parts = |message: Option<Value>| match message {
        Some(message) => message["parts"].as_array().unwrap().clone(),
        None => Vec::new(),
    };
    let mut held = parts(before.message());
    let mut news = parts(response.message()).into_iter();
    let mut from = 0;
    for open in before.open_parts() {
        let (OpenPart::Text { part, .. }
        | OpenPart::Reasoning { part, .. }
        | OpenPart::Input { part, .. }
        | OpenPart::Call { part }) = open;
        let part = Value::Object(part);
        let at = from + held[from..].iter().position(|one| *one == part).unwrap();
        let mut new = news.next().unwrap();
        if let Some(text) = new.get("text").and_then(Value::as_str) {
            new["text"] = format!("{}{text}", part["text"].as_str().unwrap()).into();
        }
        held[at] = new;
        from = at + 1;
    }
    for new in news {
        let same =
            |one: &&mut Value| new["type"] == one["type"] && new.get("id").is_some() && new.get("id") == one.get("id");
        match held.iter_mut().find(|one| new["type"].as_str().unwrap().starts_with("data-") && same(one)) {
            Some(old) => *old = new,
            None => held.push(new),
        }
    }
    held.into_iter().map(without_answer).collect()
}

/// An answered approval is not asked again, so a response does not hold it.
fn without_answer(mut part: Value) -> Value {
    let answered = part["approval"]["approved"].is_boolean();
    let map = part.as_object_mut().unwrap();
    if answered {
        map.shift_remove("approval");
    }
    if map.get("state") == Some(&json!("approval-responded")) {
        map.insert("state".into(), "input-available".into());
    }
    part
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn at_every_cursor_what_a_client_holds_and_the_response_are_the_whole(
        chunks in prop::collection::vec(producer_chunk(), 0..40),
        continues in any::<bool>(),
    ) {
        let (mut writer, mut fold) = match continues {
            true => (RunWriter::continuing(RunId::new("r"), seed()), Fold::continuing(seed())),
            false => (writer(), Fold::new(&MessageId::new("m"))),
        };
        let mut entries = writer.open();
        for value in &chunks {
            entries.extend(writer.write(chunk(value.clone())));
        }
        entries.extend(writer.complete());
        let log = surviving(&stored(&entries));
        let mut whole = fold.clone();
        for chunk in &log {
            whole.apply(chunk).unwrap();
        }
        let whole: Value = match whole.message() {
            Some(message) => message["parts"].as_array().unwrap().iter().cloned().map(without_answer).collect(),
            None => json!([]),
        };
        for (at, chunk) in log.iter().enumerate() {
            fold.apply(chunk).unwrap();
            prop_assert_eq!(joined(&fold, &log[at + 1..]), whole.clone(), "behind {:?}", chunk);
        }
    }
}

#[test]
fn content_of_a_superseded_attempt_is_not_opened_again() {
    let mut writer = writer();
    let mut entries = writer.open();
    for value in [
        json!({"type": "text-delta", "id": "t", "delta": "wrong"}),
        json!({"type": "tool-input-start", "toolCallId": "c", "toolName": "x"}),
    ] {
        entries.extend(writer.write(chunk(value)));
    }
    let cursor = stored(&entries).len();
    entries.extend(writer.restart_step());
    entries.extend(writer.write(chunk(json!({"type": "reasoning-delta", "id": "t", "delta": "right"}))));
    let log = stored(&entries);
    let kept = surviving(&log);
    let mut fold = Fold::new(&MessageId::new("m"));
    for chunk in log[..cursor].iter().filter(|chunk| kept.contains(chunk)) {
        fold.apply(chunk).unwrap();
    }
    assert_eq!(reopen(&fold).len(), 1, "only the start");
    for chunk in &kept[2..] {
        fold.apply(chunk).unwrap();
    }
    let kinds: Vec<_> = reopen(&fold).iter().map(|chunk| chunk.kind().to_owned()).collect();
    assert_eq!(kinds, ["start", "reasoning-start"]);
}

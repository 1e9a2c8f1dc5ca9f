//! Servers that say the whole so far where the API says a piece: only what is new counts.

// The helpers of this file are tests too, which the lints do not see outside a `#[test]` function.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::arithmetic_side_effects)]

use proptest::prelude::*;
use rejoin::model::answer::StreamOptions;
use rejoin::model::openai::stream::CompletionStream;
use serde_json::{Value, json};

/// What an answer amounts to: text, reasoning, calls as `id name input`.
#[derive(Debug, Default, PartialEq)]
struct Reply {
    text: String,
    reasoning: String,
    calls: Vec<String>,
    finish: String,
}

/// Reads events whose choices are these.
fn read(choices: &[Value]) -> Reply {
    let body: String = choices.iter().map(|choice| format!("data: {}\n\n", json!({"choices": [choice]}))).collect();
    let mut stream = CompletionStream::new(StreamOptions::default());
    let mut batch = stream.push(body.as_bytes());
    let end = stream.end();
    assert_eq!((batch.failure, end.failure), (None, None));
    batch.chunks.extend(end.chunks);
    let mut reply = Reply::default();
    for chunk in batch.chunks {
        let text = |key: &str| chunk.text(key).unwrap_or_default().to_owned();
        match chunk.kind() {
            "text-delta" => reply.text += &text("delta"),
            "reasoning-delta" => reply.reasoning += &text("delta"),
            "tool-input-available" => {
                reply.calls.push(format!(
                    "{} {} {}",
                    text("toolCallId"),
                    text("toolName"),
                    chunk.get("input").unwrap()
                ));
            }
            "tool-input-error" => panic!("{chunk:?}"),
            "finish" => reply.finish = text("finishReason"),
            _ => {}
        }
    }
    reply
}

fn delta(said: Value) -> Value {
    json!({"index": 0, "delta": said})
}

fn finish(word: &str) -> Value {
    json!({"index": 0, "delta": {}, "finish_reason": word})
}

fn call(id: &str, arguments: &str) -> Value {
    json!([{"index": 0, "id": id, "function": {"name": "f", "arguments": arguments}}])
}

#[test]
fn a_message_behind_the_deltas_repeats_them() {
    let said = [
        delta(json!({"reasoning": "I "})),
        delta(json!({"reasoning": "think"})),
        delta(json!({"content": "Hello "})),
        delta(json!({"content": "world"})),
    ];
    let expected =
        Reply { text: "Hello world".into(), reasoning: "I think".into(), finish: "stop".into(), ..Reply::default() };
    for last in [
        json!({"message": {"role": "assistant", "content": "Hello world", "reasoning": "I think"}, "finish_reason": "stop"}),
        json!({"delta": null, "message": {"content": "Hello world"}, "finish_reason": "stop"}),
        json!({"delta": {}, "message": {"content": "Hello world\n"}, "finish_reason": "stop"}),
        json!({"delta": {"content": "Hello world"}, "finish_reason": "stop"}),
        json!({"delta": {"reasoning": "I think", "content": "Hello world"}, "finish_reason": "stop"}),
        json!({"message": {"content": "Hello"}, "finish_reason": "stop"}),
    ] {
        let is_longer = last.to_string().contains("\\n");
        let mut reply = read(&[said.as_slice(), std::slice::from_ref(&last)].concat());
        reply.text.truncate(reply.text.len() - usize::from(is_longer));
        assert_eq!(reply, expected, "{last}");
    }
    let more = json!({"message": {"content": "Hello world, again."}, "finish_reason": "stop"});
    assert_eq!(read(&[said.as_slice(), &[more]].concat()).text, "Hello world, again.");
}

#[test]
fn deltas_that_say_the_whole_so_far_say_it_once() {
    let sums = ["I", "I think", "I think, therefore", "I think, therefore I am."];
    let mut choices: Vec<Value> = sums.iter().map(|sum| delta(json!({"reasoning_content": sum}))).collect();
    choices.extend(sums.iter().map(|sum| delta(json!({"content": sum}))));
    choices.push(finish("stop"));
    let reply = read(&choices);
    assert_eq!((reply.text.as_str(), reply.reasoning.as_str()), (sums[3], sums[3]));
}

#[test]
fn arguments_count_once() {
    let expected = ["a f {\"x\":{\"y\":1}}"];
    let whole = r#"{"x":{"y":1}}"#;
    let pieces = [call("a", ""), call("a", r#"{"x":"#), call("a", r#"{"y":1}}"#)];
    let begun: Vec<Value> = pieces.iter().map(|call| delta(json!({"tool_calls": call}))).collect();
    for last in [
        json!({"message": {"tool_calls": call("a", whole)}, "finish_reason": "tool_calls"}),
        json!({"message": {"tool_calls": [{"function": {"name": "f", "arguments": whole}}]}, "finish_reason": "tool_calls"}),
        json!({"message": {"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": {"x": {"y": 1}}}}]}, "finish_reason": "tool_calls"}),
        json!({"delta": {"tool_calls": call("a", whole)}, "finish_reason": "tool_calls"}),
        json!({"delta": {"tool_calls": [{"index": 0, "function": {"arguments": whole}}]}, "finish_reason": "tool_calls"}),
    ] {
        assert_eq!(read(&[begun.as_slice(), std::slice::from_ref(&last)].concat()).calls, expected, "{last}");
        // The message completes what the deltas have begun.
        if last.get("message").is_some() {
            assert_eq!(read(&[&begun[..2], std::slice::from_ref(&last)].concat()).calls, expected, "{last}");
        }
    }
    // Two calls, and both once more.
    let two = json!([{"id": "a", "function": {"name": "f", "arguments": "{}"}}, {"id": "b", "function": {"name": "f", "arguments": "{}"}}]);
    let reply = read(&[
        delta(json!({"tool_calls": two})),
        json!({"message": {"tool_calls": two}, "finish_reason": "tool_calls"}),
    ]);
    assert_eq!(reply.calls, ["a f {}", "b f {}"]);
    // A piece that begins as all before it, where a value may begin.
    let nested = [r#"{"x":"#, r#"{"x":1}"#, "}"].map(|piece| delta(json!({"tool_calls": call("a", piece)})));
    assert_eq!(read(&[nested.as_slice(), &[finish("tool_calls")]].concat()).calls, [r#"a f {"x":{"x":1}}"#]);
    let summed = [r#"{"x":"#, r#"{"x":1}"#].map(|piece| delta(json!({"tool_calls": call("a", piece)})));
    assert_eq!(read(&[summed.as_slice(), &[finish("tool_calls")]].concat()).calls, [r#"a f {"x":1}"#]);
}

/// A value of JSON as a model writes it, with the places where it may be cut.
fn input() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(Value::from),
        (0..1000u32).prop_map(Value::from),
        "[a-c{}\\[\\]:,\" \\\\ß🐙]{0,8}".prop_map(Value::from)
    ];
    let value = leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::vec(("[ab]{1,2}", inner), 0..3)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    });
    prop::collection::vec(("[ab]{1,2}", value), 0..4).prop_map(|entries| Value::Object(entries.into_iter().collect()))
}

proptest! {
    /// Arguments in pieces, cut anywhere, or in sums, or in pieces with the whole behind them, are the arguments.
    #[test]
    fn arguments_are_read_in_every_form(input in input(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6), form in 0..4u8) {
        let text = input.to_string();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).filter(|cut| text.is_char_boundary(*cut)).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let mut choices: Vec<Value> = cuts.windows(2).map(|pair| {
            let piece = if form == 1 { &text[..pair[1]] } else { &text[pair[0]..pair[1]] };
            delta(json!({"tool_calls": call("a", piece)}))
        }).collect();
        match form {
            2 => choices.push(delta(json!({"tool_calls": call("a", &text)}))),
            3 => choices.push(json!({"message": {"tool_calls": call("a", &text)}})),
            _ => {}
        }
        choices.push(finish("tool_calls"));
        prop_assert_eq!(read(&choices).calls, [format!("a f {input}")]);
    }
}

//! Whatever has happened in a conversation, the strictest servers of the chat-completions API accept the next request.

// The helpers of this file are tests too, which the lints do not see outside a `#[test]` function.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::arithmetic_side_effects)]

use proptest::prelude::*;
use rejoin::model::agent::{Agent, Agents};
use rejoin::model::openai::request::request_body;
use serde_json::{Value, json};

fn messages(settings: Value, history: &[Value]) -> Vec<Value> {
    let mut agent = json!({"producer": "openai", "model": "m"});
    agent.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    let agents = Agents::parse(&json!({"x": agent}).to_string()).unwrap();
    let Agent::OpenAi(settings) = agents.choose(None).unwrap().1.clone() else { panic!() };
    Value::Object(request_body(&settings, history))["messages"].as_array().unwrap().clone()
}

/// What each of some strict servers refuses: Mistral, Perplexity, and the chat templates of Gemma, Llama and Qwen.
fn check(messages: &[Value]) -> Result<(), String> {
    let role = |message: &Value| message["role"].as_str().unwrap_or_default().to_owned();
    let rest = if messages.first().is_some_and(|first| role(first) == "system") { &messages[1..] } else { messages };
    let mut awaited: Vec<String> = Vec::new();
    let mut before = "start".to_owned();
    for message in rest {
        let own = role(message);
        let follows = match own.as_str() {
            "user" => ["start", "assistant"].contains(&before.as_str()),
            "assistant" => ["user", "tool"].contains(&before.as_str()),
            "tool" => !awaited.is_empty(),
            _ => false,
        };
        if !follows {
            return Err(format!("{own} behind {before}"));
        }
        if own == "tool" {
            if message["tool_call_id"] != awaited.remove(0) {
                return Err("a result of another call".into());
            }
        } else if !awaited.is_empty() {
            return Err("a call without its result".into());
        }
        let calls = message["tool_calls"].as_array().cloned().unwrap_or_default();
        let is_empty = match &message["content"] {
            Value::String(text) => text.trim().is_empty() && own != "tool",
            Value::Array(parts) => parts.is_empty() || own != "user",
            other => !other.is_null() || calls.is_empty(),
        };
        if is_empty {
            return Err(format!("nothing in {message}"));
        }
        awaited.extend(calls.iter().map(|call| call["id"].as_str().unwrap().to_owned()));
        before = own;
    }
    if !awaited.is_empty() {
        return Err("a call without its result".into());
    }
    if !["user", "tool"].contains(&before.as_str()) {
        return Err(format!("the last word is the {before}'s"));
    }
    Ok(())
}

fn told(messages: &[Value]) -> Vec<String> {
    let line = |message: &Value| {
        format!("{}: {}", message["role"].as_str().unwrap(), message["content"].as_str().unwrap_or("-"))
    };
    messages.iter().map(line).collect()
}

fn user(text: &str) -> Value {
    json!({"role": "user", "parts": [{"type": "text", "text": text}]})
}

fn assistant(parts: Value) -> Value {
    json!({"role": "assistant", "parts": parts})
}

fn text(words: &str) -> Value {
    json!({"type": "text", "text": words})
}

fn called(id: &str) -> Value {
    json!({"type": "tool-f", "toolCallId": id, "state": "output-available", "input": {}, "output": 1})
}

#[test]
fn neighbours_of_one_role_are_joined() {
    for (history, expected) in [
        // The first reply failed, or was stopped before it said a word.
        (vec![user("a"), user("b")], vec!["user: a\n\nb"]),
        // It was stopped while it thought.
        (vec![user("a"), assistant(json!([{"type": "reasoning", "text": "hm"}])), user("b")], vec!["user: a\n\nb"]),
        // Two steps without a call between them.
        (
            vec![
                user("a"),
                assistant(json!([{"type": "step-start"}, text("b"), {"type": "step-start"}, text("c")])),
                user("d"),
            ],
            vec!["user: a", "assistant: b\n\nc", "user: d"],
        ),
        // The user went on before the results were answered.
        (
            vec![user("a"), assistant(json!([called("c")])), user("b")],
            vec!["user: a", "assistant: -", "tool: 1", "assistant: (interrupted)", "user: b"],
        ),
        // The app began with a greeting.
        (vec![assistant(json!([text("Hi!")])), user("a")], vec!["user: (no message)", "assistant: Hi!", "user: a"]),
        (vec![user("a"), assistant(json!([text("b")]))], vec!["user: a", "assistant: b", "user: Continue."]),
        (
            vec![user("a"), assistant(json!([text("b")])), user(" ")],
            vec!["user: a", "assistant: b", "user: (no message)"],
        ),
        (vec![], vec!["user: (no message)"]),
        // System prompts stand together at the beginning.
        (
            vec![
                json!({"role": "system", "parts": [text("x")]}),
                user("a"),
                json!({"role": "system", "parts": [text("y")]}),
                user("b"),
            ],
            vec!["system: s\n\nx\n\ny", "user: a\n\nb"],
        ),
    ] {
        let settings = if expected[0].starts_with("system") { json!({"system": "s"}) } else { json!({}) };
        let messages = messages(settings, &history);
        assert_eq!(told(&messages), expected);
        check(&messages).unwrap();
    }
}

#[test]
fn files_of_joined_messages_stay_in_order() {
    let picture = json!({"type": "file", "mediaType": "image/png", "url": "https://a.test/b.png"});
    let history = [user("a"), json!({"role": "user", "parts": [picture, text("what?")]})];
    let image = json!({"type": "image_url", "image_url": {"url": "https://a.test/b.png"}});
    assert_eq!(messages(json!({}), &history), [json!({"role": "user", "content": [text("a"), image, text("what?")]})]);
}

#[test]
fn with_reasoning_every_message_of_the_assistant_has_the_key() {
    let reply = assistant(json!([
        {"type": "step-start"}, {"type": "reasoning", "text": "hm"}, called("c"),
        {"type": "step-start"}, text("done"),
    ]));
    let history = [user("a"), reply, user("b")];
    let keys = |settings| {
        let sent = messages(settings, &history);
        sent.iter()
            .filter(|message| message["role"] == "assistant")
            .map(|message| message.get("reasoning_content").cloned())
            .collect::<Vec<_>>()
    };
    assert_eq!(keys(json!({"sendReasoning": true})), [Some(json!("hm")), Some(json!(""))]);
    assert_eq!(keys(json!({})), [None, None]);
}

fn part() -> impl Strategy<Value = Value> {
    let states = [
        "input-streaming",
        "input-available",
        "approval-requested",
        "output-available",
        "output-error",
        "output-denied",
    ];
    prop_oneof![
        Just(json!({"type": "step-start"})),
        prop::sample::select(vec!["", " ", "a", "b\n"]).prop_map(text),
        prop::sample::select(vec!["", "r"]).prop_map(|words| json!({"type": "reasoning", "text": words})),
        prop::sample::select(states.to_vec())
            .prop_map(|state| json!({"type": "tool-f", "state": state, "input": {}, "rawInput": "{"})),
        Just(json!({"type": "file", "mediaType": "image/png", "url": "https://a.test/b.png"})),
        Just(json!({"type": "data-x", "data": 1})),
        Just(json!({"type": "source-url", "url": "https://a.test"})),
    ]
}

proptest! {
    /// Any conversation, whatever became of its replies, in any order of roles.
    #[test]
    fn no_conversation_wedges_a_strict_server(
        shape in prop::collection::vec((prop::sample::select(vec!["user", "user", "assistant", "assistant", "system", "odd"]), prop::collection::vec(part(), 0..6)), 0..8),
        send_reasoning in any::<bool>(),
        system in any::<bool>(),
        max_history in 1..9usize,
    ) {
        let mut count = 0;
        let history: Vec<Value> = shape.into_iter().map(|(role, mut parts)| {
            for part in parts.iter_mut().filter(|part| part["type"] == "tool-f") {
                count += 1;
                part.as_object_mut().unwrap().insert("toolCallId".into(), format!("c{count}").into());
            }
            json!({"id": "m", "role": role, "parts": parts})
        }).collect();
        let mut settings = json!({"sendReasoning": send_reasoning, "maxHistory": max_history});
        if system {
            settings["system"] = "s".into();
        }
        let messages = messages(settings, &history);
        prop_assert_eq!(check(&messages), Ok(()), "{}", Value::from(messages.clone()));
        let mut said = messages.iter().filter(|message| message["role"] == "assistant");
        let keyed = said.all(|message| message.get("reasoning_content").is_some() == send_reasoning);
        prop_assert!(keyed);
    }
}

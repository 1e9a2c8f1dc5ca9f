//! A reply that waits for its page, from the model's stream over the answers to the next request, for both model APIs.

// The helpers of this file are tests too, which the lints do not see outside a `#[test]` function.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::arithmetic_side_effects)]

use proptest::prelude::*;
use rejoin::core::approval::{Executor, approval_id};
use rejoin::core::chunk::Chunk;
use rejoin::core::ids::{MessageId, RunId};
use rejoin::dialect::ui::fold::Fold;
use rejoin::dialect::ui::tool_result::{Awaited, abandon, answers_of_message, apply, chunks, pending};
use rejoin::model::agent::{Agent, Agents};
use rejoin::model::answer::{Answer, StreamOptions, Translation};
use rejoin::model::anthropic::{self, stream::MessageStream};
use rejoin::model::openai::{self, stream::CompletionStream};
use rejoin::model::tools::Approvals;
use serde_json::{Value, json};

fn agent(producer: &str) -> Agent {
    let tools = json!([{"name": "where"}, {"name": "erase", "approval": true}]);
    let agents = json!({"x": {"producer": producer, "model": "m", "tools": tools}});
    Agents::parse(&agents.to_string()).unwrap().choose(None).unwrap().1.clone()
}

/// The messages of the next request, as `role` or `role:calls` or `role:results`, with what the results say.
fn request(producer: &str, reply: &Value) -> Vec<String> {
    let history = [json!({"id": "u", "role": "user", "parts": [{"type": "text", "text": "hi"}]}), reply.clone()];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    match agent(producer) {
        Agent::OpenAi(settings) => {
            let body = Value::Object(openai::request::request_body(&settings, &history));
            let messages = body["messages"].as_array().unwrap();
            check_openai(messages);
            messages
                .iter()
                .map(|message| match message["role"].as_str().unwrap() {
                    "tool" => format!("{}={}", text(&message["tool_call_id"]), text(&message["content"])),
                    role => format!("{role} {}", text(&message["content"])).trim_end().to_owned(),
                })
                .collect()
        }
        Agent::Anthropic(settings) => {
            let body = Value::Object(anthropic::request::request_body(&settings, &history));
            let mut out = Vec::new();
            for message in body["messages"].as_array().unwrap() {
                let blocks = message["content"].as_array().unwrap();
                if blocks[0]["type"] != "tool_result" {
                    let words = blocks.iter().filter_map(|block| block["text"].as_str()).collect::<String>();
                    out.push(format!("{} {words}", text(&message["role"])).trim_end().to_owned());
                }
                let results = blocks.iter().filter(|block| block["type"] == "tool_result");
                out.extend(results.map(|block| {
                    let error = if block["is_error"] == true { "Error: " } else { "" };
                    format!("{}={error}{}", text(&block["tool_use_id"]), text(&block["content"]))
                }));
            }
            out
        }
        _ => panic!(),
    }
}

/// Panics where the chat-completions API would answer 400.
fn check_openai(messages: &[Value]) {
    let mut awaited: Vec<String> = Vec::new();
    for message in messages {
        if message["role"] == "tool" {
            let id = message["tool_call_id"].as_str().unwrap();
            let at = awaited.iter().position(|call| call == id).unwrap_or_else(|| panic!("no call {id}"));
            awaited.remove(at);
            assert!(message["content"].is_string());
            continue;
        }
        assert!(awaited.is_empty(), "results follow directly");
        let calls = message["tool_calls"].as_array().map(Vec::as_slice).unwrap_or_default();
        assert!(message["content"].is_string() || !calls.is_empty());
        awaited = calls.iter().map(|call| call["id"].as_str().unwrap().to_owned()).collect();
    }
    assert!(awaited.is_empty(), "every call is answered");
}

fn options() -> StreamOptions {
    let tools = match agent("openai") {
        Agent::OpenAi(settings) => settings.tools,
        _ => panic!(),
    };
    StreamOptions { id_prefix: "p".into(), approvals: Approvals::of(&tools), ..StreamOptions::default() }
}

fn read<T: Translation>(mut answer: Answer<T>, events: &[Value]) -> Vec<Chunk> {
    let text: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    let mut chunks = answer.push(text.as_bytes()).chunks;
    chunks.extend(answer.end().chunks);
    assert!(answer.is_finished());
    chunks
}

/// A step in which the model calls both tools, as the API streams it.
fn called(producer: &str) -> Vec<Chunk> {
    if producer == "openai" {
        let call = |index: u8, id: &str, name: &str| json!({"index": index, "id": id, "function": {"name": name, "arguments": "{\"x\":1}"}});
        let calls = json!([call(0, "c1", "where"), call(1, "c2", "erase")]);
        let events = [
            json!({"choices": [{"delta": {"content": "I look."}}]}),
            json!({"choices": [{"delta": {"tool_calls": calls}, "finish_reason": "tool_calls"}]}),
        ];
        return read(CompletionStream::new(options()), &events);
    }
    let block = |index: u8, block: Value| {
        [
            json!({"type": "content_block_start", "index": index, "content_block": block}),
            json!({"type": "content_block_stop", "index": index}),
        ]
    };
    let mut events = vec![json!({"type": "message_start", "message": {"content": []}})];
    events.extend(block(0, json!({"type": "text", "text": "I look."})));
    events.extend(block(1, json!({"type": "tool_use", "id": "c1", "name": "where", "input": {"x": 1}})));
    events.extend(block(2, json!({"type": "tool_use", "id": "c2", "name": "erase", "input": {"x": 1}})));
    events.push(json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}}));
    events.push(json!({"type": "message_stop"}));
    read(MessageStream::new(options()), &events)
}

/// The stored reply of that step.
fn waiting(producer: &str) -> Value {
    let mut fold = Fold::new(&MessageId::new("a"));
    for mut chunk in called(producer) {
        if chunk.kind() == "tool-approval-request" {
            let id = approval_id(&RunId::new("run"), chunk.text("toolCallId").unwrap());
            chunk = chunk.with("approvalId", id);
        }
        fold.apply(&chunk).unwrap();
    }
    fold.message().unwrap()
}

/// What a client sends: its copy of the reply with these parts changed.
fn with(reply: &Value, changes: &[(&str, Value)]) -> Value {
    let mut copy = reply.clone();
    for (id, change) in changes {
        let parts = copy["parts"].as_array_mut().unwrap();
        let part = parts.iter_mut().find(|part| part["toolCallId"] == *id).unwrap().as_object_mut().unwrap();
        part.extend(change.as_object().unwrap().clone());
    }
    copy
}

/// The reply as the store has it once the client's copy has been taken, and once the continuation has said so.
fn taken(reply: &Value, copy: &Value) -> (Value, Value) {
    let answers = answers_of_message(copy, reply, Executor::Client).unwrap();
    let stored = apply(reply.clone(), &answers);
    let mut fold = Fold::continuing(stored.clone());
    for chunk in chunks(&answers, &stored, Executor::Client) {
        fold.apply(&chunk).unwrap();
    }
    (stored, fold.message().unwrap())
}

const OUTPUT: &str = r#"{"state":"output-available","output":{"city":"Bern"}}"#;

fn output() -> Value {
    serde_json::from_str(OUTPUT).unwrap()
}

fn word(granted: bool) -> Value {
    json!({"state": "approval-responded", "approval": {"id": "run::c2", "approved": granted, "reason": "so"}})
}

#[test]
fn a_call_of_a_marked_tool_is_followed_by_its_request() {
    for producer in ["openai", "anthropic"] {
        let kinds: Vec<String> = called(producer)
            .iter()
            .filter(|chunk| chunk.get("input").is_some() || chunk.get("approvalId").is_some())
            .map(|chunk| format!("{} {}", chunk.kind(), chunk.text("toolCallId").unwrap()))
            .collect();
        assert_eq!(kinds, ["tool-input-available c1", "tool-input-available c2", "tool-approval-request c2"]);
        let calls = pending(&waiting(producer), agent(producer).executor());
        let waits: Vec<_> = calls.iter().map(|call| (call.tool_name.as_str(), call.awaited)).collect();
        assert_eq!(waits, [("where", Awaited::Result), ("erase", Awaited::Approval)]);
    }
}

#[test]
fn the_next_request_tells_the_model_what_became_of_its_calls() {
    for producer in ["openai", "anthropic"] {
        let reply = waiting(producer);
        let told = |reply: &Value| request(producer, reply).split_off(2);
        let (stored, shown) = taken(&reply, &with(&reply, &[("c1", output()), ("c2", word(false))]));
        for reply in [stored, shown] {
            assert_eq!(pending(&reply, Executor::Client), []);
            assert_eq!(told(&reply), ["c1={\"city\":\"Bern\"}", "c2=Error: the user denied this call: so"]);
        }
        let (stored, offered) = taken(&reply, &with(&reply, &[("c1", output()), ("c2", word(true))]));
        for reply in [stored, offered] {
            let waits: Vec<_> = pending(&reply, Executor::Client).into_iter().map(|call| call.tool_call_id).collect();
            assert_eq!(waits, ["c2"]);
            let failed = json!({"state": "output-error", "errorText": "busy"});
            let (_, done) = taken(&reply, &with(&reply, &[("c2", failed)]));
            assert_eq!(told(&done), ["c1={\"city\":\"Bern\"}", "c2=Error: busy"]);
        }
        let gone = "Error: Not executed: the user went on without answering this call";
        assert_eq!(told(&abandon(reply)), [format!("c1={gone}"), format!("c2={gone}")]);
    }
}

#[test]
fn a_reply_that_went_on_is_a_request_of_alternating_messages() {
    for producer in ["openai", "anthropic"] {
        let reply = waiting(producer);
        let (_, shown) = taken(&reply, &with(&reply, &[("c1", output()), ("c2", word(false))]));
        let mut fold = Fold::continuing(shown);
        let again = called(producer).into_iter().map(|mut chunk| {
            if let Some(id) = chunk.text("toolCallId").map(|id| format!("{id}b")) {
                chunk = chunk.with("toolCallId", id);
            }
            chunk
        });
        for chunk in again {
            fold.apply(&chunk).unwrap();
        }
        let twice = abandon(fold.message().unwrap());
        let told = request(producer, &twice);
        assert_eq!(told[..2], ["user hi", "assistant I look."]);
        assert!(told[2].starts_with("c1=") && told[3].starts_with("c2="), "{told:?}");
        assert_eq!(told[4], "assistant I look.");
        assert!(told[5].starts_with("c1b=") && told[6].starts_with("c2b="), "{told:?}");
        assert_eq!(told.len(), 7);
    }
}

fn part() -> impl Strategy<Value = Value> {
    let states = [
        json!({"state": "input-streaming"}),
        json!({"state": "input-available", "input": {}}),
        json!({"state": "approval-requested", "input": {}, "approval": {"id": "a"}}),
        json!({"state": "approval-responded", "input": {}, "approval": {"id": "a", "approved": true}}),
        json!({"state": "approval-responded", "input": {}, "approval": {"id": "a", "approved": false}}),
        json!({"state": "output-available", "input": {}, "output": null}),
        json!({"state": "output-error", "input": null, "errorText": ""}),
        json!({"state": "output-denied", "input": {}, "approval": {"id": "a", "approved": false}}),
    ];
    prop_oneof![
        Just(json!({"type": "step-start"})),
        Just(json!({"type": "text", "text": "t"})),
        Just(json!({"type": "reasoning", "text": "r"})),
        prop::sample::select(states.to_vec()).prop_map(|mut state| {
            state.as_object_mut().unwrap().insert("type".into(), "tool-where".into());
            state
        }),
    ]
}

proptest! {
    #[test]
    fn whatever_state_its_calls_are_in_a_reply_can_be_sent(parts in prop::collection::vec(part(), 0..12)) {
        let mut parts = parts;
        for (index, part) in parts.iter_mut().enumerate().filter(|(_, part)| part["type"] == "tool-where") {
            part.as_object_mut().unwrap().insert("toolCallId".into(), format!("c{index}").into());
        }
        let reply = json!({"id": "a", "role": "assistant", "parts": parts});
        for reply in [reply.clone(), abandon(reply)] {
            let (openai, anthropic) = (request("openai", &reply), request("anthropic", &reply));
            let results = |told: &[String]| told.iter().filter(|line| line.contains('=')).cloned().collect::<Vec<_>>();
            prop_assert_eq!(results(&openai).len(), parts.iter().filter(|part| part["type"] == "tool-where").count());
            prop_assert_eq!(results(&openai).len(), results(&anthropic).len());
        }
    }
}

//! Recorded conversations with the Messages API in which a call, or its result, outlives one answer: what each answer said goes back to
//! the API as it came, block for block.
//!
//! The recordings lie outside the project; without them the tests say so and pass.

// The helpers of this file are tests too, which the lints do not see outside a `#[test]` function.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::arithmetic_side_effects)]

mod common;

use common::Recording;
use rejoin::core::chunk::Chunk;
use rejoin::core::error::Code;
use rejoin::core::ids::{MessageId, RunId};
use rejoin::core::record::Record;
use rejoin::dialect::ui::writer::RunWriter;
use rejoin::model::agent::{Agent, Agents};
use rejoin::model::anthropic::request::request_body;
use rejoin::model::anthropic::stream::{MessageStream, StreamOptions};
use rejoin::model::parts::Batch;
use serde_json::{Value, json};

/// The events of each answer of a recording.
fn answers(recording: &Recording) -> Vec<Vec<Value>> {
    let mut answers: Vec<Vec<Value>> = Vec::new();
    for event in &recording.events {
        let event: Value = serde_json::from_str(event).unwrap();
        if event["type"] == "message_start" {
            answers.push(Vec::new());
        }
        answers.last_mut().unwrap().push(event);
    }
    answers
}

/// The content of an answer, put together with nothing but the API's documentation at hand.
fn content(events: &[Value]) -> Vec<Value> {
    let mut blocks: Vec<Value> = Vec::new();
    let mut json = String::new();
    for event in events {
        let delta = &event["delta"];
        match event["type"].as_str().unwrap() {
            "message_start" => blocks.extend(event["message"]["content"].as_array().unwrap().iter().cloned()),
            "content_block_start" => {
                json.clear();
                blocks.push(event["content_block"].clone());
            }
            "content_block_delta" => {
                let block = blocks.last_mut().unwrap();
                let mut grow = |key: &str, piece: &Value| {
                    let said = format!("{}{}", block[key].as_str().unwrap_or_default(), piece.as_str().unwrap());
                    block[key] = said.into();
                };
                match delta["type"].as_str().unwrap() {
                    "text_delta" => grow("text", &delta["text"]),
                    "compaction_delta" => grow("content", &delta["content"]),
                    "thinking_delta" => grow("thinking", &delta["thinking"]),
                    "signature_delta" => grow("signature", &delta["signature"]),
                    "input_json_delta" => {
                        json += delta["partial_json"].as_str().unwrap();
                        if let Ok(input) = serde_json::from_str(&json) {
                            block["input"] = input;
                        }
                    }
                    other => panic!("{other}"),
                }
            }
            _ => {}
        }
    }
    blocks
}

fn body_of(events: &[Value]) -> Vec<u8> {
    events.iter().map(|event| format!("data: {event}\n\n")).collect::<String>().into_bytes()
}

fn translate(pieces: &[&[u8]]) -> (Vec<Chunk>, Option<Code>) {
    let mut stream = MessageStream::new(StreamOptions::default());
    let (mut chunks, mut failure) = (Vec::new(), None);
    let mut take = |batch: Batch| {
        chunks.extend(batch.chunks);
        failure = failure.or(batch.failure.map(|failure| failure.code));
    };
    pieces.iter().for_each(|piece| take(stream.push(piece)));
    take(stream.end());
    (chunks, failure)
}

fn chunks_of(events: &[Value]) -> (Vec<Chunk>, Option<Code>) {
    translate(&[&body_of(events)])
}

#[test]
fn where_the_body_is_cut_makes_no_difference() {
    for recording in common::recordings("anthropic-open") {
        for events in answers(&recording) {
            let body = body_of(&events);
            let whole = translate(&[&body]);
            common::cut_at_random(&body, |pieces| translate(pieces) == whole, &recording.name);
        }
    }
}

/// The reply after one more answer, as it is committed.
fn reply_after(number: usize, so_far: Option<Value>, events: &[Value]) -> Value {
    let run = RunId::new(format!("run{number}"));
    let mut writer = match so_far {
        None => RunWriter::new(run, MessageId::new("m")),
        Some(message) => RunWriter::continuing(run, message),
    };
    let mut records = writer.open();
    let (chunks, failure) = chunks_of(events);
    assert_eq!(failure, None);
    records.extend(chunks.into_iter().flat_map(|chunk| writer.write(chunk)));
    records.extend(writer.complete());
    let mut commits = records.into_iter().filter_map(|record| match record {
        Record::Commit(commit) => Some(commit.message),
        _ => None,
    });
    commits.next_back().unwrap()
}

/// The client answers every call that waits for it.
fn answered(mut reply: Value) -> Value {
    for part in reply["parts"].as_array_mut().unwrap() {
        if part["state"] == "input-available" && part["providerExecuted"] != true {
            part["state"] = "output-available".into();
            part["output"] = json!({"of": part["toolCallId"]});
        }
    }
    reply
}

fn results_of(content: &[Value]) -> Vec<Value> {
    let calls = content.iter().filter(|block| block["type"] == "tool_use");
    calls
        .map(|call| {
            let id = &call["id"];
            json!({"type": "tool_result", "tool_use_id": id, "content": json!({"of": id}).to_string()})
        })
        .collect()
}

fn request(history: &[Value]) -> Value {
    let agents = json!({"a": {"producer": "anthropic", "model": "m", "tools": [{"type": "code_execution_20250825", "name": "code_execution"}]}});
    let agents = Agents::parse(&agents.to_string()).unwrap();
    let (_, Agent::Anthropic(settings)) = agents.choose(Some("a")).unwrap() else { panic!() };
    Value::Object(request_body(settings, history))
}

fn user(id: &str) -> Value {
    json!({"id": id, "role": "user", "parts": [{"type": "text", "text": id}]})
}

fn recordings() -> Vec<Recording> {
    common::recordings("anthropic-open")
        .into_iter()
        .filter(|recording| !recording.name.starts_with("spliced"))
        .collect()
}

#[test]
fn what_every_answer_said_goes_back_as_it_came() {
    for recording in recordings() {
        let answers = answers(&recording);
        let (mut reply, mut expected) =
            (None, vec![json!({"role": "user", "content": [{"type": "text", "text": "q"}]})]);
        for (number, events) in answers.iter().enumerate() {
            let said = content(events);
            let results = results_of(&said);
            let waits = !results.is_empty();
            expected.push(json!({"role": "assistant", "content": said}));
            let answered = answered(reply_after(number, reply, events));
            if waits {
                expected.push(json!({"role": "user", "content": results}));
            }
            let mut history = vec![user("q"), answered.clone()];
            let mut sent = expected.clone();
            if !waits {
                history.push(user("next"));
                sent.push(json!({"role": "user", "content": [{"type": "text", "text": "next"}]}));
            }
            let body = request(&history);
            assert_eq!(body["messages"], json!(sent), "{} after answer {}", recording.name, number + 1);
            reply = Some(answered);
        }
    }
}

#[test]
fn a_container_is_named_while_the_turn_goes_on() {
    let Some(recording) = recordings().into_iter().find(|recording| recording.name.starts_with("programmatic")) else {
        return;
    };
    let answers = answers(&recording);
    let reply = answered(reply_after(0, None, &answers[0]));
    let container = answers[0].iter().find_map(|event| event["delta"]["container"]["id"].as_str()).unwrap();
    assert_eq!(request(&[user("q"), reply.clone()])["container"], container);
    assert_eq!(request(&[user("q"), reply, user("next")]).get("container"), None);
}

#[test]
fn no_call_of_a_finished_reply_stays_open() {
    for recording in recordings() {
        let mut reply = None;
        for (number, events) in answers(&recording).iter().enumerate() {
            reply = Some(answered(reply_after(number, reply, events)));
        }
        for part in reply.unwrap()["parts"].as_array().unwrap() {
            let state = part.get("state").and_then(Value::as_str).unwrap_or("done");
            assert!(matches!(state, "done" | "output-available"), "{} {part}", recording.name);
        }
    }
}

#[test]
fn a_call_whose_result_never_came_is_not_sent_in_a_later_turn() {
    for recording in recordings() {
        let first = &answers(&recording)[0];
        let reply = reply_after(0, None, first);
        let body = request(&[user("q"), reply, user("next")]);
        let content: Vec<&Value> = body["messages"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|message| message["content"].as_array().unwrap())
            .collect();
        let results: Vec<&str> = content.iter().filter_map(|block| block["tool_use_id"].as_str()).collect();
        for call in content.iter().filter(|block| block["type"].as_str().unwrap().ends_with("tool_use")) {
            assert!(results.contains(&call["id"].as_str().unwrap()), "{} {call}", recording.name);
            if let Some(by) = call["caller"]["tool_id"].as_str() {
                assert!(content.iter().any(|block| block["id"] == by), "{} {call}", recording.name);
            }
        }
    }
}

#[test]
fn a_second_message_in_one_stream_is_a_failure() {
    for recording in
        common::recordings("anthropic-open").iter().filter(|recording| recording.name.starts_with("spliced"))
    {
        let (_, failure) = chunks_of(&answers(recording).concat());
        assert_eq!(failure, Some(Code::ProviderStreamInvalid));
    }
}

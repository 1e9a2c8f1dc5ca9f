//! Recorded answers of public model APIs, translated and compared with a naive reading of the same recordings.
//!
//! The recordings lie outside the project; without them the tests say so and pass.

// The helpers of this file are tests too, which the lints do not see outside a `#[test]` function.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::arithmetic_side_effects)]

mod common;

use common::Recording;
use proptest::prelude::*;
use rejoin::core::chunk::Chunk;
use rejoin::core::error::Code;
use rejoin::model::openai::stream::{CompletionStream, StreamOptions};
use serde_json::{Map, Value, json};

fn recordings() -> Vec<Recording> {
    common::recordings("chat-completions")
}

impl Recording {
    /// The body as the service sent it. Perplexity ends its streams without `[DONE]`.
    fn body(&self, line_end: &str, between: &str) -> Vec<u8> {
        let mut body = String::new();
        for event in &self.events {
            body.push_str(&format!("data: {event}{line_end}{line_end}{between}"));
        }
        if !self.name.starts_with("perplexity") {
            body.push_str(&format!("data: [DONE]{line_end}{line_end}"));
        }
        body.into_bytes()
    }
}

fn translate<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Vec<Chunk> {
    let mut stream = CompletionStream::new(StreamOptions { id_prefix: "p".into(), ..StreamOptions::default() });
    let mut chunks = Vec::new();
    for piece in pieces {
        let batch = stream.push(piece);
        assert_eq!(batch.failure, None);
        chunks.extend(batch.chunks);
    }
    let batch = stream.end();
    assert_eq!(batch.failure, None);
    chunks.extend(batch.chunks);
    assert!(stream.is_finished());
    chunks
}

fn whole(body: &[u8]) -> Vec<Chunk> {
    translate(std::iter::once(body))
}

/// What a reply amounts to.
#[derive(Debug, Default, PartialEq)]
struct Reply {
    text: String,
    reasoning: String,
    tools: Vec<(String, Value)>,
    sources: Vec<String>,
    finish: String,
    model: String,
    usage: Map<String, Value>,
}

/// Reads the recording with nothing but its documentation at hand.
fn naive(recording: &Recording) -> Reply {
    let mut reply = Reply::default();
    let mut calls: Vec<(Value, String, String)> = Vec::new();
    for event in &recording.events {
        let event: Value = serde_json::from_str(event).unwrap();
        let choice = &event["choices"][0];
        let delta = &choice["delta"];
        reply.text += delta["content"].as_str().unwrap_or_default();
        for part in delta["content"].as_array().into_iter().flatten() {
            reply.text += part["text"].as_str().unwrap_or_default();
            for thought in part["thinking"].as_array().into_iter().flatten() {
                reply.reasoning += thought["text"].as_str().unwrap_or_default();
            }
        }
        reply.reasoning += delta["reasoning_content"].as_str().or(delta["reasoning"].as_str()).unwrap_or_default();
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            let name = call["function"]["name"].as_str().filter(|name| !name.is_empty());
            if name.is_some() && calls.iter().all(|(index, ..)| *index != call["index"] || index.is_null()) {
                calls.push((call["index"].clone(), name.unwrap_or_default().to_owned(), String::new()));
            }
            let known = calls.iter_mut().rev().find(|(index, ..)| *index == call["index"]).unwrap();
            known.2 += call["function"]["arguments"].as_str().unwrap_or_default();
        }
        for url in event["citations"].as_array().into_iter().flatten() {
            let url = url.as_str().unwrap().to_owned();
            if !reply.sources.contains(&url) {
                reply.sources.push(url);
            }
        }
        if let Some(word) = choice["finish_reason"].as_str() {
            reply.finish = match word {
                "stop" if !calls.is_empty() => "tool-calls".to_owned(),
                "stop" | "length" | "tool_calls" | "content_filter" => word.replace('_', "-"),
                _ => "other".to_owned(),
            };
        }
        reply.model = event["model"].as_str().map_or(reply.model, str::to_owned);
        if let Some(usage) = event["usage"].as_object() {
            let usage = Value::Object(usage.clone());
            reply.usage = [
                ("inputTokens", &usage["prompt_tokens"]),
                ("outputTokens", &usage["completion_tokens"]),
                ("totalTokens", &usage["total_tokens"]),
                ("reasoningTokens", &usage["completion_tokens_details"]["reasoning_tokens"]),
                ("cachedInputTokens", &usage["prompt_tokens_details"]["cached_tokens"]),
            ]
            .into_iter()
            .filter(|(_, value)| value.is_u64())
            .map(|(name, value)| (name.to_owned(), value.clone()))
            .collect();
        }
    }
    let input = |arguments: &str| serde_json::from_str(arguments).unwrap_or_else(|_| json!({}));
    reply.tools = calls.into_iter().map(|(_, name, arguments)| (name, input(&arguments))).collect();
    reply
}

/// Reads the chunks, and checks the order that clients demand on the way.
fn fold(chunks: &[Chunk]) -> Reply {
    let mut reply = Reply::default();
    let mut open: Option<String> = None;
    let mut inputs: Map<String, Value> = Map::new();
    assert_eq!(chunks.first().unwrap().kind(), "start-step");
    assert_eq!(chunks[chunks.len() - 2].kind(), "finish-step");
    for chunk in chunks {
        let id = chunk.text("id").map(str::to_owned);
        match chunk.kind() {
            "text-start" | "reasoning-start" => {
                assert_eq!(open, None);
                open = id;
            }
            "text-delta" => {
                assert_eq!(open, id);
                reply.text += chunk.text("delta").unwrap();
            }
            "reasoning-delta" => {
                assert_eq!(open, id);
                reply.reasoning += chunk.text("delta").unwrap();
            }
            "text-end" | "reasoning-end" => assert_eq!(open.take(), id),
            "tool-input-start" => {
                assert_eq!(open, None);
                assert!(inputs.insert(chunk.text("toolCallId").unwrap().to_owned(), "".into()).is_none());
            }
            "tool-input-delta" => {
                let input = inputs.get_mut(chunk.text("toolCallId").unwrap()).unwrap();
                *input = format!("{}{}", input.as_str().unwrap(), chunk.text("inputTextDelta").unwrap()).into();
            }
            "tool-input-available" => {
                let input = chunk.get("input").unwrap();
                let streamed = inputs[chunk.text("toolCallId").unwrap()].as_str().unwrap();
                assert_eq!(serde_json::from_str(streamed).unwrap_or_else(|_| json!({})), *input);
                reply.tools.push((chunk.text("toolName").unwrap().to_owned(), input.clone()));
            }
            "source-url" => reply.sources.push(chunk.text("url").unwrap().to_owned()),
            "finish" => {
                reply.finish = chunk.text("finishReason").unwrap().to_owned();
                let metadata = chunk.get("messageMetadata").unwrap();
                reply.model = metadata["model"].as_str().unwrap_or_default().to_owned();
                reply.usage = metadata["usage"].as_object().cloned().unwrap_or_default();
            }
            "start-step" | "finish-step" => assert_eq!(open, None),
            other => panic!("{other}"),
        }
    }
    reply
}

#[test]
fn every_recording_says_what_a_naive_reader_finds() {
    for recording in recordings() {
        assert_eq!(fold(&whole(&recording.body("\n", ""))), naive(&recording), "{}", recording.name);
    }
}

#[test]
fn line_ends_comments_and_single_bytes_change_nothing() {
    for recording in recordings() {
        let expected = whole(&recording.body("\n", ""));
        assert_eq!(whole(&recording.body("\r\n", "")), expected, "{}", recording.name);
        assert_eq!(whole(&recording.body("\r", ": PROCESSING\r\r")), expected, "{}", recording.name);
        assert_eq!(translate(recording.body("\r\n", ": x\n\nid: 1\n\n").chunks(1)), expected, "{}", recording.name);
    }
}

#[test]
fn a_body_cut_before_its_end_is_no_reply() {
    for recording in recordings() {
        let body = recording.body("\n", "");
        let cut = body.len() / 2;
        let mut stream = CompletionStream::new(StreamOptions::default());
        let mut chunks = stream.push(&body[..cut]).chunks;
        let end = stream.end();
        chunks.extend(end.chunks);
        assert_eq!(end.failure.unwrap().code, Code::ProviderStreamEnded, "{}", recording.name);
        assert!(!stream.is_finished());
        assert!(chunks.iter().all(|chunk| chunk.kind() != "finish" && chunk.kind() != "finish-step"));
    }
}

#[test]
fn random_cuts_change_nothing() {
    for recording in recordings() {
        let body = recording.body("\n", "");
        let expected = whole(&body);
        common::cut_at_random(&body, |pieces| translate(pieces.iter().copied()) == expected, &recording.name);
    }
}

/// One thing that a model does in one event.
fn deed() -> impl Strategy<Value = Value> {
    let text = "[a-zß🐙 \n]{0,6}";
    prop_oneof![
        text.prop_map(|text| json!({"content": text})),
        text.prop_map(|text| json!({"reasoning": text, "content": null})),
        text.prop_map(|text| json!({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": text}]}]})),
        (0..3u8, 0..4usize).prop_map(|(index, cut)| {
            let (first, second) = r#"{"x":"}"}"#.split_at(cut * 3);
            json!({"tool_calls": [
                {"index": index, "id": format!("id{index}"), "function": {"name": "f", "arguments": first}},
                {"index": index, "function": {"arguments": second}},
            ]})
        }),
    ]
}

proptest! {
    #[test]
    fn any_order_of_deeds_makes_a_reply_that_clients_can_fold(deeds in prop::collection::vec(deed(), 0..20)) {
        let mut called = Vec::new();
        let mut expected = Reply { finish: "stop".into(), model: "m".into(), ..Reply::default() };
        let mut body = String::new();
        for mut deed in deeds {
            if let Some(id) = deed["tool_calls"][0]["id"].as_str() {
                // Each call is made once; a second deed of the same index would be more arguments for it.
                if called.contains(&id.to_owned()) {
                    continue;
                }
                called.push(id.to_owned());
                expected.finish = "tool-calls".into();
                expected.tools.push(("f".into(), json!({"x": "}"})));
            }
            expected.text += deed["content"].as_str().unwrap_or_default();
            expected.reasoning += deed["reasoning"].as_str().unwrap_or_default();
            expected.reasoning += deed["content"][0]["thinking"][0]["text"].as_str().unwrap_or_default();
            deed["role"] = "assistant".into();
            body += &format!("data: {}\n\n", json!({"model": "m", "choices": [{"index": 0, "delta": deed}]}));
        }
        let end = json!({"model": "m", "choices": [{"delta": {}, "finish_reason": "stop"}], "usage": {"total_tokens": 1}});
        body += &format!("data: {end}\n\n");
        expected.usage.insert("totalTokens".into(), 1.into());
        prop_assert_eq!(fold(&whole(body.as_bytes())), expected);
    }
}

#[test]
fn one_broken_event_keeps_what_came_before() {
    let good = json!({"choices": [{"delta": {"content": "a"}}]});
    for (bad, code) in [
        ("data: {\"choices\":\n\n", Code::ProviderStreamInvalid),
        ("data: 1\n\n", Code::ProviderStreamInvalid),
        ("data: \u{1}\n\n", Code::ProviderStreamInvalid),
        ("data: {\"error\":{\"message\":\"m\",\"code\":\"rate_limit_exceeded\"}}\n\n", Code::ProviderRateLimited),
        ("event: error\ndata: boom\n\n", Code::ProviderError),
    ] {
        let mut stream = CompletionStream::new(StreamOptions::default());
        let batch = stream.push(format!("data: {good}\n\n{bad}data: {good}\n\n").as_bytes());
        let kinds: Vec<&str> = batch.chunks.iter().map(Chunk::kind).collect();
        assert_eq!(kinds, ["start-step", "text-start", "text-delta"], "{bad}");
        assert_eq!(batch.failure.unwrap().code, code, "{bad}");
        assert_eq!(stream.push(b"data: {}\n\n"), Default::default());
        assert_eq!(stream.end(), Default::default());
    }
}

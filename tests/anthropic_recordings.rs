//! Recorded answers of the Messages API, translated and compared with a naive reading of the same recordings.
//!
//! The recordings lie outside the project; without them the tests say so and pass.

// The helpers of this file are tests too, which the lints do not see outside a `#[test]` function.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::arithmetic_side_effects)]

mod common;

use common::Recording;
use rejoin::core::chunk::Chunk;
use rejoin::core::error::Code;
use rejoin::core::ids::MessageId;
use rejoin::dialect::ui::fold::Fold;
use rejoin::model::anthropic::stream::{MessageStream, StreamOptions};
use serde_json::{Map, Value, json};

fn recordings() -> Vec<Recording> {
    // A stream into which a second answer was spliced is no recording of one.
    let starts = |recording: &Recording| recording.events.iter().filter(|e| e.contains(r#""message_start""#)).count();
    common::recordings("anthropic-messages").into_iter().filter(|recording| starts(recording) == 1).collect()
}

impl Recording {
    /// The body as the service sends it: each event with its name.
    fn body(&self, line_end: &str, between: &str) -> Vec<u8> {
        let mut body = String::new();
        for event in &self.events {
            let value: Value = serde_json::from_str(event).unwrap();
            let name = value["type"].as_str().unwrap();
            body.push_str(&format!("event: {name}{line_end}data: {event}{line_end}{line_end}{between}"));
        }
        body.into_bytes()
    }
}

fn translate<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Vec<Chunk> {
    let mut stream = MessageStream::new(StreamOptions { id_prefix: "p".into(), ..StreamOptions::default() });
    let mut chunks = Vec::new();
    for piece in pieces {
        let batch = stream.push(piece);
        assert_eq!(batch.failure, None);
        chunks.extend(batch.chunks);
    }
    assert!(stream.is_finished());
    assert_eq!(stream.end(), Default::default());
    chunks
}

fn whole(body: &[u8]) -> Vec<Chunk> {
    translate(std::iter::once(body))
}

/// What a reply amounts to.
#[derive(Debug, Default, PartialEq)]
struct Reply {
    text: String,
    /// Words and signature of each block.
    thinking: Vec<(String, String)>,
    /// Name, input, and the output of calls that the provider executed.
    tools: Vec<(String, Value, Option<Value>)>,
    sources: Vec<(String, String)>,
    finish: String,
    model: String,
    usage: Map<String, Value>,
}

/// Reads the recording with nothing but its documentation at hand.
fn naive(recording: &Recording) -> Reply {
    let mut reply = Reply::default();
    let mut json = String::new();
    let mut ids: Vec<String> = Vec::new();
    let note = |reply: &mut Reply, page: &Value| {
        let url = page["url"].as_str().unwrap().to_owned();
        if !reply.sources.iter().any(|(other, _)| *other == url) {
            reply.sources.push((url, page["title"].as_str().unwrap_or_default().to_owned()));
        }
    };
    for event in &recording.events {
        let event: Value = serde_json::from_str(event).unwrap();
        let (block, delta) = (&event["content_block"], &event["delta"]);
        match event["type"].as_str().unwrap() {
            "message_start" => reply.model = event["message"]["model"].as_str().unwrap().to_owned(),
            "content_block_start" => match block["type"].as_str().unwrap() {
                "thinking" => reply.thinking.push(Default::default()),
                "tool_use" | "server_tool_use" => {
                    json.clear();
                    ids.push(block["id"].as_str().unwrap().to_owned());
                    reply.tools.push((block["name"].as_str().unwrap().to_owned(), block["input"].clone(), None));
                }
                kind if kind.ends_with("_tool_result") => {
                    let at = ids.iter().position(|id| *id == block["tool_use_id"]).unwrap();
                    reply.tools[at].2 = Some(block["content"].clone());
                    let pages = block["content"].as_array().into_iter().flatten();
                    pages.filter(|_| kind == "web_search_tool_result").for_each(|page| note(&mut reply, page));
                    let fetched = &block["content"];
                    if kind == "web_fetch_tool_result" && fetched["url"].is_string() {
                        note(&mut reply, &json!({"url": fetched["url"], "title": fetched["content"]["title"]}));
                    }
                }
                _ => {}
            },
            "content_block_delta" => match delta["type"].as_str().unwrap() {
                "text_delta" => reply.text += delta["text"].as_str().unwrap(),
                "thinking_delta" => reply.thinking.last_mut().unwrap().0 += delta["thinking"].as_str().unwrap(),
                "signature_delta" => reply.thinking.last_mut().unwrap().1 += delta["signature"].as_str().unwrap(),
                "citations_delta" => note(&mut reply, &delta["citation"]),
                "input_json_delta" => {
                    json += delta["partial_json"].as_str().unwrap();
                    if let Ok(input) = serde_json::from_str(&json) {
                        reply.tools.last_mut().unwrap().1 = input;
                    }
                }
                _ => {}
            },
            "message_delta" => {
                reply.finish = match delta["stop_reason"].as_str().unwrap() {
                    "end_turn" => "stop",
                    "stop_sequence" | "pause_turn" => "stop",
                    "max_tokens" => "length",
                    "tool_use" => "tool-calls",
                    "refusal" => "content-filter",
                    _ => "other",
                }
                .to_owned();
                let counted = |name: &str| event["usage"][name].as_u64().unwrap_or(0);
                let cached = counted("cache_read_input_tokens");
                let input = counted("input_tokens") + cached + counted("cache_creation_input_tokens");
                let output = counted("output_tokens");
                let usage = json!({"inputTokens": input, "outputTokens": output, "totalTokens": input + output, "cachedInputTokens": cached});
                reply.usage = usage.as_object().unwrap().clone();
            }
            "content_block_stop" | "message_stop" | "ping" => {}
            other => panic!("{other}"),
        }
    }
    reply
}

/// Folds the chunks as a client does, and reads the message.
fn folded(chunks: &[Chunk]) -> Reply {
    let mut fold = Fold::new(&MessageId::new("m"));
    for chunk in chunks {
        fold.apply(chunk).unwrap();
    }
    let mut reply = Reply::default();
    let message = fold.message().unwrap_or_else(|| json!({"parts": []}));
    for part in message["parts"].as_array().unwrap() {
        let text = || part["text"].as_str().unwrap().to_owned();
        match part["type"].as_str().unwrap() {
            "step-start" => {}
            "text" => reply.text += &text(),
            "reasoning" => {
                let signature = part["providerMetadata"]["anthropic"]["signature"].as_str().unwrap_or_default();
                reply.thinking.push((text(), signature.to_owned()));
            }
            "source-url" => reply.sources.push((
                part["url"].as_str().unwrap().to_owned(),
                part["title"].as_str().unwrap_or_default().to_owned(),
            )),
            "dynamic-tool" => {
                assert_eq!((&part["providerExecuted"], &part["state"]), (&json!(true), &json!("output-available")));
                let name = part["toolName"].as_str().unwrap().to_owned();
                reply.tools.push((name, part["input"].clone(), Some(part["output"].clone())));
            }
            kind => {
                assert_eq!(part["state"], "input-available");
                reply.tools.push((kind.strip_prefix("tool-").unwrap().to_owned(), part["input"].clone(), None));
            }
        }
    }
    let finish = chunks.last().unwrap();
    reply.finish = finish.text("finishReason").unwrap().to_owned();
    let metadata = finish.get("messageMetadata").unwrap();
    reply.model = metadata["model"].as_str().unwrap().to_owned();
    reply.usage = metadata["usage"].as_object().unwrap().clone();
    reply
}

#[test]
fn every_recording_says_what_a_naive_reader_finds() {
    for recording in recordings() {
        let chunks = whole(&recording.body("\n", ""));
        assert_eq!(folded(&chunks), naive(&recording), "{}", recording.name);
        let kinds: Vec<&str> = chunks.iter().map(Chunk::kind).collect();
        assert_eq!((kinds[0], kinds[kinds.len() - 2]), ("start-step", "finish-step"));
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
        let end = String::from_utf8_lossy(&body).find("event: message_delta").unwrap();
        for cut in (0..end).step_by((end / 50).max(1)) {
            let mut stream = MessageStream::new(StreamOptions::default());
            let mut chunks = stream.push(&body[..cut]).chunks;
            let end = stream.end();
            chunks.extend(end.chunks);
            assert_eq!(end.failure.unwrap().code, Code::ProviderStreamEnded, "{}", recording.name);
            assert!(!stream.is_finished());
            assert!(chunks.iter().all(|chunk| chunk.kind() != "finish" && chunk.kind() != "finish-step"));
        }
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

//! How a model's answer may end, and what may stand between its events: for both model APIs where they have it in common.

// The helpers of this file are tests too, which the lints do not see outside a `#[test]` function.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::arithmetic_side_effects)]

use proptest::prelude::*;
use rejoin::core::chunk::Chunk;
use rejoin::core::error::Code;
use rejoin::model::answer::{Answer, StreamOptions, Translation};
use rejoin::model::anthropic::stream::MessageStream;
use rejoin::model::openai::stream::CompletionStream;
use serde_json::{Value, json};

/// Text, finish reason and failure of an answer.
#[derive(Debug, PartialEq)]
struct Read {
    text: String,
    finish: Option<String>,
    failure: Option<Code>,
}

fn read_with<T: Translation>(mut answer: Answer<T>, body: &[u8], piece: usize) -> (Vec<Chunk>, Read, String) {
    let (mut chunks, mut failure) = (Vec::new(), None);
    for bytes in body.chunks(piece.max(1)) {
        let batch = answer.push(bytes);
        chunks.extend(batch.chunks);
        failure = failure.or(batch.failure);
    }
    let batch = answer.end();
    chunks.extend(batch.chunks);
    failure = failure.or(batch.failure);
    let text =
        chunks.iter().filter(|chunk| chunk.kind() == "text-delta").filter_map(|chunk| chunk.text("delta")).collect();
    let finish = chunks.iter().find(|chunk| chunk.kind() == "finish").and_then(|chunk| chunk.text("finishReason"));
    let words = failure.as_ref().map(|failure| failure.internal.clone()).unwrap_or_default();
    let read = Read { text, finish: finish.map(str::to_owned), failure: failure.map(|failure| failure.code) };
    (chunks, read, words)
}

fn openai(body: &str) -> Read {
    read_with(CompletionStream::new(StreamOptions::default()), body.as_bytes(), usize::MAX).1
}

fn anthropic(body: &str) -> Read {
    read_with(MessageStream::new(StreamOptions::default()), body.as_bytes(), usize::MAX).1
}

fn complete(text: &str, finish: &str) -> Read {
    Read { text: text.into(), finish: Some(finish.into()), failure: None }
}

fn failed(text: &str, code: Code) -> Read {
    Read { text: text.into(), finish: None, failure: Some(code) }
}

fn data(value: &Value) -> String {
    format!("data: {value}\n\n")
}

fn delta(said: Value) -> String {
    data(&json!({"choices": [{"index": 0, "delta": said}]}))
}

fn finish(word: &str) -> String {
    data(&json!({"choices": [{"index": 0, "delta": {}, "finish_reason": word}]}))
}

fn call(arguments: &str) -> String {
    delta(json!({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": arguments}}]}))
}

/// A message up to its stop reason.
fn stopped() -> String {
    [
        json!({"type": "message_start", "message": {"content": []}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Hello"}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}),
    ]
    .iter()
    .map(data)
    .collect()
}

/// What cannot be read: unreadable JSON, JSON that is no event, bytes out of place, an error that comes too late to matter.
const GARBAGE: [&str; 6] = [
    "data: {\"oops\":\n\n",
    "data: [1]\n\n",
    "data: 7\n\n",
    "data: \u{1}\n\n",
    "event: error\ndata: boom\n\n",
    "error: {\"code\":500}\n\n",
];

#[test]
fn garbage_behind_the_finish_reason_takes_nothing_back() {
    for garbage in GARBAGE {
        let said = delta(json!({"content": "Hello"}));
        assert_eq!(openai(&(said.clone() + &finish("stop") + garbage)), complete("Hello", "stop"), "{garbage}");
        let cut = read_with(
            CompletionStream::new(StreamOptions::default()),
            (said.clone() + &finish("stop") + garbage).as_bytes(),
            1,
        )
        .1;
        assert_eq!(cut, complete("Hello", "stop"), "{garbage}");
        assert_ne!(openai(&(said + garbage)).failure, None, "{garbage}");
        assert_eq!(anthropic(&(stopped() + garbage)), complete("Hello", "stop"), "{garbage}");
    }
    let bytes = [delta(json!({"content": "Hello"})).as_bytes(), finish("stop").as_bytes(), b"data: \xFF\n\n"].concat();
    assert_eq!(
        read_with(CompletionStream::new(StreamOptions::default()), &bytes, usize::MAX).1,
        complete("Hello", "stop")
    );
    let late = delta(json!({"content": "Hello"}))
        + &finish("stop")
        + &data(&json!({"error": {"message": "usage failed", "code": 500}}));
    assert_eq!(openai(&late), complete("Hello", "stop"));
}

#[test]
fn a_model_that_stopped_for_an_error_has_not_finished() {
    let body =
        delta(json!({"content": "He"})) + &finish("error") + &data(&json!({"error": {"message": "m", "code": 429}}));
    assert_eq!(openai(&body), failed("He", Code::ProviderRateLimited));
}

#[test]
fn done_behind_content_is_an_end_and_the_end_of_the_body_is_not() {
    let done = "data: [DONE]\n\n";
    for (said, text, reason) in [
        (delta(json!({"content": "Hello"})), "Hello", "other"),
        (delta(json!({"reasoning": "hm"})), "", "other"),
        (call("{\"x\":1}"), "", "tool-calls"),
        (call(""), "", "tool-calls"),
        (
            delta(json!({"content": "I look."}))
                + &call("{\"x\":")
                + &delta(json!({"tool_calls": [{"index": 0, "function": {"arguments": "1}"}}]})),
            "I look.",
            "tool-calls",
        ),
    ] {
        assert_eq!(openai(&(said.clone() + done)), complete(text, reason), "{said}");
        assert_eq!(openai(&said), failed(text, Code::ProviderStreamEnded), "{said}");
    }
    for (said, text) in [
        (String::new(), ""),
        (delta(json!({"content": ""})), ""),
        (data(&json!({"choices": [], "usage": {"total_tokens": 1}})), ""),
        (delta(json!({"content": "I look."})) + &call("{\"x\":"), "I look."),
        (delta(json!({"tool_calls": [{"index": 0, "id": "c", "function": {"arguments": "{}"}}]})), ""),
    ] {
        assert_eq!(openai(&(said.clone() + done)), failed(text, Code::ProviderStreamEnded), "{said}");
    }
}

#[test]
fn comments_in_data_lines_are_skipped_and_told_of_when_the_answer_is_cut() {
    let comments = "data: : PROCESSING\n\ndata: ping\n\ndata: keep-alive\n\n";
    let said = delta(json!({"content": "Hello"}));
    let body = format!("{comments}{said}{comments}{}{comments}data: [DONE]\n\n", finish("stop"));
    assert_eq!(openai(&body), complete("Hello", "stop"));
    assert_eq!(anthropic(&(comments.to_owned() + &stopped() + comments)), complete("Hello", "stop"));
    let (_, read, words) = read_with(
        CompletionStream::new(StreamOptions::default()),
        (said.clone() + comments + "data: upstream fell over\n\n").as_bytes(),
        usize::MAX,
    );
    assert_eq!(read, failed("Hello", Code::ProviderStreamEnded));
    assert!(words.contains("4 comments in data lines, the last: upstream fell over"), "{words}");
    let endless = said + &"data: ping\n\n".repeat(1_001);
    assert_eq!(openai(&endless), failed("Hello", Code::ProviderStreamInvalid));
}

#[test]
fn a_failure_in_a_field_of_its_own_is_that_failure() {
    let said = delta(json!({"content": "Hello"}));
    for (error, code) in [
        (
            json!({"code": 500, "message": "Context size has been exceeded.", "type": "server_error"}),
            Code::ProviderContextLength,
        ),
        (
            json!({"code": 400, "message": "the request exceeds the available context size. try increasing the context size or enable context shift", "type": "exceed_context_size_error", "n_prompt_tokens": 9000, "n_ctx": 4096}),
            Code::ProviderContextLength,
        ),
        (json!({"code": 503, "message": "Loading model", "type": "unavailable_error"}), Code::ProviderOverloaded),
        (json!({"code": 500, "message": "Compute error.", "type": "server_error"}), Code::ProviderError),
    ] {
        assert_eq!(openai(&format!("{said}error: {error}\n\n")), failed("Hello", code), "{error}");
        assert_eq!(openai(&format!("{said}data: {}\n\n", json!({"error": error}))), failed("Hello", code), "{error}");
    }
}

/// What a client has once it joined the deltas of its parts: text, reasoning, and the input of the call as it was streamed and as it came.
fn shown(chunks: &[Chunk]) -> (String, String, String, Option<Value>) {
    let said = |kind: &str, key: &str| {
        chunks.iter().filter(|chunk| chunk.kind() == kind).filter_map(|chunk| chunk.text(key)).collect::<String>()
    };
    let input = chunks.iter().find_map(|chunk| chunk.get("input")).cloned();
    (said("text-delta", "delta"), said("reasoning-delta", "delta"), said("tool-input-delta", "inputTextDelta"), input)
}

fn escaped(units: &[u16]) -> String {
    units.iter().map(|unit| format!("\\u{unit:04x}")).collect()
}

#[test]
fn half_a_character_at_the_end_of_a_part_does_not_fail_the_reply() {
    let half = r#"data: {"choices":[{"delta":{"content":"a\ud83d"}}]}"#;
    assert_eq!(openai(&format!("{half}\n\n{}", finish("stop"))), complete("a\u{fffd}", "stop"));
    let input = delta(
        json!({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": r#"{"x":"\ud83d"}"#}}]}),
    );
    let (chunks, ..) =
        read_with(CompletionStream::new(StreamOptions::default()), (input + &finish("stop")).as_bytes(), usize::MAX);
    assert_eq!(shown(&chunks).3, Some(json!({"x": "\u{fffd}"})));
    let document = br#"{"choices":[{"message":{"content":"a\ud83d"},"finish_reason":"stop"}]}"#;
    assert_eq!(
        read_with(CompletionStream::new(StreamOptions::default()), document, 7).1,
        complete("a\u{fffd}", "stop")
    );
}

proptest! {
    /// A server that cuts its text by UTF-16 units says what it would have said in one piece.
    #[test]
    fn a_cut_character_is_one_character(
        whole in "[aß😀🐙 ]{1,12}",
        cuts in prop::collection::vec(0..24usize, 0..5),
    ) {
        let units: Vec<u16> = whole.encode_utf16().collect();
        let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| *cut <= units.len()).collect();
        cuts.extend([0, units.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u16]> =
            cuts.windows(2).map(|pair| &units[pair[0]..pair[1]]).filter(|piece| !piece.is_empty()).collect();
        let event = |inner: String| format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{inner}}}]}}\n\n");
        let mut body = String::new();
        for piece in &pieces {
            body += &event(format!("{{\"reasoning\":\"{}\"}}", escaped(piece)));
        }
        for piece in &pieces {
            body += &event(format!("{{\"content\":\"{}\"}}", escaped(piece)));
        }
        let arguments = |text: &str, id: &str| event(format!("{{\"tool_calls\":[{{\"index\":0{id},\"function\":{{\"name\":\"f\",\"arguments\":\"{text}\"}}}}]}}"));
        body += &arguments("{\\\"x\\\":\\\"", ",\"id\":\"c\"");
        for piece in &pieces {
            body += &arguments(&escaped(piece), ",\"id\":\"c\"");
        }
        body += &arguments("\\\"}", ",\"id\":\"c\"");
        body += &finish("tool_calls");
        let (chunks, read, _) = read_with(CompletionStream::new(StreamOptions::default()), body.as_bytes(), usize::MAX);
        prop_assert_eq!(read.failure, None);
        let (text, reasoning, streamed, input) = shown(&chunks);
        prop_assert_eq!((text.as_str(), reasoning.as_str()), (whole.as_str(), whole.as_str()));
        prop_assert_eq!(serde_json::from_str::<Value>(&streamed).unwrap(), json!({"x": whole}));
        prop_assert_eq!(input, Some(json!({"x": whole})));

        let event = |inner: String| format!("data: {inner}\n\n");
        let mut body = event(r#"{"type":"message_start","message":{"content":[]}}"#.into());
        for (index, (block, kind, key)) in [
            (r#"{"type":"thinking","thinking":""}"#, "thinking_delta", "thinking"),
            (r#"{"type":"text","text":""}"#, "text_delta", "text"),
            (r#"{"type":"tool_use","id":"c","name":"f","input":{}}"#, "input_json_delta", "partial_json"),
        ].into_iter().enumerate() {
            let delta = |text: &str| event(format!(r#"{{"type":"content_block_delta","index":{index},"delta":{{"type":"{kind}","{key}":"{text}"}}}}"#));
            body += &event(format!(r#"{{"type":"content_block_start","index":{index},"content_block":{block}}}"#));
            if key == "partial_json" {
                body += &delta(r#"{\"x\":\""#);
            }
            for piece in &pieces {
                body += &delta(&escaped(piece));
            }
            if key == "partial_json" {
                body += &delta(r#"\"}"#);
            }
            body += &event(format!(r#"{{"type":"content_block_stop","index":{index}}}"#));
        }
        body += &event(r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"}}"#.into());
        let (chunks, read, _) = read_with(MessageStream::new(StreamOptions::default()), body.as_bytes(), usize::MAX);
        prop_assert_eq!(read.failure, None);
        let (text, reasoning, streamed, input) = shown(&chunks);
        prop_assert_eq!((text.as_str(), reasoning.as_str()), (whole.as_str(), whole.as_str()));
        prop_assert_eq!(serde_json::from_str::<Value>(&streamed).unwrap(), json!({"x": whole}));
        prop_assert_eq!(input, Some(json!({"x": whole})));
    }
}

use super::*;
use proptest::prelude::*;

/// All chunks as `kind text`, and the failure's code.
fn run(body: &[u8]) -> (Vec<String>, Option<Code>) {
    let mut stream = MessageStream::new(StreamOptions::default());
    let mut batch = stream.push(body);
    let end = stream.end();
    batch.chunks.extend(end.chunks);
    let words = batch.chunks.iter().map(|chunk| {
        let keys = ["delta", "inputTextDelta", "toolCallId", "url", "finishReason"];
        let word = keys.iter().find_map(|key| chunk.text(key));
        format!("{} {}", chunk.kind(), word.unwrap_or_default()).trim_end().to_owned()
    });
    (words.collect(), batch.failure.or(end.failure).map(|failure| failure.code))
}

fn sse(events: &[Value]) -> Vec<u8> {
    events.iter().map(|event| format!("data: {event}\n\n")).collect::<String>().into_bytes()
}

fn start(index: u64, block: Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn delta(index: u64, delta: Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

fn stop(index: u64) -> Value {
    json!({"type": "content_block_stop", "index": index})
}

fn end(reason: &str) -> Value {
    json!({"type": "message_delta", "delta": {"stop_reason": reason}})
}

#[test]
fn unknown_events_and_blocks_are_left_out() {
    let body = sse(&[
        json!({"type": "message_start", "message": {"content": []}}),
        json!({"type": "news", "index": 0}),
        start(0, json!({"type": "novelty", "content": "x"})),
        delta(0, json!({"type": "novelty_delta", "content": "x"})),
        stop(0),
        delta(7, json!({"type": "input_json_delta", "partial_json": "{"})),
        start(2, json!({"type": "text", "text": ""})),
        delta(2, json!({"type": "text_delta", "text": "a"})),
        end("end_turn"),
        json!({"type": "message_stop"}),
    ]);
    let expected = ["start-step", "text-start", "text-delta a", "text-end", "finish-step", "finish stop"];
    assert_eq!(run(&body), (expected.map(str::to_owned).to_vec(), None));
}

#[test]
fn every_stop_reason_has_its_word() {
    for (word, expected) in [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("pause_turn", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("tool_use", "tool-calls"),
        ("refusal", "content-filter"),
        ("compaction", "other"),
    ] {
        // A body that ends after the stop reason is complete.
        assert_eq!(run(&sse(&[end(word)])).0.last().unwrap(), &format!("finish {expected}"));
    }
}

#[test]
fn blocks_at_the_start_and_messages_that_were_not_streamed_count() {
    let message = json!({"type": "message", "stop_reason": "tool_use", "content": [
        {"type": "text", "text": "a"},
        {"type": "tool_use", "id": "c", "name": "f", "input": {"x": 1}},
    ]});
    let expected = [
        "start-step",
        "text-start",
        "text-delta a",
        "text-end",
        "tool-input-start c",
        "tool-input-available c",
        "finish-step",
        "finish tool-calls",
    ];
    let expected = (expected.map(str::to_owned).to_vec(), None);
    assert_eq!(run(message.to_string().as_bytes()), expected);
    let events = [json!({"type": "message_start", "message": message}), json!({"type": "message_stop"})];
    assert_eq!(run(&sse(&events)), expected);
}

#[test]
fn a_cut_input_is_an_input_error_and_an_unstopped_block_is_closed() {
    let body = sse(&[
        start(0, json!({"type": "tool_use", "id": "c", "name": "f", "input": {}})),
        delta(0, json!({"type": "input_json_delta", "partial_json": "{\"x\":"})),
        start(1, json!({"type": "tool_use", "id": "c", "name": "f", "input": {}})),
        end("max_tokens"),
    ]);
    let (said, failure) = run(&body);
    let ends: Vec<&str> = said.iter().map(String::as_str).filter(|word| word.contains("-input-")).collect();
    assert_eq!(
        ends,
        [
            "tool-input-start c",
            "tool-input-delta {\"x\":",
            "tool-input-start call2",
            "tool-input-error c",
            "tool-input-available call2"
        ]
    );
    assert_eq!((said.last().unwrap().as_str(), failure), ("finish length", None));
}

#[test]
fn what_breaks_a_stream_is_named_and_keeps_what_came_before() {
    let good = delta(0, json!({"type": "text_delta", "text": "a"}));
    let error = |name: &str| {
        format!("event: error\ndata: {}\n\n", json!({"type": "error", "error": {"type": name, "message": "m"}}))
    };
    for (bad, code) in [
        (error("overloaded_error"), Code::ProviderOverloaded),
        (error("rate_limit_error"), Code::ProviderRateLimited),
        (error("api_error"), Code::ProviderError),
        (error("invalid_request_error"), Code::ProviderBadRequest),
        (error("authentication_error"), Code::ProviderAuth),
        ("data: {\"error\":{\"message\":\"m\"}}\n\n".to_owned(), Code::ProviderError),
        ("data: {\"type\":\n\n".to_owned(), Code::ProviderStreamInvalid),
        (
            "data: {\"type\":\"content_block_start\",\"content_block\":{\"type\":\"tool_use\"}}\n\n".to_owned(),
            Code::ProviderStreamInvalid,
        ),
        (String::new(), Code::ProviderStreamEnded),
    ] {
        let (said, failure) = run(format!("data: {good}\n\n{bad}").as_bytes());
        assert_eq!(said, ["start-step", "text-start", "text-delta a"], "{bad}");
        assert_eq!(failure, Some(code), "{bad}");
    }
    for (body, code) in [
        ("{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"m\"}}", Code::ProviderOverloaded),
        ("<!doctype html>", Code::ProviderStreamInvalid),
        ("{}", Code::ProviderStreamInvalid),
    ] {
        assert_eq!(run(body.as_bytes()), (Vec::new(), Some(code)), "{body}");
    }
}

#[test]
fn counts_of_the_cache_belong_to_the_input() {
    let counts =
        json!({"input_tokens": 1, "cache_read_input_tokens": 2, "cache_creation_input_tokens": 4, "output_tokens": 8});
    assert_eq!(
        usage(&counts).map(Value::Object),
        Some(json!({"inputTokens": 7, "outputTokens": 8, "totalTokens": 15, "cachedInputTokens": 2}))
    );
    assert_eq!(usage(&json!({"input_tokens": null})), None);
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        run(&bytes);
    }

    #[test]
    fn arbitrary_events_never_panic(
        kinds in prop::collection::vec((prop::sample::select(vec!["content_block_start", "content_block_delta", "content_block_stop", "message_start", "message_delta", "error"]), 0..3u64, 0..12usize), 0..12)
    ) {
        let inner = [
            "text", "thinking", "redacted_thinking", "tool_use", "server_tool_use", "mcp_tool_use", "web_search_tool_result",
            "text_delta", "thinking_delta", "signature_delta", "input_json_delta", "citations_delta",
        ];
        let events: Vec<Value> = kinds.iter().map(|(kind, index, at)| {
            let said = json!({
                "type": inner[*at], "text": "a", "thinking": "b", "signature": "s", "data": "d", "id": format!("i{index}"), "name": "n",
                "tool_use_id": format!("i{index}"), "content": [null, {"type": "web_search_result", "url": "https://a.test"}],
                "partial_json": "{", "citation": {"url": 1}, "stop_reason": null,
            });
            json!({"type": kind, "index": index, "content_block": said, "delta": said, "message": said})
        }).collect();
        run(&sse(&events));
    }
}

#[test]
fn content_of_unknown_kinds_alone_is_a_failure_with_a_name() {
    let body = sse(&[start(0, json!({"type": "novelty"})), stop(0), end("end_turn"), json!({"type": "message_stop"})]);
    assert_eq!(run(&body), (vec![], Some(Code::ProviderStreamInvalid)));
    // An answer without any content says so by itself.
    assert_eq!(run(&sse(&[end("end_turn")])).1, None);
}

#[test]
fn what_a_block_says_twice_counts_once() {
    let text = |said: &str| start(0, json!({"type": "text", "text": said}));
    let words = |piece: &str| delta(0, json!({"type": "text_delta", "text": piece}));
    let whole =
        json!({"type": "message_start", "message": {"id": "m", "content": [{"type": "text", "text": "Hello "}]}});
    for (events, expected) in [
        (vec![text("Hello world"), words("Hello "), words("world")], "Hello world"),
        (vec![text("Hello "), words("world")], "Hello world"),
        (vec![text(""), words("ha"), words("ha")], "haha"),
        (vec![whole.clone(), text(""), words("Hel"), words("lo world")], "Hello world"),
        (vec![whole.clone(), whole, text("Hello world")], "Hello world"),
    ] {
        let mut body = events;
        body.extend([stop(0), end("end_turn")]);
        let said: String = chunks(&body).iter().filter_map(|chunk| chunk.text("delta")).collect();
        assert_eq!(said, expected, "{body:?}");
    }
    let thought = |signature: &str| {
        thinking_of(&[
            start(0, json!({"type": "thinking", "thinking": "hm", "signature": signature})),
            delta(0, json!({"type": "thinking_delta", "thinking": "hm"})),
            delta(0, json!({"type": "signature_delta", "signature": "sig"})),
            stop(0),
            end("end_turn"),
        ])
    };
    assert_eq!(thought("sig"), ("hm".to_owned(), json!({"signature": "sig"})));
    assert_eq!(thought(""), ("hm".to_owned(), json!({"signature": "sig"})));
}

fn chunks(events: &[Value]) -> Vec<Chunk> {
    let mut stream = MessageStream::new(StreamOptions::default());
    let mut batch = stream.push(&sse(events));
    batch.chunks.extend(stream.end().chunks);
    batch.chunks
}

/// The words of the reasoning, and what its end keeps for the API.
fn thinking_of(events: &[Value]) -> (String, Value) {
    let chunks = chunks(events);
    let words = chunks.iter().filter_map(|chunk| chunk.text("delta")).collect();
    let kept =
        chunks.iter().find(|chunk| chunk.kind() == "reasoning-end").and_then(|chunk| chunk.get("providerMetadata"));
    (words, kept.map(|kept| kept["anthropic"].clone()).unwrap_or_default())
}

#[test]
fn two_generations_in_one_stream_are_a_failure() {
    let begin = |id: &str| json!({"type": "message_start", "message": {"id": id, "content": []}});
    let said = [begin("m1"), start(0, json!({"type": "text", "text": "a"})), stop(0)];
    for (second, failure) in [(begin("m2"), Some(Code::ProviderStreamInvalid)), (begin("m1"), None)] {
        let mut body = said.to_vec();
        body.extend([second, start(1, json!({"type": "text", "text": "b"})), stop(1), end("end_turn")]);
        assert_eq!(run(&sse(&body)).1, failure, "{body:?}");
    }
}

#[test]
fn a_late_result_is_told_under_its_calls_own_id() {
    let late = json!({"type": "code_execution_tool_result", "tool_use_id": "srv", "content": {"stdout": "1"}});
    let own = [
        start(1, json!({"type": "server_tool_use", "id": "own", "name": "web_search", "input": {}})),
        stop(1),
        start(2, json!({"type": "web_search_tool_result", "tool_use_id": "own", "content": []})),
        start(3, json!({"type": "web_search_tool_result", "tool_use_id": "own", "content": []})),
        start(4, json!({"type": "tool_use", "id": "mine", "name": "f", "input": {}})),
        start(5, json!({"type": "web_search_tool_result", "tool_use_id": "mine", "content": []})),
    ];
    let mut events = vec![start(0, late), stop(0)];
    events.extend(own);
    events.push(end("tool_use"));
    let results: Vec<(String, Value)> = chunks(&events)
        .iter()
        .filter(|chunk| chunk.kind().starts_with("tool-output"))
        .map(|chunk| {
            let mark = chunk.get("providerMetadata").map(|mark| mark["anthropic"].clone()).unwrap_or_default();
            (chunk.text("toolCallId").unwrap().to_owned(), mark)
        })
        .collect();
    assert_eq!(
        results,
        [
            ("srv".to_owned(), json!({"type": "code_execution_tool_result", "deferred": true})),
            ("own".to_owned(), json!({"type": "web_search_tool_result"})),
        ]
    );
}

#[test]
fn a_paused_turn_leaves_the_reply_open_where_it_may() {
    let events = [
        start(0, json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}})),
        stop(0),
        end("pause_turn"),
        json!({"type": "message_stop"}),
    ];
    for (may_pause, last) in [(true, "finish-step"), (false, "finish")] {
        let mut stream = MessageStream::new(StreamOptions { may_pause, ..StreamOptions::default() });
        let batch = stream.push(&sse(&events));
        assert_eq!((batch.chunks.last().unwrap().kind(), batch.failure), (last, None));
        assert_eq!((stream.is_finished(), stream.translation().pauses()), (true, may_pause));
    }
}

#[test]
fn a_last_word_without_a_reason_ends_an_answer_that_has_content() {
    let stop_event = || json!({"type": "message_stop"});
    let text = start(0, json!({"type": "text", "text": "a"}));
    let call = |piece: &str| {
        let begin = start(0, json!({"type": "tool_use", "id": "c", "name": "f", "input": {}}));
        vec![begin, delta(0, json!({"type": "input_json_delta", "partial_json": piece})), stop_event()]
    };
    for (events, last) in [
        (vec![text.clone(), stop_event()], Ok("finish other")),
        (vec![text], Err(Code::ProviderStreamEnded)),
        (call("{}"), Ok("finish tool-calls")),
        (call("{\"a\":"), Err(Code::ProviderStreamEnded)),
    ] {
        let (words, failure) = run(&sse(&events));
        assert_eq!(failure.map_or_else(|| Ok(words.last().unwrap().as_str()), Err), last, "{events:?}");
    }
}

#[test]
fn garbage_behind_the_stop_reason_does_not_cost_the_answer() {
    let said = [start(0, json!({"type": "text", "text": "a"})), stop(0), end("end_turn")];
    for garbage in ["data: {\"oops\":\n\n", "event: error\ndata: {\"type\":\"error\"}\n\n", "data: [1]\n\n"] {
        let mut body = sse(&said);
        body.extend_from_slice(garbage.as_bytes());
        let (words, failure) = run(&body);
        assert_eq!((words.last().map(String::as_str), failure), (Some("finish stop"), None), "{garbage}");
    }
    let again = json!({"type": "message_start", "message": {"id": "m2", "content": []}});
    let first = json!({"type": "message_start", "message": {"id": "m1", "content": []}});
    let body = sse(&[&[first], &said[..], &[again]].concat());
    assert_eq!(run(&body).1, None);
}

//! Request bodies of the Messages API, held against the rules that the API documents, by a checker that knows nothing of the translation.

// The helpers of this file are tests too, which the lints do not see outside a `#[test]` function.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::arithmetic_side_effects)]

use std::collections::HashSet;

use proptest::prelude::*;
use rejoin::core::ids::MessageId;
use rejoin::dialect::ui::fold::Fold;
use rejoin::model::agent::{Agent, Agents};
use rejoin::model::anthropic::request::{endpoint, headers, request_body};
use rejoin::model::anthropic::settings::AnthropicSettings;
use rejoin::model::anthropic::stream::{MessageStream, StreamOptions};
use serde_json::{Value, json};

fn settings(extra: Value) -> AnthropicSettings {
    let mut agent = json!({"producer": "anthropic", "model": "m"});
    agent.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    let agents = Agents::parse(&json!({"x": agent}).to_string()).unwrap();
    let Agent::Anthropic(settings) = agents.choose(None).unwrap().1 else { panic!() };
    *settings.clone()
}

fn body(extra: Value, history: &[Value]) -> Value {
    let body = Value::Object(request_body(&settings(extra), history));
    check(&body);
    body
}

fn kind(block: &Value) -> &str {
    block["type"].as_str().unwrap()
}

fn is_id(id: &str) -> bool {
    !id.is_empty() && id.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

fn keys(value: &Value, allowed: &[&str]) {
    for (key, value) in value.as_object().unwrap() {
        assert!(allowed.contains(&key.as_str()) && !value.is_null(), "{key}: {value}");
    }
}

/// Panics where the API would answer 400.
fn check(body: &Value) {
    for key in ["model", "max_tokens", "messages"] {
        assert!(!body[key].is_null(), "{key}");
    }
    assert!(body.get("system").is_none_or(|system| !system.as_str().unwrap().trim().is_empty()));
    let messages = body["messages"].as_array().unwrap();
    assert!(messages.len() % 2 == 1, "begins and ends with the user: {messages:?}");
    let mut ids = HashSet::new();
    let mut awaited: Vec<String> = Vec::new();
    let mut has_calls = false;
    for (place, message) in messages.iter().enumerate() {
        keys(message, &["role", "content"]);
        let user = place % 2 == 0;
        assert_eq!(message["role"], if user { "user" } else { "assistant" });
        let content = message["content"].as_array().unwrap();
        assert!(!content.is_empty());
        let results: Vec<&str> = content
            .iter()
            .take_while(|block| kind(block) == "tool_result")
            .map(|block| block["tool_use_id"].as_str().unwrap())
            .collect();
        assert_eq!(results, awaited, "results stand first and answer exactly the calls of the message before");
        awaited.clear();
        let mut executed: Vec<&str> = Vec::new();
        for block in content {
            match (kind(block), user) {
                ("text", _) => {
                    keys(block, &["type", "text"]);
                    assert!(!block["text"].as_str().unwrap().trim().is_empty());
                }
                ("image" | "document", true) => {
                    keys(block, &["type", "source", "title"]);
                    source(&block["source"], kind(block));
                }
                ("tool_result", true) => {
                    keys(block, &["type", "tool_use_id", "content", "is_error"]);
                    let text = block.get("content").map_or("", |content| content.as_str().unwrap());
                    assert!(block["is_error"] != true || !text.is_empty());
                    assert!(results.contains(&block["tool_use_id"].as_str().unwrap()));
                }
                ("tool_use", false) => {
                    keys(block, &["type", "id", "name", "input"]);
                    let (id, name) = (block["id"].as_str().unwrap(), block["name"].as_str().unwrap());
                    assert!(is_id(id) && is_id(name) && name.len() <= 128 && block["input"].is_object());
                    assert!(ids.insert(id.to_owned()), "unique ids");
                    awaited.push(id.to_owned());
                    has_calls = true;
                }
                ("server_tool_use", false) => {
                    keys(block, &["type", "id", "name", "input"]);
                    let id = block["id"].as_str().unwrap();
                    assert!(is_id(id) && block["input"].is_object() && ids.insert(id.to_owned()));
                    executed.push(id);
                }
                ("thinking", false) => {
                    keys(block, &["type", "thinking", "signature"]);
                    assert!(block["thinking"].is_string() && !block["signature"].as_str().unwrap().is_empty());
                }
                ("redacted_thinking", false) => {
                    keys(block, &["type", "data"]);
                    assert!(!block["data"].as_str().unwrap().is_empty());
                }
                (result, false) if result.ends_with("_tool_result") => {
                    keys(block, &["type", "tool_use_id", "content"]);
                    assert_eq!(executed.pop(), block["tool_use_id"].as_str(), "a result follows its call");
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(executed.is_empty(), "every executed call has its result");
        if !user {
            let last = content.last().unwrap();
            assert!(!kind(last).ends_with("thinking"));
        }
    }
    assert!(awaited.is_empty());
    assert!(!has_calls || !body["tools"].as_array().unwrap().is_empty());
    assert!(body.get("tool_choice").is_none() || body.get("tools").is_some());
}

fn source(source: &Value, block: &str) {
    match (kind(source), block) {
        ("base64", _) => {
            keys(source, &["type", "media_type", "data"]);
            let data = source["data"].as_str().unwrap();
            assert!(!data.is_empty() && data.len().is_multiple_of(4));
            let pdf = source["media_type"] == "application/pdf";
            assert_eq!(pdf, block == "document");
        }
        ("url", _) => assert!(source["url"].as_str().unwrap().starts_with("http")),
        ("text", "document") => assert!(!source["data"].as_str().unwrap().trim().is_empty()),
        other => panic!("{other:?}"),
    }
}

fn user(text: &str) -> Value {
    json!({"id": "u", "role": "user", "parts": [{"type": "text", "text": text}]})
}

/// The stored message of a streamed answer.
fn stored(events: &[Value]) -> Value {
    let mut stream = MessageStream::new(StreamOptions { id_prefix: "p".into(), ..StreamOptions::default() });
    let text: String = events.iter().map(|event| format!("event: {}\ndata: {event}\n\n", kind(event))).collect();
    let mut fold = Fold::new(&MessageId::new("m"));
    for chunk in stream.push(text.as_bytes()).chunks {
        fold.apply(&chunk).unwrap();
    }
    assert!(stream.is_finished());
    fold.message().unwrap()
}

/// The events of an answer with these content blocks.
fn answer(blocks: &[Value], stop_reason: &str) -> Vec<Value> {
    let mut events = vec![json!({"type": "message_start", "message": {"model": "m", "content": []}})];
    for (index, block) in blocks.iter().enumerate() {
        events.push(json!({"type": "content_block_start", "index": index, "content_block": block}));
        events.push(json!({"type": "content_block_stop", "index": index}));
    }
    events.push(json!({"type": "message_delta", "delta": {"stop_reason": stop_reason}}));
    events.push(json!({"type": "message_stop"}));
    events
}

#[test]
fn a_turn_with_thinking_and_tools_comes_back_as_it_was() {
    let said = [
        json!({"type": "thinking", "thinking": "hm", "signature": "c2ln"}),
        json!({"type": "redacted_thinking", "data": "ZGF0YQ=="}),
        json!({"type": "thinking", "thinking": "", "signature": "b3RoZXI="}),
        json!({"type": "text", "text": "I look."}),
        json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}}),
        json!({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [
            {"type": "web_search_result", "url": "https://a.test", "title": "A", "encrypted_content": "x", "page_age": "1 day"},
        ]}),
        json!({"type": "server_tool_use", "id": "srvtoolu_2", "name": "web_fetch", "input": {"url": "u"}}),
        json!({"type": "web_fetch_tool_result", "tool_use_id": "srvtoolu_2", "content": {"type": "web_fetch_tool_result_error", "error_code": "url_not_accessible"}}),
        json!({"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"x": 1}}),
        json!({"type": "tool_use", "id": "toolu_2", "name": "g", "input": {}}),
    ];
    let mut message = stored(&answer(&said, "tool_use"));
    for part in message["parts"].as_array_mut().unwrap() {
        match part["toolCallId"].as_str() {
            Some("toolu_1") => {
                part["state"] = "output-available".into();
                part["output"] = json!({"y": 2});
            }
            Some("toolu_2") => {
                part["state"] = "output-error".into();
                part["errorText"] = "bad".into();
            }
            _ => {}
        }
    }
    let configured = json!({
        "thinking": {"budgetTokens": 2000}, "tools": [{"name": "f"}, {"name": "g"}, {"type": "web_search_20250305", "name": "web_search"}],
    });
    let history = [user("q"), message];
    let sent = body(configured.clone(), &history);
    assert_eq!(sent["messages"][1]["content"], json!(said));
    assert_eq!(
        sent["messages"][2]["content"],
        json!([
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": "{\"y\":2}"},
            {"type": "tool_result", "tool_use_id": "toolu_2", "content": "bad", "is_error": true},
        ])
    );
    assert_eq!(sent["thinking"], json!({"type": "enabled", "budget_tokens": 2000}));
    assert_eq!(sent["tools"][2], json!({"type": "web_search_20250305", "name": "web_search"}));

    let mut without = configured;
    without["sendReasoning"] = false.into();
    without["tools"] = json!([]);
    let sent = body(without, &history);
    assert_eq!(sent["messages"][1]["content"], json!([said[3], said[8], said[9]]));
    assert_eq!(sent.get("thinking"), None);
    assert_eq!(sent["tool_choice"], json!({"type": "none"}));
    assert_eq!(sent["tools"][1], json!({"name": "g", "input_schema": {"type": "object"}}));
}

#[test]
fn what_the_api_refuses_is_mended() {
    let assistant = |parts: Value| json!({"id": "a", "role": "assistant", "parts": parts});
    let text = |text: &str| json!({"type": "text", "text": text});
    let call = json!({"type": "tool-f", "toolCallId": "a b", "state": "input-streaming"});
    for (history, expected) in [
        (vec![], r#"[["(no message)"]]"#),
        (vec![user(" \n")], r#"[["(no message)"]]"#),
        (vec![user("a"), user("b")], r#"[["a","b"]]"#),
        (vec![assistant(json!([text("hi \n")])), user("a")], r#"[["(no message)"],["hi \n"],["a"]]"#),
        (vec![user("a"), assistant(json!([text("b")]))], r#"[["a"],["b"],["Continue."]]"#),
        (vec![user("a"), assistant(json!([text("b")])), user("")], r#"[["a"],["b"],["(no message)"]]"#),
        (vec![user("a"), assistant(json!([{"type": "reasoning", "text": "cut"}])), user("b")], r#"[["a","b"]]"#),
        (
            vec![
                user("a"),
                assistant(
                    json!([{"type": "reasoning", "text": "r", "providerMetadata": {"anthropic": {"signature": "s"}}}]),
                ),
            ],
            r#"[["a"]]"#,
        ),
        (
            vec![user("a"), assistant(json!([call, text("b"), {"type": "step-start"}, call])), user("c")],
            r#"[["a"],["a_b"],["a_b"],["b","a_b_2"],["a_b_2","c"]]"#,
        ),
    ] {
        let sent = body(json!({}), &history);
        let words: Vec<Vec<&str>> = sent["messages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|message| {
                let word = |block: &'_ Value| {
                    ["text", "id", "tool_use_id"].iter().find(|key| block[**key].is_string()).copied()
                };
                message["content"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|block| block[word(block).unwrap()].as_str().unwrap())
                    .collect()
            })
            .collect();
        assert_eq!(serde_json::to_string(&words).unwrap(), expected);
    }
}

#[test]
fn address_headers_and_settings_are_the_apis() {
    let plain = settings(json!({"apiKey": "KEY", "beta": ["a", "b"], "headers": {"Accept": "*/*"}}));
    assert_eq!(endpoint(&plain.base_url), "https://api.anthropic.com/v1/messages");
    let sent = headers(&plain, Some("k\n"));
    for (name, value) in [
        ("x-api-key", "k"),
        ("anthropic-version", "2023-06-01"),
        ("anthropic-beta", "a,b"),
        ("accept", "*/*"),
        ("content-type", "application/json"),
    ] {
        assert_eq!(sent.iter().filter(|(own, _)| own == name).map(|(_, v)| v.as_str()).collect::<Vec<_>>(), [value]);
    }
    let bearer = headers(&settings(json!({"keyHeader": "authorization"})), Some("k"));
    assert!(bearer.contains(&("authorization".into(), "Bearer k".into())));
    let system = json!({"role": "system", "parts": [{"type": "text", "text": "t"}]});
    let sent = body(
        json!({"system": "s", "temperature": 0, "toolChoice": "any", "tools": [{"name": "f", "description": "d"}]}),
        &[system, user("a")],
    );
    assert_eq!(
        sent,
        json!({
            "temperature": 0, "tool_choice": {"type": "any"}, "model": "m", "max_tokens": 4096, "system": "s\n\nt",
            "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object", "properties": {}}}],
            "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}], "stream": true,
        })
    );
}

fn part() -> impl Strategy<Value = Value> {
    let word = || prop::sample::select(vec!["", " ", "a", "a ", "ß🐙\n"]);
    let state = prop::sample::select(vec![
        "input-streaming",
        "input-available",
        "approval-requested",
        "approval-responded",
        "output-available",
        "output-error",
        "output-denied",
        "nonsense",
    ]);
    let mark = prop::sample::select(vec![json!(null), json!({"type": "server_tool_use"}), json!({"type": 1})]);
    let output = prop::sample::select(vec![json!(null), json!(""), json!([]), json!({"a": 1})]);
    let call = (state, mark, output, word(), prop::sample::select(vec!["1", "1 ", "", "toolu_1", "srvtoolu_1"]));
    prop_oneof![
        word().prop_map(|text| json!({"type": "text", "text": text})),
        (word(), word()).prop_map(|(text, signature)| {
            json!({"type": "reasoning", "text": text, "providerMetadata": {"anthropic": {"signature": signature}}})
        }),
        word().prop_map(|data| json!({"type": "reasoning", "text": "", "providerMetadata": {"anthropic": {"redactedData": data}}})),
        Just(json!({"type": "step-start"})),
        prop::sample::select(vec!["https://a.test/b", "data:image/png;base64,AA", "data:text/plain,x", "data:,", "x"])
            .prop_flat_map(|url| prop::sample::select(vec!["image/png", "image/*", "text/plain", "application/pdf", ""])
                .prop_map(move |media| json!({"type": "file", "url": url, "mediaType": media}))),
        call.prop_map(|(state, mark, output, word, id)| json!({
            "type": "dynamic-tool", "toolName": word, "toolCallId": id, "state": state, "input": {}, "output": output, "errorText": word,
            "callProviderMetadata": {"anthropic": mark},
        })),
    ]
}

proptest! {
    #[test]
    fn any_history_becomes_a_request_that_the_api_accepts(
        messages in prop::collection::vec((prop::sample::select(vec!["user", "assistant", "system", "x"]), prop::collection::vec(part(), 0..6)), 0..6),
        served in any::<bool>(),
        most in 1..6usize,
    ) {
        let history: Vec<Value> = messages.into_iter().map(|(role, parts)| json!({"role": role, "parts": parts})).collect();
        let tools = if served { json!([{"type": "web_search_20250305", "name": "web_search"}]) } else { json!([]) };
        body(json!({"tools": tools, "maxHistory": most, "thinking": {"budgetTokens": 1024}, "toolChoice": "auto"}), &history);
    }
}

//! What a vendor wants back of an answer, from its stream over the stored reply to the next request; and the pictures that it drew.

// The helpers of this file are tests too, which the lints do not see outside a `#[test]` function.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::arithmetic_side_effects)]

use rejoin::core::chunk::Chunk;
use rejoin::core::error::Code;
use rejoin::core::ids::MessageId;
use rejoin::dialect::ui::fold::Fold;
use rejoin::model::agent::{Agent, Agents};
use rejoin::model::answer::StreamOptions;
use rejoin::model::openai::request::request_body;
use rejoin::model::openai::settings::OpenAiSettings;
use rejoin::model::openai::stream::CompletionStream;
use serde_json::{Value, json};

fn settings(model: &str) -> OpenAiSettings {
    let agents = Agents::parse(&json!({"x": {"producer": "openai", "model": model}}).to_string()).unwrap();
    match agents.choose(None).unwrap().1.clone() {
        Agent::OpenAi(settings) => *settings,
        _ => panic!(),
    }
}

/// The chunks of an answer of these deltas, and the failure.
fn answered(deltas: &[Value], finish: &str) -> (Vec<Chunk>, Option<Code>) {
    let origin = settings("m").origin();
    let mut stream = CompletionStream::new(StreamOptions { id_prefix: "p".into(), origin, ..StreamOptions::default() });
    let mut body: String = deltas
        .iter()
        .map(|delta| format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": delta}]})))
        .collect();
    body += &format!(
        "data: {}\n\ndata: [DONE]\n\n",
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    );
    let batch = stream.push(body.as_bytes());
    (batch.chunks, batch.failure.map(|failure| failure.code))
}

fn stored(deltas: &[Value], finish: &str) -> Value {
    let (chunks, failure) = answered(deltas, finish);
    assert_eq!(failure, None);
    let mut fold = Fold::new(&MessageId::new("a"));
    chunks.iter().for_each(|chunk| fold.apply(chunk).unwrap());
    let mut reply = fold.message().unwrap();
    for part in reply["parts"].as_array_mut().unwrap().iter_mut().filter(|part| part["toolCallId"].is_string()) {
        let answer = json!({"state": "output-available", "output": 1});
        part.as_object_mut().unwrap().extend(answer.as_object().unwrap().clone());
    }
    reply
}

fn user(text: &str) -> Value {
    json!({"role": "user", "parts": [{"type": "text", "text": text}]})
}

fn request(model: &str, reply: &Value) -> Vec<Value> {
    let history = [user("hi"), reply.clone(), user("and?")];
    Value::Object(request_body(&settings(model), &history))["messages"].as_array().unwrap().clone()
}

/// The assistant's message of the next request.
fn sent_back(deltas: &[Value], finish: &str) -> Value {
    let reply = stored(deltas, finish);
    let other = request("other", &reply);
    for key in
        ["extra_content", "reasoning_details", "thinking_blocks", "reasoning_opaque", "encrypted_content", "\"SIG"]
    {
        assert!(!Value::from(other.clone()).to_string().contains(key), "another model is not sent {key}");
    }
    request("m", &reply)[1].clone()
}

fn call(index: u64, more: Value) -> Value {
    let mut call = json!({"index": index, "id": format!("c{index}"), "type": "function", "function": {"name": "f", "arguments": "{}"}});
    call.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    call
}

fn calls(list: Value) -> Value {
    json!({"tool_calls": list})
}

fn signature(text: &str) -> Value {
    json!({"extra_content": {"google": {"thought_signature": text}}})
}

#[test]
fn a_call_goes_back_with_its_signature() {
    let sent = sent_back(&[calls(json!([call(0, signature("SIG-A")), call(1, json!({}))]))], "tool_calls");
    assert_eq!(sent["tool_calls"][0]["extra_content"], signature("SIG-A")["extra_content"]);
    assert_eq!(sent["tool_calls"][1].get("extra_content"), None);
    assert_eq!(sent.get("extra_content"), None);
}

#[test]
fn a_signature_in_a_delta_of_its_own_goes_back_too() {
    // Beside the call, before and behind its end, and behind the beginning of another.
    let own = |index: u64| {
        calls(json!([{"index": index, "extra_content": {"google": {"thought_signature": format!("SIG-{index}")}}}]))
    };
    let sent = sent_back(
        &[calls(json!([call(0, json!({}))])), own(0), calls(json!([call(1, json!({}))])), own(1)],
        "tool_calls",
    );
    assert_eq!(sent["tool_calls"][0]["extra_content"], signature("SIG-0")["extra_content"]);
    assert_eq!(sent["tool_calls"][1]["extra_content"], signature("SIG-1")["extra_content"]);
    let late =
        sent_back(&[calls(json!([call(0, json!({}))])), calls(json!([call(1, json!({}))])), own(0)], "tool_calls");
    assert_eq!(late["tool_calls"][0]["extra_content"], signature("SIG-0")["extra_content"]);
    assert_eq!(late["tool_calls"][1].get("extra_content"), None);
    // Of the message: with its words, with its calls, with neither.
    let expected = signature("SIG-M")["extra_content"].clone();
    let words = sent_back(&[json!({"content": "Hello"}), json!({"content": "", "extra_content": expected})], "stop");
    assert_eq!((&words["content"], &words["extra_content"]), (&json!("Hello"), &expected));
    let called = sent_back(&[calls(json!([call(0, json!({}))])), json!({"extra_content": expected})], "tool_calls");
    assert_eq!((&called["extra_content"], called["tool_calls"][0].get("extra_content")), (&expected, None));
    let both = sent_back(
        &[calls(json!([call(0, json!({}))])), json!({"content": "Hello"}), json!({"extra_content": expected})],
        "tool_calls",
    );
    assert!(both["tool_calls"].is_array());
}

#[test]
fn a_kept_signature_shows_no_part_of_its_own_beside_words_and_calls() {
    let kinds = |reply: &Value| {
        reply["parts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|part| part["type"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let words = stored(&[json!({"content": "Hello"}), signature("SIG")], "stop");
    assert_eq!(kinds(&words), ["step-start", "text"]);
    let called = stored(&[signature("SIG"), calls(json!([call(0, json!({}))]))], "tool_calls");
    assert_eq!(kinds(&called), ["step-start", "tool-f"]);
    assert!(called["parts"][1]["callProviderMetadata"]["openai"].is_object());
}

#[test]
fn encrypted_reasoning_goes_back_as_it_came() {
    let details = json!([
        {"type": "reasoning.summary", "summary": "I think.", "format": "openai-responses-v1", "index": 0},
        {"type": "reasoning.encrypted", "data": "SIG-E", "id": "rs_1", "format": "openai-responses-v1", "index": 0},
    ]);
    let deltas = [
        json!({"reasoning": "I ", "reasoning_details": [{"type": "reasoning.summary", "summary": "I ", "format": "openai-responses-v1", "index": 0}]}),
        json!({"reasoning": "think.", "reasoning_details": [{"type": "reasoning.summary", "summary": "think.", "index": 0}]}),
        calls(json!([call(0, json!({}))])),
        json!({"reasoning_details": [details[1]]}),
    ];
    let reply = stored(&deltas, "tool_calls");
    assert_eq!(reply["parts"][1]["text"], "I think.");
    assert_eq!(sent_back(&deltas, "tool_calls")["reasoning_details"], details);
    for (key, value) in [
        ("reasoning_opaque", json!("SIG-O")),
        ("encrypted_content", json!("SIG-X")),
        ("thinking_blocks", json!([{"type": "thinking", "thinking": "hm", "signature": "SIG-T"}])),
    ] {
        let sent = sent_back(&[json!({"content": "Hello", key: value})], "stop");
        assert_eq!(sent[key], value);
    }
    let plain = sent_back(
        &[
            json!({"reasoning": "hm", "reasoning_details": [{"type": "reasoning.text", "text": "hm"}]}),
            json!({"content": "a"}),
        ],
        "stop",
    );
    assert_eq!(plain, json!({"role": "assistant", "content": "a"}));
}

#[test]
fn pictures_are_files_and_go_back_to_who_drew_them() {
    let picture = |url: &str| json!({"type": "image_url", "image_url": {"url": url}});
    let url = "data:image/png;base64,iVBORw0KGgo=";
    for deltas in [
        vec![json!({"content": "", "images": [picture(url)]}), json!({"images": [picture(url)]})],
        vec![json!({"content": [picture(url)]})],
    ] {
        let reply = stored(&deltas, "stop");
        let files: Vec<&Value> =
            reply["parts"].as_array().unwrap().iter().filter(|part| part["type"] == "file").collect();
        assert_eq!(files.len(), 1, "{reply}");
        assert_eq!((&files[0]["url"], &files[0]["mediaType"]), (&json!(url), &json!("image/png")));
        let sent = request("m", &reply);
        assert_eq!(sent[1]["content"], "(picture)");
        assert_eq!(sent[2]["content"], json!([picture(url), {"type": "text", "text": "and?"}]));
        assert_eq!(request("other", &reply)[2]["content"], "and?");
    }
    let sound = stored(
        &[
            json!({"audio": {"id": "a", "data": "SUQz", "transcript": "Hel"}}),
            json!({"audio": {"data": "YQ==", "transcript": "lo"}}),
        ],
        "stop",
    );
    let parts = sound["parts"].as_array().unwrap();
    assert_eq!((&parts[1]["text"], &parts[2]["url"]), (&json!("Hello"), &json!("data:audio/mpeg;base64,SUQzYQ==")));
}

#[test]
fn what_cannot_be_shown_is_a_named_failure() {
    for delta in [
        json!({"content": [{"type": "text", "text": "a"}, {"type": "hologram", "beam": "x"}]}),
        json!({"content": "a", "images": [{"type": "image_url", "image_url": {"url": ""}}]}),
        json!({"content": [{"type": "text", "text": "a"}, {"type": "file", "file": {"file_id": "f"}}]}),
    ] {
        let (chunks, failure) = answered(std::slice::from_ref(&delta), "stop");
        assert_eq!(failure, Some(Code::ProviderContentUnsupported), "{delta}");
        assert!(!Code::ProviderContentUnsupported.retryable(), "asking again would cost the same once more");
        assert_eq!(chunks.iter().filter_map(|chunk| chunk.text("delta")).collect::<String>(), "a", "{delta}");
    }
    let (_, failure) = answered(&[json!({"content": [{"type": "reference", "reference_ids": [1]}]})], "stop");
    assert_eq!(failure, None, "a reference points to what was said elsewhere");
}

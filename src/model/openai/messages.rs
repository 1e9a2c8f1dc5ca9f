//! Stored UI messages as messages of the chat-completions API.
//!
//! The API accepts a history only if every tool call is answered by a `tool` message right after the assistant message that made it. A UI
//! message holds a whole reply, so it becomes several: one per step, each with the results of its calls.

use serde_json::{Map, Value, json};

use super::files::content_part;
use crate::model::tools::Call;
use crate::model::values::{list, string};

/// The API's messages for one UI message. Parts of unknown types (`data-*`, sources) are for the client and are left out.
pub fn translate(message: &Value, send_reasoning: bool) -> Vec<Value> {
    match string(message, "role") {
        Some("system") => {
            let text = texts(message);
            if text.is_empty() { Vec::new() } else { vec![json!({"role": "system", "content": text})] }
        }
        Some("user") => user(message).into_iter().collect(),
        Some("assistant") => assistant(message, send_reasoning),
        _ => Vec::new(),
    }
}

fn texts(message: &Value) -> String {
    let texts = list(message, "parts").iter().filter(|part| string(part, "type") == Some("text"));
    let texts: Vec<&str> = texts.filter_map(|part| string(part, "text")).filter(|text| !text.is_empty()).collect();
    texts.join("\n")
}

fn user(message: &Value) -> Option<Value> {
    let mut content = Vec::new();
    let mut only_text = true;
    for part in list(message, "parts") {
        match string(part, "type") {
            Some("text") => {
                let text = string(part, "text").filter(|text| !text.is_empty());
                content.extend(text.map(|text| json!({"type": "text", "text": text})));
            }
            Some("file") => {
                let file = content_part(part);
                only_text &= file.as_ref().is_none_or(|file| string(file, "type") == Some("text"));
                content.extend(file);
            }
            _ => {}
        }
    }
    if content.is_empty() {
        return None;
    }
    // Plain text as a plain string: many servers know nothing else.
    let content = if only_text {
        let texts: Vec<&str> = content.iter().filter_map(|part| string(part, "text")).collect();
        Value::String(texts.join("\n"))
    } else {
        Value::Array(content)
    };
    Some(json!({"role": "user", "content": content}))
}

/// What the assistant says between two tool results.
#[derive(Debug, Default)]
struct Step {
    text: String,
    reasoning: String,
    calls: Vec<Value>,
    results: Vec<Value>,
}

impl Step {
    fn end(&mut self, messages: &mut Vec<Value>) {
        let step = std::mem::take(self);
        if step.text.is_empty() && step.calls.is_empty() {
            return;
        }
        let mut message = Map::new();
        message.insert("role".into(), "assistant".into());
        let text = if step.text.is_empty() { Value::Null } else { Value::String(step.text) };
        message.insert("content".into(), text);
        if !step.reasoning.is_empty() {
            message.insert("reasoning_content".into(), step.reasoning.into());
        }
        if !step.calls.is_empty() {
            message.insert("tool_calls".into(), step.calls.into());
        }
        messages.push(Value::Object(message));
        messages.extend(step.results);
    }
}

fn assistant(message: &Value, send_reasoning: bool) -> Vec<Value> {
    let mut messages = Vec::new();
    let mut step = Step::default();
    for (index, part) in list(message, "parts").iter().enumerate() {
        match string(part, "type") {
            Some("step-start") => step.end(&mut messages),
            Some("text") => {
                let text = string(part, "text").unwrap_or_default();
                // Words after a call were said after its result.
                if !step.calls.is_empty() && !text.is_empty() {
                    step.end(&mut messages);
                }
                step.text.push_str(text);
            }
            Some("reasoning") if send_reasoning => step.reasoning.push_str(string(part, "text").unwrap_or_default()),
            _ => {
                if let Some(made) = Call::of_part(part, index) {
                    call(made, &mut step);
                }
            }
        }
    }
    step.end(&mut messages);
    messages
}

fn call(call: Call, step: &mut Step) {
    let Call { id, name, input, result } = call;
    let arguments = input.to_string();
    step.calls.push(json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}));
    // The API has no other sign of an error.
    let content = if result.is_error { format!("Error: {}", result.text) } else { result.text };
    step.results.push(json!({"role": "tool", "tool_call_id": id, "content": content}));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn say(role: &str, parts: Value) -> Vec<Value> {
        translate(&json!({"id": "m", "role": role, "parts": parts}), true)
    }

    #[test]
    fn user_text_is_a_string_and_files_are_parts() {
        assert_eq!(
            say(
                "user",
                json!([{"type": "text", "text": "a"}, {"type": "data-x", "data": 1}, {"type": "text", "text": "b"}])
            ),
            [json!({"role": "user", "content": "a\nb"})]
        );
        let image = json!({"type": "file", "mediaType": "image/png", "url": "https://a.test/b.png"});
        let csv = json!({"type": "file", "mediaType": "text/csv", "url": "data:text/csv,a", "filename": "x.csv"});
        let question = json!({"type": "text", "text": "what?"});
        assert_eq!(
            say("user", json!([image, question])),
            [
                json!({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://a.test/b.png"}}, question]})
            ]
        );
        assert_eq!(say("user", json!([csv, question])), [json!({"role": "user", "content": "File x.csv:\na\nwhat?"})]);
        assert!(say("user", json!([])).is_empty());
    }

    #[test]
    fn a_reply_of_several_steps_becomes_several_messages() {
        let parts = json!([
            {"type": "step-start"},
            {"type": "reasoning", "text": "hm"},
            {"type": "text", "text": "I look."},
            {"type": "tool-f", "toolCallId": "1", "state": "output-available", "input": {"x": 1}, "output": {"y": 2}},
            {"type": "dynamic-tool", "toolName": "g h", "toolCallId": "2", "state": "output-error", "rawInput": "{", "errorText": "bad"},
            {"type": "step-start"},
            {"type": "text", "text": "Done."},
        ]);
        assert_eq!(
            say("assistant", parts),
            [
                json!({"role": "assistant", "content": "I look.", "reasoning_content": "hm", "tool_calls": [
                    {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"x\":1}"}},
                    {"id": "2", "type": "function", "function": {"name": "g_h", "arguments": "{\"invalid\":\"{\"}"}},
                ]}),
                json!({"role": "tool", "tool_call_id": "1", "content": "{\"y\":2}"}),
                json!({"role": "tool", "tool_call_id": "2", "content": "Error: bad"}),
                json!({"role": "assistant", "content": "Done."}),
            ]
        );
    }

    #[test]
    fn an_abandoned_call_is_answered() {
        assert_eq!(
            say("assistant", json!([{"type": "tool-f", "toolCallId": "1", "state": "input-streaming"}])),
            [
                json!({"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}),
                json!({"role": "tool", "tool_call_id": "1", "content": "Error: the call was abandoned and has no result"}),
            ]
        );
    }

    proptest! {
        #[test]
        fn every_call_is_answered_right_after_its_message(kinds in prop::collection::vec(0..4u8, 0..12)) {
            let parts: Vec<Value> = kinds.iter().enumerate().map(|(index, kind)| match kind {
                0 => json!({"type": "step-start"}),
                1 => json!({"type": "text", "text": "a"}),
                2 => json!({"type": "tool-f", "toolCallId": index.to_string(), "state": "input-available", "input": {}}),
                _ => json!({"type": "reasoning", "text": "r"}),
            }).collect();
            let mut open: Vec<String> = Vec::new();
            for message in say("assistant", Value::Array(parts)) {
                if message["role"] == "tool" {
                    prop_assert_eq!(open.remove(0), message["tool_call_id"].as_str().unwrap());
                } else {
                    prop_assert!(open.is_empty());
                    open = list(&message, "tool_calls").iter().map(|call| call["id"].as_str().unwrap().to_owned()).collect();
                }
            }
            prop_assert!(open.is_empty());
        }
    }
}

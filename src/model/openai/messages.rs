//! Stored UI messages as messages of the chat-completions API.
//!
//! The API accepts a history only if every tool call is answered by a `tool` message right after the assistant message that made it. A UI
//! message holds a whole reply, so it becomes several: one per step, each with the results of its calls.

use serde_json::{Map, Value, json};

use super::conversation::{Conversation, Saying, text_part};
use super::files::content_part;
use super::state;
use crate::model::tools::Call;
use crate::model::values::{list, string};

/// Adds one UI message. Parts of unknown types (`data-*`, sources) are for the client and are left out. `to` names the model that is asked:
/// what it wants back of its own replies is sent back.
pub fn add(message: &Value, to: &str, conversation: &mut Conversation) {
    match string(message, "role") {
        Some("system") => conversation.system(texts(message)),
        Some("user") => conversation.user(user(message)),
        Some("assistant") => assistant(message, to, conversation),
        _ => {}
    }
}

fn texts(message: &Value) -> String {
    let texts = list(message, "parts").iter().filter(|part| string(part, "type") == Some("text"));
    let texts: Vec<&str> = texts.filter_map(|part| string(part, "text")).filter(|text| !text.is_empty()).collect();
    texts.join("\n")
}

fn user(message: &Value) -> Vec<Value> {
    let part = |part| match string(part, "type")? {
        "text" => string(part, "text").filter(|text| !text.trim().is_empty()).map(text_part),
        "file" => content_part(part),
        _ => None,
    };
    list(message, "parts").iter().filter_map(part).collect()
}

/// What the assistant says between two tool results.
#[derive(Debug, Default)]
struct Step {
    saying: Saying,
    /// What came late for calls that were written before, by place.
    late: Vec<Value>,
    /// Stands for a file where the model said nothing else.
    shown: Option<&'static str>,
}

impl Step {
    fn end(&mut self, conversation: &mut Conversation) {
        let Self { mut saying, late, shown } = std::mem::take(self);
        for (call, state) in saying.calls.iter_mut().zip(late) {
            if let (Value::Object(call), Value::Object(state)) = (call, state) {
                call.extend(state);
            }
        }
        if let Some(shown) = shown.filter(|_| saying.text.trim().is_empty()) {
            saying.text = shown.to_owned();
        }
        conversation.assistant(saying);
    }

    /// Keys of the message that the vendor wants back.
    fn keep(&mut self, part: &Value, to: &str) {
        if let Some(Value::Object(kept)) = state::kept(part, to, "step") {
            self.saying.state.extend(kept.clone());
        }
        if let Some(Value::Array(late)) = state::kept(part, to, "calls") {
            self.late.clone_from(late);
        }
    }
}

fn assistant(message: &Value, to: &str, conversation: &mut Conversation) {
    let mut step = Step::default();
    for (index, part) in list(message, "parts").iter().enumerate() {
        match string(part, "type") {
            Some("step-start") => step.end(conversation),
            Some("text") => {
                let text = string(part, "text").unwrap_or_default();
                // Words after a call were said after its result.
                if !step.saying.calls.is_empty() && !text.is_empty() {
                    step.end(conversation);
                }
                step.saying.text.push_str(text);
                step.keep(part, to);
            }
            Some("reasoning") => {
                step.saying.reasoning.push_str(string(part, "text").unwrap_or_default());
                step.keep(part, to);
            }
            Some("file") => {
                let is_picture = string(part, "mediaType").is_some_and(|kind| kind.starts_with("image/"));
                step.shown = Some(if is_picture { "(picture)" } else { "(file)" });
                // Who drew it can see it.
                if is_picture && state::is_of(part, to) {
                    step.saying.pictures.extend(content_part(part));
                }
            }
            _ => {
                if let Some(made) = Call::of_part(part, index) {
                    step.keep(part, to);
                    call(made, state::kept(part, to, "call"), &mut step.saying);
                }
            }
        }
    }
    step.end(conversation);
}

fn call(call: Call, state: Option<&Value>, saying: &mut Saying) {
    let Call { id, name, input, result } = call;
    let arguments = input.to_string();
    let mut made = Map::new();
    made.insert("id".into(), id.clone().into());
    made.insert("type".into(), "function".into());
    made.insert("function".into(), json!({"name": name, "arguments": arguments}));
    if let Some(Value::Object(state)) = state {
        made.extend(state.clone());
    }
    saying.calls.push(Value::Object(made));
    // The API has no other sign of an error.
    let content = if result.is_error { format!("Error: {}", result.text) } else { result.text };
    saying.results.push(json!({"role": "tool", "tool_call_id": id, "content": content}));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The messages of a conversation that goes on behind this one.
    fn say(role: &str, parts: Value) -> Vec<Value> {
        let mut conversation = Conversation::new(true);
        add(&json!({"role": "user", "parts": [{"type": "text", "text": "hi"}]}), "", &mut conversation);
        if role == "user" {
            conversation = Conversation::new(true);
        }
        add(&json!({"id": "m", "role": role, "parts": parts}), "", &mut conversation);
        let mut messages = conversation.finish();
        if role == "assistant" {
            messages.remove(0);
            if messages.last().is_some_and(|last| last["role"] == "user") {
                messages.pop();
            }
        }
        messages
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
                json!({"role": "assistant", "content": "Done.", "reasoning_content": ""}),
            ]
        );
    }

    #[test]
    fn an_abandoned_call_is_answered() {
        assert_eq!(
            say("assistant", json!([{"type": "tool-f", "toolCallId": "1", "state": "input-streaming"}])),
            [
                json!({"role": "assistant", "content": null, "reasoning_content": "", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}),
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

//! Stored UI messages as messages of the Messages API. A UI message holds a whole reply, so it becomes several: one per step that called
//! tools, each followed by the results.

use serde_json::{Value, json};

use super::conversation::{Conversation, text_block};
use super::files::content_block;
use super::server_tools;
use crate::model::tools::Call;
use crate::model::values::{list, string};

/// What of a stored reply is sent back.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// Thinking, where it has its signature.
    pub thinking: bool,
    /// Calls of the API's own tools. The API refuses them in a request that names no such tool.
    pub server_tools: bool,
}

/// Adds one UI message. Parts of unknown types (`data-*`, sources) are for the client and are left out, as are system messages, which
/// stand elsewhere in the request: [`system_text`].
pub fn add(message: &Value, policy: Policy, conversation: &mut Conversation) {
    match string(message, "role") {
        Some("user") => conversation.user(user(message)),
        Some("assistant") => assistant(message, policy, conversation),
        _ => {}
    }
}

/// The text of a system message.
pub fn system_text(message: &Value) -> Option<String> {
    if string(message, "role") != Some("system") {
        return None;
    }
    let texts: Vec<&str> = list(message, "parts").iter().filter_map(text_of).collect();
    Some(texts.join("\n")).filter(|text| !text.is_empty())
}

/// The part's text, if it is a text part that is not blank: the API refuses blank ones.
fn text_of(part: &Value) -> Option<&str> {
    if string(part, "type") != Some("text") {
        return None;
    }
    string(part, "text").filter(|text| !text.trim().is_empty())
}

fn user(message: &Value) -> Vec<Value> {
    let block = |part| match string(part, "type")? {
        "file" => content_block(part),
        _ => text_of(part).map(text_block),
    };
    list(message, "parts").iter().filter_map(block).collect()
}

/// What the assistant says between two tool results.
#[derive(Debug, Default)]
struct Step {
    blocks: Vec<Value>,
    results: Vec<Value>,
}

impl Step {
    fn end(&mut self, conversation: &mut Conversation) {
        let step = std::mem::take(self);
        conversation.assistant(step.blocks, step.results);
    }

    /// What comes after a call was said after its result.
    fn say(&mut self, block: Value, conversation: &mut Conversation) {
        if !self.results.is_empty() {
            self.end(conversation);
        }
        self.blocks.push(block);
    }
}

fn assistant(message: &Value, policy: Policy, conversation: &mut Conversation) {
    let mut step = Step::default();
    for (index, part) in list(message, "parts").iter().enumerate() {
        match string(part, "type") {
            Some("step-start") => step.end(conversation),
            Some("text") => {
                if let Some(text) = text_of(part) {
                    step.say(text_block(text), conversation);
                }
            }
            Some("reasoning") => {
                if let Some(block) = thinking(part).filter(|_| policy.thinking) {
                    step.say(block, conversation);
                }
            }
            _ => {
                if let Some(call) = Call::of_part(part, index) {
                    tool(part, call, policy, &mut step, conversation);
                }
            }
        }
    }
    step.end(conversation);
}

/// The API checks that it wrote the thinking itself, so only what has its signature can be sent: not that of a reply which was cut, nor
/// that of another model.
fn thinking(part: &Value) -> Option<Value> {
    let facts = server_tools::facts(part, "providerMetadata")?;
    if let Some(signature) = string(facts, "signature").filter(|signature| !signature.is_empty()) {
        let text = string(part, "text").unwrap_or_default();
        return Some(json!({"type": "thinking", "thinking": text, "signature": signature}));
    }
    let data = string(facts, "redactedData").filter(|data| !data.is_empty())?;
    Some(json!({"type": "redacted_thinking", "data": data}))
}

fn tool(part: &Value, call: Call, policy: Policy, step: &mut Step, conversation: &mut Conversation) {
    if server_tools::is_marked(part) {
        let blocks = if policy.server_tools { server_tools::blocks(part, &call.name) } else { None };
        if let Some(blocks) = blocks.filter(|_| conversation.claim(&call.id)) {
            step.blocks.extend(blocks);
        }
        return;
    }
    let Call { id, name, input, result } = call;
    let id = conversation.call(&id, &name);
    step.blocks.push(json!({"type": "tool_use", "id": id, "name": name, "input": input}));
    let mut answer = json!({"type": "tool_result", "tool_use_id": id});
    if let Some(answer) = answer.as_object_mut() {
        // The API takes a result without content, but not one with blank content.
        if !result.text.trim().is_empty() {
            answer.insert("content".into(), result.text.into());
        }
        if result.is_error {
            answer.insert("is_error".into(), true.into());
        }
    }
    step.results.push(answer);
}

//! Stored UI messages as messages of the Messages API. A UI message holds a whole reply, so it becomes several: one per step that called
//! tools, each followed by the results.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::conversation::{Conversation, text_block};
use super::files::content_block;
use super::server_tools::{self, Written};
use super::steps::{Place, Steps};
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
/// stand elsewhere in the request: [`system_text`]. `goes_on`: the reply is not over, so that the API may still owe results.
pub fn add(message: &Value, goes_on: bool, policy: Policy, conversation: &mut Conversation) {
    match string(message, "role") {
        Some("user") => conversation.user(user(message)),
        Some("assistant") => assistant(message, goes_on, policy, conversation),
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

fn assistant(message: &Value, goes_on: bool, policy: Policy, conversation: &mut Conversation) {
    let parts = list(message, "parts");
    let mut steps = Steps::of(parts);
    // Calls of the API's own tools that are sent: the others cannot have called anything.
    let mut sent: HashSet<&str> = HashSet::new();
    for (at, part) in parts.iter().enumerate() {
        match string(part, "type") {
            Some("text") => steps.say(at, text_of(part).map(text_block)),
            Some("reasoning") => steps.say(at, thinking(part, policy)),
            _ => {
                let Some(call) = Call::of_part(part, at) else { continue };
                if !server_tools::is_marked(part) {
                    let (block, result) = client_call(part, call, &sent, conversation);
                    steps.say(at, Some(block));
                    steps.answer(at, result);
                    continue;
                }
                let Some(Written { call: block, result }) = server_tools::written(part, &call.name) else { continue };
                let may = policy.server_tools && (goes_on || result.is_some());
                if !may || !conversation.claim(&call.id) {
                    continue;
                }
                conversation.owes(result.is_none());
                sent.extend(string(part, "toolCallId"));
                steps.say(at, Some(block));
                if let Some(result) = result {
                    let place =
                        if server_tools::is_deferred(part) { Place::InALaterStep } else { Place::BehindItsCalls };
                    steps.executed(at, place, result);
                }
            }
        }
    }
    for (blocks, results) in steps.into_messages() {
        conversation.assistant(blocks, results);
    }
}

/// What a reasoning part stands for. The API checks that it wrote the thinking itself, so only what has its signature can be sent: not that
/// of a reply which was cut, nor that of another model. The summary of a conversation is no thinking and is sent in any case.
fn thinking(part: &Value, policy: Policy) -> Option<Value> {
    let facts = server_tools::facts(part, "providerMetadata")?;
    if let Some(summary) = string(facts, "compaction").filter(|summary| !summary.is_empty()) {
        return Some(json!({"type": "compaction", "content": summary}));
    }
    if !policy.thinking {
        return None;
    }
    if let Some(signature) = string(facts, "signature").filter(|signature| !signature.is_empty()) {
        let text = string(part, "text").unwrap_or_default();
        return Some(json!({"type": "thinking", "thinking": text, "signature": signature}));
    }
    let data = string(facts, "redactedData").filter(|data| !data.is_empty())?;
    Some(json!({"type": "redacted_thinking", "data": data}))
}

/// A call that the client executed, and its result.
fn client_call(part: &Value, call: Call, sent: &HashSet<&str>, conversation: &mut Conversation) -> (Value, Value) {
    let Call { id, name, input, result } = call;
    let id = conversation.call(&id, &name);
    let caller = server_tools::facts(part, "callProviderMetadata").and_then(server_tools::caller);
    let caller = caller.filter(|caller| server_tools::called_by(caller).is_none_or(|by| sent.contains(by)));
    let block = json!({"type": "tool_use", "id": id, "name": name, "input": input});
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
    (server_tools::with_caller(block, caller), answer)
}

/// Where the code of the reply's calls runs, as the API named it.
pub fn container(message: &Value) -> Option<&str> {
    let facts = server_tools::facts(message, "metadata")?;
    string(facts.get("container")?, "id").filter(|id| !id.is_empty())
}

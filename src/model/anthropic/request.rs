//! Address, headers and body of the request.

use serde_json::{Map, Value, json};

use super::conversation::Conversation;
use super::messages::{Policy, add, container, system_text};
use super::settings::{AnthropicSettings, KeyHeader};
use crate::model::history::newest_turns;
use crate::model::settings::{self, all_headers, key_of_secret};
use crate::model::tools::Tool;
use crate::model::values::string;

/// The path of the API below its base.
const PATH: &str = "/messages";

/// Most answers that one run asks for, when the API pauses a long turn again and again. The last one ends the run, paused or not.
pub const MAX_ANSWERS: u32 = 16;

/// Begins the ids of an answer's parts, so that those of a run's answers differ.
pub fn id_prefix(of_run: &str, answer: u32) -> String {
    if answer == 1 { of_run.to_owned() } else { format!("{of_run}{answer}.") }
}

/// The address to POST to: the base with the API's path, unless it has it already. A query stays at the end.
pub fn endpoint(base_url: &str) -> String {
    settings::endpoint(base_url, PATH)
}

/// The request's headers, names in lower case. `key` is the secret's value, when the settings name one. The settings' own headers win.
pub fn headers(settings: &AnthropicSettings, key: Option<&str>) -> Vec<(String, String)> {
    let mut api = vec![("anthropic-version".to_owned(), settings.version.clone())];
    api.extend(settings.beta.iter().map(|beta| ("anthropic-beta".to_owned(), beta.clone())));
    api.extend(key_of_secret(key).map(|key| match settings.key_header {
        KeyHeader::ApiKey => ("x-api-key".into(), key.to_owned()),
        KeyHeader::Authorization => ("authorization".into(), format!("Bearer {key}")),
    }));
    all_headers(api, &settings.headers)
}

/// The request's body for a conversation of stored UI messages, of which the newest turns within the settings' bounds are sent.
pub fn request_body(settings: &AnthropicSettings, history: &[Value]) -> Map<String, Value> {
    let mut body = settings.body.clone();
    let policy = Policy {
        thinking: settings.send_reasoning,
        server_tools: !settings.server_tools.is_empty() || body.contains_key("mcp_servers"),
    };
    let mut conversation = Conversation::default();
    let mut system: Vec<String> = settings.system.iter().cloned().collect();
    // The reply that is not over, if the request asks for more of one.
    let open = history.last().filter(|last| string(last, "role") == Some("assistant"));
    for message in newest_turns(history, settings.max_history, settings.max_history_bytes) {
        system.extend(system_text(message));
        let goes_on = open.is_some_and(|open| std::ptr::eq(open, message));
        add(message, goes_on, policy, &mut conversation);
    }
    // A container lives for minutes, so a later turn gets one of its own.
    if let Some(id) = open.and_then(container).filter(|_| policy.server_tools) {
        body.insert("container".into(), id.into());
    }
    body.insert("model".into(), settings.model.clone().into());
    body.insert("max_tokens".into(), settings.max_tokens.into());
    if !system.is_empty() {
        body.insert("system".into(), system.join("\n\n").into());
    }
    if let Some(thinking) = &settings.thinking {
        // The API demands that a turn which goes on with thinking began with it: it does not, if another agent or another setting began.
        let demands = thinking.get("type").is_some_and(|kind| kind == "enabled");
        if !(demands && conversation.goes_on_without_thinking()) {
            body.insert("thinking".into(), thinking.clone().into());
        }
    }
    tools(settings, conversation.called(), &mut body);
    body.insert("messages".into(), conversation.finish().into());
    body.insert("stream".into(), true.into());
    body
}

fn tools(settings: &AnthropicSettings, called: &[String], body: &mut Map<String, Value>) {
    let mut tools: Vec<Value> = settings.tools.iter().map(declaration).collect();
    tools.extend(settings.server_tools.iter().cloned());
    if tools.is_empty() {
        // The API refuses the key where there are no tools.
        body.remove("tool_choice");
        // Calls in the history must be of a request with tools. An agent without any, in a session where another had some, declares
        // them, and that none is to be called.
        if called.is_empty() {
            return;
        }
        tools.extend(called.iter().map(|name| json!({"name": name, "input_schema": {"type": "object"}})));
        body.insert("tool_choice".into(), json!({"type": "none"}));
    }
    body.insert("tools".into(), tools.into());
}

fn declaration(tool: &Tool) -> Value {
    let mut declared = Map::new();
    declared.insert("name".into(), tool.name.clone().into());
    if let Some(description) = &tool.description {
        declared.insert("description".into(), description.clone().into());
    }
    declared.insert("input_schema".into(), tool.input_schema.clone());
    if let Some(strict) = tool.strict {
        declared.insert("strict".into(), strict.into());
    }
    Value::Object(declared)
}

//! Address, headers and body of the request.

use serde_json::{Map, Value, json};

use super::conversation::Conversation;
use super::messages::add;
use super::settings::{KeyHeader, OpenAiSettings};
use crate::model::history::newest_turns;
use crate::model::settings::{self, all_headers, key_of_secret};
use crate::model::tools::Tool;

/// The path of the API below its base.
const PATH: &str = "/chat/completions";

/// The address to POST to: the base with the API's path, unless it has it already. A query (Azure's `api-version`) stays at the end.
pub fn endpoint(base_url: &str) -> String {
    settings::endpoint(base_url, PATH)
}

/// The request's headers, names in lower case. `key` is the secret's value, when the settings name one. The settings' own headers win.
pub fn headers(settings: &OpenAiSettings, key: Option<&str>) -> Vec<(String, String)> {
    let key = key_of_secret(key).map(|key| match settings.key_header {
        KeyHeader::Authorization => ("authorization".into(), format!("Bearer {key}")),
        KeyHeader::ApiKey => ("api-key".into(), key.to_owned()),
    });
    all_headers(key.into_iter().collect(), &settings.headers)
}

/// The request's body for a conversation of stored UI messages, of which the newest turns within the settings' bounds are sent.
pub fn request_body(settings: &OpenAiSettings, history: &[Value]) -> Map<String, Value> {
    let mut conversation = Conversation::new(settings.send_reasoning);
    if let Some(system) = &settings.system {
        conversation.system(system.clone());
    }
    let origin = settings.origin();
    for message in newest_turns(history, settings.max_history, settings.max_history_bytes) {
        add(message, &origin, &mut conversation);
    }
    let mut body = settings.body.clone();
    body.insert("model".into(), settings.model.clone().into());
    body.insert("messages".into(), conversation.finish().into());
    if settings.tools.is_empty() {
        // The API refuses these where there are no tools.
        body.remove("tool_choice");
        body.remove("parallel_tool_calls");
    } else {
        body.insert("tools".into(), settings.tools.iter().map(declaration).collect());
    }
    body.insert("stream".into(), true.into());
    if settings.include_usage {
        body.insert("stream_options".into(), json!({"include_usage": true}));
    }
    body
}

fn declaration(tool: &Tool) -> Value {
    let mut function = Map::new();
    function.insert("name".into(), tool.name.clone().into());
    if let Some(description) = &tool.description {
        function.insert("description".into(), description.clone().into());
    }
    function.insert("parameters".into(), tool.input_schema.clone());
    if let Some(strict) = tool.strict {
        function.insert("strict".into(), strict.into());
    }
    json!({"type": "function", "function": function})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fields::Fields;

    fn settings(value: Value) -> OpenAiSettings {
        OpenAiSettings::parse(Fields::of("x", "", value).unwrap()).unwrap()
    }

    #[test]
    fn finds_the_endpoint() {
        assert_eq!(endpoint("https://a.test/v1"), "https://a.test/v1/chat/completions");
        assert_eq!(endpoint("https://a.test/chat/completions?x=1"), "https://a.test/chat/completions?x=1");
    }

    #[test]
    fn sends_the_key_in_the_header_that_is_asked_for() {
        let has = |headers: &[(String, String)], name: &str, value: &str| {
            headers.iter().any(|(own, other)| own == name && other == value)
        };
        let plain = settings(json!({"model": "m"}));
        assert!(has(&headers(&plain, Some("k\n")), "authorization", "Bearer k"));
        assert_eq!(headers(&plain, None).len(), 2);
        let azure = settings(json!({"model": "m", "keyHeader": "api-key", "headers": {"Accept": "*/*"}}));
        let sent = headers(&azure, Some("k"));
        assert!(has(&sent, "api-key", "k") && has(&sent, "accept", "*/*"));
        assert_eq!(sent.len(), 3);
    }

    #[test]
    fn writes_the_body() {
        let settings = settings(json!({
            "model": "m", "system": "s", "temperature": 0, "maxHistory": 1, "toolChoice": "auto",
            "tools": [{"name": "f", "description": "d", "inputSchema": {"type": "object"}}],
        }));
        let history = [
            json!({"role": "user", "parts": [{"type": "text", "text": "old"}]}),
            json!({"role": "user", "parts": [{"type": "text", "text": "new"}]}),
        ];
        assert_eq!(
            Value::Object(request_body(&settings, &history)),
            json!({
                "temperature": 0, "tool_choice": "auto", "model": "m",
                "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "new"}],
                "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}],
                "stream": true, "stream_options": {"include_usage": true},
            })
        );
    }
}

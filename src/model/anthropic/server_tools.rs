//! Calls that the API executes itself (web search, code execution, MCP). A reply keeps them as calls executed by the provider, with a
//! mark of what they were, so that the next request can give them back as the API wrote them.

use serde_json::{Value, json};

use crate::model::tools::in_alphabet;
use crate::model::values::string;

/// The provider's name in `providerMetadata`.
pub const PROVIDER: &str = "anthropic";

/// Metadata of this provider, in the form that clients accept: an object of objects.
pub fn metadata(facts: Value) -> Value {
    json!({PROVIDER: facts})
}

/// What a part's metadata under this key says about this provider.
pub fn facts<'a>(part: &'a Value, key: &str) -> Option<&'a Value> {
    part.get(key)?.get(PROVIDER)
}

/// The mark of a call, from its content block. `None` for calls that the client executes.
pub fn mark(block: &Value) -> Option<Value> {
    let mark = match string(block, "type")? {
        "server_tool_use" => json!({"type": "server_tool_use"}),
        "mcp_tool_use" => {
            json!({"type": "mcp-tool-use", "serverName": string(block, "server_name").unwrap_or_default()})
        }
        _ => return None,
    };
    Some(with_caller(mark, caller(block)))
}

/// Who made a call: the model itself, or the code of another call, which `tool_id` names. The API wants the word back.
pub fn caller(holder: &Value) -> Option<&Value> {
    holder.get("caller").filter(|caller| caller.is_object())
}

/// The call whose code made the call that has this caller.
pub fn called_by(caller: &Value) -> Option<&str> {
    string(caller, "tool_id").filter(|id| !id.is_empty())
}

/// Facts with the caller among them.
pub fn with_caller(mut facts: Value, caller: Option<&Value>) -> Value {
    if let (Some(map), Some(caller)) = (facts.as_object_mut(), caller) {
        map.insert("caller".into(), caller.clone());
    }
    facts
}

/// The mark of a result, from its content block. `deferred`: it came in a later answer than its call.
pub fn result_mark(block: &Value, deferred: bool) -> Value {
    let mut mark = with_caller(json!({"type": string(block, "type").unwrap_or_default()}), caller(block));
    if let Some(map) = mark.as_object_mut().filter(|_| deferred) {
        map.insert(DEFERRED.into(), true.into());
    }
    mark
}

/// See [`result_mark`].
const DEFERRED: &str = "deferred";

/// Whether a stored call's result came in a later answer than the call.
pub fn is_deferred(part: &Value) -> bool {
    facts(part, "resultProviderMetadata").and_then(|facts| facts.get(DEFERRED)) == Some(&Value::Bool(true))
}

/// Whether a content block is the result of such a call.
pub fn is_result(block: &Value) -> bool {
    string(block, "type").is_some_and(|kind| kind.ends_with("_tool_result"))
}

/// What went wrong, when the result is an error: the API's word for it, or an MCP server's text.
pub fn error_of(block: &Value) -> Option<String> {
    let content = block.get("content").unwrap_or(&Value::Null);
    if string(content, "type").is_some_and(|kind| kind.ends_with("_error")) {
        return Some(string(content, "error_code").unwrap_or(UNAVAILABLE).to_owned());
    }
    if block.get("is_error") != Some(&Value::Bool(true)) {
        return None;
    }
    let text = match content {
        Value::String(text) => text.clone(),
        Value::Array(list) => list.iter().filter_map(|item| string(item, "text")).collect::<Vec<_>>().join("\n"),
        _ => String::new(),
    };
    Some(if text.trim().is_empty() { UNAVAILABLE.to_owned() } else { text })
}

/// The API's word for an error without a word.
const UNAVAILABLE: &str = "unavailable";

/// The web pages that a result names, as address and title.
pub fn sources(block: &Value) -> Vec<(&str, Option<&str>)> {
    let content = block.get("content").unwrap_or(&Value::Null);
    let results = match content {
        Value::Array(list) => list.as_slice(),
        one => std::slice::from_ref(one),
    };
    let page = |result| match string(result, "type")? {
        "web_search_result" => Some((string(result, "url")?, string(result, "title"))),
        "web_fetch_result" => {
            Some((string(result, "url")?, result.get("content").and_then(|content| string(content, "title"))))
        }
        _ => None,
    };
    results.iter().filter_map(page).collect()
}

/// Whether a tool part of a stored reply is such a call.
pub fn is_marked(part: &Value) -> bool {
    facts(part, "callProviderMetadata")
        .and_then(|facts| string(facts, "type"))
        .is_some_and(|kind| matches!(kind, "server_tool_use" | "mcp-tool-use"))
}

/// A stored call of the API's own tools, as the API wrote it.
pub struct Written {
    /// The call's content block.
    pub call: Value,
    /// Its result's; `None` while the API owes it.
    pub result: Option<Value>,
}

/// The call and its result as the API wrote them. `None` for what the API would refuse: an id that is not its own, an input or an output
/// of another form.
pub fn written(part: &Value, name: &str) -> Option<Written> {
    let mark = facts(part, "callProviderMetadata")?;
    let id = string(part, "toolCallId").filter(|id| !id.is_empty() && in_alphabet(id, 256) == *id)?;
    let input = part.get("input").filter(|input| input.is_object())?;
    let failed = match string(part, "state")? {
        "output-available" => None,
        "output-error" => Some(string(part, "errorText").unwrap_or(UNAVAILABLE)),
        "input-available" => return Some(Written { call: call_block(mark, id, name, input)?, result: None }),
        _ => return None,
    };
    let output = || part.get("output").filter(|output| output.is_array() || output.is_object()).cloned();
    let call = call_block(mark, id, name, input)?;
    let said = facts(part, "resultProviderMetadata");
    if string(mark, "type") == Some("mcp-tool-use") {
        let content = match failed {
            Some(text) => json!([{"type": "text", "text": text}]),
            None => output()?,
        };
        let result =
            json!({"type": "mcp_tool_result", "tool_use_id": id, "is_error": failed.is_some(), "content": content});
        return Some(Written { call, result: Some(result) });
    }
    let kind = said.and_then(|facts| string(facts, "type")).filter(|kind| kind.ends_with("_tool_result"));
    let kind = kind.map_or_else(|| result_type(name), str::to_owned);
    let content = match failed {
        Some(word) => {
            let is_word = !word.is_empty() && word.bytes().all(|c| c.is_ascii_lowercase() || c == b'_');
            json!({"type": format!("{kind}_error"), "error_code": if is_word { word } else { UNAVAILABLE }})
        }
        None => output()?,
    };
    let result = json!({"type": kind, "tool_use_id": id, "content": content});
    Some(Written { call, result: Some(with_caller(result, said.and_then(caller))) })
}

fn call_block(mark: &Value, id: &str, name: &str, input: &Value) -> Option<Value> {
    if string(mark, "type") == Some("mcp-tool-use") {
        let server = string(mark, "serverName").filter(|server| !server.is_empty())?;
        return Some(json!({"type": "mcp_tool_use", "id": id, "name": name, "server_name": server, "input": input}));
    }
    let call = json!({"type": "server_tool_use", "id": id, "name": name, "input": input});
    Some(with_caller(call, caller(mark)))
}

/// The type of a result by its tool's name, for replies whose client did not keep the result's mark.
fn result_type(name: &str) -> String {
    if name.starts_with("tool_search_tool") {
        return "tool_search_tool_result".to_owned();
    }
    format!("{name}_tool_result")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(state: &str, extra: Value) -> Value {
        let mut part = json!({
            "type": "dynamic-tool", "toolName": "web_search", "toolCallId": "srvtoolu_1", "state": state, "input": {"query": "q"},
            "providerExecuted": true, "callProviderMetadata": {"anthropic": {"type": "server_tool_use"}},
        });
        part.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        part
    }

    #[test]
    fn calls_and_results_come_back_as_they_were() {
        let call =
            json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}});
        let result =
            |content: Value| json!({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": content});
        let sent = |part: Value| written(&part, "web_search").map(|written| (written.call, written.result));
        assert_eq!(
            sent(part("output-available", json!({"output": []}))),
            Some((call.clone(), Some(result(json!([])))))
        );
        for (text, word) in [("max_uses_exceeded", "max_uses_exceeded"), ("It failed.", "unavailable")] {
            let error = json!({"type": "web_search_tool_result_error", "error_code": word});
            assert_eq!(
                sent(part("output-error", json!({"errorText": text}))),
                Some((call.clone(), Some(result(error))))
            );
        }
        assert_eq!(sent(part("input-available", json!({}))), Some((call, None)));
        assert_eq!(sent(part("input-streaming", json!({}))), None);
        assert_eq!(sent(part("output-available", json!({"output": "text"}))), None);
        assert_eq!(sent(part("output-available", json!({"output": [], "toolCallId": "a b"}))), None);
    }

    #[test]
    fn an_mcp_call_names_its_server() {
        let mark = json!({"callProviderMetadata": {"anthropic": {"type": "mcp-tool-use", "serverName": "s"}}, "output": [], "errorText": "e"});
        let Written { call, result } = written(&part("output-error", mark), "f").unwrap();
        assert_eq!((string(&call, "server_name"), string(&call, "type")), (Some("s"), Some("mcp_tool_use")));
        assert_eq!(result.unwrap()["content"], json!([{"type": "text", "text": "e"}]));
    }

    #[test]
    fn finds_errors_and_sources() {
        let failed = json!({"type": "web_fetch_tool_result", "content": {"type": "web_fetch_tool_result_error", "error_code": "url_not_accessible"}});
        assert_eq!(error_of(&failed).as_deref(), Some("url_not_accessible"));
        assert!(sources(&failed).is_empty());
        let mcp = json!({"type": "mcp_tool_result", "is_error": true, "content": [{"type": "text", "text": "no"}]});
        assert_eq!(error_of(&mcp).as_deref(), Some("no"));
        let fetched =
            json!({"content": {"type": "web_fetch_result", "url": "https://a.test", "content": {"title": "A"}}});
        assert_eq!(sources(&fetched), [("https://a.test", Some("A"))]);
        assert_eq!(error_of(&fetched), None);
        assert_eq!(result_type("tool_search_tool_bm25"), "tool_search_tool_result");
    }
}

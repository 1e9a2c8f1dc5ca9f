//! What a valid UI message is (`spec/ai-sdk.md` A.8): what every version's `validateUIMessages` accepts.

use serde_json::{Map, Value};
use thiserror::Error;

use super::vocabulary::Type;

/// Why a value is not a UI message: where, and what to change.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{path}: {problem}")]
pub struct Invalid {
    /// Place of the fault in the message, for example `parts[2].output`.
    pub path: String,
    /// What to change.
    pub problem: &'static str,
}

impl Invalid {
    pub(super) fn new(path: impl Into<String>, problem: &'static str) -> Self {
        Self { path: path.into(), problem }
    }
}

/// Checks one message whole. Keys that nobody knows are allowed, as in the clients' own validator.
///
/// # Errors
/// [`Invalid`] names the first fault.
pub fn validate_message(message: &Value) -> Result<(), Invalid> {
    let parts = validate_outline(message)?;
    if parts.is_empty() {
        return Err(Invalid::new("parts", "a message must have at least one part"));
    }
    for (at, part) in parts.iter().enumerate() {
        validate_part(part).map_err(|(key, problem)| {
            let path = if key.is_empty() { format!("parts[{at}]") } else { format!("parts[{at}].{key}") };
            Invalid { path, problem }
        })?;
    }
    Ok(())
}

/// Longest message id, in bytes (`spec/helix.md` section 9 bounds ids so).
const MAX_ID_BYTES: usize = 256;

/// Checks a message's own keys and returns its parts unread.
pub(super) fn validate_outline(message: &Value) -> Result<&Vec<Value>, Invalid> {
    let Some(map) = message.as_object() else { return Err(Invalid::new("message", "a message must be an object")) };
    match map.get("id").and_then(Value::as_str) {
        Some(id) if (1..=MAX_ID_BYTES).contains(&id.len()) => {}
        _ => return Err(Invalid::new("id", "a message must have an id, a string of 1 to 256 bytes")),
    }
    if !matches!(map.get("role").and_then(Value::as_str), Some("system" | "user" | "assistant")) {
        return Err(Invalid::new("role", "a message's role must be system, user or assistant"));
    }
    match map.get("parts") {
        Some(Value::Array(parts)) => Ok(parts),
        _ => Err(Invalid::new("parts", "a message must have an array of parts")),
    }
}

/// The faulty key and what to change.
type Fault = (&'static str, &'static str);

fn validate_part(part: &Value) -> Result<(), Fault> {
    let Some(map) = part.as_object() else { return Err(("", "a part must be an object")) };
    let Some(kind) = map.get("type").and_then(Value::as_str) else {
        return Err(("type", "a part must have a string type"));
    };
    match kind {
        "text" | "reasoning" => {
            need(map, "text")?;
            if let Some(state) = map.get("state")
                && !matches!(state.as_str(), Some("streaming" | "done"))
            {
                return Err(("state", "must be streaming or done"));
            }
            may(map, "id", Type::Text)?;
            may(map, "citations", Type::Citations)?;
        }
        "file" => {
            need(map, "mediaType")?;
            need(map, "url")?;
            may(map, "filename", Type::Text)?;
        }
        "reasoning-file" => {
            need(map, "mediaType")?;
            need(map, "url")?;
        }
        "source-url" => {
            need(map, "sourceId")?;
            need(map, "url")?;
            may(map, "title", Type::Text)?;
        }
        "source-document" => {
            need(map, "sourceId")?;
            need(map, "mediaType")?;
            need(map, "title")?;
            may(map, "filename", Type::Text)?;
        }
        "custom" => need(map, "kind")?,
        "steering-message" => {
            need(map, "id")?;
            if !map.get("parts").is_some_and(|parts| Type::Steering.fits(parts)) {
                return Err(("parts", "must be an array of text and file parts"));
            }
        }
        "step-start" => return Ok(()),
        "dynamic-tool" => {
            need(map, "toolName")?;
            return validate_tool(map);
        }
        _ if kind.starts_with("tool-") => return validate_tool(map),
        _ if kind.starts_with("data-") => {
            may(map, "id", Type::Text)?;
            return if map.contains_key("data") { Ok(()) } else { Err(("data", "a data part must have data")) };
        }
        _ => return Err(("type", "not a known part type")),
    }
    may(map, "providerMetadata", Type::Metadata)
}

fn validate_tool(part: &Map<String, Value>) -> Result<(), Fault> {
    need(part, "toolCallId")?;
    may(part, "title", Type::Text)?;
    may(part, "providerExecuted", Type::Flag)?;
    may(part, "toolMetadata", Type::Object)?;
    may(part, "callProviderMetadata", Type::Metadata)?;
    may(part, "resultProviderMetadata", Type::Metadata)?;
    let state = part.get("state").and_then(Value::as_str).unwrap_or_default();
    if !matches!(state, "input-streaming" | "output-error") && !part.contains_key("input") {
        return Err(("input", "a tool part in this state must have its input"));
    }
    let (output, error) = match state {
        "input-streaming" | "input-available" | "approval-requested" | "approval-responded" | "output-denied" => {
            (false, false)
        }
        "output-available" => (true, false),
        "output-error" => (false, true),
        _ => return Err(("state", "a tool part must have one of the known states")),
    };
    if part.contains_key("output") != output {
        return Err(("output", "must be there in the state output-available and in no other"));
    }
    if error {
        need(part, "errorText")?;
    } else if part.contains_key("errorText") {
        return Err(("errorText", "must be there in the state output-error and in no other"));
    }
    may(part, "preliminary", Type::Flag)?;
    validate_approval(part, state)
}

fn validate_approval(part: &Map<String, Value>, state: &str) -> Result<(), Fault> {
    let Some(approval) = part.get("approval") else {
        return match state {
            "approval-requested" | "approval-responded" | "output-denied" => {
                Err(("approval", "a tool part in this state must have its approval"))
            }
            _ => Ok(()),
        };
    };
    if !approval.get("id").is_some_and(Value::is_string) {
        return Err(("approval", "an approval must be an object with a string id"));
    }
    if approval.get("signature").is_some_and(|value| !value.is_string()) {
        return Err(("approval", "an approval's signature must be a string"));
    }
    let reason_ok = approval.get("reason").is_none_or(Value::is_string);
    let approved = approval.get("approved");
    let granted = approved.and_then(Value::as_bool);
    let fine = match state {
        "approval-requested" => approved.is_none() && approval.get("reason").is_none(),
        "approval-responded" => granted.is_some() && reason_ok,
        "output-available" | "output-error" => granted == Some(true) && reason_ok,
        "output-denied" => granted == Some(false) && reason_ok,
        _ => false,
    };
    if fine { Ok(()) } else { Err(("approval", "does not fit the tool part's state")) }
}

fn need(part: &Map<String, Value>, key: &'static str) -> Result<(), Fault> {
    if part.get(key).is_some_and(Value::is_string) { Ok(()) } else { Err((key, "must be a string")) }
}

fn may(part: &Map<String, Value>, key: &'static str, kind: Type) -> Result<(), Fault> {
    if part.get(key).is_none_or(|value| kind.fits(value)) { Ok(()) } else { Err((key, "has a value of another type")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(part: Value) -> Result<(), Invalid> {
        validate_message(&json!({"id": "m", "role": "assistant", "parts": [part]}))
    }

    #[test]
    fn accepts_every_part_type() {
        for part in [
            json!({"type": "text", "text": "", "state": "streaming", "providerMetadata": {"p": {}}}),
            json!({"type": "reasoning", "text": "x", "id": "r"}),
            json!({"type": "step-start"}),
            json!({"type": "file", "mediaType": "image/png", "url": "data:", "filename": "f"}),
            json!({"type": "source-url", "sourceId": "s", "url": "u"}),
            json!({"type": "source-document", "sourceId": "s", "mediaType": "m", "title": "t"}),
            json!({"type": "data-x", "data": null}),
            json!({"type": "custom", "kind": "a.b"}),
            json!({"type": "tool-x", "toolCallId": "c", "state": "input-streaming"}),
            json!({"type": "tool-x", "toolCallId": "c", "state": "input-available", "input": null}),
            json!({"type": "tool-x", "toolCallId": "c", "state": "approval-requested", "input": 1, "approval": {"id": "a"}}),
            json!({"type": "tool-x", "toolCallId": "c", "state": "approval-responded", "input": 1, "approval": {"id": "a", "approved": false, "reason": "r"}}),
            json!({"type": "dynamic-tool", "toolName": "x", "toolCallId": "c", "state": "output-available", "input": 1, "output": null, "preliminary": true}),
            json!({"type": "tool-x", "toolCallId": "c", "state": "output-error", "errorText": "e"}),
            json!({"type": "tool-x", "toolCallId": "c", "state": "output-denied", "input": 1, "approval": {"id": "a", "approved": false}}),
        ] {
            assert_eq!(check(part.clone()), Ok(()), "{part}");
        }
    }

    #[test]
    fn names_what_to_change() {
        for (part, path) in [
            (json!("text"), "parts[0]"),
            (json!({"type": 1}), "parts[0].type"),
            (json!({"type": "image"}), "parts[0].type"),
            (json!({"type": "text"}), "parts[0].text"),
            (json!({"type": "text", "text": "x", "state": null}), "parts[0].state"),
            (json!({"type": "text", "text": "x", "providerMetadata": {"flat": 1}}), "parts[0].providerMetadata"),
            (json!({"type": "data-x"}), "parts[0].data"),
            (json!({"type": "tool-x", "toolCallId": "c"}), "parts[0].input"),
            (json!({"type": "tool-x", "toolCallId": "c", "input": 1}), "parts[0].state"),
            (json!({"type": "tool-x", "state": "input-streaming"}), "parts[0].toolCallId"),
            (json!({"type": "dynamic-tool", "toolCallId": "c", "state": "input-streaming"}), "parts[0].toolName"),
            (json!({"type": "tool-x", "toolCallId": "c", "state": "output-available", "input": 1}), "parts[0].output"),
            (
                json!({"type": "tool-x", "toolCallId": "c", "state": "input-available", "input": 1, "approval": {"id": "a"}}),
                "parts[0].approval",
            ),
            (json!({"type": "tool-x", "toolCallId": "c", "state": "output-denied", "input": 1}), "parts[0].approval"),
            (json!({"type": "tool-x", "toolCallId": "c", "state": "output-error"}), "parts[0].errorText"),
            (
                json!({"type": "tool-x", "toolCallId": "c", "state": "output-available", "input": 1, "output": 1, "approval": {"id": "a", "approved": false}}),
                "parts[0].approval",
            ),
        ] {
            assert_eq!(check(part.clone()).unwrap_err().path, path, "{part}");
        }
    }

    #[test]
    fn a_message_needs_id_role_and_parts() {
        for (message, path) in [
            (json!([]), "message"),
            (json!({"role": "user", "parts": []}), "id"),
            (json!({"id": "m", "role": "tool", "parts": []}), "role"),
            (json!({"id": "m", "role": "user", "content": "old"}), "parts"),
            (json!({"id": "m", "role": "assistant", "parts": []}), "parts"),
        ] {
            assert_eq!(validate_message(&message).unwrap_err().path, path);
        }
    }
}

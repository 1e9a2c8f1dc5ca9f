//! A stored chunk, or a committed message, as one client generation accepts it.
//!
//! The log keeps what the producer said; each response leaves out what its client would refuse. Clients up to 6.0.230
//! and 7.0.0 to 7.0.31 refuse the whole response for one unknown key (`spec/ai-sdk.md` A.2).

use serde_json::{Map, Value};

use super::vocabulary::{Floor, Type, finish_reason, shape};
use crate::core::chunk::Chunk;

/// The frame for one stored chunk, or `None` when chat clients of this floor must not see it: lifecycle chunks, types
/// that are unknown or newer than the floor, and chunks without a required key.
///
/// Keys that the protocol does not have (bookkeeping among them), optional keys that are `null`, ill-typed or newer
/// than the floor are left out; a required key of any type stays, `null` too.
pub fn sanitise(chunk: Chunk, floor: Floor) -> Option<Map<String, Value>> {
    let shape = shape(chunk.kind())?;
    if !floor.knows(shape.since) || shape.lacks(chunk.as_map()).is_some() {
        return None;
    }
    let mut frame = Map::new();
    for (name, mut value) in chunk.into_map() {
        if name == "type" {
            frame.insert(name, value);
            continue;
        }
        let Some(key) = shape.key(&name) else { continue };
        let keep = key.required || (floor.knows(key.since) && !value.is_null() && key.kind.fits(&value));
        if !keep {
            continue;
        }
        if key.kind == Type::FinishReason {
            value = finish_reason(value.as_str().unwrap_or_default(), floor).into();
        }
        escape_keys(&mut value);
        frame.insert(name, value);
    }
    Some(frame)
}

/// A committed UI message for a client of this floor: parts of newer types are left out, a failed tool call has the
/// `input` key that 6.0.0 wants, and all keys are escaped. `None` when no part remains (6.0.0 refuses an empty message).
pub fn sanitise_message(mut message: Value, floor: Floor) -> Option<Value> {
    let parts = message.get_mut("parts").and_then(Value::as_array_mut)?;
    parts.retain(|part| part.get("type").and_then(Value::as_str).is_some_and(|kind| part_is_known(kind, floor)));
    if parts.is_empty() {
        return None;
    }
    for part in parts.iter_mut().filter_map(Value::as_object_mut) {
        if part.get("state").and_then(Value::as_str) == Some("output-error") {
            // 7.x warns of the key, and reads `input`.
            let raw = part.shift_remove("rawInput");
            part.entry("input").or_insert(raw.unwrap_or_default());
        }
    }
    escape_keys(&mut message);
    Some(message)
}

/// Parts that only 7.x has are named as the chunks that bring them.
fn part_is_known(kind: &str, floor: Floor) -> bool {
    match kind {
        "custom" | "reasoning-file" | "steering-message" => shape(kind).is_some_and(|shape| floor.knows(shape.since)),
        _ => true,
    }
}

/// Renames, at any depth, the keys for which the AI SDK's prototype guard refuses a whole JSON text.
///
/// `__proto__` becomes `$__proto__`; `constructor` becomes `$constructor` when its value is an object with a
/// `prototype` key, or `null` (on which the guard of 6.0.0 throws). When the new name is taken, further `$` are put in
/// front. Doing it twice changes nothing.
pub fn escape_keys(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(escape_keys),
        Value::Object(map) => {
            if map.iter().any(|(key, value)| is_refused(key, value)) {
                *map = renamed(std::mem::take(map));
            }
            map.values_mut().for_each(escape_keys);
        }
        _ => {}
    }
}

/// Whether [`escape_keys`] would change the value.
pub fn has_refused_keys(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(has_refused_keys),
        Value::Object(map) => map.iter().any(|(key, value)| is_refused(key, value) || has_refused_keys(value)),
        _ => false,
    }
}

fn is_refused(key: &str, value: &Value) -> bool {
    match key {
        "__proto__" => true,
        "constructor" => value.is_null() || value.get("prototype").is_some(),
        _ => false,
    }
}

fn renamed(map: Map<String, Value>) -> Map<String, Value> {
    let free = |key: &str| {
        let mut name = format!("${key}");
        while map.contains_key(&name) {
            name.insert(0, '$');
        }
        name
    };
    let (proto, constructor) = (free("__proto__"), free("constructor"));
    map.into_iter()
        .map(|(key, value)| match key.as_str() {
            refused if !is_refused(refused, &value) => (key, value),
            "__proto__" => (proto.clone(), value),
            _ => (constructor.clone(), value),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn clean(value: Value, floor: &str) -> Value {
        sanitise(Chunk::parse(value).unwrap(), floor.parse().unwrap()).map_or(Value::Null, Value::Object)
    }

    #[test]
    fn bookkeeping_and_foreign_keys_go() {
        let stored = json!({"type": "text-delta", "id": "t", "delta": "a", "runId": "r", "attemptId": "r-1-1", "step": 1, "usage": {}});
        assert_eq!(clean(stored, "6.0.0"), json!({"type": "text-delta", "id": "t", "delta": "a"}));
    }

    #[test]
    fn lifecycle_unknown_and_broken_chunks_are_not_sent() {
        for chunk in [
            json!({"type": "run_started", "runId": "r"}),
            json!({"type": "step_committed", "committedAttemptId": "a"}),
            json!({"type": "text_delta", "delta": "x"}),
            json!({"type": "text-delta", "delta": "x"}),
            json!({"type": "text-delta", "id": 7, "delta": "x"}),
            json!({"type": "tool-input-available", "toolCallId": "c", "toolName": "t"}),
            json!({"type": "data-x", "id": "d"}),
            json!({"type": "source-document", "sourceId": "s", "mediaType": "m", "title": null}),
        ] {
            assert_eq!(clean(chunk.clone(), "7.0.173"), Value::Null, "{chunk}");
        }
    }

    #[test]
    fn optional_nulls_go_and_required_nulls_stay() {
        assert_eq!(
            clean(json!({"type": "start", "messageId": null, "messageMetadata": null}), "6.0.0"),
            json!({"type": "start"})
        );
        assert_eq!(clean(json!({"type": "finish", "finishReason": null}), "6.0.0"), json!({"type": "finish"}));
        for chunk in [
            json!({"type": "data-x", "data": null}),
            json!({"type": "tool-output-available", "toolCallId": "c", "output": null}),
            json!({"type": "message-metadata", "messageMetadata": null}),
        ] {
            assert_eq!(clean(chunk.clone(), "6.0.0"), chunk);
        }
    }

    #[test]
    fn what_the_floor_does_not_know_goes() {
        let abort = json!({"type": "abort", "reason": "user"});
        assert_eq!(clean(abort.clone(), "6.0.0"), json!({"type": "abort"}));
        assert_eq!(clean(abort.clone(), "6.0.15"), abort);
        let metadata = json!({"p": {"k": 1}});
        let output =
            json!({"type": "tool-output-available", "toolCallId": "c", "output": 1, "providerMetadata": metadata});
        assert_eq!(
            clean(output.clone(), "6.0.0"),
            json!({"type": "tool-output-available", "toolCallId": "c", "output": 1})
        );
        assert_eq!(clean(output.clone(), "6.0.230"), output);
        assert_eq!(
            clean(json!({"type": "file", "url": "u", "mediaType": "m", "filename": "f"}), "7.0.173"),
            json!({"type": "file", "url": "u", "mediaType": "m"})
        );
        let response = json!({"type": "tool-approval-response", "approvalId": "a", "approved": true});
        assert_eq!(clean(response.clone(), "6.0.326"), Value::Null);
        assert_eq!(clean(response.clone(), "7.0.0"), response);
    }

    #[test]
    fn ill_typed_options_go() {
        let chunk = json!({"type": "text-start", "id": "t", "providerMetadata": {"flat": 1}});
        assert_eq!(clean(chunk, "6.0.0"), json!({"type": "text-start", "id": "t"}));
        let chunk =
            json!({"type": "tool-input-start", "toolCallId": "c", "toolName": "t", "dynamic": "yes", "title": 3});
        assert_eq!(clean(chunk, "6.0.0"), json!({"type": "tool-input-start", "toolCallId": "c", "toolName": "t"}));
        assert_eq!(
            clean(json!({"type": "finish", "finishReason": "eos"}), "6.0.0"),
            json!({"type": "finish", "finishReason": "other"})
        );
        assert_eq!(clean(json!({"type": "finish", "finishReason": 1}), "6.0.0"), json!({"type": "finish"}));
    }

    #[test]
    fn prototype_keys_are_renamed_at_any_depth() {
        let mut value = json!({"a": [{"__proto__": {"x": 1}, "$__proto__": 2}], "constructor": {"prototype": {"constructor": null}}});
        escape_keys(&mut value);
        let escaped = json!({"a": [{"$$__proto__": {"x": 1}, "$__proto__": 2}], "$constructor": {"prototype": {"$constructor": null}}});
        assert_eq!(value, escaped);
        assert!(!has_refused_keys(&value));
        escape_keys(&mut value);
        assert_eq!(value, escaped);
        let mut harmless = json!({"constructor": "text", "prototype": {}, "b": {"constructor": {"name": "x"}}});
        escape_keys(&mut harmless);
        assert_eq!(harmless, json!({"constructor": "text", "prototype": {}, "b": {"constructor": {"name": "x"}}}));
    }

    #[test]
    fn a_frame_has_no_prototype_key() {
        let chunk =
            json!({"type": "tool-output-available", "toolCallId": "c", "output": {"__proto__": 1}, "__proto__": {}});
        assert_eq!(
            clean(chunk, "6.0.0"),
            json!({"type": "tool-output-available", "toolCallId": "c", "output": {"$__proto__": 1}})
        );
    }

    #[test]
    fn messages_lose_newer_parts_only() {
        let message = json!({"id": "m", "role": "assistant", "parts": [
            {"type": "custom", "kind": "a.b"},
            {"type": "tool-x", "toolCallId": "c", "state": "output-error", "errorText": "e", "rawInput": "{"},
        ]});
        let six = sanitise_message(message.clone(), Floor::default()).unwrap();
        assert_eq!(six["parts"].as_array().unwrap().len(), 1);
        assert_eq!(six["parts"][0]["input"], json!("{"));
        assert_eq!(sanitise_message(message, Floor::NEWEST).unwrap()["parts"].as_array().unwrap().len(), 2);
        let only = json!({"id": "m", "role": "assistant", "parts": [{"type": "custom", "kind": "a.b"}]});
        assert_eq!(sanitise_message(only, Floor::default()), None);
    }
}

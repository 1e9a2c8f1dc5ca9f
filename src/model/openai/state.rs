//! What a vendor wants back as it came: signatures of hidden thoughts, encrypted reasoning. It means nothing here, and the vendor refuses or
//! forgets without it.
//!
//! | key | vendor | where |
//! |---|---|---|
//! | `extra_content` (`google.thought_signature`) | Gemini, Vertex | a call, or the message |
//! | `provider_specific_fields`, `thought_signature` | LiteLLM and other gateways before Gemini | a call |
//! | `reasoning_details` with `data` or `signature` | OpenRouter | the message |
//! | `thinking_blocks` with `signature` or `data` | LiteLLM before Anthropic | the message |
//! | `reasoning_opaque` | GitHub Copilot | the message |
//! | `encrypted_content` | xAI | the message |
//!
//! A reply keeps it in the metadata of its parts, as `{"openai": {"from", "step", "call", "calls"}}`. `from` names the model that said it: to another,
//! which would refuse it, it is not sent.

use serde_json::{Map, Value, json};

use crate::core::error::{Code, Failure};
use crate::model::values::string;

/// The provider's name in `providerMetadata`.
const PROVIDER: &str = "openai";

/// Most bytes that one answer may have wanted back.
const MAX_BYTES: usize = 4 << 20;

/// Keys of a message.
const STEP_KEYS: [&str; 5] =
    ["extra_content", "reasoning_details", "thinking_blocks", "reasoning_opaque", "encrypted_content"];

/// Keys of a call.
const CALL_KEYS: [&str; 3] = ["extra_content", "provider_specific_fields", "thought_signature"];

/// What one holder, a message or a call, wants back.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    keys: Map<String, Value>,
}

impl State {
    /// Reads a delta, or a whole message, which repeats what came before it.
    ///
    /// # Errors
    /// `ProviderStreamInvalid` beyond the bound.
    pub fn read_step(&mut self, said: &Value, is_whole: bool) -> Result<(), Failure> {
        self.read(said, &STEP_KEYS, is_whole)
    }

    /// Reads a piece of a call.
    ///
    /// # Errors
    /// `ProviderStreamInvalid` beyond the bound.
    pub fn read_call(&mut self, piece: &Value, is_whole: bool) -> Result<(), Failure> {
        self.read(piece, &CALL_KEYS, is_whole)
    }

    /// What is to be kept, and leaves it empty. Lists without anything opaque are words, which are kept elsewhere.
    pub fn take(&mut self) -> Option<Value> {
        let mut keys = std::mem::take(&mut self.keys);
        keys.retain(|_, value| value.as_array().is_none_or(|list| list.iter().any(is_opaque)));
        (!keys.is_empty()).then_some(Value::Object(keys))
    }

    fn read(&mut self, holder: &Value, keys: &[&str], is_whole: bool) -> Result<(), Failure> {
        for key in keys {
            let Some(new) = holder.get(key).filter(|new| says_something(new)) else { continue };
            match self.keys.get_mut(*key) {
                Some(old) => merge(old, new, is_whole),
                None => {
                    let mut first = if new.is_array() { json!([]) } else { Value::Null };
                    merge(&mut first, new, is_whole);
                    self.keys.insert((*key).to_owned(), first);
                }
            }
            if self.keys.get(*key).map_or(0, size) > MAX_BYTES {
                return Err(Failure::new(Code::ProviderStreamInvalid, format!("the model's {key} is too long")));
            }
        }
        Ok(())
    }
}

/// Metadata for a part, in the form that clients accept: an object of objects. `None` when there is nothing to keep.
pub fn metadata<const N: usize>(from: &str, kept: [(&str, Option<Value>); N]) -> Option<Value> {
    let mut facts = Map::new();
    facts.insert("from".into(), from.into());
    facts.extend(kept.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
    (facts.len() > 1).then(|| json!({PROVIDER: facts}))
}

/// Metadata that only says who said the part.
pub fn mark(from: &str) -> Option<Value> {
    (!from.is_empty()).then(|| json!({PROVIDER: {"from": from}}))
}

/// What a stored part keeps for this model under `what`: `step` or `call`, or `calls`, a list with one entry for each call of the step.
pub fn kept<'a>(part: &'a Value, from: &str, what: &str) -> Option<&'a Value> {
    let holders = ["callProviderMetadata", "providerMetadata"].iter().filter_map(|key| part.get(key)?.get(PROVIDER));
    holders.filter(|facts| string(facts, "from") == Some(from)).find_map(|facts| facts.get(what))
}

/// Whether a stored part was said by this model.
pub fn is_of(part: &Value, from: &str) -> bool {
    let facts = part.get("providerMetadata").and_then(|holder| holder.get(PROVIDER));
    facts.and_then(|facts| string(facts, "from")) == Some(from)
}

fn says_something(value: &Value) -> bool {
    match value {
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
        _ => false,
    }
}

fn is_opaque(entry: &Value) -> bool {
    ["data", "signature"].iter().any(|key| string(entry, key).is_some_and(|text| !text.is_empty()))
}

/// A further delta: objects merge, texts and lists go on, or say the same once more.
fn merge(old: &mut Value, new: &Value, is_whole: bool) {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            for (key, value) in new.iter().filter(|(_, value)| !value.is_null()) {
                match old.get_mut(key) {
                    Some(inner) => merge(inner, value, is_whole),
                    None => {
                        old.insert(key.clone(), value.clone());
                    }
                }
            }
        }
        (Value::Array(old), Value::Array(new)) if is_whole => old.clone_from(new),
        (Value::Array(old), Value::Array(new)) => new.iter().for_each(|entry| go_on(old, entry)),
        (Value::String(old), Value::String(new)) if is_whole || new.starts_with(old.as_str()) => old.clone_from(new),
        (Value::String(old), Value::String(new)) => old.push_str(new),
        (old, new) => *old = new.clone(),
    }
}

/// Keys of a list's entry that come in pieces.
const PIECES: [&str; 4] = ["text", "summary", "thinking", "signature"];

/// An entry continues the last one of its index and type, unless that is whole: encrypted data is never cut.
fn go_on(list: &mut Vec<Value>, entry: &Value) {
    if list.contains(entry) {
        return;
    }
    let same = |key: &str, other: &Value| {
        other.get(key).filter(|value| !value.is_null()) == entry.get(key).filter(|value| !value.is_null())
    };
    let last = list.last_mut().filter(|last| same("index", last) && same("type", last));
    let goes_on = |last: &Value| {
        let other_id = last
            .get("id")
            .zip(entry.get("id"))
            .is_some_and(|(old, new)| old != new && !old.is_null() && !new.is_null());
        !other_id && string(last, "data").is_none() && string(entry, "data").is_none()
    };
    match last.filter(|last| goes_on(last)).and_then(Value::as_object_mut) {
        None => list.push(entry.clone()),
        Some(last) => {
            for (key, value) in entry.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()) {
                match (last.get_mut(key), value) {
                    (Some(Value::String(old)), Value::String(new)) if PIECES.contains(&key.as_str()) => {
                        old.push_str(new)
                    }
                    _ => {
                        last.insert(key.clone(), value.clone());
                    }
                }
            }
        }
    }
}

/// Bytes of all texts in a value.
fn size(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(size).fold(0, usize::saturating_add),
        Value::Object(map) => map.values().map(size).fold(0, usize::saturating_add),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(deltas: &[Value]) -> Option<Value> {
        let mut state = State::default();
        deltas.iter().for_each(|delta| state.read_step(delta, false).unwrap());
        state.take()
    }

    #[test]
    fn pieces_become_what_a_whole_message_would_hold() {
        let details = json!([
            {"type": "reasoning.text", "text": "I think", "signature": "S", "format": "f", "index": 0},
            {"type": "reasoning.encrypted", "data": "E", "id": "r1", "index": 1},
        ]);
        let deltas = [
            json!({"reasoning_details": [{"type": "reasoning.text", "text": "I ", "format": "f", "index": 0}]}),
            json!({"reasoning_details": [{"type": "reasoning.text", "text": "think", "signature": null, "index": 0}]}),
            json!({"reasoning_details": [{"type": "reasoning.text", "signature": "S", "index": 0}]}),
            json!({"reasoning_details": [{"type": "reasoning.encrypted", "data": "E", "id": "r1", "index": 1}]}),
            json!({"reasoning_details": [{"type": "reasoning.encrypted", "data": "E", "id": "r1", "index": 1}]}),
        ];
        let Some(kept) = read(&deltas) else { panic!() };
        assert_eq!(kept["reasoning_details"][0]["text"], "I think");
        assert_eq!(kept, json!({"reasoning_details": details}));
        let mut state = State::default();
        deltas.iter().for_each(|delta| state.read_step(delta, false).unwrap());
        state.read_step(&json!({"reasoning_details": details}), true).unwrap();
        assert_eq!(state.take(), Some(json!({"reasoning_details": details})));
    }

    #[test]
    fn words_alone_are_not_kept_twice() {
        assert_eq!(
            read(&[json!({"reasoning_details": [{"type": "reasoning.text", "text": "hm", "signature": null}]})]),
            None
        );
        assert_eq!(read(&[json!({"extra_content": {}, "reasoning_opaque": "", "content": "a"})]), None);
    }

    #[test]
    fn texts_and_objects_go_on() {
        let google = |text: &str| json!({"extra_content": {"google": {"thought_signature": text}}});
        assert_eq!(read(&[google("S"), google("S")]), Some(google("S")));
        let opaque = |text: &str| json!({"reasoning_opaque": text});
        assert_eq!(read(&[opaque("ab"), opaque("cd")]), Some(opaque("abcd")));
        assert_eq!(read(&[opaque("ab"), opaque("abcd")]), Some(opaque("abcd")));
    }

    #[test]
    fn what_is_kept_is_for_the_model_that_said_it() {
        let part = json!({"providerMetadata": metadata("me", [("step", Some(json!({"reasoning_opaque": "x"})))])});
        assert_eq!(kept(&part, "me", "step").unwrap()["reasoning_opaque"], "x");
        assert!(kept(&part, "other", "step").is_none() && kept(&part, "me", "call").is_none());
        assert_eq!(metadata("me", [("step", None)]), None);
    }

    #[test]
    fn its_size_is_bounded() {
        let mut state = State::default();
        let long = "x".repeat(MAX_BYTES + 1);
        assert!(state.read_call(&json!({"thought_signature": long}), false).is_err());
    }
}

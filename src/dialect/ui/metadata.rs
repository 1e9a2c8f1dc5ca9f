//! How a message's metadata takes in what `start`, `message-metadata` and `finish` bring (`spec/ai-sdk.md` A.3).

use serde_json::{Map, Value};

/// The metadata at hand is text, a number or a flag, and the new one has keys: clients fail on that.
#[derive(Debug)]
pub(super) struct Unmergeable;

/// Merges new metadata into metadata that is there already and not `null`.
pub(super) fn merge_metadata(old: &mut Value, new: &Value) -> Result<(), Unmergeable> {
    let over = places(new);
    if !old.is_object() && !old.is_array() && !over.keys().all(|key| is_skipped(key)) {
        return Err(Unmergeable);
    }
    *old = Value::Object(places(old));
    merge(old, &Value::Object(over));
    Ok(())
}

/// Metadata as the client's top-level merge sees it: a list or a string is an object with its places as keys, a number has none.
fn places(value: &Value) -> Map<String, Value> {
    let place = |(at, item): (usize, Value)| (at.to_string(), item);
    match value {
        Value::Object(map) => map.clone(),
        Value::Array(items) => items.iter().cloned().enumerate().map(place).collect(),
        Value::String(text) => {
            let units = text.encode_utf16().map(|unit| String::from_utf16_lossy(&[unit]).into());
            units.enumerate().map(place).collect()
        }
        _ => Map::new(),
    }
}

/// Deep merge of objects; everything else is replaced. The client skips these three keys.
fn merge(old: &mut Value, new: &Value) {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            for (key, value) in new {
                if is_skipped(key) {
                    continue;
                }
                match old.get_mut(key) {
                    Some(inner) if inner.is_object() && value.is_object() => merge(inner, value),
                    _ => {
                        old.insert(key.clone(), value.clone());
                    }
                }
            }
        }
        (old, new) => *old = new.clone(),
    }
}

fn is_skipped(key: &str) -> bool {
    matches!(key, "__proto__" | "constructor" | "prototype")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn objects_merge_deeply_and_all_else_is_replaced() {
        for (old, new, merged) in [
            (
                json!({"a": {"b": 1, "c": [1]}}),
                json!({"a": {"c": [2], "d": null}}),
                json!({"a": {"b": 1, "c": [2], "d": null}}),
            ),
            (json!({"a": {"b": 1}}), json!({"a": null}), json!({"a": null})),
            (json!({"a": 1}), json!({"constructor": 1, "b": {"prototype": 2}}), json!({"a": 1, "b": {"prototype": 2}})),
            (json!([1, 2]), json!({"1": 3}), json!({"0": 1, "1": 3})),
            (json!({"a": 1}), json!(["x"]), json!({"a": 1, "0": "x"})),
            (json!({"a": 1}), json!("x"), json!({"a": 1, "0": "x"})),
            (json!({"a": 1}), json!(7), json!({"a": 1})),
            (json!("x"), json!(7), json!({"0": "x"})),
        ] {
            let mut value = old;
            merge_metadata(&mut value, &new).unwrap();
            assert_eq!(value, merged);
        }
    }

    #[test]
    fn keys_cannot_be_merged_into_a_number_or_text() {
        for old in [json!(7), json!("x"), json!(true)] {
            let mut value = old.clone();
            assert!(merge_metadata(&mut value, &json!({"a": 1})).is_err());
            assert_eq!(value, old);
        }
    }
}

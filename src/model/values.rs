//! Lenient reading of JSON that others wrote: a key that is absent, `null` or of another type than documented says nothing.

use serde_json::Value;

/// A key's value, when it is a string.
pub fn string<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key)?.as_str()
}

/// A key's elements; none when it is not a list.
pub fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The first of these keys that holds a count.
pub fn count(value: &Value, names: &[&str]) -> Option<u64> {
    names.iter().find_map(|name| value.get(name)?.as_u64())
}

//! Keys of a request's body. A key whose value is `null` counts as absent, except where any JSON is a value.

use serde_json::{Map, Value};

use super::refusal::Refusal;
use crate::core::time::Millis;

/// Shortest and longest lease, in ms.
const LEASE_MS: std::ops::RangeInclusive<u64> = 1_000..=3_600_000;

/// Longest id, in bytes (`spec/helix.md` section 9 bounds ids so).
pub(super) const MAX_ID_BYTES: usize = 256;

pub(super) type Keys = Map<String, Value>;

fn wrong(key: &'static str, expected: &'static str) -> Refusal {
    Refusal::WrongType { key, expected }
}

fn present<'a>(keys: &'a Keys, key: &str) -> Option<&'a Value> {
    keys.get(key).filter(|value| !value.is_null())
}

pub(super) fn text<'a>(keys: &'a Keys, key: &'static str) -> Result<Option<&'a str>, Refusal> {
    present(keys, key).map(|value| value.as_str().ok_or(wrong(key, "a string"))).transpose()
}

pub(super) fn id(keys: &Keys, key: &'static str) -> Result<Option<String>, Refusal> {
    let fits = |text: &str| (1..=MAX_ID_BYTES).contains(&text.len());
    let id = text(keys, key)?
        .map(|text| if fits(text) { Ok(text.to_owned()) } else { Err(wrong(key, "a string of 1 to 256 bytes")) });
    id.transpose()
}

pub(super) fn flag(keys: &Keys, key: &'static str) -> Result<bool, Refusal> {
    present(keys, key).map_or(Ok(false), |value| value.as_bool().ok_or(wrong(key, "true or false")))
}

pub(super) fn whole(keys: &Keys, key: &'static str) -> Result<Option<u64>, Refusal> {
    present(keys, key).map(|value| value.as_u64().ok_or(wrong(key, "a whole number from 0"))).transpose()
}

pub(super) fn lease(keys: &Keys) -> Result<Option<Millis>, Refusal> {
    match whole(keys, "leaseMs")? {
        Some(ms) if !LEASE_MS.contains(&ms) => Err(wrong("leaseMs", "between 1000 and 3600000")),
        ms => Ok(ms.map(Millis::new)),
    }
}

pub(super) fn list<'a>(keys: &'a Keys, key: &'static str) -> Result<Option<&'a Vec<Value>>, Refusal> {
    present(keys, key).map(|value| value.as_array().ok_or(wrong(key, "an array"))).transpose()
}

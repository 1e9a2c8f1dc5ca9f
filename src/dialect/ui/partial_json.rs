//! Reads a JSON text of which only the beginning has arrived.
//!
//! Clients show a tool's input while it streams by completing the text so far (`spec/ai-sdk.md` A.3); the fold must
//! arrive at the same value. The whole text is scanned once, cut after the last place at which it can be closed, and
//! closed there.

use serde_json::Value;

use crate::core::chunk::is_too_deep;

/// The value of a JSON text or of a beginning of one; `None` when nothing can be read from it yet, or it is not JSON.
pub fn parse_partial(text: &str) -> Option<Value> {
    if text.is_empty() {
        return None;
    }
    let value: Value = serde_json::from_str(text).ok().or_else(|| serde_json::from_str(&completed(text)?).ok())?;
    (!is_too_deep(&value)).then_some(value)
}

/// What the scan is inside of.
#[derive(Clone, Copy, PartialEq)]
enum State {
    /// A value must come.
    Value,
    /// A value, or the end of an array that has none.
    FirstItem,
    /// A key, or the end of an object that has none.
    Key,
    /// A string; `key` says which kind.
    Text { key: bool },
    /// A colon must come.
    Colon,
    /// A comma or a closing bracket must come.
    After,
    /// A number.
    Number,
    /// `true`, `false` or `null`, from this byte on.
    Literal { start: usize },
}

fn completed(text: &str) -> Option<String> {
    let mut scan = Scan { open: Vec::new(), state: State::Value, cut: 0, suffix: "" };
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        at = scan.step(text, byte, at)?;
    }
    let mut whole = text.get(..scan.cut)?.to_owned();
    if let State::Literal { start } = scan.state {
        let word = text.get(start..)?;
        whole = text.get(..start)?.to_owned();
        whole.push_str(["true", "false", "null"].into_iter().find(|full| full.starts_with(word))?);
    } else {
        whole.push_str(scan.suffix);
    }
    whole.extend(scan.open.iter().rev().map(|&closer| char::from(closer)));
    Some(whole)
}

struct Scan {
    /// Closing brackets of the containers that are open.
    open: Vec<u8>,
    state: State,
    /// Everything before this byte can be closed …
    cut: usize,
    /// … by this and then `open`. Nothing is opened or closed between the cut and the scan's place.
    suffix: &'static str,
}

impl Scan {
    /// Handles the byte at `at` and returns where to go on; `None` when the text is no JSON.
    fn step(&mut self, text: &str, byte: u8, at: usize) -> Option<usize> {
        let next = at.checked_add(1)?;
        match self.state {
            State::Text { key } => return self.text(text, byte, at, key),
            State::Number => {
                if byte.is_ascii_digit() {
                    self.safe(next, "");
                    return Some(next);
                }
                if matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-') {
                    return Some(next);
                }
                self.state = State::After;
                return Some(at);
            }
            State::Literal { .. } => {
                if byte.is_ascii_lowercase() {
                    return Some(next);
                }
                self.safe(at, "");
                self.state = State::After;
                return Some(at);
            }
            _ => {}
        }
        if byte.is_ascii_whitespace() {
            return Some(next);
        }
        match (self.state, byte) {
            (State::Value | State::FirstItem, b'{') => self.enter(b'}', State::Key, next),
            (State::Value | State::FirstItem, b'[') => self.enter(b']', State::FirstItem, next),
            (State::Value | State::FirstItem, b'"') => {
                self.state = State::Text { key: false };
                self.safe(next, "\"");
            }
            (State::Value | State::FirstItem, b'-') => self.state = State::Number,
            (State::Value | State::FirstItem, b'0'..=b'9') => {
                self.state = State::Number;
                self.safe(next, "");
            }
            (State::Value | State::FirstItem, b't' | b'f' | b'n') => self.state = State::Literal { start: at },
            (State::Key, b'"') => self.state = State::Text { key: true },
            (State::Colon, b':') => self.state = State::Value,
            (State::After, b',') => {
                self.state = if *self.open.last()? == b'}' { State::Key } else { State::Value };
            }
            (State::Key | State::FirstItem | State::After, b'}' | b']') => {
                if self.open.pop()? != byte {
                    return None;
                }
                self.state = State::After;
                self.safe(next, "");
            }
            _ => return None,
        }
        Some(next)
    }

    /// One character or one whole escape of a string. A half escape or half a surrogate pair is never a safe place.
    fn text(&mut self, text: &str, byte: u8, at: usize, key: bool) -> Option<usize> {
        let next = at.checked_add(1)?;
        if byte == b'"' {
            self.state = if key { State::Colon } else { State::After };
            if !key {
                self.safe(next, "");
            }
            return Some(next);
        }
        let end = match byte {
            b'\\' => at.checked_add(escape_len(text.get(at..)?))?,
            _ => at.checked_add(text.get(at..)?.chars().next()?.len_utf8())?,
        };
        if end <= text.len() && !key {
            self.safe(end, "\"");
        }
        Some(end)
    }

    fn enter(&mut self, closer: u8, state: State, next: usize) {
        self.open.push(closer);
        self.state = state;
        self.safe(next, "");
    }

    fn safe(&mut self, cut: usize, suffix: &'static str) {
        self.cut = cut;
        self.suffix = suffix;
    }
}

/// Length in bytes of the escape at the start of `rest`, when whole; more than `rest` has when it is cut short.
fn escape_len(rest: &str) -> usize {
    match rest.as_bytes().get(1) {
        Some(b'u') => {
            let unit = rest.get(2..6).and_then(|hex| u16::from_str_radix(hex, 16).ok());
            if unit.is_some_and(|unit| (0xD800..0xDC00).contains(&unit)) { 12 } else { 6 }
        }
        _ => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn completes_what_has_begun() {
        for (text, value) in [
            ("{", Some(json!({}))),
            ("{\"a", Some(json!({}))),
            ("{\"a\"", Some(json!({}))),
            ("{\"a\":", Some(json!({}))),
            ("{\"a\": \"x", Some(json!({"a": "x"}))),
            ("{\"a\": \"x\\", Some(json!({"a": "x"}))),
            ("{\"a\": \"x\\n", Some(json!({"a": "x\n"}))),
            ("{\"a\": \"\\u00e", Some(json!({"a": ""}))),
            ("{\"a\": \"\\ud83d\\ude", Some(json!({"a": ""}))),
            ("{\"a\": \"\\ud83d\\ude00", Some(json!({"a": "😀"}))),
            ("{\"a\": tr", Some(json!({"a": true}))),
            ("[1, -", Some(json!([1]))),
            ("[1.", Some(json!([1]))),
            ("[1, 2.5e", Some(json!([1, 2.5]))),
            ("{\"a\": [{\"b\": nul", Some(json!({"a": [{"b": null}]}))),
            ("{\"a\": 1, ", Some(json!({"a": 1}))),
            ("{\"a\": 1, \"b", Some(json!({"a": 1}))),
            ("\"ä", Some(json!("ä"))),
            ("", None),
            ("-", None),
            ("nope", None),
            ("{]", None),
        ] {
            assert_eq!(parse_partial(text), value, "{text}");
        }
    }

    fn json_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            "[a\"\\\\ü😀\n]{0,4}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[ab\"]{0,2}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn never_panics(text in "[\\[\\]{}\",:\\\\u0-9a-f.tn ü-]{0,24}") {
            let _ = parse_partial(&text);
        }

        #[test]
        fn every_beginning_of_an_object_can_be_read(value in prop::collection::vec(json_value(), 0..3)) {
            let text = json!({"k": value}).to_string();
            for (at, _) in text.char_indices().skip(1) {
                prop_assert!(parse_partial(&text[..at]).is_some_and(|value| value.is_object()), "{}", &text[..at]);
            }
        }
    }
}

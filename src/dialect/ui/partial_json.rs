//! Reads a JSON text of which only the beginning has arrived.
//!
//! Clients show a tool's input while it streams by completing the text so far (`spec/ai-sdk.md` A.3); the fold must
//! arrive at the same value, also for the texts that clients misread. The whole text is scanned once, cut after the
//! last place at which it can be closed, and closed there; `tests/fold` holds the results against the clients'.

use serde_json::Value;

use crate::core::chunk::is_too_deep;

/// The value of a JSON text or of a beginning of one; `None` when nothing can be read from it yet, or it is not JSON.
pub fn parse_partial(text: &str) -> Option<Value> {
    if text.is_empty() {
        return None;
    }
    let value: Value = serde_json::from_str(text).ok().or_else(|| serde_json::from_str(&completed(text)?).ok())?;
    (!is_too_deep(&value) && !has_forbidden_keys(&value)).then_some(value)
}

/// Whether clients refuse the parsed text for a key that could reach a prototype (newest `ai` 6 and 7: not `constructor: null`).
fn has_forbidden_keys(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(has_forbidden_keys),
        Value::Object(map) => map.iter().any(|(key, value)| match key.as_str() {
            "__proto__" => true,
            "constructor" if value.get("prototype").is_some() => true,
            _ => has_forbidden_keys(value),
        }),
        _ => false,
    }
}

/// What the scan waits for inside of one container, string, number or word.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    /// The text's own value.
    Root,
    /// Nothing more.
    Done,
    /// In an object: its first key, or its end.
    FirstKey,
    /// In an object: a key. After a comma nothing else counts, not even the end.
    NextKey,
    /// The rest of a key. As in the client, an escaped quote ends it.
    Key,
    /// The colon after a key.
    Colon,
    /// The value of a key.
    Member,
    /// In an object, after a value.
    AfterMember,
    /// In an array: its first item, or its end.
    FirstItem,
    /// In an array, after a comma.
    NextItem,
    /// In an array, after an item.
    AfterItem,
    /// The rest of a string.
    Text,
    /// The character after a backslash.
    Escape,
    /// Hex digits of an escape: how many are read, and their value.
    Unicode { digits: u32, unit: u32 },
    /// The rest of a number.
    Number,
    /// The rest of `true`, `false` or `null`, which began at this byte.
    Word { start: usize },
}

/// The text cut after the last place at which it can be closed, and closed. Characters that fit nowhere are passed over, as the client does.
fn completed(text: &str) -> Option<String> {
    let mut scan = Scan { text, stack: vec![Place::Root], cut: 0, high: false };
    for (at, character) in text.char_indices() {
        scan.step(character, at)?;
    }
    let mut whole = text.get(..scan.cut)?.to_owned();
    for place in scan.stack.iter().rev() {
        match *place {
            Place::Text => whole.push('"'),
            Place::FirstKey | Place::NextKey | Place::Key | Place::Colon | Place::Member | Place::AfterMember => {
                whole.push('}');
            }
            Place::FirstItem | Place::NextItem | Place::AfterItem => whole.push(']'),
            Place::Word { start } => whole.push_str(word(text.get(start..)?)?),
            _ => {}
        }
    }
    Some(whole)
}

/// What is missing of the word that begins so.
fn word(begin: &str) -> Option<&'static str> {
    ["true", "false", "null"].into_iter().find_map(|full| full.strip_prefix(begin))
}

struct Scan<'a> {
    text: &'a str,
    /// From the outermost to the innermost.
    stack: Vec<Place>,
    /// Everything before this byte can be closed.
    cut: usize,
    /// Whether the first half of a surrogate pair has been read and its second half has not.
    high: bool,
}

impl Scan<'_> {
    /// Takes the character at byte `at`.
    fn step(&mut self, character: char, at: usize) -> Option<()> {
        let end = at.checked_add(character.len_utf8())?;
        match *self.stack.last()? {
            Place::Root => self.value(character, at, Place::Done)?,
            Place::Member => self.value(character, at, Place::AfterMember)?,
            Place::NextItem => self.value(character, at, Place::AfterItem)?,
            Place::FirstItem if character == ']' => self.leave(end)?,
            Place::FirstItem => self.value(character, at, Place::AfterItem)?,
            Place::FirstKey if character == '}' => self.leave(end)?,
            Place::FirstKey | Place::NextKey if character == '"' => self.turn(Place::Key)?,
            Place::Key if character == '"' => self.turn(Place::Colon)?,
            Place::Colon if character == ':' => self.turn(Place::Member)?,
            Place::AfterMember => self.after_member(character, end)?,
            Place::AfterItem => {
                self.after_item(character, end)?;
                self.cut = if character == ',' { self.cut } else { end };
            }
            Place::Text => match character {
                '"' => self.leave(end)?,
                '\\' => self.stack.push(Place::Escape),
                _ => self.cut = end,
            },
            Place::Escape if character == 'u' => self.turn(Place::Unicode { digits: 0, unit: 0 })?,
            Place::Escape => self.leave(end)?,
            Place::Unicode { digits, unit } => self.unicode(character, end, digits, unit)?,
            Place::Number => match character {
                '0'..='9' => self.cut = end,
                'e' | 'E' | '-' | '.' => {}
                _ => {
                    self.stack.pop();
                    self.after_number(character, end)?;
                }
            },
            Place::Word { start } => {
                if self.text.get(start..end).and_then(word).is_some() {
                    self.cut = end;
                } else {
                    self.stack.pop();
                    self.after(character, end)?;
                }
            }
            _ => {}
        }
        Some(())
    }

    /// The beginning of a value; `then` is what its container waits for after it.
    fn value(&mut self, character: char, at: usize, then: Place) -> Option<()> {
        let inside = match character {
            '"' => Place::Text,
            '{' => Place::FirstKey,
            '[' => Place::FirstItem,
            't' | 'f' | 'n' => Place::Word { start: at },
            '-' | '0'..='9' => Place::Number,
            _ => return Some(()),
        };
        if character != '-' {
            self.cut = at.checked_add(1)?;
        }
        self.turn(then)?;
        self.stack.push(inside);
        Some(())
    }

    fn unicode(&mut self, character: char, end: usize, digits: u32, unit: u32) -> Option<()> {
        let Some(digit) = character.to_digit(16) else { return Some(()) };
        let unit = unit.checked_mul(16)?.checked_add(digit)?;
        if digits < 3 {
            return self.turn(Place::Unicode { digits: digits.saturating_add(1), unit });
        }
        self.stack.pop();
        // Half a pair is no text: the cut stays before it.
        self.high = (0xD800..0xDC00).contains(&unit) && !self.high;
        if !self.high {
            self.cut = end;
        }
        Some(())
    }

    /// The character after a number. One that fits nowhere is passed over and ends the number all the same.
    fn after_number(&mut self, character: char, end: usize) -> Option<()> {
        match (*self.stack.last()?, character) {
            (Place::AfterMember, ',' | '}') | (Place::AfterItem, ',' | ']') => self.after(character, end),
            _ => Some(()),
        }
    }

    fn after(&mut self, character: char, end: usize) -> Option<()> {
        match self.stack.last()? {
            Place::AfterMember => self.after_member(character, end),
            Place::AfterItem => self.after_item(character, end),
            _ => Some(()),
        }
    }

    fn after_member(&mut self, character: char, end: usize) -> Option<()> {
        match character {
            ',' => self.turn(Place::NextKey),
            '}' => self.leave(end),
            _ => Some(()),
        }
    }

    fn after_item(&mut self, character: char, end: usize) -> Option<()> {
        match character {
            ',' => self.turn(Place::NextItem),
            ']' => self.leave(end),
            _ => Some(()),
        }
    }

    /// The innermost waits for something else now.
    fn turn(&mut self, place: Place) -> Option<()> {
        *self.stack.last_mut()? = place;
        Some(())
    }

    /// The innermost is closed by the character that ends at `end`.
    fn leave(&mut self, end: usize) -> Option<()> {
        self.stack.pop();
        self.cut = end;
        Some(())
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
            ("{]", Some(json!({}))),
            ("{\"a\": 1e+3", Some(json!({"a": 1}))),
            ("{\"a\": 1e+3}", Some(json!({"a": 1000.0}))),
            ("{\"__proto__\": {", None),
            ("{\"constructor\": {\"prototype\": 1", None),
            ("{\"constructor\": null", Some(json!({"constructor": null}))),
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

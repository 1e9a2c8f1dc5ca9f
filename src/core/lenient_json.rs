//! JSON from servers and browsers that cut text in the middle of a character.
//!
//! A JavaScript server that splits its text by UTF-16 units writes half of a surrogate pair (`"\ud83d"`) into one event and the other half
//! into the next. That is JSON by its grammar, but no Unicode text, so a strict parser refuses the event and the reply would fail over an emoji.
//!
//! [`parse`] replaces halves. [`parse_keeping_halves`] keeps them for [`super::halves`], which joins them across events.

use serde_json::Value;

use super::halves;

/// Parses; when that fails and the text holds half pairs, parses again with U+FFFD in their place.
///
/// # Errors
/// The first attempt's error, when the text is not JSON for another reason.
pub fn parse(text: &str) -> serde_json::Result<Value> {
    parse_with(text, |_| char::REPLACEMENT_CHARACTER.to_string()).map(|(value, _)| value)
}

/// Parses; when that fails and the text holds half pairs, parses again with each of them as [`halves::mark`] writes it. The flag says
/// whether there are any.
///
/// # Errors
/// The first attempt's error, when the text is not JSON for another reason.
pub fn parse_keeping_halves(text: &str) -> serde_json::Result<(Value, bool)> {
    parse_with(text, halves::mark)
}

fn parse_with(text: &str, half: impl Fn(u16) -> String) -> serde_json::Result<(Value, bool)> {
    serde_json::from_str(text).map(|value| (value, false)).or_else(|error| match mend(text, half) {
        Some(mended) => serde_json::from_str(&mended).map(|value| (value, true)).map_err(|_| error),
        None => Err(error),
    })
}

/// The text with other words for every escape of half a surrogate pair. `None` when it has none.
fn mend(text: &str, half: impl Fn(u16) -> String) -> Option<String> {
    let mut mended = String::with_capacity(text.len());
    let mut found = false;
    let mut rest = text;
    while let Some(start) = rest.find('\\') {
        let (before, escape) = rest.split_at(start);
        mended.push_str(before);
        let (alone, length) = match (unit(escape), escape.get(6..).and_then(unit)) {
            (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => (None, 12),
            (Some(unit @ 0xD800..=0xDFFF), _) => (Some(unit), 6),
            (Some(_), _) => (None, 6),
            // A short escape; its second character may be a backslash, which begins nothing.
            (None, _) => (None, escape.chars().take(2).map(char::len_utf8).sum()),
        };
        let (escape, after) = escape.split_at_checked(length)?;
        match alone {
            Some(unit) => mended.push_str(&half(unit)),
            None => mended.push_str(escape),
        }
        found |= alone.is_some();
        rest = after;
    }
    mended.push_str(rest);
    found.then_some(mended)
}

/// The UTF-16 unit of a `\uXXXX` at the beginning.
fn unit(escape: &str) -> Option<u16> {
    let digits = escape.strip_prefix("\\u")?.get(..4)?;
    if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    u16::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn replaces_half_pairs_only() {
        for (text, expected) in [
            (r#""\ud83d""#, "\u{fffd}"),
            (r#""a\ude00b\uD83D""#, "a\u{fffd}b\u{fffd}"),
            (r#""\ud83d\ud83d\ude00""#, "\u{fffd}😀"),
            (r#""\\ud83d \ud83d\n""#, "\\ud83d \u{fffd}\n"),
            (r#""😀\ud83d\u0041""#, "😀\u{fffd}A"),
        ] {
            assert_eq!(parse(text).unwrap(), expected, "{text}");
        }
        for broken in [r#""\ud83d"#, r#""\ud8"#, r#""\"#, r#"\ud83d"#, r#""\uD8ß0""#] {
            assert!(parse(broken).is_err(), "{broken}");
        }
    }

    proptest! {
        #[test]
        fn mending_never_panics(text in r#"(\\|u|d83d|de00|"|ß|n){0,20}"#) {
            let _ = parse(&text);
        }

        #[test]
        fn whatever_javascript_can_say_is_read(units in prop::collection::vec(prop_oneof![0xD7FEu16..0xE002, 0u16..0x100], 0..12)) {
            let text: String = units.iter().map(|unit| format!("\\u{unit:04x}")).collect();
            prop_assert_eq!(parse(&format!("\"{text}\"")).unwrap(), String::from_utf16_lossy(&units));
        }
    }
}

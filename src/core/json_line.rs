//! JSON text as one line.
//!
//! JSON lets U+0085, U+2028 and U+2029 stand raw in a string. Many readers of lines end a line there too (Python's `splitlines`, editors,
//! older JavaScript), and would cut an event in two. They leave as JSON escapes: the same text to every reader of JSON.

/// Each raw mark, and its escape.
const MARKS: [(&[u8], &[u8]); 3] =
    [(b"\xC2\x85", b"\\u0085"), (b"\xE2\x80\xA8", b"\\u2028"), (b"\xE2\x80\xA9", b"\\u2029")];

/// Escapes the marks in what stands from `from` on: JSON text, or finished frames of it. Outside of JSON strings they stand nowhere.
pub fn escape(text: &mut Vec<u8>, from: usize) {
    let Some(first) = text.get(from..).and_then(next) else { return };
    let mut rest = text.split_off(from.saturating_add(first.at).min(text.len()));
    let mut found = Some(Found { at: 0, ..first });
    while let Some(Found { at, raw, escape }) = found {
        let after = rest.split_off(at.saturating_add(raw).min(rest.len()));
        rest.truncate(at);
        text.append(&mut rest);
        text.extend_from_slice(escape);
        rest = after;
        found = next(&rest);
    }
    text.append(&mut rest);
}

#[derive(Clone, Copy)]
struct Found {
    at: usize,
    /// Bytes of the raw mark.
    raw: usize,
    escape: &'static [u8],
}

fn next(text: &[u8]) -> Option<Found> {
    memchr::memchr2_iter(0xC2, 0xE2, text).find_map(|at| {
        let rest = text.get(at..)?;
        let (raw, escape) = MARKS.into_iter().find(|(raw, _)| rest.starts_with(raw))?;
        Some(Found { at, raw: raw.len(), escape })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    #[test]
    fn the_marks_and_nothing_else() {
        let mut text = "\u{2028}\"a\u{85}b\u{2028}\u{2029}\\\\\u{2028}—“é\u{c2}\"".as_bytes().to_vec();
        escape(&mut text, 3);
        assert_eq!(String::from_utf8(text).unwrap(), "\u{2028}\"a\\u0085b\\u2028\\u2029\\\\\\u2028—“é\u{c2}\"");
        let mut short = b"x".to_vec();
        escape(&mut short, 9);
        assert_eq!(short, b"x");
    }

    proptest! {
        #[test]
        fn says_the_same_in_one_line(before in "[a\u{2028}]{0,3}", text in "([\u{80}-\u{8f}\u{2010}-\u{2030}\u{e9}\"\\\\]|.){0,40}") {
            let mut line = before.as_bytes().to_vec();
            serde_json::to_writer(&mut line, &text).unwrap();
            escape(&mut line, before.len());
            let line = String::from_utf8(line).unwrap();
            let json = line.strip_prefix(&before).unwrap();
            prop_assert!(!json.contains(['\u{85}', '\u{2028}', '\u{2029}']), "{json}");
            prop_assert_eq!(serde_json::from_str::<Value>(json).unwrap(), Value::String(text.clone()));
            if !text.contains(['\u{85}', '\u{2028}', '\u{2029}']) {
                prop_assert_eq!(json, serde_json::to_string(&text).unwrap(), "all else stays as it was");
            }
        }

        #[test]
        fn any_bytes_are_taken(bytes in prop::collection::vec(prop::sample::select(vec![0xC2, 0x85, 0xE2, 0x80, 0xA8, 0xA9, b'a']), 0..40), from in 0_usize..50) {
            let mut text = bytes.clone();
            escape(&mut text, from);
            prop_assert!(text.len() >= bytes.len());
        }
    }
}

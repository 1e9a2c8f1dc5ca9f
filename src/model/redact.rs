//! Words of a model API for the log line: short, on one line, and without anything that looks like a key.

/// Longest quotation, in characters.
pub const MAX_QUOTE_CHARS: usize = 500;

/// What stands where a key stood.
const REMOVED: &str = "[removed]";

/// Beginnings of the keys of public model services.
const KEY_PREFIXES: [&str; 10] = ["sk-", "sk_", "gsk_", "xai-", "pplx-", "hf_", "r8_", "AIza", "eyJ", "nvapi-"];

/// A word of letters and digits alone that is this long is a key rather than a name; request ids with dashes stay.
const KEY_CHARS: usize = 32;

/// The text as it may stand in a log line: keys removed, white space and control characters as single spaces, at most
/// [`MAX_QUOTE_CHARS`] characters.
pub fn quote(text: &str) -> String {
    // Four times the result's bound is plenty to fill it, and keeps the work small for a large text.
    let start: String = text.chars().take(MAX_QUOTE_CHARS.saturating_mul(4)).collect();
    let mut words: Vec<String> = Vec::new();
    let mut after_scheme = false;
    for word in start.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()) {
        let clean = if after_scheme { REMOVED.to_owned() } else { redact_word(word) };
        let letters = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        after_scheme = letters.eq_ignore_ascii_case("bearer") || letters.to_ascii_lowercase().ends_with("bearer");
        words.push(clean);
    }
    let joined = words.join(" ");
    if joined.chars().count() <= MAX_QUOTE_CHARS {
        return joined;
    }
    let mut cut: String = joined.chars().take(MAX_QUOTE_CHARS.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

/// Replaces the pieces of a word that look like keys. A key's alphabet is letters, digits, `-`, `_` and `*` (half-masked keys).
fn redact_word(word: &str) -> String {
    let mut clean = String::with_capacity(word.len());
    let mut piece = String::new();
    for c in word.chars() {
        if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '*') {
            piece.push(c);
        } else {
            clean.push_str(redact_piece(&piece));
            piece.clear();
            clean.push(c);
        }
    }
    clean.push_str(redact_piece(&piece));
    clean
}

fn redact_piece(piece: &str) -> &str {
    let named = KEY_PREFIXES.iter().any(|prefix| piece.strip_prefix(prefix).is_some_and(|rest| rest.len() >= 4));
    let masked = piece.contains("**");
    let long = piece.split(['-', '_']).any(|run| {
        run.len() >= KEY_CHARS
            && run.contains(|c: char| c.is_ascii_digit())
            && run.contains(|c: char| c.is_ascii_alphabetic())
    });
    if named || masked || long { REMOVED } else { piece }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn removes_keys_and_leaves_words() {
        for (text, expected) in [
            ("key sk-proj-Ab12 is wrong", "key [removed] is wrong"),
            ("(sk-ant-api03-xyz).", "([removed])."),
            ("Authorization: Bearer abc def", "Authorization: Bearer [removed] def"),
            ("\"authorization\":\"Bearer abc\"", "\"authorization\":\"Bearer [removed]"),
            ("api-key=0123456789abcdef0123456789abcdef", "api-key=[removed]"),
            ("abc***xyz", "[removed]"),
            (
                "request 7027d986-3c59-a37a-9a5f-50713e01c8a6 of gpt-4.1-nano",
                "request 7027d986-3c59-a37a-9a5f-50713e01c8a6 of gpt-4.1-nano",
            ),
            ("a\r\nb\u{0}c", "a b c"),
            ("the task-force", "the task-force"),
        ] {
            assert_eq!(quote(text), expected);
        }
    }

    proptest! {
        #[test]
        fn is_short_and_never_panics(text in ".{0,3000}") {
            prop_assert!(quote(&text).chars().count() <= MAX_QUOTE_CHARS);
        }

        #[test]
        fn no_key_survives(before in "[a-z \"':=(]{0,20}", key in "[A-Za-z0-9]{8,40}") {
            let quoted = quote(&format!("{before} sk-{key}, Bearer {key}"));
            prop_assert!(!quoted.contains(&key));
        }
    }
}

//! What clients are told of a route's failure: the words of its `error` parts and of its refusals, bounded.

use serde_json::Value;

/// Longest text that is told, in bytes.
pub const MAX_WORDS_BYTES: usize = 8 << 10;

/// How many of a list's complaints are told, and how deep an error object is looked into.
const MAX_ITEMS: usize = 10;
const MAX_LEVELS: usize = 4;

/// The keys that hold a sentence for people, the best first: where several stand side by side, `error` is often only the name of the class.
/// `detail` is FastAPI's and RFC 9457's, and `msg` what FastAPI lists in it.
const KEYS: [&str; 4] = ["message", "error", "detail", "msg"];

/// A text as it may be told: cut at [`MAX_WORDS_BYTES`]. `None` for one that says nothing.
pub fn told(text: &str) -> Option<String> {
    let text = text.trim();
    let mut end = text.len().min(MAX_WORDS_BYTES);
    while !text.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    text.get(..end).filter(|text| !text.is_empty()).map(str::to_owned)
}

/// The words of a refusal, which is an answer with a status from 400 to 499: of JSON its `message`, `error` or `detail`, at any of the
/// usual depths; else the text itself. `None` for a page, for bytes, and for JSON without a sentence.
pub fn of_refusal(status: u16, content_type: Option<&str>, body: &[u8]) -> Option<String> {
    if !(400..500).contains(&status) {
        return None;
    }
    if let Ok(value) = serde_json::from_slice::<Value>(body) {
        return told(&sentence(&value, MAX_LEVELS)?);
    }
    let kind = content_type.unwrap_or("text/plain").to_ascii_lowercase();
    let is_text = kind.starts_with("text/") && !kind.contains("html") && !kind.contains("xml");
    let text = std::str::from_utf8(body).ok().map(|text| text.trim_start_matches('\u{feff}').trim())?;
    let is_said = |c: char| !c.is_control() || c.is_whitespace();
    if !is_text || text.starts_with(['<', '{', '[']) || !text.chars().all(is_said) {
        return None;
    }
    told(text)
}

fn sentence(value: &Value, levels: usize) -> Option<String> {
    let levels = levels.checked_sub(1)?;
    match value {
        Value::String(text) => Some(text.trim().to_owned()).filter(|text| !text.is_empty()),
        Value::Array(items) => {
            let said: Vec<String> = items.iter().take(MAX_ITEMS).filter_map(|item| sentence(item, levels)).collect();
            (!said.is_empty()).then(|| said.join("; "))
        }
        Value::Object(map) => KEYS.iter().find_map(|key| sentence(map.get(*key)?, levels)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn a_refusal_in_json_says_its_sentence() {
        for (body, expected) in [
            (json!({"error": "Sign in first"}), Some("Sign in first")),
            (json!({"message": "Sign in first"}), Some("Sign in first")),
            (json!({"detail": "Sign in first"}), Some("Sign in first")),
            (json!({"error": {"message": "Sign in first", "code": "auth"}}), Some("Sign in first")),
            (json!({"error": {"error": {"error": {"message": "too deep"}}}}), None),
            (json!({"statusCode": 403, "error": "Forbidden", "message": "Not your chat"}), Some("Not your chat")),
            (json!({"error": true, "message": "Full"}), Some("Full")),
            (json!({"message": "", "error": " Full "}), Some("Full")),
            (json!({"message": ["a is missing", "b is wrong"]}), Some("a is missing; b is wrong")),
            (
                json!({"detail": [{"loc": ["body", "id"], "msg": "Field required"}, {"msg": "Not a list"}]}),
                Some("Field required; Not a list"),
            ),
            (json!({"detail": {"error": "Unknown model"}}), Some("Unknown model")),
            (json!("Just a text"), Some("Just a text")),
            (json!({"code": "rate_limited"}), None),
            (json!({"error": null}), None),
            (json!(7), None),
        ] {
            let got = of_refusal(422, Some("application/json"), body.to_string().as_bytes());
            assert_eq!(got.as_deref(), expected, "{body}");
        }
    }

    #[test]
    fn a_plain_text_is_told_and_a_page_is_not() {
        for (kind, body, expected) in [
            (Some("text/plain; charset=utf-8"), "Unauthorized\n", Some("Unauthorized")),
            (None, "Daily limit reached", Some("Daily limit reached")),
            (Some("text/html"), "Unauthorized", None),
            (Some("text/plain"), "<!doctype html><p>no", None),
            (Some("application/octet-stream"), "abc", None),
            (Some("text/plain"), "{\"error\":", None),
            (Some("text/plain"), "a\u{1}b", None),
            (Some("text/plain"), "  \n", None),
        ] {
            assert_eq!(of_refusal(401, kind, body.as_bytes()).as_deref(), expected, "{kind:?} {body}");
        }
        assert_eq!(of_refusal(401, None, b"\xff\xfe"), None);
        for status in [200, 302, 500, 503] {
            assert_eq!(of_refusal(status, None, b"the words of a fault"), None, "{status}");
        }
    }

    proptest! {
        #[test]
        fn what_is_told_is_the_texts_beginning_and_bounded(text in "\\PC{0,60}", times in 0..400usize) {
            let long = text.repeat(times);
            match told(&long) {
                Some(told) => {
                    prop_assert!(!told.is_empty() && told.len() <= MAX_WORDS_BYTES);
                    prop_assert!(long.trim().starts_with(&told));
                    prop_assert!(long.trim().len() <= MAX_WORDS_BYTES + 3 || told.len() > MAX_WORDS_BYTES - 4);
                }
                None => prop_assert!(long.trim().is_empty()),
            }
        }

        #[test]
        fn any_body_is_read(status in 400..500u16, body in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = of_refusal(status, None, &body);
        }
    }
}

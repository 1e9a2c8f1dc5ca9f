//! A user's files as content parts of the chat-completions API.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::delta::string;
use crate::core::ids::percent_decode;

/// The content part for a UI message's file part. `None` without an address.
///
/// The API takes images by link or as data, PDF and audio as data. Text files become text: the API refuses them as files, and a refusal
/// would come back with every later message of the conversation. Of anything else the model learns that it was there.
pub fn content_part(part: &Value) -> Option<Value> {
    let url = string(part, "url")?;
    let media_type = string(part, "mediaType").unwrap_or_default().to_ascii_lowercase();
    let name = string(part, "filename");
    if media_type.starts_with("image/") {
        return Some(json!({"type": "image_url", "image_url": {"url": url}}));
    }
    let Some((head, data)) = url.strip_prefix("data:").and_then(|url| url.split_once(',')) else {
        return Some(mention(name, &media_type, Some(url)));
    };
    let base64 = head.ends_with(";base64");
    let audio = match media_type.as_str() {
        "audio/wav" | "audio/x-wav" => Some("wav"),
        "audio/mp3" | "audio/mpeg" => Some("mp3"),
        _ => None,
    };
    if let (Some(format), true) = (audio, base64) {
        return Some(json!({"type": "input_audio", "input_audio": {"data": data, "format": format}}));
    }
    if media_type == "application/pdf" {
        let name = name.unwrap_or("file.pdf");
        return Some(json!({"type": "file", "file": {"filename": name, "file_data": url}}));
    }
    let readable = is_text(&media_type).then(|| text_of(data, base64)).flatten();
    Some(match readable {
        Some(text) => json!({"type": "text", "text": format!("File {}:\n{text}", name.unwrap_or("without a name"))}),
        None => mention(name, &media_type, None),
    })
}

fn mention(name: Option<&str>, media_type: &str, url: Option<&str>) -> Value {
    let link = url.map(|url| format!(" {url}")).unwrap_or_default();
    json!({"type": "text", "text": format!("Attached file: {} ({media_type}){link}", name.unwrap_or("without a name"))})
}

fn is_text(media_type: &str) -> bool {
    let bare = media_type.split(';').next().unwrap_or_default().trim();
    bare.starts_with("text/")
        || ["json", "xml", "yaml", "javascript", "toml"]
            .iter()
            .any(|kind| bare.starts_with("application/") && bare.ends_with(kind))
}

/// The text of a data URL. `None` when it is not UTF-8.
fn text_of(data: &str, base64: bool) -> Option<Cow<'_, str>> {
    if base64 {
        return String::from_utf8(decode_base64(data)?).ok().map(Cow::Owned);
    }
    percent_decode(data).map(Cow::Owned)
}

/// Decodes base64 in both alphabets, with or without its padding.
fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity((text.len() / 4).saturating_mul(3));
    let mut held: u32 = 0;
    let mut bits: u32 = 0;
    for c in text.trim_end_matches('=').bytes() {
        let value = match c {
            b'A'..=b'Z' => c.wrapping_sub(b'A'),
            b'a'..=b'z' => c.wrapping_sub(b'a').wrapping_add(26),
            b'0'..=b'9' => c.wrapping_sub(b'0').wrapping_add(52),
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        };
        // At most 7 bits are held before, so 13 at most.
        held = (held << 6 | u32::from(value)) & 0x1FFF;
        bits = bits.saturating_add(6);
        if bits >= 8 {
            bits = bits.saturating_sub(8);
            bytes.push(u8::try_from(held >> bits & 0xFF).ok()?);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(media_type: &str, url: &str) -> Value {
        content_part(&json!({"type": "file", "mediaType": media_type, "url": url, "filename": "x"})).unwrap()
    }

    #[test]
    fn each_kind_becomes_what_the_api_takes() {
        for (media_type, url, expected) in [
            (
                "image/png",
                "data:image/png;base64,AA==",
                json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}),
            ),
            ("image/*", "https://a.test/b", json!({"type": "image_url", "image_url": {"url": "https://a.test/b"}})),
            (
                "audio/mpeg",
                "data:audio/mpeg;base64,BB==",
                json!({"type": "input_audio", "input_audio": {"data": "BB==", "format": "mp3"}}),
            ),
            (
                "application/pdf",
                "data:application/pdf;base64,AA==",
                json!({"type": "file", "file": {"filename": "x", "file_data": "data:application/pdf;base64,AA=="}}),
            ),
            (
                "text/csv",
                "data:text/csv;base64,YSxiCsOkLPCfkJk=",
                json!({"type": "text", "text": "File x:\na,b\nä,🐙"}),
            ),
            ("application/json", "data:application/json,%7B%7D", json!({"type": "text", "text": "File x:\n{}"})),
            (
                "text/plain",
                "data:text/plain;base64,/w==",
                json!({"type": "text", "text": "Attached file: x (text/plain)"}),
            ),
            (
                "application/zip",
                "data:application/zip;base64,AA==",
                json!({"type": "text", "text": "Attached file: x (application/zip)"}),
            ),
            (
                "text/csv",
                "https://a.test/c",
                json!({"type": "text", "text": "Attached file: x (text/csv) https://a.test/c"}),
            ),
        ] {
            assert_eq!(part(media_type, url), expected, "{media_type} {url}");
        }
        assert_eq!(content_part(&json!({"type": "file"})), None);
    }

    #[test]
    fn decodes_base64_of_every_length() {
        for (text, bytes) in
            [("", ""), ("Zg==", "f"), ("Zm8=", "fo"), ("Zm9v", "foo"), ("Zm9vYg", "foob"), ("Pz8_", "???")]
        {
            assert_eq!(decode_base64(text).as_deref(), Some(bytes.as_bytes()));
        }
        assert_eq!(decode_base64("Zm 9"), None);
    }
}

//! A user's files as content parts of the chat-completions API.

use serde_json::{Value, json};

use crate::model::files::File;

/// The content part for a UI message's file part. `None` without an address.
///
/// The API takes images by link or as data, PDF and audio as data. Text files become text. Of anything else the model learns that it was
/// there.
pub fn content_part(part: &Value) -> Option<Value> {
    let file = File::of_part(part)?;
    let media_type = file.media_type();
    if media_type.starts_with("image/") {
        return Some(json!({"type": "image_url", "image_url": {"url": file.url}}));
    }
    let data = file.data();
    let audio = match media_type.as_str() {
        "audio/wav" | "audio/x-wav" => Some("wav"),
        "audio/mp3" | "audio/mpeg" => Some("mp3"),
        _ => None,
    };
    if let (Some(format), Some(data)) = (audio, data.filter(|data| data.base64)) {
        return Some(json!({"type": "input_audio", "input_audio": {"data": data.text, "format": format}}));
    }
    if media_type == "application/pdf" && data.is_some() {
        let name = file.name.unwrap_or("file.pdf");
        return Some(json!({"type": "file", "file": {"filename": name, "file_data": file.url}}));
    }
    let text = match file.readable() {
        Some(text) => format!("File {}:\n{text}", file.name.unwrap_or("without a name")),
        None => file.mention(),
    };
    Some(json!({"type": "text", "text": text}))
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
}

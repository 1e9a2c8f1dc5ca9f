//! A user's files as content blocks of the Messages API.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::model::files::File;

/// The kinds of pictures that the API takes.
const IMAGES: [&str; 4] = ["image/jpeg", "image/png", "image/gif", "image/webp"];

/// The content block for a UI message's file part. `None` without an address.
///
/// The API takes pictures and PDF by link or as base64, and text as a document. Of anything else the model learns that it was there,
/// because the API refuses a request with a block that it cannot read, and would refuse every later one of the conversation.
pub fn content_block(part: &Value) -> Option<Value> {
    let file = File::of_part(part)?;
    let media_type = file.media_type();
    let named = match media_type.as_str() {
        "image/jpg" => "image/jpeg",
        "image/*" | "" => file.data().map(|data| data.media_type).unwrap_or(&media_type),
        other => other,
    };
    let block = match named {
        "application/pdf" => source(&file, named).map(|source| document(&file, source)),
        kind if IMAGES.contains(&kind) => source(&file, kind).map(|source| json!({"type": "image", "source": source})),
        // A link to a picture of any kind: the API finds out.
        "image/*" => source(&file, named).map(|source| json!({"type": "image", "source": source})),
        _ => file
            .readable()
            .filter(|text| !text.trim().is_empty())
            .map(|text| document(&file, json!({"type": "text", "media_type": "text/plain", "data": text}))),
    };
    Some(block.unwrap_or_else(|| json!({"type": "text", "text": file.mention()})))
}

fn document(file: &File, source: Value) -> Value {
    let mut block = json!({"type": "document", "source": source});
    if let (Some(name), Some(map)) = (file.name.filter(|name| !name.trim().is_empty()), block.as_object_mut()) {
        map.insert("title".into(), name.into());
    }
    block
}

/// Where the API finds the file. `None` when it is neither a web address nor base64.
fn source(file: &File, media_type: &str) -> Option<Value> {
    match file.data() {
        Some(data) if data.base64 => {
            Some(json!({"type": "base64", "media_type": media_type, "data": standard_base64(data.text)?}))
        }
        Some(_) => None,
        None if file.url.starts_with("https://") || file.url.starts_with("http://") => {
            Some(json!({"type": "url", "url": file.url}))
        }
        None => None,
    }
}

/// The text in the standard alphabet and with its padding, as the API wants it. `None` when it is not base64, or empty.
fn standard_base64(text: &str) -> Option<Cow<'_, str>> {
    let bare = text.trim_end_matches('=');
    let standard = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'+' | b'/');
    let padding = match bare.len() % 4 {
        0 => "",
        2 => "==",
        3 => "=",
        _ => return None,
    };
    if bare.is_empty() || !bare.bytes().all(|c| standard(c) || matches!(c, b'-' | b'_')) {
        return None;
    }
    if bare.bytes().all(standard) && text.len() == bare.len().saturating_add(padding.len()) {
        return Some(Cow::Borrowed(text));
    }
    Some(Cow::Owned(format!("{}{padding}", bare.replace('-', "+").replace('_', "/"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(media_type: &str, url: &str) -> Value {
        content_block(&json!({"type": "file", "mediaType": media_type, "url": url, "filename": "x"})).unwrap()
    }

    #[test]
    fn each_kind_becomes_what_the_api_takes() {
        let png = json!({"type": "base64", "media_type": "image/png", "data": "AA=="});
        let pdf = json!({"type": "base64", "media_type": "application/pdf", "data": "AAA="});
        let link = json!({"type": "url", "url": "https://a.test/b"});
        let text = json!({"type": "text", "media_type": "text/plain", "data": "a,b"});
        let mention = |words: &str| json!({"type": "text", "text": format!("Attached file: x {words}")});
        for (media_type, url, expected) in [
            ("image/png", "data:image/png;base64,AA==", json!({"type": "image", "source": png})),
            ("image/*", "data:image/png;base64,AA", json!({"type": "image", "source": png})),
            ("image/*", "https://a.test/b", json!({"type": "image", "source": link})),
            ("IMAGE/JPG", "https://a.test/b", json!({"type": "image", "source": link})),
            (
                "application/pdf",
                "data:application/pdf;base64,AAA",
                json!({"type": "document", "source": pdf, "title": "x"}),
            ),
            ("application/pdf", "https://a.test/b", json!({"type": "document", "source": link, "title": "x"})),
            ("text/csv", "data:text/csv,a,b", json!({"type": "document", "source": text, "title": "x"})),
            ("text/csv", "https://a.test/b", mention("(text/csv) https://a.test/b")),
            ("text/plain", "data:text/plain,%20", mention("(text/plain)")),
            ("image/svg+xml", "data:image/svg+xml;base64,AA==", mention("(image/svg+xml)")),
            ("image/png", "data:image/png;base64,A A=", mention("(image/png)")),
            ("image/png", "data:image/png,abc", mention("(image/png)")),
            ("image/png", "blob:abc", mention("(image/png) blob:abc")),
            ("application/zip", "data:application/zip;base64,AA==", mention("(application/zip)")),
        ] {
            assert_eq!(block(media_type, url), expected, "{media_type} {url}");
        }
        assert_eq!(content_block(&json!({"type": "file"})), None);
    }

    #[test]
    fn base64_is_written_as_the_api_wants_it() {
        for (text, expected) in [
            ("", None),
            ("====", None),
            ("A", None),
            ("AB", Some("AB==")),
            ("A-_=", Some("A+/=")),
            ("a+/b", Some("a+/b")),
        ] {
            assert_eq!(standard_base64(text).as_deref(), expected, "{text}");
        }
    }
}

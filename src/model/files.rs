//! A user's files, as far as model APIs treat them alike.

use std::borrow::Cow;

use serde_json::Value;

use super::values::string;
use crate::core::ids::percent_decode;

/// A file part of a UI message.
#[derive(Clone, Copy, Debug)]
pub struct File<'a> {
    /// Where it is: a link or a data URL.
    pub url: &'a str,
    /// As the client sent it.
    media_type: &'a str,
    /// Its name, if the client gave one.
    pub name: Option<&'a str>,
}

/// The content of a data URL.
#[derive(Clone, Copy, Debug)]
pub struct Data<'a> {
    /// The media type that the URL names, with its parameters.
    pub media_type: &'a str,
    /// The text behind the comma.
    pub text: &'a str,
    /// Whether that is base64; percent-encoded otherwise.
    pub base64: bool,
}

impl<'a> File<'a> {
    /// Reads a part. `None` without an address.
    pub fn of_part(part: &'a Value) -> Option<Self> {
        Some(Self {
            url: string(part, "url")?,
            media_type: string(part, "mediaType").unwrap_or_default(),
            name: string(part, "filename"),
        })
    }

    /// The media type, in lower case.
    pub fn media_type(&self) -> String {
        self.media_type.to_ascii_lowercase()
    }

    /// The content, when the address is a data URL.
    pub fn data(&self) -> Option<Data<'a>> {
        let (head, text) = self.url.strip_prefix("data:")?.split_once(',')?;
        let bare = head.strip_suffix(";base64");
        Some(Data { media_type: bare.unwrap_or(head), text, base64: bare.is_some() })
    }

    /// The content of a text file that came as a data URL. APIs refuse text files where they take pictures and PDF, and a refusal would
    /// come back with every later message of the conversation. `None` for anything that is not text.
    pub fn readable(&self) -> Option<Cow<'a, str>> {
        let data = self.data().filter(|_| is_text(&self.media_type()))?;
        if data.base64 {
            return String::from_utf8(decode_base64(data.text)?).ok().map(Cow::Owned);
        }
        percent_decode(data.text).map(Cow::Owned)
    }

    /// What the model is told about a file that its API does not take: that it was there.
    pub fn mention(&self) -> String {
        let link = if self.data().is_some() { String::new() } else { format!(" {}", self.url) };
        format!("Attached file: {} ({}){link}", self.name.unwrap_or("without a name"), self.media_type())
    }
}

fn is_text(media_type: &str) -> bool {
    let bare = media_type.split(';').next().unwrap_or_default().trim();
    bare.starts_with("text/")
        || ["json", "xml", "yaml", "javascript", "toml"]
            .iter()
            .any(|kind| bare.starts_with("application/") && bare.ends_with(kind))
}

/// Bytes as base64, with its padding.
pub fn encode_base64(bytes: &[u8]) -> String {
    const ALPHABET: [char; 64] = [
        'A', 'B', 'C', 'D', 'E', 'F', 'G', 'H', 'I', 'J', 'K', 'L', 'M', 'N', 'O', 'P', 'Q', 'R', 'S', 'T', 'U', 'V',
        'W', 'X', 'Y', 'Z', 'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j', 'k', 'l', 'm', 'n', 'o', 'p', 'q', 'r',
        's', 't', 'u', 'v', 'w', 'x', 'y', 'z', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', '+', '/',
    ];
    let mut text = String::with_capacity(bytes.len().div_ceil(3).saturating_mul(4));
    for triple in bytes.chunks(3) {
        let byte = |at: usize| u32::from(triple.get(at).copied().unwrap_or_default());
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for (place, shift) in [18, 12, 6, 0].into_iter().enumerate() {
            let digit = usize::try_from(bits >> shift & 0x3F).ok().and_then(|digit| ALPHABET.get(digit));
            text.push(digit.copied().filter(|_| place <= triple.len()).unwrap_or('='));
        }
    }
    text
}

/// Decodes base64 in both alphabets, with or without its padding.
pub fn decode_base64(text: &str) -> Option<Vec<u8>> {
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

    #[test]
    fn decodes_base64_of_every_length() {
        for (text, bytes) in
            [("", ""), ("Zg==", "f"), ("Zm8=", "fo"), ("Zm9v", "foo"), ("Zm9vYg", "foob"), ("Pz8_", "???")]
        {
            assert_eq!(decode_base64(text).as_deref(), Some(bytes.as_bytes()));
        }
        assert_eq!(decode_base64("Zm 9"), None);
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("???>", "Pz8/Pg==")] {
            assert_eq!(encode_base64(bytes.as_bytes()), text);
        }
    }
}

//! Pictures, sound and files that a model says, in the shapes in which servers send them.

use serde_json::Value;

use crate::core::error::{Code, Failure};
use crate::core::redact::quote;
use crate::model::files::{decode_base64, encode_base64};
use crate::model::values::{list, string};

/// Most bytes of sound in one answer: as much as one event may hold.
const MAX_SOUND_BYTES: usize = 16 << 20;

/// A file of the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Media {
    /// A link or a data URL.
    pub url: String,
    /// Its media type; `image/*` where nobody says more.
    pub media_type: String,
}

impl Media {
    /// Reads a content part or an entry of `images`. `None` when it names no file.
    pub fn of_part(part: &Value) -> Option<Self> {
        let kind = string(part, "type").unwrap_or_default();
        let family = ["image", "audio", "video"].into_iter().find(|family| kind.contains(family));
        let named = ["image_url", "video_url", "audio_url", "document_url", "file_url", "url"];
        let link = |holder: &Value| holder.as_str().or_else(|| string(holder, "url")).map(str::to_owned);
        let url = part.as_str().map(str::to_owned).or_else(|| named.iter().find_map(|key| link(part.get(key)?)));
        if let Some(url) = url.filter(|url| is_address(url)) {
            let named = string(part, "media_type").or_else(|| string(part, "mime_type")).map(str::to_owned);
            let media_type =
                named.or_else(|| type_of(&url)).unwrap_or_else(|| format!("{}/*", family.unwrap_or("image")));
            return Some(Self { url, media_type });
        }
        // The content itself: Gemini's `inline_data`, OpenAI's `input_audio`, `file` and `b64_json`, the Messages API's `source`.
        let inner = ["inline_data", "inlineData", "input_audio", "audio", "image", "file", "source"]
            .iter()
            .find_map(|key| part.get(key));
        let holder = inner.filter(|inner| inner.is_object()).unwrap_or(part);
        let data = ["data", "b64_json", "base64", "file_data"]
            .iter()
            .find_map(|key| string(holder, key))
            .filter(|data| !data.is_empty())?;
        if is_address(data) {
            let media_type = type_of(data)?;
            return Some(Self { url: data.to_owned(), media_type });
        }
        let named =
            ["mime_type", "mimeType", "media_type"].iter().find_map(|key| string(holder, key)).map(str::to_owned);
        let format = string(holder, "format").map(|format| format!("{}/{format}", family.unwrap_or("audio")));
        let start: String = data.chars().take(64).collect();
        let start = decode_base64(&start)?;
        let media_type = named.or(format).or_else(|| sniff(&start).map(str::to_owned))?;
        Some(Self { url: format!("data:{media_type};base64,{data}"), media_type })
    }
}

/// The files that stand beside the content of a delta or a message. `None` in the list: an entry that names no file.
pub fn beside(said: &Value) -> Vec<Option<Media>> {
    let lists = ["images", "videos", "files"].iter().flat_map(|key| list(said, key));
    let says = |one: &&Value| one.is_object() || one.as_str().is_some_and(|text| !text.is_empty());
    let single = ["image", "video"].iter().filter_map(|key| said.get(key));
    lists.chain(single).filter(says).map(Media::of_part).collect()
}

/// A failure that names what cannot be shown.
pub fn unknown(part: &Value) -> Failure {
    let kind = string(part, "type").unwrap_or("without a type");
    Failure::new(
        Code::ProviderContentUnsupported,
        quote(&format!("the model answered with content of a kind that is not known here: {kind}")),
    )
}

/// The sound of an answer, which comes in pieces of base64, each whole in itself.
#[derive(Clone, Debug, Default)]
pub struct Sound {
    bytes: Vec<u8>,
}

impl Sound {
    /// Takes the `audio` of a delta, or of a whole message, which repeats the pieces before it.
    ///
    /// # Errors
    /// `ProviderStreamInvalid` for what is not base64, and beyond the bound.
    pub fn read(&mut self, audio: &Value, is_whole: bool) -> Result<(), Failure> {
        let Some(data) = string(audio, "data").filter(|data| !data.is_empty()) else { return Ok(()) };
        if is_whole && !self.bytes.is_empty() {
            return Ok(());
        }
        let invalid = |why: &str| Failure::new(Code::ProviderStreamInvalid, format!("the model's sound {why}"));
        let bytes = decode_base64(data).ok_or_else(|| invalid("is not base64"))?;
        if self.bytes.len().saturating_add(bytes.len()) > MAX_SOUND_BYTES {
            return Err(invalid("is too long"));
        }
        self.bytes.extend(bytes);
        Ok(())
    }

    /// The file, once all is there. Without a format's own beginning it is what OpenAI streams: 16 bits, one channel, 24 kHz.
    pub fn take(&mut self) -> Option<Media> {
        let bytes = std::mem::take(&mut self.bytes);
        if bytes.is_empty() {
            return None;
        }
        let media_type = sniff(&bytes).unwrap_or("audio/pcm;rate=24000").to_owned();
        Some(Media { url: format!("data:{media_type};base64,{}", encode_base64(&bytes)), media_type })
    }

    /// Whether there is any.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

fn is_address(text: &str) -> bool {
    ["https://", "http://", "data:"].iter().any(|scheme| text.starts_with(scheme))
}

/// The type that a data URL names, or that a link's ending stands for.
fn type_of(url: &str) -> Option<String> {
    if let Some(rest) = url.strip_prefix("data:") {
        let head = rest.split_once(',')?.0;
        let head = head.strip_suffix(";base64").unwrap_or(head);
        return (!head.is_empty()).then(|| head.to_owned());
    }
    let path = url.split(['?', '#']).next()?;
    let media_type = match path.rsplit_once('.')?.1.to_ascii_lowercase().as_str() {
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "webp" => "image/webp",
        "gif" => "image/gif",
        "svg" => "image/svg+xml",
        "mp4" => "video/mp4",
        "webm" => "video/webm",
        "mp3" => "audio/mpeg",
        "wav" => "audio/wav",
        "pdf" => "application/pdf",
        _ => return None,
    };
    Some(media_type.to_owned())
}

/// What a file is by its first bytes.
fn sniff(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', ..] => Some("image/png"),
        [0xFF, 0xD8, 0xFF, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        [b'R', b'I', b'F', b'F', ..] => Some("audio/wav"),
        [b'I', b'D', b'3', ..] | [0xFF, 0xF2 | 0xF3 | 0xFA | 0xFB, ..] => Some("audio/mpeg"),
        [b'O', b'g', b'g', b'S', ..] => Some("audio/ogg"),
        [b'f', b'L', b'a', b'C', ..] => Some("audio/flac"),
        [b'%', b'P', b'D', b'F', ..] => Some("application/pdf"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const PNG: &str = "iVBORw0KGgoAAAANSUhEUg==";

    #[test]
    fn finds_the_file_in_every_shape() {
        let data = format!("data:image/png;base64,{PNG}");
        for (part, url, media_type) in [
            (json!({"type": "image_url", "image_url": {"url": data}}), data.as_str(), "image/png"),
            (json!({"type": "image_url", "image_url": data}), &data, "image/png"),
            (
                json!({"type": "image_url", "image_url": {"url": "https://a.test/x.webp?y=1"}}),
                "https://a.test/x.webp?y=1",
                "image/webp",
            ),
            (json!({"image_url": {"url": "https://a.test/x"}}), "https://a.test/x", "image/*"),
            (json!({"type": "video_url", "video_url": {"url": "https://a.test/x"}}), "https://a.test/x", "video/*"),
            (json!({"url": "https://a.test/x", "mime_type": "image/avif"}), "https://a.test/x", "image/avif"),
            (json!(data), &data, "image/png"),
            (json!({"b64_json": PNG}), &data, "image/png"),
            (json!({"inline_data": {"mime_type": "image/png", "data": PNG}}), &data, "image/png"),
            (json!({"type": "file", "file": {"filename": "x", "file_data": data}}), &data, "image/png"),
            (
                json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}),
                &data,
                "image/png",
            ),
            (
                json!({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mp3"}}),
                "data:audio/mp3;base64,AAAA",
                "audio/mp3",
            ),
        ] {
            assert_eq!(
                Media::of_part(&part),
                Some(Media { url: url.to_owned(), media_type: media_type.to_owned() }),
                "{part}"
            );
        }
        for part in [
            json!({}),
            json!({"type": "image_url", "image_url": {}}),
            json!("words"),
            json!({"b64_json": "AAAA"}),
            json!({"url": "javascript:alert(1)"}),
            json!({"type": "file", "file": {"file_id": "f"}}),
        ] {
            assert_eq!(Media::of_part(&part), None, "{part}");
        }
    }

    #[test]
    fn keys_that_say_nothing_name_no_file() {
        let said = json!({"images": [null, ""], "image": "", "video": null, "files": []});
        assert_eq!(beside(&said), []);
        assert_eq!(beside(&json!({"images": [{}], "video": "x"})), [None, None]);
    }

    #[test]
    fn sound_is_one_file_of_all_its_pieces() {
        let mut sound = Sound::default();
        for data in ["SUQ=", "M2E="] {
            sound.read(&json!({"id": "a", "data": data}), false).unwrap();
        }
        sound.read(&json!({"id": "a", "data": "SUQzYQ=="}), true).unwrap();
        assert_eq!(sound.take().unwrap().url, "data:audio/mpeg;base64,SUQzYQ==");
        assert_eq!(sound.take(), None);
        assert!(sound.read(&json!({"data": "?"}), false).is_err());
    }
}

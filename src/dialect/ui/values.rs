//! The types of a chunk's values, as the clients' schemas check them (`spec/ai-sdk.md` A.2, read in `ai` 7.0.173).

use serde_json::{Map, Value};

/// Type of a key's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// A string.
    Text,
    /// A boolean.
    Flag,
    /// Any JSON value.
    Any,
    /// An object.
    Object,
    /// `providerMetadata`: an object of objects. A flat one makes clients refuse the response.
    Metadata,
    /// `finishReason`: a string; the values are in [`finish_reason`](super::vocabulary::finish_reason).
    FinishReason,
    /// `inputEncoding`: `json` or `text`.
    Encoding,
    /// `citations`: an array of places in the text, each with the source that supports it.
    Citations,
    /// `parts` of a steering message: text and file parts.
    Steering,
}

impl Type {
    /// Whether a client accepts this value for a key of this type.
    pub fn fits(self, value: &Value) -> bool {
        match self {
            Self::Text | Self::FinishReason => value.is_string(),
            Self::Flag => value.is_boolean(),
            Self::Any => true,
            Self::Object => value.is_object(),
            Self::Metadata => value.as_object().is_some_and(|map| map.values().all(Value::is_object)),
            Self::Encoding => matches!(value.as_str(), Some("json" | "text")),
            Self::Citations => all(value, is_citation),
            Self::Steering => all(value, is_steering_part),
        }
    }
}

fn all(list: &Value, fits: fn(&Map<String, Value>) -> bool) -> bool {
    list.as_array().is_some_and(|items| items.iter().all(|item| item.as_object().is_some_and(fits)))
}

fn need(map: &Map<String, Value>, key: &str) -> bool {
    map.get(key).is_some_and(Value::is_string)
}

fn may(map: &Map<String, Value>, key: &str, kind: Type) -> bool {
    map.get(key).is_none_or(|value| kind.fits(value))
}

fn is_citation(citation: &Map<String, Value>) -> bool {
    let place = |key: &str| citation.get(key).is_none_or(is_place);
    citation.get("source").and_then(Value::as_object).is_some_and(is_source)
        && place("startIndex")
        && place("endIndex")
        && may(citation, "citedText", Type::Text)
}

/// A whole number from 0 on that JavaScript holds exactly.
fn is_place(value: &Value) -> bool {
    const LARGEST: f64 = 9_007_199_254_740_991.0;
    value.as_f64().is_some_and(|number| number.fract() == 0.0 && (0.0..=LARGEST).contains(&number))
}

fn is_source(source: &Map<String, Value>) -> bool {
    let own = match source.get("sourceType").and_then(Value::as_str) {
        Some("url") => need(source, "url") && may(source, "title", Type::Text),
        Some("document") => need(source, "mediaType") && need(source, "title") && may(source, "filename", Type::Text),
        _ => false,
    };
    own && source.get("type").and_then(Value::as_str) == Some("source")
        && need(source, "id")
        && may(source, "providerMetadata", Type::Metadata)
}

fn is_steering_part(part: &Map<String, Value>) -> bool {
    let own = match part.get("type").and_then(Value::as_str) {
        Some("text") => need(part, "text"),
        Some("file") => {
            let names = |map: &Map<String, Value>| map.values().all(Value::is_string);
            need(part, "url")
                && need(part, "mediaType")
                && may(part, "filename", Type::Text)
                && part.get("providerReference").is_none_or(|value| value.as_object().is_some_and(names))
        }
        _ => false,
    };
    own && may(part, "providerMetadata", Type::Metadata)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn metadata_is_an_object_of_objects() {
        assert!(Type::Metadata.fits(&json!({"openai": {"itemId": "x"}})));
        assert!(Type::Metadata.fits(&json!({})));
        assert!(!Type::Metadata.fits(&json!({"itemId": "x"})));
        assert!(!Type::Metadata.fits(&json!(null)));
    }

    #[test]
    fn citations_name_a_source_and_a_place() {
        let url = json!({"type": "source", "sourceType": "url", "id": "s", "url": "u"});
        let document = json!({"type": "source", "sourceType": "document", "id": "s", "mediaType": "m", "title": "t"});
        assert!(
            Type::Citations.fits(&json!([{"source": url, "startIndex": 0, "endIndex": 2.0}, {"source": document}]))
        );
        for bad in [json!([{}]), json!([{"source": {}}]), json!([{"source": url, "startIndex": -1}]), json!({})] {
            assert!(!Type::Citations.fits(&bad), "{bad}");
        }
    }

    #[test]
    fn steering_parts_are_texts_and_files() {
        let file = json!({"type": "file", "mediaType": "m", "url": "u", "providerReference": {"p": "r"}});
        assert!(Type::Steering.fits(&json!([{"type": "text", "text": "x"}, file])));
        for bad in [
            json!([{"type": "image"}]),
            json!([{"type": "file", "mediaType": "m", "url": "u", "filename": null}]),
            json!([{"type": "text", "text": "x", "providerMetadata": {"flat": 1}}]),
        ] {
            assert!(!Type::Steering.fits(&bad), "{bad}");
        }
    }
}

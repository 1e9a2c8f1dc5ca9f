//! Every chunk type of the UI message stream as data: keys, value types, and the first `ai` version that accepts each.
//!
//! Source: `spec/ai-sdk.md` A.2, measured on published clients. Where the exact patch release is not known, the table
//! names the oldest one on which acceptance was measured, so that an older client is never sent what it may refuse.

use std::fmt;
use std::str::FromStr;

use serde_json::{Map, Value};
use thiserror::Error;

pub use super::values::Type;
use crate::core::chunk::Chunk;

/// Oldest client to serve: every `ai` version from this one on must accept what is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Floor {
    major: u32,
    minor: u32,
    patch: u32,
}

/// The text is not a version of `ai` that can be served.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("the client floor is a released version of ai 6 or 7, for example 6.0.0")]
pub struct InvalidFloor;

impl Floor {
    /// The newest generation in the table: nothing that the table knows is left out.
    pub const NEWEST: Self = Self { major: 7, minor: u32::MAX, patch: u32::MAX };

    /// Whether every version from this floor on accepts what came in `since`.
    ///
    /// The two release lines are maintained side by side and 7.0.0 is older than late 6.x releases, so a 6.x floor
    /// also needs what 7.0.0 accepts.
    pub fn knows(self, since: Since) -> bool {
        let reached = |edge: Option<u32>| edge.is_some_and(|patch| (self.minor, self.patch) >= (0, patch));
        match self.major {
            6 => reached(since.six) && since.seven == Some(0),
            _ => reached(since.seven),
        }
    }
}

impl Default for Floor {
    fn default() -> Self {
        Self { major: 6, minor: 0, patch: 0 }
    }
}

impl FromStr for Floor {
    type Err = InvalidFloor;

    fn from_str(text: &str) -> Result<Self, InvalidFloor> {
        let number = |part: Option<&str>| {
            part.filter(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
                .and_then(|digits| digits.parse::<u32>().ok())
                .ok_or(InvalidFloor)
        };
        let mut parts = text.split('.');
        let (major, minor, patch) = (number(parts.next())?, number(parts.next())?, number(parts.next())?);
        if parts.next().is_some() || !matches!(major, 6 | 7) {
            return Err(InvalidFloor);
        }
        Ok(Self { major, minor, patch })
    }
}

impl fmt::Display for Floor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// First patch release of 6.0.x and of 7.0.x that accepts something; `None` = that line never does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Since {
    /// First 6.0.x patch.
    pub six: Option<u32>,
    /// First 7.0.x patch.
    pub seven: Option<u32>,
}

/// One key of a chunk.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// Its value's type.
    pub kind: Type,
    /// Whether a chunk without it is refused. A required key of any type may be `null`; an optional one never.
    pub required: bool,
    /// First versions that accept the key on this chunk type.
    pub since: Since,
}

/// One chunk type.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The `type`, or the prefix `data-` of all data chunks.
    pub kind: &'static str,
    /// First versions that accept the type.
    pub since: Since,
    /// Its keys, without `type`.
    pub keys: &'static [Key],
}

impl Shape {
    /// The key of this name.
    pub fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }

    /// The first required key that is missing or has a value of another type.
    pub fn lacks(&self, chunk: &Map<String, Value>) -> Option<&'static str> {
        let bad = |key: &&Key| key.required && !chunk.get(key.name).is_some_and(|value| key.kind.fits(value));
        self.keys.iter().find(bad).map(|key| key.name)
    }
}

/// Whether a chunk of this type is the end of a call's input, or of the call: clients act on it, so it is not held back for a batch.
pub fn ends_call(kind: &str) -> bool {
    kind.starts_with("tool-") && !matches!(kind, "tool-input-start" | "tool-input-delta")
}

/// The shape of a chunk type; `None` for types that this protocol does not have.
pub fn shape(kind: &str) -> Option<&'static Shape> {
    if kind.starts_with(DATA.kind) { Some(&DATA) } else { SHAPES.iter().find(|shape| shape.kind == kind) }
}

/// The value that a client of this floor accepts as `finishReason` for a producer's word.
pub fn finish_reason(word: &str, floor: Floor) -> &'static str {
    match word {
        "stop" => "stop",
        "length" => "length",
        "content-filter" => "content-filter",
        "tool-calls" => "tool-calls",
        "error" => "error",
        "interrupted" if floor.knows(INTERRUPTED) => "interrupted",
        _ => "other",
    }
}

/// An optional key's value, when a client would accept it; `null` counts as absent.
pub(super) fn typed<'a>(chunk: &'a Chunk, key: &str, kind: Type) -> Option<&'a Value> {
    chunk.get(key).filter(|value| !value.is_null() && kind.fits(value))
}

/// An optional flag's value.
pub(super) fn flag(chunk: &Chunk, key: &str) -> Option<bool> {
    chunk.get(key).and_then(Value::as_bool)
}

const BASE: Since = Since { six: Some(0), seven: Some(0) };
const SEVEN: Since = Since { six: None, seven: Some(0) };
/// Refused by 6.0.0, accepted by 6.0.230; the release between is not known.
const LATE_SIX: Since = Since { six: Some(230), seven: Some(0) };
const TOOL_METADATA: Since = Since { six: Some(176), seven: Some(0) };
const INTERRUPTED: Since = since_seven(149);

const fn since_seven(patch: u32) -> Since {
    Since { six: None, seven: Some(patch) }
}

const fn need(name: &'static str, kind: Type) -> Key {
    Key { name, kind, required: true, since: BASE }
}

const fn may(name: &'static str, kind: Type, since: Since) -> Key {
    Key { name, kind, required: false, since }
}

const fn chunk(kind: &'static str, since: Since, keys: &'static [Key]) -> Shape {
    Shape { kind, since, keys }
}

const ID: Key = need("id", Type::Text);
const CALL: Key = need("toolCallId", Type::Text);
const TOOL: Key = need("toolName", Type::Text);
const INPUT: Key = need("input", Type::Any);
const ERROR_TEXT: Key = need("errorText", Type::Text);
const URL: Key = need("url", Type::Text);
const MEDIA_TYPE: Key = need("mediaType", Type::Text);
const PROVIDER: Key = may("providerMetadata", Type::Metadata, BASE);
const LATE_PROVIDER: Key = may("providerMetadata", Type::Metadata, LATE_SIX);
const TOOL_META: Key = may("toolMetadata", Type::Object, TOOL_METADATA);
const LATE_TOOL_META: Key = may("toolMetadata", Type::Object, LATE_SIX);
const EXECUTED: Key = may("providerExecuted", Type::Flag, BASE);
const DYNAMIC: Key = may("dynamic", Type::Flag, BASE);
const TITLE: Key = may("title", Type::Text, BASE);
const MESSAGE_META: Key = may("messageMetadata", Type::Any, BASE);

const DATA: Shape =
    chunk("data-", BASE, &[need("data", Type::Any), may("id", Type::Text, BASE), may("transient", Type::Flag, BASE)]);

/// All types but `data-*`; the most frequent first, because a replay looks up each of its chunks.
pub const SHAPES: &[Shape] = &[
    chunk("text-delta", BASE, &[ID, need("delta", Type::Text), PROVIDER]),
    chunk("reasoning-delta", BASE, &[ID, need("delta", Type::Text), PROVIDER]),
    chunk("tool-input-delta", BASE, &[CALL, need("inputTextDelta", Type::Text)]),
    chunk("text-start", BASE, &[ID, PROVIDER]),
    chunk("text-end", BASE, &[ID, PROVIDER, may("citations", Type::Citations, since_seven(138))]),
    chunk("reasoning-start", BASE, &[ID, PROVIDER]),
    chunk("reasoning-end", BASE, &[ID, PROVIDER]),
    chunk(
        "tool-input-start",
        BASE,
        &[
            CALL,
            TOOL,
            EXECUTED,
            DYNAMIC,
            TITLE,
            may("providerMetadata", Type::Metadata, Since { six: Some(39), seven: Some(0) }),
            TOOL_META,
            may("inputEncoding", Type::Encoding, since_seven(142)),
        ],
    ),
    chunk("tool-input-available", BASE, &[CALL, TOOL, INPUT, EXECUTED, PROVIDER, DYNAMIC, TITLE, TOOL_META]),
    chunk("tool-input-error", BASE, &[CALL, TOOL, INPUT, ERROR_TEXT, EXECUTED, PROVIDER, DYNAMIC, TITLE, TOOL_META]),
    chunk(
        "tool-output-available",
        BASE,
        &[
            CALL,
            need("output", Type::Any),
            EXECUTED,
            DYNAMIC,
            may("preliminary", Type::Flag, BASE),
            LATE_PROVIDER,
            LATE_TOOL_META,
        ],
    ),
    chunk("tool-output-error", BASE, &[CALL, ERROR_TEXT, EXECUTED, DYNAMIC, LATE_PROVIDER, LATE_TOOL_META]),
    chunk("tool-output-denied", BASE, &[CALL]),
    chunk(
        "tool-approval-request",
        BASE,
        &[
            need("approvalId", Type::Text),
            CALL,
            may("signature", Type::Text, LATE_SIX),
            may("approvalDescriptor", Type::Any, Since { six: Some(274), seven: Some(87) }),
            may("isAutomatic", Type::Flag, SEVEN),
            // "Later 7.x" in the spec; measured on 7.0.173.
            may("reason", Type::Text, since_seven(173)),
            may("inputSchemaInput", Type::Any, since_seven(173)),
        ],
    ),
    chunk(
        "tool-approval-response",
        SEVEN,
        &[
            need("approvalId", Type::Text),
            need("approved", Type::Flag),
            may("reason", Type::Text, SEVEN),
            may("providerExecuted", Type::Flag, SEVEN),
            may("providerMetadata", Type::Metadata, SEVEN),
        ],
    ),
    chunk("start-step", BASE, &[]),
    chunk("finish-step", BASE, &[]),
    chunk("reset-step", since_seven(70), &[]),
    chunk("source-url", BASE, &[need("sourceId", Type::Text), URL, TITLE, PROVIDER]),
    chunk(
        "source-document",
        BASE,
        &[
            need("sourceId", Type::Text),
            MEDIA_TYPE,
            need("title", Type::Text),
            may("filename", Type::Text, BASE),
            PROVIDER,
        ],
    ),
    chunk("file", BASE, &[URL, MEDIA_TYPE, PROVIDER]),
    chunk("reasoning-file", SEVEN, &[URL, MEDIA_TYPE, PROVIDER]),
    chunk("custom", SEVEN, &[need("kind", Type::Text), PROVIDER]),
    chunk("steering-message", since_seven(163), &[ID, need("parts", Type::Steering)]),
    chunk("start", BASE, &[may("messageId", Type::Text, BASE), MESSAGE_META]),
    chunk("finish", BASE, &[may("finishReason", Type::FinishReason, BASE), MESSAGE_META]),
    chunk("message-metadata", BASE, &[need("messageMetadata", Type::Any)]),
    chunk("abort", BASE, &[may("reason", Type::Text, Since { six: Some(15), seven: Some(0) })]),
    chunk("error", BASE, &[ERROR_TEXT]),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn floor(text: &str) -> Floor {
        text.parse().unwrap()
    }

    #[test]
    fn floors_are_released_versions_of_6_and_7() {
        assert_eq!(floor("6.0.0"), Floor::default());
        assert_eq!(floor("7.0.173").to_string(), "7.0.173");
        for bad in ["", "6", "6.0", "5.0.0", "8.0.0", "6.0.0.1", "7.0.0-beta.1", "+6.0.0", "6.0.99999999999", "v6.0.0"]
        {
            assert_eq!(bad.parse::<Floor>(), Err(InvalidFloor), "{bad}");
        }
    }

    #[test]
    fn a_six_floor_also_needs_seven_zero() {
        let descriptor = shape("tool-approval-request").unwrap().key("approvalDescriptor").unwrap().since;
        assert!(!floor("6.0.281").knows(descriptor));
        assert!(!floor("7.0.86").knows(descriptor));
        assert!(floor("7.0.87").knows(descriptor));
        let reason = shape("abort").unwrap().key("reason").unwrap().since;
        assert!(!floor("6.0.14").knows(reason));
        assert!(floor("6.0.15").knows(reason));
        assert!(floor("6.1.0").knows(reason));
        assert!(Floor::NEWEST.knows(INTERRUPTED));
    }

    #[test]
    fn types_have_their_literal_names_and_edges() {
        for kind in ["start", "text-start", "data-anything", "tool-output-denied", "message-metadata", "abort", "error"]
        {
            assert!(Floor::default().knows(shape(kind).unwrap().since), "{kind}");
        }
        for kind in ["custom", "reasoning-file", "reset-step", "steering-message", "tool-approval-response"] {
            assert!(!floor("6.0.326").knows(shape(kind).unwrap().since), "{kind}");
            assert!(floor("7.0.173").knows(shape(kind).unwrap().since), "{kind}");
        }
        for kind in ["run_started", "step_start", "text_delta", "data", "tool-search", ""] {
            assert!(shape(kind).is_none(), "{kind}");
        }
    }

    #[test]
    fn finish_reasons_outside_the_enum_become_other() {
        assert_eq!(finish_reason("tool-calls", Floor::default()), "tool-calls");
        assert_eq!(finish_reason("unknown", Floor::NEWEST), "other");
        assert_eq!(finish_reason("interrupted", floor("7.0.148")), "other");
        assert_eq!(finish_reason("interrupted", floor("7.0.149")), "interrupted");
    }
}

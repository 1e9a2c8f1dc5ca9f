//! Identifiers and numbers of the log. Each has one way in: a fallible constructor.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Position of a stored chunk: 1, 2, 3 …, at most [`Sequence::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Sequence(u64);

/// "I have everything up to here": 0, or the sequence of the last chunk seen. Reads are exclusive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cursor(u64);

/// The number is not a sequence, or the log has used them all up.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("a sequence is a whole number from 1 to {max}", max = Sequence::MAX)]
pub struct SequenceOutOfRange;

impl Sequence {
    /// 2^43 − 1: a block's key is the sequence × 1024 + part and must stay a safe integer of JavaScript (2^53 − 1).
    pub const MAX: u64 = (1 << 43) - 1;

    /// # Errors
    /// [`SequenceOutOfRange`] for 0 and for anything above [`Sequence::MAX`].
    pub fn new(value: u64) -> Result<Self, SequenceOutOfRange> {
        if (1..=Self::MAX).contains(&value) { Ok(Self(value)) } else { Err(SequenceOutOfRange) }
    }

    /// The bare number, for wire and storage.
    pub fn get(self) -> u64 {
        self.0
    }

    /// The cursor of a reader that has everything before this chunk.
    pub fn before(self) -> Cursor {
        Cursor(self.0.saturating_sub(1))
    }

    /// The cursor of a reader that has this chunk.
    pub fn cursor(self) -> Cursor {
        Cursor(self.0)
    }
}

impl Cursor {
    /// Nothing seen yet.
    pub const START: Self = Self(0);

    /// # Errors
    /// [`SequenceOutOfRange`] above [`Sequence::MAX`].
    pub fn new(value: u64) -> Result<Self, SequenceOutOfRange> {
        if value <= Sequence::MAX { Ok(Self(value)) } else { Err(SequenceOutOfRange) }
    }

    /// The bare number, for wire and storage.
    pub fn get(self) -> u64 {
        self.0
    }

    /// The sequence of the chunk that comes next.
    ///
    /// # Errors
    /// [`SequenceOutOfRange`] when the log has used all numbers.
    pub fn next(self) -> Result<Sequence, SequenceOutOfRange> {
        Sequence::new(self.0.saturating_add(1))
    }

    /// Whether a reader at this cursor still lacks `sequence`.
    pub fn lacks(self, sequence: Sequence) -> bool {
        sequence.0 > self.0
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Takes the id as it is; ids of this kind are made by the service itself.
            pub fn new(value: impl Into<String>) -> Self {
                Self(value.into())
            }

            /// The id's text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

text_id!(
    /// One execution that answers one entry.
    RunId
);
text_id!(
    /// One try of one step of a run.
    AttemptId
);
text_id!(
    /// A UI message.
    MessageId
);
text_id!(
    /// A committed point of the conversation.
    CheckpointId
);

impl MessageId {
    /// The id of the reply that the run of this turn begins, at this place of the conversation. No other run's reply has it, also when it
    /// stands in the same place; `salt` is the session's.
    pub fn of_reply(salt: &str, turn: u32, index: u32) -> Self {
        Self(format!("msg_{salt}_{turn}_{index}"))
    }

    /// Whether it has the form of the ids that a session of this salt gives its replies, or gave them in earlier builds.
    pub fn is_for_replies(&self, salt: &str) -> bool {
        self.0.strip_prefix("msg_").and_then(|rest| rest.strip_prefix(salt)).is_some_and(|rest| rest.starts_with('_'))
    }
}

/// One conversation: 1 to 256 bytes of UTF-8 without control characters and without `/ ? # % \`, not `.` or `..` (DESIGN.md section 6).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SessionId(String);

/// Why a text is not a session id.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum InvalidSessionId {
    /// No bytes at all.
    #[error("a session id must not be empty")]
    Empty,
    /// More than 256 bytes.
    #[error("a session id has at most {} bytes", SessionId::MAX_BYTES)]
    TooLong,
    /// A control character or one of `/ ? # % \`.
    #[error("a session id must not contain control characters or any of / ? # % \\")]
    Character,
    /// `.` or `..`.
    #[error("a session id must not be . or ..")]
    Dots,
    /// The path segment does not decode to UTF-8.
    #[error("a session id must be percent-encoded UTF-8")]
    Encoding,
}

impl SessionId {
    /// Longest id, in bytes of UTF-8.
    pub const MAX_BYTES: usize = 256;

    /// Accepts an id that is already decoded.
    ///
    /// # Errors
    /// [`InvalidSessionId`] says what to change.
    pub fn parse(text: &str) -> Result<Self, InvalidSessionId> {
        match text {
            "" => Err(InvalidSessionId::Empty),
            "." | ".." => Err(InvalidSessionId::Dots),
            _ if text.len() > Self::MAX_BYTES => Err(InvalidSessionId::TooLong),
            _ if text.chars().any(|c| c.is_control() || matches!(c, '/' | '?' | '#' | '%' | '\\')) => {
                Err(InvalidSessionId::Character)
            }
            _ => Ok(Self(text.to_owned())),
        }
    }

    /// Decodes one path segment, once, and accepts it as an id.
    ///
    /// # Errors
    /// [`InvalidSessionId`] says what to change.
    pub fn from_path_segment(segment: &str) -> Result<Self, InvalidSessionId> {
        Self::parse(&percent_decode(segment).ok_or(InvalidSessionId::Encoding)?)
    }

    /// The id's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What a client sends once per send, so that a repeat of it is known (`x-helix-request-key`, `spec/helix.md` 5.8): 1 to 255 visible
/// ASCII characters.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestKey(String);

/// The text is no request key. It is not quoted: the header may hold anything.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("a request key has 1 to {} visible ASCII characters and no spaces", RequestKey::MAX_BYTES)]
pub struct InvalidRequestKey;

impl RequestKey {
    /// Longest key, in bytes.
    pub const MAX_BYTES: usize = 255;

    /// # Errors
    /// [`InvalidRequestKey`] for an empty or too long text, and for any character but `!` to `~`.
    pub fn parse(text: &str) -> Result<Self, InvalidRequestKey> {
        let fits = (1..=Self::MAX_BYTES).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
        if fits { Ok(Self(text.to_owned())) } else { Err(InvalidRequestKey) }
    }

    /// The key's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Escapes every byte but letters, digits and `-._~`: the text as one segment of a path, or as a value of a query.
pub fn percent_encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// Decodes `%XX` once. `None` when an escape is cut short or the bytes are not UTF-8.
pub fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let high = char::from(rest.next()?).to_digit(16)?;
            let low = char::from(rest.next()?).to_digit(16)?;
            bytes.push(u8::try_from(high.checked_mul(16)?.checked_add(low)?).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn refuses_what_the_design_refuses() {
        for (segment, why) in [
            ("", InvalidSessionId::Empty),
            (".", InvalidSessionId::Dots),
            ("%2E%2E", InvalidSessionId::Dots),
            ("a%2Fb", InvalidSessionId::Character),
            ("a%252Fb", InvalidSessionId::Character),
            ("a%00", InvalidSessionId::Character),
            ("a%C2%85", InvalidSessionId::Character),
            ("a%5Cb", InvalidSessionId::Character),
            ("%FF", InvalidSessionId::Encoding),
            ("a%4", InvalidSessionId::Encoding),
        ] {
            assert_eq!(SessionId::from_path_segment(segment), Err(why), "{segment}");
        }
        assert_eq!(SessionId::parse(&"x".repeat(257)), Err(InvalidSessionId::TooLong));
        assert!(SessionId::parse(&"x".repeat(256)).is_ok());
    }

    #[test]
    fn allows_every_other_text() {
        for (segment, id) in [("gr%C3%BC%C3%9Fe", "grüße"), ("%F0%9F%90%99", "🐙"), ("a%20b", "a b"), ("...", "...")]
        {
            assert_eq!(SessionId::from_path_segment(segment).unwrap().as_str(), id);
        }
    }

    #[test]
    fn a_request_key_is_visible_ascii_and_is_never_echoed() {
        for key in ["a", "!~", &"x".repeat(255), "8d0f6f2e-1b77-4c58-9d0e-1f0a3ab0a9d7"] {
            assert_eq!(RequestKey::parse(key).unwrap().as_str(), key);
        }
        for key in ["", "a b", " a", "a\t", "a\u{7f}", "schlüssel", &"x".repeat(256)] {
            let refusal = RequestKey::parse(key).unwrap_err();
            assert_eq!(refusal.to_string(), "a request key has 1 to 255 visible ASCII characters and no spaces");
        }
    }

    proptest! {
        #[test]
        fn decoding_never_panics(text in ".*") {
            let _ = SessionId::from_path_segment(&text);
        }

        #[test]
        fn a_cursor_lacks_exactly_what_lies_above(cursor in 0..=Sequence::MAX, sequence in 1..=Sequence::MAX) {
            let lacks = Cursor::new(cursor).unwrap().lacks(Sequence::new(sequence).unwrap());
            prop_assert_eq!(lacks, sequence > cursor);
        }
    }
}

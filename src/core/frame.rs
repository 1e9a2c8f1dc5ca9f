//! The stored form of a chunk: one finished `chunk` frame of stream wire v2 (`spec/helix.md` 4.1).
//!
//! ```text
//! event: chunk
//! id: 42
//! data: {"sequence":42,"chunk":{"type":"text-delta","id":"t1","delta":"Hi","runId":"r1","attemptId":"r1-1-1","step":1}}
//!
//! ```
//!
//! JSON text holds no raw line break, so the first empty line ends a frame.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

use super::chunk::{Chunk, STAMP_KEYS, Stamp};
use super::ids::{AttemptId, Sequence};
use super::json_line;

/// What ends a frame, and stands nowhere else in it.
const END: &[u8] = b"\n\n";

/// Stored bytes that are not a row of finished frames.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("the stored bytes are not finished chunk frames")]
pub struct BadFrame;

/// Encodes a chunk at its place in the log. Keys that the stamp owns are replaced on the chunk; all bookkeeping stands last.
/// A step's number on a chunk of no attempt is the producer's own word, and stays where it is.
pub fn encode(sequence: Sequence, chunk: &Chunk, stamp: &Stamp, out: &mut Vec<u8>) {
    let from = out.len();
    let head = format!("event: chunk\nid: {sequence}\ndata: {{\"sequence\":{sequence},\"chunk\":{{");
    out.extend_from_slice(head.as_bytes());
    let [run, attempt, step, continues] = STAMP_KEYS;
    let own = |key: &str| !STAMP_KEYS.contains(&key) || (key == step && stamp.attempt.is_none());
    for (key, value) in chunk.as_map().iter().filter(|(key, _)| own(key)) {
        pair(key, value, out);
        out.push(b',');
    }
    pair(run, stamp.run.as_str(), out);
    if let Some((id, number)) = &stamp.attempt {
        out.push(b',');
        pair(attempt, id.as_str(), out);
        out.push(b',');
        pair(step, number, out);
    }
    if let Some(tool) = chunk.text(continues) {
        out.push(b',');
        pair(continues, tool, out);
    }
    out.extend_from_slice(b"}}\n\n");
    json_line::escape(out, from);
}

fn pair<T: Serialize + ?Sized>(key: &str, value: &T, out: &mut Vec<u8>) {
    // Neither a text nor a JSON value can fail to become JSON in memory.
    let _ = serde_json::to_writer(&mut *out, key);
    out.push(b':');
    let _ = serde_json::to_writer(&mut *out, value);
}

/// A decoded frame.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    /// Its place in the log.
    pub sequence: Sequence,
    /// The chunk, stamp included.
    pub chunk: Chunk,
}

impl Stored {
    /// The attempt that wrote the chunk.
    pub fn attempt(&self) -> Option<AttemptId> {
        let [_, attempt, ..] = STAMP_KEYS;
        self.chunk.text(attempt).map(AttemptId::new)
    }
}

/// Decodes a row of frames.
///
/// # Errors
/// [`BadFrame`] when the bytes were not written by [`encode`].
pub fn decode(bytes: &[u8]) -> Result<Vec<Stored>, BadFrame> {
    split(bytes).map(|frame| decode_one(frame?)).collect()
}

/// The frames of a row, each with its end.
///
/// # Errors
/// [`BadFrame`], once, when the row does not end with a frame.
pub fn split(bytes: &[u8]) -> impl Iterator<Item = Result<&[u8], BadFrame>> {
    let finder = memchr::memmem::Finder::new(END);
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = finder.find(rest).and_then(|at| at.checked_add(END.len()));
        match end.and_then(|end| rest.split_at_checked(end)) {
            Some((frame, after)) => {
                rest = after;
                Some(Ok(frame))
            }
            None => {
                rest = &[];
                Some(Err(BadFrame))
            }
        }
    })
}

/// Decodes one frame.
///
/// # Errors
/// [`BadFrame`] when the bytes were not written by [`encode`].
pub fn decode_one(frame: &[u8]) -> Result<Stored, BadFrame> {
    #[derive(Deserialize)]
    struct Data {
        sequence: u64,
        chunk: Value,
    }
    let data = frame.split(|b| *b == b'\n').find_map(|line| line.strip_prefix(b"data: ")).ok_or(BadFrame)?;
    let data: Data = serde_json::from_slice(data).map_err(|_| BadFrame)?;
    Ok(Stored {
        sequence: Sequence::new(data.sequence).map_err(|_| BadFrame)?,
        chunk: Chunk::parse(data.chunk).map_err(|_| BadFrame)?,
    })
}

/// The bytes after the first `frames` frames; empty when there are no more.
pub fn skip(bytes: &[u8], frames: u64) -> &[u8] {
    let Some(last) = frames.checked_sub(1) else { return bytes };
    let end = memchr::memmem::find_iter(bytes, END).nth(usize::try_from(last).unwrap_or(usize::MAX));
    end.and_then(|at| bytes.get(at.checked_add(END.len())?..)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::ids::RunId;
    use proptest::prelude::*;
    use serde_json::json;

    fn stamp() -> Stamp {
        Stamp { run: RunId::new("r1"), attempt: Some((AttemptId::new("r1-1-1"), 1)) }
    }

    #[test]
    fn golden_bytes() {
        let mut out = Vec::new();
        let chunk = Chunk::new("text-delta").with("id", "t1").with("delta", "H\ni").with("runId", "forged");
        encode(Sequence::new(42).unwrap(), &chunk, &stamp(), &mut out);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "event: chunk\nid: 42\ndata: {\"sequence\":42,\"chunk\":{\"type\":\"text-delta\",\"id\":\"t1\",\
             \"delta\":\"H\\ni\",\"runId\":\"r1\",\"attemptId\":\"r1-1-1\",\"step\":1}}\n\n"
        );
    }

    #[test]
    fn the_mark_of_an_earlier_call_stands_last() {
        let mut out = Vec::new();
        let chunk = Chunk::new("tool-output-denied").with("continues", "t\"ool").with("toolCallId", "c");
        encode(Sequence::new(1).unwrap(), &chunk, &stamp(), &mut out);
        encode(Sequence::new(2).unwrap(), &chunk.with("continues", 7), &stamp(), &mut out);
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.contains(r#""toolCallId":"c","runId":"r1","attemptId":"r1-1-1","step":1,"continues":"t\"ool"}}"#),
            "{text}"
        );
        assert!(text.ends_with("\"step\":1}}\n\n"), "{text}");
    }

    #[test]
    fn keys_keep_their_order_and_forged_stamps_are_gone() {
        let mut out = Vec::new();
        let chunk = Chunk::new("x").with("step", 9).with("a", 1).with("attemptId", "forged").with("b", 2).with("c", 3);
        let bare = Stamp { run: RunId::new("r\"1"), attempt: None };
        encode(Sequence::new(1).unwrap(), &chunk, &bare, &mut out);
        let text = String::from_utf8(out.clone()).unwrap();
        assert!(
            text.ends_with("\"chunk\":{\"type\":\"x\",\"step\":9,\"a\":1,\"b\":2,\"c\":3,\"runId\":\"r\\\"1\"}}\n\n"),
            "{text}"
        );
        assert_eq!(decode(&out).unwrap()[0].attempt(), None);
        assert!(skip(&out, u64::MAX).is_empty() && skip(&out, 1).is_empty() && skip(&out, 0) == out);
    }

    proptest! {
        #[test]
        fn rows_of_frames_round_trip(texts in prop::collection::vec(".*", 0..8), skipped in 0_usize..10) {
            let mut bytes = Vec::new();
            for (at, text) in texts.iter().enumerate() {
                let chunk = Chunk::new("text-delta").with("delta", text.as_str());
                encode(Sequence::new(at as u64 + 1).unwrap(), &chunk, &stamp(), &mut bytes);
            }
            let read = |bytes: &[u8]| decode(bytes).unwrap().into_iter()
                .map(|f| f.chunk.text("delta").unwrap().to_owned()).collect::<Vec<_>>();
            prop_assert_eq!(&read(&bytes), &texts);
            prop_assert_eq!(read(skip(&bytes, skipped as u64)), texts.into_iter().skip(skipped).collect::<Vec<_>>());
        }

        #[test]
        fn a_frame_is_whole_to_every_reader_of_lines(key in "[a\u{85}\u{2028}]{1,4}", text in "[a\u{85}\u{2028}\u{2029}\n\r]{0,9}", run in "[r\u{2029}]{1,3}") {
            let chunk = Chunk::new("x").with(&key, json!([{ &key: &text }])).with("continues", text.as_str());
            let mut bytes = Vec::new();
            encode(Sequence::new(1).unwrap(), &chunk, &Stamp { run: RunId::new(&*run), attempt: None }, &mut bytes);
            let read = decode_one(&bytes).unwrap().chunk;
            prop_assert_eq!((read.get(&key), read.text("runId")), (chunk.get(&key), Some(&*run)));
            let frame = String::from_utf8(bytes).unwrap();
            let lines = frame.split(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']).collect::<Vec<_>>();
            prop_assert_eq!(lines.len(), 5, "{:?}", lines);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes);
            let _ = skip(&bytes, 3);
        }
    }
}

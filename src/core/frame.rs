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

use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;

use super::chunk::{Chunk, STAMP_KEYS, Stamp};
use super::ids::{AttemptId, Sequence};

/// Stored bytes that are not a row of finished frames.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("the stored bytes are not finished chunk frames")]
pub struct BadFrame;

/// Encodes a chunk at its place in the log. Keys that the stamp owns are replaced on the chunk.
pub fn encode(sequence: Sequence, chunk: &Chunk, stamp: &Stamp, out: &mut Vec<u8>) {
    let mut map = chunk.as_map().clone();
    let [run, attempt, step] = STAMP_KEYS;
    map.remove(attempt);
    map.remove(step);
    map.insert(run.into(), Value::String(stamp.run.as_str().into()));
    if let Some((id, number)) = &stamp.attempt {
        map.insert(attempt.into(), Value::String(id.as_str().into()));
        map.insert(step.into(), Value::from(*number));
    }
    let text =
        format!("event: chunk\nid: {sequence}\ndata: {{\"sequence\":{sequence},\"chunk\":{}}}\n\n", Value::Object(map));
    out.extend_from_slice(text.as_bytes());
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
        let [_, attempt, _] = STAMP_KEYS;
        self.chunk.text(attempt).map(AttemptId::new)
    }
}

/// Decodes a row of frames.
///
/// # Errors
/// [`BadFrame`] when the bytes were not written by [`encode`].
pub fn decode(bytes: &[u8]) -> Result<Vec<Stored>, BadFrame> {
    #[derive(Deserialize)]
    struct Data {
        sequence: u64,
        chunk: Value,
    }
    let mut frames = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let end = frame_end(rest).ok_or(BadFrame)?;
        let (frame, after) = rest.split_at_checked(end).ok_or(BadFrame)?;
        rest = after;
        let data = frame.split(|b| *b == b'\n').find_map(|line| line.strip_prefix(b"data: ")).ok_or(BadFrame)?;
        let data: Data = serde_json::from_slice(data).map_err(|_| BadFrame)?;
        frames.push(Stored {
            sequence: Sequence::new(data.sequence).map_err(|_| BadFrame)?,
            chunk: Chunk::parse(data.chunk).map_err(|_| BadFrame)?,
        });
    }
    Ok(frames)
}

/// The bytes after the first `frames` frames; empty when there are no more.
pub fn skip(bytes: &[u8], frames: u64) -> &[u8] {
    let mut rest = bytes;
    for _ in 0..frames {
        let Some(after) = frame_end(rest).and_then(|end| rest.get(end..)) else { return &[] };
        rest = after;
    }
    rest
}

fn frame_end(bytes: &[u8]) -> Option<usize> {
    memchr::memmem::find(bytes, b"\n\n").and_then(|at| at.checked_add(2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::ids::RunId;
    use proptest::prelude::*;

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
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes);
            let _ = skip(&bytes, 3);
        }
    }
}

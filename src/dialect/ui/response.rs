//! The bytes of a chat response: server-sent events, one frame per chunk (`spec/ai-sdk.md` A.1).
//!
//! AI SDK clients read `data` only, and drop `id`, comments and everything else; Helix clients take their cursor from
//! `id`. A frame with an `event` name would be parsed as a chunk, so there is none.

use serde_json::{Map, Value, json};

use super::attempts::is_content;
use super::delta::{self, Delta};
use super::lens::Lens;
use super::sanitise::sanitise;
use super::vocabulary::Floor;
use crate::core::chunk::Chunk;
use crate::core::frame::{self, BadFrame, Stored};
use crate::core::ids::Sequence;
use crate::core::json_line;
use crate::core::view::Fault;

/// Chunks with which every run is opened: `run_started` and `start`.
pub const OPENING_CHUNKS: u64 = 2;

/// Ends the response; after it the body is closed.
pub const DONE: &[u8] = b"data: [DONE]\n\n";

/// First bytes of every response: proxies hold back the headers until a byte of the body has come.
pub const OPENING: &[u8] = b": open\n\n";

/// Sent when a response was silent for a heartbeat's time.
pub const HEARTBEAT: &[u8] = b": keep-alive\n\n";

/// How a run ended, for a response that followed it to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The reply is whole.
    Completed,
    /// The run waits for a client's tool result or approval.
    Suspended,
    /// Somebody stopped the run.
    Stopped,
    /// The run failed.
    Failed(Fault),
}

/// What [`project`] has written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Projected {
    /// Number of frames.
    pub frames: usize,
    /// Whether one of them was the run's `finish`.
    pub finish: bool,
    /// Whether one of them was content, which must not be shown twice.
    pub content: bool,
}

/// Appends one frame. The sequence goes on the last frame of a stored chunk only; synthesised frames have none.
pub fn event(sequence: Option<Sequence>, map: &Map<String, Value>, out: &mut Vec<u8>) {
    let before = out.len();
    if let Some(sequence) = sequence {
        out.extend_from_slice(format!("id: {sequence}\n").as_bytes());
    }
    out.extend_from_slice(b"data: ");
    let from = out.len();
    // A map with string keys always serialises, and JSON has no raw line ends.
    if serde_json::to_writer(&mut *out, map).is_err() {
        out.truncate(before);
        return;
    }
    json_line::escape(out, from);
    out.extend_from_slice(b"\n\n");
}

/// Appends a synthesised chunk as this floor accepts it.
pub fn synthesise(chunk: Chunk, floor: Floor, out: &mut Vec<u8>) {
    if let Some(map) = sanitise(chunk, floor) {
        event(None, &map, out);
    }
}

/// Appends the frames of a slice of the log. Chunks that this response must not show become nothing.
pub fn project(
    frames: impl Iterator<Item = (Sequence, Chunk)>,
    floor: Floor,
    lens: &Lens,
    out: &mut Vec<u8>,
) -> Projected {
    let mut written = Projected::default();
    for (sequence, chunk) in frames {
        let Some(chunk) = lens.show(chunk) else { continue };
        let content = is_content(&chunk);
        let Some(map) = sanitise(chunk, floor) else { continue };
        written.content |= content;
        event(Some(sequence), &map, out);
        written.frames = written.frames.saturating_add(1);
        written.finish |= map.get("type").and_then(Value::as_str) == Some("finish");
    }
    written
}

/// Appends a row of stored frames, as [`project`] does; plain deltas are not even decoded.
///
/// # Errors
/// [`BadFrame`] when the bytes are not stored frames.
pub fn project_stored(bytes: &[u8], floor: Floor, lens: &Lens, out: &mut Vec<u8>) -> Result<Projected, BadFrame> {
    let mut written = Projected::default();
    for stored in frame::split(bytes) {
        let stored = stored?;
        if let Some(Delta { sequence, chunk, attempt }) = delta::of_frame(stored) {
            if attempt.is_some_and(|attempt| lens.superseded.contains(attempt)) {
                continue;
            }
            written.content = true;
            for piece in [&b"id: "[..], sequence, b"\ndata: ", chunk, b"}\n\n"] {
                out.extend_from_slice(piece);
            }
            written.frames = written.frames.saturating_add(1);
        } else {
            let Stored { sequence, chunk } = frame::decode_one(stored)?;
            let one = project(std::iter::once((sequence, chunk)), floor, lens, out);
            written.frames = written.frames.saturating_add(one.frames);
            written.finish |= one.finish;
            written.content |= one.content;
        }
    }
    Ok(written)
}

/// Appends the end of a response (`spec/ai-sdk.md` A.7): the terminal chunk, then [`DONE`]. `finish_sent` says whether
/// the response has already carried a `finish`.
///
/// `abort` has no reason, because 6.0.0 refuses one; `error` carries the words that the client shows.
pub fn terminal(outcome: &Outcome, finish_sent: bool, out: &mut Vec<u8>) {
    let chunk = match outcome {
        Outcome::Completed | Outcome::Suspended if finish_sent => None,
        Outcome::Completed => Some(json!({"type": "finish", "finishReason": "stop"})),
        Outcome::Suspended => Some(json!({"type": "finish", "finishReason": "tool-calls"})),
        Outcome::Stopped => Some(json!({"type": "abort"})),
        Outcome::Failed(fault) => Some(json!({"type": "error", "errorText": fault.words()})),
    };
    if let Some(Value::Object(map)) = chunk {
        event(None, &map, out);
    }
    out.extend_from_slice(DONE);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::error::Code;

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    fn stored(sequence: u64, value: Value) -> (Sequence, Chunk) {
        (Sequence::new(sequence).unwrap(), Chunk::parse(value).unwrap())
    }

    #[test]
    fn a_frame_is_its_literal_bytes() {
        let map = Chunk::new("text-delta").with("id", "t").with("delta", "a\nb").into_map();
        assert_eq!(
            text(|out| event(Some(Sequence::new(7).unwrap()), &map, out)),
            "id: 7\ndata: {\"type\":\"text-delta\",\"id\":\"t\",\"delta\":\"a\\nb\"}\n\n"
        );
        assert_eq!(
            text(|out| event(None, &Chunk::new("start-step").into_map(), out)),
            "data: {\"type\":\"start-step\"}\n\n"
        );
    }

    #[test]
    fn marks_that_end_a_line_for_some_leave_as_escapes() {
        let map = Chunk::new("data-\u{85}").with("data", "a\u{2028}b\u{2029}").into_map();
        assert_eq!(
            text(|out| event(None, &map, out)),
            "data: {\"type\":\"data-\\u0085\",\"data\":\"a\\u2028b\\u2029\"}\n\n"
        );
    }

    #[test]
    fn a_slice_of_the_log_loses_its_bookkeeping() {
        let slice = [
            stored(1, json!({"type": "run_started", "runId": "r"})),
            stored(2, json!({"type": "start", "messageId": "m", "runId": "r"})),
            stored(3, json!({"type": "finish", "runId": "r"})),
        ];
        let mut out = Vec::new();
        let written = project(slice.into_iter(), Floor::default(), &Lens::default(), &mut out);
        assert_eq!(written, Projected { frames: 2, finish: true, content: false });
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "id: 2\ndata: {\"type\":\"start\",\"messageId\":\"m\"}\n\nid: 3\ndata: {\"type\":\"finish\"}\n\n"
        );
    }

    #[test]
    fn terminals_are_their_literal_bytes() {
        for (outcome, sent, bytes) in [
            (Outcome::Completed, true, "data: [DONE]\n\n"),
            (Outcome::Completed, false, "data: {\"type\":\"finish\",\"finishReason\":\"stop\"}\n\ndata: [DONE]\n\n"),
            (
                Outcome::Suspended,
                false,
                "data: {\"type\":\"finish\",\"finishReason\":\"tool-calls\"}\n\ndata: [DONE]\n\n",
            ),
            (Outcome::Stopped, true, "data: {\"type\":\"abort\"}\n\ndata: [DONE]\n\n"),
            (
                Outcome::Failed(Fault::from(Code::ProducerLost)),
                false,
                "data: {\"type\":\"error\",\"errorText\":\"The reply was interrupted; try again\"}\n\ndata: [DONE]\n\n",
            ),
        ] {
            assert_eq!(text(|out| terminal(&outcome, sent, out)), bytes);
        }
    }
}

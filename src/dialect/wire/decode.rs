//! Stream wire v2 as a reader gets it: bytes cut anywhere in, typed frames out (`spec/helix.md` 4.1).
//!
//! Comments and events of unknown names are passed over. A frame that is cut by the end of the body was never sent.

use std::collections::VecDeque;

use serde_json::{Map, Value};
use thiserror::Error;

use crate::core::event_stream::{Event, EventStream, EventStreamError};
use crate::core::ids::{Cursor, Sequence};
use crate::core::lenient_json;
use crate::core::reader::Eviction;

/// One frame of `/sse`.
#[derive(Clone, Debug, PartialEq)]
pub enum WireFrame {
    /// One stored chunk; what is in it is not looked at.
    Chunk {
        /// Its place in the log.
        sequence: Sequence,
        /// The chunk.
        chunk: Value,
    },
    /// The end of history: everything after it is live.
    CaughtUp,
    /// The stream has ended.
    End(EndStatus),
    /// The stream has failed, or was broken off.
    Fail {
        /// Whether the reader shall attach again from its cursor.
        recoverable: bool,
        /// What the server says of it.
        failure: WireFailure,
    },
    /// The cursor lies below what is kept.
    Truncated {
        /// Chunks up to here are gone, when the server says so.
        floor: Option<Cursor>,
    },
    /// Chunks were removed from the end of the log.
    Rewound {
        /// The head afterwards, when the server says so.
        head: Option<Cursor>,
    },
    /// The server ends this connection on purpose.
    Evicted {
        /// The last sequence that it has written to this connection.
        resume_from: Cursor,
        /// Why; `None` for a reason that this reader does not know.
        reason: Option<Eviction>,
    },
}

/// How a stream ended (`end.status`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndStatus {
    /// The run finished.
    Completed,
    /// The run is suspended.
    Paused,
    /// The run was stopped.
    Interrupted,
}

/// The words of a `fail` frame.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WireFailure {
    /// For people.
    pub error: String,
    /// `{code, category, retryable, …}`, when it was sent.
    pub detail: Option<Value>,
}

/// Why the bytes are not stream wire v2.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum DecodeError {
    /// They are no event stream, or one of its events is too large.
    #[error(transparent)]
    Stream(#[from] EventStreamError),
    /// The data of a known event is not what the protocol says.
    #[error("the data of a `{0}` frame is not what the protocol says")]
    Frame(&'static str),
}

/// Incremental decoder of one response body. After an error it yields nothing more.
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    events: EventStream,
    ready: VecDeque<Event>,
    failed: Option<DecodeError>,
}

impl Decoder {
    /// A decoder that refuses events of more than `limit` bytes; the default is [`EventStream::MAX_EVENT_BYTES`].
    pub fn new(limit: usize) -> Self {
        Self { events: EventStream::new(limit), ..Self::default() }
    }

    /// Takes the next bytes of the body.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.failed.is_some() {
            return;
        }
        let mut events = Vec::new();
        self.failed = self.events.push(bytes, &mut events).err().map(DecodeError::Stream);
        self.ready.extend(events);
    }

    /// The next frame that is complete; `None` when more bytes are needed.
    ///
    /// # Errors
    /// [`DecodeError`], after every frame before it; every later call answers the same.
    pub fn next_frame(&mut self) -> Result<Option<WireFrame>, DecodeError> {
        while let Some(event) = self.ready.pop_front() {
            match frame(&event) {
                Ok(None) => {}
                Ok(frame) => return Ok(frame),
                Err(error) => {
                    self.ready.clear();
                    self.failed = Some(error);
                }
            }
        }
        self.failed.map_or(Ok(None), Err)
    }
}

/// Reads the data of one kind of frame.
type Read = fn(Map<String, Value>) -> Option<WireFrame>;

fn frame(event: &Event) -> Result<Option<WireFrame>, DecodeError> {
    let (name, read): (_, Read) = match event.name.as_deref() {
        Some("chunk") => ("chunk", chunk),
        Some("caught-up") => ("caught-up", |_| Some(WireFrame::CaughtUp)),
        Some("end") => ("end", end),
        Some("fail") => ("fail", |data| Some(fail(data))),
        Some("truncated") => ("truncated", |data| Some(WireFrame::Truncated { floor: cursor(&data, "floor") })),
        Some("rewound") => ("rewound", |data| Some(WireFrame::Rewound { head: cursor(&data, "head") })),
        Some("evicted") => ("evicted", evicted),
        _ => return Ok(None),
    };
    match lenient_json::parse(&event.data) {
        Ok(Value::Object(data)) => read(data).map(Some).ok_or(DecodeError::Frame(name)),
        _ => Err(DecodeError::Frame(name)),
    }
}

fn chunk(mut data: Map<String, Value>) -> Option<WireFrame> {
    let sequence = Sequence::new(data.get("sequence")?.as_u64()?).ok()?;
    Some(WireFrame::Chunk { sequence, chunk: data.remove("chunk")? })
}

fn end(data: Map<String, Value>) -> Option<WireFrame> {
    let status = match data.get("status")?.as_str()? {
        "completed" => EndStatus::Completed,
        "paused" => EndStatus::Paused,
        "interrupted" => EndStatus::Interrupted,
        _ => return None,
    };
    Some(WireFrame::End(status))
}

fn fail(mut data: Map<String, Value>) -> WireFrame {
    let recoverable = data.get("recoverable").and_then(Value::as_bool).unwrap_or_default();
    let error = data.get("error").and_then(Value::as_str).unwrap_or_default().to_owned();
    WireFrame::Fail { recoverable, failure: WireFailure { error, detail: data.remove("errorDetail") } }
}

fn evicted(data: Map<String, Value>) -> Option<WireFrame> {
    let reason = data.get("reason").and_then(Value::as_str).unwrap_or_default();
    let reason = Eviction::ALL.into_iter().find(|known| known.as_str() == reason);
    Some(WireFrame::Evicted { resume_from: cursor(&data, "resumeFrom")?, reason })
}

fn cursor(data: &Map<String, Value>, key: &str) -> Option<Cursor> {
    data.get(key)?.as_u64().and_then(|number| Cursor::new(number).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::chunk::{Chunk, Stamp};
    use crate::core::error::Code;
    use crate::core::frame::encode;
    use crate::core::ids::RunId;
    use crate::core::reader::Terminal;
    use crate::dialect::ui::response::{HEARTBEAT, OPENING};
    use crate::dialect::wire;
    use proptest::prelude::*;
    use serde_json::json;

    fn at(cursor: u64) -> Cursor {
        Cursor::new(cursor).unwrap()
    }

    fn decode<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<WireFrame>, Option<DecodeError>) {
        let mut decoder = Decoder::default();
        let mut frames = Vec::new();
        for piece in pieces {
            decoder.push(piece);
            loop {
                match decoder.next_frame() {
                    Ok(Some(frame)) => frames.push(frame),
                    Ok(None) => break,
                    Err(error) => return (frames, Some(error)),
                }
            }
        }
        (frames, None)
    }

    fn one(text: &str) -> Result<WireFrame, DecodeError> {
        let (mut frames, error) = decode([text.as_bytes()]);
        error.map_or_else(|| Ok(frames.pop().unwrap()), Err)
    }

    fn everything() -> Vec<u8> {
        let mut bytes = OPENING.to_vec();
        let stamp = Stamp { run: RunId::new("r1"), attempt: None };
        encode(Sequence::new(8).unwrap(), &Chunk::new("text-delta").with("delta", "a\n🐙"), &stamp, &mut bytes);
        bytes.extend(wire::caught_up(at(8)));
        bytes.extend_from_slice(HEARTBEAT);
        bytes.extend_from_slice(b"event: error\ndata: of version 1\n\nevent: rewound\ndata: {\"at\":3,\"head\":9}\n\n");
        bytes.extend(wire::truncated(at(3)));
        bytes.extend(wire::evicted(at(8), Eviction::Stale));
        bytes.extend(wire::fail(Code::ProducerLost, false));
        for terminal in [Terminal::Completed, Terminal::Paused, Terminal::Interrupted, Terminal::Dropped] {
            bytes.extend(wire::terminal(terminal));
        }
        bytes
    }

    #[test]
    fn what_the_service_writes_is_read() {
        let (frames, error) = decode([everything().as_slice()]);
        assert_eq!(error, None);
        let [chunk, rest @ .., lost, completed, paused, interrupted, dropped] = frames.as_slice() else {
            panic!("{frames:?}")
        };
        let stored = json!({ "type": "text-delta", "delta": "a\n🐙", "runId": "r1" });
        assert_eq!(*chunk, WireFrame::Chunk { sequence: Sequence::new(8).unwrap(), chunk: stored });
        assert_eq!(
            rest,
            [
                WireFrame::CaughtUp,
                WireFrame::Rewound { head: Some(at(9)) },
                WireFrame::Truncated { floor: Some(at(3)) },
                WireFrame::Evicted { resume_from: at(8), reason: Some(Eviction::Stale) },
            ]
        );
        let ends = [EndStatus::Completed, EndStatus::Paused, EndStatus::Interrupted].map(WireFrame::End);
        assert_eq!([completed, paused, interrupted], ends.each_ref());
        let WireFrame::Fail { recoverable: false, failure } = lost else { panic!("{lost:?}") };
        assert_eq!(failure.error, Code::ProducerLost.message());
        assert_eq!(failure.detail.as_ref().unwrap()["code"], "producer_lost");
        assert!(matches!(dropped, WireFrame::Fail { recoverable: true, .. }));
    }

    #[test]
    fn fields_that_other_servers_leave_out() {
        assert_eq!(one("event: caught-up\ndata: {}\n\n"), Ok(WireFrame::CaughtUp));
        assert_eq!(one("event: truncated\ndata: {}\n\n"), Ok(WireFrame::Truncated { floor: None }));
        assert_eq!(one("event: rewound\ndata: {\"at\":1}\n\n"), Ok(WireFrame::Rewound { head: None }));
        assert_eq!(
            one("event: fail\ndata: {}\n\n"),
            Ok(WireFrame::Fail { recoverable: false, failure: WireFailure::default() })
        );
        let unknown = one("event: evicted\ndata: {\"resumeFrom\":0,\"reason\":\"tea\"}\n\n");
        assert_eq!(unknown, Ok(WireFrame::Evicted { resume_from: Cursor::START, reason: None }));
    }

    #[test]
    fn what_no_server_may_write_is_a_typed_error_after_what_came_before() {
        for (name, data) in [
            ("chunk", "{\"sequence\":0,\"chunk\":{}}"),
            ("chunk", "{\"sequence\":8796093022208,\"chunk\":{}}"),
            ("chunk", "{\"sequence\":1.5,\"chunk\":{}}"),
            ("chunk", "{\"sequence\":1}"),
            ("chunk", "[1]"),
            ("caught-up", "{"),
            ("end", "{\"status\":\"done\"}"),
            ("evicted", "{\"reason\":\"stale\"}"),
        ] {
            let mut decoder = Decoder::default();
            decoder.push(format!("event: caught-up\ndata: {{}}\n\nevent: {name}\ndata: {data}\n\n").as_bytes());
            decoder.push(b"event: end\ndata: {\"status\":\"completed\"}\n\n");
            assert_eq!(decoder.next_frame(), Ok(Some(WireFrame::CaughtUp)));
            assert_eq!(decoder.next_frame(), Err(DecodeError::Frame(name)), "{data}");
            decoder.push(b"event: caught-up\ndata: {}\n\n");
            assert_eq!(decoder.next_frame(), Err(DecodeError::Frame(name)), "{data}");
        }
    }

    #[test]
    fn an_event_has_a_largest_size() {
        let mut decoder = Decoder::new(16);
        decoder.push(b"event: caught-up\ndata: {}\n\n");
        assert_eq!(decoder.next_frame(), Ok(Some(WireFrame::CaughtUp)));
        decoder.push(&[b'x'; 17]);
        assert_eq!(decoder.next_frame(), Err(EventStreamError::TooLarge { limit: 16 }.into()));
    }

    proptest! {
        #[test]
        fn cuts_change_nothing(sizes in prop::collection::vec(1_usize..40, 1..60)) {
            let bytes = everything();
            let mut rest = bytes.as_slice();
            let mut pieces = Vec::new();
            for size in sizes {
                let (piece, after) = rest.split_at(size.min(rest.len()));
                pieces.push(piece);
                rest = after;
            }
            pieces.push(rest);
            prop_assert_eq!(decode(pieces), decode([bytes.as_slice()]));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode([bytes.as_slice()]);
        }

        #[test]
        fn arbitrary_data_never_panics(name in "chunk|caught-up|end|fail|truncated|rewound|evicted", data in "[\\{\\}\\[\\]\":,a-z0-9]{0,40}") {
            let _ = decode([format!("event: {name}\ndata: {data}\n\n").as_bytes()]);
        }
    }
}

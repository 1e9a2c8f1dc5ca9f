//! The answer of a model API, from its first byte to its end: what the APIs have in common.
//!
//! ```text
//! bytes ──► first byte ──► `{` or `[`: a JSON body ─┐
//!               │          `<`: an HTML page ───────┴─► read whole, judged at its end
//!               └────────► events ──► the API's own translation ──► its end, `[DONE]` or the end of the body
//! ```

use serde_json::Value;

use super::comments::Comments;
use super::failure::failure_of_event;
use super::parts::Batch;
use super::tools::Approvals;
use crate::core::chunk::Chunk;
use crate::core::error::{Code, Failure};
use crate::core::event_stream::{Event, EventStream};
use crate::core::halves::Joiner;
use crate::core::lenient_json;
use crate::core::redact::quote;

/// How a stream is translated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamOptions {
    /// Begins every part id, and every tool call id that the server leaves out. Ids count from 1 in each stream, so it must differ
    /// between the steps of a run; for tool call ids, between the runs of a session.
    pub id_prefix: String,
    /// Tools whose calls the user approves first.
    pub approvals: Approvals,
    /// Whether the answer may end in the middle of its turn, to be followed by another one of the same run.
    pub may_pause: bool,
    /// Names the model that is asked, for what its vendor wants back; empty where nothing is kept.
    pub origin: String,
}

/// What is particular to one API: its events as the parts of a reply.
pub trait Translation {
    /// Nothing has been said yet.
    fn new(options: StreamOptions) -> Self;

    /// Reads one event, which is an object.
    ///
    /// # Errors
    /// The failure that ends the reply.
    fn event(&mut self, event: &Value) -> Result<(), Failure>;

    /// The whole body is one document, not an event stream.
    ///
    /// # Errors
    /// The failure that it stands for, unless it is a reply that was not streamed.
    fn document(&mut self, body: &[u8]) -> Result<(), Failure>;

    /// Ends the reply.
    ///
    /// # Errors
    /// `ProviderStreamEnded` when the model was not done.
    fn complete(&mut self, end: End) -> Result<(), Failure>;

    /// Whether the model has said why it stops. Nothing that comes behind it can take the answer back.
    fn has_stopped(&self) -> bool;

    /// Whether the reply has ended.
    fn is_complete(&self) -> bool;

    /// The chunks written since the last call.
    fn take(&mut self) -> Vec<Chunk>;
}

/// What made an end of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The stream's own last word: `[DONE]`, or the API's.
    Said,
    /// The body's end, proper or not, or its silence.
    Body,
    /// Something that cannot be read, behind the reason why the model stopped.
    Garbage,
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Said => "the stream said that it was done",
            Self::Body => "the body ended",
            Self::Garbage => "the stream went on unreadable",
        })
    }
}

/// Translates one answer. Bytes in, chunks out: `start-step`, the parts, `finish-step`, `finish`. `start` belongs to whoever opens the
/// run, and a failure's `error` to whoever ends it.
#[derive(Debug)]
pub struct Answer<T> {
    events: EventStream,
    body: Body,
    translation: T,
    joiner: Joiner,
    comments: Comments,
    failed: bool,
}

/// What the body turned out to be.
#[derive(Debug)]
enum Body {
    /// Nothing but white space so far.
    Unknown,
    Events,
    /// Not an event stream: one JSON document or an HTML page.
    Document(Vec<u8>),
}

impl<T: Translation> Answer<T> {
    /// Waits for the first byte.
    pub fn new(options: StreamOptions) -> Self {
        Self {
            events: EventStream::default(),
            body: Body::Unknown,
            translation: T::new(options),
            joiner: Joiner::default(),
            comments: Comments::default(),
            failed: false,
        }
    }

    /// Reads the next bytes of the body. After the finish, and after a failure, bytes are ignored.
    pub fn push(&mut self, bytes: &[u8]) -> Batch {
        self.step(|answer| answer.read(bytes))
    }

    /// The body has ended, or broken, or been silent for too long: an answer that has named its finish reason is complete, whatever became
    /// of its connection; any other was cut: `ProviderStreamEnded`. For the same reason nothing unreadable behind that reason is a failure.
    pub fn end(&mut self) -> Batch {
        self.step(Self::read_end)
    }

    /// Whether the reply is complete: its `finish` has been written.
    pub fn is_finished(&self) -> bool {
        self.translation.is_complete()
    }

    /// The translation itself.
    pub fn translation(&self) -> &T {
        &self.translation
    }

    fn step(&mut self, read: impl FnOnce(&mut Self) -> Result<(), Failure>) -> Batch {
        if self.failed || self.is_finished() {
            return Batch::default();
        }
        let mut failure = read(self).err();
        if failure.is_some() && !self.is_finished() && self.translation.has_stopped() {
            failure = self.translation.complete(End::Garbage).err();
        }
        self.failed = failure.is_some();
        Batch { chunks: self.joiner.join(self.translation.take()), failure }
    }

    fn read(&mut self, mut bytes: &[u8]) -> Result<(), Failure> {
        if matches!(self.body, Body::Unknown) {
            // No field of an event stream begins with these, so the first byte decides. The byte order mark is not decisive either.
            let blank = |byte: &u8| byte.is_ascii_whitespace() || b"\xEF\xBB\xBF".contains(byte);
            let start = bytes.iter().position(|byte| !blank(byte)).unwrap_or(bytes.len());
            match bytes.get(start..) {
                None | Some([]) => {}
                Some([b'{' | b'[' | b'<', ..]) => {
                    self.body = Body::Document(Vec::new());
                    bytes = bytes.get(start..).unwrap_or_default();
                }
                Some(_) => self.body = Body::Events,
            }
        }
        if let Body::Document(held) = &mut self.body {
            if held.len().saturating_add(bytes.len()) > EventStream::MAX_EVENT_BYTES {
                return Err(Failure::new(
                    Code::ProviderStreamInvalid,
                    "the answer is not an event stream, and too large",
                ));
            }
            held.extend_from_slice(bytes);
            return Ok(());
        }
        let mut events = Vec::new();
        let decoded = self.events.push(bytes, &mut events);
        for event in events {
            self.event(&event)?;
            if self.is_finished() {
                return Ok(());
            }
        }
        decoded.map_err(|error| Failure::new(Code::ProviderStreamInvalid, error.to_string()))
    }

    fn read_end(&mut self) -> Result<(), Failure> {
        if let Body::Document(held) = &mut self.body {
            let held = std::mem::take(held);
            self.translation.document(&held)?;
        } else if let Some(event) = self.events.finish() {
            self.event(&event)?;
        }
        if self.is_finished() {
            return Ok(());
        }
        self.translation.complete(End::Body).map_err(|failure| self.comments.explain(failure))
    }

    fn event(&mut self, event: &Event) -> Result<(), Failure> {
        let data = event.data.trim();
        if data == "[DONE]" {
            return self.translation.complete(End::Said).map_err(|failure| self.comments.explain(failure));
        }
        let named_error = event.name.as_deref() == Some("error");
        if data.is_empty() && !named_error {
            return Ok(());
        }
        match lenient_json::parse_keeping_halves(data) {
            Ok((value, _)) if named_error => Err(failure_of_event(&value)),
            Err(_) if named_error => Err(failure_of_event(&Value::String(data.to_owned()))),
            Ok((value @ Value::Object(_), has_halves)) => {
                if has_halves {
                    self.joiner.wake();
                }
                self.translation.event(&value)
            }
            _ if self.comments.take(data) => Ok(()),
            Ok(_) => Err(invalid(data, "it is not an object")),
            Err(error) => Err(invalid(data, &error.to_string())),
        }
    }
}

/// The document that a body is, if it is JSON.
pub fn parse_document(body: &[u8]) -> Option<Value> {
    lenient_json::parse(std::str::from_utf8(body).ok()?).ok()
}

fn invalid(data: &str, why: &str) -> Failure {
    Failure::new(
        Code::ProviderStreamInvalid,
        quote(&format!("an event of the model's stream cannot be read ({why}): {data}")),
    )
}

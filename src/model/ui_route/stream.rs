//! The answer of a chat route: its chunks as they are, and how it ended (`spec/ai-sdk.md` A.1, A.7).
//!
//! | the route | the run |
//! |---|---|
//! | `abort` | is stopped; nothing after it is read |
//! | `error` | fails; nothing after it is read |
//! | something unreadable after `finish` | is complete: the route had its say |
//! | `[DONE]` after any chunk | is complete. A route that writes its chunks by hand often has no `finish`, and the SDK writes `[DONE]` only when the route has ended its stream by itself |
//! | the body ends after `finish` | is complete. Chunks may follow a `finish` (several streams merged into one), so it does not end the answer by itself |
//! | the body ends otherwise | fails: it was cut |

use serde_json::Value;

use super::words;
use crate::core::chunk::Chunk;
use crate::core::error::{Code, Failure};
use crate::core::event_stream::{Event, EventStream};
use crate::core::halves::Joiner;
use crate::core::lenient_json;
use crate::core::redact::quote;
use crate::core::run::Outcome;
use crate::core::time::{Millis, UnixMillis};
use crate::model::failure::{MAX_ERROR_BODY_BYTES, failure_of_response};
use crate::model::parts::Batch;
use crate::model::waits::Headers;

/// Deepest nesting of a chunk: inside a stored message, two levels deeper, it is below the 128 at which `serde_json` stops reading.
const MAX_DEPTH: usize = 120;

/// Reads one answer. Bytes in, chunks out. An event has at most [`EventStream::MAX_EVENT_BYTES`].
#[derive(Debug, Default)]
pub struct RouteStream {
    events: EventStream,
    body: Body,
    /// Whether a chunk has come.
    said: bool,
    /// The last `finish`, held until the answer ends: only then it is known to be the last.
    finish: Option<Chunk>,
    joiner: Joiner,
    /// Whether clients read the words of its `error` part.
    forwards_errors: bool,
    state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Reading,
    Ended(Outcome),
    Failed,
}

/// What the body turned out to be.
#[derive(Debug, Default)]
enum Body {
    /// Nothing but white space so far.
    #[default]
    Unknown,
    Events,
    /// Not an event stream: an HTML page or one JSON document, of which the start is judged.
    Document(Vec<u8>),
}

impl RouteStream {
    /// Waits for the first byte. `forwards_errors`: whether clients read the route's own words.
    pub fn new(forwards_errors: bool) -> Self {
        Self { forwards_errors, ..Self::default() }
    }

    /// What an answer that is no stream stands for: any status but 200. `heard`: its headers, and when it came.
    pub fn refused(
        &self,
        status: u16,
        content_type: Option<&str>,
        heard: Option<(&Headers, UnixMillis)>,
        body: &[u8],
    ) -> Failure {
        let said = words::of_refusal(status, content_type, body).filter(|_| self.forwards_errors);
        let classified = failure_of_response(status, content_type, heard, body);
        let text = String::from_utf8_lossy(body.get(..MAX_ERROR_BODY_BYTES).unwrap_or(body));
        Failure { internal: quote(&format!("the route answered {status}: {text}")), words: said, ..classified }
    }

    /// The route has been silent for too long. What it has said may have been the whole answer.
    pub fn silent(&mut self, silence: Millis) -> Batch {
        let mut batch = self.end();
        if let Some(failure) = &mut batch.failure {
            let words = format!("the route said nothing for {} ms (silenceMs)", silence.get());
            *failure = Failure::new(Code::ProviderTimeout, words);
        }
        batch
    }

    /// Reads the next bytes of the body. After the end, and after a failure, bytes are ignored.
    pub fn push(&mut self, bytes: &[u8]) -> Batch {
        self.step(|stream, chunks| stream.read(bytes, chunks))
    }

    /// The body has ended, or broken.
    pub fn end(&mut self) -> Batch {
        self.step(Self::read_end)
    }

    /// Whether the answer has ended without a failure.
    pub fn is_finished(&self) -> bool {
        self.outcome().is_some()
    }

    /// How the answer ended, once it has: completed, or stopped by the route.
    pub fn outcome(&self) -> Option<Outcome> {
        match self.state {
            State::Ended(outcome) => Some(outcome),
            State::Reading | State::Failed => None,
        }
    }

    fn step(&mut self, read: impl FnOnce(&mut Self, &mut Vec<Chunk>) -> Result<(), Failure>) -> Batch {
        let mut batch = Batch::default();
        if self.state != State::Reading {
            return batch;
        }
        batch.failure = read(self, &mut batch.chunks).err();
        let is_garbage = batch.failure.as_ref().is_some_and(|failure| failure.code == Code::ProviderStreamInvalid);
        if is_garbage && self.finish.is_some() {
            batch.failure = None;
            self.complete(&mut batch.chunks);
        }
        if batch.failure.is_some() {
            self.state = State::Failed;
        }
        batch.chunks = self.joiner.join(batch.chunks);
        batch
    }

    fn read(&mut self, bytes: &[u8], chunks: &mut Vec<Chunk>) -> Result<(), Failure> {
        if matches!(self.body, Body::Unknown) {
            // No field of an event stream begins with these, so the first byte decides.
            let blank = |byte: &u8| byte.is_ascii_whitespace() || b"\xEF\xBB\xBF".contains(byte);
            match bytes.iter().find(|byte| !blank(byte)) {
                None => {}
                Some(b'{' | b'[' | b'<') => self.body = Body::Document(Vec::new()),
                Some(_) => self.body = Body::Events,
            }
        }
        if let Body::Document(held) = &mut self.body {
            held.extend_from_slice(bytes);
            return if held.len() > MAX_ERROR_BODY_BYTES { Err(document(held)) } else { Ok(()) };
        }
        let mut events = Vec::new();
        let decoded = self.events.push(bytes, &mut events);
        for event in events {
            self.event(&event, chunks)?;
            if self.state != State::Reading {
                return Ok(());
            }
        }
        decoded.map_err(|error| Failure::new(Code::ProviderStreamInvalid, error.to_string()))
    }

    fn read_end(&mut self, chunks: &mut Vec<Chunk>) -> Result<(), Failure> {
        if let Body::Document(held) = &self.body {
            return Err(document(held));
        }
        if let Some(event) = self.events.finish() {
            self.event(&event, chunks)?;
        }
        if self.state != State::Reading {
            return Ok(());
        }
        if self.finish.is_none() {
            return Err(Failure::new(Code::ProviderStreamEnded, "the route's body ended without finish or [DONE]"));
        }
        self.complete(chunks);
        Ok(())
    }

    /// Clients read `data` whatever the event's name, and so does this.
    fn event(&mut self, event: &Event, chunks: &mut Vec<Chunk>) -> Result<(), Failure> {
        let data = event.data.trim();
        if data.is_empty() {
            return Ok(());
        }
        if data == "[DONE]" {
            if !self.said {
                return Err(Failure::new(Code::ProviderStreamEnded, "the route said [DONE] and nothing before it"));
            }
            self.complete(chunks);
            return Ok(());
        }
        let (value, has_halves) =
            lenient_json::parse_keeping_halves(data).map_err(|error| invalid(data, &error.to_string()))?;
        if has_halves {
            self.joiner.wake();
        }
        if is_deeper(&value, MAX_DEPTH) {
            return Err(invalid(data, "it is nested too deep"));
        }
        let chunk = Chunk::parse(value).map_err(|error| invalid(data, &error.to_string()))?;
        self.said = true;
        match chunk.kind() {
            "abort" => {
                self.release_metadata(chunks);
                self.state = State::Ended(Outcome::Interrupted);
            }
            "error" => {
                let text = chunk.text("errorText").unwrap_or_default();
                let internal = quote(&format!("the route reported in its stream: {text}"));
                let words = words::told(text).filter(|_| self.forwards_errors);
                return Err(Failure { words, ..Failure::new(Code::ProviderError, internal) });
            }
            "finish" => {
                self.release_metadata(chunks);
                self.finish = Some(chunk);
            }
            "start" | "message-metadata" => {
                self.release_metadata(chunks);
                chunks.push(chunk);
            }
            _ => chunks.push(chunk),
        }
        Ok(())
    }

    fn complete(&mut self, chunks: &mut Vec<Chunk>) {
        chunks.extend(self.finish.take());
        self.state = State::Ended(Outcome::Completed);
    }

    /// Clients merge metadata in the order of the stream, so what a held `finish` carries goes before what comes now.
    fn release_metadata(&mut self, chunks: &mut Vec<Chunk>) {
        let held = self.finish.as_mut().and_then(|finish| finish.remove("messageMetadata"));
        if let Some(held) = held.filter(|held| !held.is_null()) {
            chunks.push(Chunk::new("message-metadata").with("messageMetadata", held));
        }
    }
}

fn document(body: &[u8]) -> Failure {
    failure_of_response(200, None, None, body)
}

fn invalid(data: &str, why: &str) -> Failure {
    let words = quote(&format!("an event of the route's stream cannot be read ({why}): {data}"));
    Failure::new(Code::ProviderStreamInvalid, words)
}

/// Whether a value is nested deeper than `levels`. The parser has bounded the recursion.
fn is_deeper(value: &Value, levels: usize) -> bool {
    let below = |inner: &Value| levels.checked_sub(1).is_none_or(|rest| is_deeper(inner, rest));
    match value {
        Value::Array(items) => levels == 0 || items.iter().any(below),
        Value::Object(map) => levels == 0 || map.values().any(below),
        _ => false,
    }
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;

//! Chunks to one UI message, as the client's reducer does it (`spec/ai-sdk.md` A.3). `tests/fold` holds the two against each other.
//!
//! Where the reducer can produce a message that `validateUIMessages` of some version refuses (A.8), the fold produces
//! the nearest one that all of them accept; `tool.rs` says where. `finish-step` forgets open parts, as clients up
//! to 7.0.78 do: a stream that this fold accepts is accepted by every client.

mod attempts;
pub(super) mod tool;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use thiserror::Error;

use super::metadata::{Unmergeable, merge_metadata};
use super::resync::is_event;
use super::vocabulary::{Type, flag, shape, typed};
use crate::core::chunk::{Chunk, lifecycle};
use crate::core::ids::MessageId;
use attempts::Attempt;
use tool::Input;

/// One UI message in the making.
#[derive(Clone, Debug)]
pub struct Fold {
    /// Every key of the message but `parts`.
    head: Map<String, Value>,
    pub(super) parts: Vec<Map<String, Value>>,
    /// Open text and reasoning parts: chunk id to place in `parts`.
    text: BTreeMap<String, usize>,
    reasoning: BTreeMap<String, usize>,
    /// Tool inputs that have begun to stream, by call id.
    pub(super) inputs: BTreeMap<String, Input>,
    /// The parts of each call, in their order: what a chunk about a call costs does not grow with the message.
    pub(super) places: BTreeMap<String, Vec<usize>>,
    /// Parts whose input is still being streamed, and some whose input no longer is.
    pub(super) streaming: BTreeSet<usize>,
    pub(super) attempt: Option<Attempt>,
    /// Ids of attempts that lost their step; what still arrives from them is no content.
    pub(super) superseded: Vec<String>,
}

/// Why a client would refuse the chunk. The fold is as it was before.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum FoldError {
    /// A required key is missing or has a value of another type.
    #[error("{kind} needs the key {key}")]
    Malformed {
        /// The chunk's type.
        kind: String,
        /// The key.
        key: &'static str,
    },
    /// A delta or an end for a text or reasoning part that is not open.
    #[error("{kind} for {id}, which is not open")]
    NotOpen {
        /// The chunk's type.
        kind: String,
        /// The part's id.
        id: String,
    },
    /// A delta of a tool input that has not begun.
    #[error("tool-input-delta for {0}, whose input has not begun")]
    NoInput(String),
    /// An output, a denial or an approval request for a call that the message does not hold.
    #[error("no tool call {0} in this message")]
    NoCall(String),
    /// An approval response to a request that the message does not hold.
    #[error("no approval request {0} in this message")]
    NoApproval(String),
    /// Metadata with keys, where the message's metadata is text, a number or a flag: clients cannot merge the two.
    #[error("{0} brings metadata that cannot be merged into the message's")]
    Metadata(String),
}

/// A part that later chunks of the run may still refer to, in the order of the message.
#[derive(Clone, Debug, PartialEq)]
pub enum OpenPart {
    /// A text part without its end.
    Text {
        /// The chunk id, which its deltas carry.
        id: String,
        /// The part so far.
        part: Map<String, Value>,
    },
    /// A reasoning part without its end.
    Reasoning {
        /// The chunk id, which its deltas carry.
        id: String,
        /// The part so far.
        part: Map<String, Value>,
    },
    /// A tool call whose input is still being streamed.
    Input {
        /// The part so far.
        part: Map<String, Value>,
        /// The input's text so far.
        text: String,
    },
    /// A tool call with its input and without a final result.
    Call {
        /// The part so far.
        part: Map<String, Value>,
    },
}

impl Fold {
    /// A new assistant message.
    pub fn new(message_id: &MessageId) -> Self {
        Self::continuing(json!({"id": message_id.as_str(), "role": "assistant"}))
    }

    /// A message that an earlier run has begun. Anything that is not a part object is left out.
    pub fn continuing(message: Value) -> Self {
        let mut head = match message {
            Value::Object(map) => map,
            _ => Map::new(),
        };
        let parts = match head.shift_remove("parts") {
            Some(Value::Array(parts)) => parts,
            _ => Vec::new(),
        };
        let parts = parts.into_iter().filter_map(|part| match part {
            Value::Object(map) => Some(map),
            _ => None,
        });
        let mut fold = Self {
            head,
            parts: parts.collect(),
            text: BTreeMap::new(),
            reasoning: BTreeMap::new(),
            inputs: BTreeMap::new(),
            places: BTreeMap::new(),
            streaming: BTreeSet::new(),
            attempt: None,
            superseded: Vec::new(),
        };
        fold.place_calls(0);
        fold
    }

    /// Takes the next chunk. Lifecycle chunks move attempts; types that the protocol does not have change nothing.
    ///
    /// # Errors
    /// [`FoldError`] when a client would fail on the chunk; nothing has changed then.
    pub fn apply(&mut self, chunk: &Chunk) -> Result<(), FoldError> {
        match chunk.kind() {
            lifecycle::STEP_START => self.begin_attempt(chunk),
            lifecycle::STEP_COMMITTED => self.commit_attempt(chunk),
            _ => {}
        }
        let kind = chunk.kind();
        let Some(shape) = shape(kind) else { return Ok(()) };
        if let Some(key) = shape.lacks(chunk.as_map()) {
            return Err(FoldError::Malformed { kind: kind.into(), key });
        }
        if kind.starts_with("tool-output-") {
            self.answer_aside(chunk);
        }
        if chunk.text("attemptId").is_some_and(|id| self.superseded.iter().any(|lost| lost == id)) {
            // A late tool result is a fact of the conversation even when its attempt lost.
            let of_known_call = chunk.text("toolCallId").is_some_and(|id| self.find_call(id).is_some());
            return if kind.starts_with("tool-output-") && of_known_call { self.apply_tool(chunk) } else { Ok(()) };
        }
        match kind {
            "text-start" => self.start(chunk, false),
            "text-delta" => self.delta(chunk, false)?,
            "text-end" => self.end(chunk, false)?,
            "reasoning-start" => self.start(chunk, true),
            "reasoning-delta" => self.delta(chunk, true)?,
            "reasoning-end" => self.end(chunk, true)?,
            "start-step" => self.parts.push(part("step-start")),
            "finish-step" => {
                self.text.clear();
                self.reasoning.clear();
            }
            "reset-step" => {
                let begin = self.step_begin();
                self.leave_all();
                self.cut(begin);
                self.text.clear();
                self.reasoning.clear();
                self.inputs.clear();
            }
            "start" => {
                self.merge_metadata(chunk)?;
                if let Some(id) = chunk.text("messageId") {
                    self.head.insert("id".into(), id.into());
                }
            }
            "finish" | "message-metadata" => self.merge_metadata(chunk)?,
            "source-url" => self.push(chunk, &[("sourceId", Type::Text), ("url", Type::Text), ("title", Type::Text)]),
            "source-document" => self.push(
                chunk,
                &[("sourceId", Type::Text), ("mediaType", Type::Text), ("title", Type::Text), ("filename", Type::Text)],
            ),
            "file" | "reasoning-file" => self.push(chunk, &[("mediaType", Type::Text), ("url", Type::Text)]),
            "custom" => self.push(chunk, &[("kind", Type::Text)]),
            "steering-message" => self.push(chunk, &[("id", Type::Text), ("parts", Type::Steering)]),
            // Events are about a response; no message holds one.
            _ if is_event(kind) => {}
            _ if kind.starts_with("data-") => self.data(chunk),
            _ if kind.starts_with("tool-") => self.apply_tool(chunk)?,
            // `error` and `abort` end a response; they are no part of the message.
            _ => {}
        }
        Ok(())
    }

    /// The message so far; `None` while it has no parts, because some versions refuse an empty message.
    pub fn message(&self) -> Option<Value> {
        if self.parts.is_empty() {
            return None;
        }
        let mut message = self.head.clone();
        let parts = (0..self.parts.len()).filter_map(|at| self.part_at(at)).map(Value::Object).collect();
        message.insert("parts".into(), Value::Array(parts));
        Some(Value::Object(message))
    }

    /// The message's id.
    pub fn message_id(&self) -> &str {
        self.head.get("id").and_then(Value::as_str).unwrap_or_default()
    }

    /// The message's metadata, when any is known.
    pub fn metadata(&self) -> Option<&Value> {
        self.head.get("metadata")
    }

    /// Whether the message holds anything but step boundaries.
    pub fn has_content(&self) -> bool {
        self.parts.iter().any(|part| kind_of(part) != "step-start")
    }

    /// The parts that later chunks may still refer to.
    pub fn open_parts(&self) -> Vec<OpenPart> {
        let id_at =
            |open: &BTreeMap<String, usize>, at| open.iter().find(|(_, place)| **place == at).map(|(id, _)| id.clone());
        let mut open = Vec::new();
        for at in 0..self.parts.len() {
            let Some(part) = self.part_at(at) else { continue };
            if let Some(id) = id_at(&self.text, at) {
                open.push(OpenPart::Text { id, part });
            } else if let Some(id) = id_at(&self.reasoning, at) {
                open.push(OpenPart::Reasoning { id, part });
            } else {
                open.extend(self.open_call(at, part));
            }
        }
        open
    }

    /// The chunk ids of the text and reasoning parts that are open; the flag says which of them are reasoning.
    pub fn open_blocks(&self) -> impl Iterator<Item = (&str, bool)> {
        let text = self.text.keys().map(|id| (id.as_str(), false));
        text.chain(self.reasoning.keys().map(|id| (id.as_str(), true)))
    }

    /// Whether a text part (or, with `reasoning`, a reasoning part) of this chunk id is open.
    pub fn is_open(&self, id: &str, reasoning: bool) -> bool {
        if reasoning { self.reasoning.contains_key(id) } else { self.text.contains_key(id) }
    }

    /// First part of the current step.
    pub fn step_begin(&self) -> usize {
        self.parts.iter().rposition(|part| kind_of(part) == "step-start").map_or(0, |at| at.saturating_add(1))
    }

    /// The place of the part that a result, an approval or a data chunk would change, when it is there already.
    pub(super) fn changed_by(&self, chunk: &Chunk) -> Option<usize> {
        match chunk.kind() {
            "tool-approval-response" => self.find_decided(chunk),
            kind if kind.starts_with("tool-output-") || kind == "tool-approval-request" => {
                self.find_call(chunk.text("toolCallId")?)
            }
            kind if kind.starts_with("data-") => self.find_data(kind, chunk.text("id")?),
            _ => None,
        }
    }

    fn find_data(&self, kind: &str, id: &str) -> Option<usize> {
        self.parts.iter().position(|part| kind_of(part) == kind && part.get("id").and_then(Value::as_str) == Some(id))
    }

    fn start(&mut self, chunk: &Chunk, reasoning: bool) {
        let Some(id) = chunk.text("id") else { return };
        let mut new = part(if reasoning { "reasoning" } else { "text" });
        if reasoning {
            new.insert("id".into(), id.into());
        }
        new.insert("text".into(), "".into());
        new.insert("state".into(), "streaming".into());
        copy(&mut new, chunk, "providerMetadata", Type::Metadata);
        let open = if reasoning { &mut self.reasoning } else { &mut self.text };
        open.insert(id.into(), self.parts.len());
        self.parts.push(new);
    }

    fn delta(&mut self, chunk: &Chunk, reasoning: bool) -> Result<(), FoldError> {
        let (_, part) = self.open_part(chunk, reasoning)?;
        if let (Some(Value::String(text)), Some(delta)) = (part.get_mut("text"), chunk.text("delta")) {
            text.push_str(delta);
        }
        copy(part, chunk, "providerMetadata", Type::Metadata);
        Ok(())
    }

    fn end(&mut self, chunk: &Chunk, reasoning: bool) -> Result<(), FoldError> {
        let (id, part) = self.open_part(chunk, reasoning)?;
        part.insert("state".into(), "done".into());
        copy(part, chunk, "providerMetadata", Type::Metadata);
        if !reasoning {
            copy(part, chunk, "citations", Type::Citations);
        }
        let open = if reasoning { &mut self.reasoning } else { &mut self.text };
        open.remove(&id);
        Ok(())
    }

    fn open_part(&mut self, chunk: &Chunk, reasoning: bool) -> Result<(String, &mut Map<String, Value>), FoldError> {
        let id = chunk.text("id").unwrap_or_default();
        let open = if reasoning { &self.reasoning } else { &self.text };
        let part = open.get(id).and_then(|at| self.parts.get_mut(*at));
        let not_open = || FoldError::NotOpen { kind: chunk.kind().into(), id: id.into() };
        Ok((id.into(), part.ok_or_else(not_open)?))
    }

    /// Pushes a part of the chunk's own type with these keys and the provider's metadata.
    fn push(&mut self, chunk: &Chunk, keys: &[(&str, Type)]) {
        let mut new = part(chunk.kind());
        for (key, kind) in keys {
            copy(&mut new, chunk, key, *kind);
        }
        if chunk.kind() != "steering-message" {
            copy(&mut new, chunk, "providerMetadata", Type::Metadata);
        }
        self.parts.push(new);
    }

    fn data(&mut self, chunk: &Chunk) {
        if flag(chunk, "transient") == Some(true) {
            return;
        }
        let data = chunk.get("data").cloned().unwrap_or_default();
        let old = chunk.text("id").and_then(|id| self.find_data(chunk.kind(), id));
        if let Some(old) = old.and_then(|at| self.parts.get_mut(at)) {
            old.insert("data".into(), data);
            return;
        }
        let mut new = part(chunk.kind());
        copy(&mut new, chunk, "id", Type::Text);
        new.insert("data".into(), data);
        copy(&mut new, chunk, "transient", Type::Flag);
        self.parts.push(new);
    }

    fn merge_metadata(&mut self, chunk: &Chunk) -> Result<(), FoldError> {
        let Some(new) = typed(chunk, "messageMetadata", Type::Any) else { return Ok(()) };
        match self.head.get_mut("metadata") {
            Some(old) if !old.is_null() => {
                merge_metadata(old, new).map_err(|Unmergeable| FoldError::Metadata(chunk.kind().into()))
            }
            _ => {
                self.head.insert("metadata".into(), new.clone());
                Ok(())
            }
        }
    }

    /// Removes the parts from `base` on and everything that refers to them.
    pub(super) fn cut(&mut self, base: usize) {
        self.parts.truncate(base);
        self.text.retain(|_, at| *at < base);
        self.reasoning.retain(|_, at| *at < base);
        self.inputs.retain(|_, input| input.part < base);
        self.streaming.retain(|at| *at < base);
        self.places.retain(|_, places| {
            places.retain(|at| *at < base);
            !places.is_empty()
        });
    }
}

/// A part's `type`.
pub(super) fn kind_of(part: &Map<String, Value>) -> &str {
    part.get("type").and_then(Value::as_str).unwrap_or_default()
}

/// A part of this type with no further keys.
pub(super) fn part(kind: &str) -> Map<String, Value> {
    let mut map = Map::new();
    map.insert("type".into(), kind.into());
    map
}

/// Copies a chunk's key to a part when a client would take it.
pub(super) fn copy(part: &mut Map<String, Value>, chunk: &Chunk, key: &str, kind: Type) {
    if let Some(value) = typed(chunk, key, kind) {
        part.insert(key.into(), value.clone());
    }
}

#[cfg(test)]
#[path = "fold_tests.rs"]
mod tests;

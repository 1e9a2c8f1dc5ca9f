//! The fold's part for tool calls: one part per call, static (`tool-<name>`) or dynamic, and its states.
//!
//! Inside, the parts are what the client's reducer makes of them. Some of those would fail `validateUIMessages` of some
//! version (`spec/ai-sdk.md` A.8), so a part is brought in line with its state as it leaves ([`Fold::part_at`]):
//! `docs/protocol.md`, section "Fold", lists each difference.

use serde_json::{Map, Value, json};

use super::{Fold, FoldError, OpenPart, copy, kind_of, part};
use crate::core::chunk::Chunk;
use crate::dialect::ui::partial_json::parse_partial;
use crate::dialect::ui::vocabulary::{Type, flag, typed};

/// A tool input that has begun to stream.
#[derive(Clone, Debug)]
pub(in crate::dialect::ui) struct Input {
    /// The deltas so far; `None` before the first.
    text: Option<String>,
    /// What a delta says about the part once more: its start without the provider's keys.
    start: Chunk,
    /// Whether the part shows the text: not after a delta that began a new dynamic part.
    shows_text: bool,
    /// Place of the call's part.
    pub part: usize,
}

impl Input {
    /// What the part holds while the input streams: the input as far as it can be read, and its text.
    fn fill(&self, part: &mut Map<String, Value>) {
        if let Some(value) = self.value() {
            part.insert("input".into(), value);
        }
        if let Some(text) = self.text.as_deref().filter(|_| self.shows_text) {
            part.insert("rawInput".into(), text.into());
        }
    }

    fn value(&self) -> Option<Value> {
        let text = self.text.as_deref()?;
        match self.start.text("inputEncoding") {
            Some("text") => Some(text.into()),
            _ => parse_partial(text),
        }
    }
}

/// Which parts a look-up takes.
#[derive(Clone, Copy, PartialEq)]
pub(in crate::dialect::ui) enum Which {
    Static,
    Dynamic,
    Any,
}

impl Which {
    fn takes(self, part: &Map<String, Value>) -> bool {
        match kind_of(part) {
            "dynamic-tool" => self != Self::Static,
            kind => kind.starts_with("tool-") && self != Self::Dynamic,
        }
    }
}

/// A tool part's `state`.
pub(in crate::dialect::ui) fn state_of(part: &Map<String, Value>) -> &str {
    part.get("state").and_then(Value::as_str).unwrap_or_default()
}

/// Whether the user lets the call be executed.
pub(in crate::dialect::ui) fn is_granted(part: &Map<String, Value>) -> bool {
    part.get("approval").and_then(|approval| approval.get("approved")) == Some(&Value::Bool(true))
}

/// Whether the call has its final result.
pub(in crate::dialect::ui) fn is_settled(part: &Map<String, Value>) -> bool {
    match state_of(part) {
        "output-available" => part.get("preliminary") != Some(&Value::Bool(true)),
        "output-error" | "output-denied" => true,
        _ => false,
    }
}

impl Fold {
    /// Takes a `tool-*` chunk whose required keys are there.
    pub(in crate::dialect::ui) fn apply_tool(&mut self, chunk: &Chunk) -> Result<(), FoldError> {
        let applied = self.change_call(chunk);
        let parts = &self.parts;
        self.streaming.retain(|at| parts.get(*at).is_some_and(|part| state_of(part) == "input-streaming"));
        applied
    }

    fn change_call(&mut self, chunk: &Chunk) -> Result<(), FoldError> {
        let call = chunk.text("toolCallId").unwrap_or_default();
        match chunk.kind() {
            "tool-input-start" => {
                self.leave(call);
                let at = self.put_input(chunk, "input-streaming", None);
                let mut start = chunk.clone();
                start.remove("providerExecuted");
                start.remove("providerMetadata");
                self.inputs.insert(call.into(), Input { text: None, start, shows_text: true, part: at });
            }
            "tool-input-delta" => self.input_delta(chunk, call)?,
            "tool-input-available" => {
                self.put_input(chunk, "input-available", chunk.get("input").cloned());
            }
            "tool-input-error" => self.input_error(chunk, call),
            "tool-approval-request" => {
                let part = self.call_part(call)?;
                let mut approval = Map::new();
                approval.insert("id".into(), chunk.text("approvalId").unwrap_or_default().into());
                for (from, to, kind) in [
                    ("approvalDescriptor", "descriptor", Type::Any),
                    ("signature", "signature", Type::Text),
                    ("inputSchemaInput", "inputSchemaInput", Type::Any),
                    ("reason", "requestReason", Type::Text),
                ] {
                    if let Some(value) = typed(chunk, from, kind) {
                        approval.insert(to.into(), value.clone());
                    }
                }
                if flag(chunk, "isAutomatic") == Some(true) {
                    approval.insert("isAutomatic".into(), true.into());
                }
                part.insert("approval".into(), Value::Object(approval));
                part.insert("state".into(), "approval-requested".into());
            }
            "tool-approval-response" => self.approval_response(chunk)?,
            "tool-output-denied" => {
                self.call_part(call)?.insert("state".into(), "output-denied".into());
            }
            "tool-output-available" => {
                let part = self.call_part(call)?;
                renew(part, "output-available");
                part.insert("output".into(), chunk.get("output").cloned().unwrap_or_default());
                copy(part, chunk, "preliminary", Type::Flag);
                result_keys(part, chunk);
            }
            "tool-output-error" => {
                let part = self.call_part(call)?;
                let raw = part.shift_remove("rawInput").filter(|_| kind_of(part) != "dynamic-tool");
                renew(part, "output-error");
                part.extend(raw.map(|text| ("rawInput".to_owned(), text)));
                copy(part, chunk, "errorText", Type::Text);
                result_keys(part, chunk);
            }
            _ => {}
        }
        Ok(())
    }

    /// The place of a call: in the current step, else the last one with this id.
    pub(in crate::dialect::ui) fn find_call(&self, id: &str) -> Option<usize> {
        self.find_in_step(id, Which::Any).or_else(|| self.places.get(id)?.last().copied())
    }

    /// Takes note of the calls among the parts from `base` on.
    pub(in crate::dialect::ui) fn place_calls(&mut self, base: usize) {
        for (at, part) in self.parts.iter().enumerate().skip(base).filter(|(_, part)| Which::Any.takes(part)) {
            self.places.entry(call_of(part).to_owned()).or_default().push(at);
        }
    }

    /// The call whose input is being streamed.
    pub fn open_input(&self) -> Option<&str> {
        let mut open = self.streaming.iter().filter(|at| self.streamed(**at).is_some());
        open.find_map(|at| self.parts.get(*at)).map(call_of)
    }

    /// The first part of a call in the current step.
    pub(in crate::dialect::ui) fn find_in_step(&self, id: &str, which: Which) -> Option<usize> {
        let begin = self.step_begin();
        let takes = |at: &usize| *at >= begin && self.parts.get(*at).is_some_and(|part| which.takes(part));
        self.places.get(id)?.iter().copied().find(takes)
    }

    /// The first part with an approval of this id.
    pub(in crate::dialect::ui) fn find_approval(&self, id: &str) -> Option<usize> {
        self.parts.iter().position(|part| Which::Any.takes(part) && approval_of(part) == Some(id))
    }

    /// The part that the user's word is about. An upstream may give one id to several approvals, so the call counts when it is named.
    pub(in crate::dialect::ui) fn find_decided(&self, chunk: &Chunk) -> Option<usize> {
        let id = chunk.text("approvalId")?;
        let named = chunk
            .text("toolCallId")
            .and_then(|call| self.parts.iter().position(|part| call_of(part) == call && approval_of(part) == Some(id)));
        named.or_else(|| self.find_approval(id))
    }

    /// A part as it goes into the message: a streamed input is read as far as it has arrived, and a call has what its state wants.
    pub(in crate::dialect::ui) fn part_at(&self, at: usize) -> Option<Map<String, Value>> {
        let mut part = self.parts.get(at)?.clone();
        if let Some(input) = self.streamed(at) {
            input.fill(&mut part);
        }
        if Which::Any.takes(&part) {
            accepted(&mut part);
        }
        Some(part)
    }

    /// The part as something that later chunks may refer to, when they may.
    pub(in crate::dialect::ui) fn open_call(&self, at: usize, part: Map<String, Value>) -> Option<OpenPart> {
        if !Which::Any.takes(&part) || is_settled(&part) {
            return None;
        }
        if state_of(&part) != "input-streaming" {
            return Some(OpenPart::Call { part });
        }
        // A call of an earlier run whose input never ended cannot be continued: nothing refers to it any more.
        let input = self.inputs.get(call_of(&part)).filter(|input| input.part == at)?;
        Some(OpenPart::Input { part, text: input.text.clone().unwrap_or_default() })
    }

    /// The input that is being streamed into the part at this place.
    fn streamed(&self, at: usize) -> Option<&Input> {
        let part = self.parts.get(at)?;
        if state_of(part) != "input-streaming" {
            return None;
        }
        self.inputs.get(call_of(part)).filter(|input| input.part == at)
    }

    /// A call's part, for a chunk that needs one. A streamed input becomes the part's own.
    fn call_part(&mut self, id: &str) -> Result<&mut Map<String, Value>, FoldError> {
        let missing = || FoldError::NoCall(id.into());
        let at = self.find_call(id).ok_or_else(missing)?;
        if self.streamed(at).is_some() {
            self.leave(id);
        }
        self.parts.get_mut(at).ok_or_else(missing)
    }

    /// Creates or updates the part of an input chunk and returns its place.
    fn put_input(&mut self, chunk: &Chunk, state: &str, input: Option<Value>) -> usize {
        let dynamic = flag(chunk, "dynamic") == Some(true);
        let call = chunk.text("toolCallId").unwrap_or_default();
        let found = self.find_in_step(call, if dynamic { Which::Dynamic } else { Which::Static });
        self.put(found, dynamic, chunk, state, input)
    }

    fn put(&mut self, found: Option<usize>, dynamic: bool, chunk: &Chunk, state: &str, input: Option<Value>) -> usize {
        let name = chunk.text("toolName").unwrap_or_default();
        let at = found.unwrap_or(self.parts.len());
        if found.is_none() {
            let mut new = if dynamic { part("dynamic-tool") } else { part(&format!("tool-{name}")) };
            copy(&mut new, chunk, "toolCallId", Type::Text);
            self.places.entry(call_of(&new).to_owned()).or_default().push(at);
            self.parts.push(new);
        }
        if state == "input-streaming" {
            self.streaming.insert(at);
        }
        let Some(part) = self.parts.get_mut(at) else { return at };
        if dynamic {
            part.insert("toolName".into(), name.into());
        } else {
            part.insert("type".into(), format!("tool-{name}").into());
        }
        part.shift_remove("input");
        renew(part, state);
        if let Some(input) = input {
            part.insert("input".into(), input);
        }
        copy(part, chunk, "errorText", Type::Text);
        if state != "output-error" {
            copy(part, chunk, "title", Type::Text);
        }
        copy(part, chunk, "toolMetadata", Type::Object);
        copy(part, chunk, "providerExecuted", Type::Flag);
        copy(part, chunk, "inputEncoding", Type::Encoding);
        if let Some(metadata) = typed(chunk, "providerMetadata", Type::Metadata) {
            let key = if state == "output-error" { "resultProviderMetadata" } else { "callProviderMetadata" };
            part.insert(key.into(), metadata.clone());
        }
        at
    }

    fn input_delta(&mut self, chunk: &Chunk, call: &str) -> Result<(), FoldError> {
        let input = self.inputs.get(call).ok_or_else(|| FoldError::NoInput(call.into()))?;
        let (mut at, count) = (input.part, self.parts.len());
        if self.streamed(at).is_none() || at < self.step_begin() {
            // A delta after the whole input, or in a later step: the reducer starts the part anew.
            let start = input.start.clone();
            self.leave(call);
            at = self.put_input(&start, "input-streaming", None);
        }
        if let Some(input) = self.inputs.get_mut(call) {
            input.part = at;
            input.shows_text = at < count || flag(&input.start, "dynamic") != Some(true);
            input.text.get_or_insert_default().push_str(chunk.text("inputTextDelta").unwrap_or_default());
        }
        Ok(())
    }

    /// No input goes on; their parts keep what has arrived.
    pub(in crate::dialect::ui) fn leave_all(&mut self) {
        let calls: Vec<_> = self.inputs.keys().cloned().collect();
        calls.iter().for_each(|call| self.leave(call));
    }

    /// Gives the part of a streamed input what has arrived so far: the input goes on in another part.
    fn leave(&mut self, call: &str) {
        let Some(input) = self.inputs.get(call).filter(|input| self.streamed(input.part).is_some()) else { return };
        if let Some(part) = self.parts.get_mut(input.part) {
            input.fill(part);
        }
    }

    fn input_error(&mut self, chunk: &Chunk, call: &str) {
        let found = self.find_in_step(call, Which::Any);
        let dynamic = match found.and_then(|at| self.parts.get(at)) {
            Some(part) => kind_of(part) == "dynamic-tool",
            None => flag(chunk, "dynamic") == Some(true),
        };
        self.put(found, dynamic, chunk, "output-error", chunk.get("input").cloned());
    }

    fn approval_response(&mut self, chunk: &Chunk) -> Result<(), FoldError> {
        let id = chunk.text("approvalId").unwrap_or_default();
        let found = self.find_decided(chunk).and_then(|at| self.parts.get_mut(at));
        let part = found.ok_or_else(|| FoldError::NoApproval(id.into()))?;
        if let Some(Value::Object(approval)) = part.get_mut("approval") {
            copy(approval, chunk, "approved", Type::Flag);
            copy(approval, chunk, "reason", Type::Text);
        }
        part.insert("state".into(), "approval-responded".into());
        copy(part, chunk, "providerExecuted", Type::Flag);
        if let Some(metadata) = typed(chunk, "providerMetadata", Type::Metadata) {
            part.insert("callProviderMetadata".into(), metadata.clone());
        }
        Ok(())
    }
}

/// A tool part's call id.
pub(in crate::dialect::ui) fn call_of(part: &Map<String, Value>) -> &str {
    part.get("toolCallId").and_then(Value::as_str).unwrap_or_default()
}

fn approval_of(part: &Map<String, Value>) -> Option<&str> {
    part.get("approval")?.get("id")?.as_str()
}

/// Keys that a result may carry besides the result itself.
fn result_keys(part: &mut Map<String, Value>, chunk: &Chunk) {
    copy(part, chunk, "providerExecuted", Type::Flag);
    copy(part, chunk, "toolMetadata", Type::Object);
    if let Some(metadata) = typed(chunk, "providerMetadata", Type::Metadata) {
        part.insert("resultProviderMetadata".into(), metadata.clone());
    }
}

/// Moves a part to a state in the way of inputs and results: what the last state brought goes.
fn renew(part: &mut Map<String, Value>, state: &str) {
    part.insert("state".into(), state.into());
    part.retain(|key, _| {
        !matches!(key.as_str(), "output" | "errorText" | "rawInput" | "preliminary" | "inputEncoding")
    });
}

/// Brings a part in line with its state: what every version refuses beside it goes, what some version wants comes.
fn accepted(part: &mut Map<String, Value>) {
    let state = state_of(part).to_owned();
    let raw = if state == "input-streaming" { None } else { part.shift_remove("rawInput") };
    part.retain(|key, _| match key.as_str() {
        "output" | "preliminary" => state == "output-available",
        "errorText" => state == "output-error",
        "inputEncoding" => state == "input-streaming",
        _ => true,
    });
    if state != "input-streaming" {
        part.entry("input").or_insert(raw.unwrap_or_default());
    }
    let denied = part.get("approval").and_then(|approval| approval.get("approved")) == Some(&Value::Bool(false));
    match (state.as_str(), part.get_mut("approval")) {
        ("input-streaming" | "input-available", Some(_)) => {
            part.shift_remove("approval");
        }
        // The output is a fact; a denial beside it is refused, and a grant would be a lie.
        ("output-available" | "output-error", Some(_)) if denied => {
            part.shift_remove("approval");
        }
        ("output-available" | "output-error", Some(Value::Object(approval))) => {
            approval.insert("approved".into(), true.into());
        }
        ("output-denied", Some(Value::Object(approval))) => {
            approval.insert("approved".into(), false.into());
        }
        ("output-denied", _) => {
            // A denial must name an approval; nobody asked for one, so the call itself is named.
            let id = call_of(part).to_owned();
            part.insert("approval".into(), json!({"id": id, "approved": false}));
        }
        _ => {}
    }
}

//! The fold's part for tool calls: one part per call, static (`tool-<name>`) or dynamic, and its states.
//!
//! Three things differ from the client's reducer, each because the result would fail `validateUIMessages` of some
//! version (`spec/ai-sdk.md` A.8): a call that gets its result or its approval request before its input has `input:
//! null`; an approval is brought in line with the state (granted beside an output, denied beside a denial, gone beside
//! a new input); and a failed input is stored as `input`, as 7.x does, where 6.x has `rawInput` and no `input`.

use serde_json::{Map, Value, json};

use super::fold::{Fold, FoldError, OpenPart, copy, kind_of, part};
use super::partial_json::parse_partial;
use super::vocabulary::{Type, flag, typed};
use crate::core::chunk::Chunk;

/// A tool input that has begun to stream.
#[derive(Clone, Debug)]
pub(super) struct Input {
    /// The deltas so far.
    text: String,
    /// What a delta repeats on the part, as its start said it.
    start: Chunk,
    /// Place of the call's part.
    pub part: usize,
}

impl Input {
    fn value(&self) -> Option<Value> {
        match self.start.text("inputEncoding") {
            Some("text") => Some(self.text.as_str().into()),
            _ => parse_partial(&self.text),
        }
    }
}

/// Which parts a look-up takes.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Which {
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
pub(super) fn state_of(part: &Map<String, Value>) -> &str {
    part.get("state").and_then(Value::as_str).unwrap_or_default()
}

/// Whether the call has its final result.
pub(super) fn is_settled(part: &Map<String, Value>) -> bool {
    match state_of(part) {
        "output-available" => part.get("preliminary") != Some(&Value::Bool(true)),
        "output-error" | "output-denied" => true,
        _ => false,
    }
}

impl Fold {
    /// Takes a `tool-*` chunk whose required keys are there.
    pub(super) fn apply_tool(&mut self, chunk: &Chunk) -> Result<(), FoldError> {
        let call = chunk.text("toolCallId").unwrap_or_default();
        match chunk.kind() {
            "tool-input-start" => {
                let at = self.put_input(chunk, "input-streaming", None);
                self.inputs.insert(call.into(), Input { text: String::new(), start: chunk.clone(), part: at });
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
                enter(part, "approval-requested");
            }
            "tool-approval-response" => self.approval_response(chunk)?,
            "tool-output-denied" => enter(self.call_part(call)?, "output-denied"),
            "tool-output-available" => {
                let part = self.call_part(call)?;
                enter(part, "output-available");
                part.insert("output".into(), chunk.get("output").cloned().unwrap_or_default());
                copy(part, chunk, "preliminary", Type::Flag);
                result_keys(part, chunk);
            }
            "tool-output-error" => {
                let part = self.call_part(call)?;
                enter(part, "output-error");
                copy(part, chunk, "errorText", Type::Text);
                result_keys(part, chunk);
            }
            _ => {}
        }
        Ok(())
    }

    /// The place of a call: in the current step, else the last one with this id.
    pub(super) fn find_call(&self, id: &str) -> Option<usize> {
        self.find_in_step(id, Which::Any)
            .or_else(|| self.parts.iter().rposition(|part| Which::Any.takes(part) && call_of(part) == id))
    }

    /// The first part of a call in the current step.
    pub(super) fn find_in_step(&self, id: &str, which: Which) -> Option<usize> {
        let begin = self.step_begin();
        let here = self.parts.get(begin..).unwrap_or_default();
        let at = here.iter().position(|part| which.takes(part) && call_of(part) == id)?;
        begin.checked_add(at)
    }

    /// Whether an approval of this id is asked for and not answered.
    pub(super) fn awaits_approval(&self, id: &str) -> bool {
        self.parts.iter().any(|part| state_of(part) == "approval-requested" && approval_of(part) == Some(id))
    }

    /// A part as it goes into the message: a streamed input is read as far as it has arrived.
    pub(super) fn part_at(&self, at: usize) -> Option<Map<String, Value>> {
        let mut part = self.parts.get(at)?.clone();
        if let Some(value) = self.streamed_input(at) {
            part.insert("input".into(), value);
        }
        Some(part)
    }

    /// The part as something that later chunks may refer to, when they may.
    pub(super) fn open_call(&self, at: usize, part: Map<String, Value>) -> Option<OpenPart> {
        if !Which::Any.takes(&part) || is_settled(&part) {
            return None;
        }
        if state_of(&part) != "input-streaming" {
            return Some(OpenPart::Call { part });
        }
        // A call of an earlier run whose input never ended cannot be continued: nothing refers to it any more.
        let input = self.inputs.get(call_of(&part)).filter(|input| input.part == at)?;
        Some(OpenPart::Input { part, text: input.text.clone() })
    }

    fn streamed_input(&self, at: usize) -> Option<Value> {
        let part = self.parts.get(at)?;
        if state_of(part) != "input-streaming" {
            return None;
        }
        self.inputs.get(call_of(part)).filter(|input| input.part == at)?.value()
    }

    /// A call's part, for a chunk that needs one. A streamed input becomes the part's own.
    fn call_part(&mut self, id: &str) -> Result<&mut Map<String, Value>, FoldError> {
        let missing = || FoldError::NoCall(id.into());
        let at = self.find_call(id).ok_or_else(missing)?;
        let streamed = self.streamed_input(at);
        let part = self.parts.get_mut(at).ok_or_else(missing)?;
        if let Some(value) = streamed {
            part.insert("input".into(), value);
        }
        Ok(part)
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
            self.parts.push(new);
        }
        let Some(part) = self.parts.get_mut(at) else { return at };
        if dynamic {
            part.insert("toolName".into(), name.into());
        }
        part.shift_remove("input");
        enter(part, state);
        if let Some(input) = input {
            part.insert("input".into(), input);
        }
        copy(part, chunk, "errorText", Type::Text);
        copy(part, chunk, "title", Type::Text);
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
        let Some(mut input) = self.inputs.remove(call) else { return Err(FoldError::NoInput(call.into())) };
        input.text.push_str(chunk.text("inputTextDelta").unwrap_or_default());
        let streams_on = self.parts.get(input.part).is_some_and(|part| state_of(part) == "input-streaming")
            && input.part >= self.step_begin();
        if !streams_on {
            // A delta after the whole input, or in a later step: the reducer starts the part anew.
            input.part = self.put_input(&input.start, "input-streaming", None);
        }
        self.inputs.insert(call.into(), input);
        Ok(())
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
        let found = self.parts.iter_mut().find(|part| Which::Any.takes(part) && approval_of(part) == Some(id));
        let part = found.ok_or_else(|| FoldError::NoApproval(id.into()))?;
        if let Some(Value::Object(approval)) = part.get_mut("approval") {
            copy(approval, chunk, "approved", Type::Flag);
            copy(approval, chunk, "reason", Type::Text);
        }
        enter(part, "approval-responded");
        copy(part, chunk, "providerExecuted", Type::Flag);
        if let Some(metadata) = typed(chunk, "providerMetadata", Type::Metadata) {
            part.insert("callProviderMetadata".into(), metadata.clone());
        }
        Ok(())
    }
}

/// A tool part's call id.
pub(super) fn call_of(part: &Map<String, Value>) -> &str {
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

/// Moves a part to a state: what the state must not have goes, what it must have besides its own result comes.
fn enter(part: &mut Map<String, Value>, state: &str) {
    part.insert("state".into(), state.into());
    part.retain(|key, _| !matches!(key.as_str(), "output" | "errorText" | "rawInput" | "preliminary"));
    if state != "input-streaming" {
        part.retain(|key, _| key != "inputEncoding");
        part.entry("input").or_insert(Value::Null);
    }
    let denied = part.get("approval").and_then(|approval| approval.get("approved")) == Some(&Value::Bool(false));
    match (state, part.get_mut("approval")) {
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

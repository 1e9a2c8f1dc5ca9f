//! A committed message as the chunks that a response begins with (C-1, `spec/helix.md` 5.5).
//!
//! Clients differ in what they do with the message that they hold when a response resumes (`spec/ai-sdk.md` A.5), so it
//! is taken out of their hands and told again, with the chunk types and keys of 6.0.0 only: the same on every version.
//!
//! Folding the prefix gives the committed message, but for what 6.0.0 has no chunk or key for, and what must not happen
//! a second time:
//!
//! * an approval that is answered is not asked for again, so the part has none: granted, the call waits for its output
//!   (the live stream brings it); denied, the call is denied;
//! * of an approval that waits only its id is told;
//! * `custom`, `reasoning-file` and `steering-message` parts are missing, and so are the keys `filename` of a file,
//!   `citations`, `toolMetadata`, `resultProviderMetadata`, `inputEncoding`, and `callProviderMetadata` of an input that
//!   never ended;
//! * keys that clients refuse are escaped, as in every chunk;
//! * a text without a `state` is `done`, and an input that could not be read is the part's `input`.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::calls::tool_of;
use super::fold::kind_of;
use super::fold::tool::{call_of, state_of};
use super::reopen::{carry, renamed};
use super::resync::{REPLAY, is_event};
use super::sanitise::{escape_keys, sanitise};
use super::vocabulary::Floor;
use crate::core::chunk::Chunk;

/// The prefix of a response that goes on with this message: `start` with its id and metadata, then its parts. `marked`
/// puts them between two transient `data-helix-replay` chunks, by which a Helix client tells a replayed call from a new
/// one; no other client knows these.
///
/// All chunks are synthesised, so their frames carry no sequence.
pub fn prefix(message: &Value, marked: bool) -> Vec<Chunk> {
    let id = message.get("id").and_then(Value::as_str).unwrap_or_default();
    let mut start = Chunk::new("start").with("messageId", id);
    if let Some(metadata) = message.get("metadata").filter(|metadata| !metadata.is_null()) {
        start = start.with("messageMetadata", metadata.clone());
    }
    let marker = |phase: &str| {
        let data = json!({ "phase": phase, "messageId": id });
        marked.then(|| Chunk::new(REPLAY).with("data", data).with("transient", true))
    };
    let mut out = Vec::new();
    push(&mut out, start);
    out.extend(marker("begin"));
    let mut in_step = false;
    for (at, part) in parts(message).enumerate() {
        if kind_of(part) == "step-start" {
            // A client of 6.x and early 7.x forgets open parts at a step's end; here none is open but a broken-off one.
            if in_step {
                push(&mut out, Chunk::new("finish-step"));
            }
            in_step = true;
        }
        replay(&mut out, at, part);
    }
    if in_step {
        push(&mut out, Chunk::new("finish-step"));
    }
    out.extend(marker("end"));
    out
}

/// The chunks of parts that a step has shown and lost, for the attempt that ends it.
pub(super) fn retold(parts: &[Map<String, Value>]) -> Vec<Chunk> {
    let mut out = Vec::new();
    for (at, part) in parts.iter().enumerate().filter(|(_, part)| kind_of(part) != "step-start") {
        replay(&mut out, at, part);
    }
    out
}

/// The calls that a message holds: what a response owns that begins with its prefix, or that a client appends to it.
pub fn owned_calls(message: &Value) -> BTreeSet<String> {
    let calls = parts(message).filter(|part| tool_of(part).is_some()).map(call_of);
    calls.filter(|id| !id.is_empty()).map(str::to_owned).collect()
}

fn parts(message: &Value) -> impl Iterator<Item = &Map<String, Value>> {
    message.get("parts").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object)
}

/// The chunks of one part; `at` makes the ids of text parts, which the message does not keep.
fn replay(out: &mut Vec<Chunk>, at: usize, part: &Map<String, Value>) {
    let kind = kind_of(part);
    match kind {
        "text" => block(out, part, "text", &format!("replay-{at}")),
        "reasoning" => {
            let fallback = format!("replay-{at}");
            block(out, part, "reasoning", part.get("id").and_then(Value::as_str).unwrap_or(&fallback));
        }
        "step-start" => push(out, Chunk::new("start-step")),
        "file" => push(out, carry(Chunk::new(kind), part, &["url", "mediaType", "providerMetadata"])),
        "source-url" => push(out, carry(Chunk::new(kind), part, &["sourceId", "url", "title", "providerMetadata"])),
        "source-document" => {
            let keys = ["sourceId", "mediaType", "title", "filename", "providerMetadata"];
            push(out, carry(Chunk::new(kind), part, &keys));
        }
        _ if is_event(kind) => {}
        _ if kind.starts_with("data-") => push(out, carry(Chunk::new(kind), part, &["id", "data", "transient"])),
        _ => {
            if let Some(name) = tool_of(part) {
                call(out, part, name);
            }
        }
    }
}

/// A text or reasoning part. One that was broken off stays without its end.
fn block(out: &mut Vec<Chunk>, part: &Map<String, Value>, of: &str, id: &str) {
    let chunk = |edge: &str| Chunk::new(&format!("{of}-{edge}")).with("id", id);
    push(out, carry(chunk("start"), part, &["providerMetadata"]));
    if let Some(text) = part.get("text").and_then(Value::as_str).filter(|text| !text.is_empty()) {
        push(out, chunk("delta").with("delta", text));
    }
    if state_of(part) != "streaming" {
        push(out, chunk("end"));
    }
}

fn call(out: &mut Vec<Chunk>, part: &Map<String, Value>, name: &str) {
    let introduced = |kind: &str| {
        let chunk = carry(Chunk::new(kind), part, &["toolCallId"]).with("toolName", name);
        let chunk = carry(chunk, part, &["providerExecuted", "title"]);
        if kind_of(part) == "dynamic-tool" { chunk.with("dynamic", true) } else { chunk }
    };
    let answered = |kind: &str, keys: &[&str]| {
        let chunk = carry(carry(Chunk::new(kind), part, &["toolCallId"]), part, keys);
        let chunk = carry(chunk, part, &["providerExecuted"]);
        if kind_of(part) == "dynamic-tool" { chunk.with("dynamic", true) } else { chunk }
    };
    let state = state_of(part);
    let begin = match state {
        "input-streaming" => introduced("tool-input-start"),
        "output-error" if !part.contains_key("input") => {
            let input = part.get("rawInput").cloned().unwrap_or_default();
            let chunk = introduced("tool-input-error").with("input", input);
            renamed(carry(chunk, part, &["errorText"]), part, "resultProviderMetadata")
        }
        _ => {
            let input = part.get("input").cloned().unwrap_or_default();
            renamed(introduced("tool-input-available").with("input", input), part, "callProviderMetadata")
        }
    };
    let failed_input = begin.kind() == "tool-input-error";
    let before = out.len();
    push(out, begin);
    if out.len() == before {
        // Without its beginning a client would fail on the rest.
        return;
    }
    match state {
        "input-streaming" => {
            if let Some(text) = streamed(part) {
                let delta = carry(Chunk::new("tool-input-delta"), part, &["toolCallId"]);
                push(out, delta.with("inputTextDelta", text));
            }
        }
        "approval-requested" => {
            if let Some(id) = part.get("approval").and_then(|approval| approval.get("id")) {
                let request = Chunk::new("tool-approval-request").with("approvalId", id.clone());
                push(out, carry(request, part, &["toolCallId"]));
            }
        }
        "output-available" => push(out, answered("tool-output-available", &["output", "preliminary"])),
        "output-error" if !failed_input => push(out, answered("tool-output-error", &["errorText"])),
        "output-denied" => push(out, denied(part)),
        "approval-responded" if is_denied(part) => push(out, denied(part)),
        _ => {}
    }
}

fn denied(part: &Map<String, Value>) -> Chunk {
    carry(Chunk::new("tool-output-denied"), part, &["toolCallId"])
}

fn is_denied(part: &Map<String, Value>) -> bool {
    part.get("approval").and_then(|approval| approval.get("approved")) == Some(&Value::Bool(false))
}

/// Adds a chunk as 6.0.0 accepts it; what it would refuse is left out.
fn push(out: &mut Vec<Chunk>, chunk: Chunk) {
    out.extend(sanitise(chunk, Floor::default()).and_then(|map| Chunk::parse(Value::Object(map)).ok()));
}

/// What has come of an input that is still being streamed: its own text, unless clients would refuse a key in it.
fn streamed(part: &Map<String, Value>) -> Option<String> {
    let input = part.get("input");
    let raw = part.get("rawInput").and_then(Value::as_str);
    let mut escaped = input.cloned();
    if let Some(escaped) = &mut escaped {
        escape_keys(escaped);
    }
    match raw {
        Some(raw) if escaped.as_ref() == input => Some(raw.to_owned()),
        _ => escaped.map(|escaped| escaped.to_string()),
    }
}

#[cfg(test)]
#[path = "replay_tests.rs"]
mod tests;

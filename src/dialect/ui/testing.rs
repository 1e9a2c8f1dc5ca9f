//! What the tests of several files share: random producers, the log that a writer makes of them, and a client of 6.0.0.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::attempts::Attempts;
use super::sanitise::sanitise;
use super::vocabulary::{Floor, shape};
use super::writer::RunWriter;
use crate::core::chunk::Chunk;
use crate::core::ids::{AttemptId, MessageId, RunId, Sequence};
use crate::core::record::{Commit, Record};

pub(in crate::dialect) fn writer() -> RunWriter {
    RunWriter::new(RunId::new("r"), MessageId::new("m"))
}

pub(in crate::dialect) fn chunk(value: Value) -> Chunk {
    Chunk::parse(value).unwrap()
}

/// As the log stores it.
pub(in crate::dialect) fn stamp(chunk: &Chunk, attempt: Option<&(AttemptId, u32)>) -> Chunk {
    let chunk = chunk.clone().with("runId", "r");
    match attempt {
        Some((id, step)) => chunk.with("attemptId", id.as_str()).with("step", *step),
        None => chunk,
    }
}

pub(in crate::dialect) fn stored(entries: &[Record]) -> Vec<Chunk> {
    let chunk = |entry: &Record| match entry {
        Record::Chunk { chunk, attempt } => Some(stamp(chunk, attempt.as_ref())),
        Record::Commit(_) | Record::Call(_) | Record::Amend(_) => None,
    };
    entries.iter().filter_map(chunk).collect()
}

pub(in crate::dialect) fn run(chunks: &[Value]) -> Vec<Record> {
    let mut writer = writer();
    let mut out = writer.open();
    for value in chunks {
        out.extend(writer.write(chunk(value.clone())));
    }
    out.extend(writer.complete());
    out
}

pub(in crate::dialect) fn last_commit(entries: &[Record]) -> Option<&Commit> {
    entries.iter().rev().find_map(|entry| match entry {
        Record::Commit(commit) => Some(commit),
        Record::Chunk { .. } | Record::Call(_) | Record::Amend(_) => None,
    })
}

/// The keys that 6.0.0 allows, spelled out again so that a slip in the table does not hide here.
pub(in crate::dialect) fn allowed_by_6_0_0(kind: &str) -> Option<&'static [&'static str]> {
    Some(match kind {
        "start" => &["messageId", "messageMetadata"],
        "start-step" | "finish-step" | "abort" => &[],
        "text-start" | "text-end" | "reasoning-start" | "reasoning-end" => &["id", "providerMetadata"],
        "text-delta" | "reasoning-delta" => &["id", "delta", "providerMetadata"],
        "tool-input-start" => &["toolCallId", "toolName", "providerExecuted", "dynamic", "title"],
        "tool-input-delta" => &["toolCallId", "inputTextDelta"],
        "tool-input-available" => {
            &["toolCallId", "toolName", "input", "providerExecuted", "providerMetadata", "dynamic", "title"]
        }
        "tool-input-error" => &[
            "toolCallId",
            "toolName",
            "input",
            "errorText",
            "providerExecuted",
            "providerMetadata",
            "dynamic",
            "title",
        ],
        "tool-approval-request" => &["approvalId", "toolCallId"],
        "tool-output-available" => &["toolCallId", "output", "providerExecuted", "dynamic", "preliminary"],
        "tool-output-error" => &["toolCallId", "errorText", "providerExecuted", "dynamic"],
        "tool-output-denied" => &["toolCallId"],
        "source-url" => &["sourceId", "url", "title", "providerMetadata"],
        "source-document" => &["sourceId", "mediaType", "title", "filename", "providerMetadata"],
        "file" => &["url", "mediaType", "providerMetadata"],
        "finish" => &["finishReason", "messageMetadata"],
        "message-metadata" => &["messageMetadata"],
        "error" => &["errorText"],
        _ if kind.starts_with("data-") => &["id", "data", "transient"],
        _ => return None,
    })
}

/// A client of 6.0.0 in a few lines: what it would fail on panics here.
#[derive(Default)]
pub(in crate::dialect) struct Client {
    pub(in crate::dialect) text: BTreeSet<String>,
    pub(in crate::dialect) reasoning: BTreeSet<String>,
    inputs: BTreeSet<String>,
    pub(in crate::dialect) calls: BTreeSet<String>,
    pub(in crate::dialect) started: bool,
    pub(in crate::dialect) finished: bool,
}

impl Client {
    pub(in crate::dialect) fn read(&mut self, frame: &Map<String, Value>) {
        let kind = frame["type"].as_str().unwrap();
        let allowed = allowed_by_6_0_0(kind).unwrap_or_else(|| panic!("unknown type {kind}"));
        for (key, value) in frame {
            assert!(key == "type" || allowed.contains(&key.as_str()), "unknown key {key} in {frame:?}");
            let any = matches!(key.as_str(), "input" | "output" | "data" | "messageMetadata");
            assert!(any || !value.is_null(), "null {key} in {frame:?}");
        }
        assert!(self.started || kind == "start", "{kind} before start");
        assert!(!self.finished, "{kind} after finish");
        let text = |key: &str| frame.get(key).and_then(Value::as_str).map(str::to_owned);
        let id = || text("id").unwrap();
        let call = || text("toolCallId").unwrap();
        match kind {
            "start" => self.started = true,
            "finish" => self.finished = true,
            "finish-step" => {
                assert!(self.text.is_empty() && self.reasoning.is_empty(), "finish-step with open parts");
            }
            "text-start" => assert!(self.text.insert(id())),
            "text-delta" => assert!(self.text.contains(&id())),
            "text-end" => assert!(self.text.remove(&id())),
            "reasoning-start" => assert!(self.reasoning.insert(id())),
            "reasoning-delta" => assert!(self.reasoning.contains(&id())),
            "reasoning-end" => assert!(self.reasoning.remove(&id())),
            "tool-input-start" => {
                self.inputs.insert(call());
                self.calls.insert(call());
            }
            "tool-input-delta" => assert!(self.inputs.contains(&call()), "delta without input"),
            "tool-input-available" | "tool-input-error" => {
                self.calls.insert(call());
            }
            "tool-output-available" | "tool-output-error" | "tool-output-denied" | "tool-approval-request" => {
                assert!(self.calls.contains(&call()), "{kind} without its call");
            }
            _ => {}
        }
    }

    pub(in crate::dialect) fn read_all(&mut self, chunks: &[Chunk]) {
        for chunk in chunks {
            if let Some(frame) = sanitise(chunk.clone(), Floor::default()) {
                self.read(&frame);
            }
        }
    }
}

/// A replay leaves superseded attempts out, and a live response breaks when it has sent the start of one.
pub(in crate::dialect) fn surviving(chunks: &[Chunk]) -> Vec<Chunk> {
    let number = |at| Sequence::new(at as u64 + 1).unwrap();
    let attempts = Attempts::of(chunks.iter().enumerate().map(|(at, chunk)| (number(at), chunk)));
    chunks.iter().filter(|chunk| !attempts.superseded().leaves_out(chunk)).cloned().collect()
}

pub(in crate::dialect) fn producer_chunk() -> impl Strategy<Value = Value> {
    let id = prop::sample::select(vec!["0", "1"]);
    let call = prop::sample::select(vec!["a", "b"]);
    let kind = prop::sample::select(vec![
        "start",
        "start-step",
        "finish-step",
        "reset-step",
        "finish",
        "message-metadata",
        "abort",
        "error",
        "state_patch",
        "run_started",
        "step_committed",
        "text-start",
        "text-start",
        "text-delta",
        "text-delta",
        "text-end",
        "reasoning-start",
        "reasoning-delta",
        "reasoning-end",
        "source-url",
        "file",
        "custom",
        "data-x",
        "data-x",
        "tool-input-start",
        "tool-input-start",
        "tool-input-delta",
        "tool-input-delta",
        "tool-input-available",
        "tool-input-available",
        "tool-input-error",
        "tool-output-available",
        "tool-output-available",
        "tool-output-error",
        "tool-output-denied",
        "tool-approval-request",
        "tool-approval-response",
    ]);
    let omit =
        prop::sample::select(vec!["", "", "", "", "", "", "id", "toolCallId", "input", "output", "data", "toolName"]);
    (kind, id, call, any::<[bool; 3]>(), omit, 0..3_usize).prop_map(|(kind, id, call, [flag, other, extra], omit, pick)| {
        let mut map = json!({
            "type": kind, "id": id, "delta": "x", "toolCallId": call, "toolName": (["n", "m", "n"][pick]), "input": {"q": 1},
            "inputTextDelta": (["{\"q\"", ":1", "}"][pick]), "output": ([json!(1), Value::Null, json!({"__proto__": 1})][pick]),
            "errorText": "e", "approvalId": call, "approved": flag, "sourceId": "s", "url": "u", "mediaType": "m",
            "kind": "k.k", "data": pick, "preliminary": flag, "dynamic": other && pick == 1, "transient": extra && flag,
            "finishReason": (["stop", "odd", "length"][pick]), "messageMetadata": {"k": pick}, "messageId": "theirs",
        });
        let map = map.as_object_mut().unwrap();
        map.shift_remove(omit);
        if let Some(shape) = shape(kind) {
            map.retain(|key, _| key == "type" || shape.key(key).is_some());
        }
        if extra {
            map.insert("usage".into(), json!({"tokens": 1}));
            map.insert("providerMetadata".into(), [json!({"flat": 1}), json!({"p": {"k": 1}}), Value::Null][pick].clone());
        }
        Value::Object(map.clone())
    })
}

pub(in crate::dialect) fn seed() -> Value {
    json!({"id": "m", "role": "assistant", "parts": [
        {"type": "tool-n", "toolCallId": "a", "state": "input-available", "input": 1},
    ]})
}

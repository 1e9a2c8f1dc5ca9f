//! What a response that begins in the middle of a run sends first, so that it is a valid stream by itself.
//!
//! A client looks up open parts and tool calls in this response only (`spec/ai-sdk.md` A.3): a delta, an end or a tool
//! output whose beginning lies before the cursor would fail the whole reply. So the parts that are open at the cursor
//! are opened again, without the content that the client already has.

use serde_json::{Map, Value};

use super::fold::tool::state_of;
use super::fold::{Fold, OpenPart, kind_of};
use crate::core::chunk::Chunk;

/// The opening of a response whose client has everything that this fold has seen: `start`, then every open part.
///
/// The fold is the run's message at the cursor: the message that the run continues (if any) and the run's chunks up to
/// the cursor, without those of superseded attempts (`attempts`): the fold cannot know that an attempt loses its step
/// behind the cursor. The chunks are synthesised, so their frames carry no sequence; `lens::begun` names the calls that
/// the response owns by them.
pub fn reopen(fold: &Fold) -> Vec<Chunk> {
    let mut start = Chunk::new("start").with("messageId", fold.message_id());
    if let Some(metadata) = fold.metadata().filter(|metadata| !metadata.is_null()) {
        start = start.with("messageMetadata", metadata.clone());
    }
    let mut opening = vec![start];
    for open in fold.open_parts() {
        match open {
            OpenPart::Text { id, part } => opening.push(with_metadata(Chunk::new("text-start").with("id", id), &part)),
            OpenPart::Reasoning { id, part } => {
                opening.push(with_metadata(Chunk::new("reasoning-start").with("id", id), &part));
            }
            OpenPart::Input { part, text } => {
                let start = call(Chunk::new("tool-input-start"), &part);
                opening.push(carry(start, &part, &["inputEncoding"]));
                if !text.is_empty() {
                    let delta = carry(Chunk::new("tool-input-delta"), &part, &["toolCallId"]);
                    opening.push(delta.with("inputTextDelta", text));
                }
            }
            OpenPart::Call { part } => pending(&mut opening, &part),
        }
    }
    opening
}

/// A call that waits for its result. An approval that is already answered is not asked for again.
fn pending(opening: &mut Vec<Chunk>, part: &Map<String, Value>) {
    opening.push(carry(call(Chunk::new("tool-input-available"), part), part, &["input"]));
    match state_of(part) {
        "approval-requested" => {
            let Some(Value::Object(approval)) = part.get("approval") else { return };
            let mut request = carry(Chunk::new("tool-approval-request"), part, &["toolCallId"]);
            for (from, to) in [
                ("id", "approvalId"),
                ("signature", "signature"),
                ("descriptor", "approvalDescriptor"),
                ("inputSchemaInput", "inputSchemaInput"),
                ("requestReason", "reason"),
                ("isAutomatic", "isAutomatic"),
            ] {
                if let Some(value) = approval.get(from) {
                    request = request.with(to, value.clone());
                }
            }
            opening.push(request);
        }
        "output-available" => {
            let half = carry(Chunk::new("tool-output-available"), part, &["toolCallId", "output", "preliminary"]);
            opening.push(renamed(half, part, "resultProviderMetadata"));
        }
        _ => {}
    }
}

/// The keys that introduce a call.
fn call(chunk: Chunk, part: &Map<String, Value>) -> Chunk {
    let chunk = carry(chunk, part, &["toolCallId"]);
    let kind = kind_of(part);
    let chunk = match kind.strip_prefix("tool-") {
        Some(name) => chunk.with("toolName", name),
        None => carry(chunk, part, &["toolName"]).with("dynamic", true),
    };
    let chunk = carry(chunk, part, &["title", "providerExecuted", "toolMetadata"]);
    renamed(chunk, part, "callProviderMetadata")
}

/// The provider's metadata, which a part keeps under a name of its own.
pub(super) fn renamed(chunk: Chunk, part: &Map<String, Value>, from: &str) -> Chunk {
    match part.get(from) {
        Some(metadata) => chunk.with("providerMetadata", metadata.clone()),
        None => chunk,
    }
}

fn with_metadata(chunk: Chunk, part: &Map<String, Value>) -> Chunk {
    carry(chunk, part, &["providerMetadata"])
}

/// The part's keys, as they are.
pub(super) fn carry(chunk: Chunk, part: &Map<String, Value>, keys: &[&str]) -> Chunk {
    keys.iter().fold(chunk, |chunk, key| match part.get(*key) {
        Some(value) => chunk.with(key, value.clone()),
        None => chunk,
    })
}

#[cfg(test)]
#[path = "reopen_tests.rs"]
mod properties;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::ids::MessageId;
    use serde_json::json;

    fn opening(chunks: Value) -> Value {
        let mut fold = Fold::new(&MessageId::new("m"));
        for chunk in chunks.as_array().unwrap() {
            fold.apply(&Chunk::parse(chunk.clone()).unwrap()).unwrap();
        }
        reopen(&fold).into_iter().map(|chunk| Value::Object(chunk.into_map())).collect()
    }

    #[test]
    fn nothing_open_needs_only_a_start() {
        let done = json!([{"type": "text-start", "id": "t"}, {"type": "text-end", "id": "t"}]);
        assert_eq!(opening(done), json!([{"type": "start", "messageId": "m"}]));
    }

    #[test]
    fn open_parts_come_back_without_their_content() {
        let chunks = json!([
            {"type": "start", "messageId": "m", "messageMetadata": {"a": 1}},
            {"type": "reasoning-start", "id": "r"},
            {"type": "reasoning-delta", "id": "r", "delta": "hm", "providerMetadata": {"p": {"s": 1}}},
            {"type": "text-start", "id": "t"},
            {"type": "text-delta", "id": "t", "delta": "Hel"},
        ]);
        assert_eq!(
            opening(chunks),
            json!([
                {"type": "start", "messageId": "m", "messageMetadata": {"a": 1}},
                {"type": "reasoning-start", "id": "r", "providerMetadata": {"p": {"s": 1}}},
                {"type": "text-start", "id": "t"},
            ])
        );
    }

    #[test]
    fn a_streaming_input_comes_back_with_its_text() {
        let chunks = json!([
            {"type": "tool-input-start", "toolCallId": "c", "toolName": "search", "title": "Search"},
            {"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": "{\"q\":"},
            {"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": "\"a"},
            {"type": "tool-input-start", "toolCallId": "d", "toolName": "dyn", "dynamic": true},
        ]);
        assert_eq!(
            opening(chunks),
            json!([
                {"type": "start", "messageId": "m"},
                {"type": "tool-input-start", "toolCallId": "c", "toolName": "search", "title": "Search"},
                {"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": "{\"q\":\"a"},
                {"type": "tool-input-start", "toolCallId": "d", "toolName": "dyn", "dynamic": true},
            ])
        );
    }

    #[test]
    fn pending_calls_come_back_and_settled_ones_do_not() {
        let chunks = json!([
            {"type": "tool-input-available", "toolCallId": "a", "toolName": "x", "input": {"q": 1}, "providerExecuted": true},
            {"type": "tool-input-available", "toolCallId": "b", "toolName": "x", "input": 2},
            {"type": "tool-approval-request", "toolCallId": "b", "approvalId": "p", "signature": "s"},
            {"type": "tool-input-available", "toolCallId": "c", "toolName": "x", "input": 3},
            {"type": "tool-output-available", "toolCallId": "c", "output": 4},
            {"type": "tool-input-available", "toolCallId": "d", "toolName": "x", "input": null},
            {"type": "tool-output-available", "toolCallId": "d", "output": 5, "preliminary": true},
        ]);
        assert_eq!(
            opening(chunks),
            json!([
                {"type": "start", "messageId": "m"},
                {"type": "tool-input-available", "toolCallId": "a", "toolName": "x", "input": {"q": 1}, "providerExecuted": true},
                {"type": "tool-input-available", "toolCallId": "b", "toolName": "x", "input": 2},
                {"type": "tool-approval-request", "toolCallId": "b", "approvalId": "p", "signature": "s"},
                {"type": "tool-input-available", "toolCallId": "d", "toolName": "x", "input": null},
                {"type": "tool-output-available", "toolCallId": "d", "output": 5, "preliminary": true},
            ])
        );
    }
}

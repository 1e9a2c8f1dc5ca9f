//! Which UI chunks a client would fail on, or would read in one way today and in another tomorrow.
//!
//! The protocol's own rules are `ui::vocabulary` (keys) and `ui::fold` (order). Those here come on top: releases differ in which part they
//! change when a call's id or a part's id is taken twice, so that a message holds each once.

use super::reason::Reason;
use crate::core::chunk::Chunk;
use crate::dialect::ui::fold::Fold;
use crate::dialect::ui::fold_calls::CallView;
use crate::dialect::ui::vocabulary::{Key, Type, shape};

/// Checks a chunk's keys.
pub(super) fn check_keys(chunk: &Chunk) -> Result<(), Reason> {
    let kind = || chunk.kind().to_owned();
    let Some(shape) = shape(chunk.kind()) else { return Err(Reason::UnknownType(kind())) };
    let wrong = |key: &Key| Reason::Key { kind: kind(), key: key.name, expected: expected(key.kind) };
    for key in shape.keys {
        match chunk.get(key.name) {
            None if key.required => return Err(wrong(key)),
            // Optional and `null` is absent to every dialect.
            Some(value) if !key.kind.fits(value) && (key.required || !value.is_null()) => return Err(wrong(key)),
            _ => {}
        }
    }
    Ok(())
}

fn expected(kind: Type) -> &'static str {
    match kind {
        Type::Text | Type::FinishReason => "a string",
        Type::Flag => "true or false",
        Type::Any => "there",
        Type::Object => "an object",
        Type::Metadata => "an object of objects",
        Type::Encoding => "json or text",
        Type::Citations => "an array of citations",
        Type::Steering => "an array of text and file parts",
    }
}

/// Checks a chunk against the message so far. `inherited`: number of parts that an earlier run has written.
pub(super) fn check_place(fold: &Fold, inherited: usize, chunk: &Chunk) -> Result<(), Reason> {
    let kind = chunk.kind();
    match kind {
        "text-start" | "reasoning-start" => {
            let id = chunk.text("id").unwrap_or_default();
            let open = fold.is_open(id, kind == "reasoning-start");
            if open { Err(Reason::AlreadyOpen { kind: kind.into(), id: id.into() }) } else { Ok(()) }
        }
        "tool-approval-response" => match fold.call_of_approval(chunk.text("approvalId").unwrap_or_default()) {
            Some(call) if call.state() != "approval-requested" => Err(state(chunk, call)),
            _ => Ok(()),
        },
        _ if kind.starts_with("tool-") => match fold.call(chunk.text("toolCallId").unwrap_or_default()) {
            Some(call) if kind.starts_with("tool-input-") => check_input(chunk, call, inherited),
            Some(call) => check_answer(chunk, call),
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

fn check_input(chunk: &Chunk, call: CallView<'_>, inherited: usize) -> Result<(), Reason> {
    if !call.in_step || call.at < inherited {
        return Err(Reason::CallTaken(call.id().into()));
    }
    let fits = match chunk.kind() {
        "tool-input-start" | "tool-input-delta" => call.state() == "input-streaming",
        _ => matches!(call.state(), "input-streaming" | "input-available"),
    };
    if !fits {
        return Err(state(chunk, call));
    }
    let dynamic = chunk.get("dynamic").and_then(serde_json::Value::as_bool) == Some(true);
    let same = chunk.text("toolName") == Some(call.tool()) && dynamic == call.is_dynamic();
    if chunk.kind() == "tool-input-delta" || same {
        return Ok(());
    }
    let dynamic = if call.is_dynamic() { "dynamic tool" } else { "tool" };
    Err(Reason::CallName { call: call.id().into(), dynamic, tool: call.tool().into() })
}

fn check_answer(chunk: &Chunk, call: CallView<'_>) -> Result<(), Reason> {
    let fits = match chunk.kind() {
        "tool-approval-request" => !matches!(call.state(), "approval-responded" | "output-available"),
        "tool-output-denied" => call.state() != "output-available",
        _ => true,
    };
    if fits && !call.is_settled() { Ok(()) } else { Err(state(chunk, call)) }
}

fn state(chunk: &Chunk, call: CallView<'_>) -> Reason {
    Reason::CallState { kind: chunk.kind().into(), call: call.id().into(), state: call.state().into() }
}

//! Results and approvals that a client brings for the calls of a stored reply (`spec/helix.md` 3.8 and 5.2, `spec/ai-sdk.md` A.8).
//!
//! | a call's state in the store | waits for |
//! |---|---|
//! | `input-available` | its result |
//! | `approval-requested` | the user's word; with a grant, the result may come along |
//! | `approval-responded`, approved | its result, if the client executes approved calls ([`Executor`]) |
//! | anything else | nothing |
//!
//! A call that its provider executes never waits for a result, but it may wait for an approval. The first answer to a call counts: one for
//! a call that has its answer says nothing new. A client's message may also hold calls that the store does not have (a lost attempt's):
//! they are no answers either. An answer that does not fit its call is [`InvalidResult`].

use serde_json::{Map, Value};
use thiserror::Error;

use super::fold::tool::{call_of, is_settled, state_of};
use super::fold::{Fold, kind_of};
use crate::core::approval::{Executor, parse_approval_id};
use crate::core::chunk::{Chunk, is_too_deep};
use crate::core::error::Code;

/// Most characters of an id, most bytes of an error or a reason, most bytes of a result as JSON (`spec/helix.md` 3.8).
pub const MAX_ID_CHARS: usize = 256;
/// See [`MAX_ID_CHARS`].
pub const MAX_ERROR_BYTES: usize = 8 << 10;
/// See [`MAX_ID_CHARS`].
pub const MAX_OUTPUT_BYTES: usize = 1 << 20;

/// What a call says whose user has sent another message instead of an answer.
pub const ABANDONED: &str = "Not executed: the user went on without answering this call";

/// The answer cannot be taken. The words are fixed: what was wrong with it is not said.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("{}", Code::InvalidResult.message())]
pub struct InvalidResult;

impl InvalidResult {
    /// The code of the answer.
    pub fn code(self) -> Code {
        Code::InvalidResult
    }
}

/// What a call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// The result of a call that the client executes.
    Result,
    /// The user's word.
    Approval,
}

/// A call that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingCall {
    /// Its id.
    pub tool_call_id: String,
    /// Its tool.
    pub tool_name: String,
    /// What it waits for.
    pub awaited: Awaited,
}

/// What became of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It was executed.
    Output(Value),
    /// It failed, and how.
    Error(String),
    /// The user lets it be executed.
    Approved {
        /// The user's words.
        reason: Option<String>,
    },
    /// The user does not.
    Denied {
        /// The user's words.
        reason: Option<String>,
    },
}

/// One answer that the store does not have yet.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The call.
    pub tool_call_id: String,
    /// What became of it.
    pub outcome: Outcome,
}

/// What a client says about one call, before it is held against the store.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Claim {
    pub outcome: Outcome,
    /// Whether the result says that the call was approved.
    pub granted: bool,
    /// The approval that it answers.
    pub approval: Option<String>,
}

/// The calls of a stored reply that wait, in its order.
pub fn pending(message: &Value, executor: Executor) -> Vec<PendingCall> {
    let call = |part: &Map<String, Value>| {
        let awaited = awaited(part, executor)?;
        Some(PendingCall { tool_call_id: call_of(part).to_owned(), tool_name: name_of(part).to_owned(), awaited })
    };
    calls(message).filter_map(call).collect()
}

/// Whether a reply that has these answers in it still waits for others. A granted call that the client is not offered yet waits for nobody:
/// it is the continuation that offers it.
pub fn waits(message: &Value, answers: &[Answer], executor: Executor) -> bool {
    let settled = |id: &str| {
        answers.iter().any(|answer| answer.tool_call_id == id)
            || find(message, id).is_some_and(|part| state_of(part) == "approval-responded")
    };
    pending(message, executor).iter().any(|call| !settled(&call.tool_call_id))
}

/// The answers in a client's copy of a reply that the stored one does not have.
///
/// # Errors
/// [`InvalidResult`] when one of them does not fit its call, or exceeds a limit; none of them may be stored then.
pub fn answers_of_message(sent: &Value, stored: &Value, executor: Executor) -> Result<Vec<Answer>, InvalidResult> {
    let mut answers: Vec<Answer> = Vec::new();
    for part in calls(sent) {
        let id = call_of(part);
        let Some(stored) = find(stored, id).filter(|stored| awaited(stored, executor).is_some()) else { continue };
        if answers.iter().any(|answer| answer.tool_call_id == id) {
            continue;
        }
        let Some(claim) = claim_of(part)? else { continue };
        if is_executed_by_provider(stored) && matches!(claim.outcome, Outcome::Output(_) | Outcome::Error(_)) {
            continue;
        }
        answers.extend(judge(id, claim, stored, executor)?);
    }
    Ok(answers)
}

/// Whether a stored reply has a call of this id.
pub fn has_call(message: &Value, id: &str) -> bool {
    find(message, id).is_some()
}

/// The calls that a client's copy of a reply answers.
pub fn answered_calls(sent: &Value) -> impl Iterator<Item = &str> {
    let is_given_up = |part: &Map<String, Value>| part.get("errorText") == Some(&ABANDONED.into());
    calls(sent).filter(move |part| is_answered(part) && !is_given_up(part)).map(call_of)
}

/// Whether a client's copy answers a call that was given up when another message took the place of the answer.
pub fn is_late(sent: &Value, stored: &Value) -> bool {
    calls(sent).any(|part| {
        let given_up =
            find(stored, call_of(part)).and_then(|stored| stored.get("errorText")) == Some(&ABANDONED.into());
        given_up && is_answered(part) && part.get("errorText") != Some(&ABANDONED.into())
    })
}

/// The stored reply with the answers in it, as the client that gave them shows it: a denial is an `approval-responded` until the
/// continuation says `tool-output-denied`.
pub fn apply(message: Value, answers: &[Answer]) -> Value {
    let mut fold = Fold::continuing(message.clone());
    for Answer { tool_call_id, outcome } in answers {
        let chunk = match outcome {
            Outcome::Approved { reason } | Outcome::Denied { reason } => {
                let granted = matches!(outcome, Outcome::Approved { .. });
                find(&message, tool_call_id).and_then(|part| response(part, granted, reason.as_deref()))
            }
            _ => result_chunk(tool_call_id, outcome),
        };
        // A call that the message does not hold has no answer; the caller has held them against it.
        if let Some(chunk) = chunk {
            let _ = fold.apply(&chunk);
        }
    }
    fold.message().unwrap_or(message)
}

/// The stored reply when another message takes the place of the answers: whatever waits has failed, with [`ABANDONED`], and a denial is
/// final, so that models are told.
pub fn abandon(mut message: Value) -> Value {
    let Some(Value::Array(parts)) = message.get_mut("parts") else { return message };
    for part in parts.iter_mut().filter_map(Value::as_object_mut).filter(|part| is_call(part)) {
        let granted = granted(part);
        if state_of(part) == "approval-responded" && granted == Some(false) {
            part.insert("state".into(), "output-denied".into());
        } else if awaited(part, Executor::Client).is_some() || granted == Some(true) && is_unanswered(part) {
            if granted != Some(true) {
                part.shift_remove("approval");
            }
            part.insert("state".into(), "output-error".into());
            part.insert("errorText".into(), ABANDONED.into());
        }
    }
    message
}

/// The chunks with which the continuation begins, after its `start` and before its first step, so that every follower sees the answers.
/// `message` is the reply that they answer. An approved call that the client executes is offered to it again.
pub fn chunks(answers: &[Answer], message: &Value, executor: Executor) -> Vec<Chunk> {
    let chunk = |Answer { tool_call_id, outcome }: &Answer| {
        let part = find(message, tool_call_id)?;
        match outcome {
            Outcome::Approved { reason } if executor == Executor::Producer || is_executed_by_provider(part) => {
                response(part, true, reason.as_deref())
            }
            Outcome::Approved { .. } => Some(offer(part)),
            Outcome::Denied { .. } => Some(Chunk::new("tool-output-denied").with("toolCallId", tool_call_id.as_str())),
            Outcome::Output(_) | Outcome::Error(_) => {
                let chunk = result_chunk(tool_call_id, outcome)?;
                Some(if kind_of(part) == "dynamic-tool" { chunk.with("dynamic", true) } else { chunk })
            }
        }
    };
    answers.iter().filter_map(chunk).collect()
}

/// Whether a call waits for such an answer.
pub(super) fn fits(part: &Map<String, Value>, outcome: &Outcome, executor: Executor) -> bool {
    let is_result = matches!(outcome, Outcome::Output(_) | Outcome::Error(_));
    match awaited(part, executor) {
        // A result that comes along with its grant.
        Some(Awaited::Approval) => !is_result || !is_executed_by_provider(part),
        Some(Awaited::Result) => is_result,
        None => false,
    }
}

/// What a client's copy of a reply says about its calls, for those that say something final.
pub fn claims_of_message(sent: &Value) -> Vec<Answer> {
    let said = |part: &Map<String, Value>| {
        let claim = claim_of(part).ok().flatten()?;
        Some(Answer { tool_call_id: call_of(part).to_owned(), outcome: claim.outcome })
    };
    calls(sent).filter_map(said).collect()
}

/// A result that comes when its message is an earlier one: the call's tool, and the message with the result, if the call has none, or was
/// given up without one. `None` when the message does not hold the call.
pub fn take_late(message: Value, answer: &Answer) -> Option<(String, Option<Value>)> {
    let part = find(&message, &answer.tool_call_id)?;
    let tool = name_of(part).to_owned();
    let is_open = !is_settled(part) || part.get("errorText") == Some(&ABANDONED.into());
    let amended = is_open.then(|| apply(message, std::slice::from_ref(answer)));
    Some((tool, amended))
}

/// Holds a claim against its stored call: an answer, or nothing new.
pub(super) fn judge(
    id: &str,
    claim: Claim,
    stored: &Map<String, Value>,
    executor: Executor,
) -> Result<Option<Answer>, InvalidResult> {
    let Claim { outcome, granted: says_granted, approval } = claim;
    let is_result = matches!(outcome, Outcome::Output(_) | Outcome::Error(_));
    let asked = stored.get("approval").and_then(|approval| approval.get("id")?.as_str());
    // A granted call that was offered again has no approval any more, but clients keep theirs and send it with the result.
    let names_it = approval.as_deref().and_then(parse_approval_id).is_some_and(|(_, call)| call == id);
    if approval.is_some() && approval.as_deref() != asked && (asked.is_some() || !is_result && !names_it) {
        return Err(InvalidResult);
    }
    let fits = match awaited(stored, executor) {
        Some(Awaited::Approval) => !is_result || says_granted && !is_executed_by_provider(stored),
        // Approved before: the first word counts.
        Some(Awaited::Result) if !is_result && (granted(stored).is_some() || names_it) => return Ok(None),
        Some(Awaited::Result) => is_result,
        None if is_answered(stored) => return Ok(None),
        None => false,
    };
    if !fits || !is_within_limits(id, &outcome) {
        return Err(InvalidResult);
    }
    Ok(Some(Answer { tool_call_id: id.to_owned(), outcome }))
}

/// The stored call of this id; the last one, should there be several.
pub(super) fn find<'a>(message: &'a Value, id: &str) -> Option<&'a Map<String, Value>> {
    calls(message).filter(|part| call_of(part) == id).last()
}

fn calls(message: &Value) -> impl Iterator<Item = &Map<String, Value>> {
    let parts = message.get("parts").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    parts.iter().filter_map(Value::as_object).filter(|part| is_call(part))
}

fn is_call(part: &Map<String, Value>) -> bool {
    let kind = kind_of(part);
    kind == "dynamic-tool" || kind.starts_with("tool-")
}

fn name_of(part: &Map<String, Value>) -> &str {
    let kind = kind_of(part);
    kind.strip_prefix("tool-").or_else(|| part.get("toolName")?.as_str()).unwrap_or_default()
}

fn is_executed_by_provider(part: &Map<String, Value>) -> bool {
    part.get("providerExecuted") == Some(&Value::Bool(true))
}

/// The user's word on a call.
fn granted(part: &Map<String, Value>) -> Option<bool> {
    part.get("approval")?.get("approved")?.as_bool()
}

fn is_unanswered(part: &Map<String, Value>) -> bool {
    matches!(state_of(part), "input-available" | "approval-requested" | "approval-responded")
}

fn is_answered(part: &Map<String, Value>) -> bool {
    matches!(state_of(part), "output-available" | "output-error" | "output-denied" | "approval-responded")
}

fn awaited(part: &Map<String, Value>, executor: Executor) -> Option<Awaited> {
    match state_of(part) {
        "approval-requested" => Some(Awaited::Approval),
        _ if is_executed_by_provider(part) => None,
        "input-available" => Some(Awaited::Result),
        "approval-responded" if executor == Executor::Client && granted(part) == Some(true) => Some(Awaited::Result),
        _ => None,
    }
}

/// What a part of a client's message says about its call; nothing while it says nothing final.
fn claim_of(part: &Map<String, Value>) -> Result<Option<Claim>, InvalidResult> {
    let approval = part.get("approval").unwrap_or(&Value::Null);
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let (id, reason) = (text(approval, "id"), text(approval, "reason"));
    let outcome = match state_of(part) {
        "output-available" if part.get("preliminary") == Some(&Value::Bool(true)) => return Ok(None),
        // `undefined` is not in the JSON: a tool that returned nothing.
        "output-available" => Outcome::Output(part.get("output").cloned().unwrap_or_default()),
        "output-error" => {
            Outcome::Error(part.get("errorText").and_then(Value::as_str).ok_or(InvalidResult)?.to_owned())
        }
        "output-denied" => Outcome::Denied { reason },
        "approval-responded" if id.is_none() => return Err(InvalidResult),
        "approval-responded" => match granted(part) {
            Some(true) => Outcome::Approved { reason },
            Some(false) => Outcome::Denied { reason },
            None => return Err(InvalidResult),
        },
        _ => return Ok(None),
    };
    Ok(Some(Claim { outcome, granted: granted(part) == Some(true), approval: id }))
}

fn is_within_limits(id: &str, outcome: &Outcome) -> bool {
    let fits = match outcome {
        Outcome::Output(output) => !is_too_deep(output) && output.to_string().len() <= MAX_OUTPUT_BYTES,
        Outcome::Error(text) => text.len() <= MAX_ERROR_BYTES,
        Outcome::Approved { reason } | Outcome::Denied { reason } => {
            reason.as_ref().is_none_or(|reason| reason.len() <= MAX_ERROR_BYTES)
        }
    };
    fits && is_id(id)
}

/// Whether an id has 1 to [`MAX_ID_CHARS`] characters.
pub(super) fn is_id(id: &str) -> bool {
    !id.is_empty() && id.chars().nth(MAX_ID_CHARS).is_none()
}

fn result_chunk(id: &str, outcome: &Outcome) -> Option<Chunk> {
    let chunk = match outcome {
        Outcome::Output(output) => Chunk::new("tool-output-available").with("output", output.clone()),
        Outcome::Error(text) => Chunk::new("tool-output-error").with("errorText", text.as_str()),
        Outcome::Approved { .. } | Outcome::Denied { .. } => return None,
    };
    Some(chunk.with("toolCallId", id))
}

/// The user's word as a chunk, which only new clients know.
fn response(part: &Map<String, Value>, granted: bool, reason: Option<&str>) -> Option<Chunk> {
    let id = part.get("approval")?.get("id")?.as_str()?;
    let chunk = Chunk::new("tool-approval-response")
        .with("approvalId", id)
        .with("toolCallId", call_of(part))
        .with("approved", granted);
    Some(reason.into_iter().fold(chunk, |chunk, reason| chunk.with("reason", reason)))
}

/// The call once more, for the client to execute.
fn offer(part: &Map<String, Value>) -> Chunk {
    let mut chunk = Chunk::new("tool-input-available")
        .with("toolCallId", call_of(part))
        .with("toolName", name_of(part))
        .with("input", part.get("input").cloned().unwrap_or_default());
    if kind_of(part) == "dynamic-tool" {
        chunk = chunk.with("dynamic", true);
    }
    for (from, to) in
        [("title", "title"), ("toolMetadata", "toolMetadata"), ("callProviderMetadata", "providerMetadata")]
    {
        if let Some(value) = part.get(from) {
            chunk = chunk.with(to, value.clone());
        }
    }
    chunk
}

#[cfg(test)]
#[path = "tool_result_tests.rs"]
mod tests;

//! The body of `POST …/tool-result`: one answer to one call (`spec/helix.md` 3.8; the fields are not public there).
//!
//! | key | also as | |
//! |---|---|---|
//! | `toolCallId` | | the call; may be left out beside an `approvalId` of the form `runId::toolCallId` |
//! | `output` | `result` | what the call returned; any JSON, `null` too |
//! | `errorText` | `error`, `error.message` | that it failed, and how |
//! | `approved`, `reason` | `approval: {id, approved, reason}` | the user's word; `true` beside a result approves and answers at once |
//! | `approvalId` | `approval.id` | which approval is answered |
//! | `runId` | | the run that asked; else the one that the approval's id names |
//!
//! Exactly one of result, error and word is the answer. A key whose value is `null` counts as absent, except a result without an error
//! or a word. Other keys are ignored.

use serde_json::{Map, Value};

use super::request::read_json;
use super::tool_result::{Answer, Claim, InvalidResult, Outcome, find, is_id, judge};
use crate::core::approval::{Executor, parse_approval_id};
use crate::core::ids::RunId;

/// One answer as a client submits it.
#[derive(Clone, Debug, PartialEq)]
pub struct Submitted {
    /// The call.
    pub tool_call_id: String,
    /// The run that the client believes to have asked, when it says so. It is no secret and proves nothing.
    pub run: Option<RunId>,
    claim: Claim,
}

/// Reads a body.
///
/// # Errors
/// [`InvalidResult`] for anything but one answer.
pub fn parse_tool_result(body: &[u8]) -> Result<Submitted, InvalidResult> {
    let Ok(Value::Object(map)) = read_json(body) else { return Err(InvalidResult) };
    let approval = match map.get("approval") {
        None | Some(Value::Null) => None,
        Some(Value::Object(approval)) => Some(approval),
        Some(_) => return Err(InvalidResult),
    };
    let beside = |key: &str| approval.map_or(Ok(None), |approval| text(approval, key));
    let approval_id = either(text(&map, "approvalId")?, beside("id")?)?;
    let named = approval_id.as_deref().and_then(parse_approval_id);
    let tool_call_id = match (text(&map, "toolCallId")?, &named) {
        (Some(id), _) => id,
        (None, Some((_, call))) => (*call).to_owned(),
        (None, None) => return Err(InvalidResult),
    };
    let run = match text(&map, "runId")? {
        Some(run) => Some(RunId::new(run)),
        None => named.filter(|(_, call)| *call == tool_call_id).map(|(run, _)| run),
    };
    let ids = [Some(tool_call_id.as_str()), run.as_ref().map(RunId::as_str)];
    if !ids.into_iter().flatten().all(is_id) {
        return Err(InvalidResult);
    }
    let word = either(flag(&map, "approved")?, approval.map_or(Ok(None), |approval| flag(approval, "approved"))?)?;
    let reason = either(text(&map, "reason")?, beside("reason")?)?;
    let error = error_of(&map)?;
    let output = match (map.get("output"), map.get("result")) {
        (Some(_), Some(_)) => return Err(InvalidResult),
        (Some(output), None) | (None, Some(output)) => Some(output),
        (None, None) => None,
    };
    let outcome = match (output.filter(|output| !output.is_null()), error, word) {
        (None, Some(error), None | Some(true)) => Outcome::Error(error),
        (Some(output), None, None | Some(true)) => Outcome::Output(output.clone()),
        (None, None, Some(true)) => Outcome::Approved { reason },
        (None, None, Some(false)) => Outcome::Denied { reason },
        (None, None, None) if output.is_some() => Outcome::Output(Value::Null),
        _ => return Err(InvalidResult),
    };
    let claim = Claim { outcome, granted: word == Some(true), approval: approval_id };
    Ok(Submitted { tool_call_id, run, claim })
}

impl Submitted {
    /// What the client says.
    pub fn outcome(&self) -> &Outcome {
        &self.claim.outcome
    }

    /// Holds the answer against the stored reply: what is to be stored, or nothing when the call has its answer already.
    ///
    /// # Errors
    /// [`InvalidResult`] when the reply has no such call, or the answer does not fit it, or exceeds a limit.
    pub fn admit(&self, stored: &Value, executor: Executor) -> Result<Option<Answer>, InvalidResult> {
        let part = find(stored, &self.tool_call_id).ok_or(InvalidResult)?;
        judge(&self.tool_call_id, self.claim.clone(), part, executor)
    }
}

/// The one of two spellings that is there; both only when they agree.
fn either<T: PartialEq>(one: Option<T>, other: Option<T>) -> Result<Option<T>, InvalidResult> {
    match (one, other) {
        (Some(one), Some(other)) if one != other => Err(InvalidResult),
        (one, other) => Ok(one.or(other)),
    }
}

fn text(map: &Map<String, Value>, key: &str) -> Result<Option<String>, InvalidResult> {
    match map.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(InvalidResult),
    }
}

fn flag(map: &Map<String, Value>, key: &str) -> Result<Option<bool>, InvalidResult> {
    match map.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(flag)) => Ok(Some(*flag)),
        Some(_) => Err(InvalidResult),
    }
}

fn error_of(map: &Map<String, Value>) -> Result<Option<String>, InvalidResult> {
    let error = match map.get("error") {
        Some(Value::Object(error)) => Some(text(error, "message")?.ok_or(InvalidResult)?),
        _ => text(map, "error")?,
    };
    either(text(map, "errorText")?, error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn message() -> Value {
        json!({"id": "a1", "role": "assistant", "parts": [
            {"type": "tool-f", "toolCallId": "c", "state": "input-available", "input": {}},
            {"type": "tool-g", "toolCallId": "d", "state": "approval-requested", "input": {}, "approval": {"id": "run::d"}},
            {"type": "tool-h", "toolCallId": "e", "state": "output-available", "input": {}, "output": 1},
            {"type": "tool-i", "toolCallId": "s", "state": "input-streaming"},
        ]})
    }

    fn admit(body: Value) -> Result<Option<Outcome>, InvalidResult> {
        let submitted = parse_tool_result(body.to_string().as_bytes())?;
        Ok(submitted.admit(&message(), Executor::Client)?.map(|answer| answer.outcome))
    }

    #[test]
    fn every_spelling_is_read() {
        let output = |value| Ok(Some(Outcome::Output(value)));
        let error = |text: &str| Ok(Some(Outcome::Error(text.into())));
        let reason = || Some("so".to_owned());
        for (body, expected) in [
            (json!({"toolCallId": "c", "output": {"a": 1}}), output(json!({"a": 1}))),
            (json!({"toolCallId": "c", "result": "x", "error": null, "sessionId": "s"}), output(json!("x"))),
            (json!({"toolCallId": "c", "result": null}), output(Value::Null)),
            (json!({"toolCallId": "c", "output": null, "errorText": "no"}), error("no")),
            (json!({"toolCallId": "c", "error": "no"}), error("no")),
            (json!({"toolCallId": "c", "error": {"message": "no"}}), error("no")),
            (
                json!({"toolCallId": "d", "approved": true, "reason": "so"}),
                Ok(Some(Outcome::Approved { reason: reason() })),
            ),
            (json!({"approvalId": "run::d", "approved": false}), Ok(Some(Outcome::Denied { reason: None }))),
            (
                json!({"toolCallId": "d", "approval": {"id": "run::d", "approved": false, "reason": "so"}}),
                Ok(Some(Outcome::Denied { reason: reason() })),
            ),
            (json!({"toolCallId": "d", "approved": true, "output": 2}), output(json!(2))),
            (json!({"toolCallId": "e", "output": 2}), Ok(None)),
        ] {
            assert_eq!(admit(body.clone()), expected, "{body}");
        }
    }

    #[test]
    fn whatever_does_not_fit_is_refused_with_one_message() {
        for body in [
            json!([]),
            json!({}),
            json!({"output": 1}),
            json!({"toolCallId": "c"}),
            json!({"toolCallId": "", "output": 1}),
            json!({"toolCallId": 7, "output": 1}),
            json!({"toolCallId": "unknown", "output": 1}),
            json!({"toolCallId": "x".repeat(257), "output": 1}),
            json!({"toolCallId": "c", "output": 1, "result": 1}),
            json!({"toolCallId": "c", "output": 1, "error": "no"}),
            json!({"toolCallId": "c", "error": 7}),
            json!({"toolCallId": "c", "error": {"code": 7}}),
            json!({"toolCallId": "c", "error": "x".repeat(8193)}),
            json!({"toolCallId": "c", "output": "x".repeat(1 << 20)}),
            json!({"toolCallId": "c", "output": {"__proto__": 1}}),
            json!({"toolCallId": "c", "approved": true}),
            json!({"toolCallId": "d", "output": 1}),
            json!({"toolCallId": "d", "output": 1, "approved": false}),
            json!({"toolCallId": "d", "approved": "yes"}),
            json!({"toolCallId": "d", "approved": true, "approval": {"approved": false}}),
            json!({"toolCallId": "d", "approved": true, "approvalId": "other::d"}),
            json!({"toolCallId": "s", "output": 1}),
        ] {
            let refusal = admit(body.clone()).map(|_| ()).expect_err(&body.to_string());
            assert_eq!(refusal.to_string(), "The tool result is not valid");
        }
        assert_eq!(parse_tool_result(b"nope"), Err(InvalidResult));
    }

    #[test]
    fn the_run_is_the_one_that_the_client_names() {
        let run = |body: Value| parse_tool_result(body.to_string().as_bytes()).unwrap().run;
        assert_eq!(run(json!({"toolCallId": "c", "output": 1})), None);
        assert_eq!(run(json!({"toolCallId": "c", "output": 1, "runId": "r"})), Some(RunId::new("r")));
        assert_eq!(run(json!({"approvalId": "r::c", "approved": true})), Some(RunId::new("r")));
        assert_eq!(run(json!({"toolCallId": "c", "approvalId": "r::other", "approved": true})), None);
    }

    proptest! {
        #[test]
        fn never_panics(body in "[\\[\\]{}\",:a-c0-9\\\\ ]{0,64}") {
            let _ = parse_tool_result(body.as_bytes());
        }
    }
}

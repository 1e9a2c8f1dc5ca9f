//! An agent whose replies are written from outside: it is told of an entry, and appends its chunks to the run over HTTP.

use serde_json::{Value, json};

use super::agents_error::AgentsError;
use super::fields::Fields;
use super::ui_route::settings::{Target, fixed, target};
use crate::core::call_ids::CallIds;
use crate::core::chunk::Chunk;
use crate::core::ids::RunId;
use crate::core::run::{EntryKind, Vocabulary};

/// Longest lease that an agent may ask for, in ms: one day.
const MAX_LEASE_MS: u32 = 86_400_000;

/// An agent with `"producer":"push"`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushSettings {
    /// `url`, or `binding` and `path`: where it is told of an entry.
    pub target: Target,
    /// `sendHeaders`: sent as they are.
    pub send_headers: Vec<(String, String)>,
    /// `vocabulary`: the language of its chunks.
    pub vocabulary: Vocabulary,
    /// `leaseMs`: how long it may be silent; the deployment's `LEASE_MS` without it.
    pub lease_ms: Option<u32>,
}

impl PushSettings {
    /// Reads the agent's fields.
    ///
    /// # Errors
    /// [`AgentsError::Field`] for the first thing to change.
    pub fn parse(mut fields: Fields) -> Result<Self, AgentsError> {
        let vocabulary = match fields.string("vocabulary")?.as_deref() {
            None | Some("ui") => Vocabulary::Ui,
            Some("helix") => Vocabulary::Helix,
            Some(_) => return Err(fields.error("vocabulary", "must be ui or helix")),
        };
        let settings = Self {
            target: target(&mut fields, "/runs")?,
            send_headers: fixed(&mut fields)?,
            vocabulary,
            lease_ms: fields.whole("leaseMs", 1, MAX_LEASE_MS)?,
        };
        fields.end()?;
        Ok(settings)
    }
}

/// What the agent is told.
pub struct Told<'a> {
    /// What the run answers.
    pub entry: EntryKind,
    /// The session.
    pub session: &'a str,
    /// The run that is to be written.
    pub run: &'a RunId,
    /// The epoch that every write carries.
    pub epoch: u32,
    /// How long the agent may be silent, in ms.
    pub lease_ms: u64,
    /// The conversation, under the agent's own ids of calls.
    pub messages: Vec<Value>,
    /// What calls were answered with, each as [`result`] says it.
    pub results: Vec<Value>,
    /// Where its chunks go.
    pub append_url: String,
}

/// The request's body.
pub fn body(told: Told<'_>) -> Value {
    let entry = match told.entry {
        EntryKind::Send | EntryKind::Edit => "send",
        EntryKind::ToolResult => "tool-result",
        EntryKind::Retry => "retry",
    };
    let mut body = json!({
        "entry": entry,
        "sessionId": told.session,
        "runId": told.run,
        "epoch": told.epoch,
        "leaseMs": told.lease_ms,
        "messages": told.messages,
        "appendUrl": told.append_url,
    });
    if told.entry == EntryKind::ToolResult
        && let Value::Object(map) = &mut body
    {
        map.insert("results".into(), Value::Array(told.results));
    }
    body
}

/// One answer, as `/tool-result` takes it, under the producer's own id of its call. `messages`: the conversation with the answers in it.
pub fn result(answer: &Chunk, messages: &[Value], ids: &CallIds) -> Value {
    let mut result = answered(answer, messages);
    if let Some(id) = result.get_mut("toolCallId") {
        let own = id.as_str().map(|id| ids.own_of(id).to_owned());
        *id = own.unwrap_or_default().into();
    }
    result
}

fn answered(answer: &Chunk, messages: &[Value]) -> Value {
    let call = answer.text("toolCallId").or_else(|| approved_call(answer, messages)).unwrap_or_default();
    let approval = |approved: bool| {
        let reason = calls(messages).find(|part| part.get("toolCallId").and_then(Value::as_str) == Some(call));
        let reason = reason.and_then(|part| part.get("approval")?.get("reason")).filter(|reason| reason.is_string());
        match reason {
            Some(reason) => json!({ "toolCallId": call, "approved": approved, "reason": reason }),
            None => json!({ "toolCallId": call, "approved": approved }),
        }
    };
    match answer.kind() {
        "tool-output-error" => json!({ "toolCallId": call, "errorText": answer.get("errorText") }),
        "tool-output-available" => json!({ "toolCallId": call, "output": answer.get("output") }),
        "tool-output-denied" => approval(false),
        _ => approval(true),
    }
}

/// The call that an answer to an approval is about.
fn approved_call<'a>(answer: &Chunk, messages: &'a [Value]) -> Option<&'a str> {
    let id = answer.text("approvalId")?;
    calls(messages)
        .find(|part| part.get("approval").and_then(|approval| approval.get("id")?.as_str()) == Some(id))?
        .get("toolCallId")?
        .as_str()
}

/// The parts of a conversation, the newest message first.
fn calls(messages: &[Value]) -> impl Iterator<Item = &Value> {
    messages.iter().rev().filter_map(|message| message.get("parts")?.as_array()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::call_ids::CallName;

    fn parse(value: Value) -> Result<PushSettings, AgentsError> {
        PushSettings::parse(Fields::of("a", "", value).unwrap())
    }

    #[test]
    fn an_agent_says_where_it_is_told() {
        let settings = parse(json!({ "url": "https://a.test/x", "vocabulary": "helix", "leaseMs": 5 })).unwrap();
        assert_eq!(settings.target, Target::Url("https://a.test/x".into()));
        assert_eq!((settings.vocabulary, settings.lease_ms), (Vocabulary::Helix, Some(5)));
        let bound = parse(json!({ "binding": "AGENT" })).unwrap();
        assert_eq!(bound.target, Target::Binding { name: "AGENT".into(), path: "/runs".into() });
        for wrong in [json!({}), json!({ "url": "https://a.test", "vocabulary": "opaque" }), json!({ "url": "x" })] {
            assert!(parse(wrong).is_err());
        }
    }

    #[test]
    fn results_are_told_beside_the_conversation() {
        let answers = [
            Chunk::new("tool-output-available").with("toolCallId", "a").with("output", 1),
            Chunk::new("tool-output-denied").with("toolCallId", "b"),
            Chunk::new("tool-approval-response").with("approvalId", "r::c").with("approved", true),
        ];
        let part = |call: &str, approval: Value| json!({ "type": "tool-x", "toolCallId": call, "approval": approval });
        let parts = [part("b", json!({ "id": "r::b", "reason": "no" })), part("c", json!({ "id": "r::c" }))];
        let run = RunId::new("r");
        let mut ids = CallIds::default();
        ids.take(CallName { id: "b".into(), own: Some("own".into()) });
        let messages = vec![json!({ "id": "m", "role": "assistant", "parts": parts })];
        let told = Told {
            entry: EntryKind::ToolResult,
            session: "s",
            run: &run,
            epoch: 1,
            lease_ms: 9,
            results: answers.iter().map(|answer| result(answer, &messages, &ids)).collect(),
            messages,
            append_url: "u".into(),
        };
        let said = body(told);
        let denied = json!({"toolCallId": "own", "approved": false, "reason": "no"});
        let results = json!([{"toolCallId": "a", "output": 1}, denied, {"toolCallId": "c", "approved": true}]);
        assert_eq!(said["results"], results);
        assert_eq!((&said["entry"], &said["epoch"]), (&json!("tool-result"), &json!(1)));
    }
}

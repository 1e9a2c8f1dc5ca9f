//! The messages that a producer outside brings: what a run answers, or what it has written.

use std::collections::BTreeSet;

use serde_json::Value;

use super::refusal::Refusal;
use crate::core::call_ids::{CallIds, CallName};
use crate::core::ids::MessageId;
use crate::dialect::ui::own_ids::name_calls;
use crate::dialect::ui::tool_result::has_call;

/// A message, ready to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnMessage {
    /// Its id.
    pub id: String,
    /// Its role.
    pub role: String,
    /// The message as JSON text.
    pub json: String,
}

/// What a session knows that such messages must fit.
pub struct Around<'a> {
    /// Ids of the messages that stay.
    pub stored: &'a [MessageId],
    /// The session's random text.
    pub salt: &'a str,
    /// The names of the session's calls.
    pub calls: &'a CallIds,
}

/// Messages that a run answers: each with an id that no message has, and no reply will have; their calls are new ones.
///
/// # Errors
/// [`Refusal::IdTaken`].
pub fn brought(messages: &[Value], around: &Around<'_>) -> Result<(Vec<OwnMessage>, Vec<CallName>), Refusal> {
    laid(messages.to_vec(), (None, "user"), around, |_, _| false)
}

/// Messages that a run has written: the first is the one that responses write, under the id that they have. `before`: what stands in their
/// place so far.
///
/// # Errors
/// [`Refusal::IdTaken`].
pub fn written(
    mut messages: Vec<Value>,
    reply: &MessageId,
    before: &[Value],
    around: &Around<'_>,
) -> Result<(Vec<OwnMessage>, Vec<CallName>), Refusal> {
    if let Some(Value::Object(map)) = messages.first_mut() {
        map.insert("id".into(), reply.as_str().into());
    }
    let is_known = |ids: &CallIds, id: &str| ids.is_own_run(id) || before.iter().any(|message| has_call(message, id));
    laid(messages, (Some(reply), "assistant"), around, is_known)
}

/// `reply`: the id that the first of them has, whatever ids are taken.
fn laid(
    messages: Vec<Value>,
    (reply, role): (Option<&MessageId>, &str),
    around: &Around<'_>,
    is_known: impl Fn(&CallIds, &str) -> bool,
) -> Result<(Vec<OwnMessage>, Vec<CallName>), Refusal> {
    let mut calls = around.calls.clone();
    let (mut laid, mut names, mut met) = (Vec::new(), Vec::new(), BTreeSet::new());
    for (index, mut message) in messages.into_iter().enumerate() {
        names.extend(name_calls(&mut message, &mut calls, &mut met, &is_known));
        let message = own_message(&message, role);
        let id = MessageId::new(message.id.as_str());
        let is_reply = index == 0 && reply.is_some();
        if !is_reply && (around.stored.contains(&id) || reply == Some(&id) || id.is_for_replies(around.salt)) {
            return Err(Refusal::IdTaken(message.id));
        }
        laid.push(message);
    }
    Ok((laid, names))
}

fn own_message(message: &Value, role: &str) -> OwnMessage {
    let text = |key: &str| message.get(key).and_then(Value::as_str);
    OwnMessage {
        id: text("id").unwrap_or_default().to_owned(),
        role: text("role").unwrap_or(role).to_owned(),
        json: message.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn message(id: &str, call: &str) -> Value {
        json!({"id": id, "role": "assistant", "parts": [{"type": "tool-f", "toolCallId": call, "state": "input-available", "input": 1}]})
    }

    fn calls(messages: &[OwnMessage]) -> Vec<String> {
        let call = |message: &OwnMessage| {
            let message: Value = serde_json::from_str(&message.json).unwrap();
            message["parts"][0]["toolCallId"].as_str().unwrap().to_owned()
        };
        messages.iter().map(call).collect()
    }

    #[test]
    fn no_message_gets_an_id_that_is_there_or_is_a_replys() {
        let stored = [MessageId::new("u0")];
        let around = Around { stored: &stored, salt: "s", calls: &CallIds::default() };
        for id in ["u0", "msg_s_7", "msg_s_7_1"] {
            let taken = Err(Refusal::IdTaken(id.into()));
            assert_eq!(brought(&[message("a", "c"), message(id, "c")], &around), taken, "{id}");
            let first = MessageId::new("msg_s_1_1");
            assert_eq!(written(vec![message("a", "c"), message(id, "c")], &first, &[], &around), taken, "{id}");
        }
        let reply = MessageId::new("reply");
        let twice = written(vec![message("a", "c"), message("reply", "c")], &reply, &[], &around);
        assert_eq!(twice, Err(Refusal::IdTaken("reply".into())));
        let fine = written(vec![message("u0", "c"), message("b", "c")], &reply, &[], &around).unwrap().0;
        assert_eq!(fine.iter().map(|message| message.id.as_str()).collect::<Vec<_>>(), ["reply", "b"]);
    }

    #[test]
    fn a_commit_that_is_repeated_names_the_same_calls() {
        let mut ids = CallIds::default();
        ids.begin_run(1);
        ids.name("c");
        ids.begin_run(2);
        let reply = MessageId::new("reply");
        let say = |ids: &CallIds, before: &[Value]| {
            let around = Around { stored: &[], salt: "s", calls: ids };
            written(vec![message("a", "c"), message("b", "c")], &reply, before, &around).unwrap()
        };
        let (first, names) = say(&ids, &[]);
        assert_eq!((calls(&first), names.len()), (vec!["c_2".to_owned(), "c_3".to_owned()], 2));
        names.into_iter().for_each(|name| ids.take(name));
        let (again, names) = say(&ids, &[]);
        assert_eq!((again, names), (first.clone(), vec![]));
        // A run that goes on with the message.
        ids.begin_run(3);
        let before: Vec<Value> = first.iter().map(|message| serde_json::from_str(&message.json).unwrap()).collect();
        assert_eq!(say(&ids, &before), (first.clone(), vec![]));
        assert_eq!(calls(&say(&ids, &before[..1]).0), ["c_2", "c_4"]);
    }
}

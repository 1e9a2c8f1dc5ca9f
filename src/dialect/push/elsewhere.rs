//! A result that a Helix run brings for a call of an earlier message.
//!
//! The log names its tool, because a response that does not show the call tells clients of it (`ui::lens`), and the earlier message takes
//! it, so that whoever reads the snapshot upon that finds it there.

use serde_json::Value;

use super::admit::Admission;
use crate::core::chunk::Chunk;
use crate::core::run::Vocabulary;
use crate::dialect::helix::words::failure;
use crate::dialect::ui::tool_result::{Answer, Outcome, take_late};

/// A result for a call that the run's own message does not have.
#[derive(Clone, Debug, PartialEq)]
pub struct Elsewhere(Answer);

impl Elsewhere {
    /// The result that a pushed value brings for a call of another message, if it does.
    pub fn of(admission: &Admission, value: &Value) -> Option<Self> {
        if admission.vocabulary() != Vocabulary::Helix || value.get("type")?.as_str()? != "tool_end" {
            return None;
        }
        let chunk = Chunk::parse(value.clone()).ok()?;
        let call = admission.meant(chunk.text("toolCallId").filter(|call| !call.is_empty())?);
        if admission.has_call(call) {
            return None;
        }
        let outcome = match failure(&chunk) {
            Some(failure) => Outcome::Error(failure.to_owned()),
            None => Outcome::Output(chunk.get("result").cloned().unwrap_or_default()),
        };
        Some(Self(Answer { tool_call_id: call.to_owned(), outcome }))
    }

    /// The call, by the session's name.
    pub fn call(&self) -> &str {
        &self.0.tool_call_id
    }

    /// The call's tool, if this message holds the call, and the message with the result, if the call has none yet.
    pub fn in_message(&self, message: Value) -> Option<(String, Option<Value>)> {
        take_late(message, &self.0)
    }

    /// The pushed value with the tool's name in it.
    pub fn named(mut value: Value, tool: &str) -> Value {
        if let Value::Object(map) = &mut value
            && map.get("toolName").and_then(Value::as_str).is_none_or(str::is_empty)
        {
            map.insert("toolName".into(), tool.into());
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::call_ids::CallIds;
    use crate::core::ids::{Cursor, MessageId, RunId};
    use crate::dialect::push::admit::Opened;
    use crate::dialect::ui::tool_result::ABANDONED;
    use serde_json::json;

    fn helix() -> Admission {
        let opened = Opened {
            vocabulary: Vocabulary::Helix,
            run: RunId::new("r2"),
            message_id: MessageId::new("m2"),
            base: None,
            state: None,
            at: Cursor::START,
            calls: CallIds::default(),
        };
        let mut admission = Admission::new(opened);
        for value in [
            json!({"type": "step_start", "step": 1}),
            json!({"type": "tool_start", "toolCallId": "own", "toolName": "f", "arguments": {}}),
        ] {
            admission.admit(value).unwrap();
        }
        admission
    }

    fn end(call: &str) -> Value {
        json!({"type": "tool_end", "toolCallId": call, "result": 7})
    }

    fn message(state: &str, more: Value) -> Value {
        let mut part =
            json!({"type": "dynamic-tool", "toolName": "look", "toolCallId": "c", "state": state, "input": {}});
        part.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"id": "m1", "role": "assistant", "parts": [part]})
    }

    #[test]
    fn only_a_result_for_a_call_of_another_message_is_one() {
        let admission = helix();
        assert_eq!(Elsewhere::of(&admission, &end("own")), None);
        assert_eq!(Elsewhere::of(&admission, &json!({"type": "tool_start", "toolCallId": "c"})), None);
        assert_eq!(Elsewhere::of(&admission, &json!({"type": "tool_end"})), None);
        assert_eq!(Elsewhere::of(&admission, &end("c")).unwrap().call(), "c");
    }

    #[test]
    fn the_message_takes_the_result_unless_its_call_has_one() {
        let late = Elsewhere::of(&helix(), &end("c")).unwrap();
        for (state, more, taken) in [
            ("input-available", json!({}), true),
            ("output-error", json!({"errorText": ABANDONED}), true),
            ("output-error", json!({"errorText": "it broke"}), false),
            ("output-available", json!({"output": 1}), false),
        ] {
            let (tool, amended) = late.in_message(message(state, more)).unwrap();
            assert_eq!((tool.as_str(), amended.is_some()), ("look", taken), "{state}");
            let part = amended.map(|message| message["parts"][0].clone());
            if let Some(part) = part {
                assert_eq!(
                    (&part["state"], &part["output"], part.get("errorText")),
                    (&json!("output-available"), &json!(7), None)
                );
            }
        }
        assert_eq!(late.in_message(json!({"parts": []})), None);
    }

    #[test]
    fn a_name_that_the_producer_gives_stays() {
        assert_eq!(Elsewhere::named(end("c"), "look")["toolName"], "look");
        assert_eq!(Elsewhere::named(json!({"toolName": "own"}), "look")["toolName"], "own");
    }
}

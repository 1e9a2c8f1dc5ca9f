//! The stored conversation as a route's validator accepts it.
//!
//! What is stored is what a client holds. Routes are stricter than clients: some refuse a whole request, and with it every later turn of the
//! conversation, for one key that their version does not know (pydantic-ai's adapter forbids all others), and all hand the messages to a
//! model API, which refuses a call without a result.

use serde_json::{Map, Value};

/// What a call that never ran is answered with.
const NOT_EXECUTED: &str = "Not executed: the reply was interrupted";

/// Keys of parts that the fold of a stream adds, and that older validators do not know.
const OF_THE_FOLD: [&str; 3] = ["rawInput", "inputEncoding", "transient"];

/// Makes every call of a message one that has ended, and takes out what only describes how its parts were streamed. `waits` says that the
/// message is the one that the route goes on with: a call that was approved there is the route's to execute. What a provider executes by
/// itself stays open: its result may come with a later answer.
pub fn as_forwarded(message: &mut Value, waits: bool) {
    let parts = message.get_mut("parts").and_then(Value::as_array_mut);
    for part in parts.into_iter().flatten().filter_map(Value::as_object_mut) {
        let kind = text(part, "type").to_owned();
        if kind == "reasoning" {
            part.shift_remove("id");
        }
        if kind == "dynamic-tool" || kind.starts_with("tool-") {
            end_call(part, &kind, waits);
        }
        for key in OF_THE_FOLD {
            part.shift_remove(key);
        }
    }
}

fn end_call(part: &mut Map<String, Value>, kind: &str, waits: bool) {
    let by_provider = part.get("providerExecuted") == Some(&Value::Bool(true));
    match text(part, "state") {
        "input-streaming" => {
            // A tool's schema would refuse half an input; nobody checks the input of a dynamic tool.
            if let Some(name) = kind.strip_prefix("tool-").filter(|_| !by_provider) {
                part.insert("toolName".into(), name.into());
                part.insert("type".into(), "dynamic-tool".into());
            }
            // The empty object: a model API takes a call's input for an object.
            let input = part.shift_remove("input").filter(|input| !input.is_null());
            part.insert("input".into(), input.unwrap_or_else(|| Value::Object(Map::new())));
            fail(part);
        }
        "input-available" if by_provider => {}
        "input-available" | "approval-requested" => {
            part.shift_remove("approval");
            fail(part);
        }
        "approval-responded" if !waits => {
            let granted =
                part.get("approval").and_then(|approval| approval.get("approved")) == Some(&Value::Bool(true));
            if !granted {
                part.shift_remove("approval");
            }
            fail(part);
        }
        _ => {}
    }
}

fn fail(part: &mut Map<String, Value>) {
    part.insert("state".into(), "output-error".into());
    part.insert("errorText".into(), NOT_EXECUTED.into());
    part.shift_remove("output");
    part.shift_remove("preliminary");
}

fn text<'a>(part: &'a Map<String, Value>, key: &str) -> &'a str {
    part.get(key).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn forwarded(part: Value, waits: bool) -> Value {
        let mut message = json!({"id": "a", "role": "assistant", "parts": [part]});
        as_forwarded(&mut message, waits);
        message["parts"][0].clone()
    }

    fn call(state: &str, more: Value) -> Value {
        let mut part = json!({"type": "tool-pay", "toolCallId": "c", "state": state});
        part.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        part
    }

    #[test]
    fn an_unfinished_input_is_a_call_that_was_not_executed() {
        let input = json!({"amount": 5});
        for (more, expected) in [
            (json!({"input": input, "rawInput": "{\"amount\": 5, \"to"}), input.clone()),
            (json!({"rawInput": ""}), json!({})),
            (json!({"input": null}), json!({})),
            (json!({"input": "free text", "rawInput": "free text", "inputEncoding": "text"}), json!("free text")),
        ] {
            let part = forwarded(call("input-streaming", more.clone()), false);
            let expected = json!({
                "type": "dynamic-tool", "toolName": "pay", "toolCallId": "c", "state": "output-error", "input": expected,
                "errorText": NOT_EXECUTED,
            });
            assert_eq!(part, expected, "{more}");
        }
        let provider = forwarded(call("input-streaming", json!({"providerExecuted": true})), true);
        assert_eq!((&provider["type"], &provider["state"]), (&json!("tool-pay"), &json!("output-error")));
    }

    #[test]
    fn a_call_without_a_result_has_ended_unless_the_route_is_to_end_it() {
        let (asked, granted) = (json!({"id": "p"}), json!({"id": "p", "approved": true}));
        let refused = json!({"id": "p", "approved": false});
        for (state, more, waits, ends, approval) in [
            ("input-available", json!({"input": 1}), true, true, None),
            ("input-available", json!({"input": 1, "providerExecuted": true}), false, false, None),
            ("approval-requested", json!({"input": 1, "approval": asked}), false, true, None),
            ("approval-responded", json!({"input": 1, "approval": granted}), true, false, Some(&granted)),
            ("approval-responded", json!({"input": 1, "approval": granted}), false, true, Some(&granted)),
            ("approval-responded", json!({"input": 1, "approval": refused}), false, true, None),
            ("output-denied", json!({"input": 1, "approval": refused}), false, false, Some(&refused)),
        ] {
            let part = forwarded(call(state, more.clone()), waits);
            let expected = if ends { "output-error" } else { state };
            assert_eq!((part["state"].as_str(), part.get("approval")), (Some(expected), approval), "{state} {more}");
            assert_eq!(part.get("errorText").is_some(), ends, "{state} {more}");
        }
    }

    #[test]
    fn what_only_describes_the_stream_is_not_sent() {
        let thought = json!({"type": "reasoning", "id": "r", "text": "hm", "state": "done"});
        assert_eq!(forwarded(thought, false), json!({"type": "reasoning", "text": "hm", "state": "done"}));
        let data = json!({"type": "data-x", "id": "d", "data": {"rawInput": 1}, "transient": false});
        assert_eq!(forwarded(data, false), json!({"type": "data-x", "id": "d", "data": {"rawInput": 1}}));
        let failed = call("output-error", json!({"input": 1, "rawInput": "1", "errorText": "no"}));
        assert_eq!(forwarded(failed, false), call("output-error", json!({"input": 1, "errorText": "no"})));
    }
}

//! What a client's own copy of a reply lacks of the stored one: a stock client puts whatever a response brings behind the parts that it
//! holds (`spec/ai-sdk.md` A.3), so a response to a POST must not bring them again.

use serde_json::Value;

use super::fold::kind_of;

/// What a client's copy of a reply lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lacks {
    /// Nothing but answers that are there already.
    Nothing,
    /// All that the last run has written.
    Run,
    /// Something else.
    Some,
}

/// What a client's copy lacks of a stored reply whose last `own` steps are the last run's.
pub fn lacks(sent: &Value, stored: &Value, own: u32) -> Lacks {
    let parts = |message: &Value| message.get("parts").and_then(Value::as_array).cloned().unwrap_or_default();
    let told = |part: &&Value| !kind(part).starts_with("data-");
    let (sent, stored) = (parts(sent), parts(stored));
    let steps = |parts: &[Value]| parts.iter().filter(|part| kind(part) == "step-start").count();
    let same = |(sent, stored): (&Value, &Value)| {
        let equal = |key: &str| sent.get(key) == stored.get(key);
        let state = |part: &Value, state: &str| part.get("state").and_then(Value::as_str) == Some(state);
        let is_offered = state(sent, "approval-responded") && state(stored, "input-available");
        equal("type") && equal("text") && equal("toolCallId") && !is_offered
    };
    let before = steps(&stored).saturating_sub(usize::try_from(own).unwrap_or(usize::MAX));
    let count = |parts: &[Value]| parts.iter().filter(told).count();
    if count(&sent) == count(&stored) && sent.iter().filter(told).zip(stored.iter().filter(told)).all(same) {
        Lacks::Nothing
    } else if steps(&sent) <= before {
        Lacks::Run
    } else {
        Lacks::Some
    }
}

fn kind(part: &Value) -> &str {
    part.as_object().map(kind_of).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_copy_is_compared_part_by_part_but_for_states_and_data() {
        let step = || json!({"type": "step-start"});
        let text = |text: &str| json!({"type": "text", "text": text});
        let call = |state: &str| json!({"type": "tool-f", "toolCallId": "c", "state": state});
        let event = json!({"type": "data-stream-resync", "data": {}});
        let message = |parts: &[Value]| json!({ "parts": parts });
        let stored = message(&[step(), text("a"), call("output-available"), step(), text("b")]);
        for (parts, own, expected) in [
            (vec![step(), text("a"), call("output-error"), step(), text("b")], 1, Lacks::Nothing),
            (vec![step(), text("a"), call("output-error"), event, step(), text("b")], 1, Lacks::Nothing),
            (vec![step(), text("a"), call("output-available")], 1, Lacks::Run),
            (vec![step(), text("a"), call("output-available")], 2, Lacks::Some),
            (vec![], 2, Lacks::Run),
            (vec![step(), text("a"), call("output-available"), step(), text("")], 1, Lacks::Some),
            (vec![step(), text("a"), call("output-error"), step(), text("b")], 0, Lacks::Nothing),
            // The last run has not committed a step yet: how much of it the client holds shows in its steps.
            (vec![step(), text("a"), call("output-available"), step(), text("b"), step(), text("x")], 0, Lacks::Some),
        ] {
            assert_eq!(lacks(&message(&parts), &stored, own), expected, "{parts:?}");
        }
        assert_eq!(lacks(&json!({}), &json!({}), 0), Lacks::Nothing);
        let granted = message(&[step(), call("approval-responded")]);
        assert_eq!(
            lacks(&granted, &message(&[step(), call("input-available")]), 0),
            Lacks::Run,
            "it is not offered yet"
        );
    }
}

//! A client's answer to a call, as a Helix producer's log holds it.

use serde_json::Value;

use crate::core::chunk::Chunk;

/// The Helix chunk of an answer that came as a UI chunk.
pub fn answer(chunk: &Chunk) -> Chunk {
    let call = chunk.get("toolCallId").cloned().unwrap_or_default();
    let end = || Chunk::new("tool_end").with("toolCallId", call.clone());
    match chunk.kind() {
        "tool-output-available" => {
            end().with("success", true).with("result", chunk.get("output").cloned().unwrap_or_default())
        }
        "tool-output-error" => {
            end().with("success", false).with("error", chunk.get("errorText").cloned().unwrap_or_default())
        }
        kind => {
            let approved = kind != "tool-output-denied" && chunk.get("approved") != Some(&Value::Bool(false));
            Chunk::new("approval_response").with("toolCallId", call.clone()).with("approved", approved)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_answer_has_its_chunk() {
        for (ui, helix) in [
            (
                json!({"type": "tool-output-available", "toolCallId": "c", "output": [1]}),
                json!({"type": "tool_end", "toolCallId": "c", "success": true, "result": [1]}),
            ),
            (
                json!({"type": "tool-output-error", "toolCallId": "c", "errorText": "no"}),
                json!({"type": "tool_end", "toolCallId": "c", "success": false, "error": "no"}),
            ),
            (
                json!({"type": "tool-output-denied", "toolCallId": "c"}),
                json!({"type": "approval_response", "toolCallId": "c", "approved": false}),
            ),
            (
                json!({"type": "tool-approval-response", "approvalId": "x", "toolCallId": "c", "approved": true}),
                json!({"type": "approval_response", "toolCallId": "c", "approved": true}),
            ),
        ] {
            assert_eq!(Value::Object(answer(&Chunk::parse(ui).unwrap()).into_map()), helix);
        }
    }
}

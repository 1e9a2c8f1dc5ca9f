//! What a client has answered while a pushed run was writing, as its producer would push it: a run that ends without waiting for answers
//! keeps them so.

use serde_json::{Value, json};

use super::admit::{Admission, Admitted};
use crate::core::approval::Executor;
use crate::core::chunk::Chunk;
use crate::core::run::Vocabulary;
use crate::dialect::ui::held_answers::settle;
use crate::dialect::ui::tool_result::{Answer, Outcome};

impl Admission {
    /// The chunks of these answers, for those of its calls that wait for them; none for what is opaque. They count as stored.
    pub fn answered(&mut self, held: &[Answer]) -> Vec<Admitted> {
        let values: Vec<Value> = match self.vocabulary() {
            Vocabulary::Opaque => Vec::new(),
            Vocabulary::Helix => {
                held.iter().filter(|answer| self.waits_for(&answer.tool_call_id)).filter_map(as_helix).collect()
            }
            Vocabulary::Ui => {
                let told = self.message().map(|message| settle(message, held, Executor::Producer).told);
                told.into_iter().flatten().map(|chunk| Value::Object(chunk.into_map())).collect()
            }
        };
        let chunks = values.into_iter().filter_map(|value| Chunk::parse(value).ok());
        chunks.filter_map(|chunk| self.admit_known(chunk)).collect()
    }
}

/// `None` for a grant: nobody acts on it any more.
fn as_helix(answer: &Answer) -> Option<Value> {
    let call = answer.tool_call_id.as_str();
    match &answer.outcome {
        Outcome::Output(output) => {
            Some(json!({"type": "tool_end", "toolCallId": call, "success": true, "result": output}))
        }
        Outcome::Error(text) => Some(json!({"type": "tool_end", "toolCallId": call, "success": false, "error": text})),
        Outcome::Denied { reason } => {
            let mut said = json!({"type": "approval_response", "toolCallId": call, "approved": false});
            if let (Some(reason), Value::Object(map)) = (reason, &mut said) {
                map.insert("reason".into(), reason.as_str().into());
            }
            Some(said)
        }
        Outcome::Approved { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::call_ids::CallIds;
    use crate::core::ids::{Cursor, MessageId, RunId};
    use crate::dialect::push::admit::Opened;

    fn answers() -> Vec<Answer> {
        let answer = |call: &str, outcome| Answer { tool_call_id: call.into(), outcome };
        vec![
            answer("a", Outcome::Output(json!({"n": 1}))),
            answer("b", Outcome::Error("no net".into())),
            answer("c", Outcome::Denied { reason: Some("why".into()) }),
            answer("gone", Outcome::Output(json!(1))),
        ]
    }

    fn ended(vocabulary: Vocabulary, said: Vec<Value>) -> Vec<Value> {
        let opened = Opened {
            vocabulary,
            run: RunId::new("r"),
            message_id: MessageId::new("m"),
            base: None,
            state: None,
            at: Cursor::START,
            calls: CallIds::default(),
        };
        let mut admission = Admission::new(opened);
        for value in said {
            admission.admit(value).unwrap();
        }
        let answered = admission.answered(&answers());
        assert_eq!(answered.len(), 3);
        assert_eq!(admission.answered(&answers()).len(), 0, "each once");
        admission.close(true);
        let message = admission.last().unwrap().message.unwrap();
        let parts = message["parts"].as_array().unwrap().iter().filter(|part| part.get("toolCallId").is_some());
        parts.map(|part| json!([part["toolCallId"], part["state"]])).collect()
    }

    #[test]
    fn a_run_that_is_broken_off_keeps_what_was_answered() {
        let expected =
            json!([["a", "output-available"], ["b", "output-error"], ["c", "output-denied"], ["d", "output-error"]]);
        let ui = ["a", "b", "c", "d"]
            .map(|id| json!({"type": "tool-input-available", "toolCallId": id, "toolName": "f", "input": {}}));
        let ask = json!({"type": "tool-approval-request", "toolCallId": "c", "approvalId": "own"});
        let said = [vec![json!({"type": "start-step"})], ui.to_vec(), vec![ask]].concat();
        assert_eq!(Value::Array(ended(Vocabulary::Ui, said)), expected);
        let helix = ["a", "b", "c", "d"]
            .map(|id| json!({"type": "tool_start", "toolCallId": id, "toolName": "f", "arguments": {}}));
        let ask = json!({"type": "approval_request", "toolCallId": "c"});
        let said = [vec![json!({"type": "step_start", "step": 1})], helix.to_vec(), vec![ask]].concat();
        assert_eq!(Value::Array(ended(Vocabulary::Helix, said)), expected);
    }
}

//! The writer's repairs of tool chunks, so that a message holds each call once and every version reads it the same.
//!
//! Some model APIs number their calls anew in each step. Versions differ in which of two calls with one id they update
//! (6.0.0 the first of the message, 6.0.281 the one of the step), so a repeated id becomes `<id>_2`, `<id>_3` ….

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::fold::{Fold, kind_of};
use super::tool::{Which, is_settled, state_of};
use crate::core::chunk::Chunk;

/// A tool part's tool; `None` for other parts.
pub(super) fn tool_of(part: &Map<String, Value>) -> Option<&str> {
    match kind_of(part) {
        "dynamic-tool" => part.get("toolName").and_then(Value::as_str),
        kind => kind.strip_prefix("tool-"),
    }
}

/// What the writer knows about the run's calls besides the message itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Calls {
    /// The producer's id to the id in the message, where they differ.
    renamed: BTreeMap<String, String>,
}

impl Calls {
    /// The chunk to store, or `None` for one that a client would fail on, or that would take a call back to a state
    /// that it has left (clients would lose its result). `step`: the first part of the step that is open.
    pub(super) fn admit(&mut self, fold: &Fold, step: Option<usize>, chunk: Chunk) -> Option<Chunk> {
        if chunk.kind() == "tool-approval-response" {
            let part = fold.parts.get(fold.find_approval(chunk.text("approvalId")?)?)?;
            return (state_of(part) == "approval-requested").then_some(chunk);
        }
        let begins = matches!(chunk.kind(), "tool-input-start" | "tool-input-available" | "tool-input-error");
        let id = chunk.text("toolCallId")?.to_owned();
        let id = if begins { self.id_of_input(fold, step, id) } else { self.renamed.get(&id).cloned().unwrap_or(id) };
        let chunk = chunk.with("toolCallId", id.as_str());
        if chunk.kind().starts_with("tool-input-") { input(fold, step, &id, chunk) } else { answer(fold, &id, chunk) }
    }

    /// The id under which an input stands in the message: a new one when an earlier step has taken the producer's.
    fn id_of_input(&mut self, fold: &Fold, step: Option<usize>, id: String) -> String {
        let mut name = self.renamed.get(&id).cloned().unwrap_or_else(|| id.clone());
        let mut count = 1_u32;
        while fold.find_call(&name).is_some_and(|at| step.is_none_or(|begin| at < begin)) {
            count = count.saturating_add(1);
            name = format!("{id}_{count}");
        }
        if name != id {
            self.renamed.insert(id, name.clone());
        }
        name
    }
}

fn input(fold: &Fold, step: Option<usize>, id: &str, mut chunk: Chunk) -> Option<Chunk> {
    let known = step.and_then(|_| fold.find_in_step(id, Which::Any)).and_then(|at| fold.parts.get(at));
    let state = known.map(state_of);
    let fits = match chunk.kind() {
        "tool-input-delta" => state == Some("input-streaming"),
        "tool-input-start" => matches!(state, None | Some("input-streaming")),
        _ => matches!(state, None | Some("input-streaming" | "input-available")),
    };
    if !fits {
        return None;
    }
    if let Some(part) = known.filter(|_| chunk.kind() != "tool-input-delta") {
        // A second name, or static after dynamic, would become a second part on some versions: the first word counts.
        chunk.remove("dynamic");
        chunk = match kind_of(part).strip_prefix("tool-") {
            Some(name) => chunk.with("toolName", name),
            None => chunk.with("toolName", part.get("toolName").cloned().unwrap_or_default()).with("dynamic", true),
        };
    }
    Some(chunk)
}

/// An approval request, a denial or a result: its call is known and has no final result yet.
fn answer(fold: &Fold, id: &str, chunk: Chunk) -> Option<Chunk> {
    let part = fold.parts.get(fold.find_call(id)?)?;
    let fits = match chunk.kind() {
        "tool-approval-request" => !matches!(state_of(part), "approval-responded" | "output-available"),
        "tool-output-denied" => state_of(part) != "output-available",
        _ => true,
    };
    (fits && !is_settled(part)).then_some(chunk)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::ids::MessageId;
    use serde_json::json;

    fn chunk(value: Value) -> Chunk {
        Chunk::parse(value).unwrap()
    }

    fn call(kind: &str) -> Chunk {
        chunk(json!({"type": kind, "toolCallId": "c", "toolName": "n", "input": 1, "output": 2, "inputTextDelta": "{"}))
    }

    #[test]
    fn a_repeated_id_gets_a_number_and_its_answers_follow() {
        let mut fold = Fold::new(&MessageId::new("m"));
        let mut calls = Calls::default();
        for step in ["c", "c_2", "c_3"] {
            fold.apply(&Chunk::new("start-step")).unwrap();
            let begin = Some(fold.parts.len());
            for kind in ["tool-input-start", "tool-input-delta", "tool-input-available", "tool-output-available"] {
                let admitted = calls.admit(&fold, begin, call(kind)).unwrap();
                assert_eq!(admitted.text("toolCallId"), Some(step), "{kind}");
                fold.apply(&admitted).unwrap();
            }
        }
    }

    #[test]
    fn the_first_name_and_kind_of_a_call_count() {
        let mut fold = Fold::new(&MessageId::new("m"));
        let mut calls = Calls::default();
        fold.apply(&call("tool-input-start").with("dynamic", true)).unwrap();
        let admitted = calls.admit(&fold, Some(0), call("tool-input-available").with("toolName", "other")).unwrap();
        assert_eq!(admitted.text("toolName"), Some("n"));
        assert_eq!(admitted.get("dynamic"), Some(&json!(true)));
    }

    #[test]
    fn nothing_takes_back_a_result() {
        let mut fold = Fold::new(&MessageId::new("m"));
        let mut calls = Calls::default();
        fold.apply(&call("tool-input-available")).unwrap();
        fold.apply(&call("tool-output-available")).unwrap();
        for kind in [
            "tool-input-start",
            "tool-input-delta",
            "tool-input-available",
            "tool-output-available",
            "tool-output-denied",
        ] {
            assert_eq!(calls.admit(&fold, Some(0), call(kind)), None, "{kind}");
        }
        assert_eq!(calls.admit(&Fold::new(&MessageId::new("m")), None, call("tool-output-available")), None);
    }
}

//! The fold's part for attempts of a step.
//!
//! A step may be tried more than once. The parts of an attempt are those from its `step_start` on; when a later
//! `step_start` names the same step they are set aside, and come back only if `step_committed` names their attempt.

use serde_json::{Map, Value};

use super::tool::call_of;
use super::{Fold, kind_of};
use crate::core::chunk::Chunk;
use crate::core::ids::MessageId;

/// The attempt that is being written, and what earlier attempts of its step left.
#[derive(Clone, Debug)]
pub(in crate::dialect::ui) struct Attempt {
    id: String,
    step: Option<u64>,
    /// Number of parts before the attempt.
    base: usize,
    aside: Vec<(String, Vec<Map<String, Value>>)>,
}

impl Fold {
    /// What the last attempt before the current one that had shown something has left.
    pub(in crate::dialect::ui) fn shown_before(&self) -> &[Map<String, Value>] {
        let aside = self.attempt.iter().flat_map(|attempt| attempt.aside.iter().rev());
        aside
            .map(|(_, parts)| parts.as_slice())
            .find(|parts| parts.iter().any(|part| kind_of(part) != "step-start"))
            .unwrap_or(&[])
    }

    pub(in crate::dialect::ui) fn begin_attempt(&mut self, chunk: &Chunk) {
        let id = chunk.text("attemptId").unwrap_or_default().to_owned();
        let step = chunk.get("step").and_then(Value::as_u64);
        match self.attempt.take() {
            Some(same) if same.id == id && same.step == step => self.attempt = Some(same),
            Some(mut lost) if lost.step.is_some() && lost.step == step => {
                self.leave_all();
                let base = lost.base.min(self.parts.len());
                let parts = self.parts.split_off(base);
                self.cut(base);
                self.superseded.push(lost.id.clone());
                lost.aside.push((lost.id, parts));
                self.attempt = Some(Attempt { id, step, base, aside: lost.aside });
            }
            _ => self.attempt = Some(Attempt { id, step, base: self.parts.len(), aside: Vec::new() }),
        }
    }

    /// A result of a call that stands only in an attempt which was set aside: the attempt may win its step back, and the call has it then.
    pub(in crate::dialect::ui) fn answer_aside(&mut self, chunk: &Chunk) {
        let Some(call) = chunk.text("toolCallId").filter(|id| self.find_call(id).is_none()) else { return };
        for (_, parts) in self.attempt.iter_mut().flat_map(|attempt| &mut attempt.aside) {
            if parts.iter().any(|part| call_of(part) == call) {
                let mut aside = Self::new(&MessageId::new(""));
                aside.parts = std::mem::take(parts);
                aside.place_calls(0);
                // What the call's state does not allow changes nothing, as in the message itself.
                drop(aside.apply_tool(chunk));
                *parts = aside.parts;
            }
        }
    }

    pub(in crate::dialect::ui) fn commit_attempt(&mut self, chunk: &Chunk) {
        let Some(attempt) = self.attempt.take() else { return };
        let named = chunk.text("committedAttemptId").unwrap_or_default();
        if named == attempt.id {
            return;
        }
        // An empty id, or one that never streamed in this step, changes nothing (`spec/helix.md` 1.8).
        if let Some((winner, parts)) = attempt.aside.into_iter().find(|(id, _)| id == named) {
            self.cut(attempt.base);
            self.parts.extend(parts);
            self.place_calls(attempt.base);
            self.superseded.retain(|id| *id != winner);
            self.superseded.push(attempt.id);
        }
    }
}

//! The calls of a message in the making, as other rooms look at them.

use serde_json::{Map, Value};

use super::calls::tool_of;
use super::fold::tool::{call_of, is_settled, state_of};
use super::fold::{Fold, kind_of};

/// One call of a message.
#[derive(Clone, Copy, Debug)]
pub struct CallView<'a> {
    /// The part, as the fold keeps it.
    pub part: &'a Map<String, Value>,
    /// Its place among the message's parts.
    pub at: usize,
    /// Whether it stands in the step that was begun last.
    pub in_step: bool,
}

impl<'a> CallView<'a> {
    /// The call's id.
    pub fn id(&self) -> &'a str {
        call_of(self.part)
    }

    /// The tool's name.
    pub fn tool(&self) -> &'a str {
        tool_of(self.part).unwrap_or_default()
    }

    /// Whether the tool is a dynamic one.
    pub fn is_dynamic(&self) -> bool {
        kind_of(self.part) == "dynamic-tool"
    }

    /// The part's `state`.
    pub fn state(&self) -> &'a str {
        state_of(self.part)
    }

    /// Whether the call has its final result.
    pub fn is_settled(&self) -> bool {
        is_settled(self.part)
    }

    /// The id of the approval that the call asks for, or has asked for.
    pub fn approval(&self) -> Option<&'a str> {
        self.part.get("approval")?.get("id")?.as_str()
    }
}

impl Fold {
    /// Number of parts so far.
    pub fn part_count(&self) -> usize {
        self.parts.len()
    }

    /// The call of this id.
    pub fn call(&self, id: &str) -> Option<CallView<'_>> {
        self.view(self.find_call(id)?)
    }

    /// The call that asks for this approval.
    pub fn call_of_approval(&self, id: &str) -> Option<CallView<'_>> {
        self.view(self.find_approval(id)?)
    }

    /// All calls, in the order of the message.
    pub fn calls(&self) -> impl Iterator<Item = CallView<'_>> {
        (0..self.parts.len()).filter_map(|at| self.view(at)).filter(|call| tool_of(call.part).is_some())
    }

    fn view(&self, at: usize) -> Option<CallView<'_>> {
        Some(CallView { part: self.parts.get(at)?, at, in_step: at >= self.step_begin() })
    }
}

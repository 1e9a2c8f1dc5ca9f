//! Where in a stored reply each call and each result stood. The API wants an answer back in the order in which it gave it: all that one
//! answer said is one message, the client's results of its calls are the next, and what the API executed stands where it was written:
//!
//! ```text
//! step 1   call S, call T (made by S's code)        user: result of T
//! step 2   call U (made by S's code)                user: result of U
//! step 3   result of S, text
//! ```

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde_json::Value;

use super::server_tools::{called_by, caller, facts, is_marked};
use crate::model::values::string;

/// Where the result of a call stands that the API executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Behind the call and the calls that its code made.
    BehindItsCalls,
    /// At the beginning of the step behind them: it had to wait for the client's results.
    InALaterStep,
}

/// A block's place within its step. Of results at one place, that of the innermost call comes first.
type Order = (usize, bool, Reverse<usize>);

#[derive(Debug, Default)]
struct Step {
    blocks: Vec<(Order, Value)>,
    /// What the client answered.
    results: Vec<Value>,
}

/// The steps of a reply.
#[derive(Debug)]
pub struct Steps<'a> {
    parts: &'a [Value],
    /// The step of each part.
    step_of: Vec<usize>,
    steps: BTreeMap<usize, Step>,
}

impl<'a> Steps<'a> {
    /// The steps of these parts. Where a producer has not marked them from the first on, what comes behind a call was said after its
    /// result.
    pub fn of(parts: &'a [Value]) -> Self {
        let mut kinds = parts.iter().map(|part| string(part, "type").unwrap_or_default());
        let marked = kinds.find(|kind| *kind == "step-start" || says(kind)) == Some("step-start");
        let (mut step, mut called) = (0_usize, false);
        let mut step_of = Vec::with_capacity(parts.len());
        for part in parts {
            let kind = string(part, "type").unwrap_or_default();
            let begins = kind == "step-start" || (!marked && called && says(kind) && !is_call(kind));
            if begins {
                step = step.saturating_add(1);
                called = false;
            }
            called |= is_call(kind) && !is_marked(part);
            step_of.push(step);
        }
        Self { parts, step_of, steps: BTreeMap::new() }
    }

    /// What the part at this place says.
    pub fn say(&mut self, at: usize, block: Option<Value>) {
        let step = self.step(at);
        self.steps.entry(step).or_default().blocks.extend(block.map(|block| ((at, false, Reverse(at)), block)));
    }

    /// The client's answer to the call at this place.
    pub fn answer(&mut self, at: usize, result: Value) {
        let step = self.step(at);
        self.steps.entry(step).or_default().results.push(result);
    }

    /// The result of the call at this place, which the API executed.
    pub fn executed(&mut self, at: usize, place: Place, result: Value) {
        let last = self.last_call_of(at);
        let (step, last_step) = (self.step(at), self.step(last));
        if place == Place::BehindItsCalls && step == last_step {
            self.steps.entry(step).or_default().blocks.push(((last, true, Reverse(at)), result));
        } else {
            let order = (0, false, Reverse(at));
            self.steps.entry(last_step.saturating_add(1)).or_default().blocks.push((order, result));
        }
    }

    /// What the assistant says in each step, and the client's results behind it.
    pub fn into_messages(self) -> impl Iterator<Item = (Vec<Value>, Vec<Value>)> {
        self.steps.into_values().map(|mut step| {
            step.blocks.sort_by_key(|(order, _)| *order);
            (step.blocks.into_iter().map(|(_, block)| block).collect(), step.results)
        })
    }

    fn step(&self, at: usize) -> usize {
        self.step_of.get(at).copied().unwrap_or_default()
    }

    /// The last call that the code of the one at this place has made, directly or by another; its own place if there is none.
    fn last_call_of(&self, at: usize) -> usize {
        let id_of = |part: &'a Value| string(part, "toolCallId").filter(|id| !id.is_empty());
        let mut family: Vec<&str> = self.parts.get(at).and_then(id_of).into_iter().collect();
        let mut last = at;
        for (place, part) in self.parts.iter().enumerate().skip(at.saturating_add(1)) {
            let by = facts(part, "callProviderMetadata").and_then(caller).and_then(called_by);
            if by.is_some_and(|by| family.contains(&by)) {
                last = place;
                family.extend(id_of(part));
            }
        }
        last
    }
}

/// Whether a part of this type is something that the assistant says.
fn says(kind: &str) -> bool {
    matches!(kind, "text" | "reasoning") || is_call(kind)
}

fn is_call(kind: &str) -> bool {
    kind == "dynamic-tool" || kind.starts_with("tool-")
}

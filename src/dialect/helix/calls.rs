//! The projector's part for tool calls.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::steps::{Steps, stamped};
use super::words::failure;
use crate::core::approval::approval_id;
use crate::core::chunk::{CONTINUES, Chunk};
use crate::core::ids::RunId;
use crate::dialect::ui::fold::Fold;

/// Where a call stands for a chat client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Streaming,
    Ready,
    Asked,
    Settled,
}

#[derive(Clone, Debug)]
struct Call {
    tool: String,
    stage: Stage,
    /// The attempt that began it.
    attempt: Option<String>,
    /// The step, as counted here, that it stands in.
    step: u32,
    /// Begun by an earlier run; the approval that it asks for.
    inherited: bool,
    approval: Option<String>,
}

/// The calls of a run's message.
#[derive(Clone, Debug)]
pub(super) struct Calls {
    run: RunId,
    known: BTreeMap<String, Call>,
    /// Calls of other messages whose result was told.
    elsewhere: BTreeSet<String>,
    /// Number of steps and attempts so far.
    step: u32,
}

impl Calls {
    pub fn new(run: RunId) -> Self {
        Self { run, known: BTreeMap::new(), elsewhere: BTreeSet::new(), step: 0 }
    }

    /// Takes over the calls of the message that the run continues.
    pub fn inherit(&mut self, message: &Fold) {
        for call in message.calls() {
            let stage = match call.state() {
                _ if call.is_settled() => Stage::Settled,
                "approval-requested" => Stage::Asked,
                _ => Stage::Ready,
            };
            let (tool, approval) = (call.tool().to_owned(), call.approval().map(str::to_owned));
            let known = Call { tool, stage, attempt: None, step: 0, inherited: true, approval };
            self.known.insert(call.id().to_owned(), known);
        }
    }

    /// The calls of the run that goes on with this one's message.
    pub fn followed_by(&self, run: RunId) -> Self {
        let inherited = |call: &Call| Call { attempt: None, step: 0, inherited: true, ..call.clone() };
        let known = self.known.iter().map(|(id, call)| (id.clone(), inherited(call))).collect();
        Self { known, ..Self::new(run) }
    }

    /// A step or an attempt has begun.
    pub fn next_step(&mut self) {
        self.step = self.step.saturating_add(1);
    }

    pub fn input_start(&mut self, chunk: &Chunk, steps: &Steps, out: &mut Vec<Chunk>) {
        let (Some(id), Some(tool)) = (chunk.text("toolCallId"), chunk.text("toolName")) else { return };
        if self.own(id, steps).is_none() {
            let said = Chunk::new("tool-input-start").with("toolCallId", id).with("toolName", tool);
            out.push(self.begin(id, tool, Stage::Streaming, steps, said));
        }
    }

    pub fn input_delta(&mut self, chunk: &Chunk, delta: &str, steps: &Steps, out: &mut Vec<Chunk>) {
        let Some(id) = chunk.text("toolCallId") else { return };
        let step = self.step;
        if let Some(call) = self.own(id, steps).filter(|call| call.stage == Stage::Streaming && call.step == step) {
            let call = call.clone();
            let said = Chunk::new("tool-input-delta").with("toolCallId", id).with("inputTextDelta", delta);
            out.push(said_of(&call, said, &self.run, steps));
        }
    }

    pub fn start(&mut self, chunk: &Chunk, steps: &Steps, out: &mut Vec<Chunk>) {
        let Some(id) = chunk.text("toolCallId") else { return };
        let tool = chunk.text("toolName");
        let has_input = chunk.get("arguments").is_some();
        let input = chunk.get("arguments").cloned().unwrap_or_default();
        let said = |tool: &str| {
            Chunk::new("tool-input-available").with("toolCallId", id).with("toolName", tool).with("input", input)
        };
        let step = self.step;
        match (self.own(id, steps), tool) {
            // In a later step a client would begin the call a second time: then, and without an input, what was streamed is the input.
            (Some(call), _) if call.stage == Stage::Streaming && call.step == step && has_input => {
                call.stage = Stage::Ready;
                let (call, said) = (call.clone(), said(&call.tool));
                out.push(said_of(&call, said, &self.run, steps));
            }
            (Some(call), _) if call.stage == Stage::Streaming => call.stage = Stage::Ready,
            (None, Some(tool)) => {
                let said = self.begin(id, tool, Stage::Ready, steps, said(tool));
                out.push(said);
            }
            _ => {}
        }
    }

    pub fn ask(&mut self, chunk: &Chunk, steps: &Steps, out: &mut Vec<Chunk>) {
        let Some(id) = chunk.text("toolCallId") else { return };
        self.start(chunk, steps, out);
        let approval = approval_id(&self.run, id);
        if let Some(call) = self.own(id, steps).filter(|call| call.stage == Stage::Ready) {
            call.stage = Stage::Asked;
            call.approval = Some(approval.clone());
            let call = call.clone();
            let said = Chunk::new("tool-approval-request").with("approvalId", approval).with("toolCallId", id);
            out.push(said_of(&call, said, &self.run, steps));
        }
    }

    pub fn decided(&mut self, chunk: &Chunk, steps: &Steps, out: &mut Vec<Chunk>) {
        let (Some(id), Some(approved)) = (chunk.text("toolCallId"), chunk.get("approved").and_then(Value::as_bool))
        else {
            return;
        };
        let Some(call) = self.own(id, steps).filter(|call| call.stage == Stage::Asked) else { return };
        call.stage = if approved { Stage::Ready } else { Stage::Settled };
        let call = call.clone();
        let mut said = Chunk::new("tool-approval-response")
            .with("approvalId", call.approval.as_deref().unwrap_or_default())
            .with("approved", approved);
        if let Some(reason) = chunk.text("reason") {
            said = said.with("reason", reason);
        }
        if call.inherited {
            said = said.with("toolCallId", id);
        }
        out.push(said_of(&call, said, &self.run, steps));
        if !approved {
            out.push(said_of(&call, Chunk::new("tool-output-denied").with("toolCallId", id), &self.run, steps));
        }
    }

    pub fn end(&mut self, chunk: &Chunk, steps: &Steps, out: &mut Vec<Chunk>) {
        let Some(id) = chunk.text("toolCallId") else { return };
        let said = match failure(chunk) {
            Some(failure) => Chunk::new("tool-output-error").with("toolCallId", id).with("errorText", failure),
            None => {
                let result = chunk.get("result").cloned().unwrap_or_default();
                Chunk::new("tool-output-available").with("toolCallId", id).with("output", result)
            }
        };
        match self.own(id, steps) {
            Some(call) if call.stage == Stage::Settled => {}
            Some(call) => {
                call.stage = Stage::Settled;
                let call = call.clone();
                out.push(said_of(&call, said, &self.run, steps));
            }
            // The call stands in an earlier message, or in an attempt that lost: `ui::lens` says who is told.
            None => {
                if self.elsewhere.insert(id.to_owned()) {
                    let known = self.known.get(id).map(|call| call.tool.as_str());
                    let said = said.with(CONTINUES, chunk.text("toolName").or(known).unwrap_or_default());
                    out.push(stamped(said, &self.run, None, None));
                }
            }
        }
    }

    /// The object itself has answered a call.
    pub fn answered(&mut self, chunk: &Chunk) {
        let Some(call) = chunk.text("toolCallId").and_then(|id| self.known.get_mut(id)) else { return };
        call.stage = match chunk.kind() {
            "tool-approval-request" => Stage::Asked,
            "tool-approval-response" => Stage::Ready,
            _ => Stage::Settled,
        };
    }

    /// The call, unless the attempt that began it has lost.
    fn own(&mut self, id: &str, steps: &Steps) -> Option<&mut Call> {
        self.known.get_mut(id).filter(|call| !steps.lost(call.attempt.as_deref()))
    }

    fn begin(&mut self, id: &str, tool: &str, stage: Stage, steps: &Steps, said: Chunk) -> Chunk {
        let attempt = steps.attempt().map(str::to_owned);
        let call = Call { tool: tool.to_owned(), stage, attempt, step: self.step, inherited: false, approval: None };
        let said = said_of(&call, said, &self.run, steps);
        self.known.insert(id.to_owned(), call);
        said
    }
}

/// A chunk about a call, with the stamp of whatever began the call.
fn said_of(call: &Call, said: Chunk, run: &RunId, steps: &Steps) -> Chunk {
    if call.inherited {
        stamped(said, run, None, None).with(CONTINUES, call.tool.as_str())
    } else if call.attempt.is_some() && call.attempt.as_deref() == steps.attempt() {
        steps.stamp(said, run)
    } else {
        stamped(said, run, call.attempt.as_deref(), None)
    }
}

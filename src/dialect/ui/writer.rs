//! Turns what a producer emits into a run that every client can read.
//!
//! A producer may be a model API, somebody's chat route or a push client; none of them is trusted to speak the protocol
//! well. The writer owns the frame of the run (`run_started`, `start`, steps, commits, `finish`, the events of `resync`),
//! repairs what can be repaired, and drops a chunk that would make a client of 6.0.0 fail. Its log, in order:
//! `run_started`, `start`; per step `step_start`, `start-step`, content, `finish-step`, [`Commit`], `step_committed`; at
//! the end `finish`.

mod events;
mod recover;

use serde_json::Value;

use super::calls::{Admitted, Calls};
use super::fold::tool::{call_of, state_of};
use super::fold::{Fold, OpenPart};
use super::replay::retold;
use super::resync::is_event;
use super::vocabulary::{Type, flag, shape, typed};
use crate::core::approval::approval_id;
use crate::core::call_ids::CallIds;
use crate::core::chunk::{Chunk, STAMP_KEYS, is_too_deep, lifecycle};
use crate::core::ids::{AttemptId, MessageId, RunId};
use crate::core::record::{Commit, Record};

/// Where the run is between two chunks.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// Before the first step or between two.
    Between,
    /// In a step. `asked`: the producer itself opened it.
    Step { asked: bool },
    /// `finish-step` is stored and its commit is not (only after a crash).
    Uncommitted,
    /// Closed; nothing more is written.
    Ended,
}

/// The writer of one run.
#[derive(Clone, Debug)]
pub struct RunWriter {
    run: RunId,
    message_id: MessageId,
    agent: String,
    fold: Fold,
    /// Parts of the continued message, before the run's own.
    inherited: usize,
    calls: Calls,
    /// Whether ids of approvals stay as the producer says them.
    keeps_approvals: bool,
    phase: Phase,
    /// Number of the current or last step; 0 before the first.
    step: u32,
    /// Number of the current attempt in its step, from 1.
    attempt: u32,
    /// Parts before the current step.
    step_base: usize,
    /// Parts when the producer opened the current step.
    asked_at: usize,
    steps_done: u32,
    /// The producer's `finish`, held back until the run completes.
    finish: Option<Chunk>,
    committed: Option<Value>,
}

/// What a chunk that is nested too deeply becomes: a call's failure, or nothing.
fn without_depth(chunk: &Chunk) -> Option<Chunk> {
    let said = match chunk.kind() {
        "tool-input-available" | "tool-input-error" => {
            Chunk::new("tool-input-error").with("toolName", chunk.text("toolName")?).with("input", Value::Null)
        }
        "tool-output-available" => Chunk::new("tool-output-error"),
        _ => return None,
    };
    Some(said.with("toolCallId", chunk.text("toolCallId")?).with("errorText", "The value is nested too deeply"))
}

/// Text of the result that a call gets when its run ends without one.
const NOT_EXECUTED: &str = "Not executed: the reply was interrupted";

impl RunWriter {
    /// A run that writes a new message.
    pub fn new(run: RunId, message_id: MessageId) -> Self {
        let fold = Fold::new(&message_id);
        Self::with_fold(run, message_id, fold, None)
    }

    /// A run that continues a committed message, for example with the results of client tools.
    pub fn continuing(run: RunId, message: Value) -> Self {
        let fold = Fold::continuing(message.clone());
        let message_id = MessageId::new(fold.message_id());
        Self::with_fold(run, message_id, fold, Some(message))
    }

    fn with_fold(run: RunId, message_id: MessageId, fold: Fold, committed: Option<Value>) -> Self {
        Self {
            run,
            message_id,
            agent: events::UNNAMED_AGENT.into(),
            inherited: fold.parts.len(),
            fold,
            calls: Calls::default(),
            keeps_approvals: false,
            phase: Phase::Between,
            step: 0,
            attempt: 0,
            step_base: 0,
            asked_at: 0,
            steps_done: 0,
            finish: None,
            committed,
        }
    }

    /// The same writer, for this agent. Without one its events name `assistant`.
    #[must_use]
    pub fn named(mut self, agent: &str) -> Self {
        self.agent = agent.into();
        self
    }

    /// The same writer, in a session whose calls have these names.
    #[must_use]
    pub fn among(mut self, ids: CallIds) -> Self {
        self.calls.ids = ids;
        self
    }

    /// The same writer, for a producer whose approvals have ids of its own, also where they equal their calls' ids.
    #[must_use]
    pub fn keeping_approvals(mut self, keeps: bool) -> Self {
        self.keeps_approvals = keeps;
        self
    }

    /// The first entries of the run, stored with its start.
    pub fn open(&mut self) -> Vec<Record> {
        let mut out = Vec::new();
        self.emit(&mut out, Chunk::new(lifecycle::RUN_STARTED));
        self.emit(&mut out, Chunk::new("start").with("messageId", self.message_id.as_str()));
        out
    }

    /// What to store for the producer's next chunk: the chunk, repaired or not, what must stand before it, or nothing.
    pub fn write(&mut self, mut chunk: Chunk) -> Vec<Record> {
        let mut out = Vec::new();
        if self.phase == Phase::Ended {
            return out;
        }
        for key in STAMP_KEYS {
            chunk.remove(key);
        }
        if chunk.as_map().values().any(is_too_deep) {
            let Some(said) = without_depth(&chunk) else { return out };
            chunk = said;
        }
        match chunk.kind() {
            lifecycle::RUN_STARTED | lifecycle::STEP_START | lifecycle::STEP_COMMITTED | "abort" | "error" => {}
            kind if is_event(kind) => {}
            "start" | "message-metadata" => self.metadata(&mut out, &chunk),
            "start-step" => self.start_step(&mut out),
            "finish-step" => self.finish_step(&mut out),
            // Our own producers name the call. An upstream's own id stays: the upstream may look for it when it is answered.
            "tool-approval-request"
                if !self.keeps_approvals && chunk.text("approvalId") == chunk.text("toolCallId") =>
            {
                let id = approval_id(&self.run, chunk.text("toolCallId").unwrap_or_default());
                self.content(&mut out, chunk.with("approvalId", id));
            }
            "reset-step" if self.step_is_empty() => {}
            "reset-step" => out = self.restart_step(),
            "finish" => self.finish = Some(chunk),
            _ => self.content(&mut out, chunk),
        }
        out
    }

    /// The closing entries of a run whose producer has finished, also of one that suspends with pending calls. A
    /// producer's `finish` stands here; without one it is `finish{finishReason: "stop"}`.
    pub fn complete(&mut self) -> Vec<Record> {
        let mut out = Vec::new();
        if self.phase == Phase::Ended {
            return out;
        }
        self.finish_step(&mut out);
        let finish = match self.finish.take() {
            Some(mut finish) => {
                for key in ["finishReason", "messageMetadata"] {
                    if finish.get(key).is_some_and(Value::is_null) {
                        finish.remove(key);
                    }
                }
                finish
            }
            None => Chunk::new("finish").with("finishReason", "stop"),
        };
        self.emit(&mut out, finish);
        self.end(&mut out);
        out
    }

    /// The closing entries of a run whose calls are answered already, so that another run goes on with its message at once: as
    /// [`RunWriter::complete`], but a response follows that run and needs no `finish` before its end.
    pub fn hand_over(&mut self) -> Vec<Record> {
        let mut out = Vec::new();
        if self.phase == Phase::Ended {
            return out;
        }
        self.finish_step(&mut out);
        if let Some(finish) = self.finish.take() {
            self.metadata(&mut out, &finish);
        }
        self.end(&mut out);
        out
    }

    /// The closing entries of a run that was stopped: what was produced is kept, without `finish`. When the attempt that is under way has
    /// shown nothing, that is what the last one before it had shown: clients were given it, and nothing has taken its place.
    ///
    /// Open text and reasoning are closed. A tool input that was still streaming stays `input-streaming`: that
    /// validates, and the AI SDK leaves such a part out when it builds the next request for a model. A call that has
    /// its input and no result is answered with an error, and one that waits for an approval is denied: a model refuses
    /// a conversation with an unanswered call, and nobody is left to answer it.
    pub fn stop(&mut self) -> Vec<Record> {
        self.break_off()
    }

    /// The closing entries of a run that failed, or whose producer died: the same as for a stop.
    pub fn fail(&mut self) -> Vec<Record> {
        self.break_off()
    }

    /// The run's message so far.
    pub fn fold(&self) -> &Fold {
        &self.fold
    }

    /// The producer's `finishReason`, when it has finished and named one.
    pub fn finish_reason(&self) -> Option<&str> {
        self.finish.as_ref()?.text("finishReason")
    }

    fn break_off(&mut self) -> Vec<Record> {
        let mut out = Vec::new();
        if self.phase == Phase::Ended {
            return out;
        }
        if self.step_is_empty() && matches!(self.phase, Phase::Step { .. }) {
            let shown = retold(self.fold.shown_before());
            // A crash may lie between an attempt's beginning and its first part.
            if !shown.is_empty() && self.fold.parts.len() <= self.step_base {
                self.emit(&mut out, Chunk::new("start-step"));
            }
            for chunk in shown {
                self.emit(&mut out, chunk);
            }
        }
        for open in self.fold.open_parts() {
            let OpenPart::Call { part } = open else { continue };
            let answer = match state_of(&part) {
                "approval-requested" => Chunk::new("tool-output-denied"),
                _ => Chunk::new("tool-output-error").with("errorText", NOT_EXECUTED),
            };
            self.emit(&mut out, answer.with("toolCallId", call_of(&part)));
        }
        if self.step_is_empty() {
            // Nothing to commit: only the step's frame is closed.
            if matches!(self.phase, Phase::Step { .. }) {
                self.emit(&mut out, Chunk::new("finish-step"));
            }
            self.phase = Phase::Between;
        }
        self.finish_step(&mut out);
        self.end(&mut out);
        out
    }

    /// Commits what the last commit does not hold, and closes the writer.
    fn end(&mut self, out: &mut Vec<Record>) {
        // A reply without a word may have metadata that its last step's commit lacks.
        let counts = self.fold.has_content() || self.committed.is_some();
        if counts && self.fold.message() != self.committed {
            self.commit(out);
        }
        self.phase = Phase::Ended;
    }

    fn metadata(&mut self, out: &mut Vec<Record>, chunk: &Chunk) {
        if let Some(metadata) = typed(chunk, "messageMetadata", Type::Any) {
            self.emit(out, Chunk::new("message-metadata").with("messageMetadata", metadata.clone()));
        }
    }

    fn start_step(&mut self, out: &mut Vec<Record>) {
        match self.phase {
            // The producer names the step that its early content has opened, or repeats itself.
            Phase::Step { asked: false } => {}
            Phase::Step { asked: true } if self.fold.parts.len() == self.asked_at => {}
            _ => {
                self.finish_step(out);
                self.open_step(out);
            }
        }
        self.phase = Phase::Step { asked: true };
        self.asked_at = self.fold.parts.len();
    }

    fn open_step(&mut self, out: &mut Vec<Record>) {
        self.step = self.step.saturating_add(1);
        self.step_base = self.fold.parts.len();
        self.begin_attempt(out, 1, None);
        self.phase = Phase::Step { asked: false };
    }

    fn step_is_empty(&self) -> bool {
        self.fold.parts.len() <= self.step_base.saturating_add(1)
    }

    /// Closes and commits the step, if one is open.
    fn finish_step(&mut self, out: &mut Vec<Record>) {
        if let Phase::Step { .. } = self.phase {
            for open in self.fold.open_parts() {
                let end = match open {
                    OpenPart::Text { id, .. } => Chunk::new("text-end").with("id", id),
                    OpenPart::Reasoning { id, .. } => Chunk::new("reasoning-end").with("id", id),
                    _ => continue,
                };
                self.emit(out, end);
            }
            self.emit(out, Chunk::new("finish-step"));
            self.phase = Phase::Uncommitted;
        }
        if self.phase == Phase::Uncommitted {
            self.steps_done = self.step;
            self.commit(out);
            let committed =
                Chunk::new(lifecycle::STEP_COMMITTED).with("committedAttemptId", self.attempt_id().as_str());
            self.emit(out, committed);
            self.phase = Phase::Between;
        }
    }

    fn commit(&mut self, out: &mut Vec<Record>) {
        if let Some(message) = self.fold.message() {
            self.committed = Some(message.clone());
            out.push(Record::Commit(Commit { message, step_count: self.steps_done, state: None }));
        }
    }

    /// A chunk that is neither the run's frame nor metadata.
    fn content(&mut self, out: &mut Vec<Record>, mut chunk: Chunk) {
        let Some(shape) = shape(chunk.kind()) else {
            // Not of this protocol: the wire dialect carries it, chat leaves it out.
            self.emit(out, chunk);
            return;
        };
        // `JSON.stringify` leaves out a result that is `undefined`; clients refuse the chunk without the key.
        for key in shape.keys.iter().filter(|key| key.required && key.kind == Type::Any) {
            if chunk.get(key.name).is_none() {
                chunk = chunk.with(key.name, Value::Null);
            }
        }
        if shape.lacks(chunk.as_map()).is_some() {
            return;
        }
        match chunk.kind() {
            "text-start" | "text-delta" | "text-end" => self.block(out, chunk, "text"),
            "reasoning-start" | "reasoning-delta" | "reasoning-end" => self.block(out, chunk, "reasoning"),
            kind if kind.starts_with("tool-") => {
                let begin = matches!(self.phase, Phase::Step { .. }).then_some(self.step_base);
                let continues = self.step == 0 && self.inherited > 0;
                let admitted = self.calls.admit(&self.run, &self.fold, (begin, continues), chunk);
                let Some(Admitted { name, earlier, chunk }) = admitted else { return };
                out.extend(name.map(Record::Call));
                if chunk.kind().starts_with("tool-input-") && !earlier {
                    self.emit_in_step(out, chunk);
                } else {
                    // An answer opens no step: what answers an earlier step's call is no content of an attempt.
                    self.emit(out, chunk);
                }
            }
            kind if kind.starts_with("data-") && flag(&chunk, "transient") == Some(true) => self.emit(out, chunk),
            _ => self.emit_in_step(out, chunk),
        }
    }

    /// A chunk of a text or reasoning part: a delta opens its part, a second start closes the first, a lone end goes.
    fn block(&mut self, out: &mut Vec<Record>, chunk: Chunk, of: &str) {
        let id = chunk.text("id").unwrap_or_default().to_owned();
        let open = self.fold.is_open(&id, of == "reasoning");
        let begins = chunk.kind().ends_with("-start");
        let frame = |edge: &str| Chunk::new(&format!("{of}-{edge}")).with("id", id.as_str());
        match (open, begins) {
            (true, true) => self.emit_in_step(out, frame("end")),
            (false, false) if chunk.kind().ends_with("-end") => return,
            (false, false) => self.emit_in_step(out, frame("start")),
            _ => {}
        }
        self.emit_in_step(out, chunk);
    }

    fn emit_in_step(&mut self, out: &mut Vec<Record>, chunk: Chunk) {
        if !matches!(self.phase, Phase::Step { .. }) {
            self.open_step(out);
        }
        self.emit(out, chunk);
    }

    /// Stores a chunk and folds it. What a client would not fold is not stored.
    ///
    /// A chunk that only changes what stood before the step is not content of the attempt: it stays when the attempt is
    /// superseded, and so a replay may leave out whole attempts.
    fn emit(&mut self, out: &mut Vec<Record>, chunk: Chunk) {
        let in_step = matches!(self.phase, Phase::Step { .. } | Phase::Uncommitted);
        let changes = self.fold.changed_by(&chunk);
        let before_step = chunk.kind() == "message-metadata" || changes.is_some_and(|at| at < self.step_base);
        let chunk = match changes.filter(|at| *at < self.inherited).and_then(|at| self.fold.parts.get(at)) {
            Some(part) => events::continuing(chunk, part),
            None => chunk,
        };
        let attempt = (in_step && !before_step).then(|| (self.attempt_id(), self.step));
        let folded = match &attempt {
            Some((id, step)) if chunk.kind() == lifecycle::STEP_START => {
                self.fold.apply(&chunk.clone().with("attemptId", id.as_str()).with("step", *step))
            }
            _ => self.fold.apply(&chunk),
        };
        if folded.is_ok() {
            out.push(Record::Chunk { chunk, attempt });
        }
    }

    /// The same for every writer of the run, so that a recovered one names the same attempt.
    fn attempt_id(&self) -> AttemptId {
        AttemptId::new(format!("{}-{}-{}", self.run, self.step, self.attempt))
    }
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;

//! A run of Helix chunks as UI chunks (`spec/helix.md` 10.3).
//!
//! The chunks are those of the log, each `step_start` and `step_committed` stamped as `dialect::push` stamps them.
//!
//! One stored chunk becomes none, one or several UI chunks; in a response all of them stand under the sequence of the stored one, which
//! goes on the last (`dialect::ui::response`). What is made depends on nothing but the run's chunks from its start on, so every reader
//! of the run gets the same, and one that begins at a cursor first reads what lies before ([`Projector::replay`]).
//!
//! The lifecycle chunks that chat leaves out pass through, with those attempts that count here: `Fold`, `Attempts` and `Lens` are fed with
//! the projection, not with the stored chunks.
//!
//! * A text part or a reasoning part ends when the other kind, a tool input or the end of the step comes.
//! * `step_start` opens a step, `step_committed` finishes it. A second attempt of a step takes its content back; a late chunk of an attempt
//!   that lost shows nothing.
//! * Content is stamped with the attempt that is open, a result with the attempt of its call: whoever leaves an attempt out leaves out
//!   what depends on it.

use serde_json::Value;

use super::calls::Calls;
use super::steps::Steps;
use super::words::{Word, input_delta, resync, state_operations};
use crate::core::chunk::{CONTINUES, Chunk, lifecycle};
use crate::core::ids::{MessageId, RunId};
use crate::dialect::ui::attempts::Superseded;
use crate::dialect::ui::fold::Fold;
use crate::dialect::ui::resync::is_event;

/// A text or reasoning part that is open.
#[derive(Clone, Debug)]
struct Block {
    id: String,
    /// The reasoning so far; `None` for text.
    reasoning: Option<String>,
}

impl Block {
    fn frame(&self, edge: &str) -> Chunk {
        let of = if self.reasoning.is_some() { "reasoning" } else { "text" };
        Chunk::new(&format!("{of}-{edge}")).with("id", self.id.as_str())
    }
}

/// The projection of one run, between two of its chunks.
#[derive(Clone, Debug)]
pub struct Projector {
    run: RunId,
    message_id: MessageId,
    started: bool,
    block: Option<Block>,
    /// Text and reasoning parts so far: their ids are the run's own.
    blocks: u32,
    calls: Calls,
    steps: Steps,
}

impl Projector {
    /// A run that writes a new message.
    pub fn new(run: RunId, message_id: MessageId) -> Self {
        Self {
            calls: Calls::new(run.clone()),
            run,
            message_id,
            started: false,
            block: None,
            blocks: 0,
            steps: Steps::default(),
        }
    }

    /// A run that continues a committed message: results for that message's calls are its own, too.
    pub fn continuing(run: RunId, message: &Fold) -> Self {
        let mut projector = Self::new(run, MessageId::new(message.message_id()));
        projector.calls.inherit(message);
        projector
    }

    /// The same behind the run's opening, which its response does not bring.
    #[must_use]
    pub fn started(mut self) -> Self {
        self.started = true;
        self
    }

    /// The projection of the run that goes on with this one's message, behind its opening: what this one has begun is inherited.
    #[must_use]
    pub fn followed_by(&self, run: RunId) -> Self {
        let calls = self.calls.followed_by(run.clone());
        Self { calls, ..Self::new(run, self.message_id.clone()) }.started()
    }

    /// The UI chunks of the run's next stored chunk, its stamp included.
    pub fn project(&mut self, chunk: &Chunk) -> Vec<Chunk> {
        let mut out = Vec::new();
        match chunk.kind() {
            // The object's own words, in the language of chat already.
            "start" if self.started => {}
            "start" => {
                self.started = true;
                out.push(chunk.clone());
            }
            kind if is_event(kind) => out.push(chunk.clone()),
            kind if kind.starts_with("tool-") => self.own_answer(chunk, &mut out),
            lifecycle::RUN_STARTED => {
                out.push(chunk.clone());
                self.start(&mut out);
            }
            lifecycle::STEP_START => self.step_start(chunk, &mut out),
            lifecycle::STEP_COMMITTED => self.step_committed(chunk, &mut out),
            kind => {
                if let Some(word) = Word::of(kind).filter(|_| !self.steps.has_lost(chunk)) {
                    self.start(&mut out);
                    self.say(word, chunk, &mut out);
                } else if Word::of(kind) == Some(Word::ToolEnd) {
                    // A result is a fact of the conversation, whoever brings it.
                    self.calls.end(chunk, &self.steps, &mut out);
                }
            }
        }
        out
    }

    /// Whether this `step_start` takes back the attempt that is open.
    pub fn is_retried_by(&self, chunk: &Chunk) -> bool {
        let begins = chunk.kind() == lifecycle::STEP_START && !self.steps.is_known(chunk);
        begins && self.steps.is_retried_by(chunk)
    }

    /// The chunks that end what is open when the run has ended. They belong to no stored chunk, so their frames have no sequence; the
    /// response's terminal follows (`dialect::ui::response::terminal`).
    pub fn close(&mut self) -> Vec<Chunk> {
        let mut out = Vec::new();
        self.end_block(&mut out);
        self.steps.finish(&self.run, &mut out);
        out
    }

    /// Takes note of chunks that lie before a response's cursor, and folds what chat sees of them. `superseded`: the attempts that are
    /// left out (of the whole run, so that one which loses its step behind the cursor is not opened again). Then `ui::reopen` opens what
    /// is open in the fold, and [`Projector::project`] goes on.
    pub fn replay<'a>(&mut self, stored: impl Iterator<Item = &'a Chunk>, superseded: &Superseded, fold: &mut Fold) {
        for chunk in stored {
            for seen in self.project(chunk).iter().filter(|seen| !superseded.leaves_out(seen)) {
                apply(fold, seen);
            }
        }
    }

    fn start(&mut self, out: &mut Vec<Chunk>) {
        if !self.started {
            self.started = true;
            out.push(Chunk::new("start").with("messageId", self.message_id.as_str()).with("runId", self.run.as_str()));
        }
    }

    /// An answer that the object itself has written, for a call of an earlier run.
    fn own_answer(&mut self, chunk: &Chunk, out: &mut Vec<Chunk>) {
        if chunk.text(CONTINUES).is_some() {
            self.start(out);
            self.calls.answered(chunk);
            out.push(chunk.clone());
        }
    }

    fn step_start(&mut self, chunk: &Chunk, out: &mut Vec<Chunk>) {
        self.start(out);
        if self.steps.is_known(chunk) {
            return;
        }
        // Also of an attempt that loses its step: its commit may still name it.
        self.end_block(out);
        if !self.steps.is_retried_by(chunk) {
            self.steps.finish(&self.run, out);
        }
        self.steps.begin(chunk, &self.run, out);
        self.calls.next_step();
    }

    fn step_committed(&mut self, chunk: &Chunk, out: &mut Vec<Chunk>) {
        if !self.steps.is_committed_by(chunk) {
            return;
        }
        if self.steps.wins_back(chunk) {
            self.block = None;
        }
        self.end_block(out);
        self.steps.commit(chunk, &self.run, out);
    }

    fn say(&mut self, word: Word, chunk: &Chunk, out: &mut Vec<Chunk>) {
        match word {
            Word::Text => {
                if let Some(delta) = chunk.text("delta").filter(|delta| !delta.is_empty()) {
                    let block = self.block_of(false, out);
                    let said = block.frame("delta").with("delta", delta);
                    self.content(said, out);
                }
            }
            Word::Thinking => self.thinking(chunk, out),
            Word::InputStart | Word::ToolStart | Word::ApprovalRequest => {
                let mut made = Vec::new();
                match word {
                    Word::InputStart => self.calls.input_start(chunk, &self.steps, &mut made),
                    Word::ToolStart => self.calls.start(chunk, &self.steps, &mut made),
                    _ => self.calls.ask(chunk, &self.steps, &mut made),
                }
                if made.iter().any(|chunk| chunk.kind().starts_with("tool-input-")) {
                    self.end_block(out);
                    self.steps.has_content();
                }
                out.extend(made);
            }
            Word::InputDelta => {
                if let Some(delta) = input_delta(chunk) {
                    self.calls.input_delta(chunk, delta, &self.steps, out);
                }
            }
            Word::ToolEnd => self.calls.end(chunk, &self.steps, out),
            Word::ApprovalResponse => self.calls.decided(chunk, &self.steps, out),
            Word::StatePatch => {
                // The snapshot has the state: no message holds the way to it.
                if let Some(operations) = state_operations(chunk) {
                    let said = data("state-patch", operations).with("transient", true);
                    out.push(self.steps.stamp(said, &self.run));
                }
            }
            Word::Custom => {
                let name = chunk.text("eventName").filter(|name| !name.is_empty());
                let said = name.map(|name| data(name, chunk.get("data").unwrap_or(&Value::Null)));
                if let Some(said) = said.filter(|said| !is_event(said.kind())) {
                    self.content(said, out);
                }
            }
            Word::Output => {
                let output = chunk.get("output").or_else(|| chunk.get("data"));
                self.content(data("output", output.unwrap_or(&Value::Null)).with("id", "output"), out);
            }
            Word::Resync => out.extend(resync(chunk)),
        }
    }

    /// A piece of reasoning, or with `isComplete` the whole of it: after pieces, what they lack.
    fn thinking(&mut self, chunk: &Chunk, out: &mut Vec<Chunk>) {
        let content = chunk.text("content").unwrap_or_default();
        let whole = chunk.get("isComplete").and_then(Value::as_bool) == Some(true);
        let said = self.block.as_ref().and_then(|block| block.reasoning.as_deref()).unwrap_or_default();
        let news = if whole { content.strip_prefix(said).unwrap_or(content) } else { content }.to_owned();
        if !news.is_empty() {
            let block = self.block_of(true, out);
            if let Some(so_far) = &mut block.reasoning {
                so_far.push_str(&news);
            }
            let said = block.frame("delta").with("delta", news);
            self.content(said, out);
        }
        if whole && self.block.as_ref().is_some_and(|block| block.reasoning.is_some()) {
            self.end_block(out);
        }
    }

    /// The open part of this kind; another one ends, a new one begins.
    fn block_of(&mut self, reasoning: bool, out: &mut Vec<Chunk>) -> &mut Block {
        if self.block.as_ref().is_some_and(|block| block.reasoning.is_some() != reasoning) {
            self.end_block(out);
        }
        let next = self.blocks.saturating_add(1);
        let (blocks, steps, run) = (&mut self.blocks, &mut self.steps, &self.run);
        self.block.get_or_insert_with(|| {
            *blocks = next;
            let block = Block { id: format!("b{next}"), reasoning: reasoning.then(String::new) };
            steps.has_content();
            out.push(steps.stamp(block.frame("start"), run));
            block
        })
    }

    fn end_block(&mut self, out: &mut Vec<Chunk>) {
        if let Some(block) = self.block.take() {
            out.push(self.steps.stamp(block.frame("end"), &self.run));
        }
    }

    fn content(&mut self, chunk: Chunk, out: &mut Vec<Chunk>) {
        self.steps.has_content();
        out.push(self.steps.stamp(chunk, &self.run));
    }
}

/// Folds a projected chunk. What answers a call that stands elsewhere is not for this message.
pub fn apply(fold: &mut Fold, chunk: &Chunk) {
    // The projection folds, its tests say; a chunk that does not is a damaged one, and costs only itself.
    drop(fold.apply(chunk));
}

fn data(name: &str, data: &Value) -> Chunk {
    Chunk::new(&format!("data-{name}")).with("data", data.clone())
}

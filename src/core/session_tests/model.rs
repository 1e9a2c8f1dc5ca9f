//! The naive model: facts in lists, and the list of facts that each transaction left behind.

use serde_json::json;

use crate::core::command::WriteRefused;
use crate::core::ids::RunId;
use crate::core::run::{Fence, Outcome};
use crate::core::time::UnixMillis;

/// One thing that a producer writes.
#[derive(Clone, Debug)]
pub enum Item {
    Chunk(String),
    Commit,
}

#[derive(Clone, Debug)]
pub struct Run {
    pub id: RunId,
    pub reply: usize,
    pub outcome: Option<Outcome>,
    pub end: usize,
    pub started: UnixMillis,
    pub ended: UnixMillis,
}

/// What is true of a session. The chunk with sequence `n` is `chunks[n - 1]`.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    pub exists: bool,
    pub chunks: Vec<(RunId, String)>,
    pub messages: Vec<String>,
    pub cursor: usize,
    pub runs: Vec<Run>,
    /// How many of the chunks retention has removed.
    pub floor: usize,
}

impl Facts {
    pub fn running(&self) -> Option<&Run> {
        self.runs.last().filter(|run| run.outcome.is_none())
    }

    pub fn start(&mut self, id: &RunId, input: String, opening: &[String], now: UnixMillis) {
        self.exists = true;
        self.messages.push(input);
        self.cursor = self.chunks.len();
        let reply = self.messages.len();
        self.runs.push(Run { id: id.clone(), reply, outcome: None, end: 0, started: now, ended: now });
        self.chunks.extend(opening.iter().map(|text| (id.clone(), text.clone())));
    }

    /// The message of the run that writes, as JSON: all of its chunks so far.
    pub fn reply(&self) -> String {
        let run = &self.runs.last().unwrap().id;
        json!(self.chunks.iter().filter(|(id, _)| id == run).map(|(_, text)| text.as_str()).collect::<String>())
            .to_string()
    }

    pub fn write(&mut self, item: &Item) {
        let run = self.runs.last().unwrap().clone();
        match item {
            Item::Chunk(text) => self.chunks.push((run.id, text.clone())),
            Item::Commit => {
                self.cursor = self.chunks.len();
                let reply = self.reply();
                self.messages.truncate(run.reply);
                self.messages.push(reply);
            }
        }
    }

    pub fn finish(&mut self, outcome: Outcome, now: UnixMillis) {
        self.cursor = self.chunks.len();
        let end = self.chunks.len();
        let run = self.runs.last_mut().unwrap();
        (run.outcome, run.end, run.ended) = (Some(outcome), end, now);
    }

    /// The finished runs whose chunks are kept, oldest first.
    pub fn kept(&self) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(|run| run.outcome.is_some() && run.end > self.floor)
    }

    /// Since when nothing happens; `None` while a run is running, and when there is no session.
    pub fn idle_since(&self) -> Option<UnixMillis> {
        self.runs.last().filter(|run| run.outcome.is_some()).map(|run| run.started.max(run.ended))
    }

    pub fn refusal(&self, fence: &Fence) -> Option<WriteRefused> {
        match self.runs.last() {
            Some(run) if run.id == fence.run => run.outcome.map(|_| WriteRefused::Ended),
            _ => Some(WriteRefused::Superseded),
        }
    }
}

/// `history[0]` is durable; what follows is each transaction that a crash may take back.
pub struct Model {
    history: Vec<Facts>,
}

impl Model {
    pub fn new() -> Self {
        Self { history: vec![Facts::default()] }
    }

    pub fn latest(&self) -> &Facts {
        self.history.last().unwrap()
    }

    pub fn durable(&self) -> &Facts {
        &self.history[0]
    }

    pub fn push(&mut self, facts: Facts) {
        self.history.push(facts);
    }

    pub fn sync(&mut self) {
        self.history.drain(..self.history.len() - 1);
    }

    pub fn crash(&mut self, kept: usize) {
        let survivor = kept.min(self.history.len() - 1);
        self.history = vec![self.history[survivor].clone()];
    }
}

//! The naive model's part for producers outside: their numbers, their commits and how they end.

use super::model::Facts;
use crate::core::ids::RunId;
use crate::core::run::Outcome;
use crate::core::storage::CheckpointKind;
use crate::core::time::{Millis, UnixMillis};

/// What is true of a run whose producer is outside.
#[derive(Clone, Debug)]
pub struct Outside {
    pub lease: Millis,
    /// The next number: how many chunks and operations were taken.
    pub taken: u64,
    /// The number after the last operation.
    pub noted: u64,
    /// What came with its end.
    pub result: Option<String>,
}

impl Outside {
    pub fn new(lease: Millis) -> Self {
        Self { lease, taken: 0, noted: 0, result: None }
    }
}

/// A commit with its place as the log counts; no messages leave them as they are.
#[derive(Clone, Debug)]
pub struct Committed {
    pub through: usize,
    pub messages: Vec<(String, &'static str, String)>,
    pub state: Option<String>,
}

/// How a producer ends its run: its last chunks, what the object adds, and the fold's state when there is one.
#[derive(Clone, Debug)]
pub struct Ending {
    pub outcome: Outcome,
    pub chunks: Vec<String>,
    pub closing: Vec<String>,
    pub fold: Option<Option<String>>,
    pub result: Option<String>,
}

impl Facts {
    fn outside(&mut self) -> &mut Outside {
        self.runs.last_mut().unwrap().push.as_mut().unwrap()
    }

    /// Whether the run's messages are the producer's own, and cover all that it has said.
    pub fn lays_its_own(&self, says_more: bool) -> bool {
        let run = self.runs.last().filter(|run| run.push.is_some());
        let several = run.is_some_and(|run| self.messages.len() > run.reply + 1);
        several && !says_more && self.cursor() == self.chunks.len()
    }

    fn hear(&mut self, run: &RunId, chunks: &[String]) {
        self.chunks.extend(chunks.iter().map(|text| (run.clone(), text.clone())));
    }

    pub fn take(&mut self, chunks: &[String]) {
        let run = self.runs.last().unwrap().id.clone();
        self.hear(&run, chunks);
        self.outside().taken += chunks.len() as u64;
    }

    /// Whether this is a place to commit.
    pub fn is_place(&self, through: usize) -> bool {
        (self.cursor()..=self.chunks.len()).contains(&through)
    }

    pub fn commit(&mut self, commit: Committed, lease: UnixMillis) {
        let run = self.runs.last_mut().unwrap();
        run.lease = lease;
        let (id, reply) = (run.id.clone(), run.reply);
        if !commit.messages.is_empty() {
            self.messages.truncate(reply);
            for (name, role, json) in commit.messages {
                self.say(self.messages.len(), role, name, &id, json);
            }
        }
        self.state = commit.state.or(self.state.take());
        self.point(CheckpointKind::Step, commit.through);
        let outside = self.outside();
        outside.taken += 1;
        outside.noted = outside.taken;
    }

    pub fn conclude(&mut self, ending: Ending, now: UnixMillis, lease: UnixMillis) {
        let own = self.lays_its_own(!ending.chunks.is_empty());
        self.take(&ending.chunks);
        let run = self.runs.last().unwrap();
        let (id, reply, message) = (run.id.clone(), run.reply, run.message.clone());
        self.hear(&id, &ending.closing);
        if let Some(state) = ending.fold.filter(|_| !own) {
            let json = self.reply();
            self.say(reply, "assistant", message, &id, json);
            self.messages.truncate(reply + 1);
            self.state = state.or(self.state.take());
        }
        self.point(CheckpointKind::End, self.chunks.len());
        self.finish(ending.outcome, now, lease);
        let outside = self.outside();
        outside.taken += 1;
        (outside.noted, outside.result) = (outside.taken, ending.result);
    }
}

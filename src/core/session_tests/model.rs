//! The naive model: facts in lists, and the list of facts that each transaction left behind.

use serde_json::json;

use super::pushed::Outside;
use super::queue::Waiting;
use crate::core::command::{Entry, StartRefused, WriteRefused};
use crate::core::error::Code;
use crate::core::ids::RunId;
use crate::core::run::StreamStatus;
use crate::core::run::{EntryKind, Fence, Outcome, RunStatus};
use crate::core::storage::CheckpointKind;
use crate::core::time::{Millis, UnixMillis};

/// One thing that a producer writes.
#[derive(Clone, Debug)]
pub enum Item {
    Chunk(String),
    Commit,
}

/// What is done with items.
#[derive(Clone, Debug)]
pub enum Deed {
    Append,
    /// The message begins with this text from now on.
    Answer(String),
    Finish(Outcome),
    /// What is left behind by a run whose place is taken.
    LastWords,
}

#[derive(Clone, Debug)]
pub struct Run {
    pub id: RunId,
    pub kind: EntryKind,
    /// The client's key and the hash that came with it.
    pub key: Option<(String, String)>,
    /// Index of its message, and what that says before the run's own chunks.
    pub reply: usize,
    /// The id of that message.
    pub message: String,
    pub base: String,
    pub opening: usize,
    pub status: RunStatus,
    pub error: Option<Code>,
    pub start: usize,
    /// Where it ended, and before that where it was suspended.
    pub end: Option<usize>,
    pub paused: Option<usize>,
    pub started: UnixMillis,
    pub ended: Option<UnixMillis>,
    /// As its row tells it; renewals are in memory.
    pub lease: UnixMillis,
    pub attempts: u32,
    pub epoch: u32,
    /// When its producer is outside.
    pub push: Option<Outside>,
}

/// A message, and which one it is: one that is cut and written again is another one.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    pub birth: u64,
    pub id: String,
    pub role: &'static str,
    pub run: RunId,
    pub json: String,
}

#[derive(Clone, Debug)]
pub struct Point {
    pub kind: CheckpointKind,
    pub cursor: usize,
    pub births: Vec<u64>,
    pub state: Option<String>,
    /// Whether its run goes on with an older message.
    pub continues: bool,
}

/// What is true of a session. The chunk with sequence `n` is `chunks[n - 1]`, the checkpoint with ordinal `n` is `points[n - 1]`.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    pub exists: bool,
    pub stream: Option<StreamStatus>,
    pub chunks: Vec<(RunId, String)>,
    pub messages: Vec<Message>,
    pub points: Vec<Point>,
    pub runs: Vec<Run>,
    /// How many of the chunks retention has removed.
    pub floor: usize,
    pub state: Option<String>,
    pub queue: Vec<Waiting>,
    births: u64,
}

/// How a run starts, beside its entry.
pub struct Beginning {
    pub id: RunId,
    pub key: Option<(String, String)>,
    pub opening: Vec<String>,
    pub now: UnixMillis,
    pub lease: UnixMillis,
    /// Until when the producer of the run before it is believed alive.
    pub before: UnixMillis,
    pub push: Option<Millis>,
    pub state: Option<String>,
}

/// A text as JSON.
pub fn quoted(text: &str) -> String {
    json!(text).to_string()
}

impl Facts {
    pub fn live(&self) -> Option<&Run> {
        self.runs.last().filter(|run| run.status.is_live())
    }

    pub fn running(&self) -> Option<&Run> {
        self.runs.last().filter(|run| run.status == RunStatus::Running)
    }

    pub fn suspended(&self) -> Option<&Run> {
        self.runs.last().filter(|run| run.status.is_suspended())
    }

    /// The run that waits for its clients.
    pub fn asking(&self) -> Option<&Run> {
        self.runs.last().filter(|run| run.status == RunStatus::SuspendedClientTool)
    }

    /// The run that a send must not disturb.
    pub fn busy(&self) -> Option<&Run> {
        self.live().filter(|_| self.asking().is_none())
    }

    /// The cursor of the latest checkpoint.
    pub fn cursor(&self) -> usize {
        self.points.last().map_or(0, |point| point.cursor)
    }

    /// Ordinal of the latest rewind.
    pub fn truncated(&self) -> Option<usize> {
        self.points.iter().rposition(|point| point.kind == CheckpointKind::Truncate).map(|at| at + 1)
    }

    /// Whether the messages of this checkpoint are all still there.
    pub fn is_reachable(&self, ordinal: usize) -> bool {
        let point = &self.points[ordinal - 1];
        let births: Vec<_> = self.messages.iter().map(|message| message.birth).collect();
        let is_point = match point.kind {
            CheckpointKind::Entry => !point.continues,
            kind => kind == CheckpointKind::Truncate,
        };
        is_point && births.starts_with(&point.births)
    }

    pub(super) fn point(&mut self, kind: CheckpointKind, cursor: usize) {
        let births = self.messages.iter().map(|message| message.birth).collect();
        self.points.push(Point { kind, cursor, births, state: self.state.clone(), continues: false });
    }

    pub(super) fn say(&mut self, index: usize, role: &'static str, id: String, run: &RunId, json: String) {
        match self.messages.get_mut(index) {
            Some(message) => (message.id, message.role, message.run, message.json) = (id, role, run.clone(), json),
            None => {
                self.births += 1;
                assert_eq!(index, self.messages.len(), "no message without the one before it");
                self.messages.push(Message { birth: self.births, id, role, run: run.clone(), json });
            }
        }
    }

    pub fn start(&mut self, beginning: Beginning, entry: &Entry) {
        let Beginning { id, key, opening, now, lease, before, push, state } = beginning;
        let (head, live) = (self.chunks.len(), self.live().cloned());
        let mut run = Run {
            id,
            kind: EntryKind::Send,
            key,
            reply: 0,
            message: String::new(),
            base: String::new(),
            opening: opening.len(),
            status: RunStatus::Running,
            error: None,
            start: head,
            end: None,
            paused: None,
            started: now,
            ended: None,
            lease,
            attempts: 1,
            epoch: 1,
            push: push.map(Outside::new),
        };
        if let Some(previous) = self.runs.last_mut().filter(|run| run.status.is_live()) {
            let continued = matches!(entry, Entry::Results { .. });
            previous.status = if continued { RunStatus::Completed } else { RunStatus::Superseded };
            previous.lease = if previous.paused.is_none() { before } else { previous.lease };
            (previous.end, previous.ended) = (Some(head), Some(now));
        }
        match entry {
            Entry::Send { input, abandoned } => {
                if let (Some(json), Some(live)) = (abandoned.as_ref().and_then(|run| run.message.as_ref()), live) {
                    self.say(live.reply, "assistant", live.message.clone(), &live.id, json.clone());
                }
                self.say(self.messages.len(), "user", input.id.to_string(), &run.id, input.json.clone());
                self.point(CheckpointKind::Entry, head);
                run.reply = self.messages.len();
            }
            Entry::Results { message } => {
                run.kind = EntryKind::ToolResult;
                let live = live.unwrap();
                (run.reply, run.message) = (live.reply, live.message);
                if let Some(message) = message {
                    run.base = serde_json::from_str(message).unwrap();
                    self.say(run.reply, "assistant", run.message.clone(), &run.id, message.clone());
                }
                self.point(CheckpointKind::Entry, head);
                self.points.last_mut().unwrap().continues = true;
            }
            Entry::Rewind { keep, input, .. } => {
                run.kind = if input.is_some() { EntryKind::Edit } else { EntryKind::Retry };
                self.messages.truncate(*keep as usize);
                self.point(CheckpointKind::Truncate, head);
                if let Some(input) = input {
                    self.say(self.messages.len(), "user", input.id.to_string(), &run.id, input.json.clone());
                    self.point(CheckpointKind::Entry, head);
                }
                run.reply = self.messages.len();
            }
            Entry::Push { inputs, abandoned, .. } => {
                if let (Some(json), Some(live)) = (abandoned.as_ref().and_then(|run| run.message.as_ref()), live) {
                    self.say(live.reply, "assistant", live.message.clone(), &live.id, json.clone());
                }
                for (input, role) in inputs {
                    let role = if role == "user" { "user" } else { "assistant" };
                    self.say(self.messages.len(), role, input.id.to_string(), &run.id, input.json.clone());
                }
                self.point(CheckpointKind::Entry, head);
                run.reply = self.messages.len();
            }
        }
        if run.message.is_empty() {
            run.message = message_id(self.runs.len() + 1, run.reply);
        }
        if state.is_some() {
            self.state.clone_from(&state);
            self.points.last_mut().unwrap().state = state;
        }
        self.chunks.extend(opening.into_iter().map(|text| (run.id.clone(), text)));
        (self.exists, self.stream) = (true, Some(StreamStatus::Active));
        self.runs.push(run);
    }

    /// The message of the run that writes, as JSON: what it begins with and all of the run's chunks so far.
    pub fn reply(&self) -> String {
        let run = self.runs.last().unwrap();
        let chunks = self.chunks.iter().filter(|(id, _)| *id == run.id).map(|(_, text)| text.as_str());
        quoted(&std::iter::once(run.base.as_str()).chain(chunks).collect::<String>())
    }

    /// Several commits in one transaction are one: the last.
    pub fn write(&mut self, items: &[Item], deed: &Deed, now: UnixMillis, lease: UnixMillis) {
        if let (Deed::Answer(base), true) = (deed, items.iter().any(|item| matches!(item, Item::Commit))) {
            self.runs.last_mut().unwrap().base.clone_from(base);
        }
        let mut committed = None;
        let own = self.lays_its_own(false);
        for item in items {
            match item {
                Item::Chunk(text) => self.chunks.push((self.runs.last().unwrap().id.clone(), text.clone())),
                Item::Commit if own && matches!(deed, Deed::Finish(_) | Deed::LastWords) => {}
                Item::Commit => committed = Some((self.chunks.len(), self.reply())),
            }
        }
        let run = self.runs.last().unwrap().clone();
        let cursor = committed.map(|(cursor, json)| {
            self.say(run.reply, "assistant", run.message.clone(), &run.id, json);
            self.messages.truncate(run.reply + 1);
            cursor
        });
        match (deed, cursor) {
            (Deed::Finish(outcome), _) => {
                self.point(CheckpointKind::End, self.chunks.len());
                self.finish(*outcome, now, lease);
            }
            (_, Some(cursor)) => self.point(CheckpointKind::Step, cursor),
            (_, None) => {}
        }
    }

    pub(super) fn finish(&mut self, outcome: Outcome, now: UnixMillis, lease: UnixMillis) {
        let (head, run) = (self.chunks.len(), self.runs.last_mut().unwrap());
        if run.status == RunStatus::Running {
            run.lease = lease;
        }
        (run.status, run.end) = (outcome.status(), Some(head));
        self.stream = Some(match outcome {
            Outcome::Completed | Outcome::Interrupted => StreamStatus::Ended,
            Outcome::Suspended | Outcome::Paused(_) => StreamStatus::Paused,
            Outcome::Failed(code) => {
                run.error = Some(code);
                StreamStatus::Failed
            }
        });
        match outcome {
            Outcome::Suspended | Outcome::Paused(_) => run.paused = Some(head),
            _ => run.ended = Some(now),
        }
    }

    /// The finished runs whose chunks are kept, oldest first, with where and when they ended. A run without chunks keeps nothing.
    pub fn kept(&self) -> impl Iterator<Item = (usize, UnixMillis)> {
        let ended =
            self.runs.iter().filter(|run| run.end > Some(run.start)).filter_map(|run| Some((run.end?, run.ended?)));
        ended.filter(|(end, _)| *end > self.floor)
    }

    /// Since when nothing happens; `None` while a run is running, and when there is no session.
    pub fn idle_since(&self) -> Option<UnixMillis> {
        let run = self.runs.last().filter(|run| run.status != RunStatus::Running)?;
        Some(run.started.max(run.ended.unwrap_or(run.lease)))
    }

    pub fn start_refusal(&self, entry: &Entry) -> Option<StartRefused> {
        let fits = match entry {
            Entry::Send { .. } if self.busy().is_some() => {
                return self.busy().map(|run| StartRefused::AlreadyRunning(run.id.clone()));
            }
            Entry::Send { abandoned, .. } => abandoned.is_some() == self.asking().is_some(),
            Entry::Results { .. } => self.suspended().is_some(),
            Entry::Push { supersede: false, .. } if self.live().is_some() => {
                return self.live().map(|run| StartRefused::AlreadyRunning(run.id.clone()));
            }
            Entry::Push { abandoned, .. } => abandoned.is_some() == self.suspended().is_some(),
            Entry::Rewind { keep, .. } => {
                let waits = self.suspended().is_some_and(|run| *keep as usize > run.reply);
                self.exists && *keep as usize <= self.messages.len() && !waits
            }
        };
        (!fits).then_some(StartRefused::Conflict)
    }

    pub fn refusal(&self, fence: &Fence, deed: &Deed) -> Option<WriteRefused> {
        let Some(run) = self.runs.last().filter(|run| run.id == fence.run) else {
            return Some(WriteRefused::Superseded);
        };
        if run.epoch != fence.epoch {
            return Some(WriteRefused::StaleEpoch(run.epoch));
        }
        let fits = match deed {
            Deed::Append | Deed::Finish(Outcome::Completed | Outcome::Suspended | Outcome::Paused(_)) => {
                run.status == RunStatus::Running
            }
            Deed::Answer(_) => run.status == RunStatus::SuspendedClientTool,
            Deed::Finish(_) | Deed::LastWords => run.status.is_live(),
        };
        (!fits).then_some(WriteRefused::Ended)
    }
}

/// The id that the session gives the reply at an index which the run of a turn begins.
pub fn message_id(turn: usize, index: usize) -> String {
    format!("msg_salt_{turn}_{index}")
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

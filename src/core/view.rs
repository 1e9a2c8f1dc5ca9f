//! What readers may see of a session: only what is durable.

use std::collections::VecDeque;
use std::rc::Rc;

use super::error::Code;
use super::ids::{Cursor, MessageId, RunId};
use super::run::StreamStatus;
use super::run::{EntryKind, RunStatus, Vocabulary};
use super::storage::{CheckpointRow, RunRow};

/// Runs whose end is kept in memory for readers that lag behind them.
const KEPT_RUNS: usize = 16;

/// Runs that will never start which are kept in memory for their readers: more than a queue can hold.
const KEPT_GIVEN_UP: usize = 1_024;

/// Why a run failed, as its clients are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The class of the failure.
    pub code: Code,
    /// How long to wait before trying again, in ms, when the other side said so.
    pub retry_after_ms: Option<u64>,
    /// What people are told, when it is the app's own text.
    pub words: Option<Rc<str>>,
}

impl Fault {
    /// What a run's row says of it; of a failed run without a code, a fault of the service.
    pub fn of(run: &RunRow) -> Self {
        let words = run.error_text.as_deref().map(Rc::from);
        Self {
            retry_after_ms: run.retry_after_ms,
            words,
            ..Self::from(run.error.unwrap_or(Code::FrameworkInternalError))
        }
    }

    /// The words for people: the app's own, else the code's.
    pub fn words(&self) -> &str {
        self.words.as_deref().unwrap_or_else(|| self.code.message())
    }
}

impl From<Code> for Fault {
    fn from(code: Code) -> Self {
        Self { code, retry_after_ms: None, words: None }
    }
}

/// A run as readers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunView {
    /// The run.
    pub id: RunId,
    /// Where it stands.
    pub status: RunStatus,
    /// What started it.
    pub entry: EntryKind,
    /// The message that its response writes.
    pub message_id: MessageId,
    /// That message's place in the conversation.
    pub message_index: u32,
    /// The language of its chunks.
    pub vocabulary: Vocabulary,
    /// Cursor that precedes its first chunk.
    pub start: Cursor,
    /// Its last chunk, once it has ended.
    pub end: Option<Cursor>,
    /// What ended it, if it failed.
    pub fault: Option<Fault>,
    /// What its terminal says besides, once a producer outside has ended or paused it.
    pub last: Option<Rc<LastWords>>,
    /// Whether it had paused before another run took its place: that is how its responses end.
    pub paused: bool,
}

/// What stands in the terminal of a run whose producer is outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastWords {
    /// What the producer said with the run's end: `output` and `usage`, as JSON text.
    pub result: Option<String>,
    /// The conversation's state then, as JSON text.
    pub state: Option<String>,
}

impl RunView {
    /// As [`RunView::of`], for a run that may have ended at this checkpoint.
    pub fn ended_at(run: &RunRow, checkpoint: Option<&CheckpointRow>) -> Self {
        let said = run.push.as_ref().filter(|_| run.end.is_some()).map(|push| {
            let state = checkpoint.and_then(|last| last.state.clone());
            Rc::new(LastWords { result: push.result.clone(), state })
        });
        Self { last: said, ..Self::of(run) }
    }

    /// The readable part of a run's row.
    pub fn of(run: &RunRow) -> Self {
        Self {
            id: run.id.clone(),
            status: run.status,
            entry: run.entry,
            message_id: run.message_id.clone(),
            message_index: run.message_index,
            vocabulary: run.vocabulary,
            start: run.start,
            end: run.end,
            fault: (run.status == RunStatus::Failed).then(|| Fault::of(run)),
            last: None,
            paused: false,
        }
    }
}

impl RunView {
    /// Whether another run answers the same message once more.
    pub fn is_retried_by(&self, next: &Self) -> bool {
        next.entry == EntryKind::Retry && next.message_index == self.message_index
    }
}

/// Everything durable that a reader needs to decide what comes next.
#[derive(Clone, Debug, Default)]
pub struct View {
    durable: Cursor,
    durable_bytes: u64,
    stored: Cursor,
    floor: Cursor,
    status: Option<StreamStatus>,
    runs: VecDeque<RunView>,
    starting: Vec<RunId>,
    /// Runs whose messages wait in the queue.
    queued: Vec<RunId>,
    /// The last ones whose messages were taken out of the queue.
    given_up: VecDeque<RunId>,
}

impl View {
    /// The view of a session that was just read from its rows.
    pub fn new(durable: Cursor, floor: Cursor, status: Option<StreamStatus>, run: Option<RunView>) -> Self {
        Self {
            durable,
            durable_bytes: 0,
            stored: durable,
            floor,
            status,
            runs: run.into_iter().collect(),
            starting: Vec::new(),
            queued: Vec::new(),
            given_up: VecDeque::new(),
        }
    }

    /// The durable head.
    pub fn durable(&self) -> Cursor {
        self.durable
    }

    /// Bytes of the frames that became durable since the log was loaded.
    pub fn durable_bytes(&self) -> u64 {
        self.durable_bytes
    }

    /// The highest sequence that retention has removed; a reader that lacks it or what lies before it has to read the snapshot.
    pub fn floor(&self) -> Cursor {
        self.floor
    }

    /// The stream's own status; `None` when the session does not exist.
    pub fn status(&self) -> Option<StreamStatus> {
        self.status
    }

    /// The current or last run.
    pub fn run(&self) -> Option<&RunView> {
        self.runs.back()
    }

    /// A recent run by its id.
    pub fn find(&self, id: &RunId) -> Option<&RunView> {
        self.runs.iter().rev().find(|run| run.id == *id)
    }

    /// The run that came after this one.
    pub fn successor(&self, id: &RunId) -> Option<&RunView> {
        let at = self.runs.iter().position(|run| run.id == *id)?;
        self.runs.get(at.saturating_add(1))
    }

    /// The run that goes on with this one's message.
    pub fn continuation(&self, id: &RunId) -> Option<&RunView> {
        let (run, next) = self.find(id).zip(self.successor(id))?;
        (next.entry == EntryKind::ToolResult && next.message_id == run.message_id).then_some(next)
    }

    /// Whether the run that came after this one answers the same message once more: its reply stands in the same place.
    pub fn is_retried(&self, id: &RunId) -> bool {
        let pair = self.find(id).zip(self.successor(id));
        pair.is_some_and(|(run, next)| run.is_retried_by(next))
    }

    /// Whether this run has started and is not durable yet, or waits in the queue: its readers wait.
    pub fn awaits(&self, id: &RunId) -> bool {
        self.starting.contains(id) || self.queued.contains(id)
    }

    /// Whether this run will never start, because its message was taken out of the queue.
    pub fn has_given_up(&self, id: &RunId) -> bool {
        self.given_up.contains(id)
    }

    /// The last sequence that was handed to storage, durable or not. Readers wait for it.
    pub fn stored(&self) -> Cursor {
        self.stored
    }

    pub(super) fn stores(&mut self, head: Cursor) {
        self.stored = head;
    }

    /// At once, not with the confirmation: the chunks are gone, and "read the snapshot" is true even when a crash brings them back.
    pub(super) fn cut(&mut self, floor: Cursor) {
        self.floor = self.floor.max(floor);
    }

    pub(super) fn starts(&mut self, id: RunId) {
        self.queued.retain(|queued| *queued != id);
        self.starting.push(id);
    }

    pub(super) fn queues(&mut self, id: RunId) {
        self.queued.push(id);
    }

    pub(super) fn gives_up(&mut self, id: RunId) {
        self.queued.retain(|queued| *queued != id);
        self.given_up.push_back(id);
        while self.given_up.len() > KEPT_GIVEN_UP {
            self.given_up.pop_front();
        }
    }

    pub(super) fn advance(
        &mut self,
        durable: Cursor,
        bytes: u64,
        status: StreamStatus,
        runs: impl IntoIterator<Item = RunView>,
    ) {
        self.durable = durable;
        self.durable_bytes = self.durable_bytes.max(bytes);
        self.status = Some(status);
        for run in runs {
            self.starting.retain(|starting| *starting != run.id);
            match self.runs.back_mut().filter(|last| last.id == run.id) {
                Some(last) => *last = run,
                None => self.runs.push_back(run),
            }
        }
        while self.runs.len() > KEPT_RUNS {
            self.runs.pop_front();
        }
    }
}

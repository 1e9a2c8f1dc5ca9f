//! What a pushed chunk becomes in the log: exactly one stored chunk, or a refusal that takes no number.
//!
//! | vocabulary | a chunk is | stored | chat shows |
//! |---|---|---|---|
//! | `ui` | an AI SDK UI chunk that every client can read at its place (`ui_rules`), or a `state_patch` | with the keys that it came with | itself |
//! | `helix` | an object with a string `type` | as it came, with the run's id | its projection (`helix::projector`) |
//! | `opaque` | any JSON | an object with a string `type` as it came, all else as `{type: "opaque", value}` | nothing |
//!
//! A call's id is the producer's own in what it says, and the session's name of the call in the log (`core::call_ids`): where the id was
//! another call's before, they differ. An input that says a call of an earlier step once more becomes [`PRODUCER_INPUT`] in `ui`.
//!
//! In `ui` some chunks change: the run has its `start` already, so that a pushed one becomes `message-metadata`, or without metadata
//! [`PRODUCER_START`], which chat leaves out (as it does [`PRODUCER_RESET`], a `reset-step` with nothing to take back); an approval gets the id `runId::toolCallId` (the producer's own stays beside it, and is
//! understood); what answers a call of the continued message is marked as such. `error` and `abort` are not chunks here: a run fails by
//! `fail` and stops by `end`. `finish` is the last chunk.
//!
//! [`Admission`] is a run's state between two chunks. What a chunk costs does not grow with the run, so nothing here is copied for one. A
//! chunk that is refused changes nothing; when the second of several is, or what was admitted is not stored, the state is read again from
//! the log ([`Admission::replay`]), as after a restart.

mod calls;
mod helix;
mod ui;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use calls::Named;

use super::helix_marks::Marks;
use super::reason::{NotWhole, Reason};
use crate::core::call_ids::{CallIds, CallName};
use crate::core::chunk::{Chunk, STAMP_KEYS, is_too_deep};
use crate::core::ids::{AttemptId, Cursor, MessageId, RunId, Sequence};
use crate::core::record::Record;
use crate::core::run::Vocabulary;
use crate::core::state::{StateRefused, patched};
use crate::dialect::helix::projector::{Projector, apply};
use crate::dialect::helix::words::{STATE_PATCH, state_operations};
use crate::dialect::ui::fold::Fold;

/// Type of a chunk that stands for a pushed `start` without metadata.
pub const PRODUCER_START: &str = "producer_start";

/// Type of a chunk that stands for a pushed `reset-step` of a step without content.
pub const PRODUCER_RESET: &str = "producer_reset_step";

/// Type of a chunk that holds a pushed value which is no chunk.
pub const OPAQUE: &str = "opaque";

/// Type of a chunk that stands for a pushed input of a call which the message holds, and which its client need not read again.
pub const PRODUCER_INPUT: &str = "producer_tool_input";

/// The key under which an approval request keeps the id that its producer gave it.
const PRODUCER_APPROVAL: &str = "producerApprovalId";

/// Text of the result that a call gets when its run ends without one.
const NOT_EXECUTED: &str = "Not executed: the reply was interrupted";

/// A chunk as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Admitted {
    /// The chunk, without its stamp.
    pub chunk: Chunk,
    /// The attempt and step of the stamp.
    pub attempt: Option<(AttemptId, u32)>,
    /// The name that a call gets which the chunk begins.
    pub name: Option<CallName>,
}

impl Admitted {
    /// What is written for it.
    pub fn records(self) -> impl Iterator<Item = Record> {
        let Self { chunk, attempt, name } = self;
        name.map(Record::Call).into_iter().chain([Record::Chunk { chunk, attempt }])
    }
}

/// What a commit without messages writes.
#[derive(Clone, Debug, PartialEq)]
pub struct Folded {
    /// The response message; `None` while it has no parts.
    pub message: Option<Value>,
    /// Everything up to here is in it.
    pub cursor: Cursor,
    /// Steps that the run has finished.
    pub step_count: u32,
    /// The session's state; `None` when it has none.
    pub state: Option<Value>,
}

/// What an admission starts from.
#[derive(Clone, Debug)]
pub struct Opened {
    /// The language of the chunks.
    pub vocabulary: Vocabulary,
    /// The run.
    pub run: RunId,
    /// The message that it writes.
    pub message_id: MessageId,
    /// That message as an earlier run has committed it, when the run continues it.
    pub base: Option<Value>,
    /// The session's state at the run's start.
    pub state: Option<Value>,
    /// Cursor before the first chunk to come.
    pub at: Cursor,
    /// The names that the session's calls have taken.
    pub calls: CallIds,
}

#[derive(Clone, Debug)]
enum Language {
    Ui,
    Helix { projector: Box<Projector>, marks: Marks },
    Opaque,
}

/// A pushed run between two of its chunks.
#[derive(Clone, Debug)]
pub struct Admission {
    run: RunId,
    language: Language,
    fold: Fold,
    /// Parts of the continued message.
    inherited: usize,
    state: Option<Value>,
    /// The state when the open step began.
    state_before: Option<Value>,
    at: Cursor,
    /// Place of the first part behind the step's boundary, while a step is open.
    step_from: Option<usize>,
    steps: u32,
    finished: bool,
    calls: CallIds,
    /// The producer's ids of approvals, and the log's.
    approvals: BTreeMap<String, String>,
    done: Option<Done>,
}

/// The end of the last finished step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Its last chunk.
    pub cursor: Cursor,
    /// Steps that the run had finished then.
    pub step_count: u32,
}

/// What a commit without `throughSequence` covers.
#[derive(Clone, Debug, PartialEq)]
pub enum Covered {
    /// All.
    Here(Folded),
    /// Up to the end of the last finished step: what the message was there is read again from the log.
    Through(Done),
}

impl Admission {
    /// A run before its first chunk.
    pub fn new(opened: Opened) -> Self {
        let Opened { vocabulary, run, message_id, base, state, at, calls } = opened;
        let continues = base.is_some();
        let fold = base.map_or_else(|| Fold::new(&message_id), Fold::continuing);
        let language = match vocabulary {
            Vocabulary::Ui => Language::Ui,
            Vocabulary::Helix => {
                let projector = match continues {
                    true => Projector::continuing(run.clone(), &fold),
                    false => Projector::new(run.clone(), message_id),
                };
                Language::Helix { projector: Box::new(projector), marks: Marks::new(run.clone()) }
            }
            Vocabulary::Opaque => Language::Opaque,
        };
        Self {
            run,
            language,
            inherited: fold.part_count(),
            fold,
            state_before: state.clone(),
            state,
            at,
            step_from: None,
            steps: 0,
            finished: false,
            calls,
            approvals: BTreeMap::new(),
            done: None,
        }
    }

    /// Takes the next pushed value: the one chunk to store for it. It counts as stored at the sequence behind [`Admission::at`].
    ///
    /// # Errors
    /// [`Reason`]; nothing has changed.
    pub fn admit(&mut self, value: Value) -> Result<Admitted, Reason> {
        if is_too_deep(&value) {
            return Err(Reason::TooDeep);
        }
        if matches!(self.language, Language::Opaque) {
            let sequence = self.at.next().map_err(|_| Reason::Full)?;
            self.at = sequence.cursor();
            return Ok(Admitted { chunk: opaque(value), attempt: None, name: None });
        }
        let named = self.named(Chunk::parse(value).map_err(|_| Reason::NotAChunk)?)?;
        let name = named.name.clone();
        let admitted = self.admit_named(named)?;
        if let Some(name) = &name {
            self.calls.take(name.clone());
        }
        Ok(Admitted { name, ..admitted })
    }

    /// Takes a chunk whose call has its name.
    fn admit_named(&mut self, named: Named) -> Result<Admitted, Reason> {
        let sequence = self.at.next().map_err(|_| Reason::Full)?;
        let admitted = match self.language {
            Language::Helix { .. } => self.admit_helix(named.chunk, sequence)?,
            _ => self.admit_ui(named, sequence)?,
        };
        self.at = sequence.cursor();
        Ok(admitted)
    }

    /// Takes note of the run's next stored chunk, stamp included, as [`Admission::admit`] and [`Admission::close`] have made it, or the
    /// object itself.
    pub fn replay(&mut self, sequence: Sequence, chunk: &Chunk) {
        match &mut self.language {
            Language::Ui => {
                if chunk.kind() == "finish" {
                    self.finished = true;
                }
                if self.fold.apply(chunk).is_ok() {
                    self.state = self.patched_by(chunk).ok().flatten().or(self.state.take());
                    self.note_ui(chunk, sequence);
                }
            }
            Language::Helix { marks, .. } => {
                marks.mark(chunk).ok();
                if let Ok(state) = self.patched_by(chunk) {
                    self.take_helix(chunk, sequence, state);
                }
            }
            Language::Opaque => {}
        }
        self.at = sequence.cursor();
    }

    /// The last chunk that was taken, or the run's start.
    pub fn at(&self) -> Cursor {
        self.at
    }

    /// Whether the producer's `finish` was taken.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// The session's state after the last chunk.
    pub fn state(&self) -> Option<&Value> {
        self.state.as_ref()
    }

    /// A commit has replaced the state; later patches apply to this one.
    pub fn set_state(&mut self, state: Option<Value>) {
        self.state_before.clone_from(&state);
        self.state = state;
    }

    /// The language of the chunks.
    pub fn vocabulary(&self) -> Vocabulary {
        match self.language {
            Language::Ui => Vocabulary::Ui,
            Language::Helix { .. } => Vocabulary::Helix,
            Language::Opaque => Vocabulary::Opaque,
        }
    }

    /// The run's message as far as it came; `None` while it has no parts, and for what is opaque.
    pub fn message(&self) -> Option<Value> {
        self.fold.message()
    }

    /// The session's name of the call that the producer means by this id.
    pub fn meant<'a>(&'a self, own: &'a str) -> &'a str {
        crate::dialect::ui::calls::meant(&self.fold, &self.calls, own)
    }

    /// Whether the run's own message has this call, by the session's name.
    pub fn has_call(&self, call: &str) -> bool {
        self.fold.call(call).is_some()
    }

    /// Takes a chunk that names its call as the session does.
    pub(super) fn admit_known(&mut self, chunk: Chunk) -> Option<Admitted> {
        self.admit_named(Named::known(chunk)).ok()
    }

    /// Whether the run's message has this call, by the session's name, and it waits for a result or an approval.
    pub(super) fn waits_for(&self, call: &str) -> bool {
        self.fold.call(call).is_some_and(|call| !call.is_settled() && call.state() != "input-streaming")
    }

    /// Calls that wait for a result or an approval, as their producer calls them.
    pub fn pending_calls(&self) -> Vec<String> {
        let open = self.fold.calls().filter(|call| !call.is_settled() && call.state() != "input-streaming");
        open.map(|call| self.calls.own_of(call.id()).to_owned()).collect()
    }

    /// What a commit without `throughSequence` covers: all, when no step is open and nothing is half said; else up to the end of the last
    /// finished step.
    ///
    /// # Errors
    /// [`NotWhole`].
    pub fn commit(&self) -> Result<Covered, NotWhole> {
        if self.step_from.is_none() && (self.half_said().is_none() || matches!(self.language, Language::Opaque)) {
            return self.here().map(Covered::Here);
        }
        self.done.map(Covered::Through).ok_or(NotWhole::NoStep)
    }

    /// What a commit at exactly this place covers.
    ///
    /// # Errors
    /// [`NotWhole`] in the middle of a part.
    pub fn here(&self) -> Result<Folded, NotWhole> {
        if matches!(self.language, Language::Opaque) {
            return Err(NotWhole::Opaque);
        }
        if let Some(open) = self.half_said() {
            return Err(NotWhole::Open(open));
        }
        Ok(self.folded())
    }

    /// What a commit at `cursor` covers, once the run's chunks were replayed up to there.
    ///
    /// # Errors
    /// [`NotWhole`].
    pub fn through(&self, cursor: Cursor) -> Result<Folded, NotWhole> {
        if self.at == cursor { self.here() } else { Err(NotWhole::NoSuchPlace) }
    }

    /// The closing chunks of a run that ends here: what is open is closed. With `broken` (stopped, failed, dead) calls without a result get
    /// one too, because a model refuses a conversation with an unanswered call; a run that suspends keeps them.
    ///
    /// None behind a `finish`, and none for what is opaque.
    pub fn close(&mut self, broken: bool) -> Vec<Admitted> {
        if self.finished {
            return Vec::new();
        }
        let mut closing = Vec::new();
        if broken {
            let open = self.fold.calls().filter(|call| !call.is_settled() && call.state() != "input-streaming");
            closing.extend(open.map(|call| match (&self.language, call.state()) {
                (Language::Helix { .. }, _) => {
                    json!({"type": "tool_end", "toolCallId": call.id(), "toolName": call.tool(),
                    "success": false, "error": NOT_EXECUTED})
                }
                (_, "approval-requested") => json!({"type": "tool-output-denied", "toolCallId": call.id()}),
                _ => json!({"type": "tool-output-error", "toolCallId": call.id(), "errorText": NOT_EXECUTED}),
            }));
        }
        if matches!(self.language, Language::Ui) {
            closing.extend(self.fold.open_blocks().map(|(id, reasoning)| {
                let kind = if reasoning { "reasoning-end" } else { "text-end" };
                json!({"type": kind, "id": id})
            }));
            closing.extend(self.step_from.map(|_| json!({"type": "finish-step"})));
        }
        let closing = closing.into_iter().filter_map(|value| Chunk::parse(value).ok());
        closing.filter_map(|chunk| self.admit_named(Named::known(chunk)).ok()).collect()
    }

    /// What the run's last commit writes, after [`Admission::close`]: the message as far as it came.
    ///
    /// # Errors
    /// [`NotWhole::Opaque`].
    pub fn last(&self) -> Result<Folded, NotWhole> {
        let mut last = self.clone();
        match &mut last.language {
            Language::Opaque => return Err(NotWhole::Opaque),
            Language::Ui => {}
            Language::Helix { projector, .. } => {
                for chunk in projector.close() {
                    last.steps = last.steps.saturating_add(u32::from(chunk.kind() == "finish-step"));
                    apply(&mut last.fold, &chunk);
                }
            }
        }
        Ok(last.folded())
    }

    fn folded(&self) -> Folded {
        Folded { message: self.fold.message(), cursor: self.at, step_count: self.steps, state: self.state.clone() }
    }

    /// The part in whose middle the run stands.
    fn half_said(&self) -> Option<String> {
        if let Some((id, reasoning)) = self.fold.open_blocks().next() {
            return Some(format!("the {} part {id}", if reasoning { "reasoning" } else { "text" }));
        }
        self.fold.open_input().map(|call| format!("the input of the call {call}"))
    }

    fn patched_by(&self, chunk: &Chunk) -> Result<Option<Value>, Reason> {
        if chunk.kind() != STATE_PATCH {
            return Ok(None);
        }
        let operations = state_operations(chunk).ok_or(StateRefused::NotAPatch)?;
        let empty = json!({});
        Ok(Some(patched(self.state.as_ref().unwrap_or(&empty), operations)?))
    }
}

/// Any JSON as a chunk; an object that names its type and none of the log's own keys is one.
fn opaque(value: Value) -> Chunk {
    let wrapped = |value: Value| Chunk::new(OPAQUE).with("value", value);
    let taken = |map: &Map<String, Value>| {
        map.get("type").and_then(Value::as_str).is_none_or(|kind| kind == OPAQUE)
            || STAMP_KEYS.iter().any(|key| map.contains_key(*key))
    };
    match value {
        Value::Object(map) if !taken(&map) => Chunk::parse(Value::Object(map)).unwrap_or_else(|_| Chunk::new(OPAQUE)),
        value => wrapped(value),
    }
}

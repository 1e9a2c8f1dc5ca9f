//! How a run starts: first the plan, with every id that the run's first records may name, then the start with those records.
//!
//! A plan is the whole decision. It fits for as long as the session decides nothing else, and a start with one that does not fit any more is
//! refused.

use super::Session;
use super::records::{Draft, Place, checkpoint_after, chunks_of, names_in};
use crate::core::call_ids::CallIds;
use crate::core::command::{Abandoned, Entry, Input, Opening, RewindCause, Rewound, Start, StartRefused, Started};
use crate::core::ids::{Cursor, MessageId};
use crate::core::log::{Encoded, Ticket};
use crate::core::record::Record;
use crate::core::run::{EntryKind, Outcome, RunStatus, StreamStatus};
use crate::core::storage::{CheckpointKind, CheckpointRow, Life, MessageRow, Pushed, RunRow, SessionRow, Write};
use crate::core::time::UnixMillis;
use crate::core::view::RunView;

/// A start that was decided.
#[derive(Debug)]
pub struct Plan {
    /// The ticket that the session would hand out next: with another one it has decided something else since.
    fits: Ticket,
    now: UnixMillis,
    opening: Opening,
    /// What the run whose place is taken says first.
    last: Option<Last>,
    row: SessionRow,
    run: RunRow,
    /// The run whose place is taken, as it ends with this start, and whether it waited.
    ended: Option<(RunRow, bool)>,
    /// Rows of messages.
    messages: Vec<Write>,
    checkpoints: Vec<CheckpointRow>,
    /// The place in the queue that becomes free.
    dequeues: Option<u32>,
}

/// The last words of a live run.
#[derive(Debug)]
pub(super) struct Last {
    /// What they come to.
    pub(super) draft: Draft,
    /// The run, and its session, that is stopped with them; what else becomes of it the start says.
    pub(super) stopped: Option<(RunRow, SessionRow)>,
}

impl Plan {
    /// What the run's first records are made from.
    pub fn opening(&self) -> &Opening {
        &self.opening
    }

    /// The same behind the last words of the run whose place is taken.
    pub(super) fn behind(self, last: Last) -> Self {
        Self { last: Some(last), ..self }
    }

    /// The same of the message that waits at this place.
    pub(super) fn of_queued(self, place: u32) -> Self {
        Self { dequeues: Some(place), ..self }
    }
}

/// What a start is decided on: the session as it is, or as a live run's last words will leave it.
pub(super) struct Standing<'a> {
    pub(super) run: Option<&'a RunRow>,
    pub(super) checkpoint: Option<&'a CheckpointRow>,
    pub(super) head: Cursor,
    pub(super) calls: CallIds,
}

/// The message that a run writes, and what stays before it.
struct Reply {
    kind: EntryKind,
    /// Messages that stay.
    keep: u32,
    message_index: u32,
    message_id: MessageId,
}

impl Session {
    /// Decides a run's start: its input, its claim and the commit that precedes its first chunk.
    ///
    /// # Errors
    /// [`StartRefused`].
    pub fn plan(&self, start: Start<'_>) -> Result<Plan, StartRefused> {
        self.may_start(start.caller, &start.entry)?;
        let (run, checkpoint) = (self.run.as_ref(), self.checkpoint.as_ref());
        let standing = Standing { run, checkpoint, head: self.log.head(), calls: self.calls.clone() };
        Ok(self.plan_on(standing, start))
    }

    /// As [`Session::plan`], of a run that may start.
    pub(super) fn plan_on(&self, standing: Standing<'_>, start: Start<'_>) -> Plan {
        let before = standing.head;
        let salt = self.row.as_ref().map_or(start.salt, |row| &row.salt).to_owned();
        let turn = standing.run.map_or(1, |run| run.turn.saturating_add(1));
        let reply = standing.reply(&start.entry, &salt, turn);
        let row = SessionRow {
            owner: self.row.as_ref().map_or(start.caller.owner().map(str::to_owned), |row| row.owner.clone()),
            salt: salt.clone(),
            created: self.row.as_ref().map_or(start.now, |row| row.created),
            floor: self.log.floor(),
            run: Some(start.run.clone()),
            status: StreamStatus::Active,
        };
        let run = self.fresh_run(&start, &reply, turn, before);
        let paused = standing.run.is_some_and(|run| run.status.is_suspended());
        let live = standing.run.filter(|run| run.status.is_live());
        let ended = live.map(|run| (taken_over(run, &reply, before, start.now), paused));

        let point = |last: Option<&CheckpointRow>, kind, message_count| {
            checkpoint_after(last, Place { kind, message_count, sequence: before, step_count: 0 }, &start.run, &salt)
        };
        let (mut messages, mut checkpoints) = (Vec::new(), Vec::new());
        let mut rewound = None;
        if let Entry::Rewind { cause, .. } = &start.entry {
            messages.push(Write::TruncateMessages(reply.keep));
            let checkpoint = point(standing.checkpoint, CheckpointKind::Truncate, reply.keep);
            rewound = Some(rewound_to(&checkpoint, *cause));
            checkpoints.push(checkpoint);
        }
        let user = |input: Input| (input, "user".to_owned());
        let (inputs, rewritten) = match start.entry {
            Entry::Send { input, abandoned } => (vec![user(input)], abandoned.and_then(|run| run.message)),
            Entry::Results { message } => (Vec::new(), message),
            Entry::Push { inputs, abandoned, .. } => (inputs, abandoned.and_then(|run| run.message)),
            Entry::Rewind { input, .. } => (input.map(user).into_iter().collect(), None),
        };
        if let (Some(json), Some(previous)) = (rewritten, standing.run) {
            messages.push(Write::Message(MessageRow {
                index: previous.message_index,
                id: previous.message_id.clone(),
                role: "assistant".to_owned(),
                run: Some(if reply.kind == EntryKind::ToolResult { run.id.clone() } else { previous.id.clone() }),
                json,
            }));
        }
        let mut count = reply.keep;
        for (input, role) in inputs {
            messages.push(Write::Message(MessageRow {
                index: count,
                id: input.id,
                role,
                run: Some(run.id.clone()),
                json: input.json,
            }));
            count = count.saturating_add(1);
        }
        if count > reply.keep || rewound.is_none() {
            checkpoints.push(point(checkpoints.last().or(standing.checkpoint), CheckpointKind::Entry, count));
        }
        let displaces = rewound.is_none() && !paused && ended.is_some();
        let displaced = checkpoints.last().filter(|_| displaces).map(|last| rewound_to(last, RewindCause::Rollback));
        if let (Some(state), Some(last)) = (start.state, checkpoints.last_mut()) {
            last.state = Some(state);
        }
        let mut calls = standing.calls;
        calls.begin_run(turn);
        let opening = Opening { run: start.run, message_id: reply.message_id, rewound, displaced, calls };
        let (fits, now) = (self.tickets, start.now);
        Plan { fits, now, opening, last: None, row, run, ended, messages, checkpoints, dequeues: None }
    }

    /// Starts a run as it was planned, with its first records, in one transaction.
    ///
    /// # Errors
    /// [`StartRefused::Conflict`] when the plan does not fit any more, [`StartRefused::Full`]; nothing has changed.
    pub fn start(&mut self, plan: Plan, records: &[Record]) -> Result<Started, StartRefused> {
        let Plan { fits, now, opening, last, row, mut run, ended, messages, mut checkpoints, dequeues } = plan;
        if fits != self.tickets {
            return Err(StartRefused::Conflict);
        }
        let (before, turn) = (run.start, run.turn);
        let encoded = Encoded::after(before, chunks_of(&run.id, records).iter().map(|(c, s)| (*c, s)))?;
        // Nothing is refused from here on.
        let (mut writes, chunks) = match last {
            None => (Vec::new(), 0),
            // Counted with those of the start.
            Some(Last { draft, stopped: None }) => (self.lay(draft), 0),
            Some(Last { draft, stopped: Some(stopped) }) => {
                let stopped = self.end(now, stopped, Outcome::Interrupted, draft);
                (stopped.writes, stopped.chunks)
            }
        };
        if let Some(push) = &mut run.push {
            // The run's opening is its own; its producer counts from here.
            push.at = encoded.through();
        }
        writes.push(Write::Session(row.clone()));
        writes.extend(ended.iter().map(|(run, _)| Write::Run(run.clone())));
        writes.push(Write::Run(run.clone()));
        writes.extend(messages);
        writes.extend(checkpoints.iter().cloned().map(Write::Checkpoint));
        writes.extend(self.log.store(&run.id, encoded));
        self.calls = opening.calls;
        writes.extend(self.take_names(turn, names_in(records)));
        writes.extend(self.forget_held());
        if let Some(place) = dequeues {
            self.queue.retain(|waiting| waiting.place != place);
            writes.push(Write::Dequeue(place));
        }

        let fence = run.fence();
        let superseded = ended.as_ref().filter(|(run, _)| run.status == RunStatus::Superseded);
        let superseded = superseded.map(|(run, _)| run.id.clone());
        self.view.starts(run.id.clone());
        self.row = Some(row);
        self.run = Some(run);
        self.orphaned = false;
        self.truncated = opening.rewound.map(|rewound| rewound.checkpoint).or(self.truncated.take());
        self.checkpoint = checkpoints.pop().or(self.checkpoint.take());
        if ended.is_some() {
            self.has_ended(now, before);
        }
        let ended = ended.map(|(run, paused)| RunView { paused, ..RunView::of(&run) });
        let mut effects = self.effects_of(writes, ended);
        effects.chunks = effects.chunks.saturating_add(chunks);
        Ok(Started { effects, fence, message_id: opening.message_id, start: before, superseded })
    }

    fn fresh_run(&self, start: &Start<'_>, reply: &Reply, turn: u32, before: Cursor) -> RunRow {
        RunRow {
            turn,
            id: start.run.clone(),
            status: RunStatus::Running,
            entry: reply.kind,
            request_key: start.key.as_ref().map(|keyed| keyed.key.as_str().to_owned()),
            input_hash: start.key.as_ref().map(|keyed| keyed.input_hash.clone()),
            start: before,
            end: None,
            message_index: reply.message_index,
            message_id: reply.message_id.clone(),
            lease_until: start.now.after(start.push.unwrap_or(start.lease)),
            epoch: 1,
            attempts: 1,
            vocabulary: start.vocabulary,
            agent: start.agent.to_owned(),
            started: start.now,
            ended: None,
            error: None,
            retry_after_ms: None,
            error_text: None,
            push: start.push.map(|lease| Pushed { lease, next: 0, at: before, result: None }),
            life: Life { unfollowed: self.policy.detached.map(|_| start.now), ..Life::default() },
        }
    }
}

impl Standing<'_> {
    fn message_count(&self) -> u32 {
        self.checkpoint.map_or(0, |checkpoint| checkpoint.message_count)
    }

    /// The message that a run writes which answers this.
    fn reply(&self, entry: &Entry, salt: &str, turn: u32) -> Reply {
        let fresh = |index: u32| MessageId::of_reply(salt, turn, index);
        match (entry, self.run) {
            (Entry::Results { message }, Some(run)) => Reply {
                kind: EntryKind::ToolResult,
                keep: self.message_count().max(message.as_ref().map_or(0, |_| run.message_index.saturating_add(1))),
                message_index: run.message_index,
                message_id: run.message_id.clone(),
            },
            (Entry::Rewind { keep, input, .. }, _) => {
                let message_index = keep.saturating_add(u32::from(input.is_some()));
                let kind = if input.is_some() { EntryKind::Edit } else { EntryKind::Retry };
                Reply { kind, keep: *keep, message_index, message_id: fresh(message_index) }
            }
            (entry, run) => {
                // An abandoned message counts from now on, also if its run never committed it.
                let rewrites =
                    |abandoned: &Option<Abandoned>| abandoned.as_ref().is_some_and(|run| run.message.is_some());
                let (abandons, inputs) = match entry {
                    Entry::Push { inputs, abandoned, .. } => (rewrites(abandoned), inputs.len()),
                    Entry::Send { abandoned, .. } => (rewrites(abandoned), 1),
                    Entry::Results { .. } | Entry::Rewind { .. } => (false, 0),
                };
                let written = run.filter(|_| abandons).map_or(0, |run| run.message_index.saturating_add(1));
                let keep = self.message_count().max(written);
                let message_index = keep.saturating_add(u32::try_from(inputs).unwrap_or(u32::MAX));
                Reply { kind: EntryKind::Send, keep, message_index, message_id: fresh(message_index) }
            }
        }
    }
}

/// A cut, or the place of a reply, that clients are told of by this checkpoint.
fn rewound_to(checkpoint: &CheckpointRow, cause: RewindCause) -> Rewound {
    Rewound {
        checkpoint: checkpoint.id.clone(),
        message_count: checkpoint.message_count,
        from: checkpoint.sequence,
        cause,
    }
}

/// The run whose place is taken, as it ends. One that is continued has done its part.
fn taken_over(run: &RunRow, reply: &Reply, head: Cursor, now: UnixMillis) -> RunRow {
    let status = if reply.kind == EntryKind::ToolResult { RunStatus::Completed } else { RunStatus::Superseded };
    RunRow { status, end: Some(head), ended: Some(now), ..run.clone() }
}

//! How a run starts: what it answers, what it takes the place of, and the commit that precedes its first chunk.
//!
//! | entry | needs | the conversation | the run before it |
//! |---|---|---|---|
//! | [`Entry::Send`] | nothing running or paused for itself | grows by the message | superseded, if it was suspended |
//! | [`Entry::Results`] | a suspended run | stays | completed: the new run continues its message |
//! | [`Entry::Push`] | nothing live, or `supersede` | grows by the messages | superseded, if it was live |
//! | [`Entry::Rewind`] | a session; the message of a suspended run must go | is cut back, and may grow by a message | superseded, if it was live |

use super::Session;
use super::records::{Place, checkpoint_after, chunks_of, names_in};
use crate::core::caller::Caller;
use crate::core::command::{Abandoned, Entry, Input, Opening, RewindCause, Rewound, Start, StartRefused, Started};
use crate::core::ids::{Cursor, MessageId};
use crate::core::run::StreamStatus;
use crate::core::run::{EntryKind, RunStatus};
use crate::core::storage::{CheckpointKind, CheckpointRow, Life, MessageRow, Pushed, RunRow, SessionRow, Write};
use crate::core::time::UnixMillis;
use crate::core::view::RunView;

/// Where a run's message stands, and what the conversation becomes.
struct Plan {
    kind: EntryKind,
    /// Messages that stay.
    keep: u32,
    /// Index of the message that the run writes.
    message_index: u32,
    message_id: MessageId,
}

impl Session {
    /// Whether such a run may start now; what [`Session::start`] checks.
    ///
    /// # Errors
    /// [`StartRefused`].
    pub fn may_start(&self, caller: &Caller, entry: &Entry) -> Result<(), StartRefused> {
        self.may_bring(caller, entry)?;
        self.fits(entry, self.run.as_ref().map(|run| run.status))
    }

    /// Whether the session is the caller's, and the messages have ids of their own.
    pub(super) fn may_bring(&self, caller: &Caller, entry: &Entry) -> Result<(), StartRefused> {
        let Some(row) = &self.row else { return Ok(()) };
        self.authorise(caller)?;
        match entry.inputs().map(|input| &input.id).find(|id| id.is_for_replies(&row.salt)) {
            Some(id) => Err(StartRefused::IdTaken(id.clone())),
            None => Ok(()),
        }
    }

    /// Whether such a run may start behind a last run that stands so.
    pub(super) fn fits(&self, entry: &Entry, status: Option<RunStatus>) -> Result<(), StartRefused> {
        let asks = status == Some(RunStatus::SuspendedClientTool);
        let suspended = status.is_some_and(RunStatus::is_suspended);
        let busy = |run: &RunRow| Err(StartRefused::AlreadyRunning(run.id.clone()));
        let fits = match (entry, &self.run) {
            (Entry::Send { .. }, Some(run)) if status.is_some_and(RunStatus::is_busy) => return busy(run),
            (Entry::Send { abandoned, .. }, _) => abandoned.is_some() == asks,
            (Entry::Results { .. }, _) => suspended,
            (Entry::Push { supersede: false, .. }, Some(run)) if status.is_some_and(RunStatus::is_live) => {
                return busy(run);
            }
            // What a running run gives up stands in its last words.
            (Entry::Push { abandoned, .. }, _) => abandoned.is_some() == suspended,
            // A message whose calls still wait cannot stay while its run goes.
            (Entry::Rewind { keep, .. }, Some(run)) if suspended && *keep > run.message_index => false,
            (Entry::Rewind { keep, .. }, _) => self.row.is_some() && *keep <= self.message_count(),
        };
        if fits { Ok(()) } else { Err(StartRefused::Conflict) }
    }

    /// Starts a run: its input, its claim, its first chunks and the commit that precedes them, in one transaction.
    ///
    /// # Errors
    /// [`StartRefused`]; nothing has changed.
    pub fn start(&mut self, start: Start<'_>) -> Result<Started, StartRefused> {
        self.may_start(start.caller, &start.entry)?;
        let before = self.log.head();
        let salt = self.row.as_ref().map_or(start.salt, |row| &row.salt).to_owned();
        let turn = self.run.as_ref().map_or(1, |run| run.turn.saturating_add(1));
        let plan = self.plan(&start.entry, &salt, turn);
        let row = SessionRow {
            owner: self.row.as_ref().map_or(start.caller.owner().map(str::to_owned), |row| row.owner.clone()),
            salt: salt.clone(),
            created: self.row.as_ref().map_or(start.now, |row| row.created),
            floor: self.log.floor(),
            run: Some(start.run.clone()),
            status: StreamStatus::Active,
        };
        let mut run = self.fresh_run(&start, &plan, turn, before);
        let paused = self.run.as_ref().is_some_and(|run| run.status.is_suspended());
        let ended =
            self.run.as_ref().filter(|run| run.status.is_live()).map(|run| taken_over(run, &plan, before, start.now));

        let mut writes = vec![Write::Session(row.clone())];
        writes.extend(ended.clone().map(Write::Run));
        let own_row = writes.len();
        let mut rewound = None;
        let mut checkpoints: Vec<CheckpointRow> = Vec::new();
        let point = |last: Option<&CheckpointRow>, kind, message_count| {
            checkpoint_after(last, Place { kind, message_count, sequence: before, step_count: 0 }, &start.run, &salt)
        };
        if let Entry::Rewind { cause, .. } = &start.entry {
            writes.push(Write::TruncateMessages(plan.keep));
            let checkpoint = point(self.checkpoint.as_ref(), CheckpointKind::Truncate, plan.keep);
            let id = checkpoint.id.clone();
            rewound = Some(Rewound { checkpoint: id, message_count: plan.keep, from: before, cause: *cause });
            checkpoints.push(checkpoint);
        }
        let user = |input: Input| (input, "user".to_owned());
        let (inputs, rewritten) = match start.entry {
            Entry::Send { input, abandoned } => (vec![user(input)], abandoned.and_then(|run| run.message)),
            Entry::Results { message } => (Vec::new(), message),
            Entry::Push { inputs, abandoned, .. } => (inputs, abandoned.and_then(|run| run.message)),
            Entry::Rewind { input, .. } => (input.map(user).into_iter().collect(), None),
        };
        if let (Some(json), Some(previous)) = (rewritten, &self.run) {
            writes.push(Write::Message(MessageRow {
                index: previous.message_index,
                id: previous.message_id.clone(),
                role: "assistant".to_owned(),
                run: Some(if plan.kind == EntryKind::ToolResult { run.id.clone() } else { previous.id.clone() }),
                json,
            }));
        }
        let mut count = plan.keep;
        for (input, role) in inputs {
            writes.push(Write::Message(MessageRow {
                index: count,
                id: input.id,
                role,
                run: Some(run.id.clone()),
                json: input.json,
            }));
            count = count.saturating_add(1);
        }
        if count > plan.keep || rewound.is_none() {
            checkpoints.push(point(checkpoints.last().or(self.checkpoint.as_ref()), CheckpointKind::Entry, count));
        }
        let displaces = rewound.is_none() && !paused && ended.is_some();
        let displaced = checkpoints.last().filter(|_| displaces).map(|last| Rewound {
            checkpoint: last.id.clone(),
            message_count: last.message_count,
            from: before,
            cause: RewindCause::Rollback,
        });
        let mut calls = self.calls.clone();
        calls.begin_run(turn);
        let opening = (start.opening)(&Opening {
            run: &run.id,
            message_id: &plan.message_id,
            rewound: rewound.as_ref(),
            displaced: displaced.as_ref(),
            calls: &calls,
        });
        if let (Some(state), Some(last)) = (start.state, checkpoints.last_mut()) {
            last.state = Some(state);
        }
        let blocks = self.log.append(&run.id, chunks_of(&run.id, &opening).iter().map(|(c, s)| (*c, s)))?;
        writes.extend(checkpoints.iter().cloned().map(Write::Checkpoint));
        writes.extend(blocks);
        if let Some(push) = &mut run.push {
            // The run's opening is its own; its producer counts from here.
            push.at = self.log.head();
        }
        writes.insert(own_row, Write::Run(run.clone()));
        self.calls = calls;
        writes.extend(self.take_names(turn, names_in(&opening)));
        writes.extend(self.forget_held());

        let fence = run.fence();
        let superseded = ended.as_ref().filter(|run| run.status == RunStatus::Superseded).map(|run| run.id.clone());
        self.view.starts(run.id.clone());
        self.row = Some(row);
        self.run = Some(run);
        self.orphaned = false;
        self.truncated = rewound.map(|rewound| rewound.checkpoint).or(self.truncated.take());
        self.checkpoint = checkpoints.pop().or(self.checkpoint.take());
        if ended.is_some() {
            self.has_ended(start.now, before);
        }
        let ended = ended.as_ref().map(|run| RunView { paused, ..RunView::of(run) });
        let effects = self.effects_of(writes, ended);
        Ok(Started { effects, fence, message_id: plan.message_id, start: before, superseded })
    }

    fn plan(&self, entry: &Entry, salt: &str, turn: u32) -> Plan {
        let fresh = |index: u32| MessageId::of_reply(salt, turn, index);
        match (entry, &self.run) {
            (Entry::Results { message }, Some(run)) => Plan {
                kind: EntryKind::ToolResult,
                keep: self.message_count().max(message.as_ref().map_or(0, |_| run.message_index.saturating_add(1))),
                message_index: run.message_index,
                message_id: run.message_id.clone(),
            },
            (Entry::Rewind { keep, input, .. }, _) => {
                let message_index = keep.saturating_add(u32::from(input.is_some()));
                let kind = if input.is_some() { EntryKind::Edit } else { EntryKind::Retry };
                Plan { kind, keep: *keep, message_index, message_id: fresh(message_index) }
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
                let written = run.as_ref().filter(|_| abandons).map_or(0, |run| run.message_index.saturating_add(1));
                let keep = self.message_count().max(written);
                let message_index = keep.saturating_add(u32::try_from(inputs).unwrap_or(u32::MAX));
                Plan { kind: EntryKind::Send, keep, message_index, message_id: fresh(message_index) }
            }
        }
    }

    fn fresh_run(&self, start: &Start<'_>, plan: &Plan, turn: u32, before: Cursor) -> RunRow {
        RunRow {
            turn,
            id: start.run.clone(),
            status: RunStatus::Running,
            entry: plan.kind,
            request_key: start.key.as_ref().map(|keyed| keyed.key.as_str().to_owned()),
            input_hash: start.key.as_ref().map(|keyed| keyed.input_hash.clone()),
            start: before,
            end: None,
            message_index: plan.message_index,
            message_id: plan.message_id.clone(),
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

/// The run whose place is taken, as it ends. One that is continued has done its part.
fn taken_over(run: &RunRow, plan: &Plan, head: Cursor, now: UnixMillis) -> RunRow {
    let status = if plan.kind == EntryKind::ToolResult { RunStatus::Completed } else { RunStatus::Superseded };
    RunRow { status, end: Some(head), ended: Some(now), ..run.clone() }
}

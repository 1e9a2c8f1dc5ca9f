//! The session machine: one conversation, its claim, its runs and its log.
//!
//! A command is checked first and changes the state only when it is accepted; it then returns [`Effects`], which the shell applies in one
//! transaction, makes durable, and reports back with [`Session::confirmed`]. What readers see ([`Session::view`]) moves only then.
//!
//! ```text
//! absent ──start──▶ running ──finish(Completed | Interrupted | Failed)──▶ ended ──start──▶ running …
//!                   running ──append──▶ running
//! ```

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::block::{OPEN_LIMIT, OpenBlock, PARTS};
use super::caller::Caller;
use super::chunk::Stamp;
use super::command::{Due, Effects, NotFound, Start, StartRefused, Started, StopTarget, WriteRefused};
use super::ids::{CheckpointId, Cursor, MessageId, RunId, SequenceOutOfRange};
use super::log::{Log, Ticket};
use super::record::{Commit, Record};
use super::run::{EntryKind, Fence, Outcome, RunStatus};
use super::storage::{CheckpointKind, CheckpointRow, MessageRow, RunRow, SessionRow, Stored, Write};
use super::time::{Millis, UnixMillis};
use super::view::{RunView, View};

/// Time between the alarms of a live run inside the object: outgoing traffic does not keep an object in memory.
pub const KEEP_ALIVE: Millis = Millis::new(60_000);

/// The stream's own status (`spec/helix.md` 1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamStatus {
    /// A run is writing.
    Active,
    /// The run is suspended.
    Paused,
    /// The last run finished or was stopped.
    Ended,
    /// The last run failed.
    Failed,
}

struct Pending {
    ticket: Ticket,
    head: Cursor,
    bytes: u64,
    status: StreamStatus,
    run: RunView,
}

/// One session in memory. Rebuilt from its rows at any time.
pub struct Session {
    row: Option<SessionRow>,
    run: Option<RunRow>,
    lease: Millis,
    orphaned: bool,
    checkpoint: Option<CheckpointRow>,
    truncated: Option<CheckpointId>,
    log: Log,
    view: View,
    pending: VecDeque<Pending>,
}

impl Session {
    /// Rebuilds a session from its rows, all of which readers may see at once: after a failed write in a living object, sync first.
    ///
    /// A run that was running had its producer in the object that is gone, unless `producer_alive` says that only the rows were read
    /// again. Then renew the run's lease at once: renewals are in no row.
    pub fn load(stored: Option<Stored>, lease: Millis, producer_alive: bool) -> Self {
        let Some(Stored { session, run, checkpoint, truncated, last_block }) = stored else {
            return Self {
                row: None,
                run: None,
                lease,
                orphaned: false,
                checkpoint: None,
                truncated: None,
                log: Log::load(Cursor::START, Cursor::START, None),
                view: View::default(),
                pending: VecDeque::new(),
            };
        };
        let head = last_block.as_ref().map_or(session.floor, |(block, _)| block.last.cursor());
        let open = last_block.and_then(|(block, len)| {
            let whole = block.key.checked_rem(PARTS) == Some(0) && len < OPEN_LIMIT;
            whole.then_some(OpenBlock { key: block.key, last: block.last, run: block.run, attempt: block.attempt, len })
        });
        let orphaned = !producer_alive && run.as_ref().is_some_and(|run| run.status == RunStatus::Running);
        let view = View::new(head, session.floor, Some(session.status), run.as_ref().map(RunView::of));
        Self {
            log: Log::load(session.floor, head, open),
            row: Some(session),
            run,
            lease,
            orphaned,
            checkpoint,
            truncated,
            view,
            pending: VecDeque::new(),
        }
    }

    /// What readers may see: everything that is durable.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The chunk log.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// The current or last run, durable or not.
    pub fn run(&self) -> Option<&RunRow> {
        self.run.as_ref()
    }

    /// The latest commit.
    pub fn checkpoint(&self) -> Option<&CheckpointRow> {
        self.checkpoint.as_ref()
    }

    /// Id of the latest rewind.
    pub fn truncated(&self) -> Option<&CheckpointId> {
        self.truncated.as_ref()
    }

    /// Whether writes are waiting for their confirmation.
    pub fn is_unconfirmed(&self) -> bool {
        !self.pending.is_empty()
    }

    /// The session, when it exists and is the caller's.
    ///
    /// # Errors
    /// [`NotFound`], for both reasons alike.
    pub fn authorise(&self, caller: &Caller) -> Result<&SessionRow, NotFound> {
        self.row.as_ref().filter(|row| caller.owns(row.owner.as_deref())).ok_or(NotFound)
    }

    /// Messages that the latest commit covers.
    pub fn message_count(&self) -> u32 {
        self.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.message_count)
    }

    /// Whether a send may start a run now; what [`Session::start`] checks.
    ///
    /// # Errors
    /// [`StartRefused`].
    pub fn may_start(&self, caller: &Caller) -> Result<(), StartRefused> {
        if self.row.is_some() {
            self.authorise(caller)?;
        }
        match &self.run {
            Some(run) if run.status.is_live() => Err(StartRefused::AlreadyRunning(run.id.clone())),
            _ => Ok(()),
        }
    }

    /// Starts a run: its input, its claim, its first chunks and the commit that precedes them, in one transaction.
    ///
    /// # Errors
    /// [`StartRefused`]; nothing has changed.
    pub fn start(&mut self, start: Start<'_>) -> Result<Started, StartRefused> {
        self.may_start(start.caller)?;
        let salt = self.row.as_ref().map_or(start.salt, |row| &row.salt);
        let index = self.message_count();
        let message_index = index.saturating_add(1);
        let message_id = MessageId::new(format!("msg_{salt}_{message_index}"));
        let before = self.log.head();
        let row = SessionRow {
            owner: self.row.as_ref().map_or(start.caller.owner().map(str::to_owned), |row| row.owner.clone()),
            salt: salt.to_owned(),
            created: self.row.as_ref().map_or(start.now, |row| row.created),
            floor: self.log.floor(),
            run: Some(start.run.clone()),
            status: StreamStatus::Active,
        };
        let run = RunRow {
            turn: self.run.as_ref().map_or(1, |run| run.turn.saturating_add(1)),
            id: start.run.clone(),
            status: RunStatus::Running,
            entry: EntryKind::Send,
            request_key: None,
            input_hash: None,
            start: before,
            end: None,
            message_index,
            message_id: message_id.clone(),
            lease_until: start.now.after(start.lease),
            epoch: 1,
            attempts: 1,
            vocabulary: start.vocabulary,
            agent: start.agent.to_owned(),
            started: start.now,
            ended: None,
            error: None,
            retry_after_ms: None,
        };
        let input = MessageRow {
            index,
            id: start.input.id,
            role: "user".to_owned(),
            run: Some(start.run.clone()),
            json: start.input.json,
        };
        let checkpoint = self.next_checkpoint(CheckpointKind::Entry, message_index, before, 0, &start.run, &row.salt);
        let opening = (start.opening)(&start.run, &message_id);
        let blocks = self.log.append(&start.run, chunks_of(&start.run, &opening).iter().map(|(c, s)| (*c, s)))?;

        let mut writes = vec![
            Write::Session(row.clone()),
            Write::Run(run.clone()),
            Write::Message(input),
            Write::Checkpoint(checkpoint.clone()),
        ];
        writes.extend(blocks);
        let fence = run.fence();
        self.view.starts(run.id.clone());
        self.row = Some(row);
        self.run = Some(run);
        self.orphaned = false;
        self.checkpoint = Some(checkpoint);
        let effects = self.effects(writes);
        Ok(Started { effects, fence, message_id, start: before })
    }

    /// Writes records of the run that holds the claim.
    ///
    /// # Errors
    /// [`WriteRefused`]; nothing has changed.
    pub fn append(&mut self, fence: &Fence, records: &[Record]) -> Result<Effects, WriteRefused> {
        let (run, row) = self.holder(fence)?;
        let writes = self.write(&run, &row, records, None)?;
        Ok(self.effects(writes))
    }

    /// Ends the run, after its last records, in one transaction with them. The first terminal wins.
    ///
    /// # Errors
    /// [`WriteRefused`]; nothing has changed.
    pub fn finish(
        &mut self,
        now: UnixMillis,
        fence: &Fence,
        outcome: Outcome,
        records: &[Record],
    ) -> Result<Effects, WriteRefused> {
        let (run, row) = self.holder(fence)?;
        let mut writes = self.write(&run, &row, records, Some(CheckpointKind::End))?;
        let (status, error) = match outcome {
            Outcome::Failed(code) => (StreamStatus::Failed, Some(code)),
            Outcome::Completed | Outcome::Interrupted => (StreamStatus::Ended, None),
        };
        let run = RunRow { status: outcome.status(), end: Some(self.log.head()), ended: Some(now), error, ..run };
        let row = SessionRow { status, ..row };
        writes.push(Write::Run(run.clone()));
        writes.push(Write::Session(row.clone()));
        self.run = Some(run);
        self.row = Some(row);
        self.orphaned = false;
        Ok(self.effects(writes))
    }

    /// The producer's last word on when to try again, kept with the failure that follows. In memory only until then.
    pub fn advise_retry(&mut self, fence: &Fence, after_ms: Option<u64>) {
        if let Some(run) = self.run.as_mut().filter(|run| holds(run, fence)) {
            run.retry_after_ms = after_ms;
        }
    }

    /// The producer is alive. In memory only: the alarm and every request check again.
    pub fn renew(&mut self, now: UnixMillis, fence: &Fence) {
        let until = now.after(self.lease);
        if let Some(run) = self.run.as_mut().filter(|run| holds(run, fence)) {
            run.lease_until = until;
        }
    }

    /// What a request to stop meets; `named` is the run that it names, if it names one.
    ///
    /// # Errors
    /// [`NotFound`].
    pub fn stop_target(&self, caller: &Caller, named: Option<&str>) -> Result<StopTarget, NotFound> {
        self.authorise(caller)?;
        Ok(match (&self.run, named) {
            (Some(run), Some(named)) if run.id.as_str() != named => StopTarget::Stale,
            (Some(run), _) if run.status == RunStatus::Running => StopTarget::Running(run.fence()),
            _ => StopTarget::Idle,
        })
    }

    /// The dead run that must be settled before anything else is answered.
    pub fn due(&self, now: UnixMillis) -> Option<Due> {
        let run = self.run.as_ref().filter(|run| run.status == RunStatus::Running)?;
        if self.orphaned {
            Some(Due::Orphaned(run.fence()))
        } else if now >= run.lease_until {
            Some(Due::Lapsed(run.fence()))
        } else {
            None
        }
    }

    /// When the alarm must look at this session next.
    pub fn alarm(&self, now: UnixMillis) -> Option<UnixMillis> {
        let run = self.run.as_ref().filter(|run| run.status == RunStatus::Running)?;
        let first = run.started.after(self.lease);
        let keep_alive = now.after(KEEP_ALIVE);
        Some(if now < first { first.min(keep_alive) } else { keep_alive })
    }

    /// Removes all that the session stores.
    ///
    /// # Errors
    /// [`NotFound`].
    pub fn delete(&mut self, caller: &Caller) -> Result<Vec<Write>, NotFound> {
        self.authorise(caller)?;
        Ok(vec![Write::DropAll])
    }

    /// Storage has confirmed this ticket and all before it.
    pub fn confirmed(&mut self, ticket: Ticket) {
        while self.pending.front().is_some_and(|pending| pending.ticket <= ticket) {
            let Some(done) = self.pending.pop_front() else { break };
            self.log.confirmed(done.head);
            self.view.advance(self.log.durable(), done.bytes, done.status, done.run);
        }
    }

    fn holder(&self, fence: &Fence) -> Result<(RunRow, SessionRow), WriteRefused> {
        let (Some(run), Some(row)) = (&self.run, &self.row) else { return Err(WriteRefused::Superseded) };
        if run.id != fence.run || run.epoch != fence.epoch || run.status == RunStatus::Superseded {
            return Err(WriteRefused::Superseded);
        }
        if !run.status.is_live() {
            return Err(WriteRefused::Ended);
        }
        Ok((run.clone(), row.clone()))
    }

    /// Lays records into writes. Of several commits in one transaction only the last can ever be seen, so only it is written.
    fn write(
        &mut self,
        run: &RunRow,
        row: &SessionRow,
        records: &[Record],
        end: Option<CheckpointKind>,
    ) -> Result<Vec<Write>, SequenceOutOfRange> {
        let mut head = self.log.head();
        let mut commit: Option<(Cursor, &Commit)> = None;
        for record in records {
            match record {
                Record::Chunk { .. } => head = head.next()?.cursor(),
                Record::Commit(said) => commit = Some((head, said)),
            }
        }
        let mut writes = self.log.append(&run.id, chunks_of(&run.id, records).iter().map(|(c, s)| (*c, s)))?;
        let mut count = self.message_count();
        let mut steps = self.checkpoint.as_ref().filter(|last| last.run == run.id).map_or(0, |last| last.step_count);
        if let Some((_, Commit { message, step_count })) = commit {
            steps = *step_count;
            count = run.message_index.saturating_add(1);
            writes.push(Write::Message(MessageRow {
                index: run.message_index,
                id: run.message_id.clone(),
                role: "assistant".to_owned(),
                run: Some(run.id.clone()),
                json: message.to_string(),
            }));
        }
        let point = match end {
            Some(kind) => Some((head, kind)),
            None => commit.map(|(cursor, _)| (cursor, CheckpointKind::Step)),
        };
        if let Some((cursor, kind)) = point {
            let checkpoint = self.next_checkpoint(kind, count, cursor, steps, &run.id, &row.salt);
            writes.push(Write::Checkpoint(checkpoint.clone()));
            self.checkpoint = Some(checkpoint);
        }
        Ok(writes)
    }

    fn next_checkpoint(
        &self,
        kind: CheckpointKind,
        message_count: u32,
        sequence: Cursor,
        step_count: u32,
        run: &RunId,
        salt: &str,
    ) -> CheckpointRow {
        let ordinal = self.checkpoint.as_ref().map_or(1, |last| last.ordinal.saturating_add(1));
        CheckpointRow {
            ordinal,
            id: CheckpointId::new(format!("cp_{salt}_{ordinal}")),
            kind,
            message_count,
            sequence,
            step_count,
            state: self.checkpoint.as_ref().and_then(|last| last.state.clone()),
            run: run.clone(),
        }
    }

    fn effects(&mut self, writes: Vec<Write>) -> Effects {
        let ticket = Ticket::fresh();
        let chunks = self.log.head().get().saturating_sub(self.view.stored().get());
        if let (Some(row), Some(run)) = (&self.row, &self.run) {
            let head = self.log.head();
            self.view.stores(head);
            self.pending.push_back(Pending {
                ticket,
                head,
                bytes: self.log.written_bytes(),
                status: row.status,
                run: RunView::of(run),
            });
        }
        Effects { writes, chunks, ticket }
    }
}

fn holds(run: &RunRow, fence: &Fence) -> bool {
    run.id == fence.run && run.epoch == fence.epoch && run.status.is_live()
}

fn chunks_of<'a>(run: &RunId, records: &'a [Record]) -> Vec<(&'a super::chunk::Chunk, Stamp)> {
    records
        .iter()
        .filter_map(|record| match record {
            Record::Chunk { chunk, attempt } => Some((chunk, Stamp { run: run.clone(), attempt: attempt.clone() })),
            Record::Commit(_) => None,
        })
        .collect()
}

//! The session machine: one conversation, its claim, its runs and its log.
//!
//! A command is checked first and changes the state only when it is accepted; it then returns [`Effects`], which the shell applies in one
//! transaction, makes durable, and reports back with [`Session::confirmed`]. What readers see ([`Session::view`]) moves only then.
//!
//! ```text
//! absent ──start──▶ running ──finish(Completed | Interrupted | Failed)──▶ ended ──start──▶ running …
//!                   running ──append──▶ running
//!                   running ──finish(Suspended)──▶ suspended ──answer──▶ suspended ──start──▶ running …
//! ```

mod entry;
mod finish;
mod followers;
mod holding;
mod instead;
mod keeping;
mod leases;
pub mod plan;
pub mod push;
pub mod queue;
mod records;

use std::collections::VecDeque;

use super::block::{OPEN_LIMIT, OpenBlock};
use super::call_ids::CallIds;
use super::caller::Caller;
use super::command::{Effects, NotFound, StopTarget, WriteRefused};
use super::error::Failure;
use super::ids::{CheckpointId, Cursor, RunId};
use super::log::{Log, Ticket};
use super::record::Record;
use super::retention::Policy;
use super::run::{Fence, RunStatus, StreamStatus};
use super::storage::keys::PARTS;
use super::storage::{CheckpointRow, HeldRow, Life, QueuedRow, RunRow, SessionRow, Stored, Write};
use super::time::{Millis, UnixMillis};
use super::view::{RunView, View};
use super::vigil::Vigil;

/// Longest time between the alarms of a live run inside the object: outgoing traffic does not keep an object in memory.
pub const KEEP_ALIVE: Millis = Millis::new(60_000);

/// Time between the alarms of a live run inside the object: whenever it dies, its next alarm is no further away than its lease.
pub fn keep_alive(lease: Millis) -> Millis {
    KEEP_ALIVE.min(lease).max(Millis::new(1_000))
}

#[derive(Debug)]
struct Pending {
    ticket: Ticket,
    head: Cursor,
    bytes: u64,
    status: StreamStatus,
    /// The run whose place the other one took, then the other one.
    runs: Vec<RunView>,
    /// Runs that will never start, because their messages were taken out of the queue.
    given_up: Vec<RunId>,
}

/// One session in memory. Rebuilt from its rows at any time.
#[derive(Debug)]
pub struct Session {
    row: Option<SessionRow>,
    run: Option<RunRow>,
    policy: Policy,
    orphaned: bool,
    /// When the oldest finished run whose chunks are kept has ended, as far as this memory knows.
    oldest: Option<UnixMillis>,
    checkpoint: Option<CheckpointRow>,
    truncated: Option<CheckpointId>,
    calls: CallIds,
    /// Answers that came before their run waited for them.
    held: Vec<HeldRow>,
    vigil: Vigil,
    /// The messages that wait for their answer, in order, without their JSON.
    queue: Vec<QueuedRow>,
    log: Log,
    view: View,
    pending: VecDeque<Pending>,
    tickets: Ticket,
}

impl Session {
    /// Rebuilds a session from its rows, all of which readers may see at once: after a failed write in a living object, sync first.
    ///
    /// A run whose producer is outside goes on: renew its lease, because nobody could have. Any other that was running had its producer in
    /// the object that is gone, unless `producer_alive` says that only the rows were read
    /// again. Then renew the run's lease at once: renewals are in no row.
    ///
    /// `tickets` is the first ticket to hand out: [`Session::next_ticket`] of the memory before, so that a confirmation which is under way
    /// for that one confirms nothing of this one.
    pub fn load(stored: Option<Stored>, policy: Policy, producer_alive: bool, tickets: Ticket) -> Self {
        let Some(Stored { session, run, checkpoint, truncated, last_block, calls, held, queue }) = stored else {
            return Self {
                row: None,
                run: None,
                policy,
                orphaned: false,
                oldest: None,
                checkpoint: None,
                truncated: None,
                calls: CallIds::default(),
                held: Vec::new(),
                vigil: Vigil::default(),
                queue: Vec::new(),
                log: Log::load(Cursor::START, Cursor::START, None),
                view: View::default(),
                pending: VecDeque::new(),
                tickets,
            };
        };
        let head = last_block.as_ref().map_or(session.floor, |(block, _)| block.last.cursor());
        let open = last_block.and_then(|(block, len)| {
            let whole = block.key.checked_rem(PARTS) == Some(0) && len < OPEN_LIMIT;
            whole.then_some(OpenBlock { key: block.key, last: block.last, run: block.run, attempt: block.attempt, len })
        });
        let inside = |run: &RunRow| run.status == RunStatus::Running && run.push.is_none();
        let orphaned = !producer_alive && run.as_ref().is_some_and(inside);
        let finished = run.as_ref().filter(|run| run.end.is_some_and(|end| end > session.floor));
        let oldest = finished.and_then(|run| run.ended);
        let ended = |run: &RunRow| RunView::ended_at(run, checkpoint.as_ref());
        let mut view = View::new(head, session.floor, Some(session.status), run.as_ref().map(ended));
        queue.iter().for_each(|waiting| view.queues(waiting.run.clone()));
        Self {
            log: Log::load(session.floor, head, open),
            calls: CallIds::of_rows(calls, run.as_ref().map_or(0, |run| run.turn)),
            row: Some(session),
            run,
            policy,
            orphaned,
            oldest,
            checkpoint,
            truncated,
            held,
            vigil: Vigil::default(),
            queue,
            view,
            pending: VecDeque::new(),
            tickets,
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

    /// The names that calls have taken, durable or not.
    pub fn calls(&self) -> &CallIds {
        &self.calls
    }

    /// Whether writes are waiting for their confirmation.
    pub fn is_unconfirmed(&self) -> bool {
        !self.pending.is_empty()
    }

    /// The ticket that the next writes get. Read before a memory is thrown away: the next one is loaded with it.
    pub fn next_ticket(&self) -> Ticket {
        self.tickets
    }

    /// The session, when it exists and is the caller's.
    ///
    /// # Errors
    /// [`NotFound`], for both reasons alike.
    pub fn authorise(&self, caller: &Caller) -> Result<&SessionRow, NotFound> {
        self.row.as_ref().filter(|row| caller.owns(row.owner.as_deref())).ok_or(NotFound)
    }

    /// Whether there is no such session.
    pub fn is_absent(&self) -> bool {
        self.row.is_none()
    }

    /// Messages that the latest commit covers.
    pub fn message_count(&self) -> u32 {
        self.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.message_count)
    }

    /// Writes records of the run that holds the claim.
    ///
    /// # Errors
    /// [`WriteRefused`]; nothing has changed.
    pub fn append(&mut self, fence: &Fence, records: &[Record]) -> Result<Effects, WriteRefused> {
        let (run, row) = self.producing(fence)?;
        let draft = self.draft(&run, &row, records, None, Some(self.policy.max_bytes))?;
        let writes = self.lay(draft);
        Ok(self.effects(writes))
    }

    /// Answers to some of a suspended run's calls, while others still wait: its message is replaced, and what readers of the whole
    /// stream are told stands behind the run's end.
    ///
    /// # Errors
    /// [`WriteRefused`]; nothing has changed.
    pub fn answer(&mut self, fence: &Fence, records: &[Record]) -> Result<Effects, WriteRefused> {
        let (run, row) = self.holder(fence)?;
        if run.status != RunStatus::SuspendedClientTool {
            return Err(WriteRefused::Ended);
        }
        let draft = self.draft(&run, &row, records, None, Some(self.policy.max_bytes))?;
        let writes = self.lay(draft);
        Ok(self.effects(writes))
    }

    /// The producer tries its step once more. Written at once: after a crash the row says that the log holds attempts that do not count.
    ///
    /// # Errors
    /// [`WriteRefused`]; nothing has changed.
    pub fn begin_attempt(&mut self, fence: &Fence) -> Result<Effects, WriteRefused> {
        let (run, _) = self.producing(fence)?;
        let life = Life { again_at: None, ..run.life };
        let run = RunRow { attempts: run.attempts.saturating_add(1), life, ..run };
        self.run = Some(run.clone());
        Ok(self.effects(vec![Write::Run(run)]))
    }

    /// The producer's last word: when to try again, and what clients are told. Kept with the failure that follows; in memory only until
    /// then.
    pub fn explain(&mut self, fence: &Fence, failure: &Failure) {
        if let Some(run) = self.run.as_mut().filter(|run| holds(run, fence)) {
            run.retry_after_ms = failure.retry_after_ms;
            run.error_text.clone_from(&failure.words);
        }
    }

    /// The run that has taken this one's place, durable or not, if a client that understands no resync cannot go on with it.
    pub fn displaced_by(&self, run: &RunRow) -> Option<&RunRow> {
        let next = self.run.as_ref().filter(|next| next.id != run.id)?;
        (!RunView::of(run).is_retried_by(&RunView::of(next))).then_some(next)
    }

    /// What a request to stop meets; `named` is the run that it names, if it names one.
    ///
    /// # Errors
    /// [`NotFound`].
    pub fn stop_target(&self, caller: &Caller, named: Option<&str>) -> Result<StopTarget, NotFound> {
        self.authorise(caller)?;
        Ok(match (&self.run, named) {
            (Some(run), Some(named)) if run.id.as_str() != named => StopTarget::Stale,
            (Some(run), _) if run.status.is_live() => StopTarget::Live(run.fence()),
            _ => StopTarget::Idle,
        })
    }

    /// Removes all that the session stores.
    ///
    /// # Errors
    /// [`NotFound`].
    pub fn delete(&mut self, caller: &Caller) -> Result<Vec<Write>, NotFound> {
        self.authorise(caller)?;
        Ok(self.drop_all())
    }

    fn drop_all(&mut self) -> Vec<Write> {
        // What was planned before fits no more.
        self.tickets = self.tickets.next();
        vec![Write::DropAll]
    }

    /// Storage has confirmed this ticket and all before it.
    pub fn confirmed(&mut self, ticket: Ticket) {
        while self.pending.front().is_some_and(|pending| pending.ticket <= ticket) {
            let Some(done) = self.pending.pop_front() else { break };
            self.log.confirmed(done.head);
            self.view.advance(self.log.durable(), done.bytes, done.status, done.runs);
            done.given_up.into_iter().for_each(|run| self.view.gives_up(run));
        }
    }

    fn holder(&self, fence: &Fence) -> Result<(RunRow, SessionRow), WriteRefused> {
        let (Some(run), Some(row)) = (&self.run, &self.row) else { return Err(WriteRefused::Superseded) };
        if run.id != fence.run || run.status == RunStatus::Superseded {
            return Err(WriteRefused::Superseded);
        }
        if run.epoch != fence.epoch {
            return Err(WriteRefused::StaleEpoch(run.epoch));
        }
        if !run.status.is_live() {
            return Err(WriteRefused::Ended);
        }
        Ok((run.clone(), row.clone()))
    }

    /// As [`Session::holder`], for what only a producer does: one that has paused its run is done with it.
    fn producing(&self, fence: &Fence) -> Result<(RunRow, SessionRow), WriteRefused> {
        let (run, row) = self.holder(fence)?;
        if run.status == RunStatus::Running { Ok((run, row)) } else { Err(WriteRefused::Ended) }
    }

    fn effects(&mut self, writes: Vec<Write>) -> Effects {
        self.effects_of(writes, None)
    }

    /// As [`Session::effects`], when the current run took the place of another.
    fn effects_of(&mut self, writes: Vec<Write>, ended: Option<RunView>) -> Effects {
        let ticket = self.tickets;
        self.tickets = ticket.next();
        let chunks = self.log.head().get().saturating_sub(self.view.stored().get());
        if let (Some(row), Some(run)) = (&self.row, &self.run) {
            let head = self.log.head();
            self.view.stores(head);
            self.pending.push_back(Pending {
                ticket,
                head,
                bytes: self.log.written_bytes(),
                status: row.status,
                runs: ended.into_iter().chain([RunView::ended_at(run, self.checkpoint.as_ref())]).collect(),
                given_up: Vec::new(),
            });
        }
        Effects { writes, chunks, ticket }
    }
}

fn holds(run: &RunRow, fence: &Fence) -> bool {
    run.id == fence.run && run.epoch == fence.epoch && run.status == RunStatus::Running
}

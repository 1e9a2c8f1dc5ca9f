//! What a producer outside asks: its claim, its numbers, its commits and its end.
//!
//! Every chunk and every operation of such a producer takes a number, from 0. What has a number that was taken already is stored already,
//! so a request that broke halfway is simply sent again; a number that comes too early is a gap.

use std::borrow::Cow;

use super::Session;
use super::records::{Place, checkpoint_after};
use crate::core::call_ids::CallName;
use crate::core::caller::Caller;
use crate::core::command::{Effects, NotFound, WriteRefused};
use crate::core::ids::{Cursor, MessageId, RunId};
use crate::core::record::Record;
use crate::core::run::{Fence, Outcome, RunStatus};
use crate::core::storage::{CheckpointKind, MessageRow, Pushed, RunRow, Write};
use crate::core::time::{Millis, UnixMillis};

/// A commit of a producer outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushCommit {
    /// The cursor: everything up to here is in the messages.
    pub through: Cursor,
    /// The run's messages so far, as JSON text with their ids and roles; none leaves them as they are.
    pub messages: Vec<(String, String, String)>,
    /// The conversation's state from here on, as JSON text, if it changes.
    pub state: Option<String>,
    /// Steps that the run has finished.
    pub step_count: u32,
    /// The names of calls that only these messages hold.
    pub calls: Vec<CallName>,
}

impl Session {
    /// The run of this id, if a producer outside writes it.
    fn pushed(&self, run: &RunId) -> Option<(&RunRow, &Pushed)> {
        let run = self.run.as_ref().filter(|row| row.id == *run)?;
        Some((run, run.push.as_ref()?))
    }

    /// A claim of a run that is live: whoever wrote it until now writes no more. `lease` changes how long its producer may be silent.
    ///
    /// # Errors
    /// [`WriteRefused`]; nothing has changed.
    pub fn claim_again(
        &mut self,
        now: UnixMillis,
        run: &RunId,
        lease: Option<Millis>,
    ) -> Result<(Fence, Effects), WriteRefused> {
        let (row, push) = self.pushed(run).ok_or(WriteRefused::Superseded)?;
        match row.status {
            RunStatus::Running => {}
            RunStatus::Superseded => return Err(WriteRefused::Superseded),
            _ => return Err(WriteRefused::Ended),
        }
        let row =
            leased(RunRow { epoch: row.epoch.saturating_add(1), ..row.clone() }, now, lease.unwrap_or(push.lease));
        let fence = row.fence();
        self.run = Some(row.clone());
        Ok((fence, self.effects(vec![Write::Run(row)])))
    }

    /// The producer may be silent for this long from now on.
    ///
    /// # Errors
    /// [`WriteRefused`]; nothing has changed.
    pub fn lease(&mut self, now: UnixMillis, fence: &Fence, lease: Millis) -> Result<Effects, WriteRefused> {
        let (row, _) = self.producing(fence)?;
        let row = leased(row, now, lease);
        self.run = Some(row.clone());
        Ok(self.effects(vec![Write::Run(row)]))
    }

    /// The number that the producer's next chunk or operation takes.
    ///
    /// # Errors
    /// [`WriteRefused`].
    pub fn expected(&self, fence: &Fence) -> Result<u64, WriteRefused> {
        let (run, _) = self.producing(fence)?;
        let push = run.push.ok_or(WriteRefused::Superseded)?;
        Ok(self.number_at(&push))
    }

    fn number_at(&self, push: &Pushed) -> u64 {
        push.next.saturating_add(self.log.head().get().saturating_sub(push.at.get()))
    }

    /// How many numbers from `first` on are taken already.
    ///
    /// # Errors
    /// [`WriteRefused::Gap`] when one is missing before `first`; [`WriteRefused`].
    pub fn taken(&self, fence: &Fence, first: u64) -> Result<u64, WriteRefused> {
        let expected = self.expected(fence)?;
        expected.checked_sub(first).ok_or(WriteRefused::Gap(expected))
    }

    /// Whether this operation has ended or paused its run: a repeat of it changes nothing.
    pub fn has_said(&self, fence: &Fence, number: u64) -> bool {
        self.pushed(&fence.run).is_some_and(|(run, push)| {
            run.epoch == fence.epoch && run.status != RunStatus::Running && number < push.next
        })
    }

    /// What the session knows of a run that a producer asks about.
    ///
    /// # Errors
    /// [`NotFound`].
    pub fn pushed_run(&self, caller: &Caller, run: &RunId) -> Result<Option<&RunRow>, NotFound> {
        self.authorise(caller)?;
        Ok(self.run.as_ref().filter(|row| row.id == *run))
    }

    /// Commits messages, state and cursor; takes one number.
    ///
    /// # Errors
    /// [`WriteRefused`]; nothing has changed.
    pub fn commit(&mut self, now: UnixMillis, fence: &Fence, commit: PushCommit) -> Result<Effects, WriteRefused> {
        let (run, row) = self.producing(fence)?;
        let expected = self.expected(fence)?;
        let head = self.log.head();
        let floor = self.checkpoint.as_ref().map_or(Cursor::START, |last| last.sequence);
        if commit.through > head || commit.through < floor {
            return Err(WriteRefused::Place(floor, head));
        }
        let mut writes = self.take_names(run.turn, commit.calls);
        let mut count = self.message_count();
        if !commit.messages.is_empty() {
            count = run.message_index;
            for (id, role, json) in commit.messages {
                writes.push(Write::Message(MessageRow {
                    index: count,
                    id: MessageId::new(id),
                    role,
                    run: Some(run.id.clone()),
                    json,
                }));
                count = count.saturating_add(1);
            }
            writes.push(Write::TruncateMessages(count));
        }
        let place = Place {
            kind: CheckpointKind::Step,
            message_count: count,
            sequence: commit.through,
            step_count: commit.step_count,
        };
        let mut checkpoint = checkpoint_after(self.checkpoint.as_ref(), place, &run.id, &row.salt);
        if commit.state.is_some() {
            checkpoint.state = commit.state;
        }
        writes.push(Write::Checkpoint(checkpoint.clone()));
        let run = numbered(run, expected.saturating_add(1), head, None);
        writes.push(Write::Run(run.clone()));
        self.checkpoint = Some(checkpoint);
        self.run = Some(run);
        self.renew(now, fence);
        Ok(self.effects(writes))
    }

    /// Ends or pauses the run with the producer's last `records`; takes the number `number`. Those of its own chunks that are not stored
    /// yet come first and have the numbers before it, what closes the run after them has none.
    ///
    /// # Errors
    /// [`WriteRefused::Gap`] when the records do not reach up to the number, or it is taken; [`WriteRefused`]. Nothing has changed.
    pub fn finish_pushed(
        &mut self,
        now: UnixMillis,
        fence: &Fence,
        outcome: Outcome,
        records: &[Record],
        (number, result): (u64, Option<String>),
    ) -> Result<Effects, WriteRefused> {
        let (run, row) = self.producing(fence)?;
        let expected = self.expected(fence)?;
        let chunks = records.iter().filter(|record| matches!(record, Record::Chunk { .. })).count();
        let said = number.checked_sub(expected).filter(|said| usize::try_from(*said).is_ok_and(|said| said <= chunks));
        let said = said.ok_or(WriteRefused::Gap(expected))?;
        let draft = self.draft_of_end(&run, &row, outcome, records, said)?;
        let start = run.start;
        let run = numbered(run, number.saturating_add(1), start, result);
        Ok(self.end(now, (run, row), outcome, draft))
    }
}

fn leased(run: RunRow, now: UnixMillis, lease: Millis) -> RunRow {
    let push = run.push.clone().map(|push| Pushed { lease, ..push });
    RunRow { lease_until: now.after(lease), push, ..run }
}

/// What is written with a run's end, when its producer has said `said` chunks since it was last heard. Several messages are the
/// producer's own: no fold takes their place as long as they cover all that it has said.
pub(super) fn last_words<'a>(
    run: &RunRow,
    committed: (u32, Option<Cursor>),
    head: Cursor,
    said: u64,
    records: &'a [Record],
) -> Cow<'a, [Record]> {
    let (message_count, through) = committed;
    let own = run.push.is_some() && message_count > run.message_index.saturating_add(1);
    if !own || said > 0 || through != Some(head) {
        return Cow::Borrowed(records);
    }
    Cow::Owned(records.iter().filter(|record| !matches!(record, Record::Commit(_))).cloned().collect())
}

/// The run once its producer's number `next − 1` was taken at this head.
fn numbered(run: RunRow, next: u64, at: Cursor, result: Option<String>) -> RunRow {
    let push = run.push.clone().map(|push| Pushed { next, at, result, ..push });
    RunRow { push, ..run }
}

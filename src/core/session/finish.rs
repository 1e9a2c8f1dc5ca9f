//! How a run ends, or waits: after its last records, in one transaction with them.

use super::Session;
use super::push::last_words;
use super::records::Draft;
use crate::core::command::{Effects, WriteRefused};
use crate::core::ids::Cursor;
use crate::core::record::Record;
use crate::core::run::{Fence, Outcome, StreamStatus};
use crate::core::storage::{CheckpointKind, RunRow, SessionRow, Write};
use crate::core::time::UnixMillis;

impl Session {
    /// Ends the run, after its last records, in one transaction with them. The first terminal wins: a suspended run can only be stopped
    /// or fail.
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
        let (run, row) = match outcome {
            Outcome::Completed | Outcome::Suspended | Outcome::Paused(_) => self.producing(fence)?,
            Outcome::Interrupted | Outcome::Failed(_) => self.holder(fence)?,
        };
        let draft = self.draft_of_end(&run, &row, outcome, records, 0)?;
        Ok(self.end(now, (run, row), outcome, draft))
    }

    /// What a run's last records come to; the first `said` chunks of them are a producer's from outside.
    pub(super) fn draft_of_end(
        &self,
        run: &RunRow,
        row: &SessionRow,
        outcome: Outcome,
        records: &[Record],
        said: u64,
    ) -> Result<Draft, WriteRefused> {
        // A stop and a failure are never refused: what they say is short, or was waiting to be written anyway.
        let most = match outcome {
            Outcome::Completed | Outcome::Suspended | Outcome::Paused(_) => Some(self.policy.max_bytes),
            Outcome::Interrupted | Outcome::Failed(_) => None,
        };
        let committed = (self.message_count(), self.checkpoint.as_ref().map(|last| last.sequence));
        let records = last_words(run, committed, self.log.head(), said, records);
        self.draft(run, row, &records, Some(CheckpointKind::End), most)
    }

    /// Ends a run, of which it is decided that it may end so, with its last records.
    pub(super) fn end(
        &mut self,
        now: UnixMillis,
        (run, row): (RunRow, SessionRow),
        outcome: Outcome,
        draft: Draft,
    ) -> Effects {
        let head = draft.through();
        let mut writes = self.lay(draft);
        let run = ended(run, outcome, now, head);
        let status = match outcome {
            Outcome::Failed(_) => StreamStatus::Failed,
            Outcome::Completed | Outcome::Interrupted => StreamStatus::Ended,
            Outcome::Suspended | Outcome::Paused(_) => StreamStatus::Paused,
        };
        let row = SessionRow { status, ..row };
        let is_over = run.ended.is_some();
        writes.push(Write::Run(run.clone()));
        writes.push(Write::Session(row.clone()));
        if outcome != Outcome::Suspended {
            writes.extend(self.forget_held());
        }
        self.run = Some(run);
        self.row = Some(row);
        self.orphaned = false;
        if is_over {
            self.has_ended(now, head);
        }
        self.effects(writes)
    }

    /// A run has ended here. Retention counts from the end of the oldest run whose chunks are kept.
    pub(super) fn has_ended(&mut self, now: UnixMillis, end: Cursor) {
        if self.oldest.is_none() && end > self.log.floor() {
            self.oldest = Some(now);
        }
    }
}

/// The run's row once it has ended, or waits, at this head.
pub(super) fn ended(run: RunRow, outcome: Outcome, now: UnixMillis, head: Cursor) -> RunRow {
    let error = if let Outcome::Failed(code) = outcome { Some(code) } else { None };
    RunRow {
        status: outcome.status(),
        end: Some(head),
        ended: (!outcome.status().is_live()).then_some(now),
        error,
        retry_after_ms: run.retry_after_ms.filter(|_| error.is_some()),
        error_text: run.error_text.filter(|_| error.is_some()),
        ..run
    }
}

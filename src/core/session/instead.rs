//! A run that takes the place of a live one, whose last words are kept: both ends of the change are one transaction.

use super::Session;
use super::push::last_words;
use crate::core::command::{Displacement, Entry, LastWords, Start, StartRefused, Started, WriteRefused};
use crate::core::ids::Cursor;
use crate::core::run::{Outcome, RunStatus};
use crate::core::storage::Write;

/// More chunks than any run begins with, so that a run which is stopped first has its successor.
const OPENING_ROOM: u64 = 4_096;

impl Session {
    /// As [`Session::may_start`], behind the end of the run that [`LastWords`] are of.
    ///
    /// # Errors
    /// [`StartRefused`].
    pub fn may_start_instead(&self, last: &LastWords<'_>, start: &Start<'_>) -> Result<(), StartRefused> {
        if self.row.is_some() {
            self.authorise(start.caller)?;
        }
        self.holder(last.fence).map_err(|_| StartRefused::Conflict)?;
        let room = u64::try_from(last.records.len()).unwrap_or(u64::MAX).saturating_add(OPENING_ROOM);
        Cursor::new(self.log.head().get().saturating_add(room))?;
        // Only what leaves the conversation as it is: a cut would be decided on a message that the last words have yet to write.
        match (last.displacement, &start.entry) {
            (Displacement::Interrupted, Entry::Send { .. }) => {
                self.may_bring(start.caller, &start.entry)?;
                self.fits(&start.entry, Some(RunStatus::Interrupted))
            }
            (Displacement::Superseded, Entry::Push { .. }) => self.may_start(start.caller, &start.entry),
            _ => Err(StartRefused::Conflict),
        }
    }

    /// Starts a run in the place of the live one, which says its last words first: stopped, or superseded.
    ///
    /// # Errors
    /// [`StartRefused`]; nothing has changed.
    pub fn start_instead(&mut self, last: &LastWords<'_>, start: Start<'_>) -> Result<Started, StartRefused> {
        self.may_start_instead(last, &start)?;
        let (mut writes, chunks) = match last.displacement {
            Displacement::Interrupted => {
                let ended = self.finish(start.now, last.fence, Outcome::Interrupted, last.records).map_err(refused)?;
                (ended.writes, ended.chunks)
            }
            // Counted with those of the start.
            Displacement::Superseded => (self.last_words_of(last)?, 0),
        };
        let mut started = self.start(start)?;
        writes.append(&mut started.effects.writes);
        started.effects.writes = writes;
        started.effects.chunks = started.effects.chunks.saturating_add(chunks);
        Ok(started)
    }

    /// What a run leaves behind whose place is taken: the start that follows says that it is superseded.
    fn last_words_of(&mut self, last: &LastWords<'_>) -> Result<Vec<Write>, StartRefused> {
        let (run, row) = self.holder(last.fence).map_err(refused)?;
        let committed = (self.message_count(), self.checkpoint.as_ref().map(|last| last.sequence));
        let records = last_words(&run, committed, self.log.head(), 0, last.records);
        let draft = self.draft(&run, &row, &records, None, None).map_err(refused)?;
        Ok(self.lay(draft))
    }
}

fn refused(refused: WriteRefused) -> StartRefused {
    match refused {
        WriteRefused::Full(full) => StartRefused::Full(full),
        _ => StartRefused::Conflict,
    }
}

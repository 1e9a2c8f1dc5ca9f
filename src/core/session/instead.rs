//! A run that takes the place of a live one, whose last words are kept: both ends of the change are one transaction.

use super::Session;
use super::finish::ended;
use super::plan::{Last, Plan, Standing};
use super::push::last_words;
use crate::core::caller::Caller;
use crate::core::command::{Displacement, Entry, LastWords, Start, StartRefused, WriteRefused};
use crate::core::run::{Fence, Outcome, RunStatus};

impl Session {
    /// As [`Session::may_start`], behind the last words of a live run.
    ///
    /// # Errors
    /// [`StartRefused`].
    pub fn may_start_instead(
        &self,
        fence: &Fence,
        displacement: Displacement,
        caller: &Caller,
        entry: &Entry,
    ) -> Result<(), StartRefused> {
        if self.row.is_some() {
            self.authorise(caller)?;
        }
        self.holder(fence).map_err(refused)?;
        // Only what leaves the conversation as it is: a cut would be decided on a message that the last words have yet to write.
        match (displacement, entry) {
            (Displacement::Interrupted, Entry::Send { .. }) => {
                self.may_bring(caller, entry)?;
                self.fits(entry, Some(RunStatus::Interrupted))
            }
            (Displacement::Superseded, Entry::Push { .. }) => self.may_start(caller, entry),
            _ => Err(StartRefused::Conflict),
        }
    }

    /// As [`Session::plan`], of a run in the place of the live one, which says its last words first: stopped, or superseded.
    ///
    /// # Errors
    /// [`StartRefused`].
    pub fn plan_instead(&self, last: &LastWords<'_>, start: Start<'_>) -> Result<Plan, StartRefused> {
        let LastWords { fence, records, displacement } = *last;
        self.may_start_instead(fence, displacement, start.caller, &start.entry)?;
        let (run, row) = self.holder(fence).map_err(refused)?;
        let draft = match displacement {
            Displacement::Interrupted => self.draft_of_end(&run, &row, Outcome::Interrupted, records, 0),
            Displacement::Superseded => {
                let committed = (self.message_count(), self.checkpoint.as_ref().map(|last| last.sequence));
                let records = last_words(&run, committed, self.log.head(), 0, records);
                self.draft(&run, &row, &records, None, None)
            }
        };
        let draft = draft.map_err(refused)?;
        let stopped = ended(run.clone(), Outcome::Interrupted, start.now, draft.through());
        let standing = Standing {
            run: Some(if displacement == Displacement::Interrupted { &stopped } else { &run }),
            checkpoint: draft.checkpoint().or(self.checkpoint.as_ref()),
            head: draft.through(),
            calls: draft.calls_behind(&self.calls),
        };
        let plan = self.plan_on(standing, start);
        let stopped = (displacement == Displacement::Interrupted).then_some((run, row));
        Ok(plan.behind(Last { draft, stopped }))
    }
}

fn refused(refused: WriteRefused) -> StartRefused {
    match refused {
        WriteRefused::Full(full) => StartRefused::Full(full),
        _ => StartRefused::Conflict,
    }
}

//! Which runs may start: what each answers, and what it takes the place of.
//!
//! | entry | needs | the conversation | the run before it |
//! |---|---|---|---|
//! | [`Entry::Send`] | nothing running or paused for itself | grows by the message | superseded, if it was suspended |
//! | [`Entry::Results`] | a suspended run | stays | completed: the new run continues its message |
//! | [`Entry::Push`] | nothing live, or `supersede` | grows by the messages | superseded, if it was live |
//! | [`Entry::Rewind`] | a session; the message of a suspended run must go | is cut back, and may grow by a message | superseded, if it was live |

use super::Session;
use crate::core::caller::Caller;
use crate::core::command::{Entry, StartRefused};
use crate::core::run::RunStatus;
use crate::core::storage::RunRow;

impl Session {
    /// Whether such a run may start now; what [`Session::plan`] checks.
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
}

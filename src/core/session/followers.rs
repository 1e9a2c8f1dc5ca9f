//! A run that nobody follows (`DETACHED_MS`): since when, and until when it goes on.

use super::Session;
use crate::core::command::Effects;
use crate::core::run::RunStatus;
use crate::core::storage::{Life, RunRow, Write};
use crate::core::time::UnixMillis;

impl Session {
    /// Takes note of whether somebody follows the running run; a visit begins the count anew. What must be written when that has changed:
    /// the count outlives the object. Nothing where such a run goes on for ever.
    pub fn followed(&mut self, now: UnixMillis, somebody: bool) -> Option<Effects> {
        self.policy.detached?;
        let run = self.run.as_ref().filter(|run| run.status == RunStatus::Running)?;
        if run.life.unfollowed.is_none() == somebody {
            return None;
        }
        let unfollowed = (!somebody).then_some(now);
        let run = RunRow { life: Life { unfollowed, ..run.life.clone() }, ..run.clone() };
        self.run = Some(run.clone());
        Some(self.effects(vec![Write::Run(run)]))
    }

    /// When the running run is stopped if nobody comes to follow it.
    pub fn detached_until(&self) -> Option<UnixMillis> {
        let run = self.run.as_ref().filter(|run| run.status == RunStatus::Running)?;
        Some(run.life.unfollowed?.after(self.policy.detached?))
    }
}

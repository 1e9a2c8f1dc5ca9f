//! Leases and deaths: who is alive, who is heard, which run has to be settled, and when one whose object died goes on.

use super::{Session, holds};
use crate::core::attempt::pause_after_death;
use crate::core::command::{Due, Effects, WriteRefused};
use crate::core::run::{Fence, RunStatus};
use crate::core::storage::{Life, RunRow, Write};
use crate::core::time::{Millis, UnixMillis};
use crate::core::vigil::Sight;

impl Session {
    /// The producer is alive. In memory only: the alarm and every request check again.
    pub fn renew(&mut self, now: UnixMillis, fence: &Fence) {
        let own = self.policy.lease;
        if let Some(run) = self.run.as_mut().filter(|run| holds(run, fence)) {
            run.lease_until = now.after(lease_of(run, own));
        }
    }

    /// A producer in this object has taken the run's dead one's place.
    pub fn adopt(&mut self, now: UnixMillis, fence: &Fence) {
        self.orphaned = false;
        self.renew(now, fence);
    }

    /// Whether a request with this fence is the word of the producer outside that writes the running run: it is heard before the settling
    /// that its silence would have brought.
    pub fn hears(&self, fence: &Fence) -> bool {
        self.run.as_ref().is_some_and(|run| run.push.is_some() && holds(run, fence))
    }

    /// The dead run that must be settled before anything else is answered, as the clock says. [`Session::look`] asks whether the clock can
    /// be believed.
    pub fn due(&self, now: UnixMillis) -> Option<Due> {
        let run = self.run.as_ref().filter(|run| run.status.is_live())?;
        if run.status.is_suspended() {
            // One that waits for its own producer is no client's to answer.
            let answered = run.status == RunStatus::SuspendedClientTool && !self.held.is_empty();
            return answered.then(|| Due::Answered(run.fence()));
        }
        if self.orphaned {
            Some(Due::Orphaned(run.fence()))
        } else if now >= run.lease_until {
            Some(Due::Lapsed(run.fence()))
        } else {
            None
        }
    }

    /// As [`Session::due`], once the clock has been looked at. A watch that was blind waits one lease more, because nobody could be heard
    /// meanwhile.
    pub fn look(&mut self, now: UnixMillis) -> Option<Due> {
        let own = self.policy.lease;
        let sight = self.vigil.look(now);
        if let Some(run) = self.run.as_mut().filter(|run| run.status == RunStatus::Running && sight == Sight::Blind) {
            run.lease_until = now.after(lease_of(run, own));
            // Nor could anybody come to follow it.
            run.life.unfollowed = run.life.unfollowed.map(|_| now);
        }
        self.due(now)
    }

    /// The object in which the run's producer was writing is gone. Answers how long the run pauses before its next attempt, with what must
    /// be written, if anything; `None` when it has died often enough. An object that died in such a pause has cost nothing: the rest of
    /// the pause is waited for.
    ///
    /// # Errors
    /// [`WriteRefused`]; nothing has changed.
    pub fn died(&mut self, now: UnixMillis, fence: &Fence) -> Result<Option<(Millis, Option<Effects>)>, WriteRefused> {
        let (run, _) = self.producing(fence)?;
        if let Some(again_at) = run.life.again_at {
            let whole = pause_after_death(run.life.deaths, self.policy.lease).unwrap_or_default();
            return Ok(Some((again_at.since(now).min(whole), None)));
        }
        let deaths = run.life.deaths.saturating_add(1);
        let Some(pause) = pause_after_death(deaths, self.policy.lease) else { return Ok(None) };
        let again_at = (pause > Millis::default()).then(|| now.after(pause));
        let run = RunRow { life: Life { deaths, again_at, ..run.life }, ..run };
        self.run = Some(run.clone());
        Ok(Some((pause, Some(self.effects(vec![Write::Run(run)])))))
    }

    /// How long the watch sleeps until it looks again; `None` when nothing is running.
    pub fn next_look(&mut self, now: UnixMillis) -> Option<Millis> {
        let run = self.run.as_ref().filter(|run| run.status == RunStatus::Running)?;
        let (lease, left) = (lease_of(run, self.policy.lease), run.lease_until.since(now));
        Some(self.vigil.plan(now, lease, left))
    }
}

/// How long the run's producer may be silent.
fn lease_of(run: &RunRow, own: Millis) -> Millis {
    run.push.as_ref().map_or(own, |push| push.lease)
}

//! What a session keeps and when it goes: retention, the size limit, the end of an idle session, and the alarm for all of it.

use super::{Session, keep_alive};
use crate::core::command::Effects;
use crate::core::retention::Kept;
use crate::core::run::RunStatus;
use crate::core::storage::{SessionRow, Write};
use crate::core::time::UnixMillis;

impl Session {
    /// Whether retention has something to look at: the size is not known, a run's time is over, or there is too much.
    pub fn retains(&self, now: UnixMillis) -> bool {
        let due = self.oldest.is_some_and(|ended| now >= ended.after(self.policy.retention));
        self.row.is_some() && (due || self.log.size().is_none_or(|size| size > self.policy.max_bytes))
    }

    /// Learns what the rows keep, and cuts the log: finished runs whose time is over, then the oldest ones until `wanted` bytes more fit.
    /// `kept` was read above this log's floor in this same turn. Never touches a live run, nor messages.
    pub fn retain(&mut self, now: UnixMillis, kept: &Kept, wanted: u64) -> Option<Effects> {
        let row = self.row.as_ref()?;
        let floor = self.log.floor();
        let live = self.run.as_ref().filter(|run| run.status.is_live());
        let cut = kept.cut(&self.policy, now, floor, live.map(|run| run.start), wanted);
        self.oldest = cut.oldest;
        if cut.through <= floor {
            self.log.measured(kept.bytes);
            return None;
        }
        let row = SessionRow { floor: cut.through, ..row.clone() };
        self.row = Some(row.clone());
        self.log.cut(cut.through, cut.bytes);
        self.view.cut(cut.through);
        Some(self.effects(vec![Write::Session(row), Write::TrimBlocks(cut.through)]))
    }

    /// Whether the session was idle for so long that it is as good as absent. A running run is never idle, a suspended one may be.
    pub fn expired(&self, now: UnixMillis) -> bool {
        self.expiry().is_some_and(|expiry| now >= expiry)
    }

    /// Removes all that an idle session stores, once its time is over; asked before anything else is answered.
    pub fn expire(&mut self, now: UnixMillis) -> Option<Vec<Write>> {
        self.expired(now).then(|| self.drop_all())
    }

    /// When the alarm must look at this session next. What is overdue lies in the past.
    ///
    /// After a load only the last run's end is known, so that the moment may be later than the oldest run's: every run arms the alarm
    /// for its lease first, and [`Session::retain`] learns the rest when it rings.
    pub fn alarm(&self, now: UnixMillis) -> Option<UnixMillis> {
        let retention = self.oldest.map(|ended| ended.after(self.policy.retention));
        let queued = self.next_queued().map(|_| now);
        [self.watch(now), self.detached_until(), retention, self.expiry(), queued].into_iter().flatten().min()
    }

    /// The alarms of a running run: its first lease, then every keep-alive. One that waits has an alarm only while its answers are not
    /// told.
    fn watch(&self, now: UnixMillis) -> Option<UnixMillis> {
        let run = self.run.as_ref().filter(|run| run.status.is_live())?;
        if run.status != RunStatus::Running {
            let asks = run.status == RunStatus::SuspendedClientTool;
            return (asks && !self.held.is_empty()).then(|| now.after(keep_alive(self.policy.lease)));
        }
        if let Some(push) = &run.push {
            // An object that nobody talks to leaves memory, and with it what it knows of the silence.
            return Some(run.lease_until.min(now.after(keep_alive(push.lease))));
        }
        let first = run.started.after(self.policy.lease);
        let keep_alive = now.after(keep_alive(self.policy.lease));
        Some(if now < first { first.min(keep_alive) } else { keep_alive })
    }

    fn expiry(&self) -> Option<UnixMillis> {
        let row = self.row.as_ref()?;
        let active = match &self.run {
            None => row.created,
            Some(run) if run.status == RunStatus::Running => return None,
            // A suspended run's producer has last renewed its lease when it paused.
            Some(run) if run.status.is_live() => run.started.max(run.lease_until),
            Some(run) => run.started.max(run.ended.unwrap_or(run.started)),
        };
        let queued = self.queue.last().map_or(active, |last| last.queued);
        self.policy.ttl.map(|ttl| active.max(queued).after(ttl))
    }
}

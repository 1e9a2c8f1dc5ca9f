//! What only time brings to open responses: heartbeats, the bound on a parked reader's wait, and evictions.

use std::rc::Rc;

use super::readers::Readers;
use super::turn::SessionTurn;
use crate::core::counters::Counters;
use crate::core::pace::Patience;
use crate::core::time::{Millis, UnixMillis};
use crate::core::view::View;
use crate::dialect::ui::response::HEARTBEAT;

impl Readers {
    /// Whether they are to be looked after at this moment.
    pub fn is_due(&self, now: UnixMillis) -> bool {
        self.look.is_some_and(|look| look <= now)
    }

    /// Readers that have waited for a run for long enough end in the next drain.
    pub fn end_waits(&mut self, now: UnixMillis) {
        let mut ended = false;
        for (_, open) in self.each_mut().filter(|(_, open)| open.parked_until.is_some_and(|until| now >= until)) {
            open.parked_until = None;
            open.reader.gave_up();
            ended = true;
        }
        if ended {
            self.everyone_asks();
        }
    }

    /// Ends the responses whose time is over.
    pub fn end_overdue(&mut self, view: &View, counters: &mut Counters, turn: &mut SessionTurn<'_>) {
        let patience = Patience::of(&self.deployment.settings);
        let overdue = self.each(|id, open| {
            let verdict = open.pace.verdict(turn.now, view, open.is_held_to_log(), &patience)?;
            Some((id, verdict))
        });
        overdue.into_iter().for_each(|(id, reason)| self.evict(id, reason, counters, turn));
    }

    /// A response that was silent for half a heartbeat gets a comment, so that no silence is longer than a whole one. A stalled one gets
    /// none.
    pub fn beat(&mut self, turn: &mut SessionTurn<'_>) {
        let (silence, now) = (self.half_heartbeat(), turn.now);
        let mut quiet = Vec::new();
        for (id, open) in self.each_mut() {
            // A last word that lies ahead was written before the clock was set back.
            if open.room && (now < open.written || now.since(open.written) >= silence) {
                open.written = now;
                quiet.push(id);
            }
        }
        self.give(quiet, &Rc::from(HEARTBEAT), turn);
    }

    /// Settles when they are looked after next. A deadline that a later event sets lies further away than the longest pause, so none is
    /// met late.
    pub fn look_again(&mut self, now: UnixMillis) {
        if self.is_empty() {
            self.look = None;
            return;
        }
        let patience = Patience::of(&self.deployment.settings);
        let longest = self.half_heartbeat().min(self.deployment.settings.live_wait).min(patience.shortest());
        let latest = now.after(longest);
        // One that lies further ahead was set before the clock was set back.
        self.look = self.look.filter(|look| now < *look && *look <= latest).or_else(|| {
            let deadlines = self.each(|_, open| {
                let verdict = open.pace.deadline(&patience);
                Some(open.parked_until.map_or(verdict, |until| until.min(verdict)))
            });
            let next = deadlines.into_iter().min().map_or(latest, |due| due.min(latest));
            Some(next.max(now.after(Millis::new(1))))
        });
    }

    fn half_heartbeat(&self) -> Millis {
        Millis::new((self.deployment.settings.heartbeat.get() / 2).max(1))
    }
}

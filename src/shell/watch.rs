//! One timer for all open responses: heartbeats, the bound on a parked reader's wait, and evictions that only time brings.

use std::rc::Rc;

use js_sys::Uint8Array;

use super::clock::{now, sleep};
use super::host::Host;
use crate::core::pace::Patience;
use crate::core::time::{Millis, UnixMillis};
use crate::dialect::ui::response::HEARTBEAT;

impl Host {
    /// Looks after the readers until there are none. A deadline that a later event sets lies further away than the longest pause, so
    /// none is met late.
    pub fn watch_readers(self: &Rc<Self>) {
        if self.readers.watching.replace(true) {
            return;
        }
        let host = Rc::clone(self);
        self.spawn(async move {
            let _watching = Watching(Rc::clone(&host));
            while !host.readers.is_empty() {
                let pause = host.pause();
                sleep(pause).await;
                host.look_after_readers();
            }
        });
    }

    fn half_heartbeat(&self) -> Millis {
        Millis::new((self.config.settings.heartbeat.get() / 2).max(1))
    }

    fn pause(&self) -> Millis {
        let settings = &self.config.settings;
        let patience = Patience::of(settings);
        let longest = self.half_heartbeat().min(settings.live_wait).min(patience.shortest());
        let now = now();
        let deadlines = self.readers.each(|_, open| {
            let verdict = open.pace.deadline(&patience);
            Some(open.parked_until.map_or(verdict, |until| until.min(verdict)))
        });
        let next = deadlines.into_iter().min().map_or(longest, |due| due.since(now).min(longest));
        next.max(Millis::new(1))
    }

    fn look_after_readers(self: &Rc<Self>) {
        let now = now();
        self.end_waits(now);
        self.end_overdue(now);
        self.beat(now);
    }

    fn end_waits(self: &Rc<Self>, now: UnixMillis) {
        let waited = self.readers.each(|id, open| open.parked_until.is_some_and(|until| now >= until).then_some(id));
        for id in &waited {
            self.readers.change(*id, |open| {
                open.parked_until = None;
                open.reader.gave_up();
            });
        }
        if !waited.is_empty() {
            self.drain();
        }
    }

    fn end_overdue(self: &Rc<Self>, now: UnixMillis) {
        let patience = Patience::of(&self.config.settings);
        let overdue = self.session(|session| {
            self.readers.each(|id, open| {
                let verdict = open.pace.verdict(now, session.view(), open.is_held_to_log(), &patience)?;
                Some((id, verdict))
            })
        });
        for (id, reason) in overdue.unwrap_or_default() {
            self.evict(id, reason);
        }
    }

    /// A response that was silent for half a heartbeat gets a comment, so that no silence is longer than a whole one. A stalled one gets
    /// none.
    fn beat(&self, now: UnixMillis) {
        let silence = self.half_heartbeat();
        let quiet = self.readers.each(|id, open| {
            // A last word that lies ahead was written before the clock was set back.
            let silent = (now < open.written || now.since(open.written) >= silence) && open.body.is_hungry();
            silent.then(|| (id, open.body.pen()))
        });
        if quiet.is_empty() {
            return;
        }
        let comment = Uint8Array::from(HEARTBEAT);
        for (id, pen) in quiet {
            if pen.has_room() {
                pen.write(&comment);
                self.readers.change(id, |open| open.written = now);
            }
        }
    }
}

/// The watch's task, whichever way it ends.
struct Watching(Rc<Host>);

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.readers.watching.set(false);
    }
}

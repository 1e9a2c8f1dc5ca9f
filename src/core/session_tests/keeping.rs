//! The world's retention: every cut is compared with what may go, and every step with what must be there.

use super::model::{Deed, Facts, Item};
use super::world::{POLICY, World, lease_of, place};
use crate::core::error::Code;
use crate::core::ids::Cursor;
use crate::core::run::{Fence, Outcome};
use crate::core::session::keep_alive;
use crate::core::storage::{Storage, Write};
use crate::core::time::UnixMillis;

fn end_of_retention(facts: &Facts) -> Option<UnixMillis> {
    facts.kept().next().map(|(_, ended)| ended.after(POLICY.retention))
}

fn expiry(facts: &Facts) -> Option<UnixMillis> {
    let since = facts.idle_since()?;
    let queued = facts.queue.last().map_or(since, |last| last.queued);
    POLICY.ttl.map(|ttl| since.max(queued).after(ttl))
}

impl World {
    pub(super) fn stored_bytes(&self) -> u64 {
        self.storage.blocks(Cursor::START, usize::MAX).unwrap().iter().map(|block| block.bytes.len() as u64).sum()
    }

    /// What the alarm does, and a write that finds no room. `false` when its own write failed.
    pub fn retain(&mut self, wanted: u64) -> bool {
        let kept = self.storage.kept(self.session.log().floor()).unwrap();
        let too_much = self.stored_bytes() + wanted > POLICY.max_bytes;
        let mut facts = self.model.latest().clone();
        let effects = self.session.retain(self.now, &kept, wanted);
        if let Some(effects) = &effects {
            let [Write::Session(row), Write::TrimBlocks(through)] = &effects.writes[..] else { panic!("{effects:?}") };
            let (from, to) = (facts.floor, place(*through));
            assert!(row.floor == *through && to > from, "the floor rises to what is removed");
            let gone: Vec<_> = facts.kept().filter(|(end, _)| *end <= to).collect();
            assert_eq!(gone.last().map(|(end, _)| *end), Some(to), "no live run's chunk, and no run in part");
            let expired = |ended: UnixMillis| self.now >= ended.after(POLICY.retention);
            assert!(too_much || gone.iter().all(|(_, ended)| expired(*ended)), "nothing goes without a reason");
            facts.floor = to;
        }
        assert!(end_of_retention(&facts).is_none_or(|end| self.now < end), "what is due goes");
        let full = self.session.log().size().is_none_or(|size| size + wanted > POLICY.max_bytes);
        assert!(!facts.exists || !full || facts.kept().next().is_none(), "room is made while a finished run is kept");
        effects.is_none_or(|effects| self.apply(&effects, facts))
    }

    /// As the shell does: cut, write once more, and fail a run that is too large by itself.
    pub fn make_room(&mut self, wanted: u64, fence: &Fence, items: &[Item], deed: &Deed) {
        let size = self.session.log().size();
        assert!(size.is_none_or(|size| size + wanted > POLICY.max_bytes), "it would have fitted");
        if !self.retain(wanted) {
            return;
        }
        if self.stored_bytes() + wanted <= POLICY.max_bytes {
            self.write_items(fence, items, deed);
        } else {
            assert!(self.model.latest().kept().next().is_none());
            let error = Item::Chunk(self.fresh(0));
            self.write_items(fence, &[error], &Deed::Finish(Outcome::Failed(Code::StateSessionFull)));
        }
    }

    /// The alarm rings, and the shell does what is due.
    pub fn ring(&mut self) {
        let Some(alarm) = self.session.alarm(self.now) else { return };
        self.now = self.now.max(alarm);
        self.settle();
        self.go_on();
        if self.session.retains(self.now) {
            self.retain(0);
        }
        self.expire();
    }

    pub fn expire(&mut self) {
        let due = expiry(self.model.latest()).is_some_and(|expiry| self.now >= expiry);
        let writes = self.session.expire(self.now);
        assert_eq!(writes.is_some(), due);
        if let Some(writes) = writes
            && self.transact(&writes, Facts::default(), None)
        {
            self.load(false);
        }
    }

    pub(super) fn check_what_is_kept(&self, facts: &Facts) {
        let (log, view) = (self.session.log(), self.session.view());
        assert_eq!((place(log.floor()), place(view.floor())), (facts.floor, facts.floor));
        assert!(facts.exists || facts.floor == 0);
        assert!(facts.cursor() >= facts.floor, "a snapshot is a place to go on from");
        let (mut through, mut bytes) = (facts.floor, 0);
        for block in self.storage.blocks(Cursor::START, usize::MAX).unwrap() {
            assert_eq!(
                place(block.first.before()),
                through,
                "nothing is missing in the middle, and nothing below the floor"
            );
            through = place(block.last.cursor());
            bytes += block.bytes.len() as u64;
        }
        assert_eq!(through, facts.chunks.len());
        assert!(log.size().is_none_or(|size| size == bytes));
        assert_eq!(self.session.expired(self.now), expiry(facts).is_some_and(|expiry| self.now >= expiry));
        self.check_alarm(facts);
    }

    fn check_alarm(&self, facts: &Facts) {
        let (now, alarm) = (self.now, self.session.alarm(self.now));
        assert_eq!(alarm.is_some(), facts.exists);
        let outside = facts.running().filter(|run| run.push.is_some()).map(lease_of);
        let lease = outside.map(|lease| self.lease_until.min(now.after(keep_alive(lease))));
        let kept_alive = facts.running().filter(|run| run.push.is_none()).map(|_| now.after(keep_alive(POLICY.lease)));
        assert!(kept_alive.or(lease).is_none_or(|latest| alarm <= Some(latest)));
        // A memory that was loaded learns of older runs when it retains for the first time.
        if let Some(size) = self.session.log().size() {
            let queued = (facts.live().is_none() && !facts.queue.is_empty()).then_some(now);
            let planned = [end_of_retention(facts), expiry(facts), lease, queued].into_iter().flatten().min();
            match kept_alive {
                None => assert_eq!(alarm, planned),
                Some(_) => {
                    assert!(alarm == planned || (alarm > Some(now) && planned.is_none_or(|at| alarm < Some(at))))
                }
            }
            let due = end_of_retention(facts).is_some_and(|end| now >= end);
            assert_eq!(self.session.retains(now), facts.exists && (due || size > POLICY.max_bytes));
        } else {
            assert!(self.session.retains(now));
        }
    }

    /// When all time is over, nothing is left: first the chunks, then the rest.
    pub(super) fn outlive(&mut self) {
        if self.holder().is_some() {
            return;
        }
        let ended = self.model.latest().runs.iter().filter_map(|run| run.ended);
        self.now = ended.fold(self.now, UnixMillis::max).after(POLICY.retention);
        // One write may still be told to fail.
        let _ = self.retain(0) || self.retain(0);
        self.check();
        let (log, suspended) = (self.session.log(), self.model.latest().suspended());
        assert_eq!(place(log.floor()), suspended.map_or(place(log.head()), |run| run.start), "all but a live run");
        assert!(suspended.is_some() || self.stored_bytes() == 0);
        self.load(false);
        self.check();
        self.now = self.now.max(expiry(self.model.latest()).unwrap());
        self.expire();
        self.expire();
        self.check();
        assert!(self.storage.counts().unwrap().is_empty());
    }
}

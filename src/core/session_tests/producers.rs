//! The world's producers, and who answers or stops them: every write is accepted or refused as the model says.

use super::model::{Deed, Facts, Item};
use super::outside::Word;
use super::world::{LEASE, World, fence_of, lease_of};
use crate::core::chunk::Chunk;
use crate::core::command::{Due, Effects, StopTarget, WriteRefused};
use crate::core::error::Code;
use crate::core::ids::AttemptId;
use crate::core::record::{Commit, Record};
use crate::core::run::{Fence, Outcome};

pub(super) fn chunk(text: &str) -> Chunk {
    Chunk::new("text-delta").with("delta", text)
}

impl World {
    /// The newest, or an older one.
    pub(super) fn fence(&self, back: usize) -> Option<Fence> {
        let newest = self.fences.len().checked_sub(1)?;
        self.fences.get(newest - back.min(newest)).cloned()
    }

    fn items(&mut self, items: &[Option<usize>]) -> Vec<Item> {
        let item = |padding: &Option<usize>| padding.map_or(Item::Commit, |padding| Item::Chunk(self.fresh(padding)));
        items.iter().map(item).collect()
    }

    /// Writes items, and ends or suspends the run if told so; by any fence that was ever handed out.
    pub fn write(&mut self, fence: usize, items: &[Option<usize>], outcome: Option<Outcome>) {
        let Some(fence) = self.fence(fence) else { return };
        if self.is_outside(&fence.run) {
            let words = items.iter().map(|item| item.map_or(Word::Fold, Word::Chunk)).collect::<Vec<_>>();
            return self.send(&fence, 0, &words, outcome);
        }
        let items = self.items(items);
        self.write_items(&fence, &items, &outcome.map_or(Deed::Append, Deed::Finish));
    }

    /// Somebody answers some of a run's calls.
    pub fn answer(&mut self, fence: usize, items: &[Option<usize>]) {
        let Some(fence) = self.fence(fence) else { return };
        let (items, base) = (self.items(items), self.fresh(0));
        self.write_items(&fence, &items, &Deed::Answer(base));
    }

    pub(super) fn write_items(&mut self, fence: &Fence, items: &[Item], deed: &Deed) {
        let (before, mut facts) = (self.state(), self.model.latest().clone());
        let refusal = facts.refusal(fence, deed);
        let chunks = facts.chunks.len();
        let committed = refusal.is_none().then(|| {
            facts.write(items, deed, self.now, self.lease_until);
            facts.messages.get(facts.runs.last().unwrap().reply).map(|message| message.json.clone())
        });
        let records = records_of(items, &facts, committed.as_ref().and_then(Option::as_deref));
        let effects = match deed {
            Deed::Append => self.session.append(fence, &records),
            Deed::Answer(_) => self.session.answer(fence, &records),
            Deed::Finish(outcome) => self.session.finish(self.now, fence, *outcome, &records),
            Deed::LastWords => panic!("said by whoever takes the place"),
        };
        if let Err(WriteRefused::NoRoom { wanted }) = effects {
            assert_eq!((self.state(), refusal), (before, None), "a write that finds no room changes nothing");
            return self.make_room(wanted, fence, items, deed);
        }
        if let Some(effects) = self.accepted(effects, refusal, &before) {
            assert_eq!(effects.chunks, (facts.chunks.len() - chunks) as u64);
            let orphaned = self.orphaned;
            if self.apply(&effects, facts) && matches!(deed, Deed::Finish(_)) {
                self.orphaned = false;
            } else {
                // A write that fails is not an end: the run is read again as the rows tell it.
                self.orphaned = orphaned && self.holder().is_some();
            }
        }
    }

    fn accepted(
        &self,
        effects: Result<Effects, WriteRefused>,
        refusal: Option<WriteRefused>,
        before: &str,
    ) -> Option<Effects> {
        match (effects, refusal) {
            (Ok(effects), None) => Some(effects),
            (Err(refused), Some(expected)) => {
                assert_eq!(refused, expected);
                assert_eq!(self.state(), before, "a refused write changes nothing");
                None
            }
            (effects, expected) => {
                panic!("{:?}, but the model says {expected:?}", effects.map(|effects| effects.ticket))
            }
        }
    }

    /// The producer tries its step once more.
    pub fn begin_attempt(&mut self, fence: usize) {
        let Some(fence) = self.fence(fence) else { return };
        let (before, mut facts) = (self.state(), self.model.latest().clone());
        let effects = self.session.begin_attempt(&fence);
        if let Some(effects) = self.accepted(effects, facts.refusal(&fence, &Deed::Append), &before) {
            let run = facts.runs.last_mut().unwrap();
            (run.attempts, run.lease) = (run.attempts + 1, self.lease_until);
            let orphaned = self.orphaned;
            self.apply(&effects, facts);
            self.orphaned = orphaned && self.holder().is_some();
        }
    }

    pub fn stop(&mut self, stale: bool) {
        let target = self.session.stop_target(&self.caller, stale.then_some("another"));
        match self.model.latest().live().map(fence_of) {
            _ if !self.model.latest().exists => assert!(target.is_err()),
            _ if stale => assert_eq!(target, Ok(StopTarget::Stale)),
            Some(fence) => {
                let items = self.last_items();
                assert_eq!(target, Ok(StopTarget::Live(fence.clone())), "running or suspended");
                self.write_items(&fence, &items, &Deed::Finish(Outcome::Interrupted));
            }
            None => assert_eq!(target, Ok(StopTarget::Idle)),
        }
    }

    pub fn renew(&mut self, fence: usize) {
        let Some(fence) = self.fence(fence) else { return };
        let before = self.state();
        self.session.renew(self.now, &fence);
        if self.holder() == Some(fence) {
            self.lease_until = self.now.after(self.model.latest().running().map_or(LEASE, lease_of));
        } else {
            assert_eq!(self.state(), before, "a stale producer renews nothing");
        }
    }

    /// What the object adds to the end of a pushed run that its producer does not end itself.
    pub(super) fn last_items(&mut self) -> Vec<Item> {
        if self.model.latest().running().is_none_or(|run| run.push.is_none()) {
            return Vec::new();
        }
        vec![Item::Chunk(self.fresh(0)), Item::Commit]
    }

    pub fn settle(&mut self) {
        if let Some(Due::Orphaned(fence) | Due::Lapsed(fence)) = self.session.due(self.now) {
            let items = [vec![Item::Chunk(self.fresh(0))], self.last_items()].concat();
            self.write_items(&fence, &items, &Deed::Finish(Outcome::Failed(Code::ProducerLost)));
        }
    }
}

/// Items as a producer hands them over; `committed` is what its last commit makes of the message.
pub(super) fn records_of(items: &[Item], facts: &Facts, committed: Option<&str>) -> Vec<Record> {
    let last = items.iter().rposition(|item| matches!(item, Item::Commit));
    let record = |(at, item): (usize, &Item)| match item {
        Item::Chunk(text) => {
            let attempt = Some((AttemptId::new(format!("a{}", facts.points.len())), 1));
            Record::Chunk { chunk: chunk(text), attempt }
        }
        Item::Commit => {
            let json = committed.filter(|_| Some(at) == last).unwrap_or("\"never seen\"");
            Record::Commit(Commit { message: serde_json::from_str(json).unwrap(), step_count: 1, state: None })
        }
    };
    items.iter().enumerate().map(record).collect()
}

//! How the world's runs start: by a send, by results, by a rewind. Every start is accepted or refused as the model says.

use super::model::{Beginning, Deed, Item, quoted};
use super::producers::{chunk, records_of};
use super::world::{LEASE, World, checkpoint_id, fence_of, place};
use crate::core::command::{
    Abandoned, Displacement, Entry, Input, Keyed, LastWords, Opening, RewindCause, Rewound, Start, StartRefused,
    WriteRefused,
};
use crate::core::ids::{Cursor, MessageId, RequestKey, RunId};
use crate::core::record::Record;
use crate::core::run::{EntryKind, Fence, Outcome, Vocabulary};
use crate::core::storage::{Storage, Write};
use crate::core::time::Millis;

/// What somebody wants.
#[derive(Clone, Debug)]
pub enum Wish {
    /// Whether the sender knows what is suspended.
    Send {
        apt: bool,
    },
    Results,
    /// The first message that waits, in its run.
    Queued {
        place: u32,
        message: String,
        json: String,
        run: RunId,
    },
    /// A producer outside brings messages, and may know what is live.
    Push {
        inputs: usize,
        supersede: bool,
        apt: bool,
    },
    /// So many messages stay, or more than there are; whether another message takes the place of what is cut.
    Rewind {
        keep: usize,
        input: bool,
    },
    /// To a checkpoint.
    GoBack {
        point: usize,
        input: bool,
    },
}

impl World {
    fn input(&mut self) -> Input {
        let text = self.fresh(0);
        Input { id: MessageId::new(format!("u{text}")), json: quoted(&text) }
    }

    /// What becomes of a suspended run's message: nothing, every other time, while it is not stored.
    fn rewritten(&mut self) -> Option<String> {
        let text = self.fresh(0);
        let facts = self.model.latest();
        let is_stored = facts.suspended().is_none_or(|run| facts.messages.len() > run.reply);
        (is_stored || text.len().is_multiple_of(2)).then(|| quoted(&text))
    }

    fn entry(&mut self, wish: &Wish) -> Option<Entry> {
        let facts = self.model.latest();
        let (keep, input) = match *wish {
            Wish::Send { apt } => {
                let abandons = facts.asking().is_some() == apt;
                let abandoned = abandons.then(|| Abandoned { message: self.rewritten() });
                return Some(Entry::Send { input: self.input(), abandoned });
            }
            Wish::Push { inputs, supersede, apt } => {
                let abandons = (supersede && facts.suspended().is_some()) == apt;
                let abandoned = abandons.then(|| Abandoned { message: self.rewritten() });
                let role = |at: usize| if at.is_multiple_of(2) { "user" } else { "assistant" };
                let inputs = (0..inputs).map(|at| (self.input(), role(at).to_owned())).collect();
                return Some(Entry::Push { inputs, supersede, abandoned });
            }
            Wish::Queued { ref message, ref json, .. } => {
                let input = Input { id: MessageId::new(&**message), json: json.clone() };
                return Some(Entry::Send { input, abandoned: None });
            }
            Wish::Results => return Some(Entry::Results { message: self.rewritten() }),
            Wish::Rewind { keep, input } => (u32::try_from(keep % (facts.messages.len() + 2)).unwrap(), input),
            Wish::GoBack { point, input } => {
                let ordinal = point % facts.points.len().max(1) + 1;
                let found = self.storage.rewind_point(&checkpoint_id(ordinal)).unwrap();
                assert_eq!(found.is_some(), ordinal <= facts.points.len() && facts.is_reachable(ordinal));
                (found?.message_count, input)
            }
        };
        let cause = if input { RewindCause::Rollback } else { RewindCause::Retry };
        Some(Entry::Rewind { keep, input: input.then(|| self.input()), cause })
    }

    /// `push` is the lease of a producer outside, in ms.
    pub fn start(&mut self, wish: &Wish, key: Option<u8>, opening: usize, push: Option<u64>) {
        self.start_with(wish, key, opening, push, None);
    }

    /// The same in the place of a run that says its last words: the newest, or an older one.
    pub fn start_instead(&mut self, wish: &Wish, opening: usize, fence: usize, displacement: Displacement) {
        let Some(fence) = self.fence(fence) else { return };
        let items = match self.last_items() {
            none if none.is_empty() => vec![Item::Chunk(self.fresh(0)), Item::Commit],
            items => items,
        };
        self.start_with(wish, None, opening, None, Some((fence, displacement, items)));
    }

    fn start_with(
        &mut self,
        wish: &Wish,
        key: Option<u8>,
        opening: usize,
        push: Option<u64>,
        last: Option<(Fence, Displacement, Vec<Item>)>,
    ) {
        let Some(entry) = self.entry(wish) else { return };
        let queued = if let Wish::Queued { place, run, .. } = wish { Some((*place, run.clone())) } else { None };
        let id = queued.clone().map_or_else(|| RunId::new(format!("r{}", self.fresh(0))), |(_, run)| run);
        let key = key.map(|key| (format!("k{key}"), self.fresh(0)));
        let opening: Vec<_> = (0..opening).map(|_| self.fresh(0)).collect();
        let push = push.map(Millis::new);
        let state = push.filter(|_| opening.len() != 1).map(|_| quoted(&self.fresh(0)));
        let (before, mut facts) = (self.state(), self.model.latest().clone());
        let (head, live) = (facts.chunks.len(), facts.live().cloned());
        let mut refusal = None;
        let last = last.map(|(fence, displacement, items)| {
            let deed = match displacement {
                Displacement::Interrupted => Deed::Finish(Outcome::Interrupted),
                Displacement::Superseded => Deed::LastWords,
            };
            let fits = match displacement {
                Displacement::Interrupted => matches!(entry, Entry::Send { .. }),
                Displacement::Superseded => matches!(entry, Entry::Push { .. }),
            };
            refusal = if fits { facts.refusal(&fence, &deed) } else { Some(WriteRefused::Ended) };
            let mut committed = None;
            if refusal.is_none() {
                facts.write(&items, &deed, self.now, self.lease_until);
                let reply = facts.runs.last().unwrap().reply;
                committed = facts.messages.get(reply).map(|message| message.json.clone());
            }
            (fence, displacement, records_of(&items, &facts, committed.as_deref()))
        });
        let start = Start {
            now: self.now,
            caller: &self.caller,
            run: id.clone(),
            salt: "salt",
            agent: "default",
            vocabulary: Vocabulary::Ui,
            lease: LEASE,
            key: key.clone().map(|(key, input_hash)| Keyed { key: RequestKey::parse(&key).unwrap(), input_hash }),
            entry: entry.clone(),
            push,
            state: state.clone(),
        };
        let plan = |world: &Self| match &last {
            None if queued.is_some() => world.session.plan_queued(start.clone()),
            None => world.session.plan(start.clone()),
            Some((fence, displacement, records)) => {
                let last = LastWords { fence, records, displacement: *displacement };
                world.session.plan_instead(&last, start.clone())
            }
        };
        let planned = plan(self);
        if let Some(refusal) = refusal.map(|_| StartRefused::Conflict).or_else(|| facts.start_refusal(&entry)) {
            assert_eq!((planned.unwrap_err(), self.state()), (refusal, before));
            return;
        }
        let (planned, twin) = (planned.unwrap(), plan(self).unwrap());
        let Opening { run: named, message_id, rewound: told, .. } = planned.opening().clone();
        let records: Vec<_> = opening.iter().map(|text| Record::Chunk { chunk: chunk(text), attempt: None }).collect();
        let started = self.session.start(planned, &records).unwrap();
        let before = self.state();
        assert_eq!(
            self.session.start(twin, &records).unwrap_err(),
            StartRefused::Conflict,
            "a plan is carried out once"
        );
        assert_eq!(self.state(), before, "a refused start changes nothing");
        let lease = self.now.after(push.unwrap_or(LEASE));
        let (before, begin) = (self.lease_until, facts.chunks.len());
        let beginning = Beginning { id, key, opening, now: self.now, lease, before, push, state };
        facts.start(beginning, &entry);
        if let Some((place, _)) = queued {
            facts.queue.retain(|waiting| waiting.place != place);
        }

        let run = facts.runs.last().unwrap();
        let message = MessageId::new(run.message.clone());
        let interrupts = matches!(last, Some((_, Displacement::Interrupted, _)));
        let superseded = live.filter(|_| run.kind != EntryKind::ToolResult && !interrupts).map(|live| live.id);
        assert_eq!((&started.fence, &started.message_id), (&fence_of(run), &message));
        assert_eq!((place(started.start), &started.superseded), (begin, &superseded));
        let rewound = match entry {
            Entry::Rewind { keep, cause, .. } => Some(Rewound {
                checkpoint: checkpoint_id(facts.truncated().unwrap()),
                message_count: keep,
                from: Cursor::new(begin as u64).unwrap(),
                cause,
            }),
            Entry::Send { .. } | Entry::Results { .. } | Entry::Push { .. } => None,
        };
        assert_eq!((named, message_id, told), (run.id.clone(), message, rewound));
        if last.is_none() {
            assert!(matches!(started.effects.writes.first(), Some(Write::Session(_))), "the session's row comes first");
        }
        assert_eq!(started.effects.chunks, (facts.chunks.len() - head) as u64);

        if push.is_some() {
            self.scripts.insert(started.fence.run.clone(), Vec::new());
        }
        self.fences.push(started.fence);
        self.orphaned = false;
        self.lease_until = lease;
        self.apply(&started.effects, facts);
    }
}

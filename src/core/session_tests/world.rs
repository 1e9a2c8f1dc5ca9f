//! One session and everything around it, driven step by step. Every step checks what DESIGN.md section 2 promises.

use super::model::{Facts, Item, Model};
use super::readers::Following;
use crate::core::caller::Caller;
use crate::core::chunk::Chunk;
use crate::core::command::{Due, Effects, Input, Start, StartRefused, StopTarget, WriteRefused};
use crate::core::error::Code;
use crate::core::frame;
use crate::core::ids::{AttemptId, Cursor, MessageId, RunId};
use crate::core::log::Ticket;
use crate::core::reader::{Next, Terminal};
use crate::core::record::{Commit, Record};
use crate::core::retention::Policy;
use crate::core::run::{Fence, Outcome, Vocabulary};
use crate::core::session::{Session, StreamStatus};
use crate::core::snapshot;
use crate::core::storage::double::{Double, Fault};
use crate::core::storage::{CheckpointKind, Storage, Write};
use crate::core::time::{Millis, UnixMillis};

pub const LEASE: Millis = Millis::new(30_000);

/// Small enough for all of it to happen in a short script.
pub const POLICY: Policy =
    Policy { lease: LEASE, retention: Millis::new(60_000), ttl: Some(Millis::new(150_000)), max_bytes: 120_000 };

/// A confirmation under way: of which session in memory, and the head that it confirms.
struct Confirmation {
    ticket: Ticket,
    loads: usize,
    head: usize,
}

pub struct World {
    pub(super) storage: Double,
    pub(super) session: Session,
    pub(super) model: Model,
    caller: Caller,
    pub(super) now: UnixMillis,
    lease_until: UnixMillis,
    orphaned: bool,
    loads: usize,
    named: u64,
    fences: Vec<Fence>,
    unsynced: Option<Ticket>,
    confirmations: Vec<Confirmation>,
    pub(super) readers: Vec<Following>,
}

fn chunk(text: &str) -> Chunk {
    Chunk::new("text-delta").with("delta", text)
}

pub(super) fn place(cursor: Cursor) -> usize {
    cursor.get().try_into().unwrap()
}

impl World {
    pub fn new() -> Self {
        let now = UnixMillis::new(1_000_000);
        Self {
            storage: Double::new(),
            session: Session::load(None, POLICY, false),
            model: Model::new(),
            caller: Caller::Owner("me".into()),
            now,
            lease_until: now,
            orphaned: false,
            loads: 0,
            named: 0,
            fences: Vec::new(),
            unsynced: None,
            confirmations: Vec::new(),
            readers: Vec::new(),
        }
    }

    /// A text that nothing else has, so that a number can never be used again unnoticed.
    pub(super) fn fresh(&mut self, padding: usize) -> String {
        self.named += 1;
        format!("{}.{}", self.named, "x".repeat(padding))
    }

    pub(super) fn state(&self) -> String {
        let Self { session, now, .. } = self;
        let rows = (session.run(), session.checkpoint(), session.truncated(), session.authorise(&self.caller));
        format!(
            "{rows:?} {:?} {:?} {} {:?} {:?}",
            session.log(),
            session.view(),
            session.is_unconfirmed(),
            session.due(*now),
            session.alarm(*now)
        )
    }

    /// Does what the shell does with effects. A failed write throws the session in memory away.
    pub(super) fn apply(&mut self, effects: &Effects, facts: Facts) -> bool {
        self.transact(&effects.writes, facts, Some(effects.ticket))
    }

    pub(super) fn transact(&mut self, writes: &[Write], facts: Facts, ticket: Option<Ticket>) -> bool {
        let applied = self.storage.apply(writes);
        // The double tells by its fault whether a failed write was kept; a real storage is asked by reading the rows.
        let kept = applied.is_ok() || format!("{applied:?}").contains("after");
        if kept {
            self.model.push(facts);
        }
        if applied.is_ok() {
            self.unsynced = ticket;
            return true;
        }
        self.storage.sync();
        self.model.sync();
        self.load(!self.orphaned);
        false
    }

    pub(super) fn load(&mut self, producer_alive: bool) {
        self.session = Session::load(self.storage.load().unwrap(), POLICY, producer_alive);
        self.loads += 1;
        self.unsynced = None;
        self.orphaned = !producer_alive && self.model.latest().running().is_some();
        if !self.model.latest().exists {
            // The responses of a session that is gone end before another one can begin under the same name.
            for Following { mut reader, .. } in self.readers.drain(..) {
                reader.announced();
                assert_eq!(reader.next(self.session.view()), Next::End(Terminal::Dropped));
            }
        }
        if producer_alive && let Some(fence) = self.holder() {
            self.session.renew(self.now, &fence);
            self.lease_until = self.now.after(LEASE);
        }
    }

    pub(super) fn holder(&self) -> Option<Fence> {
        self.model.latest().running().map(|run| Fence { run: run.id.clone(), epoch: 1 })
    }

    /// The newest, or an older one.
    fn fence(&self, back: usize) -> Option<Fence> {
        let newest = self.fences.len().checked_sub(1)?;
        self.fences.get(newest - back.min(newest)).cloned()
    }

    pub fn start(&mut self) {
        let (before, facts) = (self.state(), self.model.latest().clone());
        let id = RunId::new(format!("r{}", self.fresh(0)));
        let input = format!("\"{}\"", self.fresh(0));
        let opening = vec![self.fresh(0), self.fresh(0)];
        let started = self.session.start(Start {
            now: self.now,
            caller: &self.caller,
            run: id.clone(),
            salt: "salt",
            agent: "default",
            vocabulary: Vocabulary::Ui,
            lease: LEASE,
            input: Input { id: MessageId::new(input.as_str()), json: input.clone() },
            opening: &|_, _| opening.iter().map(|text| Record::Chunk { chunk: chunk(text), attempt: None }).collect(),
        });
        if let Some(run) = facts.running() {
            assert_eq!(started.unwrap_err(), StartRefused::AlreadyRunning(run.id.clone()));
            assert_eq!(self.state(), before, "a refused start changes nothing");
            return;
        }
        let started = started.unwrap();
        assert_eq!(place(started.start), facts.chunks.len());
        let mut facts = facts;
        facts.start(&id, input, &opening, self.now);
        self.fences.push(started.fence);
        self.orphaned = false;
        self.lease_until = self.now.after(LEASE);
        self.apply(&started.effects, facts);
    }

    /// Writes items, and ends the run if told so; by any fence that was ever handed out.
    pub fn write(&mut self, fence: usize, items: &[Option<usize>], outcome: Option<Outcome>) {
        let Some(fence) = self.fence(fence) else { return };
        let items: Vec<_> = items
            .iter()
            .map(|padding| padding.map_or(Item::Commit, |padding| Item::Chunk(self.fresh(padding))))
            .collect();
        self.write_items(&fence, &items, outcome);
    }

    pub(super) fn write_items(&mut self, fence: &Fence, items: &[Item], outcome: Option<Outcome>) {
        let (before, mut facts) = (self.state(), self.model.latest().clone());
        let refusal = facts.refusal(fence);
        let mut records = Vec::new();
        for item in items {
            if refusal.is_none() {
                facts.write(item);
            }
            let attempt = Some((AttemptId::new(format!("a{}", facts.cursor)), 1));
            records.push(match item {
                Item::Chunk(text) => Record::Chunk { chunk: chunk(text), attempt },
                Item::Commit if refusal.is_none() => {
                    Record::Commit(Commit { message: serde_json::from_str(&facts.reply()).unwrap(), step_count: 1 })
                }
                Item::Commit => Record::Commit(Commit { message: "stale".into(), step_count: 9 }),
            });
        }
        let effects = match outcome {
            Some(outcome) => self.session.finish(self.now, fence, outcome, &records),
            None => self.session.append(fence, &records),
        };
        if let Err(WriteRefused::NoRoom { wanted }) = effects {
            assert_eq!((self.state(), refusal), (before, None), "a write that finds no room changes nothing");
            return self.make_room(wanted, fence, items, outcome);
        }
        match (effects, refusal) {
            (Ok(effects), None) => {
                if let Some(outcome) = outcome {
                    facts.finish(outcome, self.now);
                }
                // A write that fails is not an end: the run is read again as the rows tell it.
                let orphaned = self.orphaned;
                if self.apply(&effects, facts) && outcome.is_some() {
                    self.orphaned = false;
                } else {
                    self.orphaned = orphaned && self.model.latest().running().is_some();
                }
            }
            (Err(refused), Some(expected)) => {
                assert_eq!(refused, expected);
                assert_eq!(self.state(), before, "a refused write changes nothing");
            }
            (effects, expected) => {
                panic!("{:?}, but the model says {expected:?}", effects.map(|effects| effects.ticket))
            }
        }
    }

    pub fn stop(&mut self) {
        let target = self.session.stop_target(&self.caller, None);
        match self.holder() {
            Some(fence) => {
                assert_eq!(target, Ok(StopTarget::Running(fence.clone())));
                self.write_items(&fence, &[], Some(Outcome::Interrupted));
            }
            None if self.model.latest().exists => assert_eq!(target, Ok(StopTarget::Idle)),
            None => assert!(target.is_err()),
        }
    }

    pub fn renew(&mut self, fence: usize) {
        let Some(fence) = self.fence(fence) else { return };
        let before = self.state();
        self.session.renew(self.now, &fence);
        if self.holder() == Some(fence) {
            self.lease_until = self.now.after(LEASE);
        } else {
            assert_eq!(self.state(), before, "a stale producer renews nothing");
        }
    }

    pub fn sync(&mut self) {
        self.storage.sync();
        self.model.sync();
        if let Some(ticket) = self.unsynced.take() {
            self.confirmations.push(Confirmation { ticket, loads: self.loads, head: self.model.latest().chunks.len() });
        }
    }

    pub fn confirm(&mut self, which: usize) {
        if !self.confirmations.is_empty() {
            let Confirmation { ticket, loads, head } = self.confirmations.remove(which % self.confirmations.len());
            self.session.confirmed(ticket);
            assert!(loads != self.loads || place(self.session.view().durable()) >= head, "a confirmation publishes");
        }
    }

    pub fn confirm_newest(&mut self) {
        self.confirm(self.confirmations.len().saturating_sub(1));
    }

    pub fn lose_confirmation(&mut self) {
        self.confirmations.pop();
    }

    pub fn fail_next(&self, after: bool) {
        self.storage.fail_next(if after { Fault::After } else { Fault::Before });
    }

    /// The machine dies and keeps a prefix of what was not synced.
    pub fn crash(&mut self, kept: usize) {
        self.storage.crash(kept);
        self.model.crash(kept);
        self.readers.clear();
        self.confirmations.clear();
        self.load(false);
    }

    pub fn clock(&mut self, by: i64) {
        self.now = UnixMillis::new(self.now.get().saturating_add_signed(by));
    }

    pub fn settle(&mut self) {
        if let Some(Due::Orphaned(fence) | Due::Lapsed(fence)) = self.session.due(self.now) {
            let error = Item::Chunk(self.fresh(0));
            self.write_items(&fence, &[error], Some(Outcome::Failed(Code::ProducerLost)));
        }
    }

    pub fn delete(&mut self) {
        assert!(self.session.delete(&Caller::Anonymous).is_err(), "not yours");
        let Ok(writes) = self.session.delete(&self.caller) else {
            assert!(!self.model.latest().exists);
            return;
        };
        if self.transact(&writes, Facts::default(), None) {
            self.load(false);
        }
    }

    /// What holds after every step.
    pub fn check(&self) {
        let facts = self.model.latest();
        assert!(place(self.session.view().durable()) <= self.model.durable().chunks.len(), "past what was synced");
        assert_eq!(place(self.session.log().head()), facts.chunks.len());
        let due = match self.holder() {
            Some(fence) if self.orphaned => Some(Due::Orphaned(fence)),
            Some(fence) if self.now >= self.lease_until => Some(Due::Lapsed(fence)),
            _ => None,
        };
        assert_eq!(self.session.due(self.now), due);
        self.check_conversation(facts);
        self.check_what_is_kept(facts);
    }

    fn check_conversation(&self, facts: &Facts) {
        assert!(self.session.authorise(&Caller::Anonymous).is_err());
        let Ok(snapshot) = snapshot::read(&self.session, &self.caller, "s") else {
            assert!(!facts.exists);
            return;
        };
        let rows = self.storage.messages(snapshot.message_count()).unwrap();
        let checkpoint = self.session.checkpoint().unwrap();
        if checkpoint.kind == CheckpointKind::Step {
            // Once without the model: the committed message is what the stored chunks up to its cursor say.
            let blocks = self.storage.blocks(Cursor::START, usize::MAX).unwrap();
            let text: String = blocks
                .iter()
                .filter(|block| block.run == checkpoint.run)
                .flat_map(|block| frame::decode(&block.bytes).unwrap())
                .filter(|frame| !checkpoint.sequence.lacks(frame.sequence))
                .map(|frame| frame.chunk.text("delta").unwrap().to_owned())
                .collect();
            assert_eq!(rows.last().unwrap().json, format!("\"{text}\""));
        }
        let stored: Vec<_> = rows.iter().map(|row| row.json.clone()).collect();
        assert!(stored == facts.messages, "the committed messages");
        let body = snapshot.with_messages(&rows, false).unwrap();
        assert_eq!(body["streamSequence"], facts.cursor, "the cursor covers exactly what the rows contain");
        let status = match facts.runs.last().unwrap().outcome {
            None => StreamStatus::Active,
            Some(Outcome::Failed(_)) => StreamStatus::Failed,
            Some(_) => StreamStatus::Ended,
        };
        assert_eq!(body["status"], serde_json::to_value(status).unwrap());
        assert_eq!(body.get("resumeMessageId").is_some(), status == StreamStatus::Active);
    }

    /// After any script: the lease lapses, the run is settled, everything is confirmed, and every reader gets to its end.
    pub fn wind_down(&mut self) {
        // Settling may fail once; then the lease runs again.
        for _ in 0..2 {
            self.now = self.now.max(self.lease_until);
            assert_eq!(self.session.due(self.now).is_some(), self.holder().is_some());
            self.settle();
            self.check();
        }
        assert_eq!(self.session.due(self.now), None);
        self.sync();
        while !self.confirmations.is_empty() {
            self.confirm(0);
        }
        // A confirmation that was lost is made up for by reading the rows again.
        if self.session.is_unconfirmed() {
            self.load(true);
        }
        self.check();
        if !self.model.latest().exists {
            return;
        }
        self.open(None, 0);
        self.open(None, self.model.latest().floor);
        for run in 0..self.model.latest().runs.len() {
            self.open(Some(run), 0);
        }
        for reader in 0..self.readers.len() {
            while self.step(reader, 5_000, reader % 2 == 0) {}
            assert!(self.readers[reader].ended, "no reader waits for ever");
        }
        assert_eq!(place(self.session.view().durable()), self.model.latest().chunks.len());
        self.outlive();
    }

    pub fn may_not_be_started_by_others(&mut self) {
        let refused = self.session.may_start(&Caller::Anonymous);
        assert_eq!(matches!(refused, Err(StartRefused::NotFound(_))), self.model.latest().exists);
        let stranger = Fence { run: RunId::new("stranger"), epoch: 1 };
        assert_eq!(self.session.append(&stranger, &[]), Err(WriteRefused::Superseded));
    }
}

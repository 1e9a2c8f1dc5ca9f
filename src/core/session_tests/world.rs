//! One session and everything around it, driven step by step. Every step checks what DESIGN.md section 2 promises: [`World::check`].

use std::collections::BTreeMap;

use super::model::{Facts, Model, Run};
use super::outside::Said;
use super::readers::Following;
use crate::core::caller::Caller;
use crate::core::command::{Effects, StartRefused, WriteRefused};
use crate::core::ids::{CheckpointId, Cursor, RunId};
use crate::core::log::Ticket;
use crate::core::reader::{Next, Terminal};
use crate::core::retention::Policy;
use crate::core::run::Fence;
use crate::core::session::Session;
use crate::core::storage::double::{Double, Fault};
use crate::core::storage::{Storage, Write};
use crate::core::time::{Millis, UnixMillis};

pub const LEASE: Millis = Millis::new(30_000);

/// Small enough for all of it to happen in a short script.
pub const POLICY: Policy = Policy {
    lease: LEASE,
    retention: Millis::new(60_000),
    ttl: Some(Millis::new(150_000)),
    max_bytes: 120_000,
    detached: None,
};

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
    pub(super) caller: Caller,
    pub(super) now: UnixMillis,
    pub(super) lease_until: UnixMillis,
    pub(super) orphaned: bool,
    loads: usize,
    named: u64,
    pub(super) fences: Vec<Fence>,
    unsynced: Option<Ticket>,
    confirmations: Vec<Confirmation>,
    pub(super) readers: Vec<Following>,
    /// What each producer outside says, by its numbers; it knows it after any crash.
    pub(super) scripts: BTreeMap<RunId, Vec<Said>>,
}

pub(super) fn place(cursor: Cursor) -> usize {
    cursor.get().try_into().unwrap()
}

pub(super) fn checkpoint_id(ordinal: usize) -> CheckpointId {
    CheckpointId::new(format!("cp_salt_{ordinal}"))
}

pub(super) fn fence_of(run: &Run) -> Fence {
    Fence { run: run.id.clone(), epoch: run.epoch }
}

/// How long the run's producer may be silent.
pub(super) fn lease_of(run: &Run) -> Millis {
    run.push.as_ref().map_or(LEASE, |push| push.lease)
}

impl World {
    pub fn new() -> Self {
        let now = UnixMillis::new(1_000_000);
        Self {
            storage: Double::new(),
            session: Session::load(None, POLICY, false, Ticket::FIRST),
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
            scripts: BTreeMap::new(),
        }
    }

    /// A text that nothing else has, so that a number can never be used again unnoticed.
    pub(super) fn fresh(&mut self, padding: usize) -> String {
        self.named += 1;
        format!("{}.{}", self.named, "x".repeat(padding))
    }

    /// Everything in memory.
    pub(super) fn state(&self) -> String {
        format!("{:?}", self.session)
    }

    /// Does what the shell does with effects. A failed write throws the session in memory away.
    pub(super) fn apply(&mut self, effects: &Effects, facts: Facts) -> bool {
        self.transact(&effects.writes, facts, Some(effects.ticket))
    }

    /// As [`World::apply`], for a write that says nothing of the run's producer.
    pub(super) fn apply_keeping_orphan(&mut self, effects: &Effects, facts: Facts) {
        let orphaned = self.orphaned;
        self.apply(effects, facts);
        self.orphaned = orphaned && self.holder().is_some();
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
        let tickets = self.session.next_ticket();
        self.session = Session::load(self.storage.load().unwrap(), POLICY, producer_alive, tickets);
        self.loads += 1;
        self.unsynced = None;
        let inside = self.model.latest().running().is_some_and(|run| run.push.is_none());
        self.orphaned = !producer_alive && inside;
        if !self.model.latest().exists {
            // The responses of a session that is gone end before another one can begin under the same name.
            for Following { mut reader, .. } in self.readers.drain(..) {
                reader.announced();
                assert_eq!(reader.next(self.session.view()), Next::End(Terminal::Dropped));
            }
        }
        if let Some(run) = self.model.latest().running() {
            let (fence, lease) = (fence_of(run), lease_of(run));
            self.lease_until = run.lease;
            if producer_alive || run.push.is_some() {
                self.session.renew(self.now, &fence);
                self.lease_until = self.now.after(lease);
            }
        }
    }

    /// Of the run that is running.
    pub(super) fn holder(&self) -> Option<Fence> {
        self.model.latest().running().map(fence_of)
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

    /// After any script: the lease lapses, the run is settled, everything is confirmed, and every reader gets to its end.
    pub fn wind_down(&mut self) {
        self.send_all_again();
        self.check();
        // Settling may fail once; then the lease runs again.
        for _ in 0..2 {
            self.now = self.now.max(self.lease_until);
            assert_eq!(self.session.due(self.now).is_some(), self.holder().is_some());
            self.settle();
            self.check();
        }
        assert_eq!(self.session.due(self.now), None);
        // Every message that waits is answered, whatever becomes of the answer. One that waits behind a suspended run waits on.
        while self.go_on() {
            self.check();
            self.now = self.now.max(self.lease_until);
            self.settle();
            self.check();
        }
        // Clearing may fail once, too.
        while !self.model.latest().queue.is_empty() {
            self.clear_queue();
        }
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
        self.check_look_ups();
        for reader in 0..self.readers.len() {
            while self.step(reader, 5_000, reader % 2 == 0) {}
            assert!(self.readers[reader].ended, "no reader waits for ever");
        }
        assert_eq!(place(self.session.view().durable()), self.model.latest().chunks.len());
        self.outlive();
    }

    pub fn may_not_be_started_by_others(&mut self) {
        let refused = self.session.may_start(&Caller::Anonymous, &super::examples::send("u"));
        assert_eq!(matches!(refused, Err(StartRefused::NotFound(_))), self.model.latest().exists);
        let stranger = Fence { run: RunId::new("stranger"), epoch: 1 };
        assert_eq!(self.session.append(&stranger, &[]), Err(WriteRefused::Superseded));
    }
}

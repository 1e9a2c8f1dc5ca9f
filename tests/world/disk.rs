//! What storage does: it keeps transactions, fails before or after they landed, and loses in a crash what is not durable.

use rejoin::core::time::UnixMillis;

/// How the next access fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mishap {
    /// The next write fails; nothing of it was kept.
    Before,
    /// The next write fails, although all of it was kept.
    After,
    /// The next read fails.
    Read,
    /// The next write panics, and nothing of it was kept.
    Panic,
}

/// What a planned panic carries, so that no other one is taken for it.
pub struct Planned;

/// Storage of one object, from outside.
pub trait Disk<S: ?Sized> {
    /// What the engine is given.
    fn storage(&self) -> &S;

    /// How many transactions it holds.
    fn written(&self) -> usize;

    /// The machine dies: only the first `kept` transactions survive.
    fn crash(&mut self, kept: usize);

    /// The next access fails in this way; `None`: nothing fails.
    fn plan(&mut self, mishap: Option<Mishap>);

    /// Everything goes.
    fn erase(&mut self);
}

/// What the platform commits together: the writes of one turn, and its alarm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unit {
    /// Transactions up to here.
    pub written: usize,
    /// The alarm that is set.
    pub alarm: Option<UnixMillis>,
}

/// The units that a crash may still choose from. The first one is durable.
#[derive(Debug, Default)]
pub struct Units {
    units: Vec<Unit>,
    /// How many were forgotten before the first one.
    base: usize,
}

impl Units {
    /// The newest.
    pub fn newest(&self) -> Unit {
        self.units.last().copied().unwrap_or_default()
    }

    /// Everything of a turn is committed.
    pub fn commit(&mut self, unit: Unit) {
        if self.units.is_empty() {
            self.units.push(Unit::default());
        }
        if self.newest() != unit {
            self.units.push(unit);
        }
    }

    /// The place of the newest, for [`Units::confirm`].
    pub fn place(&self) -> usize {
        self.base + self.units.len().saturating_sub(1)
    }

    /// Everything up to this place is durable.
    pub fn confirm(&mut self, place: usize) {
        let settled = place.saturating_sub(self.base).min(self.units.len().saturating_sub(1));
        self.units.drain(..settled);
        self.base += settled;
    }

    /// How many outcomes a crash has.
    pub fn outcomes(&self) -> usize {
        self.units.len().max(1)
    }

    /// A crash leaves this one of them.
    pub fn crash(&mut self, outcome: usize) -> Unit {
        let survivor = self.units.get(outcome).copied().unwrap_or_default();
        self.units = vec![survivor];
        survivor
    }
}

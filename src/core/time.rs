//! Time as data. Only the shell asks a clock.

use serde::{Deserialize, Serialize};

/// A moment, in ms since 1970-01-01 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnixMillis(u64);

/// A length of time, in ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Millis(u64);

impl UnixMillis {
    /// The moment this many ms after the epoch.
    pub const fn new(ms: u64) -> Self {
        Self(ms)
    }

    /// The bare number, for wire and storage.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The moment `delay` later.
    #[must_use]
    pub const fn after(self, delay: Millis) -> Self {
        Self(self.0.saturating_add(delay.0))
    }

    /// How long ago `earlier` was; zero when it lies ahead.
    pub const fn since(self, earlier: Self) -> Millis {
        Millis(self.0.saturating_sub(earlier.0))
    }
}

impl Millis {
    /// This many ms.
    pub const fn new(ms: u64) -> Self {
        Self(ms)
    }

    /// The bare number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Both together.
    #[must_use]
    pub const fn and(self, more: Self) -> Self {
        Self(self.0.saturating_add(more.0))
    }
}

//! The names of what outlives a turn. A driver counts them up and never uses one twice in the life of an object.

/// One request, from its head to the end of its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Exchange(u64);

/// One outgoing call, from its request to the end of its answer. The engine names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FetchId(u64);

impl Exchange {
    /// The exchange with this number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The bare number, for a log line.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl FetchId {
    /// The call with this number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The bare number, for a log line.
    pub const fn get(self) -> u64 {
        self.0
    }
}

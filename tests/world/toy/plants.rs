//! Faults that are planted in the toy, so that it is known what the world finds.

/// One fault. Each stands for a mistake that is easily made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// Readers see what was written before it is durable.
    PublishBeforeConfirm,
    /// An alarm that rings before its time is not set again.
    ForgetArm,
    /// A response is ended twice.
    DoubleTerminal,
    /// A write is acknowledged before it is durable.
    ServeUndurable,
    /// Between the last page of history and the memory tail, an entry is left out.
    LoseHandOver,
    /// A failed write is taken for one that changed nothing.
    MissLanded,
    /// A request that meets an error is parked, and forgotten.
    DropExchange,
    /// What a reload finds is published before it is known to be durable.
    PublishReloadEarly,
    /// A client that left is forgotten only when the next alarm rings.
    LateLeft,
    /// The last line of a body counts only with its line feed.
    UnterminatedLine,
    /// A response that is full is given more.
    GiveToFull,
    /// An outgoing call goes on although whoever it is for has gone.
    KeepCall,
    /// Readers and their bodies stay when their clients leave.
    KeepWhoLeft,
}

/// Each, with the number of schedules within which it must be found.
pub const PLANTS: [(Plant, u64); 13] = [
    (Plant::PublishBeforeConfirm, 1_000),
    (Plant::ForgetArm, 1_000),
    (Plant::DoubleTerminal, 1_000),
    (Plant::ServeUndurable, 1_000),
    (Plant::LoseHandOver, 1_000),
    (Plant::MissLanded, 10_000),
    (Plant::DropExchange, 10_000),
    (Plant::PublishReloadEarly, 10_000),
    (Plant::LateLeft, 10_000),
    (Plant::UnterminatedLine, 10_000),
    (Plant::GiveToFull, 10_000),
    (Plant::KeepCall, 10_000),
    (Plant::KeepWhoLeft, 10_000),
];

//! What a session keeps, and the only way to keep it. The shell implements [`Storage`] on the object's SQLite; tests on a double and
//! on native SQLite with the same statements ([`sql`]).
//!
//! * [`rows`]: the rows and the writes.
//! * [`sql`]: schema, migrations and statements, over any SQLite; [`cells`]: its values; [`keys`]: the keys of rows in parts.
//! * [`contract`]: the suite that every implementation must pass, as data; `contract::read`: its reader.
//! * `double`: the fault-injecting double of the tests and of the simulation; `native`: SQLite outside the object; `contract_tests`: the suite on both;
//!   `migration_tests`: what older builds have stored.

pub mod cells;
pub mod contract;
#[cfg(test)]
mod contract_tests;
#[cfg(any(test, feature = "simulation"))]
pub mod double;
pub mod keys;
#[cfg(test)]
mod migration_tests;
#[cfg(any(test, feature = "simulation"))]
pub mod native;
pub mod rows;
pub mod sql;

pub use rows::{
    Block, BlockRow, CallRow, CheckpointKind, CheckpointRow, HeldRow, Life, MessagePlace, MessageRow, Pushed,
    QueuedRow, RunRow, SessionRow, Stored, Write,
};

use super::ids::{CheckpointId, Cursor, RequestKey, RunId};
use super::retention::Kept;
use thiserror::Error;

/// The storage refused or failed. After a failed write nobody knows what was kept: the session in memory is thrown away and reloaded.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum StorageError {
    /// A statement failed; the text is for the log line only.
    #[error("storage failed: {0}")]
    Failed(String),
    /// Rows that this version cannot read, or a file that the engine cannot.
    #[error("stored rows are not readable: {0}")]
    Corrupt(&'static str),
    /// Rows that must be there are not.
    #[error("stored rows are missing: {0}")]
    Short(&'static str),
    /// A value over [`keys::COLUMN_LIMIT`].
    #[error("a stored value has {0} bytes, more than one column takes")]
    TooLarge(usize),
}

impl StorageError {
    /// A failure that the engine has told in words. A damaged file is no passing failure; the engine names its result codes in the text.
    pub fn told(text: String) -> Self {
        const DAMAGED: [&str; 4] =
            ["SQLITE_CORRUPT", "SQLITE_NOTADB", "database disk image is malformed", "file is not a database"];
        if DAMAGED.iter().any(|words| text.contains(words)) {
            Self::Corrupt("the database file is damaged")
        } else {
            Self::Failed(text)
        }
    }

    /// Whether it stays as it is, however often somebody asks.
    pub fn is_lasting(&self) -> bool {
        !matches!(self, Self::Failed(_))
    }

    /// The word for what happened (`spec/helix.md` 6.4).
    pub fn cause(&self) -> &'static str {
        match self {
            Self::Failed(_) => "store_error",
            Self::Corrupt(_) | Self::TooLarge(_) => "corrupt_row",
            Self::Short(_) => "short_read",
        }
    }
}

/// Synchronous storage of one session. A write is durable only once the shell's `sync` has returned.
pub trait Storage {
    /// Forgets what is known of the tables, before they are read again: a transaction that was rolled back may have changed it.
    fn forget(&self) {}

    /// Rows written since the object was loaded, as the storage counts and bills them.
    fn rows_written(&self) -> u64 {
        0
    }

    /// Everything a session is rebuilt from, or `None` when nothing was ever written. Writes nothing.
    ///
    /// # Errors
    /// [`StorageError`].
    fn load(&self) -> Result<Option<Stored>, StorageError>;

    /// Applies all writes or none, and returns the rows written as the storage counts them. The session's row comes first: it creates
    /// the schema, and without it every other write is refused.
    ///
    /// # Errors
    /// [`StorageError`]; nothing was applied.
    fn apply(&self, writes: &[Write]) -> Result<u64, StorageError>;

    /// Whole blocks that hold chunks after `cursor`, in order: at least one when there is one, then more until `max_bytes` are reached.
    ///
    /// # Errors
    /// [`StorageError`].
    fn blocks(&self, cursor: Cursor, max_bytes: usize) -> Result<Vec<Block>, StorageError>;

    /// The first `count` messages.
    ///
    /// # Errors
    /// [`StorageError`]; [`StorageError::Short`] when there are fewer.
    fn messages(&self, count: u32) -> Result<Vec<MessageRow>, StorageError>;

    /// The message with this id among the first `count`.
    ///
    /// # Errors
    /// [`StorageError`].
    fn message(&self, id: &str, count: u32) -> Result<Option<MessageRow>, StorageError>;

    /// The message at this index.
    ///
    /// # Errors
    /// [`StorageError`].
    fn message_at(&self, index: u32) -> Result<Option<MessageRow>, StorageError>;

    /// Ids and roles of the first `count` messages. Reads none of their JSON.
    ///
    /// # Errors
    /// [`StorageError`]; [`StorageError::Short`] when there are fewer.
    fn places(&self, count: u32) -> Result<Vec<MessagePlace>, StorageError>;

    /// The JSON of the message that waits at this place.
    ///
    /// # Errors
    /// [`StorageError`].
    fn queued(&self, place: u32) -> Result<Option<String>, StorageError>;

    /// A run by its id.
    ///
    /// # Errors
    /// [`StorageError`].
    fn run(&self, id: &RunId) -> Result<Option<RunRow>, StorageError>;

    /// The run of this turn.
    ///
    /// # Errors
    /// [`StorageError`].
    fn run_at(&self, turn: u32) -> Result<Option<RunRow>, StorageError>;

    /// The run that was started with this request key, the latest if there are several (`spec/helix.md` 5.8).
    ///
    /// # Errors
    /// [`StorageError`].
    fn run_of_key(&self, key: &RequestKey) -> Result<Option<RunRow>, StorageError>;

    /// The checkpoint with this id, if the conversation can go back to it: it is a `truncate`, or the `entry` of a run that continues no
    /// message (another's last message is not what it was then), and no later `truncate` has cut any of the messages that it covers.
    ///
    /// # Errors
    /// [`StorageError`].
    fn rewind_point(&self, id: &CheckpointId) -> Result<Option<CheckpointRow>, StorageError>;

    /// What is kept above `floor`: the bytes of all blocks, and the finished runs that end there, oldest first. Reads every block's size.
    ///
    /// # Errors
    /// [`StorageError`].
    fn kept(&self, floor: Cursor) -> Result<Kept, StorageError>;

    /// Rows per table, in the order of the schema; empty when there is no table.
    ///
    /// # Errors
    /// [`StorageError`].
    fn counts(&self) -> Result<Vec<(String, u64)>, StorageError>;
}

#[cfg(test)]
mod tests {
    use super::StorageError;

    #[test]
    fn a_damaged_file_is_no_passing_failure() {
        for text in [
            "database disk image is malformed: SQLITE_CORRUPT",
            "database disk image is malformed: SQLITE_CORRUPT_INDEX",
            "file is not a database: SQLITE_NOTADB",
        ] {
            let told = StorageError::told(text.to_owned());
            assert_eq!((told.is_lasting(), told.cause()), (true, "corrupt_row"), "{text}");
        }
        for text in
            ["database is locked: SQLITE_BUSY", "disk I/O error: SQLITE_IOERR", "database or disk is full: SQLITE_FULL"]
        {
            let told = StorageError::told(text.to_owned());
            assert_eq!((told.is_lasting(), told.cause()), (false, "store_error"), "{text}");
        }
        let short = StorageError::Short("a message is missing");
        assert_eq!((short.is_lasting(), short.cause()), (true, "short_read"));
    }
}

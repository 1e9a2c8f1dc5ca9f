//! The disk of whatever keeps its rows in `rejoin::core::storage`: the double and native SQLite, with the same mishaps.

use std::cell::Cell;

use rejoin::core::ids::{CheckpointId, Cursor, MessageId, RequestKey, RunId};
use rejoin::core::retention::Kept;
use rejoin::core::run::StreamStatus;
use rejoin::core::storage::double::Double;
use rejoin::core::storage::native::Native;
use rejoin::core::storage::sql::SqlStorage;
use rejoin::core::storage::{
    Block, CheckpointRow, MessagePlace, MessageRow, RunRow, SessionRow, Storage, StorageError, Stored, Write,
};
use rejoin::core::time::UnixMillis;

use crate::disk::{Disk, Mishap, Planned};

/// Storage whose transactions a crash can take back.
pub trait Revocable: Storage + 'static {
    /// How many it holds since it was empty, or since the last crash.
    fn transactions(&self) -> usize;
    /// Takes all but the first `kept` of them back, and forgets what is in memory.
    fn crash(&mut self, kept: usize);
    /// How many of them it still holds as such behind a crash.
    fn behind(&self, kept: usize) -> usize;
    /// Another one, with nothing in it.
    fn empty() -> Self;
}

impl Revocable for Double {
    fn transactions(&self) -> usize {
        self.unsynced()
    }

    fn crash(&mut self, kept: usize) {
        Self::crash(self, kept);
    }

    fn behind(&self, _kept: usize) -> usize {
        0
    }

    fn empty() -> Self {
        Self::new()
    }
}

impl Revocable for SqlStorage<Native> {
    fn transactions(&self) -> usize {
        self.connection().transactions()
    }

    fn crash(&mut self, kept: usize) {
        self.connection().take_back(kept);
        *self = Native::reopen(self);
    }

    fn behind(&self, kept: usize) -> usize {
        kept
    }

    fn empty() -> Self {
        Native::revocable()
    }
}

/// Storage that fails as it is told to.
pub struct Faulty<S> {
    storage: S,
    /// Transactions before those that the storage counts.
    before: usize,
    mishap: Cell<Option<Mishap>>,
}

impl<S: Revocable> Faulty<S> {
    /// Empty storage.
    pub fn new() -> Self {
        Self { storage: S::empty(), before: 0, mishap: Cell::new(None) }
    }

    fn read(&self) -> Result<&S, StorageError> {
        if self.mishap.get() != Some(Mishap::Read) {
            return Ok(&self.storage);
        }
        self.mishap.set(None);
        Err(StorageError::Failed("planned, on a read".into()))
    }
}

impl<S: Revocable> Disk<dyn Storage> for Faulty<S> {
    fn storage(&self) -> &(dyn Storage + 'static) {
        self
    }

    fn written(&self) -> usize {
        self.before + self.storage.transactions()
    }

    fn crash(&mut self, kept: usize) {
        self.storage.crash(kept.saturating_sub(self.before));
        self.before = kept - self.storage.behind(kept.saturating_sub(self.before));
    }

    fn plan(&mut self, mishap: Option<Mishap>) {
        self.mishap.set(mishap);
    }

    fn erase(&mut self) {
        *self = Self::new();
    }
}

impl<S: Revocable> Storage for Faulty<S> {
    fn forget(&self) {
        self.storage.forget();
    }

    fn rows_written(&self) -> u64 {
        self.storage.rows_written()
    }

    fn apply(&self, writes: &[Write]) -> Result<u64, StorageError> {
        match self.mishap.take() {
            Some(Mishap::Before) => Err(StorageError::Failed("planned, before the write".into())),
            Some(Mishap::Panic) => std::panic::resume_unwind(Box::new(Planned)),
            Some(Mishap::After) => {
                self.storage.apply(writes)?;
                Err(StorageError::Failed("planned, after the write".into()))
            }
            read => {
                self.mishap.set(read);
                self.storage.apply(writes)
            }
        }
    }

    fn load(&self) -> Result<Option<Stored>, StorageError> {
        self.read()?.load()
    }

    fn blocks(&self, cursor: Cursor, max_bytes: usize) -> Result<Vec<Block>, StorageError> {
        self.read()?.blocks(cursor, max_bytes)
    }

    fn messages(&self, count: u32) -> Result<Vec<MessageRow>, StorageError> {
        self.read()?.messages(count)
    }

    fn message(&self, id: &str, count: u32) -> Result<Option<MessageRow>, StorageError> {
        self.read()?.message(id, count)
    }

    fn message_at(&self, index: u32) -> Result<Option<MessageRow>, StorageError> {
        self.read()?.message_at(index)
    }

    fn places(&self, count: u32) -> Result<Vec<MessagePlace>, StorageError> {
        self.read()?.places(count)
    }

    fn queued(&self, place: u32) -> Result<Option<String>, StorageError> {
        self.read()?.queued(place)
    }

    fn run(&self, id: &RunId) -> Result<Option<RunRow>, StorageError> {
        self.read()?.run(id)
    }

    fn run_at(&self, turn: u32) -> Result<Option<RunRow>, StorageError> {
        self.read()?.run_at(turn)
    }

    fn run_of_key(&self, key: &RequestKey) -> Result<Option<RunRow>, StorageError> {
        self.read()?.run_of_key(key)
    }

    fn rewind_point(&self, id: &CheckpointId) -> Result<Option<CheckpointRow>, StorageError> {
        self.read()?.rewind_point(id)
    }

    fn kept(&self, floor: Cursor) -> Result<Kept, StorageError> {
        self.read()?.kept(floor)
    }

    fn counts(&self) -> Result<Vec<(String, u64)>, StorageError> {
        self.read()?.counts()
    }
}

#[test]
fn both_disks_lose_the_same_in_a_crash() {
    let session = |salt: &str| {
        Write::Session(SessionRow {
            owner: None,
            salt: salt.into(),
            created: UnixMillis::new(1),
            floor: Cursor::START,
            run: None,
            status: StreamStatus::Ended,
        })
    };
    let message = |index: u32| {
        let id = MessageId::new(format!("m{index}"));
        Write::Message(MessageRow { index, id, role: "user".into(), run: None, json: "{}".into() })
    };
    let mut disks: [Box<dyn Disk<dyn Storage>>; 2] =
        [Box::new(Faulty::<Double>::new()), Box::new(Faulty::<SqlStorage<Native>>::new())];
    let told = disks.each_mut().map(|disk| {
        let mut told = Vec::new();
        let mut look = |disk: &mut Box<dyn Disk<dyn Storage>>| {
            let rows = disk.storage();
            told.push(format!("{} {:?} {:?}", disk.written(), rows.load(), rows.message_at(2)));
        };
        assert!(disk.storage().apply(&[session("a")]).is_ok());
        assert!(disk.storage().apply(&[message(0), message(1)]).is_ok());
        for mishap in [Mishap::Before, Mishap::After] {
            disk.plan(Some(mishap));
            assert!(disk.storage().apply(&[message(2)]).is_err());
            look(disk);
        }
        disk.plan(Some(Mishap::Read));
        assert!(disk.storage().load().is_err());
        // The last one is gone, then another is written in its place, and the first is left.
        disk.crash(2);
        look(disk);
        assert!(disk.storage().apply(&[session("b"), message(2)]).is_ok());
        look(disk);
        disk.crash(2);
        look(disk);
        disk.erase();
        look(disk);
        told
    });
    assert_eq!(told[0], told[1]);
    assert!(told[0][0].starts_with("2 ") && told[0][1].starts_with("3 "), "{told:?}");
    assert_ne!(told[0][2], told[0][3]);
    assert_eq!(told[0][2], told[0][4]);
    assert!(told[0][5].starts_with("0 Ok(None)"), "{told:?}");
}

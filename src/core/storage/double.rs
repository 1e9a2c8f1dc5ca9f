//! The fault-injecting double: plain maps, writes that fail before or after they landed, confirmations that a crash takes back.

// A helper of tests, which the lints do not see in the build for the simulation.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use super::keys::{COLUMN_LIMIT, PARTS, first_of};
use super::rows::{
    Block, BlockRow, CallRow, CheckpointKind, CheckpointRow, HeldRow, MessagePlace, MessageRow, QueuedRow, RunRow,
    SessionRow, Stored, Write,
};
use super::{Storage, StorageError};
use crate::core::ids::{CheckpointId, Cursor, RequestKey, RunId};
use crate::core::retention::{Kept, KeptRun};
use crate::core::run::EntryKind;

/// How the next `apply` fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing was kept.
    Before,
    /// Everything was kept, but the caller learns of a failure.
    After,
}

/// The rows at one moment. Those that have not changed are shared with the moment before.
#[derive(Clone, Debug, Default)]
struct Tables {
    session: Option<Rc<SessionRow>>,
    runs: BTreeMap<u32, Rc<RunRow>>,
    blocks: BTreeMap<u64, Rc<BlockRow>>,
    messages: BTreeMap<u32, Rc<MessageRow>>,
    checkpoints: BTreeMap<u32, Rc<CheckpointRow>>,
    calls: Vec<Rc<CallRow>>,
    held: BTreeMap<u32, Rc<HeldRow>>,
    queue: BTreeMap<u32, Rc<QueuedRow>>,
}

fn owned<'a, T: Clone + 'a>(rows: impl IntoIterator<Item = &'a Rc<T>>) -> Vec<T> {
    rows.into_iter().map(|row| T::clone(row)).collect()
}

/// In-memory [`Storage`]. `history[0]` is what is durable; each applied transaction adds a state that a crash may lose.
#[derive(Default)]
pub struct Double {
    history: RefCell<Vec<Rc<Tables>>>,
    fault: Cell<Option<Fault>>,
}

impl Double {
    /// Empty storage.
    pub fn new() -> Self {
        Self { history: RefCell::new(vec![Rc::default()]), fault: Cell::new(None) }
    }

    /// The next [`Storage::apply`] fails.
    pub fn fail_next(&self, fault: Fault) {
        self.fault.set(Some(fault));
    }

    /// Everything applied so far is durable.
    pub fn sync(&self) {
        let mut history = self.history.try_borrow_mut().unwrap();
        let newest = history.pop().unwrap();
        *history = vec![newest];
    }

    /// The machine dies: of the transactions since the last sync only the first `kept` survive.
    pub fn crash(&self, kept: usize) {
        let mut history = self.history.try_borrow_mut().unwrap();
        let survivor = history[kept.min(history.len() - 1)].clone();
        *history = vec![survivor];
    }

    /// Transactions since the last sync or crash.
    pub fn unsynced(&self) -> usize {
        self.history.try_borrow().unwrap().len() - 1
    }

    /// The rows of all runs.
    pub fn runs(&self) -> Vec<RunRow> {
        owned(self.tables().runs.values())
    }

    /// The rows of all calls.
    pub fn calls(&self) -> Vec<CallRow> {
        owned(&self.tables().calls)
    }

    /// The rows of all checkpoints.
    pub fn checkpoints(&self) -> Vec<CheckpointRow> {
        owned(self.tables().checkpoints.values())
    }

    fn tables(&self) -> Rc<Tables> {
        Rc::clone(self.history.try_borrow().unwrap().last().unwrap())
    }
}

fn change(tables: &mut Tables, write: &Write) -> Result<(), StorageError> {
    if tables.session.is_none() && !matches!(write, Write::Session(_) | Write::DropAll) {
        return Err(StorageError::Corrupt("there is no session"));
    }
    match write {
        Write::Session(row) => tables.session = Some(Rc::new(row.clone())),
        Write::Run(row) => {
            tables.runs.insert(row.turn, Rc::new(row.clone()));
        }
        Write::OpenBlock(row) => {
            if row.bytes.len() > COLUMN_LIMIT {
                return Err(StorageError::TooLarge(row.bytes.len()));
            }
            if tables.blocks.insert(row.key, Rc::new(row.clone())).is_some() {
                return Err(StorageError::Failed("duplicate key".into()));
            }
        }
        Write::ExtendBlock { bytes, .. } if bytes.len() > COLUMN_LIMIT => {
            return Err(StorageError::TooLarge(bytes.len()));
        }
        Write::ExtendBlock { key, last, bytes } => {
            let block = tables.blocks.get_mut(key).ok_or(StorageError::Corrupt("the open block is gone"))?;
            let block = Rc::make_mut(block);
            if block.bytes.len() + bytes.len() > COLUMN_LIMIT {
                return Err(StorageError::TooLarge(block.bytes.len() + bytes.len()));
            }
            block.bytes.extend_from_slice(bytes);
            block.last = *last;
        }
        Write::TrimBlocks(through) => tables.blocks.retain(|_, block| through.lacks(block.last)),
        Write::Message(row) => {
            tables.messages.insert(row.index, Rc::new(row.clone()));
        }
        Write::TruncateMessages(index) => tables.messages.retain(|at, _| at < index),
        Write::Checkpoint(row) => {
            if tables.checkpoints.insert(row.ordinal, Rc::new(row.clone())).is_some() {
                return Err(StorageError::Failed("duplicate key".into()));
            }
        }
        Write::Call(row) => tables.calls.push(Rc::new(row.clone())),
        Write::Hold(row) => {
            if tables.held.insert(row.ordinal, Rc::new(row.clone())).is_some() {
                return Err(StorageError::Failed("duplicate key".into()));
            }
        }
        Write::DropHeld => tables.held.clear(),
        Write::Enqueue(row) => {
            tables.queue.insert(row.place, Rc::new(row.clone()));
        }
        Write::Dequeue(place) => {
            tables.queue.remove(place);
        }
        Write::DropAll => *tables = Tables::default(),
    }
    Ok(())
}

impl Storage for Double {
    fn load(&self) -> Result<Option<Stored>, StorageError> {
        let tables = self.tables();
        Ok(tables.session.as_deref().cloned().map(|session| Stored {
            session,
            run: tables.runs.values().next_back().map(|row| RunRow::clone(row)),
            truncated: tables.checkpoints.values().rfind(|c| c.kind == CheckpointKind::Truncate).map(|c| c.id.clone()),
            checkpoint: tables.checkpoints.values().next_back().map(|row| CheckpointRow::clone(row)),
            last_block: tables.blocks.values().next_back().map(|block| {
                let row =
                    BlockRow { bytes: Vec::new(), run: block.run.clone(), attempt: block.attempt.clone(), ..**block };
                (row, block.bytes.len())
            }),
            calls: owned(&tables.calls),
            held: owned(tables.held.values()),
            queue: owned(tables.queue.values())
                .into_iter()
                .map(|row| QueuedRow { json: String::new(), ..row })
                .collect(),
        }))
    }

    fn apply(&self, writes: &[Write]) -> Result<u64, StorageError> {
        let fault = self.fault.take();
        if fault == Some(Fault::Before) {
            return Err(StorageError::Failed("injected before the write".into()));
        }
        let mut tables = (*self.tables()).clone();
        writes.iter().try_for_each(|write| change(&mut tables, write))?;
        self.history.try_borrow_mut().unwrap().push(Rc::new(tables));
        match fault {
            Some(_) => Err(StorageError::Failed("injected after the write".into())),
            None => Ok(writes.len() as u64),
        }
    }

    fn blocks(&self, cursor: Cursor, max_bytes: usize) -> Result<Vec<Block>, StorageError> {
        let mut blocks: Vec<Block> = Vec::new();
        let mut size = 0;
        let tables = self.tables();
        for row in tables.blocks.values().filter(|row| cursor.lacks(row.last)) {
            let is_part = row.key % PARTS != 0;
            if !is_part && !blocks.is_empty() && size >= max_bytes {
                break;
            }
            size += row.bytes.len();
            match blocks.last_mut() {
                Some(block) if is_part => block.bytes.extend(&row.bytes),
                _ => blocks.push(Block {
                    first: first_of(row.key).unwrap(),
                    last: row.last,
                    run: row.run.clone(),
                    attempt: row.attempt.clone(),
                    bytes: row.bytes.clone(),
                }),
            }
        }
        Ok(blocks)
    }

    fn messages(&self, count: u32) -> Result<Vec<MessageRow>, StorageError> {
        let rows: Vec<_> = self
            .tables()
            .messages
            .values()
            .take_while(|row| row.index < count)
            .map(|row| MessageRow::clone(row))
            .collect();
        if rows.len() == count as usize { Ok(rows) } else { Err(StorageError::Short("a message is missing")) }
    }

    fn message(&self, id: &str, count: u32) -> Result<Option<MessageRow>, StorageError> {
        let tables = self.tables();
        let found = tables.messages.values().find(|row| row.id.as_str() == id && row.index < count);
        Ok(found.map(|row| MessageRow::clone(row)))
    }

    fn message_at(&self, index: u32) -> Result<Option<MessageRow>, StorageError> {
        Ok(self.tables().messages.get(&index).map(|row| MessageRow::clone(row)))
    }

    fn places(&self, count: u32) -> Result<Vec<MessagePlace>, StorageError> {
        Ok(self.messages(count)?.into_iter().map(|row| MessagePlace { id: row.id, role: row.role }).collect())
    }

    fn queued(&self, place: u32) -> Result<Option<String>, StorageError> {
        Ok(self.tables().queue.get(&place).map(|row| row.json.clone()))
    }

    fn run(&self, id: &RunId) -> Result<Option<RunRow>, StorageError> {
        Ok(self.tables().runs.values().find(|row| row.id == *id).map(|row| RunRow::clone(row)))
    }

    fn run_at(&self, turn: u32) -> Result<Option<RunRow>, StorageError> {
        Ok(self.tables().runs.get(&turn).map(|row| RunRow::clone(row)))
    }

    fn run_of_key(&self, key: &RequestKey) -> Result<Option<RunRow>, StorageError> {
        let tables = self.tables();
        let found = tables.runs.values().rfind(|row| row.request_key.as_deref() == Some(key.as_str()));
        Ok(found.map(|row| RunRow::clone(row)))
    }

    fn rewind_point(&self, id: &CheckpointId) -> Result<Option<CheckpointRow>, StorageError> {
        let tables = self.tables();
        let Tables { checkpoints: rows, runs, .. } = &*tables;
        let kept = |row: &CheckpointRow| {
            let later = rows.range(row.ordinal + 1..).map(|(_, later)| later);
            later
                .filter(|later| later.kind == CheckpointKind::Truncate)
                .all(|cut| cut.message_count >= row.message_count)
        };
        let continues = |id: &RunId| runs.values().any(|run| run.id == *id && run.entry == EntryKind::ToolResult);
        let is_point = |row: &CheckpointRow| match row.kind {
            CheckpointKind::Truncate => true,
            CheckpointKind::Entry => !continues(&row.run),
            CheckpointKind::Step | CheckpointKind::End => false,
        };
        let found = rows.values().find(|row| row.id == *id && is_point(row) && kept(row));
        Ok(found.map(|row| CheckpointRow::clone(row)))
    }

    fn kept(&self, floor: Cursor) -> Result<Kept, StorageError> {
        let tables = self.tables();
        let Tables { runs, blocks, .. } = &*tables;
        let within = |after: Cursor, through: Cursor| {
            let blocks = blocks.values().filter(|row| {
                let first = first_of(row.key).unwrap();
                after.lacks(first) && !through.lacks(first)
            });
            blocks.map(|row| row.bytes.len() as u64).sum()
        };
        let runs = runs.values().filter(|run| !run.status.is_live()).filter_map(|run| {
            let end = run.end.filter(|end| *end > floor)?;
            Some(KeptRun { end, ended: run.ended.unwrap_or(run.started), bytes: within(run.start, end) })
        });
        Ok(Kept { bytes: blocks.values().map(|row| row.bytes.len() as u64).sum(), runs: runs.collect() })
    }

    fn counts(&self) -> Result<Vec<(String, u64)>, StorageError> {
        let tables = self.tables();
        if tables.session.is_none() {
            return Ok(Vec::new());
        }
        Ok([
            ("session", 1),
            ("run", tables.runs.len()),
            ("chunk_block", tables.blocks.len()),
            ("message", tables.messages.len()),
            ("checkpoint", tables.checkpoints.len()),
            ("call", tables.calls.len()),
            ("held_answer", tables.held.len()),
            ("queued", tables.queue.len()),
        ]
        .map(|(name, rows)| (name.to_owned(), rows as u64))
        .to_vec())
    }
}

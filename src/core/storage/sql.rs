//! The statements over any SQLite: the object's in production, a native one in tests. `schema`: tables and migrations; `writes`:
//! what each write runs; `conversation`: how messages and checkpoints are read; `queue`: the messages that wait.
//!
//! Rows written are money: integer keys, no secondary index. A look-up by text id scans, and the tables it scans are short
//! (one row a run, one a message, one a checkpoint). Every text or blob that may grow goes through the splitter at [`COLUMN_LIMIT`]:
//! part `n` of the value at `index` has the key `index × 1024 + n`.

mod conversation;
mod queue;
mod schema;
mod writes;

use std::cell::Cell;

use schema::{MIGRATIONS, TABLES};

use super::cells::{Cells, Param, cursor, integer, read_block, read_run, text, untag};
use super::keys::{COLUMN_LIMIT, PARTS, first_of, key_floor};
use super::rows::{Block, CheckpointRow, MessagePlace, MessageRow, RunRow, SessionRow, Stored, Write};
use super::{Storage, StorageError};
use crate::core::ids::{CheckpointId, Cursor, RequestKey, RunId};
use crate::core::retention::{Kept, KeptRun};
use crate::core::time::UnixMillis;

/// Called with each result row. There is no way to stop early: a statement that is not read to its end locks its tables.
pub type EachRow<'a> = dyn FnMut(&dyn Cells) -> Result<(), StorageError> + 'a;

/// A SQLite connection.
pub trait Sql {
    /// Runs one statement and returns the rows it wrote.
    ///
    /// # Errors
    /// [`StorageError::Failed`], or what `each` returned.
    fn run(&self, statement: &'static str, params: &[Param<'_>], each: &mut EachRow<'_>) -> Result<u64, StorageError>;

    /// Runs `body` so that all of its statements hold or none.
    ///
    /// # Errors
    /// What `body` returned; everything was rolled back.
    fn transaction(&self, body: &mut dyn FnMut() -> Result<u64, StorageError>) -> Result<u64, StorageError>;

    /// Rows written since the connection was opened.
    fn rows_written(&self) -> u64;
}

/// Most rows of one page of blocks. More than the parts of the largest chunk that a request body of 100 MB can hold.
const PAGE_ROWS: u64 = 128;

/// One look-up of runs: the columns that every version has, then what its tables hold of the others.
macro_rules! run_columns {
    ($later:literal, $tail:literal) => {
        concat!(
            "SELECT turn, id, status, entry, request_key, input_hash, start, end_, message_index, message_id, lease_until, epoch, \
             attempts, vocabulary, agent, started, ended, error, retry_after_ms, ",
            $later,
            " FROM run ",
            $tail
        )
    };
}

/// A look-up of runs, for the tables of each version: 1, 2 (with `push`), 3 to 5 (with `error_text`), and 6 (with what outlives an object).
macro_rules! select_run {
    ($tail:literal) => {
        [
            run_columns!("NULL, NULL, NULL, NULL, NULL", $tail),
            run_columns!("push, NULL, NULL, NULL, NULL", $tail),
            run_columns!("push, error_text, NULL, NULL, NULL", $tail),
            run_columns!("push, error_text, deaths, again_at, unfollowed", $tail),
        ]
    };
}

/// [`Storage`] over a SQLite connection.
pub struct SqlStorage<S> {
    sql: S,
    /// Schema version that the tables have; `None` until it was looked up, 0 without tables.
    version: Cell<Option<usize>>,
}

impl<S: Sql> SqlStorage<S> {
    /// Uses this connection. Reads and writes nothing.
    pub fn new(sql: S) -> Self {
        Self { sql, version: Cell::new(None) }
    }

    /// The connection.
    pub fn connection(&self) -> &S {
        &self.sql
    }

    fn version(&self) -> Result<usize, StorageError> {
        if let Some(version) = self.version.get() {
            return Ok(version);
        }
        let exists = self
            .one("SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'session'", &[], |row| {
                integer(row, 0)
            })?
            .unwrap_or(0);
        let version = if exists == 0 {
            0
        } else {
            self.one("SELECT version FROM session", &[], |row| integer(row, 0))?.unwrap_or(0)
        };
        let version = usize::try_from(version).map_err(|_| StorageError::Corrupt("session.version"))?;
        if version > MIGRATIONS.len() {
            return Err(StorageError::Corrupt("session.version is newer than this build"));
        }
        self.version.set(Some(version));
        Ok(version)
    }

    fn one<T>(
        &self,
        statement: &'static str,
        params: &[Param<'_>],
        mut read: impl FnMut(&dyn Cells) -> Result<T, StorageError>,
    ) -> Result<Option<T>, StorageError> {
        let mut found = None;
        self.sql.run(statement, params, &mut |row| {
            if found.is_none() {
                found = Some(read(row)?);
            }
            Ok(())
        })?;
        Ok(found)
    }

    fn one_run(&self, statements: [&'static str; 4], params: &[Param<'_>]) -> Result<Option<RunRow>, StorageError> {
        let [first, second, third, newest] = statements;
        let statement = match self.version()? {
            0 | 1 => first,
            2 => second,
            3..=5 => third,
            _ => newest,
        };
        self.one(statement, params, read_run)
    }

    fn execute(&self, statement: &'static str, params: &[Param<'_>]) -> Result<u64, StorageError> {
        for param in params {
            match param {
                Param::Text(text) if text.len() > COLUMN_LIMIT => return Err(StorageError::TooLarge(text.len())),
                Param::Blob(bytes) if bytes.len() > COLUMN_LIMIT => return Err(StorageError::TooLarge(bytes.len())),
                _ => {}
            }
        }
        self.sql.run(statement, params, &mut |_| Ok(()))
    }

    fn migrate(&self) -> Result<u64, StorageError> {
        let before = self.version()?;
        let mut written = 0_u64;
        for step in MIGRATIONS.iter().skip(before).copied().flatten() {
            written = written.saturating_add(self.execute(step, &[])?);
        }
        if before > 0 {
            // The session's row tells the version, and these writes need not hold it.
            let version = Param::Integer(u64::try_from(MIGRATIONS.len()).unwrap_or(0));
            written = written.saturating_add(self.execute("UPDATE session SET version = ?1", &[version])?);
        }
        self.version.set(Some(MIGRATIONS.len()));
        Ok(written)
    }

    /// One write of a list, on whatever the writes before it have left.
    fn write_next(&self, write: &Write) -> Result<u64, StorageError> {
        let version = self.version()?;
        let migrated = match write {
            Write::DropAll if version == 0 => return Ok(0),
            Write::DropAll => 0,
            // A late write of a run whose session was deleted must not bring the tables back.
            _ if version == 0 && !matches!(write, Write::Session(_)) => {
                return Err(StorageError::Corrupt("there is no session"));
            }
            _ if version < MIGRATIONS.len() => self.migrate()?,
            _ => 0,
        };
        Ok(migrated.saturating_add(self.write(write)?))
    }
}

impl<S: Sql> Storage for SqlStorage<S> {
    fn forget(&self) {
        self.version.set(None);
    }

    fn rows_written(&self) -> u64 {
        self.sql.rows_written()
    }

    fn load(&self) -> Result<Option<Stored>, StorageError> {
        if self.version()? == 0 {
            return Ok(None);
        }
        let session = self.one("SELECT owner, salt, created, floor, run, status FROM session", &[], |row| {
            Ok(SessionRow {
                owner: row.text(0),
                salt: text(row, 1)?,
                created: UnixMillis::new(integer(row, 2)?),
                floor: cursor(row, 3)?,
                run: row.text(4).map(RunId::new),
                status: untag(&text(row, 5)?)?,
            })
        })?;
        let Some(session) = session else { return Ok(None) };
        let run = self.one_run(select_run!("ORDER BY turn DESC LIMIT 1"), &[])?;
        let last_block = self.one(
            "SELECT key, last, run, attempt, length(bytes) FROM chunk_block ORDER BY key DESC LIMIT 1",
            &[],
            |row| {
                let len = usize::try_from(integer(row, 4)?).map_err(|_| StorageError::Corrupt("chunk_block.bytes"))?;
                Ok((read_block(row, Vec::new())?, len))
            },
        )?;
        let truncated =
            self.one("SELECT id FROM checkpoint WHERE kind = 'truncate' ORDER BY key DESC LIMIT 1", &[], |row| {
                Ok(CheckpointId::new(text(row, 0)?))
            })?;
        Ok(Some(Stored {
            session,
            run,
            checkpoint: self.latest_checkpoint()?,
            truncated,
            last_block,
            calls: self.calls()?,
            held: self.held_answers()?,
            queue: self.queue()?,
        }))
    }

    fn apply(&self, writes: &[Write]) -> Result<u64, StorageError> {
        if let [write] = writes
            && self.version()? == MIGRATIONS.len()
            && matches!(write, Write::ExtendBlock { .. } | Write::OpenBlock(_))
        {
            return self.write(write);
        }
        let result = self.sql.transaction(&mut || {
            let mut written = 0_u64;
            for write in writes {
                written = written.saturating_add(self.write_next(write)?);
            }
            Ok(written)
        });
        if result.is_err() {
            // Looked up again: of a transaction that failed nobody knows what was kept.
            self.version.set(None);
        }
        result
    }

    fn blocks(&self, cursor: Cursor, max_bytes: usize) -> Result<Vec<Block>, StorageError> {
        let mut blocks: Vec<Block> = Vec::new();
        if self.version()? == 0 {
            return Ok(blocks);
        }
        // The sizes first: only then is it known where a page ends, and no statement may be left half read.
        let mut page: Option<(u64, u64)> = None;
        let mut size = 0_u64;
        let mut full = false;
        let max_bytes = u64::try_from(max_bytes).unwrap_or(u64::MAX);
        self.sql.run(
            "SELECT key, length(bytes) FROM chunk_block \
             WHERE key >= (SELECT coalesce(max(key), 0) FROM chunk_block WHERE key <= ?1) AND last > ?2 ORDER BY key LIMIT ?3",
            &[Param::Integer(key_floor(cursor)), Param::Integer(cursor.get()), Param::Integer(PAGE_ROWS)],
            &mut |row| {
                let key = integer(row, 0)?;
                let is_part = key.checked_rem(PARTS) != Some(0);
                full |= !is_part && page.is_some() && size >= max_bytes;
                if !full {
                    size = size.saturating_add(integer(row, 1)?);
                    page = Some((page.map_or(key, |(first, _)| first), key));
                }
                Ok(())
            },
        )?;
        let Some((first, last)) = page else { return Ok(blocks) };
        // With all parts of the last chunk, wherever the rows of the page ended.
        let end = last.saturating_sub(last.checked_rem(PARTS).unwrap_or(0)).saturating_add(PARTS);
        self.sql.run(
            "SELECT key, last, run, attempt, bytes FROM chunk_block WHERE key >= ?1 AND key < ?2 ORDER BY key",
            &[Param::Integer(first), Param::Integer(end)],
            &mut |row| {
                let bytes = row.blob(4).ok_or(StorageError::Corrupt("chunk_block.bytes"))?;
                let is_part = integer(row, 0)?.checked_rem(PARTS) != Some(0);
                match blocks.last_mut() {
                    Some(block) if is_part => block.bytes.extend_from_slice(&bytes),
                    _ => {
                        let row = read_block(row, bytes)?;
                        blocks.push(Block {
                            first: first_of(row.key).ok_or(StorageError::Corrupt("chunk_block.key"))?,
                            last: row.last,
                            run: row.run,
                            attempt: row.attempt,
                            bytes: row.bytes,
                        });
                    }
                }
                Ok(())
            },
        )?;
        Ok(blocks)
    }

    fn messages(&self, count: u32) -> Result<Vec<MessageRow>, StorageError> {
        self.first_messages(count)
    }

    fn message(&self, id: &str, count: u32) -> Result<Option<MessageRow>, StorageError> {
        self.message_of(id, count)
    }

    fn message_at(&self, index: u32) -> Result<Option<MessageRow>, StorageError> {
        self.message_of_index(index)
    }

    fn places(&self, count: u32) -> Result<Vec<MessagePlace>, StorageError> {
        self.first_places(count)
    }

    fn queued(&self, place: u32) -> Result<Option<String>, StorageError> {
        self.queued_json(place)
    }

    fn run(&self, id: &RunId) -> Result<Option<RunRow>, StorageError> {
        if self.version()? == 0 {
            return Ok(None);
        }
        self.one_run(select_run!("WHERE id = ?1 ORDER BY turn LIMIT 1"), &[Param::Text(id.as_str())])
    }

    fn run_at(&self, turn: u32) -> Result<Option<RunRow>, StorageError> {
        if self.version()? == 0 {
            return Ok(None);
        }
        self.one_run(select_run!("WHERE turn = ?1"), &[Param::Integer(u64::from(turn))])
    }

    fn run_of_key(&self, key: &RequestKey) -> Result<Option<RunRow>, StorageError> {
        if self.version()? == 0 {
            return Ok(None);
        }
        let key = Param::Text(key.as_str());
        self.one_run(select_run!("WHERE request_key = ?1 ORDER BY turn DESC LIMIT 1"), &[key])
    }

    fn rewind_point(&self, id: &CheckpointId) -> Result<Option<CheckpointRow>, StorageError> {
        self.point_of(id)
    }

    fn kept(&self, floor: Cursor) -> Result<Kept, StorageError> {
        let mut kept = Kept { bytes: 0, runs: Vec::new() };
        if self.version()? == 0 {
            return Ok(kept);
        }
        let total = self.one("SELECT sum(length(bytes)) FROM chunk_block", &[], |row| Ok(row.integer(0)))?;
        kept.bytes = total.flatten().unwrap_or(0);
        self.sql.run(
            "SELECT end_, coalesce(ended, started), (SELECT coalesce(sum(length(bytes)), 0) FROM chunk_block \
             WHERE key >= (run.start + 1) * 1024 AND key < (run.end_ + 1) * 1024) FROM run \
             WHERE end_ > ?1 AND status IN ('completed', 'failed', 'interrupted', 'superseded') ORDER BY turn",
            &[Param::Integer(floor.get())],
            &mut |row| {
                let (end, ended) = (cursor(row, 0)?, UnixMillis::new(integer(row, 1)?));
                kept.runs.push(KeptRun { end, ended, bytes: integer(row, 2)? });
                Ok(())
            },
        )?;
        Ok(kept)
    }

    fn counts(&self) -> Result<Vec<(String, u64)>, StorageError> {
        let version = self.version()?;
        if version == 0 {
            return Ok(Vec::new());
        }
        let version = self.version()?;
        TABLES
            .iter()
            .filter(|(_, since, ..)| *since <= version)
            .map(|(name, _, count, _)| {
                let rows = self.one(count, &[], |row| integer(row, 0))?.unwrap_or(0);
                Ok(((*name).to_owned(), rows))
            })
            .collect()
    }
}

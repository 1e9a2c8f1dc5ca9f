//! [`Sql`] on native SQLite: the production statements on a real engine, without a Worker.
//!
//! It differs from the object's storage in two ways. Rows written are the connection's row changes: the object counts the schema's
//! rows too, so only numbers from after the first write compare. And a transaction is one of SQLite's, while the object uses
//! `transactionSync`.

// A helper of tests, which the lints do not see in the build for the simulation.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::cell::Cell;
use std::rc::Rc;

use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, Row, ToSql};

use super::StorageError;
use super::cells::{Cells, Param};
use super::sql::{EachRow, Sql, SqlStorage};

/// One in-memory database; a clone is another handle to it.
#[derive(Clone)]
pub struct Native {
    connection: Rc<Connection>,
    /// How many transactions can be taken back; `None` when each is committed for good.
    revocable: Option<Rc<Cell<usize>>>,
}

impl Native {
    /// An empty database.
    pub fn open() -> SqlStorage<Self> {
        let connection = Rc::new(Connection::open_in_memory().unwrap());
        SqlStorage::new(Self { connection, revocable: None })
    }

    /// An empty database whose transactions a crash may take back: they are savepoints in one that never ends.
    pub fn revocable() -> SqlStorage<Self> {
        let connection = Rc::new(Connection::open_in_memory().unwrap());
        connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        SqlStorage::new(Self { connection, revocable: Some(Rc::default()) })
    }

    /// How many transactions can be taken back.
    pub fn transactions(&self) -> usize {
        self.revocable.as_ref().map_or(0, |count| count.get())
    }

    /// Takes all but the first `kept` transactions back.
    pub fn take_back(&self, kept: usize) {
        if kept < self.transactions() {
            self.connection.execute_batch(&format!("ROLLBACK TO t{kept}; RELEASE t{kept}")).unwrap();
            self.revocable.iter().for_each(|count| count.set(kept));
        }
    }

    /// A second storage over the same rows, with nothing in memory: what a restart is.
    pub fn reopen(storage: &SqlStorage<Self>) -> SqlStorage<Self> {
        SqlStorage::new(storage.connection().clone())
    }
}

fn failed(error: rusqlite::Error) -> StorageError {
    StorageError::Failed(error.to_string())
}

impl ToSql for Param<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match *self {
            Param::Null => ToSqlOutput::Owned(Value::Null),
            Param::Integer(number) => ToSqlOutput::Owned(Value::Integer(number.try_into().unwrap())),
            Param::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
            Param::Blob(bytes) => ToSqlOutput::Borrowed(ValueRef::Blob(bytes)),
        })
    }
}

struct NativeRow<'a>(&'a Row<'a>);

impl Cells for NativeRow<'_> {
    fn integer(&self, column: usize) -> Option<u64> {
        self.0.get_ref(column).ok()?.as_i64().ok()?.try_into().ok()
    }

    fn text(&self, column: usize) -> Option<String> {
        Some(self.0.get_ref(column).ok()?.as_str().ok()?.to_owned())
    }

    fn blob(&self, column: usize) -> Option<Vec<u8>> {
        Some(self.0.get_ref(column).ok()?.as_blob().ok()?.to_vec())
    }
}

impl Sql for Native {
    fn rows_written(&self) -> u64 {
        self.connection.total_changes()
    }

    fn run(&self, statement: &'static str, params: &[Param<'_>], each: &mut EachRow<'_>) -> Result<u64, StorageError> {
        let before = self.rows_written();
        let mut prepared = self.connection.prepare_cached(statement).map_err(failed)?;
        let mut rows = prepared.query(rusqlite::params_from_iter(params)).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            each(&NativeRow(row))?;
        }
        Ok(self.rows_written() - before)
    }

    fn transaction(&self, body: &mut dyn FnMut() -> Result<u64, StorageError>) -> Result<u64, StorageError> {
        let (begin, commit, undo) = match &self.revocable {
            None => ("BEGIN IMMEDIATE".to_owned(), "COMMIT", "ROLLBACK".to_owned()),
            Some(count) => {
                let place = count.get();
                (format!("SAVEPOINT t{place}"), "", format!("ROLLBACK TO t{place}; RELEASE t{place}"))
            }
        };
        self.connection.execute_batch(&begin).map_err(failed)?;
        let result = body();
        self.connection.execute_batch(if result.is_ok() { commit } else { &undo }).map_err(failed)?;
        self.revocable.iter().filter(|_| result.is_ok()).for_each(|count| count.set(count.get() + 1));
        result
    }
}

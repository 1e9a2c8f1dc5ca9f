//! The toy's rows, and the two disks that keep them.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use rusqlite::Connection;

use crate::disk::{Disk, Mishap, Planned};

/// Who writes the terminal of a stream that nobody ends.
pub const REAPER: u32 = u32::MAX;

/// One entry of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// 1, 2, 3 …
    pub seq: u64,
    /// Who wrote it.
    pub writer: u32,
    /// Its number among those of its writer: 0, 1, 2 …
    pub number: u64,
    /// What it says.
    pub text: Rc<[u8]>,
    /// Whether it is the last one.
    pub is_end: bool,
}

/// The storage did not do it, or nobody knows.
#[derive(Clone, Copy, Debug)]
pub struct Failed;

/// Synchronous storage of the stream.
pub trait Rows {
    /// Keeps all of them or none.
    fn append(&self, rows: &[Row]) -> Result<(), Failed>;
    /// At most `max` rows behind this one, in order.
    fn after(&self, seq: u64, max: usize) -> Result<Vec<Row>, Failed>;
    /// The last row.
    fn last(&self) -> Result<Option<Row>, Failed>;
    /// The highest number of a writer.
    fn last_of(&self, writer: u32) -> Result<Option<u64>, Failed>;
}

/// What the next access meets.
#[derive(Debug, Default)]
struct Plan(Cell<Option<Mishap>>);

impl Plan {
    fn reads(&self) -> Result<(), Failed> {
        if self.0.get() != Some(Mishap::Read) {
            return Ok(());
        }
        self.0.set(None);
        Err(Failed)
    }

    /// Whether the write fails although it lands.
    fn writes(&self) -> Result<bool, Failed> {
        let mishap = self.0.get().filter(|mishap| *mishap != Mishap::Read);
        self.0.set(self.0.get().filter(|mishap| *mishap == Mishap::Read));
        match mishap {
            Some(Mishap::Before) => Err(Failed),
            Some(Mishap::Panic) => std::panic::resume_unwind(Box::new(Planned)),
            mishap => Ok(mishap.is_some()),
        }
    }
}

/// Rows in memory.
#[derive(Default)]
pub struct Double {
    rows: RefCell<Vec<Row>>,
    /// How many rows there were behind each transaction.
    marks: RefCell<Vec<usize>>,
    plan: Plan,
}

impl Rows for Double {
    fn append(&self, new: &[Row]) -> Result<(), Failed> {
        let fails_later = self.plan.writes()?;
        let mut rows = self.rows.try_borrow_mut().unwrap();
        if new.first().is_some_and(|row| row.seq != rows.len() as u64 + 1) {
            return Err(Failed);
        }
        rows.extend_from_slice(new);
        self.marks.try_borrow_mut().unwrap().push(rows.len());
        if fails_later { Err(Failed) } else { Ok(()) }
    }

    fn after(&self, seq: u64, max: usize) -> Result<Vec<Row>, Failed> {
        self.plan.reads()?;
        Ok(self.rows.try_borrow().unwrap().iter().skip(seq as usize).take(max).cloned().collect())
    }

    fn last(&self) -> Result<Option<Row>, Failed> {
        self.plan.reads()?;
        Ok(self.rows.try_borrow().unwrap().last().cloned())
    }

    fn last_of(&self, writer: u32) -> Result<Option<u64>, Failed> {
        self.plan.reads()?;
        Ok(self.rows.try_borrow().unwrap().iter().rfind(|row| row.writer == writer).map(|row| row.number))
    }
}

impl Disk<dyn Rows> for Double {
    fn storage(&self) -> &(dyn Rows + 'static) {
        self
    }

    fn written(&self) -> usize {
        self.marks.try_borrow().unwrap().len()
    }

    fn crash(&mut self, kept: usize) {
        let marks = self.marks.get_mut();
        marks.truncate(kept);
        self.rows.get_mut().truncate(marks.last().copied().unwrap_or_default());
    }

    fn plan(&mut self, mishap: Option<Mishap>) {
        self.plan.0.set(mishap);
    }

    fn erase(&mut self) {
        *self = Self::default();
    }
}

/// Rows in native SQLite: one transaction that never ends, with a savepoint before each of the engine's.
pub struct Sqlite {
    connection: Connection,
    written: Cell<usize>,
    plan: Plan,
}

impl Sqlite {
    /// An empty database.
    pub fn open() -> Self {
        let connection = Connection::open_in_memory().unwrap();
        let schema = "CREATE TABLE entry (seq INTEGER PRIMARY KEY, writer, number, text, is_end); BEGIN";
        connection.execute_batch(schema).unwrap();
        Self { connection, written: Cell::new(0), plan: Plan::default() }
    }

    fn rows(&self, sql: &str, params: impl rusqlite::Params) -> Result<Vec<Row>, Failed> {
        self.plan.reads()?;
        let mut statement = self.connection.prepare_cached(sql).unwrap();
        let rows = statement.query_map(params, |row| {
            let (seq, number): (i64, i64) = (row.get(0)?, row.get(2)?);
            let text: Vec<u8> = row.get(3)?;
            let (seq, number) = (seq as u64, number as u64);
            Ok(Row { seq, writer: row.get(1)?, number, text: text.into(), is_end: row.get(4)? })
        });
        rows.unwrap().collect::<Result<_, _>>().map_err(|_| Failed)
    }
}

impl Rows for Sqlite {
    fn append(&self, rows: &[Row]) -> Result<(), Failed> {
        let fails_later = self.plan.writes()?;
        let place = self.written.get();
        self.connection.execute_batch(&format!("SAVEPOINT t{place}")).unwrap();
        let mut statement = self.connection.prepare_cached("INSERT INTO entry VALUES (?, ?, ?, ?, ?)").unwrap();
        for row in rows {
            let values = (row.seq as i64, row.writer, row.number as i64, &row.text[..], row.is_end);
            if statement.execute(values).is_err() {
                self.connection.execute_batch(&format!("ROLLBACK TO t{place}; RELEASE t{place}")).unwrap();
                return Err(Failed);
            }
        }
        self.written.set(place + 1);
        if fails_later { Err(Failed) } else { Ok(()) }
    }

    fn after(&self, seq: u64, max: usize) -> Result<Vec<Row>, Failed> {
        let limit = i64::try_from(max).unwrap_or(i64::MAX);
        self.rows("SELECT * FROM entry WHERE seq > ? ORDER BY seq LIMIT ?", (seq as i64, limit))
    }

    fn last(&self) -> Result<Option<Row>, Failed> {
        Ok(self.rows("SELECT * FROM entry ORDER BY seq DESC LIMIT 1", ())?.pop())
    }

    fn last_of(&self, writer: u32) -> Result<Option<u64>, Failed> {
        let sql = "SELECT * FROM entry WHERE writer = ? ORDER BY number DESC LIMIT 1";
        Ok(self.rows(sql, (writer,))?.pop().map(|row| row.number))
    }
}

impl Disk<dyn Rows> for Sqlite {
    fn storage(&self) -> &(dyn Rows + 'static) {
        self
    }

    fn written(&self) -> usize {
        self.written.get()
    }

    fn crash(&mut self, kept: usize) {
        if kept < self.written.get() {
            self.connection.execute_batch(&format!("ROLLBACK TO t{kept}; RELEASE t{kept}")).unwrap();
        }
        self.written.set(kept);
    }

    fn plan(&mut self, mishap: Option<Mishap>) {
        self.plan.0.set(mishap);
    }

    fn erase(&mut self) {
        *self = Self::open();
    }
}

//! The object's SQLite as a [`Sql`] connection.

use std::cell::Cell;
use std::panic::AssertUnwindSafe;

use js_sys::{Array, Uint8Array};
use wasm_bindgen::{JsCast, JsValue};

use super::bindings::{ObjectStorage, error_text};
use crate::core::storage::StorageError;
use crate::core::storage::cells::{Cells, Param};
use crate::core::storage::sql::{EachRow, Sql};

/// A connection that counts what it writes.
pub struct ObjectConnection {
    storage: ObjectStorage,
    rows_written: Cell<u64>,
    faults: Faults,
}

/// Failures that a test has asked for.
#[derive(Default)]
pub struct Faults {
    /// The next so many statements fail.
    pub statements: Cell<u32>,
    /// The next so many statements that change something fail.
    pub writes: Cell<u32>,
    /// The next so many transactions fail.
    pub transactions: Cell<u32>,
    /// Behind the next transaction that holds, so many statements fail.
    pub behind_transaction: Cell<u32>,
}

impl Faults {
    fn strike(left: &Cell<u32>) -> Result<(), StorageError> {
        let Some(rest) = left.get().checked_sub(1) else { return Ok(()) };
        left.set(rest);
        Err(StorageError::Failed("a test asked for it".to_owned()))
    }
}

impl ObjectConnection {
    pub fn new(storage: ObjectStorage) -> Self {
        Self { storage, rows_written: Cell::new(0), faults: Faults::default() }
    }

    /// What shall fail; for tests.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }
}

struct Row(Array);

impl Row {
    fn cell(&self, column: usize) -> JsValue {
        self.0.get(u32::try_from(column).unwrap_or(u32::MAX))
    }
}

impl Cells for Row {
    fn integer(&self, column: usize) -> Option<u64> {
        let number = self.cell(column).as_f64()?;
        // A stored integer is at most 2^53 − 1, so the conversion is exact.
        (number >= 0.0 && number.fract() == 0.0 && number <= 9_007_199_254_740_991.0).then_some(number as u64)
    }

    fn text(&self, column: usize) -> Option<String> {
        self.cell(column).as_string()
    }

    fn blob(&self, column: usize) -> Option<Vec<u8>> {
        let cell = self.cell(column);
        cell.is_instance_of::<js_sys::ArrayBuffer>().then(|| Uint8Array::new(&cell).to_vec())
    }
}

fn failed(error: JsValue) -> StorageError {
    StorageError::told(error_text(&error))
}

impl Sql for ObjectConnection {
    fn rows_written(&self) -> u64 {
        self.rows_written.get()
    }

    fn run(&self, statement: &'static str, params: &[Param<'_>], each: &mut EachRow<'_>) -> Result<u64, StorageError> {
        Faults::strike(&self.faults.statements)?;
        if !statement.starts_with("SELECT") {
            Faults::strike(&self.faults.writes)?;
        }
        let bound = Array::new();
        for param in params {
            bound.push(&match param {
                Param::Null => JsValue::NULL,
                Param::Integer(number) => JsValue::from_f64(*number as f64),
                Param::Text(text) => JsValue::from_str(text),
                Param::Blob(bytes) => Uint8Array::from(*bytes).into(),
            });
        }
        let cursor = self.storage.sql().exec(statement, bound).map_err(failed)?;
        let rows = cursor.raw().map_err(failed)?;
        let mut outcome = Ok(());
        loop {
            let step = rows.next().map_err(failed)?;
            if step.done() {
                break;
            }
            // Read on after a failure, too: a statement that is not read to its end keeps its tables locked.
            if outcome.is_ok() {
                outcome = each(&Row(step.value()));
            }
        }
        outcome?;
        let written = cursor.rows_written().map_err(failed)? as u64;
        self.rows_written.set(self.rows_written.get().saturating_add(written));
        Ok(written)
    }

    fn transaction(&self, body: &mut dyn FnMut() -> Result<u64, StorageError>) -> Result<u64, StorageError> {
        Faults::strike(&self.faults.transactions)?;
        let mut result = None;
        // A panic inside rolls the transaction back and goes on to the caller, which throws the session in memory away.
        let mut attempt = Attempt(AssertUnwindSafe((body, &mut result)));
        let outcome = self.storage.transaction_sync(&mut move || attempt.make());
        match (result, outcome) {
            (Some(Err(error)), _) => Err(error),
            (_, Err(error)) => Err(failed(error)),
            (Some(Ok(written)), Ok(_)) => {
                self.faults
                    .statements
                    .set(self.faults.statements.get().saturating_add(self.faults.behind_transaction.take()));
                Ok(written)
            }
            (None, Ok(_)) => Err(StorageError::Failed("the transaction did not run".to_owned())),
        }
    }
}

type Outcome = Result<u64, StorageError>;

/// The body of a transaction and where its outcome goes.
struct Attempt<'a>(AssertUnwindSafe<(&'a mut dyn FnMut() -> Outcome, &'a mut Option<Outcome>)>);

impl Attempt<'_> {
    fn make(&mut self) -> Result<JsValue, JsValue> {
        let AssertUnwindSafe((body, result)) = &mut self.0;
        let outcome = body();
        let failed = outcome.is_err();
        **result = Some(outcome);
        if failed { Err(JsValue::from_str("rolled back")) } else { Ok(JsValue::UNDEFINED) }
    }
}

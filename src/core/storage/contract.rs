//! The contract of a storage, as data: operations in, outcomes out. `tests/contract/storage.json` holds a script with the outcomes that
//! every implementation must give; it runs on the double, on native SQLite and, over HTTP, on the real object.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Storage, StorageError, Write};
use crate::core::ids::{Cursor, RunId};

/// One call of [`Storage`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Operation {
    /// [`Storage::load`].
    Load,
    /// [`Storage::apply`].
    Apply(Vec<Write>),
    /// [`Storage::blocks`]: cursor and bytes.
    Blocks(Cursor, usize),
    /// [`Storage::messages`].
    Messages(u32),
    /// [`Storage::message`]: id and count.
    Message(String, u32),
    /// [`Storage::run`].
    Run(RunId),
    /// [`Storage::kept`].
    Kept(Cursor),
    /// [`Storage::counts`].
    Counts,
}

/// Performs one operation. The outcome leaves out what implementations may differ in: rows written and the text of an error.
pub fn perform(storage: &dyn Storage, operation: &Operation) -> Value {
    match operation {
        Operation::Load => outcome(storage.load()),
        Operation::Apply(writes) => outcome(storage.apply(writes).map(|_| "applied")),
        Operation::Blocks(cursor, max_bytes) => outcome(storage.blocks(*cursor, *max_bytes)),
        Operation::Messages(count) => outcome(storage.messages(*count)),
        Operation::Message(id, count) => outcome(storage.message(id, *count)),
        Operation::Run(id) => outcome(storage.run(id)),
        Operation::Kept(floor) => outcome(storage.kept(*floor)),
        Operation::Counts => outcome(storage.counts()),
    }
}

fn outcome<T: Serialize>(result: Result<T, StorageError>) -> Value {
    match result {
        Ok(value) => json!({ "ok": value }),
        Err(StorageError::Failed(_)) => json!({ "error": "failed" }),
        Err(StorageError::Corrupt(_)) => json!({ "error": "corrupt" }),
        Err(StorageError::TooLarge(_)) => json!({ "error": "too_large" }),
    }
}

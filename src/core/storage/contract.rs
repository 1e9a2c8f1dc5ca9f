//! The contract of a storage, as data: operations in, outcomes out. `tests/contract/storage.json` holds a script with the outcomes that
//! every implementation must give; it runs on the double, on native SQLite and, over HTTP, on the real object.

mod read;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use super::{Storage, StorageError, Write};
use crate::core::ids::{CheckpointId, Cursor, RequestKey, RunId};
use read::Read;

/// One call of [`Storage`].
#[derive(Clone, Debug, PartialEq, Serialize)]
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
    /// [`Storage::message_at`].
    MessageAt(u32),
    /// [`Storage::places`].
    Places(u32),
    /// [`Storage::queued`].
    Queued(u32),
    /// [`Storage::run`].
    Run(RunId),
    /// [`Storage::run_at`].
    RunAt(u32),
    /// [`Storage::run_of_key`].
    RunOfKey(RequestKey),
    /// [`Storage::rewind_point`].
    RewindPoint(CheckpointId),
    /// [`Storage::kept`].
    Kept(Cursor),
    /// [`Storage::counts`].
    Counts,
}

impl<'de> Deserialize<'de> for Operation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::read(&Value::deserialize(deserializer)?).ok_or_else(|| D::Error::custom("no operation of a storage"))
    }
}

/// Performs one operation. The outcome leaves out what implementations may differ in: rows written and the text of an error.
pub fn perform(storage: &dyn Storage, operation: &Operation) -> Value {
    match operation {
        Operation::Load => outcome(storage.load()),
        Operation::Apply(writes) => outcome(storage.apply(writes).map(|_| "applied")),
        Operation::Blocks(cursor, max_bytes) => outcome(storage.blocks(*cursor, *max_bytes)),
        Operation::Messages(count) => outcome(storage.messages(*count)),
        Operation::Message(id, count) => outcome(storage.message(id, *count)),
        Operation::MessageAt(index) => outcome(storage.message_at(*index)),
        Operation::Places(count) => outcome(storage.places(*count)),
        Operation::Queued(place) => outcome(storage.queued(*place)),
        Operation::Run(id) => outcome(storage.run(id)),
        Operation::RunAt(turn) => outcome(storage.run_at(*turn)),
        Operation::RunOfKey(key) => outcome(storage.run_of_key(key)),
        Operation::RewindPoint(id) => outcome(storage.rewind_point(id)),
        Operation::Kept(floor) => outcome(storage.kept(*floor)),
        Operation::Counts => outcome(storage.counts()),
    }
}

fn outcome<T: Serialize>(result: Result<T, StorageError>) -> Value {
    told(result.map(|value| serde_json::to_value(value).unwrap_or_default()))
}

fn told(result: Result<Value, StorageError>) -> Value {
    match result {
        Ok(value) => json!({ "ok": value }),
        Err(StorageError::Failed(_)) => json!({ "error": "failed" }),
        Err(StorageError::Corrupt(_)) => json!({ "error": "corrupt" }),
        Err(StorageError::Short(_)) => json!({ "error": "short" }),
        Err(StorageError::TooLarge(_)) => json!({ "error": "too_large" }),
    }
}

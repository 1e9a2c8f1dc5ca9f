//! The committed messages, and the answers that are held for the one that is being written.

use serde_json::Value;

use super::turn::Rows;
use crate::core::session::Session;
use crate::core::storage::{RunRow, StorageError};
use crate::dialect::ui::held_answers::Held;
use crate::dialect::ui::tool_result::Answer;

/// A committed message.
///
/// # Errors
/// [`StorageError`]; it is [`StorageError::Short`] when there is no such message.
pub fn at(rows: &Rows, index: u32) -> Result<Value, StorageError> {
    let row = rows.message_at(index)?.ok_or(StorageError::Short("a message is missing"))?;
    serde_json::from_str(&row.json).map_err(|_| StorageError::Corrupt("message.json"))
}

/// A run's message as far as it is committed; `None` while nothing of it is.
///
/// # Errors
/// [`StorageError`].
pub fn of_run(session: &Session, rows: &Rows, run: &RunRow) -> Result<Option<Value>, StorageError> {
    (run.message_index < session.message_count()).then(|| at(rows, run.message_index)).transpose()
}

/// What clients have answered while the run is writing, each with where it came from.
pub fn held(session: &Session) -> Vec<Held> {
    session.held().iter().filter_map(|row| Held::parse(&row.json)).collect()
}

/// The same without where it came from.
pub fn held_answers(session: &Session) -> Vec<Answer> {
    held(session).into_iter().map(|held| held.answer).collect()
}

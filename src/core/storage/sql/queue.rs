//! The statements for messages that wait for their answer, the parts of each put together.

use super::schema::QUEUE_SINCE;
use super::{Sql, SqlStorage};
use crate::core::ids::{MessageId, RunId};
use crate::core::storage::StorageError;
use crate::core::storage::cells::{Param, integer, key, optional, small, split, text};
use crate::core::storage::keys::PARTS;
use crate::core::storage::rows::QueuedRow;
use crate::core::time::UnixMillis;

impl<S: Sql> SqlStorage<S> {
    pub(super) fn queue(&self) -> Result<Vec<QueuedRow>, StorageError> {
        let mut queue = Vec::new();
        if self.version()? < QUEUE_SINCE {
            return Ok(queue);
        }
        self.sql.run(
            "SELECT key, message, run, agent, request_key, input_hash, origin, queued FROM queued WHERE key % 1024 = 0 ORDER BY key",
            &[],
            &mut |row| {
                queue.push(QueuedRow {
                    place: small(integer(row, 0)?.checked_div(PARTS))?,
                    message: MessageId::new(text(row, 1)?),
                    run: RunId::new(text(row, 2)?),
                    agent: text(row, 3)?,
                    request_key: row.text(4),
                    input_hash: text(row, 5)?,
                    origin: row.text(6),
                    queued: UnixMillis::new(integer(row, 7)?),
                    json: String::new(),
                });
                Ok(())
            },
        )?;
        Ok(queue)
    }

    pub(super) fn queued_json(&self, place: u32) -> Result<Option<String>, StorageError> {
        if self.version()? < QUEUE_SINCE {
            return Ok(None);
        }
        let mut json: Option<String> = None;
        self.sql.run(
            "SELECT json FROM queued WHERE key >= ?1 AND key < ?2 ORDER BY key",
            &[Param::Integer(key(place, 0)), Param::Integer(key(place.saturating_add(1), 0))],
            &mut |row| {
                json.get_or_insert_default().push_str(&text(row, 0)?);
                Ok(())
            },
        )?;
        Ok(json)
    }

    pub(super) fn enqueue(&self, row: &QueuedRow) -> Result<u64, StorageError> {
        let mut written = self.dequeue(row.place)?;
        let mut at = key(row.place, 0);
        for part in split(&row.json) {
            written = written.saturating_add(self.execute(
                "INSERT INTO queued (key, message, run, agent, request_key, input_hash, origin, queued, json) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
                &[
                    Param::Integer(at),
                    Param::Text(row.message.as_str()),
                    Param::Text(row.run.as_str()),
                    Param::Text(&row.agent),
                    optional(row.request_key.as_deref()),
                    Param::Text(&row.input_hash),
                    optional(row.origin.as_deref()),
                    Param::Integer(row.queued.get()),
                    Param::Text(part),
                ],
            )?);
            at = at.saturating_add(1);
        }
        Ok(written)
    }

    pub(super) fn dequeue(&self, place: u32) -> Result<u64, StorageError> {
        self.execute(
            "DELETE FROM queued WHERE key >= ?1 AND key < ?2",
            &[Param::Integer(key(place, 0)), Param::Integer(key(place.saturating_add(1), 0))],
        )
    }
}

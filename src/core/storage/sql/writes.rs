//! The statements behind each [`Write`].

use super::schema::{MIGRATIONS, TABLES};
use super::{Sql, SqlStorage};
use crate::core::ids::{AttemptId, RunId};
use crate::core::storage::StorageError;
use crate::core::storage::cells::{Param, integer, key, optional, split, tag};
use crate::core::storage::keys::{COLUMN_LIMIT, key_floor};
use crate::core::storage::rows::{CheckpointRow, HeldRow, MessageRow, RunRow, SessionRow, Write};

impl<S: Sql> SqlStorage<S> {
    pub(super) fn write(&self, write: &Write) -> Result<u64, StorageError> {
        match write {
            Write::Session(row) => self.write_session(row),
            Write::Run(row) => self.write_run(row),
            Write::OpenBlock(row) => self.execute(
                "INSERT INTO chunk_block (key, last, run, attempt, bytes) VALUES (?1, ?2, ?3, ?4, ?5)",
                &[
                    Param::Integer(row.key),
                    Param::Integer(row.last.get()),
                    Param::Text(row.run.as_str()),
                    optional(row.attempt.as_ref().map(AttemptId::as_str)),
                    Param::Blob(&row.bytes),
                ],
            ),
            Write::ExtendBlock { key, last, bytes } => {
                let room = u64::try_from(COLUMN_LIMIT.saturating_sub(bytes.len())).unwrap_or(0);
                let written = self.execute(
                    "UPDATE chunk_block SET bytes = CAST(bytes || ?2 AS BLOB), last = ?3 WHERE key = ?1 AND length(bytes) <= ?4",
                    &[Param::Integer(*key), Param::Blob(bytes), Param::Integer(last.get()), Param::Integer(room)],
                )?;
                if written == 0 { Err(self.why_not_extended(*key, bytes.len())?) } else { Ok(written) }
            }
            Write::TrimBlocks(through) => self.execute(
                "DELETE FROM chunk_block WHERE key < ?1 AND last <= ?2",
                &[Param::Integer(key_floor(*through)), Param::Integer(through.get())],
            ),
            Write::Message(row) => self.write_message(row),
            Write::TruncateMessages(index) => {
                self.execute("DELETE FROM message WHERE key >= ?1", &[Param::Integer(key(*index, 0))])
            }
            Write::Checkpoint(row) => self.write_checkpoint(row),
            Write::Call(row) => self.execute(
                "INSERT INTO call (id, own, turn) VALUES (?1, ?2, ?3)",
                &[Param::Text(&row.id), optional(row.own.as_deref()), Param::Integer(u64::from(row.turn))],
            ),
            Write::Hold(row) => self.write_held(row),
            Write::DropHeld => self.execute("DELETE FROM held_answer", &[]),
            Write::Enqueue(row) => self.enqueue(row),
            Write::Dequeue(place) => self.dequeue(*place),
            Write::DropAll => {
                let mut written = 0_u64;
                let version = self.version()?;
                for (_, _, _, drop) in TABLES.into_iter().filter(|(_, since, ..)| *since <= version) {
                    written = written.saturating_add(self.execute(drop, &[])?);
                }
                self.version.set(Some(0));
                Ok(written)
            }
        }
    }

    fn why_not_extended(&self, key: u64, more: usize) -> Result<StorageError, StorageError> {
        let len = self.one("SELECT length(bytes) FROM chunk_block WHERE key = ?1", &[Param::Integer(key)], |row| {
            integer(row, 0)
        })?;
        Ok(match len.and_then(|len| usize::try_from(len).ok()) {
            Some(len) => StorageError::TooLarge(len.saturating_add(more)),
            None => StorageError::Corrupt("the open block is gone"),
        })
    }

    fn write_session(&self, row: &SessionRow) -> Result<u64, StorageError> {
        self.execute(
            "INSERT OR REPLACE INTO session (one, version, owner, salt, created, floor, run, status) \
             VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            &[
                Param::Integer(u64::try_from(MIGRATIONS.len()).unwrap_or(0)),
                optional(row.owner.as_deref()),
                Param::Text(&row.salt),
                Param::Integer(row.created.get()),
                Param::Integer(row.floor.get()),
                optional(row.run.as_ref().map(RunId::as_str)),
                Param::Text(&tag(&row.status)?),
            ],
        )
    }

    fn write_run(&self, row: &RunRow) -> Result<u64, StorageError> {
        let error = row.error.as_ref().map(tag).transpose()?;
        let push = row.push.as_ref().map(serde_json::to_string).transpose();
        let push = push.map_err(|_| StorageError::Corrupt("run.push"))?;
        self.execute(
            "INSERT OR REPLACE INTO run (turn, id, status, entry, request_key, input_hash, start, end_, message_index, message_id, \
             lease_until, epoch, attempts, vocabulary, agent, started, ended, error, retry_after_ms, push, error_text, deaths, \
             again_at, unfollowed) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24)",
            &[
                Param::Integer(u64::from(row.turn)),
                Param::Text(row.id.as_str()),
                Param::Text(&tag(&row.status)?),
                Param::Text(&tag(&row.entry)?),
                optional(row.request_key.as_deref()),
                optional(row.input_hash.as_deref()),
                Param::Integer(row.start.get()),
                row.end.map_or(Param::Null, |end| Param::Integer(end.get())),
                Param::Integer(u64::from(row.message_index)),
                Param::Text(row.message_id.as_str()),
                Param::Integer(row.lease_until.get()),
                Param::Integer(u64::from(row.epoch)),
                Param::Integer(u64::from(row.attempts)),
                Param::Text(&tag(&row.vocabulary)?),
                Param::Text(&row.agent),
                Param::Integer(row.started.get()),
                row.ended.map_or(Param::Null, |ended| Param::Integer(ended.get())),
                optional(error.as_deref()),
                row.retry_after_ms.map_or(Param::Null, Param::Integer),
                optional(push.as_deref()),
                optional(row.error_text.as_deref()),
                Param::Integer(u64::from(row.life.deaths)),
                row.life.again_at.map_or(Param::Null, |at| Param::Integer(at.get())),
                row.life.unfollowed.map_or(Param::Null, |since| Param::Integer(since.get())),
            ],
        )
    }

    fn write_message(&self, row: &MessageRow) -> Result<u64, StorageError> {
        let mut written = 0_u64;
        let mut end = key(row.index, 0);
        for part in split(&row.json) {
            written = written.saturating_add(self.execute(
                "INSERT OR REPLACE INTO message (key, id, role, run, json) VALUES (?1, ?2, ?3, ?4, ?5)",
                &[
                    Param::Integer(end),
                    Param::Text(row.id.as_str()),
                    Param::Text(&row.role),
                    optional(row.run.as_ref().map(RunId::as_str)),
                    Param::Text(part),
                ],
            )?);
            end = end.saturating_add(1);
        }
        let stale = self.execute(
            "DELETE FROM message WHERE key >= ?1 AND key < ?2",
            &[Param::Integer(end), Param::Integer(key(row.index.saturating_add(1), 0))],
        )?;
        Ok(written.saturating_add(stale))
    }

    fn write_held(&self, row: &HeldRow) -> Result<u64, StorageError> {
        let mut written = 0_u64;
        let mut at = key(row.ordinal, 0);
        for part in split(&row.json) {
            let params = [Param::Integer(at), Param::Text(part)];
            written =
                written.saturating_add(self.execute("INSERT INTO held_answer (key, json) VALUES (?1, ?2)", &params)?);
            at = at.saturating_add(1);
        }
        Ok(written)
    }

    fn write_checkpoint(&self, row: &CheckpointRow) -> Result<u64, StorageError> {
        let mut written = 0_u64;
        let kind = tag(&row.kind)?;
        let parts = row.state.as_deref().map(split).unwrap_or_default();
        for part in 0..parts.len().max(1) {
            written = written.saturating_add(self.execute(
                "INSERT INTO checkpoint (key, id, kind, message_count, sequence, step_count, run, state) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
                &[
                    Param::Integer(key(row.ordinal, u64::try_from(part).unwrap_or(0))),
                    Param::Text(row.id.as_str()),
                    Param::Text(&kind),
                    Param::Integer(u64::from(row.message_count)),
                    Param::Integer(row.sequence.get()),
                    Param::Integer(u64::from(row.step_count)),
                    Param::Text(row.run.as_str()),
                    optional(parts.get(part).copied()),
                ],
            )?);
        }
        Ok(written)
    }
}

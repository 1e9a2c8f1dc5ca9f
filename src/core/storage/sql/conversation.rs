//! The statements that read messages, checkpoints and held answers, the parts of each put together, and calls.

use super::schema::{CALLS_IN_MESSAGES, CALLS_SINCE, HOLDS_ANSWERS};
use super::{Sql, SqlStorage};
use crate::core::ids::{CheckpointId, MessageId, RunId};
use crate::core::storage::StorageError;
use crate::core::storage::cells::{Param, cursor, integer, key, small, text, untag};
use crate::core::storage::keys::PARTS;
use crate::core::storage::rows::{CallRow, CheckpointRow, HeldRow, MessagePlace, MessageRow};

macro_rules! select_checkpoint {
    ($tail:literal) => {
        concat!(
            "SELECT key, id, kind, message_count, sequence, step_count, run, state FROM checkpoint AS point ",
            $tail
        )
    };
}

fn whole<T>(rows: Vec<T>, count: u32) -> Result<Vec<T>, StorageError> {
    let is_whole = rows.len() == usize::try_from(count).unwrap_or(usize::MAX);
    if is_whole { Ok(rows) } else { Err(StorageError::Short("a message is missing")) }
}

impl<S: Sql> SqlStorage<S> {
    pub(super) fn first_messages(&self, count: u32) -> Result<Vec<MessageRow>, StorageError> {
        if count == 0 {
            return Ok(Vec::new());
        }
        let rows = if self.version()? == 0 { Vec::new() } else { self.message_rows(0, key(count, 0))? };
        whole(rows, count)
    }

    pub(super) fn first_places(&self, count: u32) -> Result<Vec<MessagePlace>, StorageError> {
        let mut places = Vec::new();
        if count > 0 && self.version()? > 0 {
            self.sql.run(
                "SELECT id, role FROM message WHERE key < ?1 AND key % 1024 = 0 ORDER BY key",
                &[Param::Integer(key(count, 0))],
                &mut |row| {
                    places.push(MessagePlace { id: MessageId::new(text(row, 0)?), role: text(row, 1)? });
                    Ok(())
                },
            )?;
        }
        whole(places, count)
    }

    pub(super) fn message_of(&self, id: &str, count: u32) -> Result<Option<MessageRow>, StorageError> {
        if count == 0 || self.version()? == 0 {
            return Ok(None);
        }
        let at = self.one(
            "SELECT key FROM message WHERE id = ?1 AND key < ?2 ORDER BY key LIMIT 1",
            &[Param::Text(id), Param::Integer(key(count, 0))],
            |row| integer(row, 0),
        )?;
        let Some(at) = at else { return Ok(None) };
        Ok(self.message_rows(at, at.saturating_add(PARTS))?.into_iter().next())
    }

    pub(super) fn message_of_index(&self, index: u32) -> Result<Option<MessageRow>, StorageError> {
        if self.version()? == 0 {
            return Ok(None);
        }
        let at = key(index, 0);
        Ok(self.message_rows(at, at.saturating_add(PARTS))?.into_iter().next())
    }

    fn message_rows(&self, from: u64, until: u64) -> Result<Vec<MessageRow>, StorageError> {
        let mut rows: Vec<MessageRow> = Vec::new();
        self.sql.run(
            "SELECT key, id, role, run, json FROM message WHERE key >= ?1 AND key < ?2 ORDER BY key",
            &[Param::Integer(from), Param::Integer(until)],
            &mut |row| {
                let index = small(integer(row, 0)?.checked_div(PARTS))?;
                match rows.last_mut().filter(|last| last.index == index) {
                    Some(message) => message.json.push_str(&text(row, 4)?),
                    None => rows.push(MessageRow {
                        index,
                        id: MessageId::new(text(row, 1)?),
                        role: text(row, 2)?,
                        run: row.text(3).map(RunId::new),
                        json: text(row, 4)?,
                    }),
                }
                Ok(())
            },
        )?;
        Ok(rows)
    }

    pub(super) fn held_answers(&self) -> Result<Vec<HeldRow>, StorageError> {
        let mut rows: Vec<HeldRow> = Vec::new();
        if self.version()? < HOLDS_ANSWERS {
            return Ok(rows);
        }
        self.sql.run("SELECT key, json FROM held_answer ORDER BY key", &[], &mut |row| {
            let ordinal = small(integer(row, 0)?.checked_div(PARTS))?;
            match rows.last_mut().filter(|last| last.ordinal == ordinal) {
                Some(held) => held.json.push_str(&text(row, 1)?),
                None => rows.push(HeldRow { ordinal, json: text(row, 1)? }),
            }
            Ok(())
        })?;
        Ok(rows)
    }

    pub(super) fn latest_checkpoint(&self) -> Result<Option<CheckpointRow>, StorageError> {
        self.first_checkpoint(
            select_checkpoint!("WHERE key >= (SELECT max(key) / 1024 * 1024 FROM checkpoint) ORDER BY key"),
            &[],
        )
    }

    pub(super) fn point_of(&self, id: &CheckpointId) -> Result<Option<CheckpointRow>, StorageError> {
        if self.version()? == 0 {
            return Ok(None);
        }
        self.first_checkpoint(
            select_checkpoint!(
                "WHERE id = ?1 AND (kind = 'truncate' OR kind = 'entry' AND NOT EXISTS (SELECT 1 FROM run \
                 WHERE run.id = point.run AND run.entry = 'tool_result')) AND NOT EXISTS (SELECT 1 FROM checkpoint AS later \
                 WHERE later.key > point.key AND later.kind = 'truncate' AND later.message_count < point.message_count) \
                 ORDER BY key"
            ),
            &[Param::Text(id.as_str())],
        )
    }

    /// Every call, in order. Of a session that was stored without them: those that its migration will find.
    pub(super) fn calls(&self) -> Result<Vec<CallRow>, StorageError> {
        let mut calls = Vec::new();
        let statement = match self.version()? {
            version if version < CALLS_SINCE => CALLS_IN_MESSAGES,
            _ => "SELECT id, own, turn FROM call ORDER BY key",
        };
        self.sql.run(statement, &[], &mut |row| {
            calls.push(CallRow { id: text(row, 0)?, own: row.text(1), turn: small(row.integer(2))? });
            Ok(())
        })?;
        Ok(calls)
    }

    /// The first of the checkpoints that a statement finds, with all parts of its state.
    fn first_checkpoint(
        &self,
        statement: &'static str,
        params: &[Param<'_>],
    ) -> Result<Option<CheckpointRow>, StorageError> {
        let mut found: Option<CheckpointRow> = None;
        self.sql.run(statement, params, &mut |row| {
            let ordinal = small(integer(row, 0)?.checked_div(PARTS))?;
            match &mut found {
                Some(checkpoint) if checkpoint.ordinal == ordinal => {
                    checkpoint.state.get_or_insert_default().push_str(&row.text(7).unwrap_or_default());
                }
                Some(_) => {}
                None => {
                    found = Some(CheckpointRow {
                        ordinal,
                        id: CheckpointId::new(text(row, 1)?),
                        kind: untag(&text(row, 2)?)?,
                        message_count: small(row.integer(3))?,
                        sequence: cursor(row, 4)?,
                        step_count: small(row.integer(5))?,
                        run: RunId::new(text(row, 6)?),
                        state: row.text(7),
                    });
                }
            }
            Ok(())
        })?;
        Ok(found)
    }
}

//! Parameters and result cells: from typed rows to SQL values and back.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::StorageError;
use super::keys::{COLUMN_LIMIT, PARTS};
use super::rows::{BlockRow, Life, RunRow};
use crate::core::ids::{AttemptId, Cursor, MessageId, RunId, Sequence};
use crate::core::time::UnixMillis;

/// A bound parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Param<'a> {
    /// SQL NULL.
    Null,
    /// A whole number up to 2^53 − 1.
    Integer(u64),
    /// UTF-8 text.
    Text(&'a str),
    /// Bytes.
    Blob(&'a [u8]),
}

/// The cells of one result row.
pub trait Cells {
    /// A whole number that is not negative.
    fn integer(&self, column: usize) -> Option<u64>;
    /// Text.
    fn text(&self, column: usize) -> Option<String>;
    /// Bytes.
    fn blob(&self, column: usize) -> Option<Vec<u8>>;
}

pub(super) fn optional(text: Option<&str>) -> Param<'_> {
    text.map_or(Param::Null, Param::Text)
}

/// The text of an enum without fields, as serde names it.
pub(super) fn tag<T: Serialize>(value: &T) -> Result<String, StorageError> {
    match serde_json::to_value(value) {
        Ok(Value::String(text)) => Ok(text),
        _ => Err(StorageError::Corrupt("not a plain enum")),
    }
}

pub(super) fn untag<T: DeserializeOwned>(text: &str) -> Result<T, StorageError> {
    serde_json::from_value(Value::String(text.to_owned())).map_err(|_| StorageError::Corrupt("unknown enum value"))
}

pub(super) fn integer(row: &dyn Cells, column: usize) -> Result<u64, StorageError> {
    row.integer(column).ok_or(StorageError::Corrupt("a number is missing"))
}

pub(super) fn text(row: &dyn Cells, column: usize) -> Result<String, StorageError> {
    row.text(column).ok_or(StorageError::Corrupt("a text is missing"))
}

pub(super) fn cursor(row: &dyn Cells, column: usize) -> Result<Cursor, StorageError> {
    Cursor::new(integer(row, column)?).map_err(|_| StorageError::Corrupt("a sequence is out of range"))
}

pub(super) fn small(value: Option<u64>) -> Result<u32, StorageError> {
    value.and_then(|value| u32::try_from(value).ok()).ok_or(StorageError::Corrupt("a count is out of range"))
}

/// Key of part `part` of the value at `index`.
pub(super) fn key(index: u32, part: u64) -> u64 {
    u64::from(index).saturating_mul(PARTS).saturating_add(part)
}

/// Cuts a text into parts that fit a column, at character boundaries.
pub(super) fn split(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text;
    while rest.len() > COLUMN_LIMIT {
        let (part, after) = rest.split_at(rest.floor_char_boundary(COLUMN_LIMIT));
        parts.push(part);
        rest = after;
    }
    parts.push(rest);
    parts
}

pub(super) fn read_block(row: &dyn Cells, bytes: Vec<u8>) -> Result<BlockRow, StorageError> {
    Ok(BlockRow {
        key: integer(row, 0)?,
        last: Sequence::new(integer(row, 1)?).map_err(|_| StorageError::Corrupt("chunk_block.last"))?,
        run: RunId::new(text(row, 2)?),
        attempt: row.text(3).map(AttemptId::new),
        bytes,
    })
}

pub(super) fn read_run(row: &dyn Cells) -> Result<RunRow, StorageError> {
    Ok(RunRow {
        turn: small(row.integer(0))?,
        id: RunId::new(text(row, 1)?),
        status: untag(&text(row, 2)?)?,
        entry: untag(&text(row, 3)?)?,
        request_key: row.text(4),
        input_hash: row.text(5),
        start: cursor(row, 6)?,
        end: row.integer(7).map(Cursor::new).transpose().map_err(|_| StorageError::Corrupt("run.end_"))?,
        message_index: small(row.integer(8))?,
        message_id: MessageId::new(text(row, 9)?),
        lease_until: UnixMillis::new(integer(row, 10)?),
        epoch: small(row.integer(11))?,
        attempts: small(row.integer(12))?,
        vocabulary: untag(&text(row, 13)?)?,
        agent: text(row, 14)?,
        started: UnixMillis::new(integer(row, 15)?),
        ended: row.integer(16).map(UnixMillis::new),
        error: row.text(17).map(|code| untag(&code)).transpose()?,
        retry_after_ms: row.integer(18),
        push: row
            .text(19)
            .map(|json| serde_json::from_str(&json))
            .transpose()
            .map_err(|_| StorageError::Corrupt("run.push"))?,
        error_text: row.text(20),
        life: Life {
            deaths: row.integer(21).map_or(Ok(0), |deaths| small(Some(deaths)))?,
            again_at: row.integer(22).map(UnixMillis::new),
            unfollowed: row.integer(23).map(UnixMillis::new),
        },
    })
}

//! Stored chunks, read from the rows a page at a time.

use super::turn::Rows;
use crate::core::frame;
use crate::core::ids::Cursor;
use crate::core::storage::StorageError;

/// Bytes of blocks that are read in one go.
pub const PAGE_BYTES: usize = 512 * 1024;

/// Reads chunks: after `cursor`, and up to `through`.
///
/// # Errors
/// [`StorageError`].
pub fn chunks(rows: &Rows, cursor: Cursor, through: Cursor) -> Result<Vec<frame::Stored>, StorageError> {
    let mut chunks = Vec::new();
    each(rows, cursor, Some(through), &mut |stored| chunks.push(stored))?;
    Ok(chunks)
}

/// Visits stored chunks, a page of blocks at a time, so that a run of any length fits: after `cursor`, and up to `through` when it is given.
///
/// # Errors
/// [`StorageError`].
pub fn each(
    rows: &Rows,
    cursor: Cursor,
    through: Option<Cursor>,
    visit: &mut dyn FnMut(frame::Stored),
) -> Result<(), StorageError> {
    let mut at = cursor;
    while through.is_none_or(|through| at < through) {
        let blocks = rows.blocks(at, PAGE_BYTES)?;
        let Some(last) = blocks.last().map(|block| block.last.cursor()) else { break };
        for block in blocks {
            for stored in frame::split(&block.bytes) {
                let stored =
                    stored.and_then(frame::decode_one).map_err(|_| StorageError::Corrupt("chunk_block.bytes"))?;
                let beyond = through.is_some_and(|through| through.lacks(stored.sequence));
                if at.lacks(stored.sequence) && !beyond {
                    visit(stored);
                }
            }
        }
        at = last;
    }
    Ok(())
}

//! The keys of rows whose value may be split into parts, and how large a part may be.

use crate::core::ids::{Cursor, Sequence};

/// Largest value of one column, in bytes: production refuses rows of 2 MB (`spec/platform.md` section 4).
pub const COLUMN_LIMIT: usize = 1_900_000;

/// Rows that one logical value may be split into; the factor in every key.
pub const PARTS: u64 = 1024;

/// Key of a part of the block that starts at `first`.
pub fn key_of(first: Sequence, part: u64) -> u64 {
    first.get().saturating_mul(PARTS).saturating_add(part)
}

/// First sequence of the block with this key.
pub fn first_of(key: u64) -> Option<Sequence> {
    Sequence::new(key.checked_div(PARTS)?).ok()
}

/// Every block that may hold a chunk after `cursor` has a key above this one's block start.
pub fn key_floor(cursor: Cursor) -> u64 {
    cursor.get().saturating_add(1).saturating_mul(PARTS)
}

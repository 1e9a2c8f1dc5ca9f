//! Cursors as clients write them.

use thiserror::Error;

use crate::core::ids::{Cursor, Sequence};

/// The text is not a cursor.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("a cursor is a whole number from 0 to {max} without sign or fraction", max = Sequence::MAX)]
pub struct InvalidCursor;

/// Reads a cursor from a header or a query.
///
/// # Errors
/// [`InvalidCursor`] for signs, fractions, exponents, blanks and numbers that no log can reach.
pub fn parse(text: &str) -> Result<Cursor, InvalidCursor> {
    if text.is_empty() || text.len() > 16 || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(InvalidCursor);
    }
    text.parse().ok().and_then(|number| Cursor::new(number).ok()).ok_or(InvalidCursor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_whole_numbers() {
        assert_eq!(parse("0"), Ok(Cursor::START));
        assert_eq!(parse("42").unwrap().get(), 42);
        for text in ["", "-1", "+1", "1.5", "1e3", " 1", "0x10", "٣", &"9".repeat(30), "8796093022208"] {
            assert_eq!(parse(text), Err(InvalidCursor), "{text:?}");
        }
    }
}

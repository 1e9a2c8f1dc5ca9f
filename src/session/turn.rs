//! A turn of a session.

use crate::core::engine::Turn;
use crate::core::storage::Storage;

/// The storage that a session lives in.
pub type Rows = dyn Storage;

/// A turn of a session.
pub type SessionTurn<'a> = Turn<'a, Rows>;

//! What a request asks of a session.

use crate::core::ids::Cursor;
use crate::dialect::cursor;
use crate::dialect::route::{Call, query_value};

use super::refuse::Refusal;

/// A call, and what its address says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionCall {
    /// What its route stands for.
    pub call: Call,
    /// The query of its address, without the question mark.
    pub query: String,
}

impl SessionCall {
    /// A value of the query.
    pub(super) fn value(&self, name: &str) -> Option<String> {
        query_value(&self.query, name)
    }

    /// Whether a flag of the query is set.
    pub(super) fn is_set(&self, name: &str) -> bool {
        self.value(name).is_some_and(|value| value == "1")
    }

    /// A cursor of the query.
    pub(super) fn cursor(&self, name: &str) -> Result<Option<Cursor>, Refusal> {
        self.value(name).map(|text| Self::cursor_of(&text)).transpose()
    }

    /// A cursor as a client writes it.
    ///
    /// # Errors
    /// [`Refusal::Invalid`].
    pub fn cursor_of(text: &str) -> Result<Cursor, Refusal> {
        cursor::parse(text).map_err(|error| Refusal::Invalid(error.to_string()))
    }
}

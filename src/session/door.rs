//! The door: who asks becomes an owned session once, before anything else is read or said. "Not yours" and "not there" are the same answer
//! (DESIGN.md invariant 11).

use crate::core::caller::Caller;
use crate::core::command::NotFound;
use crate::core::session::Session;
use crate::core::storage::SessionRow;

/// A session that is the caller's. Whatever stands behind the door takes this, never a bare caller.
#[derive(Clone, Copy, Debug)]
pub struct Owned<'a> {
    session: &'a Session,
    row: &'a SessionRow,
}

impl<'a> Owned<'a> {
    /// Lets a caller in.
    ///
    /// # Errors
    /// [`NotFound`]: there is no such session, or it is somebody else's.
    pub fn enter(session: &'a Session, caller: &Caller) -> Result<Self, NotFound> {
        session.authorise(caller).map(|row| Self { session, row })
    }

    /// The session.
    pub fn session(self) -> &'a Session {
        self.session
    }

    /// Its row.
    pub fn row(self) -> &'a SessionRow {
        self.row
    }
}

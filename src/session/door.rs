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

    /// Lets a caller in who may begin a session: one that is there must be theirs.
    ///
    /// # Errors
    /// [`NotFound`]: it is somebody else's.
    pub fn or_begins(session: &'a Session, caller: &Caller) -> Result<Option<Self>, NotFound> {
        if session.is_absent() { Ok(None) } else { Self::enter(session, caller).map(Some) }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::ids::Cursor;
    use crate::core::log::Ticket;
    use crate::core::retention::Policy;
    use crate::core::run::StreamStatus;
    use crate::core::storage::Stored;
    use crate::core::time::{Millis, UnixMillis};

    const POLICY: Policy = Policy {
        lease: Millis::new(30_000),
        retention: Millis::new(86_400_000),
        ttl: None,
        max_bytes: 1 << 20,
        detached: None,
    };

    fn session(owner: Option<&str>) -> Session {
        let row = SessionRow {
            owner: owner.map(str::to_owned),
            salt: "salt".into(),
            created: UnixMillis::new(1),
            floor: Cursor::START,
            run: None,
            status: StreamStatus::Ended,
        };
        let stored = Stored {
            session: row,
            run: None,
            checkpoint: None,
            truncated: None,
            last_block: None,
            calls: Vec::new(),
            held: Vec::new(),
            queue: Vec::new(),
        };
        Session::load(Some(stored), POLICY, false, Ticket::FIRST)
    }

    #[test]
    fn strangers_meet_a_door_that_looks_like_none() {
        let (me, other) = (Caller::Owner("me".into()), Caller::Owner("other".into()));
        let absent = Session::load(None, POLICY, false, Ticket::FIRST);
        let mine = session(Some("me"));
        assert_eq!(Owned::enter(&mine, &me).unwrap().row().owner.as_deref(), Some("me"));
        for caller in [&other, &Caller::Anonymous] {
            let refused = [Owned::enter(&mine, caller).err(), Owned::enter(&absent, caller).err()];
            assert_eq!(refused, [Some(NotFound), Some(NotFound)]);
            assert_eq!(Owned::or_begins(&mine, caller).err(), Some(NotFound));
        }
        assert!(Owned::or_begins(&absent, &me).unwrap().is_none(), "anybody may begin it");
        assert!(Owned::or_begins(&session(None), &Caller::Anonymous).unwrap().is_some());
    }
}

//! Who asks. Every command takes one; "not yours" and "not there" are the same answer (DESIGN.md invariant 11).

/// The identity behind a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// Nobody in particular: all callers of a deployment without authentication are this one.
    Anonymous,
    /// A person or tenant that the deployment authenticated.
    Owner(String),
}

impl Caller {
    /// The owner to write on a session that this caller creates.
    pub fn owner(&self) -> Option<&str> {
        match self {
            Self::Anonymous => None,
            Self::Owner(owner) => Some(owner),
        }
    }

    /// Whether a session with this owner is this caller's.
    pub fn owns(&self, owner: Option<&str>) -> bool {
        self.owner() == owner
    }
}

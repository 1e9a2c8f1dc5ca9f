//! What an engine has done.

use std::rc::Rc;

use serde_json::Value;

use super::answer::{Answer, AnswerHeaders};
use super::ids::{Exchange, FetchId};
use crate::core::log::Ticket;
use crate::core::time::UnixMillis;

/// Something to do. The kinds are carried out in the order of [`Action::order`], those of one kind in the order in which they were said.
#[derive(Debug, PartialEq)]
pub enum Action {
    /// Set the object's one alarm, in the place of the one that is set.
    Arm(UnixMillis),
    /// Tell when everything written so far is durable.
    Sync(Ticket),
    /// Delete everything that is stored, and the alarm with it.
    Erase,
    /// Send the head of a response whose body is given from here on.
    Open {
        /// Of which request.
        exchange: Exchange,
        /// The head.
        head: Head,
        /// What must be durable before.
        rests: Option<Rests>,
    },
    /// Give the same bytes to several responses.
    Give {
        /// To whom.
        to: Vec<Exchange>,
        /// What.
        bytes: Rc<[u8]>,
        /// Whether there is more for them already: then their room is worth a turn of its own
        /// ([`Cycle::has_news`](super::cycle::Cycle::has_news)). Else it is so only if a turn has passed meanwhile, which may have brought
        /// something for them.
        more: bool,
    },
    /// End a response cleanly.
    Close(Exchange),
    /// Break a response's body off: its client sees a network error, never a clean end.
    Break(Exchange),
    /// Answer a request as a whole.
    Answer {
        /// Which.
        exchange: Exchange,
        /// How.
        answer: Answer,
        /// What must be durable before.
        rests: Option<Rests>,
    },
    /// Bring bytes of a request's body.
    Take {
        /// Of which request.
        exchange: Exchange,
        /// How much.
        want: Want,
    },
    /// Call somebody. The body of the answer is not read before [`Action::ReadOn`].
    Fetch {
        /// The call's name.
        fetch: FetchId,
        /// Whom, and with what.
        call: Box<Fetch>,
    },
    /// Bring the next bytes of an answer's body.
    ReadOn(FetchId),
    /// Give an outgoing call up. Nothing is told of it any more.
    Abort(FetchId),
    /// Set the object's one timer, in the place of the one that is set. A moment that is over means: behind what waits at this moment.
    Timer(UnixMillis),
    /// Write one line for the operator. Never content, keys or whole ids of sessions.
    Log(Level, Value),
}

impl Action {
    /// The place of its kind among the actions of a turn. The alarm holds together with the writes, so it comes first; a give comes behind
    /// its open and before its close; what only the operator sees comes last.
    pub fn order(&self) -> u8 {
        match self {
            Self::Arm(_) => 0,
            Self::Sync(_) => 1,
            Self::Erase => 2,
            Self::Open { .. } => 3,
            Self::Give { .. } => 4,
            // With its answer the request is gone.
            Self::Close(_) | Self::Break(_) | Self::Take { want: Want::Nothing, .. } => 5,
            Self::Answer { .. } => 6,
            Self::Take { .. } => 7,
            Self::Fetch { .. } | Self::ReadOn(_) | Self::Abort(_) => 8,
            Self::Timer(_) => 9,
            Self::Log(..) => 10,
        }
    }
}

/// What an answer rests on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rests {
    /// It leaves once this is durable.
    pub ticket: Ticket,
    /// What is said instead when that fails.
    pub otherwise: Answer,
}

/// The head of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The HTTP status.
    pub status: u16,
    /// The headers.
    pub headers: AnswerHeaders,
}

/// How much of a body is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// The next bytes, however many there are.
    Next,
    /// All of it, unless it is larger than this many bytes.
    Whole(usize),
    /// None of it: it is taken while the answer is on its way and thrown away. Nothing is told of it.
    Nothing,
}

/// An outgoing call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// Who takes it.
    pub to: Target,
    /// Its headers.
    pub headers: Vec<(String, HeaderValue)>,
    /// The body of a POST; a GET has none.
    pub body: Option<String>,
}

/// Who takes an outgoing call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The network.
    Address(String),
    /// A service binding of the deployment, which is asked under this address.
    Binding {
        /// The binding's name.
        name: String,
        /// The address.
        address: String,
    },
    /// Another object of the same class.
    Object {
        /// Its name.
        name: String,
        /// Path and query.
        path: String,
    },
}

/// The value of an outgoing header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderValue {
    /// As it stands here.
    Plain(String),
    /// A secret of the deployment, which the engine knows by name only.
    Secret {
        /// What stands before it.
        before: String,
        /// The secret's name.
        name: String,
    },
}

/// How loud a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// What happened.
    Told,
    /// What went wrong.
    Wrong,
}

//! What an engine is told.

use super::ids::{Exchange, FetchId};
use crate::core::caller::Caller;
use crate::core::log::Ticket;

/// Something that happened since the last turn.
#[derive(Debug)]
pub enum Event<C> {
    /// The head of a request.
    Asked {
        /// Its name from here on.
        exchange: Exchange,
        /// What it asks.
        ask: Box<Ask<C>>,
    },
    /// What a [`Take`](super::action::Action::Take) has brought.
    Body {
        /// Whose body.
        exchange: Exchange,
        /// What of it.
        news: BodyNews,
    },
    /// The client has gone, whether or not its response was over. Also told of a request that was ended in the engine's place: one that it
    /// had lost, or whose open response rested on a ticket that did not come.
    Left(Exchange),
    /// These responses take no more for the time being.
    Full(Vec<Exchange>),
    /// A response takes more again, or for the first time.
    Room(Exchange),
    /// Everything that was written before this ticket's `sync` was asked for is durable.
    Durable(Ticket),
    /// It is not known what of it is. The driver has told the same of no later ticket.
    NotDurable(String),
    /// What came of an outgoing call.
    Fetched {
        /// Which.
        fetch: FetchId,
        /// What.
        news: FetchNews,
    },
    /// The alarm rang. It is not set any more.
    Rang,
    /// The alarm that was asked for is not set.
    NotArmed(String),
    /// The timer fired. It is not set any more.
    Timer,
    /// Everything that was stored is gone.
    Erased,
    /// It is not, or not all of it.
    NotErased(String),
}

/// The head of a request.
#[derive(Debug)]
pub struct Ask<C> {
    /// What its route says.
    pub call: C,
    /// Who asks.
    pub caller: Caller,
    /// Those of its headers that the route names.
    pub headers: Headers,
}

/// Headers, their names in lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, String)>);

impl Headers {
    /// These, whose names are in lower case already.
    pub fn new(headers: Vec<(String, String)>) -> Self {
        Self(headers)
    }

    /// The value under this name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// All names, in the order in which they came.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }
}

/// What has come of a request's body.
#[derive(Debug, PartialEq, Eq)]
pub enum BodyNews {
    /// The next bytes; after [`Want::Whole`](super::action::Want::Whole) all of them.
    Bytes(Vec<u8>),
    /// There is no more.
    End,
    /// It is larger than the limit, in bytes if its sender has declared the size.
    Excess(Option<usize>),
    /// It broke before its end.
    Broke,
}

/// What has come of an outgoing call.
#[derive(Debug, PartialEq, Eq)]
pub enum FetchNews {
    /// The head of an answer.
    Answered {
        /// Its status.
        status: u16,
        /// All its headers.
        headers: Headers,
    },
    /// The next bytes of its body.
    Bytes(Vec<u8>),
    /// Its body is over.
    Ended,
    /// Nobody answered, or the body broke; why, for the log line only.
    Broke(String),
}

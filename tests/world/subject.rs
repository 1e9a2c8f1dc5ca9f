//! The seam: what a kind of object brings to the world. Nothing else in these files knows what an engine serves.

use std::fmt::Debug;

use rejoin::core::caller::Caller;
use rejoin::core::engine::Engine;
use rejoin::core::engine::action::Fetch;
use rejoin::core::engine::event::{Ask, FetchNews, Headers};
use rejoin::core::engine::ids::Exchange;
use rejoin::core::time::UnixMillis;

use crate::disk::Disk;
use crate::network::{Body, News};
use crate::random::Rng;

/// What was found wrong, in words for whoever reads the trace.
pub type Violation = String;

/// Whether everything is as it must be.
pub type Verdict = Result<(), Violation>;

/// Bounds that hold at any time.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Bytes that wait in one response for a client that does not read.
    pub unread: usize,
    /// Outgoing calls at a time.
    pub calls: usize,
}

/// A kind of object: its engine, its storage, and the people around it. A value of it stands for one configuration.
pub trait Subject: Clone + Send + 'static {
    /// As in the engine.
    type Call: Debug;
    /// As in the engine.
    type Storage: ?Sized;
    /// The machine.
    type Engine: Engine<Call = Self::Call, Storage = Self::Storage>;
    /// What all clients of one schedule have seen, put together.
    type Witness: Default;

    /// Its name in what a campaign prints.
    const NAME: &'static str;
    /// What is never exceeded.
    const BOUNDS: Bounds;
    /// How long it may take until everybody has come to an end once nothing fails any more, in ms of the world.
    const PATIENCE: u64;

    /// Empty storage: the double, or native SQLite.
    fn disk(&self, is_native: bool) -> Box<dyn Disk<Self::Storage>>;

    /// An engine without memory, as an object begins with.
    fn engine(&self) -> Self::Engine;

    /// Who takes part in a schedule.
    fn cast(&self, rng: &mut Rng) -> Vec<Box<dyn Client<Self>>>;

    /// What comes of an outgoing call: its head, its bytes piece by piece, its end. The network may break it anywhere.
    fn serve(&self, _call: &Fetch, _rng: &mut Rng) -> Vec<FetchNews> {
        vec![FetchNews::Broke("nobody is there".into())]
    }

    /// How many requests and calls the engine holds something of. Nothing may be left when everybody is gone.
    fn held(engine: &Self::Engine) -> usize;

    /// The last check: what was seen, altogether.
    ///
    /// # Errors
    /// What is wrong with it.
    fn judge(&self, witness: &Self::Witness) -> Verdict;
}

/// Somebody who asks. It may have several requests under way.
pub trait Client<S: Subject> {
    /// It may do something: ask, send more of a body, leave; or nothing. Once [`Desk::is_calm`], it starts nothing that it needs not in
    /// order to come to its end.
    fn acts(&mut self, desk: &mut Desk<'_, S>);

    /// Something came of one of its requests.
    ///
    /// # Errors
    /// What must never be seen.
    fn hears(&mut self, exchange: Exchange, news: News, desk: &mut Desk<'_, S>) -> Verdict;

    /// When it does something next of its own accord, if it has to wait until then.
    fn wakes_at(&self) -> Option<UnixMillis> {
        None
    }

    /// Whether it wants nothing any more.
    fn is_done(&self) -> bool;

    /// What it is, and what it waits for.
    fn describe(&self) -> String;
}

/// What a client has at hand.
pub struct Desk<'a, S: Subject> {
    /// Chance.
    pub rng: &'a mut Rng,
    /// The moment, as everybody's clock says.
    pub now: UnixMillis,
    /// Whether the schedule is over: nothing fails any more, and everybody is to come to an end.
    pub is_calm: bool,
    /// What all have seen so far.
    pub witness: &'a mut S::Witness,
    pub(crate) orders: Vec<Order<S::Call>>,
    pub(crate) next: &'a mut u64,
}

/// What a client does.
pub(crate) enum Order<C> {
    Ask(Exchange, Box<Ask<C>>, Body),
    Send(Exchange, Vec<u8>),
    Finish(Exchange),
    Leave(Exchange),
}

impl<S: Subject> Desk<'_, S> {
    /// Asks something, as somebody, with headers.
    pub fn ask_as(&mut self, caller: Caller, headers: Headers, call: S::Call, body: Body) -> Exchange {
        let exchange = Exchange::new(*self.next);
        *self.next += 1;
        self.orders.push(Order::Ask(exchange, Box::new(Ask { call, caller, headers }), body));
        exchange
    }

    /// Asks something, as nobody in particular.
    pub fn ask(&mut self, call: S::Call, body: Body) -> Exchange {
        self.ask_as(Caller::Anonymous, Headers::default(), call, body)
    }

    /// Sends more of the body of a request that was asked with [`Body::Open`].
    pub fn send(&mut self, exchange: Exchange, bytes: Vec<u8>) {
        self.orders.push(Order::Send(exchange, bytes));
    }

    /// Ends such a body.
    pub fn finish(&mut self, exchange: Exchange) {
        self.orders.push(Order::Finish(exchange));
    }

    /// Closes the connection. Nothing more is heard of the request.
    pub fn leave(&mut self, exchange: Exchange) {
        self.orders.push(Order::Leave(exchange));
    }
}

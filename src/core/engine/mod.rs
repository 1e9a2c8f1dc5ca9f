//! One object as a sans-IO machine (DESIGN.md section 3): it is told what happened and says what is to be done. It never waits, asks no clock,
//! and reads and writes its rows only through the synchronous storage that each turn brings.
//!
//! * [`event`]: what an engine is told. [`action`]: what it says in return. [`answer`]: finished answers, as values.
//! * [`ids`]: the names of requests and of outgoing calls. [`entropy`]: randomness that is given, never taken.
//! * [`registry`]: who is owed an end. [`cycle`]: one turn, the same for every driver.
//!
//! # Writing a driver
//!
//! A driver owns the storage, the engine and a [`Cycle`](cycle::Cycle), and does three things.
//!
//! 1. *Tell.* Whatever happens becomes an event: `cycle.tell(event)`. A request gets an [`Exchange`](ids::Exchange) that was never used
//!    before; everything about it carries that name until its response is over.
//! 2. *Turn.* Once nothing else is ready, and while the cycle [has news](cycle::Cycle::has_news), [`Cycle::turn`](cycle::Cycle::turn)
//!    lets the engine hear all that was told. Events that are raised while actions are carried out wait for the next turn.
//! 3. *Do.* The turn's actions come in the order in which they must be carried out. The turn's writes and its alarm hold together: a driver
//!    whose storage commits by itself must commit them as one. A [`Give`](action::Action::Give) is answered, where a response took no more,
//!    by one [`Event::Full`](event::Event::Full); such a response gets nothing until the driver has told
//!    [`Event::Room`](event::Event::Room). After [`Action::Sync`](action::Action::Sync) comes exactly one
//!    [`Event::Durable`](event::Event::Durable) or [`Event::NotDurable`](event::Event::NotDurable).
//!
//! An engine that panics is caught by the driver: [`Cycle::panicked`](cycle::Cycle::panicked) throws its image away and ends what the panic
//! has left without an answer. A driver that dies tells nothing: the next object begins with an engine that reads its rows.

pub mod action;
pub mod answer;
pub mod cycle;
#[cfg(test)]
mod cycle_tests;
pub mod entropy;
pub mod event;
pub mod ids;
pub mod registry;

use crate::core::time::UnixMillis;
use action::{Action, Fetch, Head, Rests, Want};
use answer::Answer;
use entropy::Entropy;
use event::Event;
use ids::{Exchange, FetchId};

/// The machine of one object.
pub trait Engine {
    /// What a request asks, read from its route.
    type Call;
    /// The synchronous storage of its rows.
    type Storage: ?Sized;

    /// Hears one event. Decides, then changes: a refused request leaves the state as it was. What an event tells once
    /// (room, a client that left, an alarm that is not set any more) is noted before anything that can fail.
    fn handle(&mut self, event: Event<Self::Call>, turn: &mut Turn<'_, Self::Storage>);

    /// Runs once behind all events of a turn. What must follow is derived here from the state, never remembered at a write: a write that
    /// failed after it landed is found by the reload.
    fn turn_over(&mut self, turn: &mut Turn<'_, Self::Storage>);

    /// Throws the image away: it is read from its rows again by whoever needs it next. What is not in the rows (open responses, outgoing
    /// calls, the last ticket) stays. What it finds there may not be durable yet, and what it believed of alarm and timer may be untrue:
    /// what was said in the turn that panicked was not heard.
    fn throw_away(&mut self);
}

/// What an engine has at hand in one turn.
pub struct Turn<'a, S: ?Sized> {
    /// The moment.
    pub now: UnixMillis,
    /// The object's rows. A call into it cannot re-enter the engine.
    pub storage: &'a S,
    /// Randomness.
    pub entropy: &'a mut dyn Entropy,
    actions: Vec<Action>,
    parked: Vec<Exchange>,
}

impl<'a, S: ?Sized> Turn<'a, S> {
    /// A turn in which nothing was said yet.
    pub fn new(now: UnixMillis, storage: &'a S, entropy: &'a mut dyn Entropy) -> Self {
        Self { now, storage, entropy, actions: Vec::new(), parked: Vec::new() }
    }

    /// Has something done, in the place that its kind has among the turn's actions.
    pub fn act(&mut self, action: Action) {
        self.actions.push(action);
    }

    /// The request is answered later: something that the engine waits for will bring the answer. A request that is neither answered nor
    /// parked when its turn is over was lost on the way, and is answered 500.
    pub fn park(&mut self, exchange: Exchange) {
        self.parked.push(exchange);
    }

    /// A whole answer that rests on nothing.
    pub fn answer(&mut self, exchange: Exchange, answer: Answer) {
        self.act(Action::Answer { exchange, answer, rests: None });
    }

    /// A whole answer that leaves once a ticket is durable.
    pub fn answer_resting(&mut self, exchange: Exchange, answer: Answer, rests: Rests) {
        self.act(Action::Answer { exchange, answer, rests: Some(rests) });
    }

    /// The head of a response that is given bytes from here on.
    pub fn open(&mut self, exchange: Exchange, head: Head, rests: Option<Rests>) {
        self.act(Action::Open { exchange, head, rests });
    }

    /// Asks for bytes of the request's body.
    pub fn take(&mut self, exchange: Exchange, want: Want) {
        self.act(Action::Take { exchange, want });
    }

    /// Calls somebody.
    pub fn fetch(&mut self, fetch: FetchId, call: Fetch) {
        self.act(Action::Fetch { fetch, call: Box::new(call) });
    }
}

//! One turn, the same for every driver: all events that wait, then what follows from the state, then the actions in their order.

use std::collections::{BTreeMap, VecDeque};

use super::action::{Action, Rests};
use super::answer::Answer;
use super::entropy::Entropy;
use super::event::{BodyNews, Event, FetchNews};
use super::ids::Exchange;
use super::registry::Registry;
use super::{Engine, Turn};
use crate::core::error::Code;
use crate::core::log::Ticket;
use crate::core::time::UnixMillis;

/// What surrounds a turn.
pub struct Surroundings<'a, S: ?Sized> {
    /// The moment.
    pub now: UnixMillis,
    /// The object's rows.
    pub storage: &'a S,
    /// Randomness.
    pub entropy: &'a mut dyn Entropy,
}

/// A response that waits for a ticket, and everything that was said of it meanwhile.
#[derive(Debug)]
struct Held {
    rests: Rests,
    actions: Vec<Action>,
}

/// Between a driver and its engine: the events that wait, who is owed an end, what rests on a ticket, and the one `sync` in flight.
#[derive(Debug)]
pub struct Cycle<C> {
    events: VecDeque<Event<C>>,
    /// Whether one of them is worth a turn of its own.
    has_news: bool,
    /// What is told if the event under way panics, because nothing else would ever tell it.
    at_stake: Option<Event<C>>,
    /// Events at the head of the queue that are told for the second time. A third time would be a loop.
    again: usize,
    registry: Registry,
    held: BTreeMap<Exchange, Held>,
    /// What leaves in this turn so far. A panic loses only what its own event has said.
    said: Vec<Action>,
    /// The highest ticket that was confirmed.
    durable: Option<Ticket>,
    /// The ticket whose `sync` is under way.
    in_flight: Option<Ticket>,
    /// A later one, asked for meanwhile.
    wanted: Option<Ticket>,
}

impl<C> Default for Cycle<C> {
    fn default() -> Self {
        Self {
            events: VecDeque::new(),
            has_news: false,
            at_stake: None,
            again: 0,
            registry: Registry::default(),
            held: BTreeMap::new(),
            said: Vec::new(),
            durable: None,
            in_flight: None,
            wanted: None,
        }
    }
}

impl<C> Cycle<C> {
    /// Something happened.
    pub fn tell(&mut self, event: Event<C>) {
        self.has_news |= match &event {
            Event::Room(exchange) => self.registry.misses_something(*exchange),
            Event::Full(_) => false,
            _ => true,
        };
        self.events.push_back(event);
    }

    /// A request that is not asked by an event: whoever brings it answers it through a turn.
    pub fn adopts(&mut self, exchange: Exchange) {
        self.registry.begins(exchange);
        self.registry.awaits(exchange);
    }

    /// Whether something was told that is worth a turn. Room for a response for which there is nothing more waits for whatever comes next,
    /// and so does the lack of it.
    pub fn has_news(&self) -> bool {
        self.has_news
    }

    /// The requests that are not over.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Whether the `sync` that was asked for is under way.
    pub fn is_syncing(&self) -> bool {
        self.in_flight.is_some()
    }

    /// One turn. The actions are to be carried out in the order in which they come.
    pub fn turn<E: Engine<Call = C>>(
        &mut self,
        engine: &mut E,
        surroundings: Surroundings<'_, E::Storage>,
    ) -> Vec<Action> {
        self.turn_with(engine, surroundings, &mut |_, _| ())
    }

    /// One turn with a deed of the driver's own behind the events: for what is not an event.
    pub fn turn_with<E: Engine<Call = C>>(
        &mut self,
        engine: &mut E,
        surroundings: Surroundings<'_, E::Storage>,
        deed: &mut dyn FnMut(&mut E, &mut Turn<'_, E::Storage>),
    ) -> Vec<Action> {
        let Surroundings { now, storage, entropy } = surroundings;
        while let Some(event) = self.events.pop_front() {
            let is_again = self.again > 0;
            self.again = self.again.saturating_sub(1);
            if self.hears(&event) {
                self.at_stake = if is_again { None } else { at_stake(&event) };
                let mut turn = Turn::new(now, storage, &mut *entropy);
                engine.handle(event, &mut turn);
                self.keep(turn);
                self.at_stake = None;
            }
        }
        let mut turn = Turn::new(now, storage, &mut *entropy);
        deed(engine, &mut turn);
        engine.turn_over(&mut turn);
        self.keep(turn);
        self.close()
    }

    /// Takes note of an event; `false` when it is of a request that is over.
    fn hears(&mut self, event: &Event<C>) -> bool {
        match event {
            Event::Asked { exchange, .. } => self.registry.begins(*exchange),
            Event::Body { exchange, .. } => return self.registry.hears(*exchange),
            Event::Left(exchange) => {
                self.held.remove(exchange);
                return self.registry.left(*exchange);
            }
            Event::Durable(ticket) => {
                self.in_flight = None;
                self.durable = self.durable.max(Some(*ticket));
                self.release(*ticket);
            }
            Event::NotDurable(_) => {
                self.in_flight = None;
                self.give_up();
            }
            _ => {}
        }
        true
    }

    /// Takes over what one event has brought, before the next is heard: a ticket may come, or fail, within the same turn.
    fn keep<S: ?Sized>(&mut self, turn: Turn<'_, S>) {
        turn.parked.into_iter().for_each(|exchange| self.registry.awaits(exchange));
        for mut action in sorted(turn.actions) {
            if self.registry.permits(&mut action) {
                let leaves = self.held_back(action);
                self.said.extend(leaves);
            }
        }
    }

    /// What rests on no more than this leaves.
    fn release(&mut self, ticket: Ticket) {
        let ready = self.held.extract_if(.., |_, held| held.rests.ticket <= ticket);
        self.said.extend(ready.flat_map(|(_, held)| held.actions));
    }

    /// What waits for a ticket that will not come is answered as it was said for this case. The engine hears that such a response is over.
    fn give_up(&mut self) {
        for (exchange, held) in std::mem::take(&mut self.held) {
            self.said.push(Action::Answer { exchange, answer: held.rests.otherwise, rests: None });
            if self.registry.ends_unasked(exchange) {
                self.events.insert(self.again.min(self.events.len()), Event::Left(exchange));
            }
        }
    }

    fn close(&mut self) -> Vec<Action> {
        // A panic has left those behind it.
        self.has_news = !self.events.is_empty();
        self.answer_lost();
        let (mut alarm, mut timer) = (None, None);
        let mut done = Vec::new();
        for mut action in std::mem::take(&mut self.said) {
            if self.registry.is_void(&mut action) {
                continue;
            }
            match action {
                Action::Sync(ticket) => self.wanted = self.wanted.max(Some(ticket)),
                Action::Arm(at) => alarm = Some(at),
                Action::Timer(at) => timer = Some(at),
                action => done.push(action),
            }
        }
        self.registry.turn_over();
        done.extend(alarm.map(Action::Arm));
        done.extend(timer.map(Action::Timer));
        done.extend(self.next_sync());
        sorted(done)
    }

    /// The action, unless its response waits for a ticket: then it waits as well.
    fn held_back(&mut self, action: Action) -> Option<Action> {
        match action {
            Action::Answer { exchange, answer, rests: Some(rests) } if Some(rests.ticket) <= self.durable => {
                Some(Action::Answer { exchange, answer, rests: None })
            }
            Action::Open { exchange, head, rests: Some(rests) } if Some(rests.ticket) <= self.durable => {
                Some(Action::Open { exchange, head, rests: None })
            }
            Action::Answer { exchange, answer, rests: Some(rests) } => {
                let actions = vec![Action::Answer { exchange, answer, rests: None }];
                self.held.insert(exchange, Held { rests, actions });
                None
            }
            Action::Open { exchange, head, rests: Some(rests) } => {
                let actions = vec![Action::Open { exchange, head, rests: None }];
                self.held.insert(exchange, Held { rests, actions });
                None
            }
            Action::Give { mut to, bytes, more } => {
                to.retain(|exchange| match self.held.get_mut(exchange) {
                    Some(held) => {
                        held.actions.push(Action::Give { to: vec![*exchange], bytes: bytes.clone(), more });
                        false
                    }
                    None => true,
                });
                (!to.is_empty()).then_some(Action::Give { to, bytes, more })
            }
            Action::Close(exchange) | Action::Break(exchange) => match self.held.get_mut(&exchange) {
                Some(held) => {
                    held.actions.push(action);
                    None
                }
                None => Some(action),
            },
            action => Some(action),
        }
    }

    /// Answers the requests that an error path has lost, and lets the engine hear that they are over.
    fn answer_lost(&mut self) {
        for exchange in self.registry.lost() {
            self.registry.ends_unasked(exchange);
            self.tell(Event::Left(exchange));
            let answer = Answer::error(Code::FrameworkInternalError);
            self.said.push(Action::Answer { exchange, answer, rests: None });
        }
    }

    /// At most one `sync` is in flight; what was asked for meanwhile is the next.
    fn next_sync(&mut self) -> Option<Action> {
        if self.in_flight.is_some() {
            return None;
        }
        self.in_flight = self.wanted.take();
        self.in_flight.map(Action::Sync)
    }

    /// The turn has panicked: the image is thrown away, and whoever the panic has left without an answer gets one. The driver lets a turn
    /// follow, in which the engine goes on from its rows. It hears again what only the event that panicked has told; of a call or a body
    /// whose news is lost, that it broke.
    pub fn panicked<E: Engine<Call = C>>(&mut self, engine: &mut E) -> Vec<Action> {
        engine.throw_away();
        if let Some(event) = self.at_stake.take() {
            match &event {
                Event::Fetched { fetch, .. } => self.said.push(Action::Abort(*fetch)),
                Event::Left(exchange) => self.registry.has_not_heard(*exchange),
                _ => {}
            }
            self.events.push_front(event);
            self.again = self.again.saturating_add(1);
        }
        self.close()
    }
}

/// What must be told once more when this event panics.
fn at_stake<C>(event: &Event<C>) -> Option<Event<C>> {
    Some(match event {
        Event::Fetched { fetch, .. } => {
            Event::Fetched { fetch: *fetch, news: FetchNews::Broke("its news were lost in a panic".to_owned()) }
        }
        Event::Body { exchange, .. } => Event::Body { exchange: *exchange, news: BodyNews::Broke },
        Event::Left(exchange) => Event::Left(*exchange),
        Event::Full(exchanges) => Event::Full(exchanges.clone()),
        Event::Room(exchange) => Event::Room(*exchange),
        Event::Rang => Event::Rang,
        Event::NotArmed(words) => Event::NotArmed(words.clone()),
        Event::Timer => Event::Timer,
        Event::Erased => Event::Erased,
        Event::NotErased(words) => Event::NotErased(words.clone()),
        // A request is answered by the registry. Whatever a ticket would have told is read from the rows, and asked for again.
        Event::Asked { .. } | Event::Durable(_) | Event::NotDurable(_) => return None,
    })
}

fn sorted(mut actions: Vec<Action>) -> Vec<Action> {
    actions.sort_by_key(Action::order);
    actions
}

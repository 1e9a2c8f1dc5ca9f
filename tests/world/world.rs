//! The second driver of an engine: it makes turns and carries actions out, on a disk, a network and clocks that it can break.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use rejoin::core::engine::action::Action;
use rejoin::core::engine::answer::AnswerHeaders;
use rejoin::core::engine::cycle::{Cycle, Surroundings};
use rejoin::core::engine::event::{BodyNews, Event, Headers};
use rejoin::core::engine::ids::Exchange;
use rejoin::core::log::Ticket;
use rejoin::core::time::UnixMillis;

use crate::calls::Calls;
use crate::disk::{Disk, Planned, Unit, Units};
use crate::network::{Line, News, Stage};
use crate::random::Rng;
use crate::subject::{Client, Desk, Order, Subject, Verdict, Violation};
use crate::trace::{self, Trace};

/// How often a schedule met what.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Steps of the schedule, without those of the calm behind it.
    pub steps: u64,
    /// Steps of the calm.
    pub calm: u64,
    /// Turns of the engine.
    pub turns: u64,
    /// Crashes.
    pub crashes: u64,
    /// Panics.
    pub panics: u64,
    /// Confirmations that failed.
    pub unconfirmed: u64,
}

/// One object, everybody around it, and the machine below it.
pub struct World<S: Subject> {
    pub(crate) subject: S,
    pub(crate) rng: Rng,
    entropy: Rng,
    pub(crate) now: UnixMillis,
    pub(crate) is_calm: bool,
    /// How seldom this schedule's machine and network fail.
    weather: usize,
    pub(crate) engine: S::Engine,
    pub(crate) cycle: Cycle<S::Call>,
    pub(crate) disk: Box<dyn Disk<S::Storage>>,
    units: Units,
    /// The one `sync` in flight, and what it will confirm.
    pub(crate) sync: Option<(Ticket, usize)>,
    pub(crate) timer: Option<UnixMillis>,
    /// The alarm rang, and no turn has heard it.
    has_rung: bool,
    pub(crate) lines: BTreeMap<Exchange, Line>,
    /// Clients that left, and when the engine is told.
    pub(crate) leaving: Vec<(UnixMillis, Exchange)>,
    /// Requests that the engine was told to be over.
    left: BTreeSet<Exchange>,
    pub(crate) calls: Calls,
    pub(crate) clients: Vec<Option<Box<dyn Client<S>>>>,
    pub(crate) witness: S::Witness,
    next: u64,
    pub(crate) trace: Trace,
    pub(crate) tally: Tally,
}

impl<S: Subject> World<S> {
    /// The world of a seed, before anything happens.
    pub fn new(subject: &S, seed: u64, trace: Trace) -> Self {
        let mut rng = Rng::new(seed);
        let is_native = rng.one_in(10);
        let clients = subject.cast(&mut rng).into_iter().map(Some).collect();
        Self {
            entropy: rng.fork(),
            now: UnixMillis::new(1_000_000),
            is_calm: false,
            weather: rng.pick(&[1, 2, 8]).unwrap_or(1),
            engine: subject.engine(),
            cycle: Cycle::default(),
            disk: subject.disk(is_native),
            units: Units::default(),
            sync: None,
            timer: None,
            has_rung: false,
            lines: BTreeMap::new(),
            leaving: Vec::new(),
            left: BTreeSet::new(),
            calls: Calls::default(),
            clients,
            witness: S::Witness::default(),
            next: 1,
            trace,
            tally: Tally::default(),
            subject: subject.clone(),
            rng,
        }
    }

    /// Whether something fails that could: once in `n` times, in the worst weather.
    pub(crate) fn fails_once_in(&mut self, n: usize) -> bool {
        let n = n * self.weather;
        !self.is_calm && self.rng.one_in(n)
    }

    /// When the alarm rings.
    pub(crate) fn alarm(&self) -> Option<UnixMillis> {
        self.units.newest().alarm.filter(|_| !self.has_rung)
    }

    /// Something happens to the object.
    pub(crate) fn tell(&mut self, event: Event<S::Call>) {
        self.trace.note(self.now, || format!("+ {}", trace::event(&event)));
        self.cycle.tell(event);
    }

    /// The alarm rings. A crash before a turn has heard it lets it ring again.
    pub(crate) fn ring(&mut self) {
        self.has_rung = true;
        self.tell(Event::Rang);
    }

    /// One turn, and what follows from it.
    pub(crate) fn turn(&mut self) -> Verdict {
        self.tally.turns += 1;
        self.trace.note(self.now, || "turn".into());
        let mut unit = self.units.newest();
        if std::mem::take(&mut self.has_rung) {
            unit.alarm = None;
        }
        let mut actions = match self.engine_turns()? {
            Ok(actions) => actions,
            Err(Planned) => {
                self.tally.panics += 1;
                self.trace.note(self.now, || "PANIC; the turn that follows".into());
                let mut actions = self.cycle.panicked(&mut self.engine);
                let follows = self.engine_turns()?;
                actions.extend(follows.unwrap_or_default());
                actions
            }
        };
        for action in &actions {
            self.trace.note(self.now, || format!("- {}", trace::action(action)));
        }
        self.arm(&mut actions, &mut unit);
        self.commit(unit);
        self.check_turn()?;
        // The machine may die behind any of them; what the platform has committed is committed.
        let dies = self.fails_once_in(120).then(|| self.rng.below(actions.len() + 1));
        let mut overfull = Vec::new();
        for (place, action) in actions.into_iter().enumerate() {
            if dies == Some(place) {
                break;
            }
            self.carry_out(action, &mut overfull)?;
        }
        if dies.is_some() {
            self.crash();
            return Ok(());
        }
        self.check_windows(&overfull)?;
        let full: Vec<_> = self.lines.iter_mut().filter_map(|(id, line)| line.fills().then_some(*id)).collect();
        if !full.is_empty() {
            self.tell(Event::Full(full));
        }
        Ok(())
    }

    fn engine_turns(&mut self) -> Result<Result<Vec<Action>, Planned>, Violation> {
        let Self { cycle, engine, disk, entropy, now, .. } = self;
        let surroundings = Surroundings { now: *now, storage: disk.storage(), entropy };
        catch_unwind(AssertUnwindSafe(|| cycle.turn(engine, surroundings))).map(Ok).or_else(|cause| {
            if cause.is::<Planned>() { Ok(Err(Planned)) } else { Err("the engine has panicked by itself".into()) }
        })
    }

    /// The alarm holds together with the writes, unless it cannot be set.
    fn arm(&mut self, actions: &mut Vec<Action>, unit: &mut Unit) {
        for at in actions.extract_if(.., |action| matches!(action, Action::Arm(_))) {
            let Action::Arm(at) = at else { continue };
            if self.fails_once_in(40) {
                self.tell(Event::NotArmed("planned".into()));
            } else {
                unit.alarm = Some(at);
            }
        }
    }

    fn commit(&mut self, unit: Unit) {
        self.units.commit(Unit { written: self.disk.written(), ..unit });
    }

    fn carry_out(&mut self, action: Action, overfull: &mut Vec<Exchange>) -> Verdict {
        match action {
            Action::Arm(_) => {}
            Action::Sync(ticket) => {
                let before = self.sync.replace((ticket, self.units.place()));
                if before.is_some() {
                    return Err("two syncs are in flight".into());
                }
            }
            Action::Erase => {
                if self.fails_once_in(10) {
                    self.tell(Event::NotErased("planned".into()));
                } else {
                    self.disk.erase();
                    self.units = Units::default();
                    self.commit(Unit::default());
                    self.sync.iter_mut().for_each(|(_, place)| *place = 0);
                    self.tell(Event::Erased);
                }
            }
            Action::Open { exchange, head, .. } => {
                if let Some(line) = self.line(exchange, Stage::Asked, "open")? {
                    line.stage = Stage::Open;
                    line.head(head.status, plain(&head.headers));
                }
            }
            Action::Give { to, bytes, .. } => {
                for exchange in to {
                    let Some(line) = self.line(exchange, Stage::Open, "give")? else { continue };
                    if line.is_full {
                        overfull.push(exchange);
                    }
                    line.give(bytes.clone());
                    let unread = line.unread();
                    if unread > S::BOUNDS.unread {
                        return Err(format!("{unread} bytes wait in #{}", exchange.get()));
                    }
                }
            }
            Action::Close(exchange) => {
                self.line(exchange, Stage::Open, "close")?.into_iter().for_each(|line| line.end(true));
            }
            Action::Break(exchange) => {
                self.line(exchange, Stage::Open, "break")?.into_iter().for_each(|line| line.end(false));
            }
            Action::Answer { exchange, answer, rests } => {
                if rests.is_some() {
                    return Err(format!("the answer of #{} leaves although it rests on something", exchange.get()));
                }
                if let Some(line) = self.line(exchange, Stage::Asked, "answer")? {
                    line.head(answer.status, plain(&answer.headers));
                    if !answer.body.is_empty() {
                        line.give(answer.body.into());
                    }
                    line.end(true);
                }
            }
            Action::Take { exchange, want } => {
                if let Some(line) = self.lines.get_mut(&exchange) {
                    line.wants(want);
                }
            }
            Action::Fetch { fetch, call } => {
                let script = self.subject.serve(&call, &mut self.rng);
                self.calls.begin(fetch, script)?;
                if self.calls.len() > S::BOUNDS.calls {
                    return Err(format!("{} calls at a time", self.calls.len()));
                }
            }
            Action::ReadOn(fetch) => self.calls.read_on(fetch),
            Action::Abort(fetch) => self.calls.abort(fetch),
            Action::Timer(at) => self.timer = Some(at),
            Action::Log(..) => {}
        }
        Ok(())
    }

    /// The response that this deed is for; `None` when its client has left.
    fn line(&mut self, exchange: Exchange, stage: Stage, deed: &str) -> Result<Option<&mut Line>, Violation> {
        match self.lines.get_mut(&exchange) {
            Some(line) if line.stage == stage => Ok(Some(line)),
            Some(line) => Err(format!("{deed} #{}, which is {:?}", exchange.get(), line.stage)),
            None if self.left.contains(&exchange) => Ok(None),
            None => Err(format!("{deed} #{}, which is nobody's", exchange.get())),
        }
    }

    /// The machine dies. What is durable survives, and of the rest as much as it happens.
    pub(crate) fn crash(&mut self) -> bool {
        self.tally.crashes += 1;
        let outcomes = self.units.outcomes();
        let outcome = self.rng.below(outcomes);
        let survivor = self.units.crash(outcome);
        self.trace.note(self.now, || format!("CRASH: {} of {outcomes} units survive", outcome + 1));
        self.disk.plan(None);
        self.disk.crash(survivor.written);
        self.engine = self.subject.engine();
        self.cycle = Cycle::default();
        (self.sync, self.timer, self.has_rung) = (None, None, false);
        self.leaving.clear();
        self.calls.object_died();
        let Self { lines, rng, .. } = self;
        lines.retain(|_, line| line.is_heard);
        lines.values_mut().for_each(|line| line.object_died(rng));
        true
    }

    /// The `sync` in flight comes to its end; `false` when there is none.
    pub(crate) fn sync_ends(&mut self, fails: bool) -> bool {
        let Some((ticket, place)) = self.sync.take() else { return false };
        if fails {
            self.tally.unconfirmed += 1;
            self.tell(Event::NotDurable("planned".into()));
        } else {
            self.units.confirm(place);
            self.tell(Event::Durable(ticket));
        }
        true
    }

    /// A client has its turn. `false` when it did nothing.
    pub(crate) fn client_acts(&mut self, place: usize) -> bool {
        let orders = self.with_client(place, |client, desk| client.acts(desk));
        let acted = orders.as_ref().is_some_and(|(_, orders)| !orders.is_empty());
        orders.into_iter().for_each(|(_, orders)| self.obey(place, orders));
        acted
    }

    /// A client gets what comes next of this response.
    pub(crate) fn deliver(&mut self, exchange: Exchange) -> Verdict {
        let Self { lines, rng, .. } = self;
        let Some(line) = lines.get_mut(&exchange) else { return Ok(()) };
        let Some(news) = line.deliver(rng) else { return Ok(()) };
        let place = line.client;
        if line.has_room() {
            self.tell(Event::Room(exchange));
        }
        if matches!(news, News::End | News::Broke) {
            self.hang_up(exchange);
        }
        self.client_hears(place, exchange, news)
    }

    /// The connection breaks between client and object.
    pub(crate) fn cut(&mut self, exchange: Exchange) -> Verdict {
        let Some(line) = self.lines.get_mut(&exchange) else { return Ok(()) };
        let place = line.client;
        if self.rng.one_in(2)
            && let Some(news) = line.body_breaks()
        {
            self.tell(Event::Body { exchange, news });
        }
        self.hang_up(exchange);
        self.client_hears(place, exchange, News::Broke)
    }

    /// The engine gets what comes next of this request's body.
    pub(crate) fn upload(&mut self, exchange: Exchange, breaks: bool) -> bool {
        let Self { lines, rng, .. } = self;
        let Some(line) = lines.get_mut(&exchange) else { return false };
        let news: Option<BodyNews> = if breaks { line.body_breaks() } else { line.body(rng) };
        let came = news.is_some();
        news.into_iter().for_each(|news| self.tell(Event::Body { exchange, news }));
        came
    }

    /// A client that left, and that the engine has not heard of so far, is told.
    pub(crate) fn tell_left(&mut self, place: usize) {
        let (_, exchange) = self.leaving.swap_remove(place);
        self.lines.remove(&exchange);
        self.says_left(exchange);
    }

    fn says_left(&mut self, exchange: Exchange) {
        self.left.insert(exchange);
        self.tell(Event::Left(exchange));
    }

    fn client_hears(&mut self, place: usize, exchange: Exchange, news: News) -> Verdict {
        self.trace.note(self.now, || format!("  client {place} sees of #{}: {}", exchange.get(), trace::news(&news)));
        match self.with_client(place, |client, desk| client.hears(exchange, news, desk)) {
            Some((verdict, orders)) => {
                self.obey(place, orders);
                verdict.map_err(|violation| format!("client {place}: {violation}"))
            }
            None => Ok(()),
        }
    }

    fn with_client<T>(
        &mut self,
        place: usize,
        deed: impl FnOnce(&mut dyn Client<S>, &mut Desk<'_, S>) -> T,
    ) -> Option<(T, Vec<Order<S::Call>>)> {
        let mut client = self.clients.get_mut(place)?.take()?;
        let Self { rng, witness, next, now, is_calm, .. } = self;
        let mut desk = Desk { rng, now: *now, is_calm: *is_calm, witness, orders: Vec::new(), next };
        let done = deed(client.as_mut(), &mut desk);
        let orders = desk.orders;
        self.clients[place] = Some(client);
        Some((done, orders))
    }

    fn obey(&mut self, place: usize, orders: Vec<Order<S::Call>>) {
        for order in orders {
            match order {
                Order::Ask(exchange, ask, body) => {
                    self.lines.insert(exchange, Line::new(place, body, &mut self.rng));
                    self.tell(Event::Asked { exchange, ask });
                }
                Order::Send(exchange, bytes) => {
                    self.lines.get_mut(&exchange).into_iter().for_each(|line| line.send(&bytes));
                }
                Order::Finish(exchange) => self.lines.get_mut(&exchange).into_iter().for_each(Line::finish),
                Order::Leave(exchange) => {
                    self.trace.note(self.now, || format!("  client {place} leaves #{}", exchange.get()));
                    self.hang_up(exchange);
                }
            }
        }
    }

    /// The client listens no more. If the object is not through with it, it hears of it at once, or later.
    fn hang_up(&mut self, exchange: Exchange) {
        let Some(line) = self.lines.get_mut(&exchange) else { return };
        line.hang_up();
        if line.stage == Stage::Over {
            self.lines.remove(&exchange);
            // Some drivers tell it of every request.
            if self.rng.one_in(4) {
                self.says_left(exchange);
            }
        } else {
            let delay = if self.rng.one_in(2) { 0 } else { self.rng.below(400) as u64 };
            self.leaving.push((UnixMillis::new(self.now.get() + delay), exchange));
        }
    }
}

/// Headers as a client sees them.
fn plain(headers: &AnswerHeaders) -> Headers {
    Headers::new(headers.iter().map(|(name, value)| ((*name).to_owned(), value.to_string())).collect())
}

//! The session's engine: its image in memory, what of it is durable, and the alarm, which follows from the state.
//!
//! A failed or unknown write throws the image away. It is read from its rows again by whoever needs it next, and nothing of it is published
//! until it is known to be durable.

use std::rc::Rc;

use super::admissions::Admissions;
use super::call::SessionCall;
use super::deployment::Deployment;
use super::drain::Drain;
use super::readers::Readers;
use super::refuse::Refusal;
use super::response::{Ending, Opening};
use super::turn::{Rows, SessionTurn};
use crate::core::command::Effects;
use crate::core::counters::{Counters, add};
use crate::core::digest;
use crate::core::engine::Engine;
use crate::core::engine::action::{Action, Level, Rests};
use crate::core::engine::answer::Answer;
use crate::core::engine::event::{Ask, Event};
use crate::core::engine::ids::Exchange;
use crate::core::log::Ticket;
use crate::core::session::{Session, keep_alive};
use crate::core::storage::{RunRow, StorageError};
use crate::core::time::{Millis, UnixMillis};
use crate::dialect::route::Call;

/// Pause before storage that did not confirm is asked again.
const SYNC_RETRY: Millis = Millis::new(1_000);

/// What has happened to the image since somebody looked last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// Storage has confirmed a ticket.
    pub durable: bool,
    /// Storage could not confirm.
    pub undurable: bool,
    /// The image was thrown away.
    pub thrown: bool,
    /// The highest ticket that is durable.
    pub through: Option<Ticket>,
}

/// One session.
pub struct SessionEngine {
    name: String,
    deployment: Rc<Deployment>,
    log_name: String,
    image: Option<Session>,
    /// What is known of the run that a producer outside writes.
    admissions: Admissions,
    /// The first ticket that no image has handed out.
    tickets: Ticket,
    /// The newest ticket that was written under.
    newest: Option<Ticket>,
    /// What has been written, and storage was not asked to confirm yet.
    written: Option<Ticket>,
    /// Rows that a reload has found are published only once this ticket is durable.
    held: Option<Held>,
    /// When the alarm that is set will ring, as far as this engine knows.
    armed: Option<UnixMillis>,
    /// Whether the rows may ask for another alarm than the one that is set.
    changed: bool,
    /// Alarms that were set: storage bills a row for each.
    alarms: u64,
    /// When the timer that is set will fire, as far as this engine knows.
    timer: Option<UnixMillis>,
    passed: Passed,
    /// Open responses.
    pub readers: Readers,
    /// Whether a producer lives in this object.
    pub producing: bool,
    /// Whether a call beside the engine is in the middle of something: all that it writes is confirmed together, in the turn that follows.
    pub unfinished: bool,
    /// What this object has done since it was loaded.
    pub counters: Counters,
}

/// A ticket that must be durable before anything is published, and from when on storage may be asked for it.
#[derive(Clone, Copy, Debug)]
struct Held {
    ticket: Ticket,
    from: UnixMillis,
    asked: bool,
}

impl SessionEngine {
    /// The session of this id, of which nothing is known yet.
    pub fn new(deployment: Rc<Deployment>, name: String) -> Self {
        let log_name = if deployment.settings.log_session_ids { name.clone() } else { digest::short(&name) };
        let readers = Readers::new(Rc::clone(&deployment), log_name.clone());
        Self {
            name,
            deployment,
            log_name,
            image: None,
            admissions: Admissions::default(),
            tickets: Ticket::FIRST,
            newest: None,
            written: None,
            held: None,
            armed: None,
            changed: false,
            alarms: 0,
            timer: None,
            passed: Passed::default(),
            readers,
            producing: false,
            unfinished: false,
            counters: Counters::default(),
        }
    }

    /// The session's id.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How log lines name it.
    pub fn log_name(&self) -> &str {
        &self.log_name
    }

    /// What the deployment says.
    pub fn deployment(&self) -> &Rc<Deployment> {
        &self.deployment
    }

    /// The counters, with the rows that the storage bills.
    pub fn counted(&self, storage: &Rows) -> Counters {
        Counters { rows_written: storage.rows_written().saturating_add(self.alarms), ..self.counters }
    }

    /// The session, read from its rows if need be.
    ///
    /// # Errors
    /// [`StorageError`]: the rows could not be read.
    pub fn session(&mut self, now: UnixMillis, storage: &Rows) -> Result<&mut Session, StorageError> {
        if self.image.is_none() {
            self.image = Some(self.load(now, storage)?);
        }
        self.loaded().ok_or(StorageError::Short("the session was not read"))
    }

    /// The session, if it was read, and what is known of the run that a producer outside writes.
    pub fn admissions(&mut self) -> Option<(&Session, &mut Admissions)> {
        Some((self.image.as_ref()?, &mut self.admissions))
    }

    /// The session, if it was read.
    pub fn loaded(&mut self) -> Option<&mut Session> {
        self.image.as_mut()
    }

    // Apart from its callers, of which the bundle would otherwise hold one copy each.
    #[inline(never)]
    fn load(&self, now: UnixMillis, storage: &Rows) -> Result<Session, StorageError> {
        storage.forget();
        let stored = storage.load()?;
        let policy = self.deployment.settings.policy();
        let mut session = Session::load(stored, policy, self.producing, self.tickets);
        // Renewals are in memory only, so the rows know an old lease of a producer that is alive in this object, or outside.
        let lives = |run: &RunRow| self.producing || run.push.is_some();
        if let Some(run) = session.run().filter(|run| lives(run)) {
            let fence = run.fence();
            session.renew(now, &fence);
        }
        Ok(session)
    }

    /// Writes what a command has decided. It is published once it is durable.
    ///
    /// # Errors
    /// [`StorageError`]: the image was thrown away.
    pub fn persist(&mut self, effects: &Effects, turn: &mut SessionTurn<'_>) -> Result<(), StorageError> {
        self.changed = true;
        if let Err(error) = turn.storage.apply(&effects.writes) {
            self.log(format!("{error}"), turn);
            self.discard();
            return Err(error);
        }
        add(&mut self.counters.flushes, 1);
        add(&mut self.counters.appended, effects.chunks);
        self.newest = Some(effects.ticket);
        self.written = self.newest;
        Ok(())
    }

    /// Whether nothing may be published yet.
    pub fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// The ticket that confirms everything written so far; `None` when it is durable.
    pub fn unconfirmed(&self) -> Option<Ticket> {
        let pending = self.image.as_ref().is_some_and(Session::is_unconfirmed);
        self.held.map(|held| held.ticket).max(self.newest.filter(|_| pending))
    }

    /// What has happened to the image since this was asked last.
    pub fn take_passed(&mut self) -> Passed {
        std::mem::take(&mut self.passed)
    }

    /// Asks for the alarm at this moment, unless it rings then or earlier.
    pub fn arm(&mut self, at: UnixMillis, turn: &mut SessionTurn<'_>) {
        if self.armed.is_none_or(|armed| at < armed) {
            self.armed = Some(at);
            add(&mut self.alarms, 1);
            turn.act(Action::Arm(at));
        }
    }

    /// No alarm is set.
    pub fn disarmed(&mut self) {
        self.armed = None;
    }

    /// The alarm for whatever comes next is part of the turn in which the rows change.
    fn arm_next(&mut self, turn: &mut SessionTurn<'_>) {
        if !std::mem::take(&mut self.changed) {
            return;
        }
        let next = match &self.image {
            Some(session) => Ok(session.alarm(turn.now)),
            // Only looked at: who loads the image for good knows by then whether its producer has survived.
            None => self.load(turn.now, turn.storage).map(|session| session.alarm(turn.now)),
        };
        let next = match next {
            Ok(next) => next,
            // Nobody mends it meanwhile: whoever asks next finds it so.
            Err(error) if error.is_lasting() => None,
            Err(_) => Some(turn.now.after(keep_alive(self.deployment.settings.lease))),
        };
        if let Some(at) = next {
            self.arm(at, turn);
        }
    }

    /// Asks storage to confirm what is not known to be durable.
    fn sync(&mut self, turn: &mut SessionTurn<'_>) {
        if let Some(held) = self.held.as_mut().filter(|held| !held.asked) {
            // One that lies further ahead was set before the clock was set back.
            held.from = held.from.min(turn.now.after(SYNC_RETRY));
            if turn.now >= held.from {
                held.asked = true;
                turn.act(Action::Sync(held.ticket));
            }
        }
        if let Some(ticket) = self.written.take() {
            turn.act(Action::Sync(ticket));
        }
    }

    /// Opens the response of a reader.
    ///
    /// # Errors
    /// [`StorageError`]: the session could not be read.
    pub fn open_reader(
        &mut self,
        exchange: Exchange,
        opening: Opening,
        turn: &mut SessionTurn<'_>,
    ) -> Result<(), StorageError> {
        self.session(turn.now, turn.storage)?;
        let session = self.image.as_ref().ok_or(StorageError::Short("the session was not read"))?;
        self.readers.open(exchange, opening, session.view(), &mut self.counters, turn);
        Ok(())
    }

    /// Gives open responses what they have room for, and looks after them when it is time.
    fn serve_readers(&mut self, turn: &mut SessionTurn<'_>) {
        self.readers.mend(&mut self.counters, turn);
        let due = self.readers.is_due(turn.now);
        if due {
            self.readers.end_waits(turn.now);
        }
        if !self.is_held() {
            self.drain(turn);
        }
        self.readers.send_heads(turn);
        if due {
            if let Some(session) = &self.image {
                self.readers.end_overdue(session.view(), &mut self.counters, turn);
            }
            self.readers.beat(turn);
        }
        self.readers.look_again(turn.now);
    }

    fn drain(&mut self, turn: &mut SessionTurn<'_>) {
        let asking = self.readers.take_asking();
        if asking.is_empty() {
            return;
        }
        if self.session(turn.now, turn.storage).is_err() {
            // Whoever reads the session next tells what is wrong with it.
            return self.readers.ask_again(asking);
        }
        if let Some(session) = &self.image {
            Drain { readers: &mut self.readers, session, counters: &mut self.counters, turn }.serve(asking);
        }
    }

    /// Sets the one timer for whatever comes next by time alone.
    fn set_timer(&mut self, turn: &mut SessionTurn<'_>) {
        let asks_again = self.held.filter(|held| !held.asked && held.from > turn.now).map(|held| held.from);
        let Some(next) = [asks_again, self.readers.next_moment()].into_iter().flatten().min() else { return };
        if self.timer.is_none_or(|timer| next < timer) {
            self.timer = Some(next);
            turn.act(Action::Timer(next));
        }
    }

    fn durable(&mut self, ticket: Ticket) {
        if self.held.is_some_and(|held| held.ticket <= ticket) {
            self.held = None;
        }
        if let Some(session) = self.image.as_mut() {
            session.confirmed(ticket);
        }
        self.readers.everyone_asks();
        self.passed.durable = true;
        self.passed.through = self.passed.through.max(Some(ticket));
    }

    fn asked(&mut self, exchange: Exchange, ask: &Ask<SessionCall>, turn: &mut SessionTurn<'_>) {
        let Ask { call, caller, .. } = ask;
        let answered = match call.call {
            Call::ChatSnapshot => self.snapshot(caller, call, false, turn).map(Some),
            Call::WireSnapshot => self.snapshot(caller, call, true, turn).map(Some),
            Call::Info => self.info(caller, turn).map(Some),
            Call::Chunks => self.chunks(caller, call, turn).map(Some),
            Call::Sse => self.sse(exchange, ask, turn),
            // The calls that stand beside the engine never ask it.
            _ => Err(Refusal::Failed("no call of the engine".to_owned())),
        };
        let answer = match answered {
            Ok(Some(answer)) => answer,
            Ok(None) => return,
            Err(refusal) => self.refused(&refusal, turn),
        };
        match self.unconfirmed() {
            Some(ticket) => {
                let otherwise = Refusal::Unread(StorageError::Failed("the writes were not confirmed".to_owned()));
                let otherwise = otherwise.answer(&self.name);
                turn.answer_resting(exchange, answer, Rests { ticket, otherwise });
            }
            None => turn.answer(exchange, answer),
        }
    }

    /// The answer to a call that is refused; what is the service's own fault is logged.
    fn refused(&self, refusal: &Refusal, turn: &mut SessionTurn<'_>) -> Answer {
        if let Some(error) = refusal.fault() {
            self.log(error, turn);
        }
        refusal.answer(&self.name)
    }

    /// Throws the image away, in a turn that is heard.
    fn discard(&mut self) {
        self.hold(UnixMillis::default());
        self.image = None;
        self.admissions.forget();
        self.written = None;
        self.changed = true;
        self.passed.thrown = true;
    }

    fn hold(&mut self, from: UnixMillis) {
        let ticket = self.image.as_ref().map_or(self.tickets, Session::next_ticket);
        self.tickets = ticket.next();
        self.held = Some(Held { ticket, from, asked: false });
    }

    fn log(&self, words: String, turn: &mut SessionTurn<'_>) {
        turn.act(Action::Log(Level::Wrong, format!("session {}: {words}", self.log_name).into()));
    }
}

impl Engine for SessionEngine {
    type Call = SessionCall;
    type Storage = Rows;

    fn handle(&mut self, event: Event<Self::Call>, turn: &mut SessionTurn<'_>) {
        match event {
            Event::Asked { exchange, ask } => self.asked(exchange, &ask, turn),
            Event::Durable(ticket) => self.durable(ticket),
            Event::NotDurable(words) => {
                self.log(words, turn);
                self.passed.undurable = true;
                self.readers.evict_all(&mut self.counters, turn);
                self.discard();
                if let Some(held) = &mut self.held {
                    held.from = turn.now.after(SYNC_RETRY);
                }
            }
            Event::Rang => self.disarmed(),
            Event::NotArmed(words) => {
                self.disarmed();
                self.log(format!("the alarm was not set: {words}"), turn);
            }
            Event::Left(exchange) => drop(self.readers.forget(exchange, Ending::Gone, &mut self.counters, turn)),
            Event::Full(exchanges) => exchanges.into_iter().for_each(|exchange| self.readers.is_full(exchange)),
            Event::Room(exchange) => self.readers.has_room(exchange),
            Event::Timer => {
                self.timer = None;
                self.readers.go_on();
            }
            _ => {}
        }
        self.readers.are_heard();
    }

    fn turn_over(&mut self, turn: &mut SessionTurn<'_>) {
        self.arm_next(turn);
        self.serve_readers(turn);
        if !self.unfinished {
            self.sync(turn);
        }
        self.set_timer(turn);
        self.readers.are_heard();
    }

    fn throw_away(&mut self) {
        self.discard();
        (self.armed, self.timer) = (None, None);
        self.readers.tear();
    }
}

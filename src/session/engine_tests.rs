//! The engine over the storage double: what is published when, and which alarm is asked for.

use std::rc::Rc;

use super::call::SessionCall;
use super::deployment::Deployment;
use super::engine::{Rows, SessionEngine};
use crate::core::caller::Caller;
use crate::core::chunk::Chunk;
use crate::core::command::{Effects, Entry, Input, Start};
use crate::core::config::Settings;
use crate::core::engine::action::Action;
use crate::core::engine::cycle::{Cycle, Surroundings};
use crate::core::engine::entropy::Entropy;
use crate::core::engine::event::Event;
use crate::core::ids::{Cursor, MessageId, RunId};
use crate::core::log::Ticket;
use crate::core::record::Record;
use crate::core::run::Vocabulary;
use crate::core::storage::StorageError;
use crate::core::storage::double::{Double, Fault};
use crate::core::time::{Millis, UnixMillis};
use crate::dialect::ui::vocabulary::Floor;
use crate::model::agent::Agents;

const NOW: UnixMillis = UnixMillis::new(1_000_000);

struct Words(u64);

impl Entropy for Words {
    fn word(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }
}

struct Object {
    engine: SessionEngine,
    cycle: Cycle<SessionCall>,
    storage: Double,
    now: UnixMillis,
}

impl Object {
    fn new() -> Self {
        let settings = Settings::read(|_| None).unwrap();
        let agents = Agents::parse(r#"{"default":{"producer":"demo"}}"#).unwrap();
        let deployment = Rc::new(Deployment { settings, agents, floor: Floor::default() });
        let engine = SessionEngine::new(deployment, "s".into());
        Self { engine, cycle: Cycle::default(), storage: Double::new(), now: NOW }
    }

    fn turn<T>(
        &mut self,
        deed: impl FnOnce(&mut SessionEngine, &mut super::engine::SessionTurn<'_>) -> T,
    ) -> (T, Vec<Action>) {
        let surroundings = Surroundings { now: self.now, storage: &self.storage as &Rows, entropy: &mut Words(0) };
        let (mut done, mut deed) = (None, Some(deed));
        let actions = self.cycle.turn_with(&mut self.engine, surroundings, &mut |engine, turn| {
            done = deed.take().map(|deed| deed(engine, turn));
        });
        (done.unwrap(), actions)
    }

    fn tell(&mut self, event: Event<SessionCall>) -> Vec<Action> {
        self.cycle.tell(event);
        self.turn(|_, _| ()).1
    }

    /// Starts a run.
    fn start(&mut self) -> (Result<(), StorageError>, Vec<Action>) {
        let now = self.now;
        self.turn(|engine, turn| {
            let effects = begun(engine, now, turn.storage);
            engine.persist(&effects, turn)
        })
    }

    fn published(&mut self) -> Cursor {
        self.engine.session(self.now, &self.storage).unwrap().view().durable()
    }
}

/// What the start of a first run comes to.
fn begun(engine: &mut SessionEngine, now: UnixMillis, storage: &Rows) -> Effects {
    let session = engine.session(now, storage).unwrap();
    let input = Input { id: MessageId::new("u"), json: r#"{"id":"u"}"#.into() };
    let first = Record::Chunk { chunk: Chunk::new("data-first"), attempt: None };
    let start = Start {
        now,
        caller: &Caller::Anonymous,
        run: RunId::new("r"),
        salt: "salt",
        agent: "default",
        vocabulary: Vocabulary::Ui,
        lease: Millis::new(30_000),
        key: None,
        entry: Entry::Send { input, abandoned: None },
        push: None,
        state: None,
    };
    let plan = session.plan(start).unwrap();
    session.start(plan, &[first]).unwrap().effects
}

fn synced(actions: &[Action]) -> Option<Ticket> {
    actions.iter().find_map(|action| if let Action::Sync(ticket) = action { Some(*ticket) } else { None })
}

fn armed(actions: &[Action]) -> Option<UnixMillis> {
    actions.iter().find_map(|action| if let Action::Arm(at) = action { Some(*at) } else { None })
}

fn timed(actions: &[Action]) -> Option<UnixMillis> {
    actions.iter().find_map(|action| if let Action::Timer(at) = action { Some(*at) } else { None })
}

#[test]
fn a_write_is_published_once_its_ticket_is_durable_and_arms_in_its_own_turn() {
    let mut object = Object::new();
    let (written, actions) = object.start();
    assert_eq!((written, armed(&actions)), (Ok(()), Some(NOW.after(Millis::new(30_000)))));
    let ticket = synced(&actions).unwrap();
    assert_eq!(object.published(), Cursor::START);
    assert_eq!(object.engine.unconfirmed(), Some(ticket));
    object.storage.sync();
    assert_eq!(object.tell(Event::Durable(ticket)), []);
    assert_eq!((object.published(), object.engine.unconfirmed()), (Cursor::new(1).unwrap(), None));
    assert!(object.engine.take_passed().durable);
}

#[test]
fn a_write_that_landed_although_it_failed_is_armed_for_and_waits_for_its_confirmation() {
    let mut object = Object::new();
    object.storage.fail_next(Fault::After);
    let (written, actions) = object.start();
    assert!(written.is_err());
    assert!(armed(&actions).is_some(), "the reload finds a running run");
    let ticket = synced(&actions).unwrap();
    assert!(object.engine.is_held() && object.engine.take_passed().thrown);
    object.storage.sync();
    object.tell(Event::Durable(ticket));
    assert!(!object.engine.is_held());
    assert_eq!(object.published(), Cursor::new(1).unwrap());
}

#[test]
fn a_write_that_failed_for_good_asks_for_no_alarm() {
    let mut object = Object::new();
    object.storage.fail_next(Fault::Before);
    let (written, actions) = object.start();
    assert_eq!((written.is_err(), armed(&actions)), (true, None));
}

#[test]
fn a_confirmation_of_an_older_image_confirms_nothing() {
    let mut object = Object::new();
    let stale = synced(&object.start().1).unwrap();
    let ((), actions) = object.turn(|engine, _| crate::core::engine::Engine::throw_away(engine));
    assert_eq!(synced(&actions), None, "one sync is in flight");
    let held = synced(&object.tell(Event::Durable(stale))).unwrap();
    assert!(object.engine.is_held(), "what the reload has found may be younger than that");
    object.tell(Event::Durable(held));
    assert!(!object.engine.is_held());
}

#[test]
fn storage_that_does_not_confirm_is_asked_again_after_a_pause() {
    let mut object = Object::new();
    let _ = object.start();
    let actions = object.tell(Event::NotDurable("lost".into()));
    let passed = object.engine.take_passed();
    assert!(passed.undurable && passed.thrown && object.engine.is_held());
    let again = timed(&actions).unwrap();
    assert_eq!((synced(&actions), again), (None, NOW.after(Millis::new(1_000))));
    object.now = again;
    let ticket = synced(&object.tell(Event::Timer)).unwrap();
    object.tell(Event::Durable(ticket));
    assert!(!object.engine.is_held());
}

#[test]
fn an_alarm_is_set_again_only_for_an_earlier_moment() {
    let mut object = Object::new();
    let _ = object.start();
    let at = |ms| NOW.after(Millis::new(ms));
    assert_eq!(armed(&object.turn(|engine, turn| engine.arm(at(40_000), turn)).1), None);
    assert_eq!(armed(&object.turn(|engine, turn| engine.arm(at(10_000), turn)).1), Some(at(10_000)));
    object.tell(Event::Rang);
    assert_eq!(armed(&object.turn(|engine, turn| engine.arm(at(40_000), turn)).1), Some(at(40_000)));
    object.tell(Event::NotArmed("no".into()));
    assert_eq!(armed(&object.turn(|engine, turn| engine.arm(at(50_000), turn)).1), Some(at(50_000)));
    assert_eq!(object.engine.counted(&object.storage).rows_written, 4, "each alarm is billed");
}

#[test]
fn what_one_call_writes_is_confirmed_together() {
    let mut object = Object::new();
    object.engine.unfinished = true;
    let (_, actions) = object.start();
    assert!(armed(&actions).is_some(), "the alarm belongs to the write");
    assert_eq!(synced(&actions), None);
    let fence = object.engine.session(NOW, &object.storage).unwrap().run().unwrap().fence();
    object.turn(|engine, turn| {
        let effects = engine.session(turn.now, turn.storage).unwrap().begin_attempt(&fence).unwrap();
        engine.persist(&effects, turn).unwrap();
    });
    object.engine.unfinished = false;
    let ticket = synced(&object.turn(|_, _| ()).1).unwrap();
    assert_eq!(object.engine.unconfirmed(), Some(ticket));
    object.tell(Event::Durable(ticket));
    assert_eq!(object.engine.unconfirmed(), None);
}

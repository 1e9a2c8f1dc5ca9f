//! The engine over the storage double: what is published when, and which alarm is asked for.

use super::testing::{NOW, Object, armed, synced, timed};
use crate::core::engine::event::Event;
use crate::core::ids::Cursor;
use crate::core::storage::double::Fault;
use crate::core::time::Millis;

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

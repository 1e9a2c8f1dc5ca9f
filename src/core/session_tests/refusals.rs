//! A refused command leaves the session as it was, bit for bit.

use std::collections::BTreeSet;

use super::examples::{LEASE, NOW, POLICY, at, chunk};
use super::numbers::pushed;
use crate::core::call_ids::CallName;
use crate::core::command::WriteRefused;
use crate::core::error::Code;
use crate::core::ids::{MessageId, RunId, Sequence};
use crate::core::log::Ticket;
use crate::core::record::{Commit, Record};
use crate::core::retention::{Kept, Policy};
use crate::core::run::{Fence, Outcome};
use crate::core::session::Session;
use crate::core::session::push::PushCommit;
use crate::core::storage::double::Double;
use crate::core::storage::{BlockRow, MessageRow, Storage, Stored};

/// Everything that records can be.
fn records() -> Vec<Record> {
    let message = MessageRow {
        index: 0,
        id: MessageId::new("u0"),
        role: "user".into(),
        run: Some(RunId::new("r1")),
        json: "\"amended\"".into(),
    };
    vec![
        Record::Call(CallName { id: "c".into(), own: None }),
        chunk("0"),
        Record::Amend(message),
        Record::Commit(Commit { message: "said".into(), step_count: 1, state: Some("{\"a\":1}".into()) }),
        chunk("1"),
    ]
}

/// An end that has the number behind all that the producer has said, and `off` more.
fn end(session: &mut Session, fence: &Fence, outcome: Outcome, off: u64) -> Option<WriteRefused> {
    let number = session.expected(fence).unwrap_or(0) + 2 + off;
    session.finish_pushed(NOW, fence, outcome, &records(), (number, Some("{\"output\":1}".into()))).err()
}

fn commit(session: &mut Session, fence: &Fence, through: u64) -> Option<WriteRefused> {
    let messages = vec![("msg_salt_1_2".to_owned(), "assistant".to_owned(), "\"a\"".to_owned())];
    let calls = vec![CallName { id: "c".into(), own: None }];
    let commit = PushCommit { through: at(through), messages, state: Some("[]".into()), step_count: 9, calls };
    session.commit(NOW, fence, commit).err()
}

type Command = fn(&mut Session, &Fence) -> Option<WriteRefused>;

const FAILED: Outcome = Outcome::Failed(Code::ProducerFailed);

const COMMANDS: [(&str, Command); 16] = [
    ("append", |session, fence| session.append(fence, &records()).err()),
    ("finish", |session, fence| session.finish(NOW, fence, Outcome::Completed, &records()).err()),
    ("suspend", |session, fence| session.finish(NOW, fence, Outcome::Suspended, &records()).err()),
    ("stop", |session, fence| session.finish(NOW, fence, Outcome::Interrupted, &records()).err()),
    ("end", |session, fence| end(session, fence, Outcome::Completed, 0)),
    ("fail", |session, fence| end(session, fence, FAILED, 0)),
    ("pause", |session, fence| end(session, fence, Outcome::Suspended, 0)),
    ("end too early", |session, fence| end(session, fence, Outcome::Completed, 1)),
    ("commit", |session, fence| commit(session, fence, 2)),
    ("commit beyond the head", |session, fence| commit(session, fence, 3)),
    ("lease", |session, fence| session.lease(NOW, fence, LEASE).err()),
    ("begin_attempt", |session, fence| session.begin_attempt(fence).err()),
    ("died", |session, fence| session.died(NOW, fence).err()),
    ("answer", |session, fence| session.answer(fence, &records()).err()),
    ("hold", |session, fence| session.hold(fence, vec!["{}".into()]).err()),
    ("answer_held", |session, fence| session.answer_held(fence, &records()).err()),
];

/// The commands of these that are refused, each with what it is refused for; the session is as before. The others are not looked at.
fn refused(load: impl Fn() -> Session, fence: &Fence) -> Vec<(&'static str, WriteRefused)> {
    let mut refused = Vec::new();
    for (name, command) in COMMANDS {
        let mut session = load();
        let before = format!("{session:?}");
        if let Some(refusal) = command(&mut session, fence) {
            assert_eq!(format!("{session:?}"), before, "{name}: {refusal:?}");
            refused.push((name, refusal));
        }
    }
    refused
}

/// The pushed run of the rows, whose session knows how large it is.
fn read(storage: &Double, policy: Policy) -> Session {
    let mut session = Session::load(storage.load().unwrap(), policy, true, Ticket::FIRST);
    session.retain(NOW, &storage.kept(session.log().floor()).unwrap(), 0);
    session
}

fn names(refused: &[(&'static str, WriteRefused)], is: impl Fn(&WriteRefused) -> bool) -> BTreeSet<&'static str> {
    refused.iter().filter(|(_, refusal)| is(refusal)).map(|(name, _)| *name).collect()
}

#[test]
fn who_does_not_hold_the_run_changes_nothing() {
    let (storage, _, fence) = pushed();
    let stale = Fence { epoch: 7, ..fence.clone() };
    let stranger = Fence { run: RunId::new("another"), ..fence };
    for (fence, refusal) in [(stale, WriteRefused::StaleEpoch(1)), (stranger, WriteRefused::Superseded)] {
        let told = refused(|| read(&storage, POLICY), &fence);
        assert_eq!((told.len(), names(&told, |told| *told == refusal).len()), (COMMANDS.len(), COMMANDS.len()));
    }
}

#[test]
fn what_has_ended_or_waits_is_not_changed() {
    for outcome in [Outcome::Completed, FAILED, Outcome::Interrupted, Outcome::Suspended] {
        let (storage, mut session, fence) = pushed();
        let effects = session.finish(NOW, &fence, outcome, &[]).unwrap();
        storage.apply(&effects.writes).unwrap();
        let told = refused(|| read(&storage, POLICY), &fence);
        let accepted = COMMANDS.len() - names(&told, |told| *told == WriteRefused::Ended).len();
        // One that waits can be stopped, and its calls be answered.
        assert_eq!(accepted, if outcome == Outcome::Suspended { 3 } else { 0 }, "{outcome:?}: {told:?}");
    }
}

#[test]
fn numbers_and_places_that_do_not_fit_change_nothing() {
    let (storage, _, fence) = pushed();
    let told = refused(|| read(&storage, POLICY), &fence);
    assert_eq!(names(&told, |told| *told == WriteRefused::Gap(0)), ["end too early"].into());
    assert_eq!(names(&told, |told| matches!(told, WriteRefused::Place(..))), ["commit beyond the head"].into());
    assert_eq!(names(&told, |told| *told == WriteRefused::Ended), ["answer", "answer_held"].into(), "it does not wait");
    // A number that is taken already.
    let mut session = read(&storage, POLICY);
    session.append(&fence, &[chunk("0")]).unwrap();
    let before = format!("{session:?}");
    let told = session.finish_pushed(NOW, &fence, Outcome::Completed, &records(), (0, None));
    assert_eq!((told, format!("{session:?}")), (Err(WriteRefused::Gap(1)), before));
}

#[test]
fn a_log_without_room_or_numbers_is_left_as_it_is() {
    let (storage, _, fence) = pushed();
    let bytes = storage.kept(at(0)).unwrap().bytes;
    let told = refused(|| read(&storage, Policy { max_bytes: bytes, ..POLICY }), &fence);
    let said = names(&told, |told| matches!(told, WriteRefused::NoRoom { .. }));
    assert_eq!(said, ["append", "finish", "suspend", "end", "pause"].into(), "a stop and a failure find room");
    let last = Sequence::new(Sequence::MAX - 1).unwrap();
    let full = || {
        let stored = storage.load().unwrap().unwrap();
        let last_block = stored.last_block.map(|(block, len)| (BlockRow { last, ..block }, len));
        let mut session = Session::load(Some(Stored { last_block, ..stored }), POLICY, true, Ticket::FIRST);
        session.retain(NOW, &Kept { bytes, runs: Vec::new() }, 0);
        session
    };
    let said = names(&refused(full, &fence), |told| matches!(told, WriteRefused::Full(_)));
    assert_eq!(said, ["append", "finish", "suspend", "stop", "end", "fail", "pause"].into());
}

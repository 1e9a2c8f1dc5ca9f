//! What a run goes through beside what it says: its object dies, and nobody follows it. Both counts outlive the object.

use super::examples::{LEASE, NOW, POLICY, me, send, started};
use crate::core::command::{Due, Start, StopTarget, WriteRefused};
use crate::core::ids::RunId;
use crate::core::log::Ticket;
use crate::core::retention::Policy;
use crate::core::run::{Fence, Outcome, Vocabulary};
use crate::core::session::Session;
use crate::core::storage::double::Double;
use crate::core::storage::{Storage, Write};
use crate::core::time::{Millis, UnixMillis};

const LIMIT: Millis = Millis::new(3_000);
const WATCHED: Policy = Policy { detached: Some(LIMIT), ..POLICY };

fn later(ms: u64) -> UnixMillis {
    NOW.after(Millis::new(ms))
}

/// An object that comes after one that died.
fn reborn(storage: &Double, policy: Policy) -> Session {
    storage.sync();
    Session::load(storage.load().unwrap(), policy, false, Ticket::FIRST)
}

fn run_of(policy: Policy) -> (Double, Session, Fence) {
    let (storage, mut session) = (Double::new(), Session::load(None, policy, false, Ticket::FIRST));
    let start = Start {
        now: NOW,
        caller: &me(),
        run: RunId::new("r1"),
        salt: "salt",
        agent: "default",
        vocabulary: Vocabulary::Ui,
        lease: LEASE,
        key: None,
        entry: send("u1"),
        push: None,
        state: None,
    };
    let plan = session.plan(start).unwrap();
    let begun = session.start(plan, &[]).unwrap();
    storage.apply(&begun.effects.writes).unwrap();
    (storage, session, begun.fence)
}

/// Somebody comes or leaves.
fn follow(storage: &Double, session: &mut Session, at: u64, somebody: bool) -> bool {
    let effects = session.followed(later(at), somebody);
    let changed = effects.is_some();
    if let Some(effects) = effects {
        assert!(matches!(&effects.writes[..], [Write::Run(_)]));
        storage.apply(&effects.writes).unwrap();
    }
    changed
}

#[test]
fn deaths_are_no_attempts_and_each_is_written_before_the_pause_behind_it() {
    let (storage, _, fence) = started();
    let (mut now, mut pauses) = (NOW, Vec::new());
    let last = loop {
        let mut session = reborn(&storage, POLICY);
        assert_eq!(session.due(now), Some(Due::Orphaned(fence.clone())));
        let Some((pause, effects)) = session.died(now, &fence).unwrap() else { break session };
        storage.apply(&effects.unwrap().writes).unwrap();
        session.adopt(now, &fence);
        pauses.push(pause.get());
        now = now.after(pause);
        storage.apply(&session.begin_attempt(&fence).unwrap().writes).unwrap();
    };
    assert_eq!(pauses, [0, 500, 1_000, 2_000, 4_000, 8_000, 15_000, 15_000, 15_000, 15_000]);
    let run = last.run().unwrap();
    assert_eq!(
        (run.life.deaths, run.attempts - run.life.deaths),
        (10, 1),
        "the model's own failures are counted apart"
    );
}

#[test]
fn an_object_that_dies_in_the_pause_has_cost_nothing() {
    let (storage, _, fence) = started();
    for (at, expected) in [(0, 0), (1_000, 500)] {
        let mut session = reborn(&storage, POLICY);
        let (pause, effects) = session.died(later(at), &fence).unwrap().unwrap();
        storage.apply(&effects.unwrap().writes).unwrap();
        assert_eq!(pause.get(), expected);
    }
    // However often, and whatever the clock shows.
    for (at, left) in [(1_200, 300), (1_300, 200), (0, 500), (9_000, 0)] {
        let mut session = reborn(&storage, POLICY);
        let (pause, effects) = session.died(later(at), &fence).unwrap().unwrap();
        assert_eq!((pause.get(), effects.is_none(), session.run().unwrap().life.deaths), (left, true, 2));
    }
    let mut session = reborn(&storage, POLICY);
    storage.apply(&session.begin_attempt(&fence).unwrap().writes).unwrap();
    let (pause, _) = reborn(&storage, POLICY).died(later(9_000), &fence).unwrap().unwrap();
    assert_eq!(pause.get(), 1_000, "the attempt began, so this is another death");
}

#[test]
fn only_a_running_run_dies() {
    let (storage, mut session, fence) = started();
    storage.apply(&session.finish(NOW, &fence, Outcome::Interrupted, &[]).unwrap().writes).unwrap();
    assert_eq!(reborn(&storage, POLICY).died(NOW, &fence).map(|_| ()), Err(WriteRefused::Ended));
}

#[test]
fn a_visit_begins_the_count_anew() {
    let (storage, mut session, _) = run_of(WATCHED);
    assert_eq!(session.detached_until(), Some(later(3_000)), "nobody follows yet");
    for (at, somebody, until) in
        [(0, true, None), (100, false, Some(3_100)), (2_100, true, None), (2_600, false, Some(5_600))]
    {
        assert!(follow(&storage, &mut session, at, somebody));
        assert!(!follow(&storage, &mut session, at + 50, somebody), "a second one changes nothing");
        assert_eq!(session.detached_until(), until.map(later));
        assert!(session.alarm(later(at)).is_some_and(|alarm| until.is_none_or(|until| alarm <= later(until))));
    }
}

#[test]
fn the_count_outlives_the_object_and_a_follower_who_was_there_when_it_died_is_not_held_against_the_run() {
    let (storage, mut session, _) = run_of(WATCHED);
    follow(&storage, &mut session, 0, true);
    follow(&storage, &mut session, 500, false);
    let mut session = reborn(&storage, WATCHED);
    assert!(!follow(&storage, &mut session, 2_000, false), "nothing has changed");
    assert_eq!(session.detached_until(), Some(later(3_500)));
    follow(&storage, &mut session, 2_500, true);
    // It died with the follower, who may need a moment to come back.
    let mut session = reborn(&storage, WATCHED);
    follow(&storage, &mut session, 60_000, false);
    assert_eq!(session.detached_until(), Some(later(63_000)));
}

#[test]
fn without_a_limit_nothing_is_counted_and_nothing_written() {
    let (storage, mut session, fence) = run_of(POLICY);
    for somebody in [true, false, true] {
        assert!(!follow(&storage, &mut session, 0, somebody));
    }
    assert_eq!((session.detached_until(), session.run().unwrap().life.unfollowed), (None, None));
    // A limit that was set with a later deployment counts from then on.
    let mut session = reborn(&storage, WATCHED);
    follow(&storage, &mut session, 9_000, false);
    assert_eq!(session.detached_until(), Some(later(12_000)));
    storage.apply(&session.finish(later(9_000), &fence, Outcome::Interrupted, &[]).unwrap().writes).unwrap();
    assert_eq!((session.detached_until(), session.stop_target(&me(), None)), (None, Ok(StopTarget::Idle)));
}

#[test]
fn a_watch_that_was_blind_gives_followers_their_time_again() {
    let (storage, mut session, _) = run_of(WATCHED);
    follow(&storage, &mut session, 0, true);
    follow(&storage, &mut session, 10, false);
    session.next_look(later(10));
    assert_eq!(session.look(later(60_000)), None, "frozen, or the clock was set");
    assert_eq!(session.detached_until(), Some(later(63_000)));
}

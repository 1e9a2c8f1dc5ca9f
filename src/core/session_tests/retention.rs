//! Literal examples of what is kept and what goes.

use super::examples::{LEASE, NOW, POLICY, at, chunk, me, reload, start, started};
use crate::core::command::{Effects, WriteRefused};
use crate::core::ids::Cursor;
use crate::core::log::Ticket;
use crate::core::retention::{Kept, KeptRun, Policy};
use crate::core::run::{Fence, Outcome, RunStatus};
use crate::core::session::Session;
use crate::core::storage::double::Double;
use crate::core::storage::native::Native;
use crate::core::storage::{Storage, Stored, Write};
use crate::core::time::{Millis, UnixMillis};

fn keep(storage: &dyn Storage, session: &mut Session, effects: Effects) -> u64 {
    let rows = storage.apply(&effects.writes).unwrap();
    session.confirmed(effects.ticket);
    rows
}

fn retain(storage: &dyn Storage, session: &mut Session, now: UnixMillis, wanted: u64) -> Option<Effects> {
    let kept = storage.kept(session.log().floor()).unwrap();
    session.retain(now, &kept, wanted)
}

/// Two finished runs, the chunks 1 to 3 and 4 to 6, the second of which ended a second later; a third that runs, 7 and 8.
fn three_runs(storage: &dyn Storage, policy: Policy) -> (Session, Fence) {
    let mut session = Session::load(None, policy, false, Ticket::FIRST);
    for (run, ended) in [("r1", NOW), ("r2", NOW.after(Millis::new(1_000)))] {
        let started = start(&mut session, run, &[chunk("a"), chunk("b")]).unwrap();
        keep(storage, &mut session, started.effects);
        let effects = session.finish(ended, &started.fence, Outcome::Completed, &[chunk("c")]).unwrap();
        keep(storage, &mut session, effects);
    }
    let started = start(&mut session, "r3", &[chunk("a"), chunk("b")]).unwrap();
    keep(storage, &mut session, started.effects);
    (session, started.fence)
}

#[test]
fn retention_cuts_finished_runs_and_no_live_one() {
    let storage = Native::open();
    let (mut session, fence) = three_runs(&storage, POLICY);
    let over = NOW.after(POLICY.retention);
    assert!(!session.retains(NOW) && session.retains(over));
    let effects = retain(&storage, &mut session, over, 0).unwrap();
    assert!(
        matches!(&effects.writes[..], [Write::Session(row), Write::TrimBlocks(to)] if row.floor == at(3) && *to == at(3))
    );
    assert_eq!(session.view().floor(), at(3), "at once: the chunks are gone");
    assert_eq!(keep(&storage, &mut session, effects), 2, "a row a block, and the session's");
    assert_eq!((session.alarm(over), session.retains(over)), (Some(over.after(Millis::new(1_000))), false));
    let effects = retain(&storage, &mut session, over.after(Millis::new(9_000)), 0).unwrap();
    keep(&storage, &mut session, effects);
    assert_eq!((session.log().floor(), session.log().head()), (at(6), at(8)));
    assert_eq!(retain(&storage, &mut session, UnixMillis::new(u64::MAX), u64::MAX), None, "a live run is never cut");
    assert_eq!(storage.blocks(Cursor::START, 9_999).unwrap().len(), 1);
    assert_eq!(storage.messages(3).unwrap().len(), 3, "messages stay");
    assert!(session.append(&fence, &[chunk("d")]).is_ok());
}

#[test]
fn rows_that_call_a_live_run_finished_are_not_believed() {
    let storage = Double::new();
    let (mut session, _) = three_runs(&storage, POLICY);
    let live = KeptRun { end: at(8), ended: NOW, bytes: 1 };
    let effects = session.retain(NOW.after(POLICY.retention), &Kept { bytes: 1, runs: vec![live] }, u64::MAX);
    assert_eq!((effects, session.log().floor()), (None, at(0)));
}

#[test]
fn the_alarm_is_armed_for_what_a_run_leaves_behind() {
    let (storage, mut session, fence) = started();
    let effects = session.finish(NOW, &fence, Outcome::Completed, &[]).unwrap();
    let retention = NOW.after(POLICY.retention);
    assert_eq!(session.alarm(NOW), Some(retention));
    keep(&storage, &mut session, effects);
    let mut session = Session::load(storage.load().unwrap(), POLICY, false, Ticket::FIRST);
    assert_eq!(session.alarm(NOW), Some(retention), "a load knows the last run");
    let effects = retain(&storage, &mut session, retention, 0).unwrap();
    keep(&storage, &mut session, effects);
    assert_eq!(session.alarm(retention), None);
    let cut = Session::load(storage.load().unwrap(), POLICY, false, Ticket::FIRST);
    assert_eq!((cut.alarm(retention), cut.log().head(), cut.log().floor()), (None, at(1), at(1)));
    assert!(!cut.retains(retention), "there is nothing to measure");
}

#[test]
fn a_run_after_everything_was_cut_goes_on_with_the_numbers() {
    let (storage, mut session, fence) = started();
    let effects = session.finish(NOW, &fence, Outcome::Completed, &[chunk("b")]).unwrap();
    keep(&storage, &mut session, effects);
    let effects = retain(&storage, &mut session, NOW.after(POLICY.retention), 0).unwrap();
    keep(&storage, &mut session, effects);
    for mut session in [session, reload(&storage)] {
        let next = start(&mut session, "r2", &[chunk("a")]).unwrap();
        assert_eq!(next.start, at(2));
        assert!(next.effects.writes.iter().any(|w| matches!(w, Write::OpenBlock(row) if row.key == 3 * 1024)));
        assert!(matches!(&next.effects.writes[..], [Write::Session(row), ..] if row.floor == at(2)));
    }
}

/// Three runs as above in a session that holds them and nothing more.
fn full() -> (Double, Session, Fence) {
    let whole = Double::new();
    three_runs(&whole, POLICY);
    let max_bytes = whole.kept(Cursor::START).unwrap().bytes;
    let storage = Double::new();
    let (session, fence) = three_runs(&storage, Policy { max_bytes, ..POLICY });
    (storage, session, fence)
}

#[test]
fn the_oldest_finished_run_makes_room() {
    let (storage, mut session, fence) = full();
    let Err(WriteRefused::NoRoom { wanted }) = session.append(&fence, &[chunk("d")]) else { panic!("it is full") };
    assert_eq!((session.log().head(), session.is_unconfirmed()), (at(8), false), "nothing has changed");
    let effects = retain(&storage, &mut session, NOW, wanted).unwrap();
    keep(&storage, &mut session, effects);
    assert_eq!(session.log().floor(), at(3));
    let effects = session.append(&fence, &[chunk("d")]).unwrap();
    keep(&storage, &mut session, effects);
    assert_eq!(session.log().size(), Some(storage.kept(Cursor::START).unwrap().bytes));
}

#[test]
fn a_run_that_is_too_large_by_itself_is_refused_until_it_ends() {
    let (storage, mut session, fence) = full();
    let large = [chunk(&"x".repeat(3_000))];
    let Err(WriteRefused::NoRoom { wanted }) = session.append(&fence, &large) else { panic!("it is full") };
    let effects = retain(&storage, &mut session, NOW, wanted).unwrap();
    keep(&storage, &mut session, effects);
    assert_eq!(session.log().floor(), at(6), "everything else went first");
    assert_eq!(session.append(&fence, &large), Err(WriteRefused::NoRoom { wanted }));
    assert_eq!(session.finish(NOW, &fence, Outcome::Completed, &large), Err(WriteRefused::NoRoom { wanted }));
    let code = crate::core::error::Code::StateSessionFull;
    assert!(session.finish(NOW, &fence, Outcome::Failed(code), &large).is_ok(), "a failure can always be written");
    let next = start(&mut session, "r4", &[chunk("a")]);
    assert!(next.is_ok(), "and so can the next start");
}

#[test]
fn a_loaded_session_measures_before_it_grows() {
    let (storage, _, fence) = full();
    let mut session = Session::load(storage.load().unwrap(), POLICY, true, Ticket::FIRST);
    let Err(WriteRefused::NoRoom { wanted }) = session.append(&fence, &[chunk("d")]) else { panic!("unmeasured") };
    assert!(session.retains(NOW));
    assert_eq!(retain(&storage, &mut session, NOW, wanted), None, "there is room");
    assert!(!session.retains(NOW) && session.append(&fence, &[chunk("d")]).is_ok());
    assert!(start(&mut Session::load(storage.load().unwrap(), POLICY, true, Ticket::FIRST), "r4", &[]).is_err());
}

#[test]
fn an_idle_session_expires_and_a_running_one_never() {
    let (ttl, hour) = (Millis::new(5_000), NOW.after(Millis::new(3_600_000)));
    let policy = Policy { ttl: Some(ttl), ..POLICY };
    let (storage, mut session, fence) = started();
    assert_eq!(Session::load(None, policy, false, Ticket::FIRST).alarm(NOW), None);
    let mut running = Session::load(storage.load().unwrap(), policy, true, Ticket::FIRST);
    assert!(!running.expired(hour) && running.expire(hour).is_none());
    let effects = session.finish(hour, &fence, Outcome::Completed, &[]).unwrap();
    storage.apply(&effects.writes).unwrap();
    let mut idle = Session::load(storage.load().unwrap(), policy, false, Ticket::FIRST);
    assert_eq!(idle.alarm(hour), Some(hour.after(ttl)));
    assert!(!idle.expired(hour.after(Millis::new(4_999))) && idle.expired(hour.after(ttl)));
    assert_eq!(idle.expire(hour), None);
    storage.apply(&idle.expire(hour.after(ttl)).unwrap()).unwrap();
    assert!(storage.counts().unwrap().is_empty());
}

#[test]
fn a_suspended_run_is_idle_from_its_pause_on() {
    let (storage, ..) = started();
    let stored = storage.load().unwrap().unwrap();
    let (paused, ttl) = (NOW.after(Millis::new(60_000)), Millis::new(5_000));
    let run = stored.run.map(|run| {
        let lease_until = paused.after(LEASE);
        crate::core::storage::RunRow { status: RunStatus::SuspendedClientTool, lease_until, ..run }
    });
    let session =
        Session::load(Some(Stored { run, ..stored }), Policy { ttl: Some(ttl), ..POLICY }, false, Ticket::FIRST);
    let expiry = paused.after(LEASE).after(ttl);
    assert_eq!(session.alarm(paused), Some(expiry));
    assert!(!session.expired(paused.after(ttl)) && session.expired(expiry));
    assert!(session.authorise(&me()).is_ok());
}

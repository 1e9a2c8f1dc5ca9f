//! Literal examples of commands: the full log, leases after a reload, what a start writes.

use super::examples::{LEASE, NOW, POLICY, at, chunk, commit, me, reload, row, start, started};
use crate::core::caller::Caller;
use crate::core::command::{Due, NotFound, StartRefused, StopTarget, WriteRefused};
use crate::core::error::Code;
use crate::core::ids::{RunId, Sequence, SequenceOutOfRange};
use crate::core::log::Ticket;
use crate::core::retention::{Kept, Policy};
use crate::core::run::StreamStatus;
use crate::core::run::{Fence, Outcome, RunStatus};
use crate::core::session::Session;
use crate::core::storage::{BlockRow, CheckpointKind, Storage, Stored, Write};
use crate::core::time::{Millis, UnixMillis};

#[test]
fn a_start_is_one_transaction_that_begins_with_the_session() {
    let mut session = Session::load(None, POLICY, false, Ticket::FIRST);
    let started = start(&mut session, "r1", &[chunk("run_started")]).unwrap();
    assert_eq!((started.message_id.as_str(), started.start), ("msg_salt_1_1", at(0)));
    let [
        Write::Session(row),
        Write::Run(run),
        Write::Message(input),
        Write::Checkpoint(entry),
        Write::OpenBlock(block),
    ] = &started.effects.writes[..]
    else {
        panic!("{:?}", started.effects.writes)
    };
    assert_eq!((row.owner.as_deref(), row.status), (Some("me"), StreamStatus::Active));
    assert_eq!((run.turn, run.status, run.lease_until), (1, RunStatus::Running, NOW.after(LEASE)));
    assert_eq!((input.index, input.role.as_str()), (0, "user"));
    assert_eq!((entry.kind, entry.sequence, entry.message_count), (CheckpointKind::Entry, at(0), 1));
    assert_eq!((block.key, block.last.get()), (1024, 1));
    // Nothing shows before the confirmation.
    assert_eq!((session.view().durable(), session.view().status(), session.view().run()), (at(0), None, None));
    session.confirmed(started.effects.ticket);
    assert_eq!((session.view().durable(), session.view().status()), (at(1), Some(StreamStatus::Active)));
}

#[test]
fn the_first_terminal_wins_and_a_later_run_has_its_own_place() {
    let (_, mut session, fence) = started();
    session.append(&fence, &[chunk("a"), commit("\"a\"", 1)]).unwrap();
    session.finish(NOW, &fence, Outcome::Interrupted, &[chunk("abort")]).unwrap();
    assert_eq!(session.finish(NOW, &fence, Outcome::Completed, &[]), Err(WriteRefused::Ended));
    assert_eq!(session.append(&fence, &[chunk("late")]), Err(WriteRefused::Ended));
    assert_eq!(session.run().unwrap().status, RunStatus::Interrupted);
    let second = start(&mut session, "r2", &[]).unwrap();
    assert_eq!((second.message_id.as_str(), second.start), ("msg_salt_2_3", at(3)));
    assert_eq!(session.append(&fence, &[chunk("late")]), Err(WriteRefused::Superseded));
    let stale_epoch = Fence { epoch: 2, ..second.fence };
    assert_eq!(session.append(&stale_epoch, &[chunk("late")]), Err(WriteRefused::StaleEpoch(1)));
}

#[test]
fn a_full_log_refuses_and_changes_nothing() {
    let (_, mut session, fence) = started();
    session.finish(NOW, &fence, Outcome::Completed, &[]).unwrap();
    let last = Sequence::new(Sequence::MAX - 1).unwrap();
    let block = BlockRow { key: last.get() * 1024, last, run: RunId::new("r1"), attempt: None, bytes: Vec::new() };
    let stored = Stored {
        session: row(StreamStatus::Ended),
        run: session.run().cloned(),
        checkpoint: None,
        truncated: None,
        last_block: Some((block, 10)),
        calls: Vec::new(),
        held: Vec::new(),
        queue: Vec::new(),
    };
    let mut session = Session::load(Some(stored), POLICY, false, Ticket::FIRST);
    session.retain(NOW, &Kept { bytes: 10, runs: Vec::new() }, 0);
    let full = StartRefused::Full(SequenceOutOfRange);
    assert_eq!(start(&mut session, "r2", &[chunk("a"), chunk("b")]).unwrap_err(), full);
    assert_eq!((session.run().unwrap().id.as_str(), session.log().head()), ("r1", last.cursor()));
    assert!(!session.is_unconfirmed());
    let fence = start(&mut session, "r2", &[]).unwrap().fence;
    let too_many = [chunk("a"), commit("\"a\"", 1), chunk("b")];
    let full = WriteRefused::Full(SequenceOutOfRange);
    assert_eq!(session.append(&fence, &too_many), Err(full.clone()));
    assert_eq!(session.finish(NOW, &fence, Outcome::Completed, &too_many), Err(full));
    assert_eq!(session.checkpoint().unwrap().kind, CheckpointKind::Entry);
    assert!(session.finish(NOW, &fence, Outcome::Completed, &[chunk("a")]).is_ok());
}

#[test]
fn of_several_commits_the_last_is_written_with_its_own_cursor() {
    let (_, mut session, fence) = started();
    let records = [chunk("a"), commit("\"a\"", 1), chunk("b"), commit("\"ab\"", 2), chunk("c")];
    let writes = session.append(&fence, &records).unwrap().writes;
    let messages: Vec<_> = writes.iter().filter(|write| matches!(write, Write::Message(_))).collect();
    assert!(matches!(&messages[..], [Write::Message(row)] if row.json == "\"ab\"" && row.index == 1));
    let checkpoint = session.checkpoint().unwrap();
    assert_eq!((checkpoint.sequence, checkpoint.step_count, checkpoint.message_count), (at(3), 2, 2));
    session.append(&fence, &[chunk("d")]).unwrap();
    assert_eq!(session.checkpoint().unwrap().sequence, at(3), "no commit, no checkpoint");
}

#[test]
fn a_confirmation_from_before_a_reload_confirms_nothing_after_it() {
    let (storage, mut session, fence) = started();
    let old: Vec<_> = (0..5).map(|_| session.append(&fence, &[chunk("lost")]).unwrap().ticket).collect();
    let mut session = Session::load(storage.load().unwrap(), POLICY, true, session.next_ticket());
    session.retain(NOW, &storage.kept(session.log().floor()).unwrap(), 0);
    let own = session.append(&fence, &[chunk("new")]).unwrap().ticket;
    old.into_iter().for_each(|ticket| session.confirmed(ticket));
    assert_eq!((session.view().durable(), session.log().head()), (at(1), at(2)));
    session.confirmed(own);
    assert_eq!(session.view().durable(), at(2));
}

#[test]
fn a_run_found_running_is_orphaned_unless_its_producer_lives() {
    let (storage, _, fence) = started();
    let dead = Session::load(storage.load().unwrap(), POLICY, false, Ticket::FIRST);
    assert_eq!(dead.due(NOW), Some(Due::Orphaned(fence.clone())));
    let later = NOW.after(Millis::new(45_000));
    let mut alive = Session::load(storage.load().unwrap(), POLICY, true, Ticket::FIRST);
    assert_eq!(alive.due(later), Some(Due::Lapsed(fence.clone())), "renewals are in no row");
    alive.renew(later, &fence);
    assert_eq!(alive.due(later), None);
    assert_eq!(alive.due(later.after(LEASE)), Some(Due::Lapsed(fence.clone())));
    alive.renew(later.after(LEASE), &Fence { epoch: 9, ..fence });
    assert!(alive.due(later.after(LEASE)).is_some(), "a stale producer renews nothing");
}

#[test]
fn the_alarm_is_the_first_lease_then_every_keep_alive() {
    let (storage, session, fence) = started();
    assert_eq!(session.alarm(NOW), Some(NOW.after(LEASE)));
    assert_eq!(
        session.alarm(NOW.after(LEASE)),
        Some(NOW.after(LEASE).after(LEASE)),
        "a dead run waits no longer than a lease"
    );
    let patient = Policy { lease: Millis::new(600_000), ..POLICY };
    let mut long = Session::load(storage.load().unwrap(), patient, true, Ticket::FIRST);
    assert_eq!(long.alarm(NOW), Some(NOW.after(Millis::new(60_000))), "a long lease does not put keep-alives off");
    assert_eq!(long.alarm(UnixMillis::new(0)), Some(UnixMillis::new(60_000)), "nor does a clock that was set back");
    long.finish(NOW, &fence, Outcome::Failed(Code::ProducerLost), &[]).unwrap();
    let retention = NOW.after(POLICY.retention);
    assert_eq!((long.alarm(NOW), long.due(NOW.after(LEASE))), (Some(retention), None));
}

#[test]
fn not_yours_is_not_there() {
    let (_, mut session, _) = started();
    for other in [Caller::Anonymous, Caller::Owner("you".into())] {
        assert_eq!(session.may_start(&other, &super::examples::send("u")), Err(StartRefused::NotFound(NotFound)));
        assert_eq!(session.stop_target(&other, None), Err(NotFound));
        assert_eq!(session.delete(&other), Err(NotFound));
    }
    assert_eq!(session.stop_target(&me(), Some("older")), Ok(StopTarget::Stale));
    assert_eq!(Session::load(None, POLICY, false, Ticket::FIRST).delete(&me()), Err(NotFound));
}

#[test]
fn a_chunk_in_parts_is_followed_by_a_new_block_after_a_restart() {
    let (storage, mut session, fence) = started();
    let large = chunk(&"x".repeat(2_000_000));
    storage.apply(&session.append(&fence, &[large]).unwrap().writes).unwrap();
    let mut session = reload(&storage);
    assert_eq!(session.log().head(), at(2));
    let writes = session.append(&fence, &[chunk("next")]).unwrap().writes;
    assert!(matches!(&writes[..], [Write::OpenBlock(row)] if row.key == 3 * 1024));
    storage.apply(&writes).unwrap();
    let mut session = reload(&storage);
    let writes = session.append(&fence, &[chunk("next")]).unwrap().writes;
    assert!(matches!(&writes[..], [Write::ExtendBlock { key: 3072, .. }]), "a whole block is extended again");
}

#[test]
fn a_late_write_of_a_removed_session_brings_nothing_back() {
    let (storage, mut session, fence) = started();
    storage.apply(&session.delete(&me()).unwrap()).unwrap();
    assert!(storage.apply(&session.append(&fence, &[chunk("late")]).unwrap().writes).is_err());
    assert!(storage.load().unwrap().is_none());
}

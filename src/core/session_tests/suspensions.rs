//! Literal examples of a run that waits for answers, and of what takes its place.

use super::examples::{LEASE, NOW, POLICY, at, chunk, commit, me, reload, send, started};
use crate::core::command::{
    Abandoned, Entry, Input, RewindCause, Start, StartRefused, Started, StopTarget, WriteRefused,
};
use crate::core::error::{Code, Failure};
use crate::core::ids::{MessageId, RunId, Sequence, SequenceOutOfRange};
use crate::core::log::Ticket;
use crate::core::record::Record;
use crate::core::retention::{Kept, Policy};
use crate::core::run::StreamStatus;
use crate::core::run::{Fence, Outcome, OwnPause, RunStatus, Vocabulary};
use crate::core::session::Session;
use crate::core::storage::double::Double;
use crate::core::storage::{BlockRow, CheckpointKind, Storage, Stored, Write};
use crate::core::time::Millis;

pub(super) fn begin(session: &mut Session, run: &str, entry: Entry) -> Result<Started, StartRefused> {
    begin_with(session, run, entry, &[])
}

fn begin_with(session: &mut Session, run: &str, entry: Entry, more: &[Record]) -> Result<Started, StartRefused> {
    let plan = session.plan(Start {
        now: NOW.after(Millis::new(1_000)),
        caller: &me(),
        run: RunId::new(run),
        salt: "salt",
        agent: "default",
        vocabulary: Vocabulary::Ui,
        lease: LEASE,
        key: None,
        entry,
        push: None,
        state: None,
    })?;
    let resync = plan.opening().rewound.as_ref().map(|_| chunk("resync"));
    let opening: Vec<_> = resync.into_iter().chain(more.to_vec()).collect();
    session.start(plan, &opening)
}

/// A run that paused at chunk 2, with or without a commit of its message.
fn suspended(commits: bool) -> (Double, Session, Fence) {
    let (storage, mut session, fence) = started();
    let records = if commits { vec![chunk("call"), commit("\"call\"", 1)] } else { vec![chunk("call")] };
    let effects = session.finish(NOW, &fence, Outcome::Suspended, &records).unwrap();
    storage.apply(&effects.writes).unwrap();
    session.confirmed(effects.ticket);
    (storage, session, fence)
}

fn abandoning(id: &str) -> Entry {
    let Entry::Send { input, .. } = send(id) else { panic!("a send") };
    Entry::Send { input, abandoned: Some(Abandoned { message: Some("\"abandoned\"".into()) }) }
}

#[test]
fn a_paused_run_takes_nothing_more_from_its_producer() {
    let (_, mut session, fence) = suspended(true);
    let run = session.run().cloned();
    assert_eq!(session.append(&fence, &[chunk("late")]), Err(WriteRefused::Ended));
    assert_eq!(session.begin_attempt(&fence), Err(WriteRefused::Ended));
    for outcome in [Outcome::Completed, Outcome::Suspended] {
        assert_eq!(session.finish(NOW, &fence, outcome, &[]), Err(WriteRefused::Ended));
    }
    session.renew(NOW.after(LEASE), &fence);
    session.explain(&fence, &Failure { retry_after_ms: Some(7), ..Failure::new(Code::ProviderError, "x") });
    assert_eq!((session.run().cloned(), session.due(NOW.after(LEASE))), (run, None));
    assert_eq!((session.view().status(), session.view().durable()), (Some(StreamStatus::Paused), at(2)));
    assert_eq!(session.stop_target(&me(), None), Ok(StopTarget::Live(fence.clone())));
    session.finish(NOW, &fence, Outcome::Failed(Code::StateSessionFull), &[]).unwrap();
    assert_eq!(session.run().map(|run| run.status), Some(RunStatus::Failed));
}

#[test]
fn answers_are_for_a_paused_run_and_stand_behind_its_end() {
    let (_, mut session, fence) = started();
    assert_eq!(session.answer(&fence, &[chunk("early")]), Err(WriteRefused::Ended));
    let (storage, mut session, fence) = suspended(true);
    let effects = session.answer(&fence, &[chunk("answer"), commit("\"one answer\"", 1)]).unwrap();
    storage.apply(&effects.writes).unwrap();
    let mut session = reload(&storage);
    let run = session.run().unwrap();
    assert_eq!((run.status, run.end, session.log().head()), (RunStatus::SuspendedClientTool, Some(at(2)), at(3)));
    assert_eq!(storage.message_at(1).unwrap().unwrap().json, "\"one answer\"");
    session.finish(NOW, &fence, Outcome::Interrupted, &[chunk("abort")]).unwrap();
    assert_eq!(session.run().unwrap().end, Some(at(4)), "a stop covers the answers too");
}

#[test]
fn the_last_answers_continue_the_message_in_another_run() {
    let (storage, mut session, fence) = suspended(true);
    let next = begin(&mut session, "r2", Entry::Results { message: Some("\"answered\"".into()) }).unwrap();
    assert_eq!((next.message_id.as_str(), next.start, next.superseded), ("msg_salt_1_1", at(2), None));
    let [Write::Session(_), Write::Run(before), Write::Run(run), Write::Message(message), Write::Checkpoint(entry)] =
        &next.effects.writes[..]
    else {
        panic!("{:?}", next.effects.writes)
    };
    assert_eq!((before.status, before.end, run.turn), (RunStatus::Completed, Some(at(2)), 2));
    assert_eq!((message.index, message.run.as_ref().map(RunId::as_str)), (1, Some("r2")));
    assert_eq!((entry.kind, entry.message_count, entry.sequence), (CheckpointKind::Entry, 2, at(2)));
    storage.apply(&next.effects.writes).unwrap();
    assert_eq!(session.answer(&fence, &[]), Err(WriteRefused::Superseded));
    let effects = session.append(&next.fence, &[chunk("on"), commit("\"answered, on\"", 1)]).unwrap();
    storage.apply(&effects.writes).unwrap();
    assert_eq!((session.message_count(), storage.messages(2).unwrap()[1].json.as_str()), (2, "\"answered, on\""));
}

#[test]
fn a_message_that_is_abandoned_keeps_its_place_though_it_was_never_committed() {
    for commits in [true, false] {
        let (storage, mut session, _) = suspended(commits);
        let next = begin(&mut session, "r2", abandoning("u2")).unwrap();
        storage.apply(&next.effects.writes).unwrap();
        assert_eq!((session.message_count(), next.message_id.as_str()), (3, "msg_salt_2_3"));
        assert_eq!(next.superseded, Some(RunId::new("r1")));
        let ids: Vec<_> = storage.places(3).unwrap().into_iter().map(|place| place.id.to_string()).collect();
        assert_eq!(ids, ["u-r1", "msg_salt_1_1", "u2"]);
    }
}

#[test]
fn a_run_that_paused_before_it_stored_a_message_is_followed_by_any_other() {
    let abandoned = || Some(Abandoned { message: None });
    let Entry::Send { input, .. } = send("u2") else { panic!("a send") };
    for (entry, place, id) in [
        (Entry::Send { input: input.clone(), abandoned: abandoned() }, 2, "msg_salt_2_2"),
        (Entry::Push { inputs: Vec::new(), supersede: true, abandoned: abandoned() }, 1, "msg_salt_2_1"),
        (
            Entry::Push { inputs: vec![(input, "user".into())], supersede: true, abandoned: abandoned() },
            2,
            "msg_salt_2_2",
        ),
        (Entry::Results { message: None }, 1, "msg_salt_1_1"),
    ] {
        let (storage, mut session, _) = suspended(false);
        let next = begin(&mut session, "r2", entry).unwrap();
        storage.apply(&next.effects.writes).unwrap();
        assert_eq!((session.message_count(), next.message_id.as_str()), (place, id));
        assert_eq!(storage.messages(place).unwrap().len(), place as usize, "the conversation has no hole");
        let mut session = reload(&storage);
        let said = [chunk("answer"), commit("\"said\"", 1)];
        session.finish(NOW, &next.fence, Outcome::Completed, &said).unwrap();
        assert_eq!(session.message_count(), place + 1);
    }
}

#[test]
fn a_send_says_what_it_abandons() {
    let (_, mut paused, _) = suspended(true);
    assert_eq!(begin(&mut paused, "r2", send("u2")).unwrap_err(), StartRefused::Conflict);
    let (_, mut running, _) = started();
    assert_eq!(
        begin(&mut running, "r2", abandoning("u2")).unwrap_err(),
        StartRefused::AlreadyRunning(RunId::new("r1"))
    );
    assert_eq!(
        begin(&mut Session::load(None, POLICY, false, Ticket::FIRST), "r2", abandoning("u2")).unwrap_err(),
        StartRefused::Conflict
    );
}

#[test]
fn a_rewind_takes_the_message_of_a_suspended_run_with_it() {
    let (_, mut session, _) = suspended(true);
    let rewind = |keep| Entry::Rewind { keep, input: None, cause: RewindCause::Retry };
    assert_eq!(session.message_count(), 2);
    assert_eq!(
        begin(&mut session, "r2", rewind(2)).unwrap_err(),
        StartRefused::Conflict,
        "its calls would wait for ever"
    );
    assert!(begin(&mut session, "r2", rewind(1)).is_ok());
    let (_, mut running, fence) = started();
    running.append(&fence, &[commit("\"so far\"", 1)]).unwrap();
    assert!(begin(&mut running, "r2", rewind(2)).is_ok());
}

#[test]
fn a_rewind_with_a_message_is_two_checkpoints_in_one_transaction() {
    let (storage, mut session, fence) = started();
    let input = Input { id: MessageId::new("edited"), json: "\"edited\"".into() };
    let entry = Entry::Rewind { keep: 0, input: Some(input), cause: RewindCause::Rollback };
    let next = begin(&mut session, "r2", entry).unwrap();
    assert_eq!((next.message_id.as_str(), next.superseded), ("msg_salt_2_1", Some(RunId::new("r1"))));
    let checkpoint = |write: &Write| match write {
        Write::Checkpoint(row) => Some((row.ordinal, row.kind, row.message_count, row.sequence)),
        _ => None,
    };
    let checkpoints: Vec<_> = next.effects.writes.iter().filter_map(checkpoint).collect();
    assert_eq!(checkpoints, [(2, CheckpointKind::Truncate, 0, at(1)), (3, CheckpointKind::Entry, 1, at(1))]);
    assert_eq!(session.append(&fence, &[chunk("late")]), Err(WriteRefused::Superseded));
    assert_eq!(session.view().run().map(|run| run.status), Some(RunStatus::Running), "not shown before it is durable");
    storage.apply(&next.effects.writes).unwrap();
    session.confirmed(next.effects.ticket);
    let view = session.view();
    let superseded = view.find(&RunId::new("r1")).unwrap();
    assert_eq!((superseded.status, superseded.end), (RunStatus::Superseded, Some(at(1))));
    assert_eq!(view.successor(&superseded.id), view.run());
    assert_eq!(storage.messages(1).unwrap()[0].id.as_str(), "edited");
    assert_eq!(session.truncated(), storage.load().unwrap().unwrap().truncated.as_ref());
}

#[test]
fn a_start_that_finds_no_number_changes_nothing() {
    let (storage, ..) = suspended(true);
    let stored = storage.load().unwrap().unwrap();
    let last = Sequence::new(Sequence::MAX).unwrap();
    let last_block = stored.last_block.map(|(block, len)| (BlockRow { last, ..block }, len));
    let mut session = Session::load(Some(Stored { last_block, ..stored }), POLICY, true, Ticket::FIRST);
    let before = format!("{session:?}");
    let retry = Entry::Rewind { keep: 1, input: None, cause: RewindCause::Retry };
    for entry in [abandoning("u2"), Entry::Results { message: Some("1".into()) }, retry] {
        let refused = begin_with(&mut session, "r2", entry, &[chunk("opening")]).unwrap_err();
        assert_eq!((refused, format!("{session:?}")), (StartRefused::Full(SequenceOutOfRange), before.clone()));
    }
}

#[test]
fn a_last_word_before_a_pause_needs_room_like_any_other() {
    let (storage, _, fence) = started();
    let kept = storage.kept(at(0)).unwrap();
    let mut session =
        Session::load(storage.load().unwrap(), Policy { max_bytes: kept.bytes + 9, ..POLICY }, true, Ticket::FIRST);
    session.retain(NOW, &Kept { runs: Vec::new(), ..kept }, 0);
    let refused = session.finish(NOW, &fence, Outcome::Suspended, &[chunk("call")]);
    assert!(matches!(refused, Err(WriteRefused::NoRoom { .. })));
    assert!(session.finish(NOW, &fence, Outcome::Suspended, &[]).is_ok());
}

#[test]
fn retention_waits_for_no_run_that_left_nothing() {
    let (storage, mut session, fence) = started();
    let effects = session.finish(NOW, &fence, Outcome::Completed, &[]).unwrap();
    storage.apply(&effects.writes).unwrap();
    let over = NOW.after(POLICY.retention);
    let cut = session.retain(over, &storage.kept(at(0)).unwrap(), 0).unwrap();
    storage.apply(&cut.writes).unwrap();
    // The second run leaves no chunk, and the third has one of its own.
    begin(&mut session, "r2", send("u2")).unwrap();
    let retry = Entry::Rewind { keep: 1, input: None, cause: RewindCause::Retry };
    let third = begin(&mut session, "r3", retry).unwrap().fence;
    session.finish(over, &third, Outcome::Completed, &[]).unwrap();
    assert_eq!(session.alarm(over), Some(over.after(POLICY.retention)), "counted from the third's end");
}

#[test]
fn a_run_that_waits_for_its_own_producer_is_a_live_one_that_nobody_answers() {
    for (pause, status, name) in [
        (OwnPause::AwaitingChildren, RunStatus::SuspendedAwaitingChildren, "\"suspended_awaiting_children\""),
        (OwnPause::StepPartial, RunStatus::SuspendedStepPartial, "\"suspended_step_partial\""),
    ] {
        let (storage, mut session, fence) = started();
        let records = [chunk("call"), commit("\"call\"", 1)];
        let effects = session.finish(NOW, &fence, Outcome::Paused(pause), &records).unwrap();
        storage.apply(&effects.writes).unwrap();
        let mut session = reload(&storage);
        let run = session.run().cloned().unwrap();
        assert_eq!((run.status, run.ended, session.view().status()), (status, None, Some(StreamStatus::Paused)));
        assert_eq!(serde_json::to_string(&run.status).unwrap(), name);
        assert_eq!(
            (session.due(NOW.after(LEASE)), session.stop_target(&me(), None)),
            (None, Ok(StopTarget::Live(fence.clone())))
        );
        assert_eq!(storage.kept(at(0)).unwrap().runs, [], "a live run is never cut");
        // To a send it is running, and it takes no answers.
        for entry in [send("u2"), abandoning("u2")] {
            assert_eq!(session.may_start(&me(), &entry), Err(StartRefused::AlreadyRunning(run.id.clone())));
        }
        assert_eq!(session.answer(&fence, &[commit("\"answered\"", 1)]), Err(WriteRefused::Ended));
        assert_eq!(session.append(&fence, &[chunk("late")]), Err(WriteRefused::Ended));
        // Its producer goes on with it, and a stop ends it.
        let results = Entry::Results { message: Some("\"call\"".into()) };
        assert_eq!(session.may_start(&me(), &results), Ok(()));
        let push = |abandoned: Option<Abandoned>| Entry::Push { inputs: Vec::new(), supersede: true, abandoned };
        assert_eq!(session.may_start(&me(), &push(None)), Err(StartRefused::Conflict), "its calls are given up");
        assert_eq!(session.may_start(&me(), &push(Some(Abandoned { message: Some("\"given up\"".into()) }))), Ok(()));
        session.finish(NOW, &fence, Outcome::Interrupted, &[]).unwrap();
        assert_eq!(session.run().map(|run| run.status), Some(RunStatus::Interrupted));
    }
}

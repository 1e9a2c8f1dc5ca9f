//! Plans of starts: what they say is what becomes true, and one that does not fit any more changes nothing.

use super::examples::{NOW, POLICY, at, chunk, commit, me, send, start, started, wish};
use super::queue::enqueue;
use crate::core::call_ids::CallName;
use crate::core::command::{Displacement, Entry, Input, LastWords, RewindCause, Rewound, StartRefused, Started};
use crate::core::ids::{CheckpointId, MessageId, RunId, Sequence, SequenceOutOfRange};
use crate::core::log::Ticket;
use crate::core::record::Record;
use crate::core::retention::Kept;
use crate::core::run::{Fence, Outcome, RunStatus};
use crate::core::session::Session;
use crate::core::session::plan::Plan;
use crate::core::storage::double::Double;
use crate::core::storage::{BlockRow, Storage, Stored};
use crate::core::time::Millis;

/// A session whose run has ended, stored.
fn ended() -> (Double, Session, Fence) {
    let (storage, mut session, fence) = started();
    let effects = session.finish(NOW, &fence, Outcome::Completed, &[]).unwrap();
    storage.apply(&effects.writes).unwrap();
    (storage, session, fence)
}

/// A session whose run is live, with a message that waits; its size is known.
fn queued() -> (Double, Session, Fence) {
    let (storage, mut session, fence) = started();
    session.retain(NOW, &storage.kept(at(0)).unwrap(), 0);
    enqueue(&storage, &mut session, "u2");
    (storage, session, fence)
}

fn plan(session: &Session) -> Plan {
    session.plan(wish(&me(), "r2", send("u3"))).unwrap()
}

fn interrupts(session: &Session, fence: &Fence) -> Plan {
    let last = LastWords { fence, records: &[chunk("partial")], displacement: Displacement::Interrupted };
    session.plan_instead(&last, wish(&me(), "r2", send("u3"))).unwrap()
}

fn supersedes() -> Entry {
    let input = Input { id: MessageId::new("u3"), json: "{}".into() };
    Entry::Push { inputs: vec![(input, "user".into())], supersede: true, abandoned: None }
}

#[track_caller]
fn fits_no_more(session: &mut Session, plan: Plan) {
    let before = format!("{session:?}");
    let refused = session.start(plan, &[chunk("run_started")]).unwrap_err();
    assert_eq!((refused, format!("{session:?}")), (StartRefused::Conflict, before));
}

#[test]
fn a_plan_fits_until_the_session_decides_something_else() {
    let (_, mut session, _) = ended();
    let (first, second) = (plan(&session), plan(&session));
    session.start(first, &[]).unwrap();
    fits_no_more(&mut session, second);

    let (storage, mut session, _) = ended();
    let planned = plan(&session);
    let over = NOW.after(POLICY.retention);
    session.retain(over, &storage.kept(at(0)).unwrap(), 0).unwrap();
    fits_no_more(&mut session, planned);

    let (_, mut session, _) = ended();
    let planned = plan(&session);
    session.delete(&me()).unwrap();
    fits_no_more(&mut session, planned);
}

#[test]
fn a_plan_in_the_place_of_a_run_does_not_fit_once_that_has_said_more() {
    let meddlers: [fn(&mut Session, &Fence); 4] = [
        |session, fence| drop(session.append(fence, &[chunk("more")]).unwrap()),
        |session, fence| drop(session.begin_attempt(fence).unwrap()),
        |session, fence| drop(session.hold(fence, vec!["{}".into()]).unwrap()),
        |session, fence| drop(session.finish(NOW, fence, Outcome::Completed, &[]).unwrap()),
    ];
    for meddle in meddlers {
        let (_, mut session, fence) = queued();
        let planned = interrupts(&session, &fence);
        meddle(&mut session, &fence);
        fits_no_more(&mut session, planned);
    }
}

#[test]
fn a_plan_of_a_message_that_waits_does_not_fit_once_the_queue_has_changed() {
    let (_, mut session, fence) = queued();
    session.finish(NOW, &fence, Outcome::Completed, &[]).unwrap();
    let planned = session.plan_queued(wish(&me(), "q-u2", send("u2"))).unwrap();
    session.clear_queue().unwrap();
    fits_no_more(&mut session, planned);
}

#[test]
fn no_plan_outlives_the_memory_that_has_failed_to_store() {
    let (storage, mut session, fence) = queued();
    let planned = interrupts(&session, &fence);
    session.append(&fence, &[chunk("lost")]).unwrap();
    let mut session = Session::load(storage.load().unwrap(), POLICY, true, session.next_ticket());
    fits_no_more(&mut session, planned);
    // Nor the session that it is of.
    let planned = interrupts(&session, &fence);
    session.delete(&me()).unwrap();
    let mut session = Session::load(None, POLICY, false, session.next_ticket());
    fits_no_more(&mut session, planned);
}

#[test]
fn a_plan_fits_through_all_that_is_in_memory_only() {
    let (storage, mut session, fence) = queued();
    let planned = interrupts(&session, &fence);
    session.renew(NOW.after(Millis::new(5)), &fence);
    assert_eq!(
        session.append(&Fence { epoch: 9, ..fence.clone() }, &[]).unwrap_err().to_string(),
        "the producer's epoch is stale; the current one is 1"
    );
    session.confirmed(session.next_ticket());
    let started = session.start(planned, &[chunk("run_started")]).unwrap();
    storage.apply(&started.effects.writes).unwrap();
    assert_eq!(storage.run(&fence.run).unwrap().map(|run| run.status), Some(RunStatus::Interrupted));
}

#[test]
fn a_plan_names_what_the_start_makes() {
    // What the live run says last takes a name, and commits.
    let name = CallName { id: "c".into(), own: None };
    let records = [chunk("partial"), Record::Call(name), commit("\"partial\"", 1)];
    let rewound = |from: u64| Rewound {
        checkpoint: CheckpointId::new("cp_salt_3"),
        message_count: 3,
        from: at(from),
        cause: RewindCause::Rollback,
    };
    for (displacement, entry, displaced) in
        [(Displacement::Interrupted, send("u3"), None), (Displacement::Superseded, supersedes(), Some(rewound(2)))]
    {
        let (storage, mut session, fence) = started();
        let last = LastWords { fence: &fence, records: &records, displacement };
        let planned = session.plan_instead(&last, wish(&me(), "r2", entry)).unwrap();
        let opening = planned.opening().clone();
        assert_eq!((&opening.displaced, opening.rewound), (&displaced, None));
        assert!(opening.calls.is_taken("c") && !opening.calls.is_own_run("c"), "the run before has taken it");
        let Started { effects, message_id, start, .. } = session.start(planned, &[]).unwrap();
        assert_eq!((opening.run, opening.message_id, start), (RunId::new("r2"), message_id, at(2)));
        storage.apply(&effects.writes).unwrap();
        let last = storage.load().unwrap().unwrap().checkpoint.unwrap();
        assert_eq!((last.id.as_str(), last.message_count, last.sequence), ("cp_salt_3", 3, at(2)));
    }
}

#[test]
fn a_run_whose_successor_finds_no_number_is_not_stopped() {
    let (storage, _, fence) = started();
    let stored = storage.load().unwrap().unwrap();
    let last = Sequence::new(Sequence::MAX - 1).unwrap();
    let last_block = stored.last_block.map(|(block, len)| (BlockRow { last, ..block }, len));
    let mut session = Session::load(Some(Stored { last_block, ..stored }), POLICY, true, Ticket::FIRST);
    session.retain(NOW, &Kept { bytes: 9, runs: Vec::new() }, 0);
    let planned = interrupts(&session, &fence);
    let before = format!("{session:?}");
    let refused = session.start(planned, &[chunk("run_started")]).unwrap_err();
    assert_eq!((refused, format!("{session:?}")), (StartRefused::Full(SequenceOutOfRange), before));
    let planned = interrupts(&session, &fence);
    assert!(session.start(planned, &[]).is_ok(), "with one number left the last words fit");
}

#[test]
fn one_start_follows_another() {
    let (_, mut session, _) = ended();
    start(&mut session, "r2", &[]).unwrap();
    let refused = session.plan(wish(&me(), "r3", send("u4"))).unwrap_err();
    assert_eq!(refused, StartRefused::AlreadyRunning(RunId::new("r2")));
}

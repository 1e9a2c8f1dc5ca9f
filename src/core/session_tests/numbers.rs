//! Literal examples of producers outside: their numbers, their claims, their commits and how they end.

use super::examples::{LEASE, NOW, POLICY, at, chunk, commit, me, send};
use crate::core::caller::Caller;
use crate::core::command::{Abandoned, Due, Entry, Input, Start, StartRefused, Started, WriteRefused};
use crate::core::error::Code;
use crate::core::ids::{MessageId, RunId};
use crate::core::log::Ticket;
use crate::core::record::{Commit, Record};
use crate::core::run::{Fence, Outcome, RunStatus, Vocabulary};
use crate::core::session::Session;
use crate::core::session::push::PushCommit;
use crate::core::storage::double::Double;
use crate::core::storage::{CheckpointKind, MessageRow, Storage, Write};
use crate::core::time::Millis;

const OWN_LEASE: Millis = Millis::new(5_000);

fn brings(inputs: usize, supersede: bool, abandoned: Option<&str>) -> Entry {
    let input = |at: usize| Input { id: MessageId::new(format!("u{at}")), json: format!("\"{at}\"") };
    let inputs = (0..inputs).map(|at| (input(at), "user".to_owned())).collect();
    let abandoned = abandoned.map(|message| Abandoned { message: Some(message.to_owned()) });
    Entry::Push { inputs, supersede, abandoned }
}

fn begin(session: &mut Session, run: &str, entry: Entry) -> Result<Started, StartRefused> {
    let plan = session.plan(Start {
        now: NOW,
        caller: &me(),
        run: RunId::new(run),
        salt: "salt",
        agent: "",
        vocabulary: Vocabulary::Ui,
        lease: LEASE,
        key: None,
        entry,
        push: Some(OWN_LEASE),
        state: Some("{}".into()),
    })?;
    session.start(plan, &[chunk("run_started"), chunk("start")])
}

/// A pushed run with two messages before it and an opening of two chunks.
pub(super) fn pushed() -> (Double, Session, Fence) {
    let (storage, mut session) = (Double::new(), Session::load(None, POLICY, false, Ticket::FIRST));
    let started = begin(&mut session, "r1", brings(2, false, None)).unwrap();
    assert_eq!((started.message_id.as_str(), started.start), ("msg_salt_1_2", at(0)));
    storage.apply(&started.effects.writes).unwrap();
    session.confirmed(started.effects.ticket);
    measure(&storage, &mut session);
    (storage, session, started.fence)
}

fn measure(storage: &Double, session: &mut Session) {
    session.retain(NOW, &storage.kept(session.log().floor()).unwrap(), 0);
}

fn append(storage: &Double, session: &mut Session, fence: &Fence, texts: &[&str]) {
    let records: Vec<_> = texts.iter().map(|text| chunk(text)).collect();
    storage.apply(&session.append(fence, &records).unwrap().writes).unwrap();
}

fn own(through: u64, ids: &[&str], state: Option<&str>) -> PushCommit {
    let message = |id: &&str| ((*id).to_owned(), "assistant".to_owned(), format!("\"{id}\""));
    let messages = ids.iter().map(message).collect();
    PushCommit { through: at(through), messages, state: state.map(str::to_owned), step_count: 3, calls: Vec::new() }
}

fn restarted(storage: &Double) -> Session {
    let mut session = Session::load(storage.load().unwrap(), POLICY, false, Ticket::FIRST);
    measure(storage, &mut session);
    session
}

fn ids(storage: &Double, session: &Session) -> Vec<String> {
    let places = storage.places(session.message_count()).unwrap();
    places.into_iter().map(|place| place.id.to_string()).collect()
}

#[test]
fn chunks_and_operations_take_numbers_and_the_opening_takes_none() {
    let (storage, mut session, fence) = pushed();
    assert_eq!((session.expected(&fence), session.log().head()), (Ok(0), at(2)));
    append(&storage, &mut session, &fence, &["0", "1"]);
    assert_eq!(session.expected(&fence), Ok(2));
    let effects = session.commit(NOW, &fence, own(4, &["msg_salt_1_2"], None)).unwrap();
    storage.apply(&effects.writes).unwrap();
    assert_eq!((session.expected(&fence), session.log().head(), effects.chunks), (Ok(3), at(4), 0));
    append(&storage, &mut session, &fence, &["3"]);
    for session in [&session, &restarted(&storage)] {
        assert_eq!(session.expected(&fence), Ok(4));
        assert_eq!([0, 3, 4].map(|first| session.taken(&fence, first)), [Ok(4), Ok(1), Ok(0)]);
        assert_eq!(session.taken(&fence, 5), Err(WriteRefused::Gap(4)));
    }
}

#[test]
fn what_a_crash_takes_is_expected_again() {
    for (kept, expected) in [(3, 4), (2, 3), (1, 2), (0, 1)] {
        let (storage, mut session, fence) = pushed();
        append(&storage, &mut session, &fence, &["0"]);
        storage.sync();
        append(&storage, &mut session, &fence, &["1"]);
        storage.apply(&session.commit(NOW, &fence, own(4, &["msg_salt_1_2"], None)).unwrap().writes).unwrap();
        append(&storage, &mut session, &fence, &["3"]);
        storage.crash(kept);
        let session = restarted(&storage);
        assert_eq!((session.expected(&fence), session.due(NOW)), (Ok(expected), None));
    }
}

#[test]
fn a_claim_fences_the_one_before_it_off() {
    let (storage, mut session, old) = pushed();
    append(&storage, &mut session, &old, &["0"]);
    let later = NOW.after(Millis::new(4_000));
    let (fence, effects) = session.claim_again(later, &old.run, None).unwrap();
    assert_eq!((fence.epoch, session.run().unwrap().lease_until), (2, later.after(OWN_LEASE)));
    storage.apply(&effects.writes).unwrap();
    let stale = WriteRefused::StaleEpoch(2);
    assert_eq!(session.append(&old, &[chunk("late")]), Err(stale.clone()));
    assert_eq!(session.commit(NOW, &old, own(3, &[], None)), Err(stale.clone()));
    assert_eq!(session.finish_pushed(NOW, &old, Outcome::Completed, &[], (1, None)), Err(stale.clone()));
    assert_eq!((session.expected(&old), session.taken(&old, 0)), (Err(stale.clone()), Err(stale.clone())));
    session.renew(later.after(OWN_LEASE), &old);
    assert_eq!(session.due(later.after(OWN_LEASE)), Some(Due::Lapsed(fence.clone())), "the old one renews nothing");
    let restarted = restarted(&storage);
    assert_eq!((restarted.expected(&fence), restarted.expected(&old)), (Ok(1), Err(stale)));
}

#[test]
fn only_a_live_run_of_a_producer_outside_is_claimed() {
    let (_, mut session, fence) = pushed();
    assert_eq!(session.claim_again(NOW, &RunId::new("r9"), None).unwrap_err(), WriteRefused::Superseded);
    session.finish_pushed(NOW, &fence, Outcome::Suspended, &[], (0, None)).unwrap();
    assert_eq!(session.claim_again(NOW, &fence.run, None).unwrap_err(), WriteRefused::Ended);
    begin(&mut session, "r2", brings(1, true, Some("\"abandoned\""))).unwrap();
    assert_eq!(session.claim_again(NOW, &fence.run, None).unwrap_err(), WriteRefused::Superseded);
    let (_, mut inside, fence) = super::examples::started();
    assert_eq!(inside.claim_again(NOW, &fence.run, None).unwrap_err(), WriteRefused::Superseded);
    assert_eq!(inside.expected(&fence), Err(WriteRefused::Superseded));
}

#[test]
fn a_lease_of_its_own_that_a_reload_leaves_running() {
    let (storage, session, fence) = pushed();
    assert_eq!((session.alarm(NOW), session.due(NOW)), (Some(NOW.after(OWN_LEASE)), None));
    let mut session = restarted(&storage);
    let later = NOW.after(Millis::new(60_000));
    assert_eq!(session.due(later), Some(Due::Lapsed(fence.clone())), "nobody could renew it meanwhile");
    session.renew(later, &fence);
    assert_eq!((session.due(later), session.alarm(later)), (None, Some(later.after(OWN_LEASE))));
    assert_eq!(session.due(later.after(OWN_LEASE)), Some(Due::Lapsed(fence)), "and never an orphan");
}

#[test]
fn a_commit_lies_between_the_last_one_and_the_head() {
    let (storage, mut session, fence) = pushed();
    append(&storage, &mut session, &fence, &["0", "1"]);
    session.commit(NOW, &fence, own(3, &["msg_salt_1_2"], Some("[1]"))).unwrap();
    let before = format!("{session:?}");
    for through in [2, 5] {
        let refused = session.commit(NOW, &fence, own(through, &["no"], None)).unwrap_err();
        assert_eq!((refused, format!("{session:?}")), (WriteRefused::Place(at(3), at(4)), before.clone()), "{through}");
    }
    session.commit(NOW, &fence, own(3, &[], None)).unwrap();
    session.commit(NOW, &fence, own(4, &[], None)).unwrap();
    let last = session.checkpoint().unwrap();
    assert_eq!((last.kind, last.sequence, last.step_count, last.message_count), (CheckpointKind::Step, at(4), 3, 3));
    assert_eq!((last.state.as_deref(), session.expected(&fence)), (Some("[1]"), Ok(5)), "the state is carried on");
}

#[test]
fn a_shorter_commit_takes_the_place_of_a_longer_one() {
    let (storage, mut session, fence) = pushed();
    for (messages, expected) in [
        (vec!["a", "b", "c"], vec!["u0", "u1", "a", "b", "c"]),
        (vec!["d"], vec!["u0", "u1", "d"]),
        (vec![], vec!["u0", "u1", "d"]),
        (vec!["e", "f"], vec!["u0", "u1", "e", "f"]),
    ] {
        storage.apply(&session.commit(NOW, &fence, own(2, &messages, None)).unwrap().writes).unwrap();
        assert_eq!(ids(&storage, &session), expected);
        let rows = storage.counts().unwrap().into_iter().find(|(table, _)| table == "message");
        assert_eq!(rows.map(|(_, rows)| rows), Some(expected.len() as u64), "no row beyond the conversation");
        assert_eq!(restarted(&storage).message_count() as usize, expected.len());
    }
}

#[test]
fn an_end_is_said_once() {
    let (storage, mut session, fence) = pushed();
    let last = [chunk("0"), chunk("1"), chunk("closing")];
    let told = Some("{\"output\":1}".to_owned());
    let gap = session.finish_pushed(NOW, &fence, Outcome::Completed, &last[..1], (2, None)).unwrap_err();
    assert_eq!((gap, session.expected(&fence)), (WriteRefused::Gap(0), Ok(0)), "a chunk before it is missing");
    assert!(!session.has_said(&fence, 2));
    let effects = session.finish_pushed(NOW, &fence, Outcome::Completed, &last, (2, told.clone())).unwrap();
    storage.apply(&effects.writes).unwrap();
    for session in [&session, &restarted(&storage)] {
        assert!(session.has_said(&fence, 2) && !session.has_said(&fence, 3));
        assert!(!session.has_said(&Fence { epoch: 2, ..fence.clone() }, 2) && session.has_said(&fence, 0));
        assert_eq!(session.run().unwrap().push.as_ref().unwrap().result, told);
        assert_eq!((session.expected(&fence), session.log().head()), (Err(WriteRefused::Ended), at(5)));
    }
    let again = session.finish_pushed(NOW, &fence, Outcome::Completed, &last, (2, None));
    assert_eq!(again, Err(WriteRefused::Ended));
}

#[test]
fn a_stop_is_not_the_producers_word() {
    let (_, mut session, fence) = pushed();
    session.append(&fence, &[chunk("0")]).unwrap();
    session.finish(NOW, &fence, Outcome::Interrupted, &[chunk("abort")]).unwrap();
    assert!(!session.has_said(&fence, 1) && !session.has_said(&fence, 0));
    assert_eq!(session.finish_pushed(NOW, &fence, Outcome::Completed, &[], (1, None)), Err(WriteRefused::Ended));
    assert_eq!(session.run().unwrap().status, RunStatus::Interrupted);
}

#[test]
fn an_end_that_adds_nothing_leaves_the_producers_messages() {
    for (through, says_more, failed, kept) in
        [(3, false, false, true), (3, true, false, false), (2, false, false, false), (3, false, true, true)]
    {
        let (storage, mut session, fence) = pushed();
        append(&storage, &mut session, &fence, &["0"]);
        storage.apply(&session.commit(NOW, &fence, own(through, &["a", "b"], None)).unwrap().writes).unwrap();
        let more = says_more.then(|| chunk("2"));
        let last: Vec<_> = more.into_iter().chain([chunk("closing"), commit("\"fold\"", 1)]).collect();
        let effects = if failed {
            session.finish(NOW, &fence, Outcome::Failed(Code::ProducerLost), &last)
        } else {
            let number = 2 + u64::from(says_more);
            session.finish_pushed(NOW, &fence, Outcome::Completed, &last, (number, None))
        };
        storage.apply(&effects.unwrap().writes).unwrap();
        let expected = if kept { ["u0", "u1", "a", "b"].as_slice() } else { &["u0", "u1", "msg_salt_1_2"] };
        assert_eq!(ids(&storage, &session), expected);
        let rows = storage.counts().unwrap().into_iter().find(|(table, _)| table == "message");
        assert_eq!(rows.map(|(_, rows)| rows), Some(expected.len() as u64), "no row beyond the conversation");
    }
}

#[test]
fn an_ends_commit_may_bring_the_state() {
    let (_, mut session, fence) = pushed();
    let state = Some("{\"a\":1}".to_owned());
    let fold = Record::Commit(Commit { message: "fold".into(), step_count: 1, state: state.clone() });
    session.finish_pushed(NOW, &fence, Outcome::Completed, &[chunk("0"), fold], (1, None)).unwrap();
    assert_eq!(session.checkpoint().unwrap().state, state);
}

#[test]
fn answers_continue_a_paused_run_of_several_messages() {
    let (storage, mut session, fence) = pushed();
    storage.apply(&session.commit(NOW, &fence, own(2, &["msg_salt_1_2", "b"], None)).unwrap().writes).unwrap();
    let effects = session.finish_pushed(NOW, &fence, Outcome::Suspended, &[], (1, None)).unwrap();
    storage.apply(&effects.writes).unwrap();
    let next = begin(&mut session, "r2", Entry::Results { message: Some("\"answered\"".into()) }).unwrap();
    storage.apply(&next.effects.writes).unwrap();
    assert_eq!(ids(&storage, &session), ["u0", "u1", "msg_salt_1_2", "b"], "none of them goes");
    assert_eq!((session.expected(&next.fence), next.message_id.as_str()), (Ok(0), "msg_salt_1_2"));
    let entry = session.checkpoint().unwrap().id.clone();
    assert_eq!(storage.rewind_point(&entry), Ok(None), "its last message will be overwritten");
    storage.apply(&session.commit(NOW, &next.fence, own(4, &["msg_salt_1_2"], None)).unwrap().writes).unwrap();
    assert_eq!(ids(&storage, &session), ["u0", "u1", "msg_salt_1_2"]);
}

#[test]
fn whose_place_a_producer_takes() {
    let refused = |session: &Session, entry: &Entry| session.may_start(&me(), entry).err();
    let (_, mut session, fence) = pushed();
    let running = Some(StartRefused::AlreadyRunning(fence.run.clone()));
    assert_eq!(refused(&session, &brings(1, false, None)), running);
    assert_eq!(refused(&session, &send("u9")), running);
    assert_eq!(refused(&session, &brings(1, true, None)), None);
    assert_eq!(refused(&session, &brings(1, true, Some("1"))), Some(StartRefused::Conflict), "nothing is suspended");
    assert!(session.pushed_run(&Caller::Anonymous, &fence.run).is_err());
    session.finish_pushed(NOW, &fence, Outcome::Suspended, &[], (0, None)).unwrap();
    assert_eq!(refused(&session, &brings(1, false, None)), running);
    assert_eq!(refused(&session, &brings(1, true, None)), Some(StartRefused::Conflict), "what becomes of its calls?");
    let next = begin(&mut session, "r2", brings(1, true, Some("\"abandoned\""))).unwrap();
    assert_eq!(next.superseded, Some(fence.run));
    let message = |write: &Write| match write {
        Write::Message(MessageRow { index, json, .. }) => Some((*index, json.clone())),
        _ => None,
    };
    let messages: Vec<_> = next.effects.writes.iter().filter_map(message).collect();
    assert_eq!(messages, [(2, "\"abandoned\"".to_owned()), (3, "\"0\"".to_owned())]);
}

#[test]
fn a_terminal_tells_what_is_durable() {
    let (storage, mut session, fence) = pushed();
    let said = |session: &Session| {
        let run = session.view().run().cloned().unwrap();
        run.last.map(|last| (run.id.to_string(), last.result.clone(), last.state.clone()))
    };
    let end = |session: &mut Session, fence: &Fence, result: &str, state: &str| {
        let number = session.expected(fence).unwrap();
        let commit = Commit { message: "said".into(), step_count: 1, state: Some(state.to_owned()) };
        let word = (number, Some(result.to_owned()));
        let effects = session.finish_pushed(NOW, fence, Outcome::Completed, &[Record::Commit(commit)], word).unwrap();
        storage.apply(&effects.writes).unwrap();
        effects.ticket
    };
    let first = end(&mut session, &fence, "{\"output\":1}", "1");
    assert_eq!(said(&session), None, "the end is written, and not durable");
    session.confirmed(first);
    let one = Some(("r1".to_owned(), Some("{\"output\":1}".to_owned()), Some("1".to_owned())));
    assert_eq!(said(&session), one);

    let next = begin(&mut session, "r2", brings(1, false, None)).unwrap();
    storage.apply(&next.effects.writes).unwrap();
    let second = end(&mut session, &next.fence, "{\"output\":2}", "2");
    assert_eq!(said(&session), one, "what the memory knows of a later run is not told yet");
    session.confirmed(next.effects.ticket);
    assert_eq!(said(&session), None, "it runs");
    session.confirmed(second);
    let two = Some(("r2".to_owned(), Some("{\"output\":2}".to_owned()), Some("2".to_owned())));
    assert_eq!(said(&session), two);
    let loaded = Session::load(storage.load().unwrap(), POLICY, true, Ticket::FIRST);
    assert_eq!(said(&loaded), two, "and it is read again");
}

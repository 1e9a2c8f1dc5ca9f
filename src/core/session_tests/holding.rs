//! Answers that come while their run is still writing.

use super::examples::{NOW, chunk, commit, reload, started};
use super::suspensions::begin;
use crate::core::command::{Due, Entry, RewindCause, WriteRefused};
use crate::core::error::Code;
use crate::core::run::{Fence, Outcome, RunStatus};
use crate::core::session::Session;
use crate::core::storage::Storage;
use crate::core::storage::double::Double;

fn texts(session: &Session) -> Vec<&str> {
    session.held().iter().map(|held| held.json.as_str()).collect()
}

/// A running run with two answers, one of them after a crash.
fn held() -> (Double, Session, Fence) {
    let (storage, mut session, fence) = started();
    storage.apply(&session.hold(&fence, vec!["\"a\"".into()]).unwrap().writes).unwrap();
    let mut session = reload(&storage);
    session.adopt(NOW, &fence);
    storage.apply(&session.hold(&fence, vec!["\"b\"".into()]).unwrap().writes).unwrap();
    (storage, session, fence)
}

#[test]
fn an_answer_is_held_over_a_crash_and_is_due_once_its_run_waits() {
    let (storage, mut session, fence) = held();
    assert_eq!((texts(&session), session.due(NOW)), (vec!["\"a\"", "\"b\""], None), "the run is writing");
    assert_eq!(session.log().head().get(), reload(&storage).log().head().get(), "nothing of it stands in the log");
    let effects = session.finish(NOW, &fence, Outcome::Suspended, &[commit("\"call\"", 1)]).unwrap();
    storage.apply(&effects.writes).unwrap();
    for mut session in [session, reload(&storage)] {
        assert_eq!((texts(&session), session.due(NOW)), (vec!["\"a\"", "\"b\""], Some(Due::Answered(fence.clone()))));
        assert!(session.alarm(NOW).is_some_and(|alarm| alarm > NOW), "somebody comes back for them");
        let effects = session.answer_held(&fence, &[chunk("answer"), commit("\"answered\"", 1)]).unwrap();
        assert_eq!((texts(&session).len(), session.due(NOW)), (0, None));
        assert_eq!(effects.chunks, 1);
    }
}

#[test]
fn what_is_told_is_gone_with_the_same_write() {
    let (storage, mut session, fence) = held();
    storage.apply(&session.finish(NOW, &fence, Outcome::Suspended, &[commit("1", 1)]).unwrap().writes).unwrap();
    storage.apply(&session.answer_held(&fence, &[commit("2", 1)]).unwrap().writes).unwrap();
    let stored = storage.load().unwrap().unwrap();
    assert_eq!((stored.held.len(), storage.message_at(1).unwrap().unwrap().json), (0, "2".to_owned()));
}

#[test]
fn every_other_end_and_every_other_run_drops_them() {
    for outcome in [Outcome::Completed, Outcome::Interrupted, Outcome::Failed(Code::ProducerLost)] {
        let (storage, mut session, fence) = held();
        storage.apply(&session.finish(NOW, &fence, outcome, &[]).unwrap().writes).unwrap();
        assert_eq!(
            (texts(&session), texts(&reload(&storage))),
            (Vec::<&str>::new(), Vec::<&str>::new()),
            "{outcome:?}"
        );
    }
    let (storage, mut session, fence) = held();
    let rewind = Entry::Rewind { keep: 1, input: None, cause: RewindCause::Retry };
    let next = begin(&mut session, "r2", rewind).unwrap();
    storage.apply(&next.effects.writes).unwrap();
    assert_eq!((texts(&session), texts(&reload(&storage))), (Vec::<&str>::new(), Vec::<&str>::new()));
    assert_eq!(session.hold(&fence, vec!["late".into()]), Err(WriteRefused::Superseded));
}

#[test]
fn only_a_run_that_is_writing_holds() {
    let (_, mut session, fence) = started();
    let _ = session.finish(NOW, &fence, Outcome::Suspended, &[commit("1", 1)]).unwrap();
    assert_eq!(session.hold(&fence, vec!["late".into()]), Err(WriteRefused::Ended));
    assert_eq!(
        (session.run().map(|run| run.status), texts(&session)),
        (Some(RunStatus::SuspendedClientTool), Vec::<&str>::new())
    );
}

//! Snapshots in each status: which fields there are (`spec/helix.md` section 6).

use serde_json::{Value, json};

use super::examples::{NOW, POLICY, at, chunk, commit, me, row, start, started};
use crate::core::error::{Code, Failure};
use crate::core::ids::CheckpointId;
use crate::core::log::Ticket;
use crate::core::run::StreamStatus;
use crate::core::run::{Outcome, RunStatus};
use crate::core::session::Session;
use crate::core::snapshot::{self, Reconnect, error_detail, fault_detail};
use crate::core::storage::{CheckpointKind, CheckpointRow, Storage, StorageError, Stored};
use crate::core::view::Fault;

fn snapshot(storage: &dyn Storage, session: &Session, seed: bool) -> Value {
    let snapshot = snapshot::read(session, &me(), "s1").unwrap();
    let rows = storage.messages(snapshot.message_count()).unwrap();
    snapshot.with_messages(&rows, seed).unwrap()
}

#[test]
fn active_before_and_after_a_commit() {
    let (storage, mut session, fence) = started();
    let before = json!({
        "sessionId": "s1",
        "messages": [{ "id": "u-r1" }],
        "streamSequence": 0,
        "reconnect": "/api/chat/s1/stream?since=0",
        "state": null,
        "status": "active",
        "latestTruncateCheckpointId": null,
        "checkpointId": "cp_salt_1",
        "stepCount": 0,
        "resumeMessageId": "msg_salt_1_1",
    });
    assert_eq!(snapshot(&storage, &session, false), before);
    let message = r#"{"id":"msg_salt_1_1","role":"assistant"}"#;
    let effects = session.append(&fence, &[chunk("a"), commit(message, 1), chunk("b")]).unwrap();
    storage.apply(&effects.writes).unwrap();
    let mut after = before;
    after["messages"] = json!([{ "id": "u-r1" }, { "id": "msg_salt_1_1", "role": "assistant" }]);
    after["streamSequence"] = json!(2);
    after["reconnect"] = json!("/api/chat/s1/stream?since=2");
    after["checkpointId"] = json!("cp_salt_2");
    after["stepCount"] = json!(1);
    assert_eq!(snapshot(&storage, &session, false), after);
    // A seed leaves out what its reader gets from the stream, and its cursor is the one before that.
    after["messages"] = json!([{ "id": "u-r1" }]);
    after["streamSequence"] = json!(0);
    after["reconnect"] = json!("/api/chat/s1/stream?since=0");
    assert_eq!(snapshot(&storage, &session, true), after);
}

#[test]
fn a_failure_is_told_alike_wherever_it_is_told() {
    let failure = Failure {
        retry_after_ms: Some(7_000),
        words: Some("Your limit is reached".into()),
        ..Failure::new(Code::ProviderRateLimited, "429")
    };
    for outcome in [Outcome::Failed(failure.code), Outcome::Interrupted] {
        let (storage, mut session, fence) = started();
        session.explain(&fence, &failure);
        let effects = session.finish(NOW, &fence, outcome, &[chunk("a")]).unwrap();
        storage.apply(&effects.writes).unwrap();
        assert_eq!(session.view().run().unwrap().fault, None, "nobody sees it before it is durable");
        session.confirmed(effects.ticket);
        let reloaded = Session::load(storage.load().unwrap(), POLICY, false, Ticket::FIRST);
        for session in [&session, &reloaded] {
            let row = session.run().unwrap();
            let live = session.view().run().unwrap().fault.clone();
            if outcome == Outcome::Interrupted {
                assert_eq!(
                    (live, row.retry_after_ms, row.error_text.as_deref()),
                    (None, None, None),
                    "another end won"
                );
                continue;
            }
            let fault = live.unwrap();
            assert_eq!(fault, Fault::of(row));
            assert_eq!((fault.words(), fault.retry_after_ms), ("Your limit is reached", Some(7_000)));
            let told = snapshot(&storage, session, false)["errorDetail"].clone();
            assert_eq!(told, fault_detail(&fault), "the snapshot has no text, and the wait");
            assert_eq!(told["retryAfterMs"], json!(7_000));
        }
    }
}

#[test]
fn ended_and_failed() {
    for (outcome, status, detail) in [
        (Outcome::Completed, "ended", None),
        (Outcome::Interrupted, "ended", None),
        (Outcome::Failed(Code::ProviderRateLimited), "failed", Some(Code::ProviderRateLimited)),
        (Outcome::Failed(Code::ProviderAuth), "failed", Some(Code::ProviderAuth)),
    ] {
        let (storage, mut session, fence) = started();
        let message = r#"{"id":"msg_salt_1_1"}"#;
        let effects = session.finish(NOW, &fence, outcome, &[chunk("a"), commit(message, 1), chunk("end")]).unwrap();
        storage.apply(&effects.writes).unwrap();
        let mut expected = json!({
            "sessionId": "s1",
            "messages": [{ "id": "u-r1" }, { "id": "msg_salt_1_1" }],
            "streamSequence": 3,
            "reconnect": "/api/chat/s1/stream?since=3",
            "state": null,
            "status": status,
            "latestTruncateCheckpointId": null,
            "checkpointId": "cp_salt_2",
            "stepCount": 1,
        });
        if let Some(code) = detail {
            expected["errorDetail"] = error_detail(code);
        }
        assert_eq!(snapshot(&storage, &session, false), expected);
        assert_eq!(snapshot(&storage, &session, true), expected, "nothing is in flight: a seed is the whole");
        let reloaded = Session::load(storage.load().unwrap(), POLICY, false, Ticket::FIRST);
        assert_eq!(snapshot(&storage, &reloaded, false), expected, "the same from the rows");
    }
}

#[test]
fn error_detail_has_no_free_text() {
    let expected = json!({ "code": "provider_rate_limited", "category": "provider", "retryable": true });
    assert_eq!(error_detail(Code::ProviderRateLimited), expected);
}

/// A session as its rows tell it, with this run and stream.
fn stored(run: Option<RunStatus>, stream: StreamStatus) -> Session {
    let (_, session, _) = started();
    let run = run.and_then(|status| session.run().cloned().map(|run| crate::core::storage::RunRow { status, ..run }));
    let stored = Stored {
        session: row(stream),
        run,
        checkpoint: None,
        truncated: None,
        last_block: None,
        calls: Vec::new(),
        held: Vec::new(),
        queue: Vec::new(),
    };
    Session::load(Some(stored), POLICY, true, Ticket::FIRST)
}

#[test]
fn the_run_decides_the_status() {
    use RunStatus::{
        Completed, Failed, Interrupted, Running, Superseded, SuspendedAwaitingChildren, SuspendedClientTool,
        SuspendedStepPartial,
    };
    let streams = [StreamStatus::Active, StreamStatus::Paused, StreamStatus::Ended, StreamStatus::Failed];
    for (run, expected) in [
        (Some(Running), ["active", "paused", "active", "active"]),
        (Some(SuspendedClientTool), ["paused"; 4]),
        (Some(SuspendedAwaitingChildren), ["paused"; 4]),
        (Some(SuspendedStepPartial), ["paused"; 4]),
        (Some(Failed), ["failed"; 4]),
        (Some(Completed), ["ended", "ended", "ended", "failed"]),
        (Some(Interrupted), ["ended", "ended", "ended", "failed"]),
        (Some(Superseded), ["ended", "ended", "ended", "failed"]),
        (None, ["ended", "ended", "ended", "failed"]),
    ] {
        for (stream, expected) in streams.into_iter().zip(expected) {
            let session = stored(run, stream);
            let body = snapshot::read(&session, &me(), "s1").unwrap().with_messages(&[], false).unwrap();
            assert_eq!(body["status"], expected, "{run:?} {stream:?}");
            let in_flight = matches!(expected, "active" | "paused");
            assert_eq!(body.get("resumeMessageId").is_some(), in_flight, "{run:?} {stream:?}");
            assert_eq!(body.get("errorDetail").is_some(), expected == "failed", "{run:?} {stream:?}");
            assert_eq!((&body["checkpointId"], &body["stepCount"]), (&Value::Null, &json!(0)));
        }
    }
}

#[test]
fn state_and_the_latest_rewind_are_told() {
    let (_, running, _) = started();
    let checkpoint = CheckpointRow {
        kind: CheckpointKind::Truncate,
        state: Some(r#"{"plan":["a"]}"#.into()),
        ..running.checkpoint().unwrap().clone()
    };
    let stored = Stored {
        session: row(StreamStatus::Ended),
        run: None,
        truncated: Some(CheckpointId::new("cp_salt_7")),
        checkpoint: Some(checkpoint),
        last_block: None,
        calls: Vec::new(),
        held: Vec::new(),
        queue: Vec::new(),
    };
    let session = Session::load(Some(stored), POLICY, false, Ticket::FIRST);
    let body = snapshot::read(&session, &me(), "s1").unwrap().with_messages(&[], false).unwrap();
    assert_eq!(body["state"], json!({ "plan": ["a"] }));
    assert_eq!(body["latestTruncateCheckpointId"], "cp_salt_7");
}

#[test]
fn a_message_that_is_not_json_is_corruption() {
    let (storage, session, _) = started();
    let mut rows = storage.messages(1).unwrap();
    rows[0].json = "{".into();
    let read = snapshot::read(&session, &me(), "s1").unwrap();
    assert_eq!(read.with_messages(&rows, false), Err(StorageError::Corrupt("message.json")));
}

#[test]
fn a_reconnect_is_told_what_its_snapshot_lacks() {
    let asked = |session: &Session, since| match snapshot::reconnect(session, &me(), since) {
        Reconnect::Nothing => "nothing",
        Reconnect::Whole(_) => "whole",
        Reconnect::Stale => "stale",
        Reconnect::Beyond(_) => "beyond",
    };
    let from = |session: &Session, cursors: [u64; 5]| cursors.map(|since| asked(session, Some(at(since))));
    let (_, mut session, fence) = started();
    assert_eq!(asked(&Session::load(None, POLICY, false, Ticket::FIRST), Some(at(7))), "nothing", "no session");
    assert_eq!((asked(&session, None), asked(&session, Some(at(1)))), ("whole", "whole"), "it says more");
    session.append(&fence, &[chunk("a"), commit(r#"{"id":"msg_salt_1"}"#, 1)]).unwrap();
    session.finish(NOW, &fence, Outcome::Suspended, &[chunk("b")]).unwrap();
    assert_eq!(from(&session, [0, 1, 2, 3, 4]), ["whole", "whole", "whole", "nothing", "beyond"]);
    assert_eq!(asked(&session, None), "whole", "a stock client does not say what it holds");
    session.finish(NOW, &fence, Outcome::Failed(Code::ProviderError), &[chunk("c")]).unwrap();
    assert_eq!(from(&session, [0, 2, 3, 4, 5]), ["whole", "whole", "whole", "nothing", "beyond"]);
    assert_eq!(asked(&session, None), "nothing");
    start(&mut session, "r2", &[chunk("run_started")]).unwrap();
    assert_eq!(from(&session, [0, 3, 4, 5, 6]), ["stale", "stale", "whole", "whole", "beyond"]);
}

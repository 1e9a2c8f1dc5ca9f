//! A session that an older build has stored, on native SQLite: read as it lies there, migrated by its first write.

use super::keys::{COLUMN_LIMIT, PARTS};
use super::native::Native;
use super::rows::{CallRow, HeldRow, Life, Pushed, QueuedRow, RunRow, Write};
use super::sql::{Sql, SqlStorage};
use super::{Storage, StorageError};
use crate::core::error::Code;
use crate::core::ids::{Cursor, MessageId, RequestKey, RunId, Sequence};
use crate::core::run::RunStatus;
use crate::core::time::{Millis, UnixMillis};
use crate::core::view::Fault;

/// The tables and rows as version 1 left them: it knew of no producers outside.
const VERSION_1: [&str; 10] = [
    "CREATE TABLE session (one INTEGER PRIMARY KEY CHECK (one = 1), version INTEGER NOT NULL, owner TEXT, salt TEXT NOT NULL, \
     created INTEGER NOT NULL, floor INTEGER NOT NULL, run TEXT, status TEXT NOT NULL) STRICT",
    "CREATE TABLE run (turn INTEGER PRIMARY KEY, id TEXT NOT NULL, status TEXT NOT NULL, entry TEXT NOT NULL, request_key TEXT, \
     input_hash TEXT, start INTEGER NOT NULL, end_ INTEGER, message_index INTEGER NOT NULL, message_id TEXT NOT NULL, \
     lease_until INTEGER NOT NULL, epoch INTEGER NOT NULL, attempts INTEGER NOT NULL, vocabulary TEXT NOT NULL, agent TEXT NOT NULL, \
     started INTEGER NOT NULL, ended INTEGER, error TEXT, retry_after_ms INTEGER) STRICT",
    "CREATE TABLE chunk_block (key INTEGER PRIMARY KEY, last INTEGER NOT NULL, run TEXT NOT NULL, attempt TEXT, bytes BLOB NOT NULL) STRICT",
    "CREATE TABLE message (key INTEGER PRIMARY KEY, id TEXT NOT NULL, role TEXT NOT NULL, run TEXT, json TEXT NOT NULL) STRICT",
    "CREATE TABLE checkpoint (key INTEGER PRIMARY KEY, id TEXT NOT NULL, kind TEXT NOT NULL, message_count INTEGER NOT NULL, \
     sequence INTEGER NOT NULL, step_count INTEGER NOT NULL, run TEXT NOT NULL, state TEXT) STRICT",
    "INSERT INTO session VALUES (1, 1, 'me', 'salt', 1000, 0, 'r1', 'active')",
    "INSERT INTO run VALUES (1, 'r1', 'running', 'send', 'key', 'hash', 0, NULL, 1, 'msg_salt_1', 31000, 1, 1, 'ui', 'default', 1000, \
     NULL, NULL, NULL)",
    "INSERT INTO chunk_block VALUES (1024, 2, 'r1', NULL, x'6162')",
    "INSERT INTO message VALUES (0, 'u1', 'user', 'r1', '\"hello\"')",
    "INSERT INTO checkpoint VALUES (1024, 'cp_salt_1', 'entry', 1, 0, 0, 'r1', NULL)",
];

/// The version that this build writes.
const VERSION: u64 = 7;

fn stored_by_version_1() -> SqlStorage<Native> {
    let storage = Native::open();
    for statement in VERSION_1 {
        storage.connection().run(statement, &[], &mut |_| Ok(())).unwrap();
    }
    Native::reopen(&storage)
}

fn number(storage: &SqlStorage<Native>, statement: &'static str) -> u64 {
    let mut number = None;
    let mut read = |row: &dyn super::cells::Cells| {
        number = row.integer(0);
        Ok(())
    };
    storage.connection().run(statement, &[], &mut read).unwrap();
    number.unwrap()
}

/// Columns of the table of runs, and the version that the session's row tells.
fn schema(storage: &SqlStorage<Native>) -> (u64, u64) {
    let columns = number(storage, "SELECT count(*) FROM pragma_table_info('run')");
    (columns, number(storage, "SELECT version FROM session"))
}

fn extend() -> Write {
    Write::ExtendBlock { key: PARTS, last: Sequence::new(3).unwrap(), bytes: b"c".to_vec() }
}

fn all(storage: &SqlStorage<Native>) -> (RunRow, String) {
    let stored = storage.load().unwrap().unwrap();
    let checkpoint = storage.rewind_point(&stored.checkpoint.as_ref().unwrap().id).unwrap();
    assert_eq!(checkpoint, stored.checkpoint, "the table of runs is looked into");
    let run = stored.run.unwrap();
    assert_eq!(storage.run(&run.id).unwrap(), Some(run.clone()));
    assert_eq!(storage.run_of_key(&RequestKey::parse("key").unwrap()).unwrap(), Some(run.clone()));
    let rest = (stored.session, storage.messages(1).unwrap(), storage.kept(Cursor::START).unwrap().runs);
    (run, format!("{rest:?}"))
}

#[test]
fn a_session_of_version_1_is_read_as_it_is() {
    let storage = stored_by_version_1();
    let (run, _) = all(&storage);
    assert_eq!((run.status, run.push.as_ref(), run.retry_after_ms), (RunStatus::Running, None, None));
    assert_eq!(storage.blocks(Cursor::START, 99).unwrap()[0].bytes, b"ab");
    assert_eq!(schema(&storage), (19, 1), "reading migrates nothing");
}

#[test]
fn a_session_of_version_2_is_read_and_migrated() {
    let storage = stored_by_version_1();
    for statement in [
        "ALTER TABLE run ADD COLUMN push TEXT",
        "UPDATE session SET version = 2",
        "UPDATE run SET push = '{\"lease\":9,\"next\":7,\"at\":2}'",
    ] {
        storage.connection().run(statement, &[], &mut |_| Ok(())).unwrap();
    }
    let storage = Native::reopen(&storage);
    let before = all(&storage);
    assert_eq!((before.0.push.as_ref().unwrap().next, &before.0.life), (7, &Life::default()));
    storage.apply(&[extend()]).unwrap();
    assert_eq!((schema(&storage), all(&Native::reopen(&storage))), ((24, VERSION), before));
}

#[test]
fn its_first_write_migrates_it() {
    for restarts in [false, true] {
        let mut storage = stored_by_version_1();
        let before = all(&storage);
        storage.apply(&[extend()]).unwrap();
        if restarts {
            storage = Native::reopen(&storage);
        }
        assert_eq!((schema(&storage), all(&storage)), ((24, VERSION), before.clone()));
        assert_eq!(storage.blocks(Cursor::START, 99).unwrap()[0].bytes, b"abc");
        let extend = Write::ExtendBlock { key: PARTS, last: Sequence::new(4).unwrap(), bytes: b"d".to_vec() };
        assert_eq!(storage.apply(&[extend]), Ok(1), "once");
        let push =
            Some(Pushed { lease: Millis::new(9), next: 7, at: Cursor::new(3).unwrap(), result: Some("{}".into()) });
        let life = Life { deaths: 2, again_at: Some(UnixMillis::new(5)), unfollowed: Some(UnixMillis::new(6)) };
        let row = RunRow { push, life, ..before.0 };
        storage.apply(&[Write::Run(row.clone())]).unwrap();
        assert_eq!(Native::reopen(&storage).run(&RunId::new("r1")).unwrap(), Some(row));
    }
}

/// The same session as version 2 left it: its run was a producer's outside, and has failed.
fn stored_by_version_2() -> SqlStorage<Native> {
    let storage = stored_by_version_1();
    for statement in [
        "ALTER TABLE run ADD COLUMN push TEXT",
        "UPDATE run SET push = '{\"lease\":9,\"next\":7,\"at\":3}', status = 'failed', error = 'provider_error', retry_after_ms = 7",
        "UPDATE session SET version = 2, status = 'failed'",
    ] {
        storage.connection().run(statement, &[], &mut |_| Ok(())).unwrap();
    }
    Native::reopen(&storage)
}

#[test]
fn a_failure_of_version_2_is_told_in_its_codes_words() {
    let storage = stored_by_version_2();
    let (run, rest) = all(&storage);
    assert_eq!(run.push.as_ref().map(|push| (push.next, push.result.clone())), Some((7, None)));
    let fault = Fault::of(&run);
    assert_eq!((fault.words(), fault.retry_after_ms), (Code::ProviderError.message(), Some(7)));
    storage.apply(&[extend()]).unwrap();
    assert_eq!((schema(&storage), all(&storage)), ((24, VERSION), (run.clone(), rest)));
    let told = RunRow { error_text: Some("Your plan is used up".into()), ..run };
    storage.apply(&[Write::Run(told.clone())]).unwrap();
    let read = Native::reopen(&storage).run(&told.id).unwrap().unwrap();
    assert_eq!((Fault::of(&read).words(), &read), ("Your plan is used up", &told));
}

#[test]
fn a_session_of_version_3_may_hold_answers() {
    let storage = stored_by_version_1();
    for statement in [
        "ALTER TABLE run ADD COLUMN push TEXT",
        "ALTER TABLE run ADD COLUMN error_text TEXT",
        "UPDATE session SET version = 3",
    ] {
        storage.connection().run(statement, &[], &mut |_| Ok(())).unwrap();
    }
    let storage = Native::reopen(&storage);
    let before = all(&storage);
    assert_eq!((schema(&storage), storage.load().unwrap().unwrap().held), ((21, 3), Vec::new()));
    assert_eq!(storage.counts().unwrap().len(), 5);
    let held = HeldRow { ordinal: 1, json: "{}".into() };
    storage.apply(&[Write::Hold(held.clone())]).unwrap();
    assert_eq!((schema(&storage), all(&storage)), ((24, VERSION), before));
    assert_eq!(Native::reopen(&storage).load().unwrap().unwrap().held, [held]);
}

#[test]
fn a_first_write_that_fails_leaves_it_as_it_was() {
    let storage = stored_by_version_1();
    let before = all(&storage);
    let missing = Write::ExtendBlock { key: 9 * PARTS, last: Sequence::new(9).unwrap(), bytes: b"c".to_vec() };
    assert_eq!(storage.apply(&[extend(), missing]), Err(StorageError::Corrupt("the open block is gone")));
    assert_eq!((schema(&storage), all(&storage)), ((19, 1), before.clone()));
    storage.apply(&[extend()]).unwrap();
    assert_eq!((schema(&storage), all(&storage)), ((24, VERSION), before));
}

#[test]
fn the_calls_in_its_messages_have_taken_their_ids() {
    let storage = stored_by_version_1();
    for statement in [
        r#"INSERT INTO message VALUES (1024, 'a1', 'assistant', 'r1', '{"parts": [{"type": "step-start"}, {"toolCallId": "c"}, 7, {"toolCallId": 7}, {"toolCallId": "d"}]}')"#,
        r#"INSERT INTO message VALUES (2048, 'a2', 'assistant', 'gone', '{"parts": [{"toolCallId": "c"}]}')"#,
        r#"INSERT INTO message VALUES (3072, 'a3', 'assistant', 'r1', 'no JSON')"#,
        r#"INSERT INTO message VALUES (4096, 'a4', 'assistant', 'r1', '{"parts": {"toolCallId": "e"}}')"#,
    ] {
        storage.connection().run(statement, &[], &mut |_| Ok(())).unwrap();
    }
    let call = |id: &str, turn: u32| CallRow { id: id.into(), own: None, turn };
    let calls = [call("c", 1), call("d", 1), call("c", 0)];
    assert_eq!(storage.load().unwrap().unwrap().calls, calls, "before the first write");
    storage.apply(&[extend(), Write::Call(CallRow { own: Some("c".into()), ..call("c_2", 2) })]).unwrap();
    let after = Native::reopen(&storage).load().unwrap().unwrap().calls;
    assert_eq!((&after[..3], after[3].own.as_deref()), (&calls[..], Some("c")));
}

#[test]
fn it_is_removed_without_being_migrated() {
    let storage = stored_by_version_1();
    storage.apply(&[Write::DropAll]).unwrap();
    assert_eq!((storage.load(), storage.counts()), (Ok(None), Ok(Vec::new())));
}

#[test]
fn a_session_of_version_6_has_no_queue_until_its_first_write() {
    let storage = stored_by_version_1();
    for statement in [
        "ALTER TABLE run ADD COLUMN push TEXT",
        "ALTER TABLE run ADD COLUMN error_text TEXT",
        "CREATE TABLE call (key INTEGER PRIMARY KEY, id TEXT NOT NULL, own TEXT, turn INTEGER NOT NULL) STRICT",
        "CREATE TABLE held_answer (key INTEGER PRIMARY KEY, json TEXT NOT NULL) STRICT",
        "ALTER TABLE run ADD COLUMN deaths INTEGER",
        "ALTER TABLE run ADD COLUMN again_at INTEGER",
        "ALTER TABLE run ADD COLUMN unfollowed INTEGER",
        "UPDATE session SET version = 6",
    ] {
        storage.connection().run(statement, &[], &mut |_| Ok(())).unwrap();
    }
    let storage = Native::reopen(&storage);
    let stored = storage.load().unwrap().unwrap();
    assert_eq!((stored.queue, storage.queued(1), storage.counts().unwrap().len()), (Vec::new(), Ok(None), 7));
    let row = QueuedRow {
        place: 1,
        message: MessageId::new("u2"),
        run: RunId::new("r2"),
        agent: "default".into(),
        request_key: None,
        input_hash: "hash".into(),
        origin: None,
        queued: UnixMillis::new(9),
        json: "x".repeat(COLUMN_LIMIT + 1),
    };
    storage.apply(&[Write::Enqueue(row.clone())]).unwrap();
    assert_eq!(schema(&storage), (24, VERSION));
    let storage = Native::reopen(&storage);
    let queue = storage.load().unwrap().unwrap().queue;
    assert_eq!(
        (queue, storage.queued(1)),
        (vec![QueuedRow { json: String::new(), ..row.clone() }], Ok(Some(row.json)))
    );
    storage.apply(&[Write::Dequeue(1)]).unwrap();
    assert_eq!(storage.counts().unwrap().last(), Some(&("queued".to_owned(), 0)), "with all of its parts");
}

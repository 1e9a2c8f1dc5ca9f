//! The contract on the double and on native SQLite: the file, large values, and random scripts.

use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::contract::{Operation, perform};
use super::double::Double;
use super::keys::{COLUMN_LIMIT, PARTS};
use super::native::Native;
use super::rows::{
    BlockRow, CallRow, CheckpointKind, CheckpointRow, Life, MessageRow, Pushed, RunRow, SessionRow, Write,
};
use super::{Storage, StorageError};
use crate::core::error::Code;
use crate::core::ids::{AttemptId, CheckpointId, Cursor, MessageId, RequestKey, RunId, Sequence};
use crate::core::run::StreamStatus;
use crate::core::run::{EntryKind, RunStatus, Vocabulary};
use crate::core::time::{Millis, UnixMillis};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/contract/storage.json");

#[derive(Serialize, Deserialize)]
struct Step {
    about: String,
    operation: Operation,
    outcome: Value,
}

fn script() -> Vec<Step> {
    serde_json::from_str(&std::fs::read_to_string(FILE).unwrap()).unwrap()
}

fn run_script(storage: &dyn Storage) {
    for (at, step) in script().iter().enumerate() {
        let outcome = perform(storage, &step.operation);
        assert_eq!(outcome, step.outcome, "step {at}: {} {:?}", step.about, step.operation);
    }
}

#[test]
fn the_double_keeps_the_contract() {
    run_script(&Double::new());
}

#[test]
fn native_sqlite_keeps_the_contract() {
    run_script(&Native::open());
}

#[test]
fn native_sqlite_keeps_the_contract_with_nothing_in_memory() {
    let mut storage = Native::open();
    for (at, step) in script().iter().enumerate() {
        storage = Native::reopen(&storage);
        assert_eq!(perform(&storage, &step.operation), step.outcome, "step {at}: {}", step.about);
    }
}

/// `cargo test regenerate -- --ignored` fills the file's outcomes in from the double; read the difference before you keep it.
#[test]
#[ignore = "writes tests/contract/storage.json"]
fn regenerate() {
    let double = Double::new();
    let lines: Vec<_> = script()
        .into_iter()
        .map(|step| {
            let outcome = perform(&double, &step.operation);
            serde_json::to_string(&Step { outcome, ..step }).unwrap()
        })
        .collect();
    std::fs::write(FILE, format!("[\n{}\n]\n", lines.join(",\n"))).unwrap();
}

fn both(test: impl Fn(&dyn Storage)) {
    test(&Double::new());
    test(&Native::open());
}

fn session() -> SessionRow {
    SessionRow {
        owner: None,
        salt: "s".into(),
        created: UnixMillis::new(1),
        floor: Cursor::START,
        run: Some(RunId::new("r1")),
        status: StreamStatus::Active,
    }
}

fn message(index: u32, json: String) -> Write {
    let id = MessageId::new(format!("m{index}"));
    Write::Message(MessageRow { index, id, role: "user".into(), run: None, json })
}

fn checkpoint(ordinal: u32, state: Option<String>) -> Write {
    Write::Checkpoint(CheckpointRow {
        ordinal,
        id: CheckpointId::new(format!("cp{ordinal}")),
        kind: CheckpointKind::Step,
        message_count: 0,
        sequence: Cursor::START,
        step_count: 0,
        state,
        run: RunId::new("r1"),
    })
}

fn block(first: u64, part: u64, last: u64, bytes: Vec<u8>) -> Write {
    let last = Sequence::new(last).unwrap();
    let attempt = last.get().is_multiple_of(2).then(|| AttemptId::new("a"));
    Write::OpenBlock(BlockRow { key: first * PARTS + part, last, run: RunId::new("r1"), attempt, bytes })
}

#[test]
fn large_messages_and_states_are_split_and_put_together() {
    // Four bytes a letter and an offset of one: the limit falls into the middle of a character.
    let large = |letters: usize| format!("x{}", "🐙".repeat(letters));
    let three_parts = large(COLUMN_LIMIT / 2);
    both(|storage| {
        storage.apply(&[Write::Session(session()), message(0, three_parts.clone()), message(1, "b".into())]).unwrap();
        storage.apply(&[checkpoint(1, Some(three_parts.clone()))]).unwrap();
        let rows = storage.messages(2).unwrap();
        assert!(rows[0].json == three_parts && rows[1].json == "b");
        assert!(storage.message("m0", 2).unwrap().unwrap().json == three_parts);
        assert!(storage.message_at(0).unwrap().unwrap().json == three_parts);
        let places = storage.places(2).unwrap();
        assert_eq!(places.iter().map(|place| place.id.as_str()).collect::<Vec<_>>(), ["m0", "m1"], "one a message");
        assert!(storage.load().unwrap().unwrap().checkpoint.unwrap().state.unwrap() == three_parts);
        let Write::Checkpoint(row) = checkpoint(9, Some(three_parts.clone())) else { panic!("no checkpoint") };
        storage.apply(&[Write::Checkpoint(CheckpointRow { kind: CheckpointKind::Entry, ..row })]).unwrap();
        let point = storage.rewind_point(&CheckpointId::new("cp9")).unwrap().unwrap();
        assert!(point.ordinal == 9 && point.state.unwrap() == three_parts);

        storage.apply(&[message(0, large(10))]).unwrap();
        assert_eq!(storage.messages(1).unwrap()[0].json, large(10), "no part of the larger text is left");
        storage.apply(&[message(0, "y".repeat(COLUMN_LIMIT))]).unwrap();
        storage.apply(&[Write::TruncateMessages(1), checkpoint(10, None)]).unwrap();
        assert_eq!(storage.messages(1).unwrap()[0].json.len(), COLUMN_LIMIT);
        assert_eq!(storage.load().unwrap().unwrap().checkpoint.unwrap().state, None);
    });
}

#[test]
fn a_block_over_the_limit_is_refused_with_its_list() {
    both(|storage| {
        storage.apply(&[Write::Session(session()), block(1, 0, 1, vec![7; COLUMN_LIMIT])]).unwrap();
        let before = storage.load().unwrap();
        let large = [message(0, "{}".into()), block(2, 0, 2, vec![7; COLUMN_LIMIT + 1])];
        assert_eq!(storage.apply(&large), Err(StorageError::TooLarge(COLUMN_LIMIT + 1)));
        let grown = Write::ExtendBlock { key: PARTS, last: Sequence::new(2).unwrap(), bytes: vec![7] };
        assert_eq!(storage.apply(&[grown]), Err(StorageError::TooLarge(COLUMN_LIMIT + 1)));
        assert!(storage.load().unwrap() == before);
        assert_eq!(storage.messages(1), Err(StorageError::Short("a message is missing")));
    });
}

#[test]
fn a_trim_is_one_row_a_block_and_one_of_the_session() {
    let storage = Native::open();
    let blocks =
        [block(1, 0, 2, vec![7; 10]), block(3, 0, 3, vec![7; 9]), block(3, 1, 3, vec![7]), block(4, 0, 5, vec![7])];
    storage.apply(&[&[Write::Session(session())], &blocks[..]].concat()).unwrap();
    let trim = |through| Write::TrimBlocks(Cursor::new(through).unwrap());
    assert_eq!(storage.apply(&[Write::Session(session()), trim(3)]), Ok(4));
    assert_eq!(storage.apply(&[Write::Session(session()), trim(3)]), Ok(1), "nothing is left to remove");
    assert_eq!(storage.blocks(Cursor::START, 99).unwrap().len(), 1);
}

#[test]
fn a_flush_is_one_row_and_a_large_chunk_one_a_part() {
    let storage = Native::open();
    storage.apply(&[Write::Session(session()), block(1, 0, 1, vec![7; 10])]).unwrap();
    let extend = Write::ExtendBlock { key: PARTS, last: Sequence::new(2).unwrap(), bytes: vec![7; 10] };
    assert_eq!(storage.apply(&[extend]), Ok(1));
    assert_eq!(storage.apply(&[block(3, 0, 3, vec![7])]), Ok(1));
    let parts = [block(4, 0, 4, vec![7; COLUMN_LIMIT]), block(4, 1, 4, vec![7])];
    assert_eq!(storage.apply(&parts), Ok(2));
    assert_eq!(storage.apply(&[message(0, "{}".into()), checkpoint(1, None), Write::Session(session())]), Ok(3));
    assert_eq!(storage.apply(&[message(0, "{\"replaced\":1}".into())]), Ok(1));
}

fn kinds() -> impl Strategy<Value = CheckpointKind> {
    use CheckpointKind::{End, Entry, Step, Truncate};
    prop_oneof![Just(Entry), Just(Step), Just(End), Just(Truncate)]
}

fn writes() -> impl Strategy<Value = Write> {
    let text = || prop_oneof!["[a-z]{0,4}", "\\PC{0,8}"];
    let status = prop_oneof![Just(StreamStatus::Active), Just(StreamStatus::Failed)];
    prop_oneof![
        3 => (proptest::option::of(text()), text(), status).prop_map(|(owner, salt, status)| {
            Write::Session(SessionRow { owner, salt, status, ..session() })
        }),
        3 => (0_u32..4, 0_u32..4, proptest::option::of(0_u64..14), any::<bool>()).prop_map(|(turn, id, end, failed)| {
            Write::Run(RunRow {
                turn,
                id: RunId::new(format!("r{id}")),
                status: if failed { RunStatus::Failed } else { RunStatus::Running },
                entry: if id == 1 && turn % 2 == 1 { EntryKind::ToolResult } else { EntryKind::Send },
                request_key: failed.then(|| format!("key{}", id % 2)),
                input_hash: None,
                start: Cursor::new(u64::from(turn) * 3).unwrap(),
                end: end.map(|end| Cursor::new(end).unwrap()),
                message_index: id,
                message_id: MessageId::new("m"),
                lease_until: UnixMillis::new(5),
                epoch: 1,
                attempts: 1,
                vocabulary: Vocabulary::Ui,
                agent: "default".into(),
                started: UnixMillis::new(4),
                ended: end.map(UnixMillis::new),
                error: failed.then_some(Code::ProducerLost),
                retry_after_ms: failed.then_some(7_000),
                error_text: failed.then(|| format!("no {id}")),
                push: (turn > 1).then(|| Pushed {
                    lease: Millis::new(5),
                    next: u64::from(id),
                    at: Cursor::START,
                    result: failed.then(|| format!("\"{id}\"")),
                }),
                life: Life {
                    deaths: id,
                    again_at: failed.then_some(UnixMillis::new(6)),
                    unfollowed: (turn == 1).then_some(UnixMillis::new(7)),
                },
            })
        }),
        // As in a log, blocks never overlap: they start at 1, 5 and 9; the one at 13 is a chunk in parts.
        6 => (0_u64..3, 0_u64..4, prop::collection::vec(any::<u8>(), 0..6)).prop_map(|(at, more, bytes)| {
            block(at * 4 + 1, 0, at * 4 + 1 + more, bytes)
        }),
        2 => (0_u64..3, prop::collection::vec(any::<u8>(), 0..6)).prop_map(|(part, bytes)| block(13, part, 13, bytes)),
        4 => (0_u64..3, 0_u64..4, prop::collection::vec(any::<u8>(), 0..6)).prop_map(|(at, more, bytes)| {
            Write::ExtendBlock { key: (at * 4 + 1) * PARTS, last: Sequence::new(at * 4 + 1 + more).unwrap(), bytes }
        }),
        4 => (0_u32..5, text()).prop_map(|(index, json)| message(index, json)),
        2 => (0_u64..18).prop_map(|through| Write::TrimBlocks(Cursor::new(through).unwrap())),
        1 => (0_u32..5).prop_map(Write::TruncateMessages),
        6 => (1_u32..9, proptest::option::of(text()), kinds(), 0_u32..4).prop_map(|(ordinal, state, kind, message_count)| {
            match checkpoint(ordinal, state) {
                Write::Checkpoint(row) => Write::Checkpoint(CheckpointRow { kind, message_count, ..row }),
                write => write,
            }
        }),
        2 => (0_u32..3, 0_u32..4).prop_map(|(id, turn)| {
            let own = (id > 0).then(|| "c".to_owned());
            Write::Call(CallRow { id: format!("c_{id}"), own, turn })
        }),
        1 => Just(Write::DropAll),
    ]
}

fn operations() -> impl Strategy<Value = Operation> {
    prop_oneof![
        2 => Just(Operation::Load),
        8 => prop::collection::vec(writes(), 0..4).prop_map(Operation::Apply),
        2 => (0_u64..18, 0_usize..20).prop_map(|(cursor, bytes)| Operation::Blocks(Cursor::new(cursor).unwrap(), bytes)),
        1 => (0_u32..6).prop_map(Operation::Messages),
        1 => (0_u32..6, 0_u32..6).prop_map(|(id, count)| Operation::Message(format!("m{id}"), count)),
        1 => (0_u32..6).prop_map(Operation::MessageAt),
        1 => (0_u32..6).prop_map(Operation::Places),
        1 => (0_u32..3).prop_map(|key| Operation::RunOfKey(RequestKey::parse(&format!("key{key}")).unwrap())),
        2 => (1_u32..9).prop_map(|ordinal| Operation::RewindPoint(CheckpointId::new(format!("cp{ordinal}")))),
        1 => (0_u32..5).prop_map(|id| Operation::Run(RunId::new(format!("r{id}")))),
        1 => (0_u32..5).prop_map(Operation::RunAt),
        2 => (0_u64..9).prop_map(|floor| Operation::Kept(Cursor::new(floor).unwrap())),
        1 => Just(Operation::Counts),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]
    #[test]
    fn random_scripts_have_the_same_outcomes(
        first in proptest::option::of(Just(Operation::Apply(vec![Write::Session(session())]))),
        script in prop::collection::vec((operations(), prop::bool::weighted(0.1)), 1..40),
    ) {
        let (double, mut native) = (Double::new(), Native::open());
        let script = first.into_iter().map(|operation| (operation, false)).chain(script);
        for (operation, restart) in script {
            if restart {
                native = Native::reopen(&native);
            }
            prop_assert_eq!(perform(&double, &operation), perform(&native, &operation), "{:?}", operation);
        }
    }
}

#[test]
fn steps_are_plain_json() {
    let operation = Operation::Blocks(Cursor::new(7).unwrap(), 100);
    assert_eq!(serde_json::to_value(operation).unwrap(), json!({ "blocks": [7, 100] }));
    assert_eq!(serde_json::to_value(Operation::Load).unwrap(), json!("load"));
}

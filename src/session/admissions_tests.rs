//! What is carried on of a pushed run is what its rows say.

use serde_json::{Value, json};

use super::admissions::{Admissions, admit_all};
use crate::core::caller::Caller;
use crate::core::chunk::Chunk;
use crate::core::command::{Effects, Entry, Start};
use crate::core::ids::RunId;
use crate::core::log::Ticket;
use crate::core::record::Record;
use crate::core::retention::Policy;
use crate::core::run::{Fence, Vocabulary};
use crate::core::session::Session;
use crate::core::storage::Storage;
use crate::core::storage::double::Double;
use crate::core::time::{Millis, UnixMillis};
use crate::dialect::push::admit::Admission;
use crate::dialect::ui::response::OPENING_CHUNKS;

const NOW: UnixMillis = UnixMillis::new(1_000_000);
const LEASE: Millis = Millis::new(30_000);
const POLICY: Policy =
    Policy { lease: LEASE, retention: Millis::new(86_400_000), ttl: None, max_bytes: 1 << 20, detached: None };

struct Object {
    storage: Double,
    session: Session,
    known: Admissions,
    fence: Fence,
}

impl Object {
    /// A run that a producer outside has opened.
    fn opened() -> Self {
        let storage = Double::new();
        let mut session = Session::load(None, POLICY, false, Ticket::FIRST);
        let start = Start {
            now: NOW,
            caller: &Caller::Anonymous,
            run: RunId::new("r"),
            salt: "salt",
            agent: "",
            vocabulary: Vocabulary::Ui,
            lease: LEASE,
            key: None,
            entry: Entry::Push { inputs: Vec::new(), supersede: false, abandoned: None },
            push: Some(LEASE),
            state: None,
        };
        let plan = session.plan(start).unwrap();
        let opening: Vec<Record> = (0..OPENING_CHUNKS)
            .map(|n| Record::Chunk { chunk: Chunk::new("data-opening").with("data", n), attempt: None })
            .collect();
        let started = session.start(plan, &opening).unwrap();
        let fence = started.fence.clone();
        let mut object = Self { storage, session, known: Admissions::default(), fence };
        object.apply(&started.effects);
        object
    }

    fn apply(&mut self, effects: &Effects) {
        self.storage.apply(&effects.writes).unwrap();
        self.session.confirmed(effects.ticket);
    }

    fn take(&mut self) -> Admission {
        let run = self.session.run().unwrap().clone();
        self.known.take(&self.session, &self.storage, &run).unwrap()
    }

    fn push(&mut self, chunks: Vec<Value>) {
        let mut admission = self.take();
        let records = admit_all(&self.session, &self.storage, &mut admission, chunks).unwrap();
        let effects = self.session.append(&self.fence, &records).unwrap();
        self.apply(&effects);
        self.known.keep(&self.session, &self.fence, admission);
    }
}

fn text(delta: &str) -> Value {
    json!({ "type": "text-delta", "id": "t", "delta": delta })
}

#[test]
fn what_is_kept_of_a_run_is_what_its_rows_say() {
    let mut object = Object::opened();
    object.push(vec![json!({ "type": "text-start", "id": "t" }), text("a")]);
    object.push(vec![text("b")]);
    let kept = object.take();
    object.known.forget();
    let read = object.take();
    assert_eq!((kept.at(), kept.message()), (read.at(), read.message()));
    assert_eq!(read.at(), object.session.log().head());
    assert_eq!(read.message().unwrap()["parts"][0]["text"], "ab");
}

#[test]
fn what_was_written_by_somebody_else_is_read() {
    let mut object = Object::opened();
    object.push(vec![json!({ "type": "text-start", "id": "t" }), text("a")]);
    let elsewhere = Record::Chunk { chunk: Chunk::new("text-delta").with("id", "t").with("delta", "b"), attempt: None };
    let effects = object.session.append(&object.fence, &[elsewhere]).unwrap();
    object.apply(&effects);
    assert_eq!(object.take().message().unwrap()["parts"][0]["text"], "ab");
}

#[test]
fn a_refused_chunk_leaves_the_others_unsaid() {
    let mut object = Object::opened();
    let mut admission = object.take();
    let chunks = vec![json!({ "type": "text-start", "id": "t" }), json!({ "no": "type" })];
    let refused = admit_all(&object.session, &object.storage, &mut admission, chunks).unwrap_err();
    assert_eq!(refused.index, 1);
    assert_eq!(object.take().message(), None, "nothing of it was kept");
}

#[test]
fn a_run_that_is_broken_off_says_what_it_has() {
    let mut object = Object::opened();
    object.push(vec![json!({ "type": "text-start", "id": "t" }), text("so far")]);
    let run = object.session.run().unwrap().clone();
    let last = object.known.last_words(&object.session, &object.storage, &run).unwrap();
    let committed = last.iter().find_map(|record| match record {
        Record::Commit(commit) => Some(commit.message["parts"][0]["text"].clone()),
        _ => None,
    });
    assert_eq!(committed, Some("so far".into()));
}

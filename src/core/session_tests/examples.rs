//! What the literal examples begin with.

use crate::core::caller::Caller;
use crate::core::chunk::Chunk;
use crate::core::command::{Entry, Input, Start, StartRefused, Started};
use crate::core::ids::{AttemptId, Cursor, MessageId, RunId};
use crate::core::log::Ticket;
use crate::core::record::{Commit, Record};
use crate::core::retention::Policy;
use crate::core::run::StreamStatus;
use crate::core::run::{Fence, Vocabulary};
use crate::core::session::Session;
use crate::core::storage::double::Double;
use crate::core::storage::{SessionRow, Storage};
use crate::core::time::{Millis, UnixMillis};

pub const LEASE: Millis = Millis::new(30_000);
pub const POLICY: Policy =
    Policy { lease: LEASE, retention: Millis::new(86_400_000), ttl: None, max_bytes: 1 << 30, detached: None };
pub const NOW: UnixMillis = UnixMillis::new(1_000_000);

pub fn at(cursor: u64) -> Cursor {
    Cursor::new(cursor).unwrap()
}

pub fn me() -> Caller {
    Caller::Owner("me".into())
}

/// A chunk of no attempt, with this text.
pub fn chunk(text: &str) -> Record {
    Record::Chunk { chunk: Chunk::new("text-delta").with("delta", text), attempt: None }
}

pub fn chunk_of(attempt: u32, text: &str) -> Record {
    let attempt = Some((AttemptId::new(format!("a{attempt}")), attempt));
    Record::Chunk { chunk: Chunk::new("text-delta").with("id", "t1").with("delta", text), attempt }
}

pub fn commit(json: &str, step_count: u32) -> Record {
    Record::Commit(Commit { message: serde_json::from_str(json).unwrap(), step_count, state: None })
}

pub fn row(status: StreamStatus) -> SessionRow {
    let (owner, run) = (Some("me".into()), Some(RunId::new("r1")));
    SessionRow { owner, salt: "salt".into(), created: NOW, floor: Cursor::START, run, status }
}

/// A new user message while nothing is suspended.
pub fn send(id: &str) -> Entry {
    let input = Input { id: MessageId::new(id), json: format!("{{\"id\":\"{id}\"}}") };
    Entry::Send { input, abandoned: None }
}

/// What starts a run of an agent in the object.
pub fn wish<'a>(caller: &'a Caller, run: &str, entry: Entry) -> Start<'a> {
    Start {
        now: NOW,
        caller,
        run: RunId::new(run),
        salt: "salt",
        agent: "default",
        vocabulary: Vocabulary::Ui,
        lease: LEASE,
        key: None,
        entry,
        push: None,
        state: None,
    }
}

pub fn start(session: &mut Session, run: &str, opening: &[Record]) -> Result<Started, StartRefused> {
    let plan = session.plan(wish(&me(), run, send(&format!("u-{run}"))))?;
    session.start(plan, opening)
}

/// A session with one running run that has one chunk, stored and confirmed.
pub fn started() -> (Double, Session, Fence) {
    let (storage, mut session) = (Double::new(), Session::load(None, POLICY, false, Ticket::FIRST));
    let started = start(&mut session, "r1", &[chunk("run_started")]).unwrap();
    storage.apply(&started.effects.writes).unwrap();
    storage.sync();
    session.confirmed(started.effects.ticket);
    (storage, session, started.fence)
}

/// The session that the rows tell of, in an object whose producer lives; its size was looked up.
pub fn reload(storage: &dyn Storage) -> Session {
    let mut session = Session::load(storage.load().unwrap(), POLICY, true, Ticket::FIRST);
    session.retain(NOW, &storage.kept(session.log().floor()).unwrap(), 0);
    session
}

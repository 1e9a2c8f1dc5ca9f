//! Stands in for the calls that the session's engine does not hear yet: a producer from outside that opens a run, appends and ends it, and
//! `/sse`. What is the engine's own (its image, what is durable of it, the alarm) is driven as in the object.

use std::collections::BTreeMap;

use rejoin::core::caller::Caller;
use rejoin::core::chunk::Chunk;
use rejoin::core::command::{Due, Effects, Entry, Start, StartRefused, WriteRefused};
use rejoin::core::engine::action::{Action, Head, Rests};
use rejoin::core::engine::answer::Answer;
use rejoin::core::engine::event::{Ask, Event};
use rejoin::core::engine::ids::Exchange;
use rejoin::core::engine::{Engine, Turn};
use rejoin::core::error::Code;
use rejoin::core::ids::{Cursor, RunId};
use rejoin::core::log::Batch;
use rejoin::core::reader::{Next, Reader, Scope};
use rejoin::core::record::Record;
use rejoin::core::run::{Fence, Outcome, Vocabulary};
use rejoin::core::storage::{Storage, StorageError};
use rejoin::core::time::Millis;
use rejoin::dialect::wire;
use rejoin::session::call::SessionCall;
use rejoin::session::engine::SessionEngine;
use rejoin::session::turn::Rows;
use serde_json::json;

/// How long a producer may be silent.
pub const LEASE: Millis = Millis::new(2_000);
/// How long until the storage is tried again.
const RETRY: Millis = Millis::new(50);
/// Bytes of one slice: few, so that slices are cut.
const SLICE: usize = 300;

/// What is asked.
#[derive(Clone, Debug)]
pub enum Call {
    /// `POST /sessions/:s/runs`.
    Open { run: String, supersede: bool },
    /// `POST /sessions/:s/runs/:run/chunks`.
    Append { fence: Fence, number: u64, texts: Vec<String> },
    /// `POST /sessions/:s/runs/:run/end`.
    End { fence: Fence, number: u64 },
    /// `GET /sessions/:s/sse?fromSequence=`.
    Sse { from: u64 },
    /// One that the engine hears itself.
    Own(SessionCall),
}

#[derive(Debug)]
struct Open {
    reader: Reader,
    is_full: bool,
}

/// Why a request changes nothing.
enum Refused {
    Storage,
    Start(StartRefused),
    Write(WriteRefused),
    Absent,
}

impl From<StorageError> for Refused {
    fn from(_: StorageError) -> Self {
        Self::Storage
    }
}

impl From<WriteRefused> for Refused {
    fn from(refused: WriteRefused) -> Self {
        Self::Write(refused)
    }
}

/// A fault that is planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// What a reload finds is published before it is known to be durable.
    PublishReloadEarly,
    /// A write is acknowledged before it is durable.
    ServeUndurable,
    /// The alarm is not set again when it has rung.
    ForgetArm,
    /// A reader that was sent away stays.
    DoubleTerminal,
}

/// Each, with the number of schedules within which it must be found.
pub const PLANTS: [(Plant, u64); 4] = [
    (Plant::PublishReloadEarly, 10_000),
    (Plant::ServeUndurable, 1_000),
    (Plant::ForgetArm, 1_000),
    (Plant::DoubleTerminal, 1_000),
];

/// The engine and its calls.
pub struct StandIn {
    plant: Option<Plant>,
    engine: SessionEngine,
    readers: BTreeMap<Exchange, Open>,
    /// Whether no alarm is known to be set. What a write asks for is the engine's own to set.
    has_rung: bool,
}

type Now<'a, 'b> = &'a mut Turn<'b, Rows>;

impl StandIn {
    /// Around an engine without memory.
    pub fn new(engine: SessionEngine, plant: Option<Plant>) -> Self {
        Self { plant, engine, readers: BTreeMap::new(), has_rung: true }
    }

    /// How many requests it holds something of.
    pub fn held(&self) -> usize {
        self.readers.len()
    }
}

impl Engine for StandIn {
    type Call = Call;
    type Storage = Rows;

    fn handle(&mut self, event: Event<Call>, turn: Now<'_, '_>) {
        let own = match event {
            Event::Asked { exchange, ask } if matches!(ask.call, Call::Own(_)) => {
                let Ask { call: Call::Own(call), caller, headers } = *ask else { return };
                Event::Asked { exchange, ask: Box::new(Ask { call, caller, headers }) }
            }
            Event::Asked { exchange, ask } => {
                if let Err(refused) = self.asked(exchange, ask.call, turn) {
                    turn.answer(exchange, said(refused));
                }
                return;
            }
            Event::Left(exchange) => {
                self.readers.remove(&exchange);
                return;
            }
            Event::Full(exchanges) => {
                exchanges.iter().for_each(|exchange| self.is_full(*exchange, true));
                return;
            }
            Event::Room(exchange) => return self.is_full(exchange, false),
            Event::Durable(ticket) => Event::Durable(ticket),
            Event::NotDurable(words) => Event::NotDurable(words),
            Event::Rang if self.plant == Some(Plant::ForgetArm) => return,
            Event::Rang => {
                self.has_rung = true;
                Event::Rang
            }
            Event::NotArmed(words) => {
                self.has_rung = true;
                Event::NotArmed(words)
            }
            Event::Timer => Event::Timer,
            Event::Body { .. } | Event::Fetched { .. } | Event::Erased | Event::NotErased(_) => return,
        };
        self.engine.handle(own, turn);
    }

    fn turn_over(&mut self, turn: Now<'_, '_>) {
        if self.engine.take_passed().undurable {
            let readers = std::mem::take(&mut self.readers);
            readers.into_keys().for_each(|exchange| turn.act(Action::Break(exchange)));
        }
        let served = self.settle(turn).and_then(|()| self.serve(turn));
        let next = served.and_then(|()| Ok(self.engine.session(turn.now, turn.storage)?.alarm(turn.now)));
        match next {
            Ok(Some(at)) if std::mem::take(&mut self.has_rung) => self.engine.arm(at, turn),
            Ok(_) => {}
            Err(_) => {
                self.has_rung = true;
                self.engine.arm(turn.now.after(RETRY), turn);
            }
        }
        self.engine.turn_over(turn);
    }

    fn throw_away(&mut self) {
        self.engine.throw_away();
        self.engine.disarmed();
    }
}

impl StandIn {
    fn is_full(&mut self, exchange: Exchange, is_full: bool) {
        self.readers.get_mut(&exchange).into_iter().for_each(|open| open.is_full = is_full);
    }

    /// A producer that was silent for too long has failed.
    fn settle(&mut self, turn: Now<'_, '_>) -> Result<(), StorageError> {
        let session = self.engine.session(turn.now, turn.storage)?;
        if let Some(Due::Lapsed(fence) | Due::Orphaned(fence)) = session.due(turn.now) {
            let ended = session.finish(turn.now, &fence, Outcome::Failed(Code::TransportStreamDrop), &[]);
            if let Ok(effects) = ended {
                self.engine.persist(&effects, turn)?;
            }
        }
        Ok(())
    }

    fn asked(&mut self, exchange: Exchange, call: Call, turn: Now<'_, '_>) -> Result<(), Refused> {
        let answer = match call {
            Call::Open { run, supersede } => self.open(RunId::new(run), supersede, turn)?,
            Call::Append { fence, number, texts } => self.append(&fence, number, &texts, turn)?,
            Call::End { fence, number } => self.end(&fence, number, turn)?,
            Call::Sse { from } => return self.sse(exchange, from, turn),
            Call::Own(_) => return Err(Refused::Absent),
        };
        match self.engine.unconfirmed().filter(|_| self.plant != Some(Plant::ServeUndurable)) {
            Some(ticket) => turn.answer_resting(exchange, answer, Rests { ticket, otherwise: Answer::empty(503) }),
            None => turn.answer(exchange, answer),
        }
        Ok(())
    }

    fn open(&mut self, run: RunId, supersede: bool, turn: Now<'_, '_>) -> Result<Answer, Refused> {
        self.settle(turn)?;
        let salt = turn.entropy.text(1);
        let known = turn.storage.run(&run)?.is_some();
        let session = self.engine.session(turn.now, turn.storage)?;
        let effects: Effects = if known {
            session.claim_again(turn.now, &run, Some(LEASE))?.1
        } else {
            let start = Start {
                now: turn.now,
                caller: &Caller::Anonymous,
                run,
                salt: &salt,
                agent: "",
                vocabulary: Vocabulary::Ui,
                lease: LEASE,
                key: None,
                entry: Entry::Push { inputs: Vec::new(), supersede, abandoned: None },
                push: Some(LEASE),
                state: None,
            };
            let opening = Record::Chunk { chunk: Chunk::new("start"), attempt: None };
            let started = session.plan(start).and_then(|plan| session.start(plan, &[opening]));
            started.map_err(Refused::Start)?.effects
        };
        self.engine.persist(&effects, turn)?;
        let session = self.engine.session(turn.now, turn.storage)?;
        let fence = session.run().ok_or(Refused::Absent)?.fence();
        let expected = session.expected(&fence)?;
        Ok(Answer::json(201, &json!({ "epoch": fence.epoch, "expected": expected })))
    }

    fn append(&mut self, fence: &Fence, number: u64, texts: &[String], turn: Now<'_, '_>) -> Result<Answer, Refused> {
        let session = self.engine.session(turn.now, turn.storage)?;
        if !session.hears(fence) {
            self.settle(turn)?;
        }
        self.learn_size(turn)?;
        let session = self.engine.session(turn.now, turn.storage)?;
        let taken = session.taken(fence, number)?;
        let chunk = |text: &String| Chunk::new("text-delta").with("delta", text.as_str());
        let new = texts.iter().skip(usize::try_from(taken).unwrap_or(usize::MAX));
        let records: Vec<_> = new.map(|text| Record::Chunk { chunk: chunk(text), attempt: None }).collect();
        session.renew(turn.now, fence);
        if !records.is_empty() {
            let effects = session.append(fence, &records)?;
            self.engine.persist(&effects, turn)?;
        }
        Ok(Answer::empty(200))
    }

    fn end(&mut self, fence: &Fence, number: u64, turn: Now<'_, '_>) -> Result<Answer, Refused> {
        self.settle(turn)?;
        self.learn_size(turn)?;
        let session = self.engine.session(turn.now, turn.storage)?;
        if !session.has_said(fence, number) {
            let effects = session.finish_pushed(turn.now, fence, Outcome::Completed, &[], (number, None))?;
            self.engine.persist(&effects, turn)?;
        }
        Ok(Answer::empty(200))
    }

    /// A log that was just loaded does not know its size, and takes nothing before it does.
    fn learn_size(&mut self, turn: Now<'_, '_>) -> Result<(), StorageError> {
        let session = self.engine.session(turn.now, turn.storage)?;
        if session.log().size().is_none() {
            let kept = turn.storage.kept(session.log().floor())?;
            if let Some(effects) = session.retain(turn.now, &kept, 0) {
                self.engine.persist(&effects, turn)?;
            }
        }
        Ok(())
    }

    fn sse(&mut self, exchange: Exchange, from: u64, turn: Now<'_, '_>) -> Result<(), Refused> {
        self.settle(turn)?;
        let session = self.engine.session(turn.now, turn.storage)?;
        session.authorise(&Caller::Anonymous).map_err(|_| Refused::Absent)?;
        let from = Cursor::new(from).map_err(|_| Refused::Absent)?;
        let reader = Reader::open(Scope::Stream, from, session.view());
        turn.open(exchange, Head { status: 200, headers: Vec::new() }, None);
        self.readers.insert(exchange, Open { reader, is_full: false });
        Ok(())
    }

    /// Every reader that is not full does what comes next for it.
    fn serve(&mut self, turn: Now<'_, '_>) -> Result<(), StorageError> {
        if self.engine.is_held() && self.plant != Some(Plant::PublishReloadEarly) {
            return Ok(());
        }
        let session = self.engine.session(turn.now, turn.storage)?;
        let view = session.view();
        let mut over = Vec::new();
        let (mut later, mut failed) = (false, None);
        for (exchange, Open { reader, is_full }) in &mut self.readers {
            if *is_full {
                continue;
            }
            let bytes = match reader.next(view) {
                Next::Wait => continue,
                Next::Slice(after, until) => {
                    let batch = match session.log().recent(after, until, SLICE) {
                        Some(batch) => batch,
                        None => match stored(turn.storage, after, until) {
                            Ok(batch) => batch,
                            // The others have theirs all the same.
                            Err(error) => {
                                failed = Some(error);
                                continue;
                            }
                        },
                    };
                    reader.took(batch.through);
                    batch.bytes
                }
                Next::CaughtUp(head) => {
                    reader.announced();
                    wire::caught_up(head)
                }
                Next::End(terminal) => {
                    over.push(*exchange);
                    wire::terminal(terminal)
                }
            };
            let more = reader.next(view) != Next::Wait;
            later |= more;
            turn.act(Action::Give { to: vec![*exchange], bytes: bytes.into(), more });
        }
        for exchange in over {
            if self.plant != Some(Plant::DoubleTerminal) {
                self.readers.remove(&exchange);
            }
            turn.act(Action::Close(exchange));
        }
        if later {
            turn.act(Action::Timer(turn.now));
        }
        failed.map_or(Ok(()), Err)
    }
}

fn stored(storage: &dyn Storage, after: Cursor, until: Cursor) -> Result<Batch, StorageError> {
    let mut batch = Batch { after, through: after, bytes: Vec::new() };
    storage.blocks(after, SLICE)?.iter().for_each(|block| batch.take(block, until));
    Ok(batch)
}

fn said(refused: Refused) -> Answer {
    match refused {
        Refused::Storage => Answer::empty(503),
        Refused::Absent => Answer::empty(404),
        Refused::Start(refused) => Answer::error(refused.code()),
        Refused::Write(WriteRefused::Gap(expected)) => Answer::json(409, &json!({ "expected": expected })),
        Refused::Write(refused) => Answer::error(refused.code()),
    }
}

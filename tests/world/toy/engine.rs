//! The toy engine: one stream that several writers append to, each entry once by writer and number, and that readers follow. It closes
//! when a writer says so, or when nobody has written for a while.
//!
//! * [`writing`]: where entries come from. [`serving`]: what readers get.

mod serving;
mod writing;

use std::collections::{BTreeMap, VecDeque};

use rejoin::core::engine::action::{Action, Head, Want};
use rejoin::core::engine::answer::Answer;
use rejoin::core::engine::event::Event;
use rejoin::core::engine::ids::{Exchange, FetchId};
use rejoin::core::engine::{Engine, Turn};
use rejoin::core::log::Ticket;
use rejoin::core::time::{Millis, UnixMillis};

use super::frames::Frames;
use super::plants::Plant;
use super::rows::{Failed, REAPER, Row, Rows};

/// How long a stream stays open that nobody writes.
const LEASE: Millis = Millis::new(1_000);
/// How long until the storage is tried again.
const RETRY: Millis = Millis::new(50);
/// Bytes of an entry that is sent as a whole body.
pub const LIMIT: usize = 64;
/// Entries that stay in memory.
const TAIL: usize = 6;
/// Entries of one slice, and of what one turn reads from storage.
const PAGE: usize = 4;

/// What is asked of the stream.
#[derive(Clone, Debug)]
pub enum Call {
    /// The body is one entry.
    Append { writer: u32, number: u64 },
    /// Each line of the body is an entry.
    Lines { writer: u32, number: u64 },
    /// The engine asks somebody else for that many entries, and appends each line of the answer.
    Relay { writer: u32, number: u64, count: u64 },
    /// The stream ends.
    Close { writer: u32, number: u64 },
    /// What is there behind an entry, or what comes next.
    Read { after: u64, frames: Frames, waits: bool },
    /// Everything behind an entry, to the end.
    Follow { after: u64, frames: Frames },
}

/// What is rebuilt from the rows.
#[derive(Debug)]
struct Image {
    head: u64,
    durable: u64,
    end: Option<u64>,
    written: UnixMillis,
    tail: VecDeque<Row>,
    unconfirmed: VecDeque<(Ticket, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Reader {
    cursor: u64,
    frames: Frames,
    is_full: bool,
}

/// Where entries come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// The whole body of the request.
    Body,
    /// Its lines.
    Lines,
    /// The lines of an answer to the engine itself.
    Answer(FetchId),
}

#[derive(Debug)]
struct Upload {
    writer: u32,
    number: u64,
    source: Source,
    rest: Vec<u8>,
}

/// The machine. What is not `image` outlives it.
#[derive(Debug)]
pub struct Toy {
    plant: Option<Plant>,
    image: Option<Image>,
    ticket: Ticket,
    /// Up to where this object knows its rows to be durable; `None` before the first load, which finds only what is.
    confirmed: Option<u64>,
    readers: BTreeMap<Exchange, Reader>,
    polls: BTreeMap<Exchange, (u64, Frames)>,
    uploads: BTreeMap<Exchange, Upload>,
    /// Outgoing calls, and for whom.
    calls: BTreeMap<FetchId, Exchange>,
    next_call: u64,
    late: Vec<Exchange>,
    armed: Option<UnixMillis>,
}

type Now<'a, 'b> = &'a mut Turn<'b, dyn Rows>;

impl Toy {
    /// One without memory.
    pub fn new(plant: Option<Plant>) -> Self {
        Self {
            plant,
            image: None,
            ticket: Ticket::FIRST,
            confirmed: None,
            readers: BTreeMap::new(),
            polls: BTreeMap::new(),
            uploads: BTreeMap::new(),
            calls: BTreeMap::new(),
            next_call: 1,
            late: Vec::new(),
            armed: None,
        }
    }

    /// How many requests it holds something of.
    pub fn held(&self) -> usize {
        self.readers.len() + self.polls.len() + self.uploads.len() + self.calls.len()
    }

    fn has(&self, plant: Plant) -> bool {
        self.plant == Some(plant)
    }
}

impl Engine for Toy {
    type Call = Call;
    type Storage = dyn Rows;

    fn handle(&mut self, event: Event<Call>, turn: Now<'_, '_>) {
        match event {
            Event::Asked { exchange, ask } => {
                let done = self.asked(exchange, ask.call, turn);
                self.or_refuse(exchange, done, turn);
            }
            Event::Body { exchange, news } => {
                let done = self.body(exchange, news, turn);
                self.or_refuse(exchange, done, turn);
            }
            Event::Left(exchange) if self.has(Plant::LateLeft) => self.late.push(exchange),
            Event::Left(_) if self.has(Plant::KeepWhoLeft) => {}
            Event::Left(exchange) => self.forget(exchange, turn),
            Event::Full(exchanges) => exchanges.into_iter().for_each(|exchange| self.is_full(exchange, true)),
            Event::Room(exchange) => self.is_full(exchange, false),
            Event::Durable(ticket) => self.confirm(ticket),
            Event::NotDurable(_) => self.image = None,
            Event::Rang => {
                let late = std::mem::take(&mut self.late);
                late.into_iter().for_each(|exchange| self.forget(exchange, turn));
                if !self.has(Plant::ForgetArm) {
                    self.armed = None;
                }
            }
            Event::NotArmed(_) => self.armed = None,
            Event::Fetched { fetch, news } => {
                if let Some(exchange) = self.calls.get(&fetch).copied() {
                    let done = self.fetched(exchange, fetch, news, turn);
                    self.or_refuse(exchange, done, turn);
                }
            }
            Event::Timer | Event::Erased | Event::NotErased(_) => {}
        }
    }

    fn turn_over(&mut self, turn: Now<'_, '_>) {
        let done = self.settle(turn).and_then(|()| self.serve(turn));
        if done.is_err() {
            self.fail();
        }
        // From the state, whatever became of a write; while the state is not known, to look again.
        let due = match &self.image {
            Some(image) if image.head == 0 || image.end.is_some() => return,
            Some(image) => image.written.after(LEASE),
            None => turn.now.after(RETRY),
        };
        if self.armed.is_none_or(|armed| armed > due) {
            self.armed = Some(due);
            turn.act(Action::Arm(due));
        }
    }

    fn throw_away(&mut self) {
        self.image = None;
        self.armed = None;
    }
}

impl Toy {
    /// Nobody knows what storage holds: it is read again.
    fn fail(&mut self) {
        if !self.has(Plant::MissLanded) {
            self.image = None;
        }
    }

    fn or_refuse(&mut self, exchange: Exchange, done: Result<(), Failed>, turn: Now<'_, '_>) {
        if done.is_err() {
            self.fail();
            self.forget(exchange, turn);
            if self.has(Plant::DropExchange) {
                turn.park(exchange);
            } else {
                turn.answer(exchange, Answer::empty(503));
            }
        }
    }

    fn forget(&mut self, exchange: Exchange, turn: Now<'_, '_>) {
        self.readers.remove(&exchange);
        self.polls.remove(&exchange);
        self.uploads.remove(&exchange);
        let keeps = self.has(Plant::KeepCall);
        for (fetch, _) in self.calls.extract_if(.., |_, caller| *caller == exchange && !keeps) {
            turn.act(Action::Abort(fetch));
        }
    }

    fn is_full(&mut self, exchange: Exchange, is_full: bool) {
        let is_full = is_full && !self.has(Plant::GiveToFull);
        self.readers.get_mut(&exchange).into_iter().for_each(|reader| reader.is_full = is_full);
    }

    fn next_ticket(&mut self) -> Ticket {
        self.ticket = self.ticket.next();
        self.ticket
    }

    fn image(&mut self, turn: Now<'_, '_>) -> Result<&mut Image, Failed> {
        if self.image.is_none() {
            let last = turn.storage.last()?;
            let head = last.as_ref().map_or(0, |row| row.seq);
            let end = last.filter(|row| row.is_end).map(|row| row.seq);
            let early = self.has(Plant::PublishReloadEarly);
            let durable = *self.confirmed.get_or_insert(head);
            let durable = if early { head } else { durable };
            let mut unconfirmed = VecDeque::new();
            if head > durable {
                let ticket = self.next_ticket();
                unconfirmed.push_back((ticket, head));
                turn.act(Action::Sync(ticket));
            }
            self.image = Some(Image { head, durable, end, written: turn.now, tail: VecDeque::new(), unconfirmed });
        }
        self.image.as_mut().ok_or(Failed)
    }

    fn confirm(&mut self, ticket: Ticket) {
        let Some(image) = &mut self.image else { return };
        while let Some((_, head)) = image.unconfirmed.front().filter(|(asked, _)| *asked <= ticket) {
            image.durable = image.durable.max(*head);
            image.unconfirmed.pop_front();
        }
        self.confirmed = Some(image.durable);
    }

    /// A stream that nobody writes any more ends, on every path.
    fn settle(&mut self, turn: Now<'_, '_>) -> Result<(), Failed> {
        let now = turn.now;
        let image = self.image(turn)?;
        if image.head > 0 && image.end.is_none() && now >= image.written.after(LEASE) {
            let row = Row { seq: image.head + 1, writer: REAPER, number: 0, text: b"dead"[..].into(), is_end: true };
            self.write(vec![row], turn)?;
        }
        Ok(())
    }

    fn asked(&mut self, exchange: Exchange, call: Call, turn: Now<'_, '_>) -> Result<(), Failed> {
        self.settle(turn)?;
        match call {
            Call::Append { writer, number } => {
                self.uploads.insert(exchange, Upload { writer, number, source: Source::Body, rest: Vec::new() });
                turn.take(exchange, Want::Whole(LIMIT));
            }
            Call::Lines { writer, number } => {
                self.uploads.insert(exchange, Upload { writer, number, source: Source::Lines, rest: Vec::new() });
                turn.take(exchange, Want::Next);
            }
            Call::Relay { writer, number, count } => {
                let fetch = FetchId::new(self.next_call);
                self.next_call += 1;
                self.calls.insert(fetch, exchange);
                self.uploads
                    .insert(exchange, Upload { writer, number, source: Source::Answer(fetch), rest: Vec::new() });
                turn.fetch(fetch, writing::relayed(writer, number, count));
                turn.park(exchange);
            }
            Call::Close { writer, number } => {
                let refused = self.append(writer, number, vec![Vec::new()], true, turn)?;
                self.answer(exchange, refused, turn);
            }
            Call::Read { after, frames, waits } => {
                self.polls.insert(exchange, (after, frames));
                if waits {
                    turn.park(exchange);
                } else {
                    self.answer_poll(exchange, true, turn)?;
                }
            }
            Call::Follow { after, frames } => {
                turn.open(exchange, Head { status: 200, headers: Vec::new() }, None);
                self.readers.insert(exchange, Reader { cursor: after, frames, is_full: false });
            }
        }
        Ok(())
    }
}

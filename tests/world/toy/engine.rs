//! The toy engine: one stream that several writers append to, each entry once by writer and number, and that readers follow. It closes
//! when a writer says so, or when nobody has written for a while.

use std::collections::{BTreeMap, VecDeque};

use rejoin::core::engine::action::{Action, Head, Rests, Want};
use rejoin::core::engine::answer::Answer;
use rejoin::core::engine::event::{BodyNews, Event};
use rejoin::core::engine::ids::Exchange;
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

#[derive(Debug)]
struct Upload {
    writer: u32,
    number: u64,
    is_lines: bool,
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
            late: Vec::new(),
            armed: None,
        }
    }

    /// How many requests it holds something of.
    pub fn held(&self) -> usize {
        self.readers.len() + self.polls.len() + self.uploads.len()
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
            Event::Left(exchange) => self.forget(exchange),
            Event::Full(exchanges) => exchanges.into_iter().for_each(|exchange| self.is_full(exchange, true)),
            Event::Room(exchange) => self.is_full(exchange, false),
            Event::Durable(ticket) => self.confirm(ticket),
            Event::NotDurable(_) => self.image = None,
            Event::Rang => {
                let late = std::mem::take(&mut self.late);
                late.into_iter().for_each(|exchange| self.forget(exchange));
                if !self.has(Plant::ForgetArm) {
                    self.armed = None;
                }
            }
            Event::NotArmed(_) => self.armed = None,
            Event::Timer | Event::Fetched { .. } | Event::Erased | Event::NotErased(_) => {}
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
            self.forget(exchange);
            if self.has(Plant::DropExchange) {
                turn.park(exchange);
            } else {
                turn.answer(exchange, Answer::empty(503));
            }
        }
    }

    fn forget(&mut self, exchange: Exchange) {
        self.readers.remove(&exchange);
        self.polls.remove(&exchange);
        self.uploads.remove(&exchange);
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
                self.uploads.insert(exchange, Upload { writer, number, is_lines: false, rest: Vec::new() });
                turn.take(exchange, Want::Whole(LIMIT));
            }
            Call::Lines { writer, number } => {
                self.uploads.insert(exchange, Upload { writer, number, is_lines: true, rest: Vec::new() });
                turn.take(exchange, Want::Next);
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

    fn body(&mut self, exchange: Exchange, news: BodyNews, turn: Now<'_, '_>) -> Result<(), Failed> {
        self.settle(turn)?;
        let Some(mut upload) = self.uploads.remove(&exchange) else { return Ok(()) };
        let is_over = !upload.is_lines || news == BodyNews::End;
        match news {
            BodyNews::Bytes(bytes) => upload.rest.extend(bytes),
            BodyNews::End => {}
            BodyNews::Excess(_) => {
                turn.take(exchange, Want::Nothing);
                turn.answer(exchange, Answer::empty(413));
                return Ok(());
            }
            BodyNews::Broke => {
                turn.answer(exchange, Answer::empty(400));
                return Ok(());
            }
        }
        let Upload { writer, number, is_lines, rest } = upload;
        let mut entries: Vec<Vec<u8>> = match is_lines {
            true => rest.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect(),
            false => vec![rest],
        };
        let unfinished = if is_lines { entries.pop().unwrap_or_default() } else { Vec::new() };
        if is_over && !unfinished.is_empty() && !self.has(Plant::UnterminatedLine) {
            entries.push(unfinished.clone());
        }
        let next = number + entries.len() as u64;
        let refused = self.append(writer, number, entries, false, turn)?;
        if is_over || refused.is_some() {
            self.answer(exchange, refused, turn);
        } else {
            self.uploads.insert(exchange, Upload { writer, number: next, is_lines, rest: unfinished });
            turn.take(exchange, Want::Next);
        }
        Ok(())
    }

    /// Stores those entries that are new, or says why not.
    fn append(
        &mut self,
        writer: u32,
        number: u64,
        entries: Vec<Vec<u8>>,
        is_end: bool,
        turn: Now<'_, '_>,
    ) -> Result<Option<Answer>, Failed> {
        let expected = turn.storage.last_of(writer)?.map_or(0, |last| last + 1);
        let image = self.image(turn)?;
        if number > expected {
            return Ok(Some(Answer { body: expected.to_string().into(), ..Answer::empty(409) }));
        }
        let new = entries.into_iter().zip(number..).filter(|(_, number)| *number >= expected);
        let rows: Vec<Row> = (image.head + 1..)
            .zip(new)
            .map(|(seq, (text, number))| Row { seq, writer, number, text: text.into(), is_end })
            .collect();
        if rows.is_empty() {
            return Ok(None);
        }
        if image.end.is_some() {
            return Ok(Some(Answer::empty(410)));
        }
        self.write(rows, turn)?;
        Ok(None)
    }

    fn write(&mut self, rows: Vec<Row>, turn: Now<'_, '_>) -> Result<(), Failed> {
        turn.storage.append(&rows)?;
        let (ticket, early) = (self.next_ticket(), self.has(Plant::PublishBeforeConfirm));
        let now = turn.now;
        let image = self.image(turn)?;
        for row in rows {
            image.head = row.seq;
            image.end = row.is_end.then_some(row.seq);
            image.tail.push_back(row);
        }
        while image.tail.len() > TAIL {
            image.tail.pop_front();
        }
        image.written = now;
        image.unconfirmed.push_back((ticket, image.head));
        if early {
            image.durable = image.head;
        }
        turn.act(Action::Sync(ticket));
        Ok(())
    }

    /// Says that everything is there, once it is durable.
    fn answer(&mut self, exchange: Exchange, refused: Option<Answer>, turn: Now<'_, '_>) {
        let last = self.image.as_ref().and_then(|image| image.unconfirmed.back());
        let rests = last.map(|(ticket, _)| Rests { ticket: *ticket, otherwise: Answer::empty(503) });
        match (refused, rests.filter(|_| !self.has(Plant::ServeUndurable))) {
            (Some(refused), _) => turn.answer(exchange, refused),
            (None, Some(rests)) => turn.answer_resting(exchange, Answer::empty(200), rests),
            (None, None) => turn.answer(exchange, Answer::empty(200)),
        }
    }

    fn answer_poll(&mut self, exchange: Exchange, at_once: bool, turn: Now<'_, '_>) -> Result<(), Failed> {
        let Some((after, frames)) = self.polls.get(&exchange).copied() else { return Ok(()) };
        let image = self.image(turn)?;
        let (durable, is_over) = (image.durable, image.end.is_some_and(|end| end <= after));
        if durable > after || is_over || at_once {
            let rows = rows_after(turn.storage, after, durable)?;
            self.polls.remove(&exchange);
            turn.answer(exchange, Answer { body: frames.write(&rows), ..Answer::empty(200) });
        }
        Ok(())
    }

    /// Everybody who waits gets what is durable; those at one place share the bytes.
    fn serve(&mut self, turn: Now<'_, '_>) -> Result<(), Failed> {
        for exchange in self.polls.keys().copied().collect::<Vec<_>>() {
            self.answer_poll(exchange, false, turn)?;
        }
        let (double, lossy) = (self.has(Plant::DoubleTerminal), self.has(Plant::LoseHandOver));
        self.image(turn)?;
        let Some(image) = &self.image else { return Err(Failed) };
        let mut groups: BTreeMap<(u64, Frames), Vec<Exchange>> = BTreeMap::new();
        self.readers.retain(|exchange, reader| {
            if image.end.is_some_and(|end| end <= reader.cursor) {
                turn.act(Action::Close(*exchange));
                return double;
            }
            if !reader.is_full && reader.cursor < image.durable {
                groups.entry((reader.cursor, reader.frames)).or_default().push(*exchange);
            }
            true
        });
        let (mut has_read, mut later) = (false, false);
        for ((after, frames), to) in groups {
            let in_memory = image.tail.front().map(|row| row.seq);
            let rows = match in_memory {
                Some(first) if first <= after + 1 || (lossy && after > 0 && first == after + 2) => {
                    let rows = image.tail.iter().filter(|row| row.seq > after && row.seq <= image.durable);
                    rows.take(PAGE).cloned().collect()
                }
                // One page of history a turn.
                _ if has_read => {
                    later = true;
                    continue;
                }
                _ => {
                    has_read = true;
                    rows_after(turn.storage, after, image.durable)?
                }
            };
            let Some(cursor) = rows.last().map(|row| row.seq) else { continue };
            let more = cursor < image.durable || image.end == Some(cursor);
            for exchange in &to {
                self.readers.get_mut(exchange).into_iter().for_each(|reader| reader.cursor = cursor);
            }
            later |= more;
            turn.act(Action::Give { to, bytes: frames.write(&rows).into(), more });
        }
        if later {
            turn.act(Action::Timer(turn.now));
        }
        Ok(())
    }
}

fn rows_after(storage: &dyn Rows, after: u64, durable: u64) -> Result<Vec<Row>, Failed> {
    let mut rows = storage.after(after, PAGE)?;
    rows.retain(|row| row.seq <= durable);
    Ok(rows)
}

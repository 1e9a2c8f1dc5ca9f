//! The toy's clients: writers that repeat what was not acknowledged, followers that come back where they were, readers that poll.

use std::collections::{BTreeMap, VecDeque};

use rejoin::core::engine::ids::Exchange;
use rejoin::core::time::{Millis, UnixMillis};

use super::Toy;
use super::engine::{Call, LIMIT};
use super::frames::{Frames, Seen};
use crate::network::{Body, News};
use crate::random::Rng;
use crate::subject::{Client, Desk, Verdict};

/// Between two requests of a reader.
const PAUSE: Millis = Millis::new(50);

/// What all clients of a schedule have seen.
#[derive(Debug, Default)]
pub struct Witness {
    /// What is at which place.
    seen: BTreeMap<u64, Seen>,
    /// What was acknowledged: by writer and number, what it says.
    acknowledged: BTreeMap<(u32, u64), Vec<u8>>,
}

impl Witness {
    fn sees(&mut self, seen: Seen) -> Verdict {
        match self.seen.get(&seen.seq) {
            Some(before) if *before != seen => Err(format!("two different entries at {}", seen.seq)),
            _ => {
                self.seen.insert(seen.seq, seen);
                Ok(())
            }
        }
    }

    /// Acknowledged is there exactly once, and nothing is there twice.
    ///
    /// # Errors
    /// What is not.
    pub fn judge(&self) -> Verdict {
        let mut counts: BTreeMap<&[u8], u32> = BTreeMap::new();
        for seen in self.seen.values().filter(|seen| !seen.is_end) {
            *counts.entry(&seen.text).or_default() += 1;
        }
        if let Some((text, count)) = counts.iter().find(|(_, count)| **count > 1) {
            return Err(format!("\"{}\" is there {count} times", text.escape_ascii()));
        }
        let lost = self.acknowledged.iter().find(|(_, text)| !counts.contains_key(text.as_slice()));
        if let Some(((writer, number), _)) = lost {
            return Err(format!("entry {number} of writer {writer} was acknowledged and is not there"));
        }
        let whole = self.seen.keys().copied().eq(1..=self.seen.len() as u64);
        if whole { Ok(()) } else { Err("there is a hole in what was seen".into()) }
    }
}

/// What a writer waits for.
#[derive(Debug)]
struct Pending {
    exchange: Exchange,
    /// Acknowledged up to here, if it is.
    through: u64,
    /// Pieces of the body that are not sent yet.
    pieces: Option<VecDeque<Vec<u8>>>,
    is_end: bool,
    status: Option<u16>,
    body: Vec<u8>,
}

/// What an entry of a writer says: each of all writers is another, and whoever asks for it again gets the same.
pub fn entry(writer: u32, number: u64) -> Vec<u8> {
    let mut chance = Rng::new(u64::from(writer) << 32 | number);
    let mut entry = format!("{writer}.{number}.").into_bytes();
    entry.extend(chance.bytes(LIMIT - 30).into_iter().filter(|byte| *byte != b'\n'));
    entry
}

/// Writes entries in order, and repeats those of which it does not know that they are there.
#[derive(Debug)]
pub struct Writer {
    id: u32,
    acknowledged: u64,
    pending: Option<Pending>,
    /// It has asked for the end, whose number is no entry's any more.
    closes: bool,
    is_done: bool,
}

impl Writer {
    /// The writer of this number.
    pub fn new(id: u32) -> Self {
        Self { id, acknowledged: 0, pending: None, closes: false, is_done: false }
    }

    fn asks(&mut self, desk: &mut Desk<'_, Toy>) -> Pending {
        let (writer, number) = (self.id, self.acknowledged);
        let (mut through, mut pieces, mut is_end) = (number + 1, None, false);
        self.closes |= self.id == 0 && number > 5 && desk.rng.one_in(8);
        let exchange = if self.closes {
            (through, is_end) = (number, true);
            desk.ask(Call::Close { writer, number }, Body::Empty)
        } else if desk.rng.one_in(12) && !desk.is_calm {
            // Too large to be taken.
            through = number;
            desk.ask(Call::Append { writer, number }, Body::Whole(vec![b'x'; LIMIT + 1]))
        } else if desk.rng.one_in(3) {
            through = number + 1 + desk.rng.below(4) as u64;
            let lines: Vec<_> = (number..through).map(|number| entry(writer, number)).collect();
            let mut body = lines.join(&b'\n');
            body.extend(desk.rng.one_in(2).then_some(b'\n'));
            let piece = 1 + desk.rng.below(body.len());
            pieces = Some(body.chunks(piece).map(<[u8]>::to_vec).collect());
            desk.ask(Call::Lines { writer, number }, Body::Open)
        } else if desk.rng.one_in(4) {
            let count = 1 + desk.rng.below(4) as u64;
            through = number + count;
            desk.ask(Call::Relay { writer, number, count }, Body::Empty)
        } else {
            let entry = entry(writer, number);
            desk.ask(Call::Append { writer, number }, Body::Whole(entry))
        };
        Pending { exchange, through, pieces, is_end, status: None, body: Vec::new() }
    }

    fn is_answered(&mut self, pending: &Pending, witness: &mut Witness) -> Verdict {
        match pending.status {
            Some(200) => {
                for number in self.acknowledged..pending.through {
                    witness.acknowledged.insert((self.id, number), entry(self.id, number));
                }
                self.acknowledged = self.acknowledged.max(pending.through);
                self.is_done |= pending.is_end;
            }
            Some(409) => {
                let expected = String::from_utf8_lossy(&pending.body);
                return Err(format!("{} entries were acknowledged, and now {expected} is expected", self.acknowledged));
            }
            Some(410) => self.is_done = true,
            Some(413) if pending.through == self.acknowledged => {}
            Some(400 | 500 | 503) => {}
            status => return Err(format!("an answer that nobody expects: {status:?}")),
        }
        Ok(())
    }
}

impl Client<Toy> for Writer {
    fn acts(&mut self, desk: &mut Desk<'_, Toy>) {
        // Once it is calm, one entry is enough: a stream without any has no end.
        self.is_done |= desk.is_calm && self.pending.is_none() && self.acknowledged > 0;
        match &mut self.pending {
            Some(pending) if desk.rng.one_in(40) && !desk.is_calm => {
                desk.leave(pending.exchange);
                self.pending = None;
            }
            Some(Pending { exchange, pieces: Some(pieces), .. }) => match pieces.pop_front() {
                Some(piece) => desk.send(*exchange, piece),
                None => {
                    desk.finish(*exchange);
                    self.pending.iter_mut().for_each(|pending| pending.pieces = None);
                }
            },
            Some(_) => {}
            None if self.is_done => {}
            None => self.pending = Some(self.asks(desk)),
        }
    }

    fn hears(&mut self, exchange: Exchange, news: News, desk: &mut Desk<'_, Toy>) -> Verdict {
        let Some(pending) = self.pending.as_mut().filter(|pending| pending.exchange == exchange) else { return Ok(()) };
        match news {
            News::Head { status, .. } => pending.status = Some(status),
            News::Bytes(bytes) => pending.body.extend(bytes),
            News::End => {
                let pending = self.pending.take();
                return pending.map_or(Ok(()), |pending| self.is_answered(&pending, desk.witness));
            }
            News::Broke => {
                // Its head has said it all.
                let pending = self.pending.take().filter(|pending| pending.status == Some(200));
                return pending.map_or(Ok(()), |pending| self.is_answered(&pending, desk.witness));
            }
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.is_done && self.pending.is_none()
    }

    fn describe(&self) -> String {
        format!("writer {}, {} acknowledged, waits for {:?}", self.id, self.acknowledged, self.pending)
    }
}

/// How a reader asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// One response to the end of the stream.
    Follow,
    /// One answer after the other, each for what is there.
    Poll,
    /// The same, each waiting for something to be there.
    LongPoll,
}

/// Reads everything, and comes back at its place.
#[derive(Debug)]
pub struct Reader {
    way: Way,
    frames: Frames,
    cursor: u64,
    has_end: bool,
    open: Option<(Exchange, u16, Vec<u8>)>,
    /// When the next poll is due.
    again: UnixMillis,
}

impl Reader {
    /// One that starts at the beginning.
    pub fn new(way: Way, frames: Frames) -> Self {
        Self { way, frames, cursor: 0, has_end: false, open: None, again: UnixMillis::default() }
    }

    fn reads(&mut self, bytes: &[u8], witness: &mut Witness) -> Verdict {
        let Some((_, _, buffer)) = &mut self.open else { return Ok(()) };
        buffer.extend_from_slice(bytes);
        while let Some(seen) = self.frames.read(buffer) {
            if self.has_end {
                return Err(format!("{} comes behind the end", seen.seq));
            }
            if seen.seq != self.cursor + 1 {
                return Err(format!("{} comes after {}", seen.seq, self.cursor));
            }
            (self.cursor, self.has_end) = (seen.seq, seen.is_end);
            witness.sees(seen)?;
        }
        Ok(())
    }

    fn ends(&mut self) -> Verdict {
        match self.open.take() {
            Some((_, 200, rest)) if !rest.is_empty() => Err("a clean end within a frame".into()),
            Some((_, 200, _)) if self.way == Way::Follow && !self.has_end => {
                Err(format!("a clean end without a terminal, at {}", self.cursor))
            }
            Some((_, 200 | 500 | 503, _)) | None => Ok(()),
            Some((_, status, _)) => Err(format!("an answer that nobody expects: {status}")),
        }
    }
}

impl Client<Toy> for Reader {
    fn acts(&mut self, desk: &mut Desk<'_, Toy>) {
        match &self.open {
            Some((exchange, ..)) if desk.rng.one_in(40) && !desk.is_calm => {
                desk.leave(*exchange);
                self.open = None;
            }
            Some(_) => {}
            None if self.has_end || desk.now < self.again => {}
            None => {
                self.again = desk.now.after(PAUSE);
                let (after, frames, waits) = (self.cursor, self.frames, self.way == Way::LongPoll);
                let call = match self.way {
                    Way::Follow => Call::Follow { after, frames },
                    Way::Poll | Way::LongPoll => Call::Read { after, frames, waits },
                };
                self.open = Some((desk.ask(call, Body::Empty), 0, Vec::new()));
            }
        }
    }

    fn hears(&mut self, exchange: Exchange, news: News, desk: &mut Desk<'_, Toy>) -> Verdict {
        let Some((_, status, _)) = self.open.as_mut().filter(|(open, ..)| *open == exchange) else { return Ok(()) };
        match news {
            News::Head { status: told, .. } => *status = told,
            News::Bytes(bytes) if *status == 200 => return self.reads(&bytes, desk.witness),
            News::Bytes(_) => {}
            News::End => return self.ends(),
            News::Broke => self.open = None,
        }
        Ok(())
    }

    fn wakes_at(&self) -> Option<UnixMillis> {
        (!self.has_end && self.open.is_none()).then_some(self.again)
    }

    fn is_done(&self) -> bool {
        self.has_end && self.open.is_none()
    }

    fn describe(&self) -> String {
        format!("{:?} in {:?}, at {}, waits for {:?}", self.way, self.frames, self.cursor, self.open)
    }
}

//! A reader of `/sse`: it follows the stream, and comes back with its cursor.

use rejoin::core::engine::ids::Exchange;
use rejoin::core::time::{Millis, UnixMillis};
use rejoin::dialect::wire::decode::{Decoder, WireFrame};

use super::Session;
use super::stand_in::Call;
use crate::network::{Body, News};
use crate::subject::{Client, Desk, Verdict};

/// Between two connections.
const PAUSE: Millis = Millis::new(40);

#[derive(Debug)]
struct Response {
    exchange: Exchange,
    status: u16,
    decoder: Decoder,
    is_caught_up: bool,
    /// Its terminal was seen.
    is_over: bool,
}

/// Follows the whole stream.
#[derive(Debug)]
pub struct Reader {
    cursor: u64,
    /// Producers that there are.
    producers: usize,
    open: Option<Response>,
    again: UnixMillis,
    is_done: bool,
}

impl Reader {
    /// One that starts at the beginning.
    pub fn new(producers: usize) -> Self {
        Self { cursor: 0, producers, open: None, again: UnixMillis::default(), is_done: false }
    }

    fn reads(&mut self, bytes: &[u8], desk: &mut Desk<'_, Session>) -> Verdict {
        let Some(response) = &mut self.open else { return Ok(()) };
        response.decoder.push(bytes);
        while let Some(frame) = response.decoder.next_frame().map_err(|error| error.to_string())? {
            if response.is_over {
                return Err(format!("{frame:?} comes behind the terminal"));
            }
            match frame {
                WireFrame::Chunk { sequence, chunk } => {
                    if sequence.get() != self.cursor + 1 {
                        return Err(format!("{} comes after {}", sequence.get(), self.cursor));
                    }
                    self.cursor = sequence.get();
                    desk.witness.sees(self.cursor, chunk)?;
                }
                WireFrame::CaughtUp if response.is_caught_up => return Err("caught up twice".into()),
                WireFrame::CaughtUp => response.is_caught_up = true,
                WireFrame::End(_) | WireFrame::Fail { .. } => response.is_over = true,
                frame => return Err(format!("a frame that nobody expects: {frame:?}")),
            }
        }
        Ok(())
    }
}

impl Client<Session> for Reader {
    fn acts(&mut self, desk: &mut Desk<'_, Session>) {
        match &self.open {
            Some(response) if desk.rng.one_in(40) && !desk.is_calm => {
                desk.leave(response.exchange);
                self.open = None;
            }
            Some(_) => {}
            None if self.is_done || desk.now < self.again => {}
            None => {
                self.again = desk.now.after(PAUSE);
                // Whatever it sees now is the end, if nobody writes any more.
                let exchange = desk.ask(Call::Sse { from: self.cursor }, Body::Empty);
                let decoder = Decoder::default();
                self.open = Some(Response { exchange, status: 0, decoder, is_caught_up: false, is_over: false });
            }
        }
    }

    fn hears(&mut self, exchange: Exchange, news: News, desk: &mut Desk<'_, Session>) -> Verdict {
        let Some(response) = self.open.as_mut().filter(|open| open.exchange == exchange) else { return Ok(()) };
        match news {
            News::Head { status, .. } => response.status = status,
            News::Bytes(bytes) if response.status == 200 => return self.reads(&bytes, desk),
            News::Bytes(_) => {}
            News::Broke => self.open = None,
            News::End => {
                let (status, is_over) = (response.status, response.is_over);
                self.open = None;
                self.is_done = desk.is_calm && is_over && desk.witness.through.len() == self.producers;
                match status {
                    200 if !is_over => return Err(format!("a clean end without a terminal, at {}", self.cursor)),
                    200 | 404 | 500 | 503 => {}
                    status => return Err(format!("an answer that nobody expects: {status}")),
                }
            }
        }
        Ok(())
    }

    fn wakes_at(&self) -> Option<UnixMillis> {
        (!self.is_done && self.open.is_none()).then_some(self.again)
    }

    fn is_done(&self) -> bool {
        self.is_done
    }

    fn describe(&self) -> String {
        format!(
            "reader at {}, waits for {:?}",
            self.cursor,
            self.open.as_ref().map(|open| (open.exchange, open.status))
        )
    }
}

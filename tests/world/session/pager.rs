//! A reader of what is read without following it: chunks in pages, the status, the snapshot.

use rejoin::core::engine::ids::Exchange;
use rejoin::core::time::{Millis, UnixMillis};
use rejoin::dialect::route::Call as Route;
use rejoin::session::call::SessionCall;
use serde_json::Value;

use super::Session;
use super::stand_in::Call;
use crate::network::{Body, News};
use crate::subject::{Client, Desk, Verdict};

/// Between two requests.
const PAUSE: Millis = Millis::new(60);

/// What it asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    Chunks,
    Info,
    Snapshot,
}

#[derive(Debug)]
struct Pending {
    exchange: Exchange,
    question: Question,
    status: u16,
    body: Vec<u8>,
}

/// Asks one thing after the other.
#[derive(Debug)]
pub struct Pager {
    cursor: u64,
    /// The furthest head that it was told: what was told once is durable.
    head: u64,
    /// Messages of the last snapshot.
    messages: usize,
    pending: Option<Pending>,
    again: UnixMillis,
}

impl Pager {
    /// One that has read nothing.
    pub fn new() -> Self {
        Self { cursor: 0, head: 0, messages: 0, pending: None, again: UnixMillis::default() }
    }

    fn asks(&mut self, desk: &mut Desk<'_, Session>) {
        self.again = desk.now.after(PAUSE);
        let question = desk.rng.pick(&[Question::Chunks, Question::Chunks, Question::Info, Question::Snapshot]);
        let Some(question) = question else { return };
        let (call, query) = match question {
            Question::Chunks => {
                (Route::Chunks, format!("fromSequence={}&limit={}", self.cursor, 1 + desk.rng.below(5)))
            }
            Question::Info => (Route::Info, String::new()),
            Question::Snapshot => (Route::WireSnapshot, String::new()),
        };
        let exchange = desk.ask(Call::Own(SessionCall { call, query }), Body::Empty);
        self.pending = Some(Pending { exchange, question, status: 0, body: Vec::new() });
    }

    fn is_answered(&mut self, pending: &Pending, desk: &mut Desk<'_, Session>) -> Verdict {
        let body: Value = serde_json::from_slice(&pending.body).map_err(|error| error.to_string())?;
        match (pending.question, pending.status) {
            (_, 500 | 503) => return Ok(()),
            (Question::Snapshot, 404) => return self.sees_head(0),
            (_, 200) => {}
            (question, status) => return Err(format!("{question:?} was answered {status}: {body}")),
        }
        match pending.question {
            Question::Snapshot => {
                let messages = body["messages"].as_array().map_or(0, Vec::len);
                if messages < self.messages {
                    return Err(format!("{} messages were committed, and now {messages}", self.messages));
                }
                self.messages = messages;
                Ok(())
            }
            _ if body["exists"] == false => self.sees_head(0),
            Question::Info => self.sees_head(body["head"].as_u64().ok_or("no head")?),
            Question::Chunks => {
                self.sees_head(body["head"].as_u64().ok_or("no head")?)?;
                for stored in body["chunks"].as_array().ok_or("no chunks")? {
                    if stored["sequence"].as_u64() != Some(self.cursor + 1) {
                        return Err(format!("{} comes after {}", stored["sequence"], self.cursor));
                    }
                    self.cursor += 1;
                    desk.witness.sees(self.cursor, stored["chunk"].clone())?;
                }
                Ok(())
            }
        }
    }

    fn sees_head(&mut self, head: u64) -> Verdict {
        if head < self.head {
            return Err(format!("the head went back from {} to {head}", self.head));
        }
        self.head = head;
        Ok(())
    }
}

impl Client<Session> for Pager {
    fn acts(&mut self, desk: &mut Desk<'_, Session>) {
        match &self.pending {
            Some(pending) if desk.rng.one_in(40) && !desk.is_calm => {
                desk.leave(pending.exchange);
                self.pending = None;
            }
            None if !desk.is_calm && desk.now >= self.again => self.asks(desk),
            _ => {}
        }
    }

    fn hears(&mut self, exchange: Exchange, news: News, desk: &mut Desk<'_, Session>) -> Verdict {
        let Some(pending) = self.pending.as_mut().filter(|pending| pending.exchange == exchange) else { return Ok(()) };
        match news {
            News::Head { status, .. } => pending.status = status,
            News::Bytes(bytes) => pending.body.extend(bytes),
            News::Broke => self.pending = None,
            News::End => {
                let pending = self.pending.take();
                return pending.map_or(Ok(()), |pending| self.is_answered(&pending, desk));
            }
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.pending.is_none()
    }

    fn describe(&self) -> String {
        format!("pager at {}, waits for {:?}", self.cursor, self.pending.as_ref().map(|pending| pending.question))
    }
}

//! Where entries come from: bodies of requests, whole or line by line, and answers to the engine's own calls.

use rejoin::core::engine::action::{Action, Fetch, Rests, Target, Want};
use rejoin::core::engine::answer::Answer;
use rejoin::core::engine::event::{BodyNews, FetchNews};
use rejoin::core::engine::ids::{Exchange, FetchId};

use super::super::plants::Plant;
use super::super::rows::{Failed, Row};
use super::{Now, Source, TAIL, Toy, Upload};

impl Toy {
    pub(super) fn fetched(
        &mut self,
        exchange: Exchange,
        fetch: FetchId,
        news: FetchNews,
        turn: Now<'_, '_>,
    ) -> Result<(), Failed> {
        let news = match news {
            FetchNews::Answered { status: 200, .. } => {
                turn.act(Action::ReadOn(fetch));
                return Ok(());
            }
            FetchNews::Answered { .. } => {
                turn.act(Action::Abort(fetch));
                BodyNews::Broke
            }
            FetchNews::Bytes(bytes) => BodyNews::Bytes(bytes),
            FetchNews::Ended => BodyNews::End,
            FetchNews::Broke(_) => BodyNews::Broke,
        };
        let is_over = news == BodyNews::End || news == BodyNews::Broke;
        if self.uploads.contains_key(&exchange) {
            self.body(exchange, news, turn)?;
        } else {
            // A panic has lost it.
            turn.answer(exchange, Answer::empty(500));
        }
        if is_over {
            self.calls.remove(&fetch);
        }
        Ok(())
    }

    pub(super) fn body(&mut self, exchange: Exchange, news: BodyNews, turn: Now<'_, '_>) -> Result<(), Failed> {
        self.settle(turn)?;
        let Some(mut upload) = self.uploads.remove(&exchange) else { return Ok(()) };
        let is_over = upload.source == Source::Body || news == BodyNews::End;
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
        let Upload { writer, number, source, rest } = upload;
        let mut entries: Vec<Vec<u8>> = match source {
            Source::Body => vec![rest],
            _ => rest.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect(),
        };
        let unfinished = if source == Source::Body { Vec::new() } else { entries.pop().unwrap_or_default() };
        if is_over && !unfinished.is_empty() && !self.has(Plant::UnterminatedLine) {
            entries.push(unfinished.clone());
        }
        let next = number + entries.len() as u64;
        let refused = self.append(writer, number, entries, false, turn)?;
        if is_over || refused.is_some() {
            self.forget(exchange, turn);
            self.answer(exchange, refused, turn);
            return Ok(());
        }
        self.uploads.insert(exchange, Upload { writer, number: next, source, rest: unfinished });
        match source {
            Source::Answer(fetch) => {
                turn.act(Action::ReadOn(fetch));
                turn.park(exchange);
            }
            Source::Body | Source::Lines => turn.take(exchange, Want::Next),
        }
        Ok(())
    }

    /// Stores those entries that are new, or says why not.
    pub(super) fn append(
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

    pub(super) fn write(&mut self, rows: Vec<Row>, turn: Now<'_, '_>) -> Result<(), Failed> {
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
    pub(super) fn answer(&mut self, exchange: Exchange, refused: Option<Answer>, turn: Now<'_, '_>) {
        let last = self.image.as_ref().and_then(|image| image.unconfirmed.back());
        let rests = last.map(|(ticket, _)| Rests { ticket: *ticket, otherwise: Answer::empty(503) });
        match (refused, rests.filter(|_| !self.has(Plant::ServeUndurable))) {
            (Some(refused), _) => turn.answer(exchange, refused),
            (None, Some(rests)) => turn.answer_resting(exchange, Answer::empty(200), rests),
            (None, None) => turn.answer(exchange, Answer::empty(200)),
        }
    }
}

/// The call for that many entries of a writer from a number on.
pub fn relayed(writer: u32, number: u64, count: u64) -> Fetch {
    let to = Target::Address(format!("https://writers.example/{writer}/{number}/{count}"));
    Fetch { to, headers: Vec::new(), body: None }
}

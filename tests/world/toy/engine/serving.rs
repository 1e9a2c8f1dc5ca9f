//! What readers get: everything that is durable, to where they are.

use std::collections::BTreeMap;

use rejoin::core::engine::action::Action;
use rejoin::core::engine::answer::Answer;
use rejoin::core::engine::ids::Exchange;

use super::super::frames::Frames;
use super::super::plants::Plant;
use super::super::rows::{Failed, Row, Rows};
use super::{Now, PAGE, Toy};

impl Toy {
    pub(super) fn answer_poll(&mut self, exchange: Exchange, at_once: bool, turn: Now<'_, '_>) -> Result<(), Failed> {
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
    pub(super) fn serve(&mut self, turn: Now<'_, '_>) -> Result<(), Failed> {
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

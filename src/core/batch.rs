//! When a producer's records are flushed (DESIGN.md section 4).
//!
//! At once when the last flush is `BATCH_WAIT_MS` old, else when it becomes so; at most one flush is unconfirmed, and what arrives
//! meanwhile is the next. A run that nobody follows flushes once a second. A commit, whatever is marked urgent (a tool call's end) and a
//! terminal flush in their own turn.

use super::record::Record;
use super::time::{Millis, UnixMillis};

/// Least time between flushes of a run that nobody follows.
pub const UNFOLLOWED_WAIT: Millis = Millis::new(1_000);

/// Number of records that force a flush, so that memory stays bounded while a flush is unconfirmed.
const FORCE_RECORDS: usize = 4_096;

/// What to do with the records that are waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// Nothing waits.
    Nothing,
    /// Flush in this turn.
    Now,
    /// Look again at this moment.
    At(UnixMillis),
    /// Look again when the unconfirmed flush is confirmed.
    AfterConfirmation,
}

/// Records on their way to the log.
#[derive(Debug)]
pub struct Batcher {
    wait: Millis,
    waiting: Vec<Record>,
    urgent: bool,
    last: Option<UnixMillis>,
    unconfirmed: bool,
}

impl Batcher {
    /// A batcher with this least time between flushes.
    pub fn new(wait: Millis) -> Self {
        Self { wait, waiting: Vec::new(), urgent: false, last: None, unconfirmed: false }
    }

    /// What waits is flushed in this turn.
    pub fn hurry(&mut self) {
        self.urgent = true;
    }

    /// Adds records behind those that wait.
    pub fn offer(&mut self, records: Vec<Record>) {
        self.urgent |= records.iter().any(|record| matches!(record, Record::Commit(_)));
        self.waiting.extend(records);
    }

    /// Whether and when to flush.
    pub fn next(&self, now: UnixMillis, followed: bool) -> Flush {
        if self.waiting.is_empty() {
            return Flush::Nothing;
        }
        if self.urgent || self.waiting.len() >= FORCE_RECORDS {
            return Flush::Now;
        }
        let wait = if followed { self.wait } else { self.wait.max(UNFOLLOWED_WAIT) };
        // A last flush that lies ahead was made before the clock was set back.
        match self.last.filter(|last| *last <= now).map(|last| last.after(wait)) {
            Some(due) if now < due => Flush::At(due),
            _ if self.unconfirmed => Flush::AfterConfirmation,
            _ => Flush::Now,
        }
    }

    /// Takes what waits, for a flush in this turn.
    pub fn take(&mut self, now: UnixMillis) -> Vec<Record> {
        self.last = Some(now);
        self.unconfirmed = true;
        self.urgent = false;
        std::mem::take(&mut self.waiting)
    }

    /// Everything flushed so far is durable.
    pub fn confirmed(&mut self) {
        self.unconfirmed = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::chunk::Chunk;
    use crate::core::record::Commit;
    use serde_json::json;

    fn chunk() -> Vec<Record> {
        vec![Record::Chunk { chunk: Chunk::new("text-delta"), attempt: None }]
    }

    fn at(ms: u64) -> UnixMillis {
        UnixMillis::new(ms)
    }

    #[test]
    fn the_first_chunk_goes_at_once_and_the_rest_in_batches() {
        let mut batcher = Batcher::new(Millis::new(50));
        assert_eq!(batcher.next(at(0), true), Flush::Nothing);
        batcher.offer(chunk());
        assert_eq!(batcher.next(at(1_000), true), Flush::Now);
        batcher.take(at(1_000));
        batcher.confirmed();
        batcher.offer(chunk());
        assert_eq!(batcher.next(at(1_001), true), Flush::At(at(1_050)));
        assert_eq!(batcher.next(at(1_001), false), Flush::At(at(2_000)));
        assert_eq!(batcher.next(at(1_050), true), Flush::Now);
    }

    #[test]
    fn a_clock_that_is_set_back_delays_nothing() {
        let mut batcher = Batcher::new(Millis::new(50));
        batcher.offer(chunk());
        batcher.take(at(1_000_000));
        batcher.confirmed();
        batcher.offer(chunk());
        assert_eq!(batcher.next(at(1_000), true), Flush::Now);
    }

    #[test]
    fn memory_is_bounded_while_a_flush_is_unconfirmed() {
        let mut batcher = Batcher::new(Millis::new(50));
        batcher.offer(chunk());
        batcher.take(at(0));
        for _ in 1..FORCE_RECORDS {
            batcher.offer(chunk());
        }
        assert_eq!(batcher.next(at(60), true), Flush::AfterConfirmation);
        batcher.offer(chunk());
        assert_eq!(batcher.next(at(60), true), Flush::Now);
        assert_eq!(batcher.take(at(60)).len(), FORCE_RECORDS);
        assert_eq!(batcher.next(at(60), true), Flush::Nothing);
    }

    #[test]
    fn a_longer_wait_than_a_second_holds_for_an_unfollowed_run_too() {
        let mut batcher = Batcher::new(Millis::new(5_000));
        batcher.offer(chunk());
        batcher.take(at(0));
        batcher.confirmed();
        batcher.offer(chunk());
        assert_eq!(batcher.next(at(1_000), false), Flush::At(at(5_000)));
    }

    #[test]
    fn at_most_one_flush_is_unconfirmed_but_a_commit_never_waits() {
        let mut batcher = Batcher::new(Millis::new(50));
        batcher.offer(chunk());
        batcher.take(at(0));
        batcher.offer(chunk());
        assert_eq!(batcher.next(at(60), true), Flush::AfterConfirmation);
        batcher.offer(vec![Record::Commit(Commit { message: json!({}), step_count: 1, state: None })]);
        assert_eq!(batcher.next(at(1), true), Flush::Now);
        assert_eq!(batcher.take(at(1)).len(), 2);
    }

    #[test]
    fn what_is_urgent_does_not_wait_for_its_batch() {
        let mut batcher = Batcher::new(Millis::new(50));
        batcher.offer(chunk());
        batcher.take(at(0));
        batcher.offer(chunk());
        assert_eq!(batcher.next(at(1), true), Flush::At(at(50)));
        batcher.hurry();
        assert_eq!(batcher.next(at(1), true), Flush::Now);
        batcher.take(at(1));
        batcher.offer(chunk());
        assert_eq!(batcher.next(at(2), true), Flush::At(at(51)));
    }
}

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
    /// Flushes in a row that the storage did not take, and when it is asked again.
    failures: u32,
    again: Option<UnixMillis>,
}

/// Most flushes in a row that may fail.
const MAX_FAILURES: u32 = 5;

/// The first pause before storage that took nothing is asked again, in ms; it doubles, up to four times as much.
const FIRST_PAUSE_MS: u64 = 100;

impl Batcher {
    /// A batcher with this least time between flushes.
    pub fn new(wait: Millis) -> Self {
        Self { wait, waiting: Vec::new(), urgent: false, last: None, unconfirmed: false, failures: 0, again: None }
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
        if let Some(again) = self.again {
            // Also when nothing waits but the end of the run.
            return if now < again && again.since(now) <= longest_pause() { Flush::At(again) } else { Flush::Now };
        }
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
        self.again = None;
        std::mem::take(&mut self.waiting)
    }

    /// What was taken could not be stored: it waits in front of what has come since, for a pause that grows. `false` when that has
    /// happened too often in a row.
    pub fn put_back(&mut self, now: UnixMillis, mut records: Vec<Record>) -> bool {
        records.append(&mut self.waiting);
        self.waiting = records;
        self.unconfirmed = false;
        // Due as soon as the pause is over.
        self.urgent = true;
        self.failures = self.failures.saturating_add(1);
        let pause = FIRST_PAUSE_MS << self.failures.saturating_sub(1).min(2);
        self.again = Some(now.after(Millis::new(pause)));
        self.failures <= MAX_FAILURES
    }

    /// The storage has taken a flush.
    pub fn stored(&mut self) {
        self.failures = 0;
    }

    /// Everything flushed so far is durable.
    pub fn confirmed(&mut self) {
        self.unconfirmed = false;
    }
}

/// A pause that would last longer was set by a clock that was set back since.
const fn longest_pause() -> Millis {
    Millis::new(FIRST_PAUSE_MS << 2)
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
    fn what_could_not_be_stored_goes_first_after_a_growing_pause() {
        let named = |name: &str| vec![Record::Chunk { chunk: Chunk::new(name), attempt: None }];
        let mut batcher = Batcher::new(Millis::new(50));
        batcher.offer(named("first"));
        let mut now = at(1_000);
        for pause in [100, 200, 400, 400, 400] {
            let taken = batcher.take(now);
            batcher.offer(named("later"));
            assert!(batcher.put_back(now, taken));
            assert_eq!(batcher.next(now, true), Flush::At(now.after(Millis::new(pause))), "however urgent");
            now = now.after(Millis::new(pause));
            assert_eq!(batcher.next(now, true), Flush::Now);
        }
        let taken = batcher.take(now);
        assert_eq!((&taken[..1], taken.len()), (&named("first")[..], 6));
        assert!(!batcher.put_back(now, taken), "five times may pass, a sixth does not");
        let mut silent = Batcher::new(Millis::new(50));
        assert!(silent.put_back(at(0), Vec::new()), "an end without a word is tried again, too");
        assert_eq!([silent.next(at(0), true), silent.next(at(100), true)], [Flush::At(at(100)), Flush::Now]);
        silent.take(at(100));
        assert_eq!(silent.next(at(200), true), Flush::Nothing);
    }

    #[test]
    fn a_flush_that_was_stored_forgets_those_that_were_not() {
        let mut batcher = Batcher::new(Millis::new(50));
        for round in 0..20 {
            batcher.offer(chunk());
            let taken = batcher.take(at(round * 1_000));
            assert!(batcher.put_back(at(round * 1_000), taken));
            batcher.take(at(round * 1_000 + 100));
            batcher.stored();
        }
        let taken = batcher.take(at(99_000));
        batcher.put_back(at(99_000), [taken, chunk()].concat());
        assert_eq!(batcher.next(at(5_000), true), Flush::Now, "a clock that is set back delays nothing");
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

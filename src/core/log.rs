//! The chunk log of one session: numbers, blocks, tickets, the durable head and the memory tail.
//!
//! Write before send (DESIGN.md invariant 1): [`Log::store`] hands out writes, which the session gives a [`Ticket`]; nothing of it may be read
//! until [`Log::confirmed`] says that storage has it. The tail in memory is a cache of what the blocks hold.

use std::collections::VecDeque;

use super::block::{Frame, OpenBlock, lay};
use super::chunk::{Chunk, Stamp};
use super::frame;
use super::ids::{Cursor, RunId, SequenceOutOfRange};
use super::json_line;
use super::storage::{Block, Write};

/// Bytes of the newest frames that stay in memory, so that live readers need no storage.
const TAIL_BYTES: usize = 256 * 1024;

/// Proof that writes were handed to storage; comes back in `confirmed` once they are durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

impl Ticket {
    /// The first that an object hands out.
    pub const FIRST: Self = Self::new(0);

    /// The ticket of this number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Its number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The ticket after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// Finished frames of one flush.
#[derive(Debug)]
pub struct Batch {
    /// Cursor before the first frame.
    pub after: Cursor,
    /// Cursor of the last frame.
    pub through: Cursor,
    /// The frames.
    pub bytes: Vec<u8>,
}

impl Batch {
    /// Adds a stored block, cut at what the batch has already and at `until`. A block behind a gap is left out: what lies before it is
    /// gone, and a reader must never get a hole. Rows of earlier builds may hold marks that end a line for some readers.
    pub fn take(&mut self, block: &Block, until: Cursor) {
        let (after, from) = (block.first.before(), self.bytes.len());
        if after < until && after <= self.through {
            self.take_frames(after, block.last.cursor(), &block.bytes, until);
            json_line::escape(&mut self.bytes, from);
        }
    }

    fn take_frames(&mut self, after: Cursor, through: Cursor, bytes: &[u8], until: Cursor) {
        let known = self.through.get().saturating_sub(after.get());
        let wanted = frame::skip(bytes, known);
        let excess = through.get().saturating_sub(until.get());
        if excess == 0 {
            self.bytes.extend_from_slice(wanted);
            self.through = self.through.max(through);
        } else {
            let rest = frame::skip(wanted, until.get().saturating_sub(self.through.get()));
            let end = wanted.len().saturating_sub(rest.len());
            self.bytes.extend_from_slice(wanted.get(..end).unwrap_or_default());
            self.through = self.through.max(until);
        }
    }
}

/// Chunks with their numbers, ready to be stored.
#[derive(Debug)]
pub struct Encoded {
    through: Cursor,
    frames: Vec<Frame>,
    bytes: Vec<u8>,
}

impl Encoded {
    /// Numbers the chunks with what comes behind this head.
    ///
    /// # Errors
    /// [`SequenceOutOfRange`] when the numbers are used up.
    pub fn after<'a>(
        head: Cursor,
        chunks: impl IntoIterator<Item = (&'a Chunk, &'a Stamp)>,
    ) -> Result<Self, SequenceOutOfRange> {
        let mut through = head;
        let mut frames = Vec::new();
        let mut bytes = Vec::new();
        for (chunk, stamp) in chunks {
            let sequence = through.next()?;
            through = sequence.cursor();
            let mut encoded = Vec::new();
            frame::encode(sequence, chunk, stamp, &mut encoded);
            bytes.extend_from_slice(&encoded);
            let attempt = stamp.attempt.as_ref().map(|(id, _)| id.clone());
            frames.push(Frame { sequence, attempt, bytes: encoded });
        }
        Ok(Self { through, frames, bytes })
    }

    /// The log's head once they are stored.
    pub fn through(&self) -> Cursor {
        self.through
    }

    /// Bytes that the log grows by when it stores them.
    pub fn size(&self) -> u64 {
        self.bytes.len() as u64
    }
}

/// The log's head, floor, open block and tail.
#[derive(Debug)]
pub struct Log {
    head: Cursor,
    durable: Cursor,
    floor: Cursor,
    /// Bytes of all blocks; `None` until somebody has added them up.
    size: Option<u64>,
    open: Option<OpenBlock>,
    tail: VecDeque<Batch>,
    tail_bytes: usize,
    written_bytes: u64,
}

impl Log {
    /// A log that storage holds up to `head`; `open` is its last block, when that can still be extended.
    pub fn load(floor: Cursor, head: Cursor, open: Option<OpenBlock>) -> Self {
        let size = (head <= floor).then_some(0);
        Self { head, durable: head, floor, size, open, tail: VecDeque::new(), tail_bytes: 0, written_bytes: 0 }
    }

    /// The last number handed out.
    pub fn head(&self) -> Cursor {
        self.head
    }

    /// The last number that storage has confirmed; no read goes past it.
    pub fn durable(&self) -> Cursor {
        self.durable
    }

    /// Bytes of all frames that were handed to storage since the log was loaded.
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// The highest number that retention has removed.
    pub fn floor(&self) -> Cursor {
        self.floor
    }

    /// Bytes of all blocks, durable or not; `None` until [`Log::measured`] has told.
    pub fn size(&self) -> Option<u64> {
        self.size
    }

    /// The blocks hold this many bytes at this moment.
    pub fn measured(&mut self, bytes: u64) {
        self.size = Some(bytes);
    }

    /// Retention removes everything up to `floor`, which is the end of a run; `bytes` stay.
    pub fn cut(&mut self, floor: Cursor, bytes: u64) {
        self.floor = self.floor.max(floor);
        self.size = Some(bytes);
        self.open = self.open.take().filter(|open| floor.lacks(open.last));
        while self.tail.front().is_some_and(|oldest| oldest.through <= floor) {
            self.forget_oldest();
        }
    }

    /// Lays chunks into rows that were numbered from this log's head on.
    pub fn store(&mut self, run: &RunId, encoded: Encoded) -> Vec<Write> {
        if encoded.frames.is_empty() {
            return Vec::new();
        }
        self.size = self.size.map(|size| size.saturating_add(encoded.size()));
        let Encoded { through, frames, bytes } = encoded;
        let (writes, open) = lay(self.open.take(), run, frames);
        self.open = open;
        self.keep(Batch { after: self.head, through, bytes });
        self.head = through;
        writes
    }

    /// Storage has everything up to this head.
    pub fn confirmed(&mut self, head: Cursor) {
        self.durable = self.durable.max(head.min(self.head));
        self.trim();
    }

    /// The frames after `cursor` up to `until` as far as they are in memory, one flush at least, then more until `max_bytes`, and never
    /// past the durable head. `None` when the reader must go to the blocks first.
    pub fn recent(&self, cursor: Cursor, until: Cursor, max_bytes: usize) -> Option<Batch> {
        if self.tail.front().is_none_or(|oldest| cursor < oldest.after) {
            return None;
        }
        let until = until.min(self.durable);
        let mut batch = Batch { after: cursor, through: cursor, bytes: Vec::new() };
        let from = self.tail.partition_point(|batch| batch.through <= cursor);
        for part in self.tail.iter().skip(from) {
            let enough = !batch.bytes.is_empty() && batch.bytes.len() >= max_bytes;
            if part.after >= until || enough {
                break;
            }
            batch.take_frames(part.after, part.through, &part.bytes, until);
        }
        Some(batch)
    }

    fn keep(&mut self, batch: Batch) {
        self.tail_bytes = self.tail_bytes.saturating_add(batch.bytes.len());
        let written = u64::try_from(batch.bytes.len()).unwrap_or(u64::MAX);
        self.written_bytes = self.written_bytes.saturating_add(written);
        self.tail.push_back(batch);
        self.trim();
    }

    /// Only what is unconfirmed, and so in no block that may be read, is kept beyond the budget.
    fn trim(&mut self) {
        while self.tail_bytes > TAIL_BYTES && self.tail.front().is_some_and(|oldest| oldest.through <= self.durable) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some(oldest) = self.tail.pop_front() {
            self.tail_bytes = self.tail_bytes.saturating_sub(oldest.bytes.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::ids::Sequence;

    fn append(log: &mut Log, texts: &[&str]) -> Vec<Write> {
        let run = RunId::new("r");
        let stamp = Stamp { run: run.clone(), attempt: None };
        let chunks: Vec<_> = texts.iter().map(|text| Chunk::new("text-delta").with("delta", *text)).collect();
        let encoded = Encoded::after(log.head(), chunks.iter().map(|chunk| (chunk, &stamp))).unwrap();
        log.store(&run, encoded)
    }

    fn at(cursor: u64) -> Cursor {
        Cursor::new(cursor).unwrap()
    }

    fn read(log: &Log, cursor: u64, max_bytes: usize) -> Option<(Vec<u64>, u64)> {
        read_until(log, cursor, Sequence::MAX, max_bytes)
    }

    fn read_until(log: &Log, cursor: u64, until: u64, max_bytes: usize) -> Option<(Vec<u64>, u64)> {
        let batch = log.recent(at(cursor), at(until), max_bytes)?;
        let frames = frame::decode(&batch.bytes).unwrap();
        Some((frames.iter().map(|frame| frame.sequence.get()).collect(), batch.through.get()))
    }

    #[test]
    fn nothing_is_readable_before_its_confirmation() {
        let mut log = Log::load(Cursor::START, Cursor::START, None);
        append(&mut log, &["a", "b"]);
        append(&mut log, &["c"]);
        assert_eq!(read(&log, 0, 999), Some((vec![], 0)));
        log.confirmed(at(2));
        assert_eq!(read(&log, 0, 999), Some((vec![1, 2], 2)));
        assert_eq!(read(&log, 1, 999), Some((vec![2], 2)));
        log.confirmed(at(1));
        assert_eq!(log.durable(), at(2), "the durable head never goes back");
        log.confirmed(at(99));
        assert_eq!(log.durable(), at(3), "and never past the head");
        assert_eq!(read(&log, 3, 999), Some((vec![], 3)));
    }

    #[test]
    fn a_cursor_before_the_tail_goes_to_the_blocks() {
        let mut log = Log::load(Cursor::START, at(7), None);
        assert_eq!(read(&log, 7, 999), None, "nothing in memory");
        append(&mut log, &["h", "i"]);
        log.confirmed(at(9));
        assert_eq!(read(&log, 6, 999), None);
        assert_eq!(read(&log, 7, 999), Some((vec![8, 9], 9)));
    }

    #[test]
    fn a_slice_is_one_flush_at_least_and_then_bounded() {
        let mut log = Log::load(Cursor::START, Cursor::START, None);
        (0..5).for_each(|_| drop(append(&mut log, &["a", "b"])));
        log.confirmed(at(10));
        assert_eq!(read(&log, 0, 0), Some((vec![1, 2], 2)));
        assert_eq!(read(&log, 3, 1), Some((vec![4], 4)));
        assert_eq!(read(&log, 1, usize::MAX), Some(((2..=10).collect(), 10)));
        assert_eq!(read_until(&log, 1, 5, usize::MAX), Some(((2..=5).collect(), 5)));
        assert_eq!(read_until(&log, 4, 5, usize::MAX), Some((vec![5], 5)));
        assert_eq!(read_until(&log, 5, 5, usize::MAX), Some((vec![], 5)));
    }

    #[test]
    fn a_batch_takes_of_blocks_what_it_lacks_up_to_the_end() {
        let run = RunId::new("r");
        let block = |first: u64, last: u64| {
            let (stamp, mut bytes) = (Stamp { run: run.clone(), attempt: None }, Vec::new());
            let sequence = |number| Sequence::new(number).unwrap();
            (first..=last).for_each(|n| frame::encode(sequence(n), &Chunk::new("x"), &stamp, &mut bytes));
            Block { first: sequence(first), last: sequence(last), run: run.clone(), attempt: None, bytes }
        };
        for after in 0..=9 {
            for until in after..=9 {
                let mut batch = Batch { after: at(after), through: at(after), bytes: Vec::new() };
                // As storage gives them: whole blocks that hold chunks after the cursor.
                for block in [block(1, 4), block(5, 5), block(6, 9)].iter().filter(|b| at(after).lacks(b.last)) {
                    batch.take(block, at(until));
                }
                let taken: Vec<_> = frame::decode(&batch.bytes).unwrap().iter().map(|f| f.sequence.get()).collect();
                assert_eq!(taken, (after + 1..=until).collect::<Vec<_>>(), "{after} {until}");
                assert_eq!(batch.through, at(until));
            }
        }
        let mut batch = Batch { after: at(1), through: at(1), bytes: Vec::new() };
        batch.take(&block(3, 4), at(9));
        assert_eq!((batch.through, batch.bytes.len()), (at(1), 0), "a hole is not skipped");
    }

    #[test]
    fn rows_of_earlier_builds_leave_with_marks_escaped() {
        let (run, bytes) = (RunId::new("r"), |text: &str| {
            let mut bytes = Vec::new();
            for sequence in 1..=3 {
                let chunk = Chunk::new("text-delta").with("id", "t").with("delta", "raw");
                let stamp = Stamp { run: RunId::new("r"), attempt: None };
                frame::encode(Sequence::new(sequence).unwrap(), &chunk, &stamp, &mut bytes);
            }
            String::from_utf8(bytes).unwrap().replace("raw", text)
        });
        let (first, last) = (Sequence::new(1).unwrap(), Sequence::new(3).unwrap());
        let block = Block { first, last, run, attempt: None, bytes: bytes("a\u{2028}b\u{85}\u{2029}").into_bytes() };
        let mut batch = Batch { after: at(1), through: at(1), bytes: Vec::new() };
        batch.take(&block, at(3));
        assert_eq!(batch.bytes, frame::skip(bytes(r"a\u2028b\u0085\u2029").as_bytes(), 1));
        assert_eq!(batch.through, at(3));
    }

    #[test]
    fn only_unconfirmed_frames_are_kept_beyond_the_budget() {
        let mut log = Log::load(Cursor::START, Cursor::START, None);
        let large = "x".repeat(TAIL_BYTES / 4);
        (0..8).for_each(|_| drop(append(&mut log, &[&large])));
        assert_eq!(log.tail.len(), 8, "no block may be read instead");
        log.confirmed(at(2));
        assert_eq!(log.tail.len(), 6);
        log.confirmed(at(8));
        assert_eq!((log.tail.len(), read(&log, 4, 1), read(&log, 5, 1)), (3, None, Some((vec![6], 6))));
        append(&mut log, &[&"x".repeat(2 * TAIL_BYTES)]);
        assert_eq!(log.tail.len(), 1);
        log.confirmed(at(9));
        assert_eq!((log.tail.len(), log.tail_bytes), (0, 0), "one flush larger than the budget is not kept either");
        assert_eq!(read(&log, 8, 1), None);
    }

    #[test]
    fn numbers_end_where_they_are_used_up() {
        let head = at(Sequence::MAX - 1);
        let (chunk, stamp) = (Chunk::new("x"), Stamp { run: RunId::new("r"), attempt: None });
        assert!(Encoded::after(head, [(&chunk, &stamp), (&chunk, &stamp)]).is_err());
        assert_eq!(Encoded::after(head, [(&chunk, &stamp)]).unwrap().through(), at(Sequence::MAX));
    }

    #[test]
    fn what_is_cut_is_in_memory_no_more() {
        let mut log = Log::load(Cursor::START, Cursor::START, None);
        append(&mut log, &["a", "b"]);
        append(&mut log, &["c"]);
        log.confirmed(at(3));
        let whole = log.size().unwrap();
        log.cut(at(2), whole / 3);
        assert_eq!((log.floor(), log.head(), log.size()), (at(2), at(3), Some(whole / 3)));
        assert_eq!((read(&log, 0, 999), read(&log, 1, 999)), (None, None));
        assert_eq!(read(&log, 2, 999), Some((vec![3], 3)));
        log.cut(at(3), 0);
        assert_eq!((read(&log, 2, 999), log.tail_bytes), (None, 0));
        assert!(matches!(&append(&mut log, &["d"])[..], [Write::OpenBlock(row)] if row.key == 4 * 1024));
        log.cut(at(1), log.size().unwrap());
        assert_eq!(log.floor(), at(3), "the floor never goes back");
    }

    #[test]
    fn a_loaded_log_does_not_know_its_size_until_it_is_told() {
        let mut log = Log::load(at(2), at(7), None);
        append(&mut log, &["a"]);
        assert_eq!(log.size(), None);
        log.measured(500);
        let more = append(&mut log, &["b"]);
        let added = more.iter().map(|w| if let Write::OpenBlock(r) = w { r.bytes.len() } else { 0 }).sum::<usize>();
        let extended =
            more.iter().map(|w| if let Write::ExtendBlock { bytes, .. } = w { bytes.len() } else { 0 }).sum::<usize>();
        assert_eq!(log.size(), Some(500 + (added + extended) as u64));
        assert_eq!(Log::load(at(7), at(7), None).size(), Some(0), "everything was removed");
    }
}

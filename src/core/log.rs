//! The chunk log of one session: numbers, blocks, tickets, the durable head and the memory tail.
//!
//! Write before send (DESIGN.md invariant 1): [`Log::append`] hands out numbers and writes and a [`Ticket`]; nothing of it may be read
//! until [`Log::confirmed`] says that storage has it. The tail in memory is a cache of what the blocks hold.

use std::collections::VecDeque;

use super::block::{Frame, OpenBlock, lay};
use super::chunk::{Chunk, Stamp};
use super::frame;
use super::ids::{Cursor, RunId, SequenceOutOfRange};
use super::storage::{Block, Write};

/// Bytes of the newest frames that stay in memory, so that live readers need no storage.
const TAIL_BYTES: usize = 256 * 1024;

/// Proof that writes were handed to storage; comes back in `confirmed` once they are durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub(super) u64);

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
    /// Adds a stored block, cut at what the batch has already and at `until`.
    pub fn take(&mut self, block: &Block, until: Cursor) {
        let after = block.first.before();
        if after < until {
            self.take_frames(after, block.last.cursor(), &block.bytes, until);
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

/// The log's head, floor, open block and tail.
#[derive(Debug)]
pub struct Log {
    head: Cursor,
    durable: Cursor,
    floor: Cursor,
    open: Option<OpenBlock>,
    tail: VecDeque<Batch>,
    tail_bytes: usize,
}

impl Log {
    /// A log that storage holds up to `head`; `open` is its last block, when that can still be extended.
    pub fn load(floor: Cursor, head: Cursor, open: Option<OpenBlock>) -> Self {
        Self { head, durable: head, floor, open, tail: VecDeque::new(), tail_bytes: 0 }
    }

    /// The last number handed out.
    pub fn head(&self) -> Cursor {
        self.head
    }

    /// The last number that storage has confirmed; no read goes past it.
    pub fn durable(&self) -> Cursor {
        self.durable
    }

    /// The highest number that retention has removed.
    pub fn floor(&self) -> Cursor {
        self.floor
    }

    /// Numbers the chunks and lays them into rows. All or nothing: on an error the log is as it was.
    ///
    /// # Errors
    /// [`SequenceOutOfRange`] when the numbers are used up.
    pub fn append<'a>(
        &mut self,
        run: &RunId,
        chunks: impl IntoIterator<Item = (&'a Chunk, &'a Stamp)>,
    ) -> Result<Vec<Write>, SequenceOutOfRange> {
        let after = self.head;
        let mut through = after;
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
        if frames.is_empty() {
            return Ok(Vec::new());
        }
        let (writes, open) = lay(self.open.take(), run, frames);
        self.open = open;
        self.head = through;
        self.keep(Batch { after, through, bytes });
        Ok(writes)
    }

    /// Storage has everything up to this head.
    pub fn confirmed(&mut self, head: Cursor) {
        self.durable = self.durable.max(head.min(self.head));
    }

    /// The frames after `cursor` up to `until` as far as they are in memory, at most about `max_bytes` of them and never past the
    /// durable head. `None` when the reader must go to the blocks first.
    pub fn recent(&self, cursor: Cursor, until: Cursor, max_bytes: usize) -> Option<Batch> {
        if self.tail.front().is_none_or(|oldest| cursor < oldest.after) {
            return None;
        }
        let until = until.min(self.durable);
        let mut batch = Batch { after: cursor, through: cursor, bytes: Vec::new() };
        let from = self.tail.partition_point(|batch| batch.through <= cursor);
        for part in self.tail.iter().skip(from) {
            if part.after >= until || batch.bytes.len() >= max_bytes {
                break;
            }
            batch.take_frames(part.after, part.through, &part.bytes, until);
        }
        Some(batch)
    }

    fn keep(&mut self, batch: Batch) {
        self.tail_bytes = self.tail_bytes.saturating_add(batch.bytes.len());
        self.tail.push_back(batch);
        while self.tail_bytes > TAIL_BYTES
            && self.tail.len() > 1
            && self.tail.front().is_some_and(|oldest| oldest.through <= self.durable)
        {
            if let Some(oldest) = self.tail.pop_front() {
                self.tail_bytes = self.tail_bytes.saturating_sub(oldest.bytes.len());
            }
        }
    }
}

//! Stored chunks, read from the rows a page at a time, and what is known of a run's attempts from them.

use std::rc::Rc;

use super::clock::now;
use super::host::{Host, HostError};
use crate::core::frame;
use crate::core::ids::{Cursor, RunId};
use crate::core::run::{Fence, Vocabulary};
use crate::core::storage::{RunRow, Storage, StorageError};
use crate::dialect::helix::projector::Projector;
use crate::dialect::ui::attempts::Attempts;
use crate::session::stored::{self, PAGE_BYTES};

impl Host {
    /// Reads chunks from the rows: after `cursor`, and up to `through`.
    pub fn stored_chunks(&self, cursor: Cursor, through: Cursor) -> Result<Vec<frame::Stored>, HostError> {
        Ok(stored::chunks(&*self.storage, cursor, through)?)
    }

    /// Visits stored chunks: after `cursor`, and up to `through` when it is given.
    pub fn each_stored(
        &self,
        cursor: Cursor,
        through: Option<Cursor>,
        visit: &mut dyn FnMut(frame::Stored),
    ) -> Result<(), HostError> {
        Ok(stored::each(&*self.storage, cursor, through, visit)?)
    }

    /// The attempts of a run, read from its rows when there was more than one.
    pub fn attempts(&self, run: &RunRow) -> Result<Rc<Attempts>, HostError> {
        if run.vocabulary == Vocabulary::Helix {
            return self.projected_attempts(run);
        }
        if run.attempts <= 1 {
            return Ok(Rc::default());
        }
        let known = self.attempts.try_borrow().ok().and_then(|known| {
            known.as_ref().filter(|known| known.run == run.id).map(|known| Rc::clone(&known.attempts))
        });
        match known {
            Some(attempts) => Ok(attempts),
            None => self.read_attempts(run),
        }
    }

    /// The attempts of a run of Helix chunks, when one has lost its step, or won it back, since this was asked last.
    pub fn changed_attempts(&self, run: &RunRow) -> Result<Option<Rc<Attempts>>, HostError> {
        let attempts = self.projected_attempts(run)?;
        let untold = self.attempts.try_borrow_mut().ok().and_then(|mut known| {
            let projected = known.as_mut()?.projected.as_mut()?;
            Some(std::mem::take(&mut projected.untold))
        });
        Ok(untold.unwrap_or(true).then_some(attempts))
    }

    /// The attempts of a run of Helix chunks are told by its own chunks. What is known of them is carried on.
    fn projected_attempts(&self, run: &RunRow) -> Result<Rc<Attempts>, HostError> {
        let known = self.attempts.try_borrow_mut().ok().and_then(|mut known| known.take());
        let known = known.and_then(|known| {
            let projected = (known.run == run.id).then_some(known.projected).flatten()?;
            Some((known.attempts, projected))
        });
        let (mut attempts, mut projected) = known.unwrap_or_else(|| {
            let projector = Projector::new(run.id.clone(), run.message_id.clone());
            (Rc::default(), Box::new(Projected { at: run.start, projector, untold: false }))
        });
        let (mut changed, mut at) = (false, projected.at);
        let all = Rc::make_mut(&mut attempts);
        self.each_stored(at, run.end, &mut |stored| {
            for chunk in projected.projector.project(&stored.chunk) {
                changed |= all.see(stored.sequence, &chunk);
            }
            at = stored.sequence.cursor();
        })?;
        projected.at = at;
        projected.untold |= changed;
        if let Ok(mut known) = self.attempts.try_borrow_mut() {
            let attempts = Rc::clone(&attempts);
            *known = Some(Known { run: run.id.clone(), attempts, projected: Some(projected) });
        }
        Ok(attempts)
    }

    fn read_attempts(&self, run: &RunRow) -> Result<Rc<Attempts>, HostError> {
        let mut attempts = Attempts::default();
        let mut at = run.start;
        let end = run.end;
        while end.is_none_or(|end| at < end) {
            let blocks = self.storage.blocks(at, PAGE_BYTES)?;
            let Some(last) = blocks.last().map(|block| block.last.cursor()) else { break };
            for block in blocks.iter().filter(|block| block.run == run.id) {
                attempts.see_stored(&block.bytes).map_err(|_| StorageError::Corrupt("chunk_block.bytes"))?;
            }
            at = last;
        }
        let attempts = Rc::new(attempts);
        if let Ok(mut known) = self.attempts.try_borrow_mut() {
            *known = Some(Known { run: run.id.clone(), attempts: Rc::clone(&attempts), projected: None });
        }
        Ok(attempts)
    }

    /// The run's step begins anew: what is waiting is stored at once, with the beginning of the new attempt, and every response learns
    /// what does not count any more before it is given another chunk.
    pub fn begin_attempt(self: &Rc<Self>, fence: &Fence) {
        let records = self.with_production(fence, |production| production.batcher.take(now()));
        if let Some(records) = records.filter(|records| !records.is_empty()) {
            self.flush(fence, &records);
        }
        if let Ok(Ok(effects)) = self.session(|session| session.begin_attempt(fence)) {
            let _ = self.persist(effects);
        }
        let run = self.session(|session| session.run().filter(|run| run.id == fence.run).cloned());
        if let Ok(Some(run)) = run
            && let Ok(attempts) = self.read_attempts(&run)
        {
            self.readers_learn(&run.id, &attempts);
        }
    }
}

/// What is known of the attempts of the run that was asked about last.
pub type KnownAttempts = Option<Known>;

/// A run and its attempts.
pub struct Known {
    run: RunId,
    attempts: Rc<Attempts>,
    /// How far its chunks were looked at, when they are Helix chunks.
    projected: Option<Box<Projected>>,
}

/// A run of Helix chunks up to a cursor.
struct Projected {
    at: Cursor,
    projector: Projector,
    /// Whether the run's responses have to learn of a change.
    untold: bool,
}

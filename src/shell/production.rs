//! The producer that lives in this object: its start, its flushes and its end.

use std::cell::RefCell;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;

use futures::future::{AbortHandle, Abortable};
use web_sys::AbortController;
use worker::{console_error, console_log};

use super::clock::{now, random_text, sleep};
use super::host::{Host, HostError};
use super::producers;
use crate::core::batch::{Batcher, Flush};
use crate::core::caller::Caller;
use crate::core::chunk::Chunk;
use crate::core::command::{Due, Input, Start, StartRefused, Started, WriteRefused};
use crate::core::counters::add;
use crate::core::error::{Code, Failure};
use crate::core::frame;
use crate::core::ids::{Cursor, MessageId, RunId};
use crate::core::record::Record;
use crate::core::run::{Fence, Outcome, Vocabulary};
use crate::core::session::KEEP_ALIVE;
use crate::core::storage::{Storage, StorageError};
use crate::core::time::{Millis, UnixMillis};
use crate::dialect::ui::vocabulary::ends_call;
use crate::dialect::ui::writer::RunWriter;
use crate::model::ui_route::request::Forwarded;

/// A live producer and what it has not flushed yet.
pub struct Production {
    fence: Fence,
    writer: RunWriter,
    batcher: Batcher,
    timer: Option<UnixMillis>,
    upstream: AbortController,
    watch: AbortHandle,
    lapsed: bool,
}

impl Production {
    /// The lease has lapsed: whatever ends the run now, silence was the cause.
    fn lapse(&mut self) -> AbortController {
        self.lapsed = true;
        self.upstream.clone()
    }
}

impl Drop for Production {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

/// Why a run did not start.
pub enum NotStarted {
    Refused(StartRefused),
    Host(HostError),
}

impl Host {
    /// Starts a run that answers `input`, with this agent and what the request hands on to it.
    pub fn start_run(
        self: &Rc<Self>,
        caller: &Caller,
        agent: &str,
        input: Input,
        forwarded: Option<Forwarded>,
    ) -> Result<(RunId, Cursor), NotStarted> {
        let writer = RefCell::new(None);
        let opening = |run: &RunId, message_id: &MessageId| {
            let mut fresh = RunWriter::new(run.clone(), message_id.clone());
            let records = fresh.open();
            if let Ok(mut slot) = writer.try_borrow_mut() {
                *slot = Some(fresh);
            }
            records
        };
        let start = Start {
            now: now(),
            caller,
            run: RunId::new(format!("run_{}", random_text(1))),
            salt: &random_text(1),
            agent,
            vocabulary: Vocabulary::Ui,
            lease: self.config.settings.lease,
            input,
            opening: &opening,
        };
        let Started { effects, fence, start, .. } =
            self.session(|session| session.start(start)).map_err(NotStarted::Host)?.map_err(NotStarted::Refused)?;
        self.arm_next();
        self.persist(effects).map_err(NotStarted::Host)?;
        let run = fence.run.clone();
        if let (Some(writer), Ok(upstream)) = (writer.into_inner(), AbortController::new()) {
            let (watch, watched) = AbortHandle::new_pair();
            let signal = upstream.signal();
            let production = Production {
                fence: fence.clone(),
                writer,
                batcher: Batcher::new(self.config.settings.batch_wait),
                timer: None,
                upstream,
                watch,
                lapsed: false,
            };
            if let Ok(mut slot) = self.production.try_borrow_mut() {
                *slot = Some(production);
            }
            let host = Rc::clone(self);
            self.spawn(async move {
                let _ = Abortable::new(host.watch_lease(), watched).await;
            });
            producers::spawn(self, fence, agent, forwarded, signal);
        }
        Ok((run, start))
    }

    /// The producer has more. `false` when its run is no longer this one's to write.
    pub fn produce(self: &Rc<Self>, fence: &Fence, chunks: Vec<Chunk>) -> bool {
        let mine = self.with_production(fence, |production| {
            if chunks.iter().any(|chunk| ends_call(chunk.kind())) {
                production.batcher.hurry();
            }
            for chunk in chunks {
                let records = production.writer.write(chunk);
                production.batcher.offer(records);
            }
        });
        if mine.is_none() {
            return false;
        }
        self.renew(fence);
        self.pump_soon();
        true
    }

    /// Flushes at the end of this turn, so that what a producer says in one breath, its end included, is one transaction.
    pub fn pump_soon(self: &Rc<Self>) {
        let host = Rc::clone(self);
        self.spawn(async move { host.pump() });
    }

    /// The producer is alive.
    pub fn renew(&self, fence: &Fence) {
        let _ = self.session(|session| session.renew(now(), fence));
    }

    /// The producer has failed. The words go to the log only.
    pub fn fail(self: &Rc<Self>, fence: &Fence, failure: &Failure) {
        if let Some(lapsed) = self.with_production(fence, |production| production.lapsed) {
            let failure = if lapsed {
                Failure::new(Code::ProviderTimeout, format!("silent for longer than the lease ({failure})"))
            } else {
                failure.clone()
            };
            console_error!("session {} run {}: {failure}", self.log_name, fence.run);
            let _ = self.session(|session| session.advise_retry(fence, failure.retry_after_ms));
            let _ = self.conclude(fence, Outcome::Failed(failure.code));
        }
    }

    /// Ends a live run, keeping what its producer has said. The first to call wins.
    pub fn conclude(self: &Rc<Self>, fence: &Fence, outcome: Outcome) -> Result<(), HostError> {
        let Some(mut production) = self.take_production(fence) else { return self.bury(fence, outcome) };
        let mut records = production.batcher.take(now());
        records.extend(match outcome {
            Outcome::Completed => production.writer.complete(),
            Outcome::Interrupted => production.writer.stop(),
            Outcome::Failed(_) => production.writer.fail(),
        });
        if outcome != Outcome::Completed {
            production.upstream.abort();
        }
        drop(production);
        let finished = self.finish(fence, outcome, &records);
        if let Err(error) = &finished {
            console_error!("session {} run {}: {error}", self.log_name, fence.run);
            self.settle_or_come_back();
        }
        finished
    }

    /// As [`Host::settle`], but a producer that is merely silent may first say whether its answer was complete: some model APIs keep the
    /// connection open after the last word.
    pub async fn settle_or_hear(self: &Rc<Self>) -> Result<(), HostError> {
        if let Some(Due::Lapsed(fence)) = self.session(|session| session.due(now()))?
            && let Some(upstream) = self.with_production(&fence, |production| production.lapse())
        {
            upstream.abort();
            sleep(LAST_WORD).await;
        }
        self.settle()
    }

    /// Settles a run that a failed write has cut; when that fails too, nobody is left waiting and the alarm tries again.
    fn settle_or_come_back(self: &Rc<Self>) {
        if self.settle().is_err() {
            self.evict_all();
            self.arm(Some(now().after(KEEP_ALIVE)));
        }
    }

    /// Settles a dead run, if there is one.
    pub fn settle(self: &Rc<Self>) -> Result<(), HostError> {
        match self.session(|session| session.due(now()))? {
            None => Ok(()),
            Some(Due::Lapsed(fence)) if self.with_production(&fence, |_| ()).is_some() => {
                self.fail(&fence, &Failure::new(Code::ProviderTimeout, "silent for longer than the lease"));
                Ok(())
            }
            Some(Due::Lapsed(fence) | Due::Orphaned(fence)) => {
                self.count(|counters| add(&mut counters.reaped, 1));
                self.bury(&fence, Outcome::Failed(Code::ProducerLost))
            }
        }
    }

    /// Takes the in-object producer away without ending its run: its session is being deleted.
    pub fn abandon(&self) {
        let production = self.production.try_borrow_mut().ok().and_then(|mut slot| slot.take());
        if let Some(production) = production {
            production.upstream.abort();
        }
    }

    /// Flushes what is due.
    pub fn pump(self: &Rc<Self>) {
        let now = now();
        let followed = !self.readers.is_empty();
        let Ok(mut slot) = self.production.try_borrow_mut() else { return };
        let Some(production) = slot.as_mut() else { return };
        let fence = production.fence.clone();
        match production.batcher.next(now, followed) {
            Flush::Nothing | Flush::AfterConfirmation => {}
            Flush::Now => {
                let records = production.batcher.take(now);
                drop(slot);
                self.flush(&fence, &records);
            }
            Flush::At(due) if production.timer.is_none_or(|timer| due < timer) => {
                production.timer = Some(due);
                drop(slot);
                let host = Rc::clone(self);
                let delay = due.since(now);
                self.spawn(async move {
                    sleep(delay).await;
                    host.with_production(&fence, |production| production.timer = None);
                    host.pump();
                });
            }
            Flush::At(_) => {}
        }
    }

    /// Everything flushed so far is durable.
    pub fn flushed(&self) {
        if let Ok(mut slot) = self.production.try_borrow_mut()
            && let Some(production) = slot.as_mut()
        {
            production.batcher.confirmed();
        }
    }

    fn flush(self: &Rc<Self>, fence: &Fence, records: &[Record]) {
        let write = || match self.write_with_room(|session| session.append(fence, records))? {
            Ok(effects) => self.persist(effects).map(|()| true),
            Err(WriteRefused::NoRoom { .. }) => {
                self.abandon();
                self.bury(fence, Outcome::Failed(Code::StateSessionFull)).map(|()| true)
            }
            Err(refused) => {
                console_log!("session {} run {}: {refused}", self.log_name, fence.run);
                Ok(false)
            }
        };
        match std::panic::catch_unwind(AssertUnwindSafe(write)) {
            Ok(Ok(true)) => {}
            Ok(Ok(false)) => self.abandon(),
            // What was lost is not in the log, so the run cannot go on; it is settled from what the rows hold.
            outcome => {
                if let Ok(Err(error)) = outcome {
                    console_error!("session {} run {}: {error}", self.log_name, fence.run);
                }
                self.abandon();
                self.throw_away();
                self.settle_or_come_back();
            }
        }
    }

    fn finish(self: &Rc<Self>, fence: &Fence, outcome: Outcome, records: &[Record]) -> Result<(), HostError> {
        match self.write_with_room(|session| session.finish(now(), fence, outcome, records))? {
            Ok(effects) => {
                self.persist(effects)?;
                self.log_settled(fence);
                self.arm_next();
                Ok(())
            }
            Err(WriteRefused::NoRoom { .. }) => self.bury(fence, Outcome::Failed(Code::StateSessionFull)),
            Err(refused) => {
                console_log!("session {} run {}: {refused}", self.log_name, fence.run);
                Ok(())
            }
        }
    }

    /// Ends a run that has no producer in this object, from the chunks that it stored.
    fn bury(self: &Rc<Self>, fence: &Fence, outcome: Outcome) -> Result<(), HostError> {
        let place = self.session(|session| session.run().map(|run| (run.start, run.message_id.clone())))?;
        let Some((start, message_id)) = place else { return Ok(()) };
        // Rows that cannot be read must not keep the run alive: it is then settled with what was committed.
        let mut writer = RunWriter::new(fence.run.clone(), message_id);
        let mut kept = 0_u64;
        let read = self.each_stored(start, None, &mut |stored| {
            writer.replay(&stored.chunk);
            kept = kept.saturating_add(1);
        });
        if let Err(error) = read {
            console_error!("session {} run {}: {error}", self.log_name, fence.run);
        }
        let records = writer.fail();
        console_log!("session {} run {}: its producer is gone, {kept} chunks kept", self.log_name, fence.run);
        self.finish(fence, outcome, &records)
    }

    /// Reads chunks from the rows: after `cursor`, and up to `through`.
    pub fn stored_chunks(&self, cursor: Cursor, through: Cursor) -> Result<Vec<frame::Stored>, HostError> {
        let mut chunks = Vec::new();
        self.each_stored(cursor, Some(through), &mut |stored| chunks.push(stored))?;
        Ok(chunks)
    }

    /// Visits stored chunks, a page of blocks at a time, so that a run of any length fits: after `cursor`, and up to `through` when it
    /// is given.
    pub fn each_stored(
        &self,
        cursor: Cursor,
        through: Option<Cursor>,
        visit: &mut dyn FnMut(frame::Stored),
    ) -> Result<(), HostError> {
        let mut at = cursor;
        while through.is_none_or(|through| at < through) {
            let blocks = self.storage.blocks(at, PAGE_BYTES)?;
            let Some(last) = blocks.last().map(|block| block.last.cursor()) else { break };
            for block in blocks {
                for stored in frame::split(&block.bytes) {
                    let stored =
                        stored.and_then(frame::decode_one).map_err(|_| StorageError::Corrupt("chunk_block.bytes"))?;
                    let beyond = through.is_some_and(|through| through.lacks(stored.sequence));
                    if at.lacks(stored.sequence) && !beyond {
                        visit(stored);
                    }
                }
            }
            at = last;
        }
        Ok(())
    }

    async fn watch_lease(self: Rc<Self>) {
        loop {
            let until =
                self.session(|session| session.run().filter(|run| run.status.is_live()).map(|run| run.lease_until));
            let left = match until {
                Ok(None) => return,
                Ok(Some(until)) => until.since(now()),
                Err(_) => LAST_WORD,
            };
            if left > Millis::default() {
                sleep(left).await;
            } else if self.settle_or_hear().await.is_err() {
                sleep(LAST_WORD).await;
            }
        }
    }

    fn with_production<T>(&self, fence: &Fence, act: impl FnOnce(&mut Production) -> T) -> Option<T> {
        let mut slot = self.production.try_borrow_mut().ok()?;
        slot.as_mut().filter(|production| production.fence == *fence).map(act)
    }

    fn take_production(&self, fence: &Fence) -> Option<Production> {
        self.with_production(fence, |_| ())?;
        self.production.try_borrow_mut().ok()?.take()
    }
}

/// How long a silent producer may take to close its books.
const LAST_WORD: Millis = Millis::new(20);

/// Bytes of blocks that are read in one go.
const PAGE_BYTES: usize = 512 * 1024;

//! What a producer outside appends: arrays and lines of chunks, and the answers to its writes.

use std::rc::Rc;

use futures::FutureExt;
use futures::future::{Either, select};
use serde_json::{Map, Value, json};
use wasm_bindgen::JsCast;
use web_sys::{ReadableStreamDefaultReader, Request};

use super::Answer;
use super::refusals::{Refusal, facts, unread};
use super::runs::numbered;
use crate::core::chunk::lifecycle;
use crate::core::command::WriteRefused;
use crate::core::error::Code;
use crate::core::ids::{Cursor, RunId};
use crate::core::record::Record;
use crate::core::run::{Fence, Outcome, RunStatus, Vocabulary};
use crate::core::storage::{RunRow, Storage};
use crate::dialect::push::append::{Append, Then};
use crate::dialect::push::ndjson::{BadLine, Lines, is_lines};
use crate::dialect::push::numbers::ProducerSeq;
use crate::dialect::push::reason::Refused;
use crate::shell::answer;
use crate::shell::clock::{now, sleep};
use crate::shell::host::Host;
use crate::shell::incoming;
use crate::shell::request::{Farewell, body, discard, header};

impl Host {
    /// `POST …/runs/:run/chunks`.
    pub(super) async fn append_chunks(self: &Rc<Self>, request: &Request, run: &RunId) -> Answer {
        let (fence, first) = numbered(request, run)?;
        let before = self.head();
        let kind = header(request, "content-type").unwrap_or_default();
        if is_lines(&kind) {
            return self.append_lines(request, &fence, first, before).await;
        }
        let limit = self.config.settings.max_request_bytes;
        let bytes = body(request, limit).await.map_err(|error| unread(&error, limit))?;
        let vocabulary = self.vocabulary(&fence)?;
        let append = Append::parse(&bytes, vocabulary)
            .map_err(|refusal| Refusal::Rejected(refusal.code(), refusal.to_string()))?;
        match append.then {
            None => {
                self.take_chunks(&fence, first.get(), append.chunks)?;
                self.acknowledge(&fence, before).await
            }
            Some(Then::Commit(commit)) => self.append_and_commit(&fence, first, append.chunks, commit).await,
            Some(Then::Ending(ending)) => self.append_and_end(&fence, first, append.chunks, ending).await,
        }
    }

    /// A body of lines, which may stay open for the run's whole life: each is stored as it arrives, those that arrive closely together in
    /// one flush.
    async fn append_lines(
        self: &Rc<Self>,
        request: &Request,
        fence: &Fence,
        first: ProducerSeq,
        before: Cursor,
    ) -> Answer {
        let Some(stream) = request.body() else { return self.acknowledge(fence, before).await };
        let reader: ReadableStreamDefaultReader = stream.get_reader().unchecked_into();
        let refused = self.read_lines(&reader, fence, first).await;
        if let Err(refusal) = refused {
            discard(&reader, Farewell::STREAMED).await;
            return Err(refusal);
        }
        self.acknowledge(fence, before).await
    }

    async fn read_lines(
        self: &Rc<Self>,
        reader: &ReadableStreamDefaultReader,
        fence: &Fence,
        first: ProducerSeq,
    ) -> Result<(), Refusal> {
        let wait = self.config.settings.batch_wait;
        let mut lines = Lines::new(self.config.settings.max_request_bytes);
        let (mut number, mut waiting, mut flushed) = (first.get(), Vec::new(), now());
        let mut reading = Box::pin(incoming::next(reader).fuse());
        loop {
            let due = flushed.after(wait).since(now());
            let idle = waiting.is_empty();
            let timer = async { if idle { std::future::pending::<()>().await } else { sleep(due).await } };
            let piece = match select(&mut reading, Box::pin(timer)).await {
                Either::Right(_) => {
                    number = self.flush_lines(fence, first.get(), number, &mut waiting)?;
                    flushed = now();
                    continue;
                }
                Either::Left((piece, _)) => piece,
            };
            let (taken, ended) = match piece {
                Ok(Some(bytes)) => (lines.push(&bytes), false),
                Ok(None) => (lines.finish(), true),
                // A body that broke is sent again from where the log ends; the line that was cut counts as not sent.
                Err(_) => {
                    self.flush_lines(fence, first.get(), number, &mut waiting)?;
                    return Err(Refusal::Invalid("the body broke off".to_owned()));
                }
            };
            waiting.extend(taken.values);
            if ended || taken.bad.is_some() || now() >= flushed.after(wait) {
                number = self.flush_lines(fence, first.get(), number, &mut waiting)?;
                flushed = now();
            }
            match taken.bad {
                Some(bad) => return Err(self.bad_line(fence, bad)),
                None if ended => return Ok(()),
                None => reading = Box::pin(incoming::next(reader).fuse()),
            }
        }
    }

    /// `body`: the number of the body's first line; `first`: that of the first one that waits.
    fn flush_lines(
        self: &Rc<Self>,
        fence: &Fence,
        body: u64,
        first: u64,
        waiting: &mut Vec<Value>,
    ) -> Result<u64, Refusal> {
        let values = std::mem::take(waiting);
        let next = first.saturating_add(u64::try_from(values.len()).unwrap_or(u64::MAX));
        // Line by line: what stands before a bad one is stored.
        let known = self.skip(fence, first, values.len())?;
        let fresh: Vec<Value> = values.into_iter().skip(known).collect();
        let mut admission = self.admission(fence)?;
        let mut records: Vec<Record> = Vec::new();
        let mut bad = None;
        for (index, value) in fresh.into_iter().enumerate() {
            if let Err(reason) = self.admit(&mut admission, value, &mut records)? {
                let before = usize::try_from(first.saturating_sub(body)).unwrap_or(usize::MAX);
                bad = Some(Refused { index: index.saturating_add(known).saturating_add(before), reason });
                break;
            }
        }
        self.store_chunks(fence, &records)?;
        self.keep_admission(fence, admission);
        match bad {
            Some(refused) => Err(self.bad_chunk(fence, body, &refused)),
            None => Ok(next),
        }
    }

    /// Stores chunks, all or none; those whose numbers are taken are stored already.
    pub(super) fn take_chunks(self: &Rc<Self>, fence: &Fence, first: u64, chunks: Vec<Value>) -> Result<(), Refusal> {
        let known = self.skip(fence, first, chunks.len())?;
        let admitted = self.admit_all(fence, chunks.into_iter().skip(known))?;
        let (admission, records) = admitted.map_err(|refused| {
            self.bad_chunk(fence, first, &Refused { index: refused.index.saturating_add(known), ..refused })
        })?;
        self.store_chunks(fence, &records)?;
        self.keep_admission(fence, admission);
        Ok(())
    }

    /// How many of `count` chunks from this number on are stored already.
    pub(super) fn skip(&self, fence: &Fence, first: u64, count: usize) -> Result<usize, Refusal> {
        let taken = self.session(|session| session.taken(fence, first))?;
        let taken = taken.map_err(|refused| self.write_refused(&fence.run, &refused))?;
        Ok(usize::try_from(taken).unwrap_or(usize::MAX).min(count))
    }

    fn store_chunks(self: &Rc<Self>, fence: &Fence, records: &[Record]) -> Result<(), Refusal> {
        let _ = self.session(|session| session.renew(now(), fence));
        if records.is_empty() {
            return Ok(());
        }
        let effects = self.write_with_room(|session| session.append(fence, records));
        let effects = effects?;
        let effects = effects.map_err(|refused| {
            self.fails_without_room(fence, &refused);
            self.write_refused(&fence.run, &refused)
        })?;
        self.persist(effects)?;
        let decides = |record: &Record| match record {
            Record::Chunk { chunk, .. } => matches!(chunk.kind(), lifecycle::STEP_START | lifecycle::STEP_COMMITTED),
            _ => false,
        };
        if records.iter().any(decides)
            && let Ok(Some(run)) =
                self.session(|session| session.run().filter(|run| run.vocabulary == Vocabulary::Helix).cloned())
            && let Ok(Some(attempts)) = self.changed_attempts(&run)
        {
            self.readers_learn(&run.id, &attempts);
        }
        Ok(())
    }

    /// A run that is larger than its session may be has failed.
    pub(super) fn fails_without_room(self: &Rc<Self>, fence: &Fence, refused: &WriteRefused) {
        if matches!(refused, WriteRefused::NoRoom { .. }) {
            let _ = self.conclude(fence, Outcome::Failed(Code::StateSessionFull));
        }
    }

    pub(super) fn head(&self) -> Cursor {
        self.session(|session| session.log().head()).unwrap_or_default()
    }

    /// The answer to a write that began at the head `before`, once it is durable.
    pub(super) async fn acknowledge(self: &Rc<Self>, fence: &Fence, before: Cursor) -> Answer {
        self.settled_writes().await?;
        let run = self.session(|session| session.run().filter(|run| run.id == fence.run).cloned());
        let Some(run) = run? else {
            return Err(self.write_refused(&fence.run, &WriteRefused::Superseded));
        };
        if run.epoch != fence.epoch {
            return Err(self.write_refused(&fence.run, &WriteRefused::StaleEpoch(run.epoch)));
        }
        Ok(answer::json(200, &Value::Object(self.ack(&run, before))))
    }

    /// As [`Host::acknowledge`], of a run that has ended: the next one may have begun already.
    pub(super) async fn acknowledge_end(self: &Rc<Self>, fence: &Fence, before: Cursor) -> Answer {
        self.settled_writes().await?;
        let row = self.storage.run(&fence.run)?;
        match row.filter(|row| row.epoch == fence.epoch && row.status != RunStatus::Superseded) {
            Some(row) => Ok(answer::json(200, &Value::Object(self.ack(&row, before)))),
            None => self.acknowledge(fence, before).await,
        }
    }

    pub(super) fn ack(&self, run: &RunRow, before: Cursor) -> Map<String, Value> {
        let place = self.session(|session| (session.log().head(), session.expected(&run.fence()).ok()));
        let (head, expected) = place.unwrap_or_default();
        let expected = expected.or(run.push.as_ref().map(|push| push.next));
        let mut ack = self.lease_of(run);
        let last = run.end.unwrap_or(head);
        let stored = (last > before).then_some((before.next().ok(), last));
        ack.extend(facts(json!({
            "firstSequence": stored.and_then(|(first, _)| first),
            "lastSequence": stored.map(|(_, last)| last),
            "head": head,
            "expected": expected,
            "status": run.status,
            "stopRequested": run.status == RunStatus::Interrupted,
        })));
        ack
    }

    pub(super) fn bad_chunk(&self, fence: &Fence, first: u64, refused: &Refused) -> Refusal {
        let number = first.saturating_add(u64::try_from(refused.index).unwrap_or(u64::MAX));
        let expected = self.session(|session| session.expected(fence).ok()).ok().flatten();
        let facts = facts(json!({
            "index": refused.index,
            "number": number,
            "reason": refused.reason.to_string(),
            "expected": expected,
        }));
        Refusal::Explained(Code::ValidationError, refused.to_string(), facts)
    }

    fn bad_line(&self, fence: &Fence, bad: BadLine) -> Refusal {
        let expected = self.session(|session| session.expected(fence).ok()).ok().flatten();
        let facts = facts(json!({ "index": bad.index(), "reason": bad.to_string(), "expected": expected }));
        Refusal::Explained(Code::ValidationError, bad.to_string(), facts)
    }

    /// Why a write changed nothing, with the fact that the producer needs.
    pub fn write_refused(&self, run: &RunId, refused: &WriteRefused) -> Refusal {
        let status = self.storage.run(run).ok().flatten().map(|row| row.status);
        let stopped = status == Some(RunStatus::Interrupted);
        let mut known = facts(json!({ "runId": run, "runStatus": status, "stopRequested": stopped }));
        let refused = match (refused, status) {
            // Another run has followed, but did not take its place.
            (WriteRefused::Superseded, Some(status)) if !status.is_live() && status != RunStatus::Superseded => {
                &WriteRefused::Ended
            }
            _ => refused,
        };
        let code = refused.code();
        match refused {
            WriteRefused::StaleEpoch(epoch) => known.extend(facts(json!({ "epoch": epoch }))),
            WriteRefused::Gap(expected) => known.extend(facts(json!({ "expected": expected }))),
            WriteRefused::Place(floor, head) => {
                let words = format!("throughSequence must lie from {floor} to {head}");
                known.extend(facts(json!({ "floor": floor, "head": head })));
                return Refusal::Explained(code, words, known);
            }
            WriteRefused::Superseded if status.is_none() => {
                return Refusal::NoSuchRun;
            }
            _ => {}
        }
        Refusal::Told(code, known)
    }
}

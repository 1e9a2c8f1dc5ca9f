//! The producer that lives in this object: its start and its flushes. How it ends: [`super::settling`].

use std::panic::AssertUnwindSafe;
use std::rc::Rc;

use serde_json::Value;
use web_sys::{AbortController, AbortSignal};
use worker::{console_error, console_log};

use super::clock::{now, random_text, sleep};
use super::host::{Host, HostError};
use super::producers;
use crate::core::batch::{Batcher, Flush};
use crate::core::call_ids::CallName;
use crate::core::caller::Caller;
use crate::core::chunk::Chunk;
use crate::core::command::{
    Displacement, Entry, Keyed, LastWords, Opening, RewindCause, Start, StartRefused, Started, WriteRefused,
};
use crate::core::error::Code;
use crate::core::ids::{Cursor, RunId};
use crate::core::record::Record;
use crate::core::run::{Fence, Outcome, Vocabulary};
use crate::core::storage::RunRow;
use crate::core::time::{Millis, UnixMillis};
use crate::dialect::ui::resync::{Reason, Resync};
use crate::dialect::ui::vocabulary::ends_call;
use crate::dialect::ui::writer::RunWriter;
use crate::model::agent::Agent;
use crate::model::ui_route::request::Forwarded;

/// A live producer and what it has not flushed yet.
pub struct Production {
    pub(in crate::shell) fence: Fence,
    pub(in crate::shell) writer: RunWriter,
    pub(super) batcher: Batcher,
    timer: Option<UnixMillis>,
    pub(super) upstream: AbortController,
    pub(super) lapsed: bool,
    /// How the run ends as soon as the storage takes it.
    pub(super) ending: Option<Outcome>,
    /// The write that failed last: the head before it, and how many of the waiting records it held.
    failed: Option<(Cursor, usize)>,
}

impl Production {
    /// The lease has lapsed: whatever ends the attempt now, silence was the cause.
    pub(super) fn lapse(&mut self) -> AbortController {
        self.lapsed = true;
        self.upstream.clone()
    }

    /// Those of `records` that the write which failed last has not stored after all.
    pub(super) fn unstored<'a>(&self, head: Option<Cursor>, records: &'a [Record]) -> &'a [Record] {
        let landed = self.failed.filter(|(before, _)| head.is_some_and(|head| head > *before));
        landed.and_then(|(_, count)| records.get(count..)).unwrap_or(if landed.is_some() { &[] } else { records })
    }

    /// Takes back what a write at this head has not stored. `false` when that was once too often.
    pub(super) fn put_back(&mut self, now: UnixMillis, head: Option<Cursor>, records: Vec<Record>) -> bool {
        let unstored = self.unstored(head, &records).to_vec();
        if let Some(head) = head {
            self.failed = Some((head, unstored.len()));
        }
        self.batcher.put_back(now, unstored)
    }
}

/// A message that a run continues, and what is told of it.
pub struct Continued {
    /// The message with the answers in it.
    pub message: Value,
    /// The chunks that say what the answers are.
    pub answers: Vec<Chunk>,
}

/// What a run is launched with.
pub struct Launch<'a> {
    /// The run's id, when its producer names it.
    pub run: Option<RunId>,
    pub agent: &'a str,
    /// The language of its chunks.
    pub vocabulary: Vocabulary,
    /// How long its producer may be silent, when that is outside.
    pub push: Option<Millis>,
    /// The address at which that producer reaches the service, when it is to be told of the run.
    pub told: Option<String>,
    /// The conversation's state from here on, as JSON text.
    pub state: Option<String>,
    /// What the request hands on to a chat route.
    pub forwarded: Option<Forwarded>,
    pub key: Option<Keyed>,
    pub entry: Entry,
    pub continued: Option<Continued>,
    /// The tools and the failures of calls that the run's start has abandoned.
    pub abandoned: Vec<(String, Chunk)>,
    /// The names of calls in the messages that the run answers.
    pub names: Vec<CallName>,
    /// The run waits for a test's word before its first chunk.
    pub held: bool,
    /// What becomes of a run that is live, when it says its last words first.
    pub instead: Option<Displacement>,
    /// Whether its message is the first in the queue.
    pub queued: bool,
}

/// A run whose first chunk a test holds back.
pub struct HeldRun {
    fence: Fence,
    opening: Vec<Record>,
    agent: String,
    forwarded: Option<Forwarded>,
    signal: AbortSignal,
}

/// Why a run did not start.
pub enum NotStarted {
    Refused(StartRefused),
    Host(HostError),
}

impl Host {
    /// Starts a run.
    pub fn start_run(self: &Rc<Self>, caller: &Caller, launch: Launch<'_>) -> Result<RunRow, NotStarted> {
        let Launch {
            run,
            agent,
            vocabulary,
            push,
            told,
            state,
            forwarded,
            key,
            entry,
            continued,
            abandoned,
            names,
            held,
            instead,
            queued,
        } = launch;
        let answers = continued.as_ref().map(|continued| continued.answers.clone()).unwrap_or_default();
        let keeps = matches!(self.config.agents.choose(Some(agent)), Ok((_, Agent::Ui(_))));
        let start = Start {
            now: now(),
            caller,
            run: run.unwrap_or_else(|| RunId::new(format!("run_{}", random_text(1)))),
            salt: &random_text(1),
            agent,
            vocabulary,
            lease: push.unwrap_or(self.config.settings.lease),
            key,
            entry,
            push,
            state,
        };
        let before = self.session(|session| session.run().map(|run| run.id.clone())).map_err(NotStarted::Host)?;
        let interrupted = before.filter(|_| instead == Some(Displacement::Interrupted));
        let last = match instead {
            Some(displacement) => self.displaced(displacement, &start)?,
            None => None,
        };
        let planned = self.session(|session| match &last {
            Some((fence, displacement, records)) => {
                session.plan_instead(&LastWords { fence, records, displacement: *displacement }, start)
            }
            None if queued => session.plan_queued(start),
            None => session.plan(start),
        });
        let plan = planned.map_err(NotStarted::Host)?.map_err(NotStarted::Refused)?;
        let (writer, opened) = open(plan.opening(), (agent, keeps), continued.as_ref(), &abandoned);
        let mut records: Vec<Record> = names.into_iter().map(Record::Call).collect();
        records.extend(opened.iter().filter(|_| !held).cloned());
        let begun = self.session(|session| session.start(plan, &records)).map_err(NotStarted::Host)?;
        let Started { effects, fence, superseded, .. } = begun.map_err(NotStarted::Refused)?;
        self.arm_next();
        if let Err(error) = self.persist(effects) {
            if instead.is_some() {
                // The live run's producer has said its last words, which are in no row.
                self.abandon();
                self.settle_or_come_back();
            }
            return Err(NotStarted::Host(error));
        }
        // Of the run that was taken over nothing is written any more, and its model call ends. Not before its successor is stored: if that
        // fails, the run goes on.
        self.abandon();
        self.forget_admission();
        if let Some(superseded) = superseded {
            console_log!("session {} run {}: superseded by {}", self.log_name, superseded, fence.run);
        }
        if let Some(interrupted) = interrupted {
            self.log_interrupted(&interrupted);
        }
        let run = self.session(|session| session.run().cloned()).map_err(NotStarted::Host)?;
        let run = run.ok_or(NotStarted::Host(HostError::Busy))?;
        if push.is_some() {
            if let Some(own) = told {
                producers::tell(self, &run, own, answers);
            }
        } else if let Some(signal) = self.seat(&fence, writer) {
            if held {
                let held = HeldRun { fence, opening: opened, agent: agent.to_owned(), forwarded, signal };
                if let Ok(mut slot) = self.held_run.try_borrow_mut() {
                    *slot = Some(held);
                }
            } else {
                self.go(fence, agent, forwarded, signal);
            }
        }
        Ok(run)
    }

    /// What the live run says last whose place such a start takes; `None` when nothing is live.
    fn displaced(
        self: &Rc<Self>,
        displacement: Displacement,
        start: &Start<'_>,
    ) -> Result<Option<(Fence, Displacement, Vec<Record>)>, NotStarted> {
        let live = self.session(|session| session.run().filter(|run| run.status.is_live()).cloned());
        let Some(run) = live.map_err(NotStarted::Host)? else { return Ok(None) };
        let fence = run.fence();
        self.session(|session| session.may_start_instead(&fence, displacement, start.caller, &start.entry))
            .map_err(NotStarted::Host)?
            .map_err(NotStarted::Refused)?;
        let records = self.last_words(&run).map_err(NotStarted::Host)?;
        Ok(Some((fence, displacement, records)))
    }

    /// Gives a run a producer in this object. The answer is what tells that producer to stop.
    pub(super) fn seat(self: &Rc<Self>, fence: &Fence, writer: RunWriter) -> Option<AbortSignal> {
        let upstream = AbortController::new().ok()?;
        let signal = upstream.signal();
        let production = Production {
            fence: fence.clone(),
            writer,
            batcher: Batcher::new(self.config.settings.batch_wait),
            timer: None,
            upstream,
            lapsed: false,
            ending: None,
            failed: None,
        };
        *self.production.try_borrow_mut().ok()? = Some(production);
        Some(signal)
    }

    /// Lets the producer speak, unless its run waits for the client's answers already.
    pub(super) fn go(self: &Rc<Self>, fence: Fence, agent: &str, forwarded: Option<Forwarded>, signal: AbortSignal) {
        if self.waits_for_client(&fence) {
            let _ = self.conclude(&fence, Outcome::Completed);
        } else {
            producers::spawn(self, fence, agent, forwarded, signal);
        }
    }

    /// A test's word: the run that it held goes on.
    pub fn release(self: &Rc<Self>) -> bool {
        let held = self.held_run.try_borrow_mut().ok().and_then(|mut slot| slot.take());
        let Some(HeldRun { fence, opening, agent, forwarded, signal }) = held else { return false };
        self.flush(&fence, &opening);
        self.go(fence, &agent, forwarded, signal);
        true
    }

    /// The producer has more. `false` when its run is no longer this one's to write.
    pub fn produce(self: &Rc<Self>, fence: &Fence, chunks: Vec<Chunk>) -> bool {
        let said = !chunks.is_empty();
        let restarts = chunks.iter().any(|chunk| chunk.kind() == "reset-step");
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
        if said {
            self.renew(fence);
        }
        if restarts {
            self.begin_attempt(fence);
        } else {
            self.pump_soon();
        }
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
        let followed = self.is_followed();
        let Ok(mut slot) = self.production.try_borrow_mut() else { return };
        let Some(production) = slot.as_mut() else { return };
        let fence = production.fence.clone();
        match production.batcher.next(now, followed) {
            Flush::Nothing | Flush::AfterConfirmation => {}
            Flush::Now => {
                let records = production.batcher.take(now);
                let ended = if production.ending.is_some() { slot.take() } else { None };
                drop(slot);
                match ended.and_then(|production| production.ending.map(|outcome| (production, outcome))) {
                    Some((production, outcome)) => drop(self.end_with(&fence, production, outcome, records)),
                    None => self.flush(&fence, &records),
                }
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

    pub(super) fn flush(self: &Rc<Self>, fence: &Fence, records: &[Record]) {
        let head = self.session(|session| session.log().head()).ok();
        let fresh = self.with_production(fence, |production| production.unstored(head, records)).unwrap_or(records);
        let write = || match self.write_with_room(|session| session.append(fence, fresh))? {
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
            Ok(Ok(true)) => {
                self.with_production(fence, |production| {
                    production.failed = None;
                    production.batcher.stored();
                });
            }
            Ok(Ok(false)) => self.abandon(),
            Ok(Err(error)) => {
                console_error!("session {} run {}: {error}", self.log_name, fence.run);
                self.store_again(fence, head, records.to_vec());
            }
            // What was lost is not in the log, so the run cannot go on; it is settled from what the rows hold.
            Err(_) => {
                self.abandon();
                self.throw_away();
                self.settle_or_come_back();
            }
        }
    }

    pub(in crate::shell) fn with_production<T>(
        &self,
        fence: &Fence,
        act: impl FnOnce(&mut Production) -> T,
    ) -> Option<T> {
        let mut slot = self.production.try_borrow_mut().ok()?;
        slot.as_mut().filter(|production| production.fence == *fence).map(act)
    }

    /// Whether the run is written by the producer that this signal would stop: one that was replaced may still have a last word to say.
    pub fn is_fed_by(&self, fence: &Fence, signal: &AbortSignal) -> bool {
        self.with_production(fence, |production| production.upstream.signal() == *signal) == Some(true)
    }

    pub(super) fn take_production(&self, fence: &Fence) -> Option<Production> {
        self.with_production(fence, |_| ())?;
        self.production.try_borrow_mut().ok()?.take()
    }
}

/// The run's writer and its first records.
fn open(
    opening: &Opening,
    (agent, keeps_approvals): (&str, bool),
    continued: Option<&Continued>,
    abandoned: &[(String, Chunk)],
) -> (RunWriter, Vec<Record>) {
    let run = opening.run.clone();
    let writer = match continued {
        Some(continued) => RunWriter::continuing(run, continued.message.clone()),
        None => RunWriter::new(run, opening.message_id.clone()),
    };
    let mut writer = writer.named(agent).among(opening.calls.clone()).keeping_approvals(keeps_approvals);
    let mut records = writer.open();
    if let Some(rewound) = opening.rewound.as_ref().or(opening.displaced.as_ref()) {
        let resync = Resync {
            checkpoint: rewound.checkpoint.clone(),
            step_count: 0,
            message_count: u64::from(rewound.message_count),
            from: rewound.from,
            reason: match rewound.cause {
                RewindCause::Retry => Reason::Retry,
                RewindCause::Rollback => Reason::Rollback,
            },
            run: Some(opening.run.clone()),
            truncated: opening.rewound.as_ref().map(|rewound| rewound.checkpoint.clone()),
        };
        records.extend(writer.announce(resync.chunk()));
    }
    for (tool, failure) in abandoned {
        records.extend(writer.answer_earlier(tool, failure.clone()));
    }
    for answer in continued.into_iter().flat_map(|continued| &continued.answers) {
        records.extend(writer.inherit(answer.clone()));
    }
    (writer, records)
}

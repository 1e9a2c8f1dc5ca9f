//! How a run ends: by its producer's word, by a failure, by a stop, or because nobody is left to write it.

use std::rc::Rc;

use serde_json::Value;
use web_sys::{AbortController, AbortSignal};
use worker::{console_error, console_log};

use super::clock::{now, sleep};
use super::host::{Host, HostError};
use super::producers;
use super::production::Production;
use crate::core::attempt::pause_before_next;
use crate::core::command::{Due, WriteRefused};
use crate::core::config::Recovery;
use crate::core::counters::add;
use crate::core::error::{Code, Failure};
use crate::core::ids::Cursor;
use crate::core::record::Record;
use crate::core::run::{EntryKind, Fence, Outcome};
use crate::core::session::keep_alive;
use crate::core::storage::{CheckpointKind, RunRow, Storage};
use crate::core::time::Millis;
use crate::dialect::ui::held_answers::settle;
use crate::dialect::ui::resync::Resync;
use crate::dialect::ui::tool_result::pending;
use crate::dialect::ui::writer::RunWriter;
use crate::model::agent::Agent;

impl Host {
    /// The producer has failed. The words go to the log only. A failure that may pass is followed by another attempt.
    pub fn fail(self: &Rc<Self>, fence: &Fence, failure: &Failure) {
        let Some(lapsed) = self.with_production(fence, |production| production.lapsed) else { return };
        let failure = if lapsed {
            Failure::new(Code::ProviderTimeout, format!("silent for longer than the lease ({failure})"))
        } else {
            failure.clone()
        };
        console_error!("session {} run {}: {failure}", self.log_name, fence.run);
        if self.tries_again(fence, &failure) {
            return;
        }
        let _ = self.session(|session| session.explain(fence, &failure));
        let _ = self.conclude(fence, Outcome::Failed(failure.code));
    }

    /// Whether the producer is asked once more, and if so when.
    fn tries_again(self: &Rc<Self>, fence: &Fence, failure: &Failure) -> bool {
        let settings = &self.config.settings;
        let run = self.session(|session| session.run().filter(|run| run.id == fence.run).cloned());
        let Ok(Some(run)) = run else { return false };
        let may = self.with_production(fence, |production| production.writer.may_restart()) == Some(true);
        let once = matches!(self.config.agents.choose(Some(&run.agent)), Ok((_, Agent::Ui(_))) | Err(_));
        let tries = run.attempts.saturating_sub(run.life.deaths);
        let pause = pause_before_next(failure, tries, settings.max_attempts, settings.lease);
        let (true, false, Some(pause), Ok(upstream)) = (may, once, pause, AbortController::new()) else { return false };
        if self.would_lose_answers(fence) {
            // What was answered counts: the reply is kept as far as it came, and goes on from there.
            let _ = self.conclude(fence, Outcome::Completed);
            return true;
        }
        let signal = upstream.signal();
        self.with_production(fence, |production| {
            let records = production.writer.restart_step();
            production.batcher.offer(records);
            production.upstream = upstream;
            production.lapsed = false;
        });
        self.renew(fence);
        self.begin_attempt(fence);
        let (host, fence) = (Rc::clone(self), fence.clone());
        self.spawn(async move {
            sleep(pause).await;
            if host.with_production(&fence, |_| ()).is_some() {
                host.renew(&fence);
                producers::spawn(&host, fence, &run.agent, None, signal);
            }
        });
        true
    }

    /// Whether the run's message has calls that wait for the client.
    pub fn waits_for_client(&self, fence: &Fence) -> bool {
        let agent = self.session(|session| session.run().map(|run| run.agent.clone())).ok().flatten();
        let Ok((_, agent)) = self.config.agents.choose(agent.as_deref()) else { return false };
        let message = self.with_production(fence, |production| production.writer.fold().message()).flatten();
        message.is_some_and(|message| !pending(&message, agent.executor()).is_empty())
    }

    /// Ends a live run, keeping what its producer has said. The first to call wins. One that finished with calls that wait for the client
    /// is suspended.
    pub fn conclude(self: &Rc<Self>, fence: &Fence, outcome: Outcome) -> Result<(), HostError> {
        let outcome = match outcome {
            Outcome::Completed if self.waits_for_client(fence) => Outcome::Suspended,
            outcome => outcome,
        };
        let goes_on = outcome == Outcome::Suspended && self.goes_on(fence);
        let Some(mut production) = self.take_production(fence) else { return self.bury(fence, outcome) };
        // The first ending counts, also when it still waits for the storage.
        let outcome = production.ending.unwrap_or(outcome);
        let mut records = production.batcher.take(now());
        if !matches!(outcome, Outcome::Completed | Outcome::Suspended) {
            records.extend(self.keep_answers(fence, &mut production.writer));
        }
        records.extend(match outcome {
            Outcome::Suspended if goes_on => production.writer.hand_over(),
            Outcome::Completed | Outcome::Suspended | Outcome::Paused(_) => production.writer.complete(),
            Outcome::Interrupted => production.writer.stop(),
            Outcome::Failed(_) => production.writer.fail(),
        });
        if matches!(outcome, Outcome::Interrupted | Outcome::Failed(_)) {
            production.upstream.abort();
        }
        self.end_with(fence, production, outcome, records)
    }

    /// Ends a run with its last records. What cannot be stored waits, with its producer's place, until it can.
    pub(super) fn end_with(
        self: &Rc<Self>,
        fence: &Fence,
        mut production: Production,
        outcome: Outcome,
        records: Vec<Record>,
    ) -> Result<(), HostError> {
        let head = self.session(|session| session.log().head()).ok();
        let finished = self.finish(fence, outcome, production.unstored(head, &records));
        if let Err(error) = finished {
            console_error!("session {} run {}: {error}", self.log_name, fence.run);
            production.ending = Some(outcome);
            if let Ok(mut slot) = self.production.try_borrow_mut() {
                *slot = Some(production);
            }
            self.store_again(fence, head, records);
            return Err(error);
        }
        drop(production);
        let held = self.take_held();
        if let Err(error) = &held {
            console_error!("session {} run {}: {error}", self.log_name, fence.run);
            self.settle_or_come_back();
        }
        held
    }

    /// The records could not be stored: they wait and are tried again. After too many times the run has failed with what is durable.
    pub(super) fn store_again(self: &Rc<Self>, fence: &Fence, head: Option<Cursor>, records: Vec<Record>) {
        self.throw_away();
        if self.with_production(fence, |production| production.put_back(now(), head, records)) == Some(true) {
            self.renew(fence);
            return self.pump_soon();
        }
        self.abandon();
        if let Ok(mut unstorable) = self.unstorable.try_borrow_mut() {
            *unstorable = Some(fence.clone());
        }
        self.settle_or_come_back();
    }

    /// Whether the run's end is that its words could not be stored.
    fn is_unstorable(&self, fence: &Fence) -> bool {
        self.unstorable.try_borrow().is_ok_and(|unstorable| unstorable.as_ref() == Some(fence))
    }

    /// The answers that are held for a run which is broken off: results stay what they are.
    fn keep_answers(&self, fence: &Fence, writer: &mut RunWriter) -> Vec<Record> {
        let held = self.held_answers();
        let run = self.session(|session| session.run().filter(|run| run.fence() == *fence).cloned()).ok().flatten();
        let (Some(run), Some(message), false) = (run, writer.fold().message(), held.is_empty()) else {
            return Vec::new();
        };
        let told = settle(message, &held, self.executor(&run)).told;
        told.into_iter().flat_map(|chunk| writer.inherit(chunk)).collect()
    }

    /// As [`Host::settle`], but a producer that is merely silent may first say whether its answer was complete: some model APIs keep the
    /// connection open after the last word.
    pub async fn settle_or_hear(self: &Rc<Self>) -> Result<(), HostError> {
        if let Some(Due::Lapsed(fence)) = self.session(|session| session.look(now()))?
            && let Some(upstream) = self.with_production(&fence, |production| production.lapse())
        {
            upstream.abort();
            sleep(LAST_WORD).await;
        }
        self.settle()
    }

    /// Settles a run that a failed write has cut; when that fails too, nobody is left waiting and the alarm tries again.
    pub(super) fn settle_or_come_back(self: &Rc<Self>) {
        if self.settle().is_err() {
            self.evict_all();
            self.arm(Some(now().after(keep_alive(self.config.settings.lease))));
        }
    }

    /// Settles a dead run, if there is one.
    pub fn settle(self: &Rc<Self>) -> Result<(), HostError> {
        match self.session(|session| session.look(now()))? {
            None => Ok(()),
            Some(Due::Answered(_)) => self.take_held(),
            // Its end waits for the storage.
            Some(Due::Lapsed(fence)) if self.with_production(&fence, |production| production.ending) == Some(None) => {
                self.fail(&fence, &Failure::new(Code::ProviderTimeout, "silent for longer than the lease"));
                Ok(())
            }
            Some(Due::Lapsed(fence) | Due::Orphaned(fence)) => {
                if self.is_unstorable(&fence) {
                    return self.bury(&fence, Outcome::Failed(Code::StateStoreFailed));
                }
                self.count(|counters| add(&mut counters.reaped, 1));
                if self.recovers(&fence)? {
                    return Ok(());
                }
                self.bury(&fence, Outcome::Failed(Code::ProducerLost))
            }
        }
    }

    pub(super) fn finish(
        self: &Rc<Self>,
        fence: &Fence,
        outcome: Outcome,
        records: &[Record],
    ) -> Result<(), HostError> {
        match self.write_with_room(|session| session.finish(now(), fence, outcome, records))? {
            Ok(effects) => {
                self.persist(effects)?;
                self.log_settled(fence);
                self.arm_next();
                self.answer_queued()
            }
            Err(WriteRefused::NoRoom { .. }) => self.bury(fence, Outcome::Failed(Code::StateSessionFull)),
            Err(refused) => {
                console_log!("session {} run {}: {refused}", self.log_name, fence.run);
                Ok(())
            }
        }
    }

    /// What a live run leaves behind that another one is about to take the place of.
    pub(super) fn last_words(self: &Rc<Self>, run: &RunRow) -> Result<Vec<Record>, HostError> {
        let fence = run.fence();
        let Some(mut production) = self.take_production(&fence) else {
            return match run.push {
                Some(_) => Ok(self.last_words_of_pushed(run)),
                None => Ok(self.writer_of(run)?.stop()),
            };
        };
        let mut records = production.batcher.take(now());
        records.extend(self.keep_answers(&fence, &mut production.writer));
        records.extend(production.writer.stop());
        // Back in its place: its request ends once the run's successor is stored.
        if let Ok(mut slot) = self.production.try_borrow_mut() {
            *slot = Some(production);
        }
        Ok(records)
    }

    /// Ends a run that has no producer in this object, from its last commit and the chunks behind it.
    pub(super) fn bury(self: &Rc<Self>, fence: &Fence, outcome: Outcome) -> Result<(), HostError> {
        let run = self.session(|session| session.run().filter(|run| run.fence() == *fence).cloned())?;
        let Some(run) = run else { return Ok(()) };
        if run.push.is_some() {
            return self.bury_pushed(&run, outcome);
        }
        let mut writer = self.writer_of(&run)?;
        let mut records = self.keep_answers(fence, &mut writer);
        records.extend(writer.fail());
        console_log!("session {} run {}: settled without its producer", self.log_name, fence.run);
        self.finish(fence, outcome, &records)
    }

    /// A writer in the place of the run's dead one. Rows that cannot be read must not keep the run alive: it then knows what was committed.
    fn writer_of(&self, run: &RunRow) -> Result<RunWriter, HostError> {
        let committed = self.session(|session| {
            let last = session.checkpoint().filter(|last| last.run == run.id)?;
            let is_commit = !matches!(last.kind, CheckpointKind::Entry | CheckpointKind::Truncate);
            is_commit.then_some((last.sequence, last.step_count))
        })?;
        let continues = run.entry == EntryKind::ToolResult;
        let message = if continues || committed.is_some() { self.message_at(run.message_index) } else { None };
        let writer = match message {
            Some(message) => {
                let steps = committed.map_or(0, |(_, steps)| steps);
                RunWriter::resume(run.id.clone(), message, steps, continues)
            }
            None => RunWriter::new(run.id.clone(), run.message_id.clone()),
        };
        let mut writer = writer.named(&run.agent).among(self.session(|session| session.calls().clone())?);
        let from = committed.map_or(run.start, |(cursor, _)| cursor);
        if let Err(error) = self.each_stored(from, None, &mut |stored| writer.replay(&stored.chunk)) {
            console_error!("session {} run {}: {error}", self.log_name, run.id);
        }
        Ok(writer)
    }

    /// Tries a run again whose object died, from its last commit. `false` when it must end: its agent may be asked once only, or its objects
    /// have died often enough.
    fn recovers(self: &Rc<Self>, fence: &Fence) -> Result<bool, HostError> {
        let settings = &self.config.settings;
        let run = self.session(|session| session.run().filter(|run| run.id == fence.run).cloned())?;
        let may = |run: &RunRow| run.push.is_none() && settings.recovery == Recovery::Retry;
        let Some(run) = run.filter(may) else { return Ok(false) };
        let Ok((_, agent)) = self.config.agents.choose(Some(&run.agent)) else { return Ok(false) };
        let writer = self.writer_of(&run)?;
        let steps = writer.steps_done();
        let (again, whole) = match agent {
            // A producer outside is waited for, not replaced; what it was told of once it is not told again.
            Agent::Ui(_) | Agent::Push(_) => (false, false),
            // Its script is the same again, so that it goes on behind the steps that were committed.
            Agent::Demo(_) => (true, false),
            // One request, one step: a committed one lacks nothing but the run's end.
            Agent::OpenAi(_) | Agent::Anthropic(_) => (steps == 0, writer.is_between_steps()),
        };
        let held = self.held_answers();
        let loses = held.iter().any(|answer| writer.takes_back(&answer.tool_call_id));
        let (again, whole) = if again && loses { (false, true) } else { (again, whole) };
        if !again && !whole {
            return Ok(false);
        }
        let mut pause = Millis::default();
        if again {
            let Ok(Some((spread, effects))) = self.session(|session| session.died(now(), fence))? else {
                return Ok(false);
            };
            pause = spread;
            effects.map_or(Ok(()), |effects| self.persist(effects))?;
        }
        let Some(signal) = self.seat(fence, writer) else { return Ok(false) };
        self.session(|session| session.adopt(now(), fence))?;
        if !again {
            self.conclude(fence, Outcome::Completed)?;
        } else if pause == Millis::default() {
            self.go_again(fence, &run.agent, signal);
        } else {
            let (host, fence) = (Rc::clone(self), fence.clone());
            self.spawn(async move {
                sleep(pause).await;
                if host.is_fed_by(&fence, &signal) {
                    host.go_again(&fence, &run.agent, signal);
                }
            });
        }
        Ok(true)
    }

    /// The next attempt of a run whose object died.
    fn go_again(self: &Rc<Self>, fence: &Fence, agent: &str, signal: AbortSignal) {
        let last = self.session(|session| session.checkpoint().cloned()).ok().flatten();
        self.with_production(fence, |production| {
            let records = match &last {
                Some(last) => production.writer.recover_step(Resync::recovered(last, &fence.run).chunk()),
                None => production.writer.restart_step(),
            };
            production.batcher.offer(records);
        });
        self.renew(fence);
        self.begin_attempt(fence);
        self.go(fence.clone(), agent, None, signal);
    }

    fn message_at(&self, index: u32) -> Option<Value> {
        let row = self.storage.message_at(index).ok().flatten()?;
        serde_json::from_str(&row.json).ok()
    }
}

/// How long a silent producer may take to close its books.
const LAST_WORD: Millis = Millis::new(20);

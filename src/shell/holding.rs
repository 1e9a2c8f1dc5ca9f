//! Answers that come while their run is still writing: held, shown, and counted when the run waits for them.

use std::rc::Rc;

use serde_json::Value;
use worker::console_error;

use super::clock::now;
use super::entry::{Entered, Entry};
use super::host::{Host, HostError};
use super::producers;
use super::production::{Continued, Launch, NotStarted};
use crate::core::approval::Executor;
use crate::core::caller::Caller;
use crate::core::command::{Entry as RunEntry, WriteRefused};
use crate::core::error::Code;
use crate::core::record::{Commit, Record};
use crate::core::run::{Fence, Outcome, RunStatus, Vocabulary};
use crate::core::storage::RunRow;
use crate::core::time::Millis;
use crate::dialect::ui::held_answers::{Held, Settled, settle};
use crate::dialect::ui::tool_result::Answer;
use crate::model::agent::Agent;
use crate::session::messages;

impl Host {
    /// Everything that the run has said is stored and durable, so that its clients are shown it.
    pub async fn show_all(self: &Rc<Self>) -> Result<(), HostError> {
        let running = self.session(|session| session.run().filter(|run| run.status == RunStatus::Running).cloned())?;
        let Some(run) = running else { return Ok(()) };
        let fence = run.fence();
        let records = self.with_production(&fence, |production| production.batcher.take(now()));
        if let Some(records) = records.filter(|records| !records.is_empty()) {
            self.flush(&fence, &records);
        }
        self.settled_writes().await
    }

    /// The message of a run that is writing, as far as it has come; `None` while it has no parts.
    pub fn live_message(&self, run: &RunRow) -> Result<Option<Value>, HostError> {
        if let Some(message) = self.with_production(&run.fence(), |production| production.writer.fold().message()) {
            return Ok(message);
        }
        if run.push.is_none() || run.vocabulary == Vocabulary::Opaque {
            return self.message_of(run);
        }
        let admission = self.admission_of(run)?;
        let own = self.has_own_words(run, &admission);
        let message = admission.message();
        self.keep_admission(&run.fence(), admission);
        if own { self.message_of(run) } else { Ok(message) }
    }

    /// The answers that are held.
    pub fn held(&self) -> Result<Vec<Held>, HostError> {
        self.session(|session| messages::held(session))
    }

    pub(super) fn held_answers(&self) -> Vec<Answer> {
        self.session(|session| messages::held_answers(session)).unwrap_or_default()
    }

    /// Holds answers to the calls of the run that is writing, and what their request hands on to the run that goes on.
    pub fn hold(
        self: &Rc<Self>,
        entry: Entry<'_>,
        run: &RunRow,
        answers: Vec<Answer>,
    ) -> Result<Result<(), WriteRefused>, HostError> {
        let entered = self.enter(self.for_run(entry, &run.agent)).ok();
        let (forwarded, origin) = match entered {
            Some(Entered { forwarded, outside, .. }) => (forwarded, outside.map(|outside| outside.own)),
            None => (None, None),
        };
        let texts = answers.into_iter().map(|answer| Held { answer, origin: origin.clone() }.to_text()).collect();
        let fence = run.fence();
        let effects = match self.session(|session| session.hold(&fence, texts))? {
            Ok(effects) => effects,
            Err(refused) => return Ok(Err(refused)),
        };
        self.persist(effects)?;
        if let (Some(forwarded), Ok(mut slot)) = (forwarded, self.held_forward.try_borrow_mut()) {
            *slot = Some(forwarded);
        }
        Ok(Ok(()))
    }

    /// Whether the run's message, as it stands, has all its answers already, so that another run goes on with it at once.
    pub(super) fn goes_on(&self, fence: &Fence) -> bool {
        let held = self.held_answers();
        let run = self.session(|session| session.run().filter(|run| run.fence() == *fence).cloned()).ok().flatten();
        let Some(run) = run.filter(|_| !held.is_empty()) else { return false };
        let executor = self.executor(&run);
        let message = self.with_production(fence, |production| production.writer.fold().message()).flatten();
        message.is_some_and(|message| settle(message, &held, executor).goes_on(executor))
    }

    /// Whether a new attempt of the open step would take a call back whose answer is held.
    pub(super) fn would_lose_answers(&self, fence: &Fence) -> bool {
        let held = self.held_answers();
        let takes_back = |call: &str| self.with_production(fence, |production| production.writer.takes_back(call));
        held.iter().any(|answer| takes_back(&answer.tool_call_id) == Some(true))
    }

    /// What was answered while the run was writing counts, now that it waits: it is told, or the run goes on with it.
    pub(super) fn take_held(self: &Rc<Self>) -> Result<(), HostError> {
        let suspended =
            self.session(|session| session.run().filter(|run| run.status == RunStatus::SuspendedClientTool).cloned())?;
        let held = self.held()?;
        let Some(run) = suspended.filter(|_| !held.is_empty()) else { return Ok(()) };
        let executor = self.executor(&run);
        let Some(stored) = self.message_of(&run)? else { return self.tell_held(&run, &[]) };
        let settled = settle(stored, held.iter().map(|held| &held.answer), executor);
        if settled.goes_on(executor) && !asks(&run) {
            let origin = held.into_iter().rev().find_map(|held| held.origin);
            match self.go_on(&run, &settled, origin) {
                Ok(()) => return Ok(()),
                Err(NotStarted::Host(error)) => return Err(error),
                Err(NotStarted::Refused(refused)) => {
                    console_error!("session {} run {}: {refused}", self.log_name, run.id);
                }
            }
        }
        let Settled { message, told } = settled;
        let step_count = self.session(|session| session.checkpoint().map_or(0, |last| last.step_count))?;
        let mut records: Vec<Record> = told.into_iter().map(|chunk| Record::Chunk { chunk, attempt: None }).collect();
        if !records.is_empty() {
            records.push(Record::Commit(Commit { message, step_count, state: None }));
        }
        self.tell_held(&run, &records)
    }

    fn tell_held(self: &Rc<Self>, run: &RunRow, records: &[Record]) -> Result<(), HostError> {
        let fence = run.fence();
        match self.write_with_room(|session| session.answer_held(&fence, records))? {
            Ok(effects) => self.persist(effects),
            Err(WriteRefused::NoRoom { .. }) => self.bury(&fence, Outcome::Failed(Code::StateSessionFull)),
            Err(refused) => {
                console_error!("session {} run {}: {refused}", self.log_name, run.id);
                Ok(())
            }
        }
    }

    /// Starts the run that goes on with a message whose calls are answered, for the agent of the run that asked.
    fn go_on(self: &Rc<Self>, run: &RunRow, settled: &Settled, origin: Option<String>) -> Result<(), NotStarted> {
        let owner = self.session(|session| session.owner().map(str::to_owned)).map_err(NotStarted::Host)?;
        let caller = owner.map_or(Caller::Anonymous, Caller::Owner);
        let refused = || NotStarted::Refused(crate::core::command::StartRefused::Conflict);
        let (name, agent) = self.config.agents.choose(Some(&run.agent)).map_err(|_| refused())?;
        if let Err(failure) = producers::check(self, name, agent) {
            console_error!("session {} run {}: {failure}", self.log_name, run.id);
            return Err(refused());
        }
        let (vocabulary, push, told) = match agent {
            Agent::Push(settings) => {
                let lease = settings.lease_ms.map_or(self.config.settings.lease, |ms| Millis::new(u64::from(ms)));
                (settings.vocabulary, Some(lease), Some(origin.ok_or_else(refused)?))
            }
            _ => (Vocabulary::Ui, None, None),
        };
        let forwarded = self.held_forward.try_borrow_mut().ok().and_then(|mut slot| slot.take());
        let message = settled.message.clone();
        let launch = Launch {
            run: None,
            agent: name,
            vocabulary,
            push,
            told,
            state: None,
            forwarded,
            key: None,
            entry: RunEntry::Results { message: Some(message.to_string()) },
            continued: Some(Continued { message, answers: settled.told.clone() }),
            abandoned: Vec::new(),
            names: Vec::new(),
            held: false,
            instead: None,
            queued: false,
        };
        self.start_run(&caller, launch).map(|_| ())
    }

    /// Who executes what is approved of a run's calls.
    pub fn executor(&self, run: &RunRow) -> Executor {
        if run.push.is_some() {
            return Executor::Producer;
        }
        let agent = self.config.agents.choose(Some(&run.agent));
        agent.map_or(Executor::Client, |(_, agent)| agent.executor())
    }
}

/// Whether the run's producer is outside and cannot be told: it asks for the answers itself.
pub fn asks(run: &RunRow) -> bool {
    run.push.is_some() && run.agent.is_empty()
}

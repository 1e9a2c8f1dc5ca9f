//! The messages that wait for their answer: stored at once, answered in their order, each as soon as no run is live.

use std::collections::BTreeMap;
use std::rc::Rc;

use worker::console_error;

use super::entry::Outside;
use super::host::{Host, HostError};
use super::production::{Launch, NotStarted};
use crate::core::caller::Caller;
use crate::core::chunk::Chunk;
use crate::core::command::{Abandoned, Entry, Input, Keyed, StartRefused};
use crate::core::ids::{MessageId, RequestKey, RunId};
use crate::core::run::Vocabulary;
use crate::core::storage::{QueuedRow, Storage, StorageError};
use crate::model::ui_route::request::Forwarded;

/// What requests hand on to chat routes, by the runs that wait. In memory only: it may hold a visitor's secrets.
pub type HandedOn = BTreeMap<RunId, Forwarded>;

/// What becomes of the calls of a suspended run whose place a message takes: its message, and what is told of each call.
pub type GivenUp = (Abandoned, Vec<(String, Chunk)>);

impl Host {
    /// A message joins the queue, or takes the place of one that waits.
    pub fn enqueue(
        self: &Rc<Self>,
        caller: &Caller,
        row: QueuedRow,
        forwarded: Option<Forwarded>,
    ) -> Result<(), NotStarted> {
        let run = row.run.clone();
        let effects = self.session(|session| session.enqueue(caller, row)).map_err(NotStarted::Host)?;
        self.persist(effects.map_err(NotStarted::Refused)?).map_err(NotStarted::Host)?;
        self.hand_on(&run, forwarded);
        Ok(())
    }

    /// Keeps what a message's latest request hands on.
    pub fn hand_on(&self, run: &RunId, forwarded: Option<Forwarded>) {
        if let (Ok(mut kept), Some(forwarded)) = (self.handed_on.try_borrow_mut(), forwarded) {
            kept.insert(run.clone(), forwarded);
        }
    }

    /// Gives up all that wait; their ids.
    pub fn clear_queue(self: &Rc<Self>) -> Result<Vec<MessageId>, HostError> {
        let Some((effects, messages)) = self.session(|session| session.clear_queue())? else { return Ok(Vec::new()) };
        self.persist(effects)?;
        self.forget_handed_on();
        Ok(messages)
    }

    /// Nobody waits any more.
    pub fn forget_handed_on(&self) {
        if let Ok(mut kept) = self.handed_on.try_borrow_mut() {
            kept.clear();
        }
    }

    /// Answers the next message, once no run is live. Asked wherever a run may have ended, and derived from the rows alone.
    pub fn answer_queued(self: &Rc<Self>) -> Result<(), HostError> {
        while let Some(next) = self.session(|session| session.next_queued().cloned())? {
            self.answer_next(next, None)?;
        }
        Ok(())
    }

    /// The first message that waits takes the place of the run that waits for answers, whose calls are given up.
    pub fn answer_queued_instead(self: &Rc<Self>, given_up: GivenUp) -> Result<(), HostError> {
        match self.session(|session| session.queue().first().cloned())? {
            Some(first) => self.answer_next(first, Some(given_up)),
            None => Ok(()),
        }
    }

    fn answer_next(self: &Rc<Self>, next: QueuedRow, given_up: Option<GivenUp>) -> Result<(), HostError> {
        let json = self.storage.queued(next.place)?.ok_or(StorageError::Corrupt("a queued message is missing"))?;
        let owner = self.session(|session| session.owner().map(str::to_owned))?;
        let caller = owner.map_or(Caller::Anonymous, Caller::Owner);
        // One that is configured no more is failed by its start, which stores the message.
        let agent = self.config.agents.of_request(None, Some(&next.agent)).ok();
        let outside = agent.and_then(|(_, agent)| self.outside(agent, next.origin.clone().unwrap_or_default()));
        let forwarded = self.handed_on.try_borrow_mut().ok().and_then(|mut kept| kept.remove(&next.run));
        let key = next.request_key.as_deref().and_then(|key| RequestKey::parse(key).ok());
        let (abandoned_message, abandoned) = given_up.map_or((None, Vec::new()), |(json, told)| (Some(json), told));
        let launch = Launch {
            run: Some(next.run.clone()),
            agent: agent.map_or(&next.agent, |(name, _)| name),
            vocabulary: outside.as_ref().map_or(Vocabulary::Ui, |outside| outside.vocabulary),
            push: outside.as_ref().map(|outside| outside.lease),
            told: outside.map(|outside: Outside| outside.own),
            state: None,
            forwarded,
            key: key.map(|key| Keyed { key, input_hash: next.input_hash.clone() }),
            entry: Entry::Send { input: Input { id: next.message.clone(), json }, abandoned: abandoned_message },
            continued: None,
            abandoned,
            names: Vec::new(),
            held: false,
            instead: None,
            queued: true,
        };
        match self.start_run(&caller, launch) {
            Ok(run) => {
                self.readers_project(&run);
                Ok(())
            }
            Err(NotStarted::Host(error)) => Err(error),
            // Nobody can answer it in this session: whoever waits for it learns of that.
            Err(NotStarted::Refused(refused)) => self.give_up_first(&next, &refused),
        }
    }

    fn give_up_first(self: &Rc<Self>, next: &QueuedRow, refused: &StartRefused) -> Result<(), HostError> {
        console_error!("session {} run {}: {refused}", self.log_name, next.run);
        match self.session(|session| session.give_up_first())? {
            Some(effects) => self.persist(effects),
            None => Ok(()),
        }
    }
}

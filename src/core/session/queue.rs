//! The messages that wait for their answer: how one joins them, how the next is answered, and how they are given up.
//!
//! A message in the queue is stored, but no part of the conversation. Its run has an id already, so that its responses can wait for it.

use super::Session;
use super::plan::Plan;
use crate::core::caller::Caller;
use crate::core::command::{Effects, Start, StartRefused};
use crate::core::ids::{MessageId, RequestKey, RunId};
use crate::core::storage::{QueuedRow, Write};

/// What a send is to the messages that wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Waits {
    /// None of them.
    Not,
    /// A repeat: its responses wait for this one's run.
    Repeat(QueuedRow),
    /// Another text in the place of this one.
    Replaces(QueuedRow),
    /// Its key is that of this one, its content is not.
    Conflict(RunId),
}

impl Session {
    /// What a send is to the messages that wait, by its key, its id or the message that it names as the one to replace; `hash` is its
    /// content's.
    pub fn waits(&self, id: &str, replaces: Option<&str>, key: Option<&RequestKey>, hash: &str) -> Waits {
        let same = |waiting: &QueuedRow| waiting.input_hash == hash;
        if let Some(waiting) = key.and_then(|key| self.queued_key(key)) {
            return if same(waiting) { Waits::Repeat(waiting.clone()) } else { Waits::Conflict(waiting.run.clone()) };
        }
        match (self.queued_message(id), replaces.and_then(|named| self.queued_message(named))) {
            (Some(waiting), _) if same(waiting) => Waits::Repeat(waiting.clone()),
            (Some(waiting), _) | (None, Some(waiting)) => Waits::Replaces(waiting.clone()),
            (None, None) => Waits::Not,
        }
    }

    /// The messages that wait, in order, without their JSON.
    pub fn queue(&self) -> &[QueuedRow] {
        &self.queue
    }

    /// The message that waits under this id.
    pub fn queued_message(&self, id: &str) -> Option<&QueuedRow> {
        self.queue.iter().find(|waiting| waiting.message.as_str() == id)
    }

    /// The message that waits under this request key.
    fn queued_key(&self, key: &RequestKey) -> Option<&QueuedRow> {
        self.queue.iter().find(|waiting| waiting.request_key.as_deref() == Some(key.as_str()))
    }

    /// The message that is to be answered now: the first, once no run is live. A run that waits for answers of clients has them first.
    pub fn next_queued(&self) -> Option<&QueuedRow> {
        let live = self.run.as_ref().is_some_and(|run| run.status.is_live());
        self.queue.first().filter(|_| !live)
    }

    /// Where the next message joins.
    pub fn next_place(&self) -> u32 {
        self.queue.last().map_or(1, |last| last.place.saturating_add(1))
    }

    /// A message joins the queue, or takes the place of one that waits there.
    ///
    /// # Errors
    /// [`StartRefused`] when there is nothing to wait for; nothing has changed.
    pub fn enqueue(&mut self, caller: &Caller, row: QueuedRow) -> Result<Effects, StartRefused> {
        let salt = &self.authorise(caller)?.salt;
        if row.message.is_for_replies(salt) {
            return Err(StartRefused::IdTaken(row.message));
        }
        let live = self.run.as_ref().is_some_and(|run| run.status.is_live());
        let known = self.queue.iter().position(|waiting| waiting.place == row.place);
        if (known.is_none() && row.place != self.next_place()) || !live {
            return Err(StartRefused::Conflict);
        }
        let kept = QueuedRow { json: String::new(), ..row.clone() };
        match known.and_then(|at| self.queue.get_mut(at)) {
            // Who waits for the one before waits for this.
            Some(waiting) if waiting.run == row.run => *waiting = kept,
            Some(_) => return Err(StartRefused::Conflict),
            None => {
                self.view.queues(row.run.clone());
                self.queue.push(kept);
            }
        }
        Ok(self.effects(vec![Write::Enqueue(row)]))
    }

    /// As [`Session::plan`], of the run of the first message, which leaves the queue with it.
    ///
    /// # Errors
    /// [`StartRefused`].
    pub fn plan_queued(&self, start: Start<'_>) -> Result<Plan, StartRefused> {
        let first = self.queue.first().filter(|first| first.run == start.run).ok_or(StartRefused::Conflict)?;
        Ok(self.plan(start)?.of_queued(first.place))
    }

    /// Gives the first message up, which cannot be answered.
    pub fn give_up_first(&mut self) -> Option<Effects> {
        let first = self.queue.first()?.place;
        Some(self.give_up(|waiting| waiting.place == first).0)
    }

    /// Gives all messages up that wait; their ids.
    pub fn clear_queue(&mut self) -> Option<(Effects, Vec<MessageId>)> {
        (!self.queue.is_empty()).then(|| self.give_up(|_| true))
    }

    fn give_up(&mut self, gone: impl Fn(&QueuedRow) -> bool) -> (Effects, Vec<MessageId>) {
        let (left, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut self.queue).into_iter().partition(gone);
        self.queue = kept;
        let effects = self.effects(left.iter().map(|waiting| Write::Dequeue(waiting.place)).collect());
        if let Some(pending) = self.pending.back_mut() {
            pending.given_up = left.iter().map(|waiting| waiting.run.clone()).collect();
        }
        (effects, left.into_iter().map(|waiting| waiting.message).collect())
    }
}

//! How a producer outside commits, renews, ends, fails and pauses its run, and what it is told.

use std::rc::Rc;

use futures::future::{Either, select};
use serde_json::{Map, Value, json};
use web_sys::Request;

use super::Answer;
use super::refusals::{Refusal, committed, facts, unread};
use super::runs::{fence, numbered};
use crate::core::approval::Executor;
use crate::core::call_ids::CallName;
use crate::core::caller::Caller;
use crate::core::command::{Effects, WriteRefused};
use crate::core::ids::{Cursor, MessageId, RunId};
use crate::core::run::{Fence, Outcome, RunStatus, Vocabulary};
use crate::core::session::push::PushCommit;
use crate::core::storage::{RunRow, Storage};
use crate::core::time::Millis;
use crate::dialect::push::admit::{Admission, Admitted, Covered, Done, Folded};
use crate::dialect::push::body::{CommitBody, EndBody, EndStatus, FailBody, PauseBody, Renew};
use crate::dialect::push::ending::{EndDeed, Ending};
use crate::dialect::push::numbers::ProducerSeq;
use crate::dialect::push::own_messages::{Around, OwnMessage, written};
use crate::dialect::push::reason::{NotWhole, Refused};
use crate::dialect::push::refusal::Refusal as BodyRefusal;
use crate::dialect::route::query_value;
use crate::dialect::ui::held_answers::settle;
use crate::dialect::ui::tool_result::pending;
use crate::model::push_agent::result;
use crate::session::admissions::{self, last_commit};
use crate::shell::answer;
use crate::shell::clock::{now, sleep};
use crate::shell::host::Host;
use crate::shell::request::{Leaving, body};

/// How long a question about what clients want waits for something new.
const CONTROL_WAIT: Millis = Millis::new(20_000);

/// Most bytes of what a producer says with its end.
const MAX_RESULT_BYTES: usize = 256 << 10;

impl Host {
    /// `POST …/commit`.
    pub(super) async fn commit_run(self: &Rc<Self>, request: &Request, run: &RunId) -> Answer {
        let (fence, number) = numbered(request, run)?;
        let bytes = self.push_body(request).await?;
        let commit = CommitBody::parse(&bytes, self.vocabulary(&fence)?).map_err(|refusal| invalid(&refusal))?;
        let before = self.head();
        if self.skip(&fence, number.get(), 1)? == 0 {
            self.commit_now(&fence, commit)?;
        }
        self.acknowledge(&fence, before).await
    }

    fn commit_now(self: &Rc<Self>, fence: &Fence, commit: CommitBody) -> Result<(), Refusal> {
        let mut admission = self.admission(fence)?;
        let commit = match self.pushed_commit(fence, &admission, commit) {
            Ok(commit) => commit,
            Err(refusal) => {
                self.keep_admission(fence, admission);
                return Err(refusal);
            }
        };
        let (through, state) = (commit.through, commit.state.clone());
        let effects = self.session(|session| session.commit(now(), fence, commit));
        self.store(fence, effects?)?;
        match state.and_then(|state| serde_json::from_str::<Value>(&state).ok()) {
            // What was patched behind the commit applies to its state: read again.
            Some(_) if through < admission.at() => self.forget_admission(),
            Some(state) => {
                admission.set_state(Some(state));
                self.keep_admission(fence, admission);
            }
            None => self.keep_admission(fence, admission),
        }
        Ok(())
    }

    /// What a commit covers: what its body says, and what the object makes of the chunks.
    fn pushed_commit(&self, fence: &Fence, admission: &Admission, body: CommitBody) -> Result<PushCommit, Refusal> {
        let row = self.session(|session| session.run().cloned())?;
        let row = row.ok_or_else(|| self.write_refused(&fence.run, &WriteRefused::Superseded))?;
        let place = self.session(|session| (session.log().head(), session.checkpoint().map(|last| last.sequence)));
        let (head, floor) = place?;
        let floor = floor.unwrap_or_default();
        let folded = match body.through {
            Some(through) if through < floor || through > head => {
                return Err(self.write_refused(&fence.run, &WriteRefused::Place(floor, head)));
            }
            Some(through) if through < head => self.folded_through(&row, through),
            Some(_) => admission.here(),
            None => match (admission.commit(), &body.messages) {
                (Err(NotWhole::NoStep), Some(_)) => admission.here(),
                (Ok(Covered::Here(folded)), _) => Ok(folded),
                (Ok(Covered::Through(Done { cursor, step_count })), _) => {
                    self.folded_through(&row, cursor).map(|folded| Folded { step_count, ..folded })
                }
                (Err(not_whole), _) => Err(not_whole),
            },
        };
        let folded = match (folded, &body.messages, row.vocabulary) {
            (Ok(folded), ..) => Some(folded),
            // Messages of the producer's own need no fold, but they must not end in the middle of a part either.
            (Err(NotWhole::Opaque), Some(_), _) => None,
            (Err(not_whole), ..) => {
                return Err(Refusal::Invalid(not_whole.to_string()));
            }
        };
        let through = body.through.or_else(|| folded.as_ref().map(|folded| folded.cursor)).unwrap_or(head);
        let Folded { message, step_count, state, .. } =
            folded.unwrap_or(Folded { message: None, cursor: through, step_count: 0, state: None });
        let (messages, calls) = match body.messages {
            Some(messages) => self.own_messages(&row, messages)?,
            None => (message.into_iter().map(|message| folded_message(&row, &message)).collect(), Vec::new()),
        };
        Ok(PushCommit {
            through,
            messages: messages.into_iter().map(|message| (message.id, message.role, message.json)).collect(),
            state: body.state.or(state).map(|state| state.to_string()),
            step_count: body.step_count.unwrap_or(step_count),
            calls,
        })
    }

    /// The messages that a producer says itself that its run has written, and the names of the calls that no chunk of it has begun.
    fn own_messages(&self, run: &RunRow, messages: Vec<Value>) -> Result<(Vec<OwnMessage>, Vec<CallName>), Refusal> {
        let known = self.session(|session| {
            let salt = session.authorise(&Caller::Anonymous).map(|row| row.salt.clone()).unwrap_or_default();
            (salt, session.calls().clone(), session.message_count())
        });
        let (salt, calls, count) = known?;
        let kept = run.message_index.min(count);
        let places = self.storage.places(kept)?;
        let stored: Vec<MessageId> = places.into_iter().map(|place| place.id).collect();
        let before = (kept..count).map(|index| self.stored_message(index)).collect::<Result<Vec<_>, _>>();
        let before = before?;
        let around = Around { stored: &stored, salt: &salt, calls: &calls };
        written(messages, &run.message_id, &before, &around).map_err(|refusal| invalid(&refusal))
    }

    /// The fold at a place that lies behind the run already.
    fn folded_through(&self, row: &RunRow, through: Cursor) -> Result<Folded, NotWhole> {
        let past = RunRow { end: Some(through), ..row.clone() };
        let read = self.session(|session| admissions::read(session, &*self.storage, &past));
        read.ok().and_then(Result::ok).ok_or(NotWhole::NoSuchPlace)?.through(through)
    }

    /// `POST …/renew`.
    pub(super) async fn renew_run(self: &Rc<Self>, request: &Request, run: &RunId) -> Answer {
        let fence = fence(request, run)?;
        let bytes = self.push_body(request).await?;
        let renew = Renew::parse(&bytes).map_err(|refusal| invalid(&refusal))?;
        let expected = self.session(|session| session.expected(&fence))?;
        expected.map_err(|refused| self.write_refused(run, &refused))?;
        match renew.lease {
            None => self.session(|session| session.renew(now(), &fence))?,
            Some(lease) => {
                let effects = self.session(|session| session.lease(now(), &fence, lease));
                self.store(&fence, effects?)?;
                self.arm_next();
            }
        }
        self.acknowledge(&fence, self.head()).await
    }

    /// `POST …/end`, `…/fail` and `…/pause`.
    pub(super) async fn end_run(self: &Rc<Self>, request: &Request, run: &RunId, deed: EndDeed) -> Answer {
        let (fence, number) = numbered(request, run)?;
        let bytes = self.push_body(request).await?;
        let ending = deed.parse(&bytes).map_err(|refusal| invalid(&refusal))?;
        self.append_and_end(&fence, number, Vec::new(), ending).await
    }

    /// Chunks, then a commit, which may be refused when they are stored.
    pub(super) async fn append_and_commit(
        self: &Rc<Self>,
        fence: &Fence,
        first: ProducerSeq,
        chunks: Vec<Value>,
        commit: CommitBody,
    ) -> Answer {
        let before = self.head();
        if self.has_ended_by(fence, first.after(chunks.len()).get())? {
            return self.acknowledge_end(fence, before).await;
        }
        let count = chunks.len().saturating_add(1);
        if self.skip(fence, first.get(), count)? < count {
            self.take_chunks(fence, first.get(), chunks)?;
            self.commit_now(fence, commit)?;
        }
        self.acknowledge(fence, before).await
    }

    /// Chunks and the run's ending, in one transaction.
    pub(super) async fn append_and_end(
        self: &Rc<Self>,
        fence: &Fence,
        first: ProducerSeq,
        chunks: Vec<Value>,
        ending: Ending,
    ) -> Answer {
        let number = first.after(chunks.len()).get();
        let before = self.head();
        if self.has_ended_by(fence, number)? {
            return self.acknowledge_end(fence, before).await;
        }
        let count = chunks.len().saturating_add(1);
        let known = self.skip(fence, first.get(), count)?;
        if known >= count {
            return self.acknowledge(fence, before).await;
        }
        let admitted = self.admit_all(fence, chunks.into_iter().skip(known))?;
        let (mut admission, mut records) = admitted.map_err(|refused| {
            self.bad_chunk(fence, first.get(), &Refused { index: refused.index.saturating_add(known), ..refused })
        })?;
        let (outcome, result) = match self.outcome_of(fence, ending, &admission) {
            Ok(ends) => ends,
            Err(refusal) => {
                if records.is_empty() {
                    self.keep_admission(fence, admission);
                }
                return Err(refusal);
            }
        };
        let broken = matches!(outcome, Outcome::Failed(_) | Outcome::Interrupted);
        let run = self.session(|session| session.run().cloned())?;
        let own = run.is_some_and(|run| self.has_own_words(&run, &admission));
        if outcome != Outcome::Suspended {
            records.extend(admission.answered(&self.held_answers()).into_iter().flat_map(Admitted::records));
        }
        records.extend(admission.close(broken).into_iter().flat_map(Admitted::records));
        records.extend(if own { None } else { last_commit(&admission) });
        let effects = self.write_with_room(|session| {
            session.finish_pushed(now(), fence, outcome, &records, (number, result.clone()))
        });
        let effects = effects?;
        self.store(fence, effects.inspect_err(|refused| self.fails_without_room(fence, refused)))?;
        self.forget_admission();
        self.log_settled(fence);
        self.arm_next();
        let ended = self.session(|session| session.run().cloned())?;
        let Some(ended) = ended.filter(|run| run.id == fence.run) else { return self.acknowledge(fence, before).await };
        let ack = self.ack(&ended, before);
        // With its answers at hand the run may go on at once, so that another one is there when this answer leaves.
        self.take_held()?;
        self.answer_queued().map_err(committed)?;
        self.settled_writes().await?;
        Ok(answer::json(200, &Value::Object(ack)))
    }

    /// Whether the run was ended or paused by this number, also when another run has followed it meanwhile.
    fn has_ended_by(&self, fence: &Fence, number: u64) -> Result<bool, Refusal> {
        if self.session(|session| session.has_said(fence, number))? {
            return Ok(true);
        }
        let row = self.storage.run(&fence.run)?;
        Ok(row.is_some_and(|row| {
            let ended = matches!(row.status, RunStatus::Completed | RunStatus::Failed | RunStatus::Interrupted);
            ended && row.epoch == fence.epoch && row.push.is_some_and(|push| number < push.next)
        }))
    }

    fn outcome_of(
        &self,
        fence: &Fence,
        ending: Ending,
        admission: &Admission,
    ) -> Result<(Outcome, Option<String>), Refusal> {
        Ok(match ending {
            Ending::End(EndBody { status, output, usage }) => {
                let outcome = match status {
                    EndStatus::Completed => Outcome::Completed,
                    EndStatus::Interrupted => Outcome::Interrupted,
                };
                (outcome, result_of(output, usage))
            }
            Ending::Fail(FailBody { failure }) => {
                worker::console_error!("session {} run {}: {failure}", self.log_name, fence.run);
                let _ = self.session(|session| session.explain(fence, &failure));
                (Outcome::Failed(failure.code), None)
            }
            Ending::Pause(PauseBody { pending, kind }) => {
                let waits = admission.pending_calls();
                let missing = pending.into_iter().flatten().find(|call| !waits.contains(call));
                let opaque = self.vocabulary(fence)? == Vocabulary::Opaque;
                if !opaque && let Some(call) = missing {
                    let words = format!("pending: the run's message has no call {call:?} that waits");
                    return Err(Refusal::Invalid(words));
                }
                (kind.outcome(), None)
            }
        })
    }

    /// `GET …/control`: what clients want of the run, as soon as there is something that the producer does not know.
    pub(super) async fn control_run(
        self: &Rc<Self>,
        caller: &Caller,
        request: &Request,
        query: &str,
        run: &RunId,
    ) -> Answer {
        let number = |name: &str| query_value(query, name).and_then(|text| text.parse::<u64>().ok());
        let known = number("answers").unwrap_or(0);
        let wait = number("wait").map_or(CONTROL_WAIT, |ms| Millis::new(ms).min(CONTROL_WAIT));
        let deadline = now().after(wait);
        let mut leaving = Leaving::of(request);
        loop {
            let (status, seen) = self.seen_by_producer(caller, run)?;
            let answers = seen.get("answers").and_then(Value::as_array).map_or(0, Vec::len);
            let answered = u64::try_from(answers).unwrap_or(0) > known;
            let left = deadline.since(now());
            if !status.is_live() || answered || left == Millis::default() {
                return Ok(answer::json(200, &Value::Object(seen)));
            }
            let moved = self.moved();
            let timer = sleep(left);
            if let Either::Right(_) = select(select(moved, timer), Box::pin(leaving.left())).await {
                return Err(Refusal::Gone);
            }
        }
    }

    fn seen_by_producer(&self, caller: &Caller, run: &RunId) -> Result<(RunStatus, Map<String, Value>), Refusal> {
        let current = self.session(|session| session.pushed_run(caller, run).map(|run| run.cloned()));
        let current = current??;
        let row = match current {
            Some(row) => row,
            None => {
                let row = self.storage.run(run)?;
                row.ok_or_else(|| Refusal::NoSuchRun)?
            }
        };
        let mut seen = self.lease_of(&row);
        seen.extend(facts(json!({
            "status": row.status,
            "stopRequested": row.status == RunStatus::Interrupted,
            "superseded": row.status == RunStatus::Superseded,
        })));
        if row.status == RunStatus::Running {
            let held = self.held_answers();
            if !held.is_empty() {
                let message = self.live_message(&row)?.unwrap_or_default();
                let told = settle(message.clone(), &held, Executor::Producer).told;
                let messages = [message];
                let calls = self.session(|session| session.calls().clone())?;
                let answers: Vec<Value> = told.iter().map(|answer| result(answer, &messages, &calls)).collect();
                seen.extend(facts(json!({ "answers": answers })));
            }
        }
        if row.status == RunStatus::SuspendedClientTool {
            let message = self.message_of(&row)?;
            let complete = message.as_ref().is_none_or(|message| pending(message, Executor::Producer).is_empty());
            let messages = Vec::from_iter(message);
            let calls = self.session(|session| session.calls().clone())?;
            let answers: Vec<Value> =
                self.answers_so_far(&row)?.iter().map(|answer| result(answer, &messages, &calls)).collect();
            seen.extend(facts(json!({ "answers": answers, "complete": complete })));
        }
        Ok((row.status, seen))
    }

    fn store(self: &Rc<Self>, fence: &Fence, effects: Result<Effects, WriteRefused>) -> Result<(), Refusal> {
        let effects = effects.map_err(|refused| self.write_refused(&fence.run, &refused))?;
        self.persist(effects).map_err(Refusal::from)
    }

    async fn push_body(&self, request: &Request) -> Result<Vec<u8>, Refusal> {
        let limit = self.config.settings.max_request_bytes;
        body(request, limit).await.map_err(|error| unread(&error, limit))
    }
}

/// The message that the object has folded, under the id that the run's responses have.
fn folded_message(run: &RunRow, message: &Value) -> OwnMessage {
    OwnMessage { id: run.message_id.as_str().to_owned(), role: "assistant".to_owned(), json: message.to_string() }
}

fn invalid(refusal: &BodyRefusal) -> Refusal {
    Refusal::Rejected(refusal.code(), refusal.to_string())
}

/// What is kept of a run's result. A part that is too large is left out, and its name says so.
fn result_of(output: Option<Value>, usage: Option<Value>) -> Option<String> {
    let mut kept = Map::new();
    let mut omitted = Vec::new();
    for (name, part) in [("output", output), ("usage", usage)] {
        let Some(part) = part else { continue };
        if part.to_string().len() > MAX_RESULT_BYTES {
            omitted.push(Value::from(name));
        } else {
            kept.insert(name.into(), part);
        }
    }
    if !omitted.is_empty() {
        kept.insert("omitted".into(), Value::Array(omitted));
    }
    (!kept.is_empty()).then(|| Value::Object(kept).to_string())
}

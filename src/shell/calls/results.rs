//! Answers to the calls of a suspended run: in a chat POST, or one at a time on `/tool-result`.

use std::rc::Rc;

use futures::future::{Either, select};
use serde_json::{Value, json};
use web_sys::Request;
use worker::Response;

use super::Answer;
use super::refusals::{Refusal, committed, facts, failed, unread};
use super::resume::has_cursor;
use super::send::Plan;
use crate::core::approval::Executor;
use crate::core::caller::Caller;
use crate::core::chunk::Chunk;
use crate::core::command::Entry as RunEntry;
use crate::core::error::Code;
use crate::core::ids::RunId;
use crate::core::record::{Commit, Record};
use crate::core::run::{EntryKind, RunStatus};
use crate::core::storage::{RunRow, Storage};
use crate::core::time::Millis;
use crate::dialect::ui::held::{Lacks, lacks};
use crate::dialect::ui::held_answers::{agrees, settle};
use crate::dialect::ui::response::DONE;
use crate::dialect::ui::tool_result::{
    Answer as CallAnswer, InvalidResult, answered_calls, answers_of_message, apply, chunks, claims_of_message,
    has_call, is_late, pending, waits,
};
use crate::dialect::ui::tool_submit::{Submitted, parse_tool_result};
use crate::session::response::Dialect;
use crate::shell::answer;
use crate::shell::clock::{now, sleep};
use crate::shell::entry::Entry;
use crate::shell::holding::asks;
use crate::shell::host::{Host, HostError};
use crate::shell::production::Continued;
use crate::shell::request::{Leaving, body};

/// The reply that is being written.
struct Live {
    run: RunRow,
    /// Its message so far, with the held answers in it.
    message: Value,
    held: Vec<CallAnswer>,
    executor: Executor,
}

/// What answers have done.
enum Taken {
    /// Others still wait, or the producer outside that asks for them goes on by itself.
    Partly(Value),
    /// The run goes on.
    Continues(Box<RunRow>, Value),
}

impl Host {
    /// A chat POST whose last message is a reply, with answers in it or without.
    pub(super) async fn results_of_message(self: &Rc<Self>, caller: &Caller, entry: Entry<'_>, sent: &Value) -> Answer {
        let request = entry.request;
        let id = sent.get("id").and_then(Value::as_str).unwrap_or_default();
        if let Some(live) = self.live(caller, |run| run.message_id.as_str() == id).await? {
            return self.results_of_live(caller, entry, sent, live).await;
        }
        let count = self.session(|session| session.authorise(caller).map_or(0, |_| session.message_count()));
        let count = count?;
        let row = self.storage.message(id, count)?;
        let Some(row) = row else { return self.results_of_unknown(caller, entry, sent).await };
        let stored = self.stored_message(row.index)?;
        let suspended = self.suspended()?;
        self.refuse_for_itself(row.index, sent, &stored)?;
        let Some((run, executor)) = suspended.filter(|(run, _)| run.message_index == row.index) else {
            self.refuse_late(row.run.as_ref(), is_late(sent, &stored))?;
            return self.nothing_new(caller, request, row.index, sent, &stored).await;
        };
        let answers = answers_of_message(sent, &stored, executor).map_err(invalid)?;
        if answers.is_empty() {
            return self.nothing_new(caller, request, row.index, sent, &stored).await;
        }
        match self.take_answers(caller, entry, &run, stored, &answers, executor)? {
            Taken::Partly(message) if all_answered(&run, &message) => {
                self.goes_on_outside(caller, request, &run, &message).await
            }
            Taken::Partly(_) => Ok(answer::events_of(DONE, Dialect::Chat)),
            Taken::Continues(run, message) => self.first_response(request, &run, Some(&message)).map_err(committed),
        }
    }

    /// A reply whose id no stored message has: that of an attempt before a retry, or of a message that was cut. A call's id names it all the
    /// same, so its answer counts for the call, or is late.
    async fn results_of_unknown(self: &Rc<Self>, caller: &Caller, entry: Entry<'_>, sent: &Value) -> Answer {
        let request = entry.request;
        let owned = self.session(|session| session.authorise(caller).is_ok())?;
        let suspended = self.suspended()?.filter(|_| owned);
        if let Some((run, executor)) = suspended {
            let stored = self.message_of(&run)?.unwrap_or_default();
            let answers = answers_of_message(sent, &stored, executor).map_err(invalid)?;
            if !answers.is_empty() {
                let held = sent.get("id").and_then(Value::as_str).unwrap_or_default();
                return match self.take_answers(caller, entry, &run, stored, &answers, executor)? {
                    Taken::Partly(_) => Ok(answer::events_of(DONE, Dialect::Chat)),
                    Taken::Continues(run, message) => {
                        self.under_held_id(request, &run, held, &message).map_err(committed)
                    }
                };
            }
        }
        if let Some(live) = self.live(caller, |_| true).await?
            && answered_calls(sent).any(|call| has_call(&live.message, call))
        {
            return self.results_of_live(caller, entry, sent, live).await;
        }
        for call in answered_calls(sent).filter(|_| owned) {
            let run = self.run_of_call(call)?;
            if run.is_some_and(|run| run.status == RunStatus::Superseded) {
                return Err(Refusal::Coded(Code::StateRunSuperseded));
            }
        }
        self.attach(caller, request).await
    }

    /// The run that began the call of this name.
    fn run_of_call(&self, call: &str) -> Result<Option<RunRow>, Refusal> {
        let turn = self.session(|session| session.calls().turn_of(call))?;
        let Some(turn) = turn else { return Ok(None) };
        self.storage.run_at(turn).map_err(Refusal::from)
    }

    /// The run that is writing, once everything that it has said is shown, and its message so far; `None` when there is no such run.
    async fn live(self: &Rc<Self>, caller: &Caller, meant: impl Fn(&RunRow) -> bool) -> Result<Option<Live>, Refusal> {
        let running = || {
            self.session(|session| {
                session.authorise(caller).ok()?;
                session.run().filter(|run| run.status == RunStatus::Running && meant(run)).cloned()
            })
        };
        if running()?.is_none() {
            return Ok(None);
        }
        self.show_all().await?;
        let Some(run) = running()? else { return Ok(None) };
        let executor = self.executor(&run);
        let held = self.held_answers();
        let message = self.live_message(&run)?;
        let message = message.map(|message| settle(message, &held, executor).message);
        Ok(message.map(|message| Live { run, message, held, executor }))
    }

    /// A client's copy of the reply that is being written. What it was shown it may answer: that is held until the run waits for it.
    async fn results_of_live(self: &Rc<Self>, caller: &Caller, entry: Entry<'_>, sent: &Value, live: Live) -> Answer {
        let Live { run, message, held, executor } = live;
        let request = entry.request;
        let claims = claims_of_message(sent);
        let answers = answers_of_message(sent, &message, executor).map_err(invalid)?;
        let is_new = |call: &str| answers.iter().any(|answer| answer.tool_call_id == call);
        let agreed: Vec<Option<bool>> = claims
            .iter()
            .filter(|claim| !is_new(&claim.tool_call_id))
            .map(|claim| agrees(&held, &claim.tool_call_id, &claim.outcome))
            .collect();
        if agreed.contains(&Some(false)) {
            return Err(answered_otherwise(&run));
        }
        if answers.is_empty() && !agreed.contains(&Some(true)) {
            return match self.message_of(&run)? {
                Some(stored) => self.nothing_new(caller, request, run.message_index, sent, &stored).await,
                None => self.attach(caller, request).await,
            };
        }
        if !answers.is_empty() {
            self.hold_now(entry, &run, answers)?;
        }
        match self.behind_copy(request, &run, sent).map_err(committed)? {
            Some(response) => response.map_err(committed),
            None => match self.message_of(&run).map_err(committed)? {
                Some(stored) => self.nothing_new(caller, request, run.message_index, sent, &stored).await,
                None => self.attach(caller, request).await,
            },
        }
    }

    fn hold_now(self: &Rc<Self>, entry: Entry<'_>, run: &RunRow, answers: Vec<CallAnswer>) -> Result<(), Refusal> {
        let held = self.hold(entry, run, answers)?;
        held.map_err(|refused| Refusal::Coded(refused.code()))
    }

    /// No page answers the calls of a run that waits for its own producer.
    fn refuse_for_itself(&self, index: u32, sent: &Value, stored: &Value) -> Result<(), Refusal> {
        let run = self.session(|session| session.run().cloned())?;
        let Some(run) = run.filter(|run| run.status.is_paused_for_itself() && run.message_index == index) else {
            return Ok(());
        };
        let answers = answers_of_message(sent, stored, self.executor(&run)).map_err(invalid)?;
        if answers.is_empty() { Ok(()) } else { Err(invalid(InvalidResult)) }
    }

    /// A reply that says nothing new: the client asks for the rest of it. A stock client puts whatever comes behind the parts that it
    /// holds, so it is given what it lacks, where that can be told.
    async fn nothing_new(
        self: &Rc<Self>,
        caller: &Caller,
        request: &Request,
        index: u32,
        sent: &Value,
        stored: &Value,
    ) -> Answer {
        let run = self.session(|session| session.run().filter(|run| run.message_index == index).cloned());
        let run = run?.filter(|run| run.status != RunStatus::Failed);
        let Some(run) = run.filter(|_| !has_cursor(request)) else { return self.attach(caller, request).await };
        let own =
            self.session(|session| session.checkpoint().filter(|last| last.run == run.id).map(|last| last.step_count));
        let own = own?.unwrap_or(0);
        match lacks(sent, stored, own) {
            Lacks::Nothing if run.status == RunStatus::SuspendedClientTool && all_answered(&run, stored) => {
                self.goes_on_outside(caller, request, &run, stored).await
            }
            Lacks::Nothing if run.status != RunStatus::Running => Ok(answer::events_of(DONE, Dialect::Chat)),
            Lacks::Nothing if own > 0 => self.behind_held(request, run, stored),
            Lacks::Nothing | Lacks::Run if run.entry == EntryKind::ToolResult => {
                self.from_start(request, &run, Some(stored))
            }
            _ => self.attach(caller, request).await,
        }
    }

    /// The last answer has come, and the producer outside opens the run that goes on. Waits for that, on the log's own wake-ups.
    async fn goes_on_outside(
        self: &Rc<Self>,
        caller: &Caller,
        request: &Request,
        paused: &RunRow,
        message: &Value,
    ) -> Answer {
        let deadline = now().after(self.config.settings.live_wait);
        let mut leaving = Leaving::of(request);
        loop {
            let last = self.session(|session| session.authorise(caller).ok().and_then(|_| session.run().cloned()));
            let last = last.map_err(committed)?;
            let left = deadline.since(now());
            match last {
                Some(run) if run.id == paused.id && run.status == paused.status && left > Millis::default() => {}
                Some(run) if run.id != paused.id && run.message_index == paused.message_index => {
                    return self.first_response(request, &run, Some(message)).map_err(committed);
                }
                _ => return Ok(answer::events_of(DONE, Dialect::Chat)),
            }
            let moved = self.moved();
            if let Either::Right(_) = select(select(moved, sleep(left)), Box::pin(leaving.left())).await {
                return Err(Refusal::Gone);
            }
        }
    }

    /// `POST /api/chat/:s/tool-result`.
    pub(super) async fn tool_result(self: &Rc<Self>, caller: &Caller, request: &Request) -> Answer {
        let limit = self.config.settings.max_request_bytes;
        let bytes = body(request, limit).await.map_err(|error| unread(&error, limit))?;
        let submitted = parse_tool_result(&bytes).map_err(invalid)?;
        let meant = |run: &RunRow| submitted.run.as_ref().is_none_or(|named| *named == run.id);
        if let Some(live) = self.live(caller, meant).await?
            && has_call(&live.message, &submitted.tool_call_id)
        {
            return self.result_of_live(request, &submitted, live);
        }
        let last = self.session(|session| session.authorise(caller).map(|_| session.run().cloned()));
        let last = last??;
        let named = submitted.run.clone().filter(|named| last.as_ref().is_none_or(|last| last.id != *named));
        let Some(run) = last else { return Err(invalid(InvalidResult)) };
        if let Some(named) = named {
            let call = &submitted.tool_call_id;
            let asked = self.storage.run(&named)?;
            let begun = self.run_of_call(call)?.is_none_or(|begun| begun.id == named);
            let goes_on = |stored: Value| has_call(&stored, call);
            match asked.map(|run| run.status) {
                Some(RunStatus::Superseded) => return Err(Refusal::Coded(Code::StateRunSuperseded)),
                // The call may wait in the run that goes on with its message.
                Some(_) if begun && self.message_of(&run)?.is_some_and(goes_on) => {}
                Some(_) if begun => return Ok(already(&named)),
                _ => return Err(invalid(InvalidResult)),
            }
        }
        let Some(stored) = self.message_of(&run)? else {
            return self.elsewhere(&submitted.tool_call_id);
        };
        let executor = self.executor(&run);
        if !has_call(&stored, &submitted.tool_call_id) {
            return self.elsewhere(&submitted.tool_call_id);
        }
        let Some(admitted) = submitted.admit(&stored, executor).map_err(invalid)? else { return Ok(already(&run.id)) };
        if run.status != RunStatus::SuspendedClientTool {
            return Err(invalid(InvalidResult));
        }
        let entry = self.entry_of_last_run(request)?;
        let taken = self.take_answers(caller, entry, &run, stored, &[admitted], executor)?;
        let (continues, run) = match taken {
            Taken::Partly(_) => (false, run.id),
            Taken::Continues(next, _) => (true, next.id),
        };
        let body = json!({ "success": true, "status": "accepted", "continues": continues, "runId": run });
        Ok(answer::json(200, &body))
    }

    /// One answer to a call of the reply that is being written.
    fn result_of_live(self: &Rc<Self>, request: &Request, submitted: &Submitted, live: Live) -> Answer {
        let Live { run, message, held, executor } = live;
        let Some(admitted) = submitted.admit(&message, executor).map_err(invalid)? else {
            return match agrees(&held, &submitted.tool_call_id, submitted.outcome()) {
                Some(false) => Err(answered_otherwise(&run)),
                _ => Ok(already(&run.id)),
            };
        };
        let entry = self.entry_of_last_run(request)?;
        self.hold_now(entry, &run, vec![admitted])?;
        let body = json!({ "success": true, "status": "accepted", "continues": false, "held": true, "runId": run.id });
        Ok(answer::json(200, &body))
    }

    /// An answer to a call that the last reply does not have: it has its answer already, or is late, because its run was superseded or its
    /// message was cut.
    fn elsewhere(&self, call: &str) -> Answer {
        let begun = self.run_of_call(call)?;
        self.refuse_late(begun.as_ref().map(|run| &run.id), true)?;
        let count = self.session(|session| session.message_count())?;
        for index in (0..count).rev() {
            let message = self.stored_message(index)?;
            if has_call(&message, call) {
                let row = self.storage.message_at(index)?;
                let run = row.and_then(|row| row.run);
                self.refuse_late(run.as_ref(), true)?;
                return Ok(run.as_ref().map_or_else(|| already(&RunId::new("")), already));
            }
        }
        match begun {
            Some(run) if !run.status.is_live() => Err(Refusal::Coded(Code::StateRunSuperseded)),
            _ => Err(invalid(InvalidResult)),
        }
    }

    /// An answer that came after its run was superseded.
    fn refuse_late(&self, run: Option<&RunId>, late: bool) -> Result<(), Refusal> {
        let Some(run) = run.filter(|_| late) else { return Ok(()) };
        let row = self.storage.run(run)?;
        match row.map(|row| row.status) {
            Some(RunStatus::Superseded) => Err(Refusal::Coded(Code::StateRunSuperseded)),
            _ => Ok(()),
        }
    }

    /// Stores the answers; the last one lets the run go on.
    fn take_answers(
        self: &Rc<Self>,
        caller: &Caller,
        entry: Entry<'_>,
        run: &RunRow,
        stored: Value,
        answers: &[CallAnswer],
        executor: Executor,
    ) -> Result<Taken, Refusal> {
        let told = chunks(answers, &stored, executor);
        let message = apply(stored, answers);
        // A producer outside that nobody can tell asks for the answers itself.
        if !asks(run) && !waits(&message, answers, executor) {
            return self.continue_run(caller, entry, run, message, told);
        }
        let step_count = self.session(|session| session.checkpoint().map_or(0, |last| last.step_count));
        let step_count = step_count?;
        let mut records: Vec<Record> = told.into_iter().map(|chunk| Record::Chunk { chunk, attempt: None }).collect();
        records.push(Record::Commit(Commit { message: message.clone(), step_count, state: None }));
        let fence = run.fence();
        let effects = self.write_with_room(|session| session.answer(&fence, &records));
        let effects = effects?;
        let effects = effects.map_err(|refused| Refusal::Coded(refused.code()))?;
        self.persist(effects).map_err(failed)?;
        Ok(Taken::Partly(message))
    }

    fn continue_run(
        self: &Rc<Self>,
        caller: &Caller,
        entry: Entry<'_>,
        run: &RunRow,
        message: Value,
        told: Vec<Chunk>,
    ) -> Result<Taken, Refusal> {
        // What was told behind the run's end belongs to nobody who follows the next run, so it is told again.
        let mut answers = self.answers_so_far(run)?;
        answers.extend(told);
        let plan = Plan {
            continued: Some(Continued { message: message.clone(), answers }),
            ..Plan::of(RunEntry::Results { message: Some(message.to_string()) })
        };
        let entry = self.for_run(entry, &run.agent);
        let next = self.start(caller, entry, plan)?;
        Ok(Taken::Continues(Box::new(next), message))
    }

    /// What a suspended run's calls were answered with so far: the chunks that stand behind its end.
    pub(super) fn answers_so_far(&self, run: &RunRow) -> Result<Vec<Chunk>, Refusal> {
        let mut answers = Vec::new();
        if let Some(end) = run.end {
            let read = self.each_stored(end, None, &mut |stored| answers.push(stored.chunk));
            read?;
        }
        Ok(answers)
    }

    /// The run that waits for answers, and who executes what is approved.
    fn suspended(&self) -> Result<Option<(RunRow, Executor)>, HostError> {
        let run = self.session(|session| session.run().cloned())?;
        let run = run.filter(|run| run.status == RunStatus::SuspendedClientTool);
        Ok(run.map(|run| {
            let executor = self.executor(&run);
            (run, executor)
        }))
    }
}

fn all_answered(run: &RunRow, message: &Value) -> bool {
    asks(run) && pending(message, Executor::Producer).is_empty()
}

fn invalid(invalid: InvalidResult) -> Refusal {
    Refusal::Coded(invalid.code())
}

fn answered_otherwise(run: &RunRow) -> Refusal {
    let code = Code::StateAnswerConflict;
    Refusal::Told(code, facts(json!({ "runId": run.id })))
}

fn already(run: &RunId) -> Response {
    let body = facts(json!({ "success": true, "status": "already_completed", "continues": false, "runId": run }));
    answer::json(200, &Value::Object(body))
}

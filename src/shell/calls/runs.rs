//! What a producer outside asks: it opens a run or claims one again, and claims one again. What it appends: [`super::runs_append`]; how it ends one:
//! [`super::runs_end`].

use std::rc::Rc;

use serde_json::{Map, Value, json};
use web_sys::Request;

use super::Answer;
use super::refusals::{Refusal, committed, facts, unread};
use crate::core::approval::Executor;
use crate::core::call_ids::CallName;
use crate::core::caller::Caller;
use crate::core::chunk::Chunk;
use crate::core::command::{Displacement, Entry, Input, Keyed};
use crate::core::digest;
use crate::core::error::Code;
use crate::core::ids::{MessageId, RunId};
use crate::core::run::{Fence, RunStatus};
use crate::core::storage::{RunRow, Storage};
use crate::core::time::Millis;
use crate::dialect::push::body::Begin;
use crate::dialect::push::numbers::{ProducerEpoch, ProducerSeq};
use crate::dialect::push::own_messages::{Around, OwnMessage, brought};
use crate::dialect::ui::tool_result::pending;
use crate::shell::answer;
use crate::shell::clock::now;
use crate::shell::host::Host;
use crate::shell::production::{Continued, Launch};
use crate::shell::request::{body, header};

/// What a run that a producer opens answers.
struct Answered {
    entry: Entry,
    continued: Option<Continued>,
    /// The names of the calls in the producer's messages.
    names: Vec<CallName>,
    /// The calls that are given up for it, with their tools.
    abandoned: Vec<(String, Chunk)>,
}

impl Answered {
    fn of(entry: Entry) -> Self {
        Self { entry, continued: None, names: Vec::new(), abandoned: Vec::new() }
    }
}

impl Host {
    /// `POST /sessions/:s/runs`.
    pub(super) async fn open_run(self: &Rc<Self>, caller: &Caller, request: &Request) -> Answer {
        let limit = self.config.settings.max_request_bytes;
        let bytes = body(request, limit).await.map_err(|error| unread(&error, limit))?;
        let begin = Begin::parse(&bytes).map_err(|refusal| Refusal::Rejected(refusal.code(), refusal.to_string()))?;
        if !self.claims_running(&begin)? {
            self.settle_or_hear().await?;
        }
        if let Some(run) = &begin.run
            && let Some(row) = self.storage.run(run)?
        {
            return self.claim_again(caller, &row, begin.lease).await;
        }
        let keyed = begin.request_key.clone().map(|key| Keyed { key, input_hash: input_hash(&begin.messages) });
        if let Some(keyed) = &keyed
            && let Some(row) = self.storage.run_of_key(&keyed.key)?
        {
            if row.push.is_none() || row.input_hash.as_deref() != Some(keyed.input_hash.as_str()) {
                let code = Code::StateRequestKeyConflict;
                return Err(Refusal::Told(code, facts(json!({ "runId": row.id }))));
            }
            return self.claim_again(caller, &row, begin.lease).await;
        }
        let Answered { entry, continued, names, abandoned } = self.pushed_entry(caller, &begin)?;
        self.session(|session| session.may_start(caller, &entry))??;
        // A reply under way keeps what it has said; that of a suspended run is whole, but for its calls.
        let running = self.session(|session| session.run().is_some_and(|run| run.status == RunStatus::Running));
        let running = running?;
        let instead = (begin.supersede && running).then_some(Displacement::Superseded);
        let launch = Launch {
            run: begin.run,
            agent: "",
            vocabulary: begin.vocabulary,
            forwarded: None,
            key: keyed,
            entry,
            continued,
            abandoned,
            names,
            push: Some(begin.lease.unwrap_or(self.config.settings.lease)),
            state: begin.state.map(|state| state.to_string()),
            told: None,
            held: false,
            instead,
            queued: false,
        };
        let run = self.start_run(caller, launch).map_err(|error| self.not_started(error))?;
        self.settled_writes().await.map_err(committed)?;
        Ok(answer::json(201, &Value::Object(self.claim_of(&run))))
    }

    /// Whether it is a claim of the run that a producer outside is writing: then it is heard before a settling.
    fn claims_running(&self, begin: &Begin) -> Result<bool, Refusal> {
        let run = match (&begin.run, &begin.request_key) {
            (Some(run), _) => Some(run.clone()),
            (None, Some(key)) => self.storage.run_of_key(key)?.map(|row| row.id),
            (None, None) => None,
        };
        let fence =
            self.session(|session| session.run().filter(|row| Some(&row.id) == run.as_ref()).map(RunRow::fence));
        let fence = fence?;
        Ok(fence.is_some_and(|fence| self.session(|session| session.hears(&fence)).unwrap_or(false)))
    }

    /// What the run answers: the producer's messages and the names of their calls, or the answers that a suspended run has got meanwhile.
    fn pushed_entry(&self, caller: &Caller, begin: &Begin) -> Result<Answered, Refusal> {
        let live = self.session(|session| session.run().filter(|run| run.status.is_live()).cloned());
        let live = live?;
        let suspended = live.as_ref().filter(|run| run.status.is_suspended());
        if let (Some(run), true, false) = (suspended, begin.messages.is_empty(), begin.supersede) {
            let Some(message) = self.message_of(run)? else {
                return Ok(Answered::of(Entry::Results { message: None }));
            };
            // What a run has paused for by itself is no client's to answer: its calls end in the run that goes on.
            if !run.status.is_paused_for_itself() && !pending(&message, Executor::Producer).is_empty() {
                return Err(Refusal::NotResumable("Calls of the paused run wait for their answers", "calls_pending"));
            }
            let answers = self.answers_so_far(run)?;
            let entry = Entry::Results { message: Some(message.to_string()) };
            return Ok(Answered { continued: Some(Continued { message, answers }), ..Answered::of(entry) });
        }
        let mut stored: Vec<MessageId> = self.places(caller)?.into_iter().map(|place| place.id).collect();
        let waiting = self.session(|session| session.queue().iter().map(|row| row.message.clone()).collect::<Vec<_>>());
        stored.extend(waiting?);
        let around = self.session(|session| {
            (session.authorise(caller).map(|row| row.salt.clone()).unwrap_or_default(), session.calls().clone())
        });
        let (salt, mut calls) = around?;
        let turn = self.session(|session| session.run().map_or(1, |run| run.turn.saturating_add(1)));
        calls.begin_run(turn?);
        let around = Around { stored: &stored, salt: &salt, calls: &calls };
        let (messages, names) = brought(&begin.messages, &around)
            .map_err(|refusal| Refusal::Rejected(refusal.code(), refusal.to_string()))?;
        let input = |message: OwnMessage| (Input { id: MessageId::new(message.id), json: message.json }, message.role);
        let inputs = messages.into_iter().map(input).collect();
        let given_up = live.as_ref().filter(|_| begin.supersede).map(|run| self.given_up(run)).transpose()?;
        let (run, abandoned) = given_up.unzip();
        let abandoned = abandoned.unwrap_or_default();
        // A running run's last words have its message, and the calls that it gives up.
        let run = run.filter(|_| suspended.is_some());
        let entry = Entry::Push { inputs, supersede: begin.supersede, abandoned: run };
        Ok(Answered { names, abandoned, ..Answered::of(entry) })
    }

    /// A claim of a run that exists: whoever wrote it is fenced off, and the answer says what is stored.
    async fn claim_again(self: &Rc<Self>, caller: &Caller, row: &RunRow, lease: Option<Millis>) -> Answer {
        self.session(|session| session.authorise(caller).map(|_| ()))??;
        if row.push.is_none() {
            let words = "runId: this run is written by the service; give yours an id of its own";
            return Err(Refusal::Invalid(words.to_owned()));
        }
        let claimed = self.session(|session| session.claim_again(now(), &row.id, lease));
        let effects = match claimed? {
            Ok((_, effects)) => effects,
            Err(refused) => return Err(self.write_refused(&row.id, &refused)),
        };
        self.persist(effects)?;
        self.arm_next();
        self.forget_admission();
        self.settled_writes().await?;
        let run = self.session(|session| session.run().cloned())?;
        let run = run.unwrap_or_else(|| row.clone());
        Ok(answer::json(200, &Value::Object(self.claim_of(&run))))
    }

    /// What a producer must know of the run that it holds.
    fn claim_of(&self, run: &RunRow) -> Map<String, Value> {
        let mut claim = self.lease_of(run);
        let place = self.session(|session| {
            (session.log().head(), session.checkpoint().map(|last| last.sequence), session.expected(&run.fence()).ok())
        });
        let (head, committed, expected) = place.unwrap_or_default();
        claim.extend(facts(json!({
            "fromSequence": run.start,
            "resumeMessageId": run.message_id,
            "head": head,
            "committedSequence": committed,
            "expected": expected,
        })));
        claim
    }

    pub(super) fn lease_of(&self, run: &RunRow) -> Map<String, Value> {
        facts(json!({
            "runId": run.id,
            "epoch": run.epoch,
            "leaseMs": run.push.as_ref().map(|push| push.lease),
            "leaseExpiresAt": run.lease_until,
        }))
    }
}

/// What the writer of a run carries.
pub(super) fn fence(request: &Request, run: &RunId) -> Result<Fence, Refusal> {
    let epoch = ProducerEpoch::parse(header(request, "producer-epoch").as_deref());
    let epoch = epoch.map_err(|invalid| Refusal::Invalid(invalid.to_string()))?;
    Ok(Fence { run: run.clone(), epoch: epoch.get() })
}

/// The same, and the number of what the request brings.
pub(super) fn numbered(request: &Request, run: &RunId) -> Result<(Fence, ProducerSeq), Refusal> {
    let fence = fence(request, run)?;
    let number = ProducerSeq::parse(header(request, "producer-seq").as_deref());
    let number = number.map_err(|invalid| Refusal::Invalid(invalid.to_string()))?;
    Ok((fence, number))
}

fn input_hash(messages: &[Value]) -> String {
    digest::full(&Value::Array(messages.to_vec()).to_string())
}

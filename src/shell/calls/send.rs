//! `POST /api/chat/:s`: a send, or what it turns out to be.

use std::rc::Rc;

use serde_json::{Value, json};
use web_sys::Request;

use super::Answer;
use super::busy::asks;
use super::refusals::{Refusal, committed, facts, failed, unread};
use crate::core::approval::Executor;
use crate::core::busy::Meets;
use crate::core::caller::Caller;
use crate::core::chunk::Chunk;
use crate::core::command::{Abandoned, Displacement, Entry as RunEntry, Input, Keyed, RewindCause};
use crate::core::error::Code;
use crate::core::ids::{MessageId, RequestKey};
use crate::core::run::{RunStatus, Vocabulary};
use crate::core::session::queue::Waits;
use crate::core::storage::{MessagePlace, RunRow, Storage};
use crate::dialect::ui::identity::{Place, Standing, content_hash, regenerate_keeps, standing};
use crate::dialect::ui::request::{ChatBody, EntryKind, classify};
use crate::dialect::ui::sanitise::sanitise_message;
use crate::dialect::ui::tool_result::{ABANDONED, abandon, pending};
use crate::session::messages;
use crate::shell::entry::{Entered, Entry};
use crate::shell::host::{Host, HostError};
use crate::shell::production::{Continued, Launch, NotStarted};
use crate::shell::queue::GivenUp;
use crate::shell::request::{body, header, is_aware};

/// What a request to start a run has decided so far.
pub(super) struct Plan {
    pub entry: RunEntry,
    pub key: Option<Keyed>,
    pub continued: Option<Continued>,
    pub abandoned: Vec<(String, Chunk)>,
    /// What becomes of a run that is live, when it says its last words first.
    pub instead: Option<Displacement>,
}

impl Plan {
    pub(super) fn of(entry: RunEntry) -> Self {
        Self { entry, key: None, continued: None, abandoned: Vec::new(), instead: None }
    }
}

impl Host {
    pub(super) async fn send(self: &Rc<Self>, caller: &Caller, request: &Request, query: &str) -> Answer {
        let limit = self.config.settings.max_request_bytes;
        let bytes = body(request, limit).await.map_err(|error| unread(&error, limit))?;
        let parsed =
            ChatBody::parse(&bytes).map_err(|refusal| Refusal::Rejected(refusal.code(), refusal.to_string()))?;
        let key = request_key(request)?;
        asks(request)?;
        let kind = classify(&parsed);
        let entry = self.entry(request, query, parsed)?;
        match kind {
            EntryKind::Send { message, replaces } => {
                self.send_message(caller, entry, &message, replaces.as_deref(), key).await
            }
            EntryKind::Regenerate { message_id, last_user } => {
                let places = self.places(caller)?;
                let sent = last_user.as_ref().and_then(|message| message.get("id")).and_then(Value::as_str);
                let at = sent.and_then(|id| places.iter().position(|place| place.id.as_str() == id));
                match &last_user {
                    // A reply that failed before its message was stored is asked for again as a send.
                    Some(message) if at.is_none() => self.send_message(caller, entry, message, None, key).await,
                    _ => {
                        let named = message_id.as_deref();
                        self.regenerate(caller, entry, named, last_user.as_ref(), &places, key).await
                    }
                }
            }
            EntryKind::ToolResults(message) => self.results_of_message(caller, entry, &message).await,
            EntryKind::Attach => self.attach(caller, request).await,
        }
    }

    async fn send_message(
        self: &Rc<Self>,
        caller: &Caller,
        entry: Entry<'_>,
        message: &Value,
        replaces: Option<&str>,
        key: Option<RequestKey>,
    ) -> Answer {
        let places = self.places(caller)?;
        let keyed = key.map(|key| Keyed { key, input_hash: content_hash(message) });
        if let Some(repeated) = self.repeated(caller, entry.request, keyed.as_ref()) {
            return repeated;
        }
        let id = message.get("id").and_then(Value::as_str).unwrap_or_default();
        match self.waits(caller, (id, replaces), keyed.as_ref(), message)? {
            Waits::Not => {}
            Waits::Repeat(waiting) => return self.wait_with(entry, waiting),
            Waits::Replaces(waiting) => return self.queue_send(caller, entry, message, keyed, Some(waiting)),
            Waits::Conflict(run) => {
                let code = Code::StateRequestKeyConflict;
                return Err(Refusal::Told(code, facts(json!({ "runId": run }))));
            }
        }
        let mut broken = None;
        let known: Vec<Place<'_>> = places.iter().map(place_of).collect();
        let standing = standing(id, replaces, &known, |at| {
            self.says_the_same(at, message).unwrap_or_else(|error| {
                broken = Some(error);
                false
            })
        });
        if let Some(error) = broken {
            return Err(error.into());
        }
        let standing = match &entry.list {
            Some(list) => standing.as_listed(list, &known, self.settled(places.len())?),
            None => standing,
        };
        let input = Input { id: MessageId::new(id), json: message.to_string() };
        let mut plan = match standing {
            Standing::Repeat => return self.attach(caller, entry.request).await,
            Standing::Taken => {
                let words = "the message's id is that of a stored reply; give it one of its own";
                return Err(Refusal::Invalid(words.to_owned()));
            }
            Standing::New => match self.meets(&entry, &places)? {
                // A run that is running refuses it where it starts.
                Meets::Starts | Meets::Refused => self.plan_send(input)?,
                Meets::Interrupts => {
                    let entry = RunEntry::Send { input, abandoned: None };
                    Plan { instead: Some(Displacement::Interrupted), ..Plan::of(entry) }
                }
                Meets::Queues => return self.queue_send(caller, entry, message, keyed, None),
                Meets::QueuesAndGoesOn => return self.queue_and_go_on(caller, entry, message, keyed),
                Meets::NotAllowed => return Err(self.not_allowed(&entry)),
                Meets::Full => return Err(self.queue_full()),
            },
            Standing::Edit { keep } => {
                let keep = u32::try_from(keep).unwrap_or(u32::MAX);
                Plan::of(RunEntry::Rewind { keep, input: Some(input), cause: RewindCause::Rollback })
            }
        };
        plan.key = keyed;
        self.launch(caller, entry, plan).await
    }

    /// How many of `count` stored messages a running run does not still write.
    fn settled(&self, count: usize) -> Result<usize, Refusal> {
        let running =
            self.session(|session| session.run().filter(|run| run.status.is_busy()).map(|run| run.message_index));
        let running = running?;
        Ok(running.and_then(|index| usize::try_from(index).ok()).map_or(count, |index| index.min(count)))
    }

    /// The answer to a request whose key is known (`spec/helix.md` 5.8).
    fn repeated(self: &Rc<Self>, caller: &Caller, request: &Request, keyed: Option<&Keyed>) -> Option<Answer> {
        let keyed = keyed?;
        let known = self.session(|session| session.authorise(caller).is_ok()).and_then(|owned| {
            let run = if owned { self.storage.run_of_key(&keyed.key)? } else { None };
            Ok(run)
        });
        match known {
            Ok(run) => Some(self.of_key(request, &run?, keyed)),
            Err(error) => Some(Err(error.into())),
        }
    }

    fn of_key(self: &Rc<Self>, request: &Request, run: &RunRow, keyed: &Keyed) -> Answer {
        let refuse = |code: Code| Err(Refusal::Told(code, facts(json!({ "runId": run.id }))));
        if run.input_hash.as_deref() != Some(keyed.input_hash.as_str()) {
            return refuse(Code::StateRequestKeyConflict);
        }
        let is_latest = self.session(|session| session.run().is_some_and(|last| last.id == run.id));
        if !run.status.is_live() && !is_latest? {
            return refuse(Code::StateRequestAlreadyCompleted);
        }
        self.whole_run(request, run)
    }

    /// A new turn. What a suspended run still waited for is given up.
    fn plan_send(&self, input: Input) -> Result<Plan, Refusal> {
        Ok(match self.given_up_by_send()? {
            None => Plan::of(RunEntry::Send { input, abandoned: None }),
            Some((message, abandoned)) => {
                Plan { abandoned, ..Plan::of(RunEntry::Send { input, abandoned: Some(message) }) }
            }
        })
    }

    /// What becomes of a run that waits for answers of clients, when a message takes its place.
    pub(super) fn given_up_by_send(&self) -> Result<Option<GivenUp>, Refusal> {
        let suspended =
            self.session(|session| session.run().filter(|run| run.status == RunStatus::SuspendedClientTool).cloned());
        let suspended = suspended?;
        suspended.map(|run| self.given_up(&run)).transpose()
    }

    /// What becomes of a live run whose place another one takes, and what is told of its calls that wait: their tools and failures.
    pub(super) fn given_up(&self, run: &RunRow) -> Result<GivenUp, Refusal> {
        let Some(message) = self.message_of(run)? else {
            return Ok((Abandoned::default(), Vec::new()));
        };
        let failure = |id: &str| Chunk::new("tool-output-error").with("toolCallId", id).with("errorText", ABANDONED);
        let calls = pending(&message, Executor::Client).into_iter();
        let told = calls.map(|call| (call.tool_name, failure(&call.tool_call_id))).collect();
        Ok((Abandoned { message: Some(abandon(message).to_string()) }, told))
    }

    async fn regenerate(
        self: &Rc<Self>,
        caller: &Caller,
        entry: Entry<'_>,
        named: Option<&str>,
        last_user: Option<&Value>,
        places: &[MessagePlace],
        key: Option<RequestKey>,
    ) -> Answer {
        let keyed = key.map(|key| Keyed { key, input_hash: content_hash(last_user.unwrap_or(&Value::Null)) });
        if let Some(repeated) = self.repeated(caller, entry.request, keyed.as_ref()) {
            return repeated;
        }
        let known: Vec<Place<'_>> = places.iter().map(place_of).collect();
        let id = last_user.and_then(|message| message.get("id")).and_then(Value::as_str);
        let Some(keep) = regenerate_keeps(named, id, &known) else {
            return Err(Refusal::NotResumable("There is no message to answer; send one", "nothing_to_answer"));
        };
        let at = keep.saturating_sub(1);
        let kept = places.get(at).is_some_and(|place| Some(place.id.as_str()) == id);
        let entry_of_run = match last_user.filter(|_| kept) {
            // Some apps edit so: they change the message that they hold, and ask for its reply again.
            Some(message) if !self.says_the_same(at, message)? => {
                let input = Input { id: MessageId::new(id.unwrap_or_default()), json: message.to_string() };
                let keep = u32::try_from(at).unwrap_or(u32::MAX);
                RunEntry::Rewind { keep, input: Some(input), cause: RewindCause::Rollback }
            }
            _ => {
                let keep = u32::try_from(keep).unwrap_or(u32::MAX);
                RunEntry::Rewind { keep, input: None, cause: RewindCause::Retry }
            }
        };
        self.launch(caller, entry, Plan { key: keyed, ..Plan::of(entry_of_run) }).await
    }

    /// Starts what was planned and answers its stream.
    pub(super) async fn launch(self: &Rc<Self>, caller: &Caller, entry: Entry<'_>, plan: Plan) -> Answer {
        let request = entry.request;
        let owned = plan.continued.as_ref().map(|continued| continued.message.clone());
        let run = self.start(caller, entry, plan)?;
        // The run is committed: whatever happens now, the client must not send again what would be stored twice.
        self.settled_writes().await.map_err(committed)?;
        self.not_displaced(request, &run).map_err(committed)?;
        self.first_response(request, &run, owned.as_ref()).map_err(committed)
    }

    /// A response that has not begun yet can still say that its run lost its place; later its body can only break.
    fn not_displaced(&self, request: &Request, run: &RunRow) -> Result<(), Refusal> {
        let next = self.session(|session| session.displaced_by(run).map(|next| next.id.clone()));
        let Some(next) = next?.filter(|_| !is_aware(request)) else {
            return Ok(());
        };
        let row = self.storage.run(&run.id)?;
        if row.is_none_or(|row| row.status != RunStatus::Superseded) {
            return Ok(());
        }
        let code = Code::StateRunSuperseded;
        Err(Refusal::Told(code, facts(json!({ "runId": run.id, "supersededBy": next }))))
    }

    /// Starts what was planned.
    pub(super) fn start(self: &Rc<Self>, caller: &Caller, entry: Entry<'_>, plan: Plan) -> Result<RunRow, Refusal> {
        if plan.instead.is_none() {
            self.session(|session| session.may_start(caller, &plan.entry))??;
        }
        let held = self.config.settings.test_seams && header(entry.request, "x-test-hold").is_some();
        let Entered { name, forwarded, outside } = self.enter(entry)?;
        let launch = Launch {
            run: None,
            agent: name,
            vocabulary: outside.as_ref().map_or(Vocabulary::Ui, |outside| outside.vocabulary),
            push: outside.as_ref().map(|outside| outside.lease),
            told: outside.map(|outside| outside.own),
            state: None,
            forwarded,
            key: plan.key,
            entry: plan.entry,
            continued: plan.continued,
            abandoned: plan.abandoned,
            names: Vec::new(),
            held,
            instead: plan.instead,
            queued: false,
        };
        self.start_run(caller, launch).map_err(|error| self.not_started(error))
    }

    pub(super) fn not_started(&self, error: NotStarted) -> Refusal {
        match error {
            NotStarted::Refused(refused) => refused.into(),
            NotStarted::Host(error) => failed(error),
        }
    }

    /// Ids and roles of the stored conversation; none when there is no session, or it is not the caller's.
    pub(super) fn places(&self, caller: &Caller) -> Result<Vec<MessagePlace>, Refusal> {
        let count = self.session(|session| session.authorise(caller).map_or(0, |_| session.message_count()));
        let count = count?;
        self.storage.places(count).map_err(Refusal::from)
    }

    fn says_the_same(&self, at: usize, message: &Value) -> Result<bool, HostError> {
        let stored = self.stored_message(u32::try_from(at).unwrap_or(u32::MAX))?;
        let said = content_hash(message);
        // A client that has reloaded holds the message as the snapshot shows it.
        let is_shown = |shown: Value| content_hash(&shown) == said;
        Ok(content_hash(&stored) == said || sanitise_message(stored, self.config.floor).is_some_and(is_shown))
    }

    /// A run's message as far as it is committed; `None` while nothing of it is.
    pub fn message_of(&self, run: &RunRow) -> Result<Option<Value>, HostError> {
        Ok(self.session(|session| messages::of_run(session, &*self.storage, run))??)
    }

    /// A committed message.
    pub fn stored_message(&self, index: u32) -> Result<Value, HostError> {
        Ok(messages::at(&*self.storage, index)?)
    }
}

fn place_of(place: &MessagePlace) -> Place<'_> {
    Place { id: place.id.as_str(), role: &place.role }
}

/// The client's idempotency key (`spec/helix.md` 5.8).
fn request_key(request: &Request) -> Result<Option<RequestKey>, Refusal> {
    header(request, "x-helix-request-key")
        .map(|text| RequestKey::parse(&text))
        .transpose()
        .map_err(|invalid| Refusal::Invalid(invalid.to_string()))
}

//! A send that finds a reply under way: refused, answered at once in its place, or answered next.

use std::rc::Rc;

use serde_json::{Value, json};
use web_sys::Request;

use super::Answer;
use super::refusals::{Refusal, committed, facts};
use crate::core::busy::{Meets, OnBusy, Sender, Ways, meets};
use crate::core::caller::Caller;
use crate::core::command::Keyed;
use crate::core::error::Code;
use crate::core::ids::{Cursor, MessageId, RunId, percent_encode};
use crate::core::reader::{Reader, Scope};
use crate::core::session::queue::Waits;
use crate::core::storage::{MessagePlace, QueuedRow};
use crate::dialect::ui::identity::{answered, content_hash};
use crate::dialect::ui::lens::Lens;
use crate::dialect::ui::response::OPENING;
use crate::session::response::{Dialect, Opening};
use crate::shell::clock::{now, random_text};
use crate::shell::entry::{Entered, Entry};
use crate::shell::host::Host;
use crate::shell::request::{header, is_aware};

/// The header by which a request chooses.
const BUSY: &str = "x-rejoin-busy";

/// What a request says by its header.
pub(super) fn asks(request: &Request) -> Result<Option<OnBusy>, Refusal> {
    let words = "X-Rejoin-Busy must be refuse, interrupt or queue";
    let asked = header(request, BUSY).map(|text| OnBusy::parse(&text)).transpose();
    asked.map_err(|_| Refusal::Invalid(words.to_owned()))
}

impl Host {
    /// What a new message does in this session.
    pub(super) fn meets(&self, entry: &Entry<'_>, places: &[MessagePlace]) -> Result<Meets, Refusal> {
        let seen =
            self.session(|session| (session.run().map(|run| (run.status, run.message_index)), session.queue().len()));
        let (run, queued) = seen?;
        let answers = run.and_then(|(_, index)| answered(places, index));
        let sender = Sender {
            asks: asks(entry.request)?,
            aware: is_aware(entry.request),
            knows_run: answers.is_some_and(|id| entry.held.iter().any(|held| held == id)),
        };
        let wanted = self.ways(entry).wanted(sender);
        Ok(meets(run.map(|(status, _)| status), queued, self.config.settings.max_queued, wanted))
    }

    /// What the agent that shall answer allows.
    fn ways(&self, entry: &Entry<'_>) -> Ways {
        let own = entry.agent_name().and_then(|name| self.config.agents.terms(name).on_busy);
        own.unwrap_or_else(|| self.config.settings.on_busy.clone())
    }

    /// The request asks for what its agent does not allow.
    pub(super) fn not_allowed(&self, entry: &Entry<'_>) -> Refusal {
        let allowed: Vec<&str> = self.ways(entry).allowed().into_iter().map(OnBusy::as_str).collect();
        self.busy(Code::StateAlreadyRunning, json!({ "cause": "busy_not_allowed", "allowed": allowed }))
    }

    /// As many messages wait as may.
    pub(super) fn queue_full(&self) -> Refusal {
        self.busy(Code::StateQueueFull, json!({ "maxQueued": self.config.settings.max_queued }))
    }

    fn busy(&self, code: Code, more: Value) -> Refusal {
        let run = self.session(|session| session.run().map(|run| run.id.clone())).ok().flatten();
        let attach = format!("/api/chat/{}/stream", percent_encode(&self.name));
        let mut told = facts(json!({ "runId": run, "attach": attach }));
        told.extend(facts(more));
        Refusal::Told(code, told)
    }

    /// What a send is to the messages that wait; none for who does not own the session.
    pub(super) fn waits(
        &self,
        caller: &Caller,
        (id, replaces): (&str, Option<&str>),
        keyed: Option<&Keyed>,
        message: &Value,
    ) -> Result<Waits, Refusal> {
        let seen = self.session(|session| {
            if session.queue().is_empty() || session.authorise(caller).is_err() {
                return Waits::Not;
            }
            session.waits(id, replaces, keyed.map(|keyed| &keyed.key), &content_hash(message))
        });
        seen.map_err(Refusal::from)
    }

    /// The message joins the queue, whose first one takes the place of the run that waits for answers.
    pub(super) fn queue_and_go_on(
        self: &Rc<Self>,
        caller: &Caller,
        entry: Entry<'_>,
        message: &Value,
        keyed: Option<Keyed>,
    ) -> Answer {
        let given_up = self.given_up_by_send()?;
        let answer = self.queue_send(caller, entry, message, keyed, None)?;
        if let Some(given_up) = given_up {
            self.answer_queued_instead(given_up).map_err(committed)?;
        }
        Ok(answer)
    }

    /// The message joins the queue, or takes the place of the one that waits there; the answer waits for its run.
    pub(super) fn queue_send(
        self: &Rc<Self>,
        caller: &Caller,
        entry: Entry<'_>,
        message: &Value,
        keyed: Option<Keyed>,
        instead_of: Option<QueuedRow>,
    ) -> Answer {
        let request = entry.request;
        let Entered { name, forwarded, outside } = self.enter(entry)?;
        let next = self.session(|session| session.next_place())?;
        let (place, run) = match instead_of {
            Some(waiting) => (waiting.place, waiting.run),
            None => (next, RunId::new(format!("run_{}", random_text(1)))),
        };
        let row = QueuedRow {
            place,
            message: MessageId::new(message.get("id").and_then(Value::as_str).unwrap_or_default()),
            run: run.clone(),
            agent: name.to_owned(),
            request_key: keyed.map(|keyed| keyed.key.as_str().to_owned()),
            input_hash: content_hash(message),
            origin: outside.map(|outside| outside.own),
            queued: now(),
            json: message.to_string(),
        };
        self.enqueue(caller, row, forwarded).map_err(|error| self.not_started(error))?;
        self.response_of_waiting(request, run)
    }

    /// Another response that waits with a message which waits already. What this request hands on is newer than what the first one did.
    pub(super) fn wait_with(self: &Rc<Self>, entry: Entry<'_>, waiting: QueuedRow) -> Answer {
        let request = entry.request;
        if entry.agent_name() == Some(&waiting.agent) {
            let Entered { forwarded, .. } = self.enter(entry)?;
            self.hand_on(&waiting.run, forwarded);
        }
        self.response_of_waiting(request, waiting.run)
    }

    /// A response that is silent until its run starts, and then that run's.
    fn response_of_waiting(self: &Rc<Self>, request: &Request, run: RunId) -> Answer {
        let agent = self.session(|session| {
            let waiting = session.queue().iter().find(|waiting| waiting.run == run);
            waiting.map(|waiting| waiting.agent.clone())
        });
        let agent = agent?;
        let holds_lead = !is_aware(request) && self.opens_late(agent.as_deref());
        let reader = self.session(|session| Reader::open(Scope::Run(run), Cursor::START, session.view()));
        let opening = Opening {
            dialect: Dialect::Chat,
            reader: reader?,
            lens: Lens { aware: is_aware(request), ..Lens::default() },
            projector: None,
            prefix: OPENING.to_vec(),
            finish_sent: false,
            content_sent: false,
            holds_lead,
            held: true,
        };
        Ok(self.open_reader(request, opening)?)
    }
}

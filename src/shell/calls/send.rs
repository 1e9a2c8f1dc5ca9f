//! `POST /api/chat/:s`: a send, or what it turns out to be.

use std::rc::Rc;

use serde_json::{Map, Value, json};
use web_sys::Request;
use worker::Response;

use super::Answer;
use super::refusals::{encode, facts, unread, unreadable};
use crate::core::caller::Caller;
use crate::core::command::{Input, StartRefused};
use crate::core::error::Code;
use crate::core::ids::MessageId;
use crate::core::storage::Storage;
use crate::dialect::ui::request::{ChatBody, EntryKind, classify};
use crate::dialect::ui::response::OPENING;
use crate::shell::answer;
use crate::shell::entry::Entry;
use crate::shell::host::Host;
use crate::shell::production::NotStarted;
use crate::shell::request::body;

impl Host {
    pub(super) async fn send(self: &Rc<Self>, caller: &Caller, request: &Request, query: &str) -> Answer {
        let limit = self.config.settings.max_request_bytes;
        let bytes = body(request, limit).await.map_err(|error| unread(&error, limit))?;
        let parsed = ChatBody::parse(&bytes)
            .map_err(|refusal| answer::explained(refusal.code(), &refusal.to_string(), Map::new()))?;
        let kind = classify(&parsed);
        let entry = self.entry(request, query, parsed)?;
        match kind {
            EntryKind::Send { message, .. } => self.start(caller, entry, &message).await,
            // A reply that failed before its message was stored is asked for again as a send.
            EntryKind::Regenerate { last_user: Some(message), .. } if !self.knows(caller, &message)? => {
                self.start(caller, entry, &message).await
            }
            EntryKind::Regenerate { .. } => Err(answer::explained(
                Code::StateNotResumable,
                "The reply to this message is stored; send a new message",
                facts(json!({ "cause": "regenerate_unavailable", "retryable": false })),
            )),
            EntryKind::ToolResults(_) | EntryKind::Attach => self.attach(caller, request).await,
        }
    }

    async fn start(self: &Rc<Self>, caller: &Caller, entry: Entry<'_>, message: &Value) -> Answer {
        let request = entry.request;
        if self.knows(caller, message)? {
            return self.attach(caller, request).await;
        }
        let (agent, forwarded) = self.enter(entry)?;
        let input = Input {
            id: MessageId::new(message.get("id").and_then(Value::as_str).unwrap_or_default()),
            json: message.to_string(),
        };
        let (run, cursor) = self.start_run(caller, agent, input, forwarded).map_err(|error| self.not_started(error))?;
        self.chat_reader(request, run, cursor, OPENING, false)
    }

    /// Whether the session holds this message already: a repeated send gets the reply that it has started.
    fn knows(&self, caller: &Caller, message: &Value) -> Result<bool, Response> {
        let count = self.session(|session| session.authorise(caller).map(|_| session.message_count()));
        let Ok(count) = count.map_err(|error| unreadable(&error))? else { return Ok(false) };
        let id = message.get("id").and_then(Value::as_str).unwrap_or_default();
        let known = self.storage.message(id, count).map_err(|error| unreadable(&error.into()))?;
        match known {
            Some(row) if row.role != "user" => Err(answer::explained(
                Code::ValidationError,
                "the message's id is that of a stored reply; give it one of its own",
                Map::new(),
            )),
            known => Ok(known.is_some()),
        }
    }

    fn not_started(&self, error: NotStarted) -> Response {
        match error {
            NotStarted::Refused(StartRefused::AlreadyRunning(run)) => {
                let code = Code::StateAlreadyRunning;
                let attach = format!("/api/chat/{}/stream", encode(&self.name));
                let facts = facts(json!({ "runId": run, "attach": attach }));
                answer::explained(code, code.message(), facts)
            }
            NotStarted::Refused(refused) => answer::error(refused.code()),
            NotStarted::Host(error) => answer::internal(&error),
        }
    }
}

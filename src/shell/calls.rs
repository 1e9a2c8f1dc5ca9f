//! What the object does for each call: read the request, run one command, answer.

use std::rc::Rc;

use serde_json::{Map, Value, json};
use web_sys::Request;
use worker::Response;

use super::answer;
use super::entry::Entry;
use super::host::{Host, HostError};
use super::production::NotStarted;
use super::readers::{Dialect, ReaderError};
use super::request::{BodyError, body, header};
use crate::core::caller::Caller;
use crate::core::command::{Input, NotFound, StartRefused, StopTarget};
use crate::core::counters::add;
use crate::core::error::Code;
use crate::core::ids::{Cursor, MessageId, RunId};
use crate::core::reader::{Reader, Scope};
use crate::core::run::{Outcome, RunStatus};
use crate::core::snapshot;
use crate::core::storage::{RunRow, Storage, StorageError, Write};
use crate::dialect::cursor;
use crate::dialect::route::{Call, query_value};
use crate::dialect::ui::fold::Fold;
use crate::dialect::ui::reopen::reopen;
use crate::dialect::ui::request::{ChatBody, EntryKind, classify};
use crate::dialect::ui::response::{OPENING, synthesise};
use crate::dialect::ui::sanitise::{has_refused_keys, sanitise_message};
use crate::dialect::wire;

/// Chunks that a run is opened with: `run_started` and `start`.
const OPENING_CHUNKS: u64 = 2;

/// Most chunks of one page of `/chunks`.
const PAGE_CHUNKS: usize = 1_000;

/// An answer, or the answer that says why not.
type Answer = Result<Response, Response>;

impl Host {
    /// Answers one call.
    pub async fn answer(self: &Rc<Self>, call: Call, request: &Request, query: &str) -> Response {
        // Everybody is one anonymous caller until the deployment authenticates.
        let caller = Caller::Anonymous;
        // A session whose rows cannot be read must still be deletable.
        if let Err(error) = self.settle_or_hear().await
            && call != Call::Delete
        {
            return unreadable(&error);
        }
        let answer = match call {
            Call::Send => self.send(&caller, request, query).await,
            Call::Attach => self.attach(&caller, request).await,
            Call::Reconnect => self.reconnect(&caller, request),
            Call::ChatSnapshot => self.snapshot(&caller, query, false).await,
            Call::WireSnapshot => self.snapshot(&caller, query, true).await,
            Call::Stop => self.stop(&caller, request).await,
            Call::Delete => self.delete(&caller).await,
            Call::Sse => self.sse(&caller, request, query),
            Call::Info => self.info(&caller).await,
            Call::Chunks => self.chunks(&caller, query).await,
            Call::Seam => self.seam(request, query).await,
        };
        answer.unwrap_or_else(|refusal| refusal)
    }

    async fn send(self: &Rc<Self>, caller: &Caller, request: &Request, query: &str) -> Answer {
        let limit = self.config.settings.max_request_bytes;
        let bytes = body(request, limit).await.map_err(|error| unread(&error, limit))?;
        let parsed = ChatBody::parse(&bytes)
            .map_err(|refusal| answer::explained(refusal.code(), &refusal.to_string(), Map::new()))?;
        let kind = classify(&parsed);
        let entry = self.entry(request, query, parsed)?;
        match kind {
            EntryKind::Send(message) => self.start(caller, entry, &message).await,
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

    /// Resume by cursor: the current or last run, from the client's cursor or its start, never an older turn.
    async fn attach(self: &Rc<Self>, caller: &Caller, request: &Request) -> Answer {
        let asked = cursor_of(header(request, "x-resume-from-sequence").or_else(|| header(request, "last-event-id")))?;
        let found = self.session(|session| {
            session.authorise(caller)?;
            Ok((session.run().cloned(), session.log().head(), session.view().floor()))
        });
        let (run, head, floor) = found.map_err(|error| unreadable(&error))?.map_err(absent)?;
        let Some(run) = run else { return Err(answer::error(Code::StateSessionNotFound)) };
        if asked.is_some_and(|asked| asked > head) {
            return Err(self.beyond(head));
        }
        if run.status == RunStatus::Failed {
            return Err(self.stream_failed(&run));
        }
        if asked.unwrap_or(run.start).max(run.start) < floor {
            return Err(self.below_floor(floor));
        }
        let from = asked.unwrap_or(run.start).max(run.start);
        let own_id = header(request, "x-existing-message-id").filter(|id| !id.is_empty()).map(MessageId::new);
        if from == run.start && own_id.is_none() {
            return self.chat_reader(request, run.id, from, OPENING, false);
        }
        self.settled_writes().await.map_err(|error| unreadable(&error))?;
        let opened = Cursor::new(run.start.get().saturating_add(OPENING_CHUNKS)).unwrap_or(from);
        let through = from.max(opened).min(head);
        let mut fold = Fold::new(&own_id.unwrap_or(run.message_id));
        // Only one `start` counts, and this response brings its own: it begins behind the stored one.
        let mut begin = from;
        let mut finish = None;
        let read = self.each_stored(run.start, Some(through), &mut |stored| match stored.chunk.kind() {
            "start" => begin = begin.max(stored.sequence.cursor()),
            kind => {
                let is_finish = kind == "finish";
                // A chunk that does not fold is not on the chat surface either.
                let _ = fold.apply(&stored.chunk);
                if is_finish {
                    finish = Some(stored.chunk);
                }
            }
        });
        read.map_err(|error| unreadable(&error))?;
        let mut prefix = OPENING.to_vec();
        let finished = finish.is_some();
        for chunk in reopen(&fold).into_iter().chain(finish) {
            synthesise(chunk, self.config.floor, &mut prefix);
        }
        self.chat_reader(request, run.id, begin, &prefix, finished)
    }

    /// The stock reconnect: the live run's whole response, or 204.
    fn reconnect(self: &Rc<Self>, caller: &Caller, request: &Request) -> Answer {
        let live = self.session(|session| {
            session.authorise(caller).ok()?;
            session.run().filter(|run| run.status.is_live()).map(|run| (run.id.clone(), run.start))
        });
        match live.map_err(|error| unreadable(&error))? {
            Some((run, start)) => self.chat_reader(request, run, start, OPENING, false),
            None => Ok(answer::nothing()),
        }
    }

    async fn snapshot(self: &Rc<Self>, caller: &Caller, query: &str, wire: bool) -> Answer {
        self.settled_writes().await.map_err(|error| unreadable(&error))?;
        let seed = query_value(query, "seed").is_some_and(|value| value == "1");
        let read = self.session(|session| snapshot::read(session, caller, &self.name));
        let frame = read.map_err(|error| unreadable(&error))?.map_err(absent)?;
        let rows = self.storage.messages(frame.message_count()).map_err(|error| unreadable(&error.into()))?;
        let mut body = frame.with_messages(&rows, seed).map_err(|error| unreadable(&error.into()))?;
        if let Some(Value::Array(messages)) = body.get_mut("messages") {
            let shown = std::mem::take(messages);
            *messages = shown.into_iter().filter_map(|message| sanitise_message(message, self.config.floor)).collect();
        }
        if wire && let Value::Object(map) = &mut body {
            map.insert("legacy".into(), false.into());
        }
        Ok(answer::json(200, &body))
    }

    async fn stop(self: &Rc<Self>, caller: &Caller, request: &Request) -> Answer {
        let limit = self.config.settings.max_request_bytes;
        let bytes = body(request, limit).await.map_err(|error| unread(&error, limit))?;
        let named = named_run(&bytes)?;
        let target = self.session(|session| session.stop_target(caller, named.as_deref()));
        let (stopped, cause) = match target.map_err(|error| unreadable(&error))?.map_err(absent)? {
            StopTarget::Running(fence) => {
                self.conclude(&fence, Outcome::Interrupted).map_err(|error| unreadable(&error))?;
                (Some(fence.run), None)
            }
            StopTarget::Stale => (None, Some("run_not_current")),
            StopTarget::Idle => (None, Some("run_not_live")),
        };
        let mut body = facts(json!({ "success": true, "stopped": stopped.is_some() }));
        body.extend(stopped.map(|run| ("runId".to_owned(), run.as_str().into())));
        body.extend(cause.map(|cause| ("cause".to_owned(), cause.into())));
        Ok(answer::json(200, &Value::Object(body)))
    }

    async fn delete(self: &Rc<Self>, caller: &Caller) -> Answer {
        let writes = match self.session(|session| session.delete(caller)) {
            Ok(writes) => writes.map_err(absent)?,
            Err(HostError::Storage(StorageError::Corrupt(what))) => {
                worker::console_error!("session {}: deleted unread: {what}", self.log_name);
                vec![Write::DropAll]
            }
            Err(error) => return Err(unreadable(&error)),
        };
        self.storage.apply(&writes).map_err(|error| unreadable(&error.into()))?;
        self.abandon();
        self.throw_away();
        self.part_with_readers();
        self.erase().await.map_err(|error| unreadable(&error))?;
        Ok(answer::json(200, &json!({ "success": true })))
    }

    fn sse(self: &Rc<Self>, caller: &Caller, request: &Request, query: &str) -> Answer {
        let asked = query_value(query, "fromSequence").or_else(|| header(request, "last-event-id"));
        let asked = cursor_of(asked)?.unwrap_or(Cursor::START);
        let place =
            self.session(|session| session.authorise(caller).map(|_| (session.log().head(), session.view().floor())));
        let (head, floor) = place.map_err(|error| unreadable(&error))?.map_err(|_| stream_absent())?;
        if let Some(run) = query_value(query, "runId").filter(|run| !run.is_empty())
            && self.storage.run(&RunId::new(run)).map_err(|error| unreadable(&error.into()))?.is_none()
        {
            // The cursor is one of another log, whose session had the same id.
            return Ok(self.truncated(floor));
        }
        if asked > head {
            return Err(self.beyond(head));
        }
        let waits = query_value(query, "waitForLive").is_some_and(|value| value == "1");
        let reader = self.session(|session| {
            let reader = Reader::open(Scope::Stream, asked, session.view());
            if waits { reader.waiting_for_live(session.view()) } else { reader }
        });
        let reader = reader.map_err(|error| unreadable(&error))?;
        let stream = self.open_reader(request.signal().into(), Dialect::Wire, reader, OPENING, false);
        Ok(answer::events(stream.map_err(|error| unopened(&error))?, false))
    }

    /// A response that says only that what the cursor asks for is gone.
    fn truncated(&self, floor: Cursor) -> Response {
        self.count(|counters| add(&mut counters.truncated, 1));
        answer::events_of(&wire::truncated(floor), false)
    }

    async fn info(self: &Rc<Self>, caller: &Caller) -> Answer {
        self.settled_writes().await.map_err(|error| unreadable(&error))?;
        let seen = self.session(|session| {
            let row = session.authorise(caller).ok()?;
            let run = session.run();
            Some(json!({
                "exists": true,
                "status": row.status,
                "head": session.log().head(),
                "floor": session.log().floor(),
                "createdAt": row.created,
                "runId": run.map(|run| run.id.as_str()),
                "runStatus": run.map(|run| run.status),
                "errorDetail": run.filter(|run| run.error.is_some()).map(|run| snapshot::failure_detail(Some(run))),
            }))
        });
        let Some(mut body) = seen.map_err(|error| unreadable(&error))? else {
            return Ok(answer::json(200, &json!({ "exists": false })));
        };
        if let Value::Object(map) = &mut body {
            map.retain(|_, value| !value.is_null());
            map.insert("readers".into(), self.readers.len().into());
            map.insert("rowsWritten".into(), self.storage.connection().rows_written().into());
            map.insert("counters".into(), self.counted());
        }
        Ok(answer::json(200, &body))
    }

    async fn chunks(self: &Rc<Self>, caller: &Caller, query: &str) -> Answer {
        self.settled_writes().await.map_err(|error| unreadable(&error))?;
        let from = cursor_of(query_value(query, "fromSequence"))?.unwrap_or(Cursor::START);
        let limit = match query_value(query, "limit") {
            None => PAGE_CHUNKS,
            Some(text) => {
                text.parse::<usize>().ok().filter(|limit| (1..=PAGE_CHUNKS).contains(limit)).ok_or_else(|| {
                    answer::explained(Code::ValidationError, "limit must be a whole number from 1 to 1000", Map::new())
                })?
            }
        };
        let place =
            self.session(|session| session.authorise(caller).map(|_| (session.log().head(), session.log().floor())));
        let Ok((head, floor)) = place.map_err(|error| unreadable(&error))? else {
            return Ok(answer::json(200, &json!({ "exists": false, "chunks": [] })));
        };
        if from > head {
            return Err(self.beyond(head));
        }
        if from < floor {
            return Err(self.below_floor(floor));
        }
        let until = Cursor::new(from.get().saturating_add(limit as u64)).map_or(head, |until| until.min(head));
        let stored = self.stored_chunks(from, until).map_err(|error| unreadable(&error))?;
        let chunks: Vec<Value> = stored
            .into_iter()
            .map(|stored| json!({ "sequence": stored.sequence, "chunk": Value::Object(stored.chunk.into_map()) }))
            .collect();
        Ok(answer::json(200, &json!({ "exists": true, "chunks": chunks, "head": head, "floor": floor })))
    }

    /// Opens a chat response; `finished` when its prefix has carried the run's `finish` already.
    fn chat_reader(
        self: &Rc<Self>,
        request: &Request,
        run: RunId,
        cursor: Cursor,
        prefix: &[u8],
        finished: bool,
    ) -> Answer {
        let reader = self.session(|session| Reader::open(Scope::Run(run), cursor, session.view()));
        let reader = reader.map_err(|error| unreadable(&error))?;
        let dialect = Dialect::Chat;
        let stream = self.open_reader(request.signal().into(), dialect, reader, prefix, finished);
        Ok(answer::events(stream.map_err(|error| unopened(&error))?, true))
    }

    fn beyond(&self, head: Cursor) -> Response {
        self.see_snapshot(Code::StateCursorBeyondHead, json!({ "head": head }))
    }

    fn below_floor(&self, floor: Cursor) -> Response {
        self.count(|counters| add(&mut counters.truncated, 1));
        self.see_snapshot(Code::Truncated, json!({ "floor": floor }))
    }

    /// The cursor lies outside of the log; the answer says where to read on.
    fn see_snapshot(&self, code: Code, place: Value) -> Response {
        let mut facts = facts(place);
        facts.insert("snapshot".into(), format!("/api/chat/{}/snapshot", encode(&self.name)).into());
        answer::explained(code, code.message(), facts)
    }

    /// `spec/helix.md` E15: nothing to follow, because the run failed.
    fn stream_failed(&self, run: &RunRow) -> Response {
        let code = run.error.unwrap_or(Code::FrameworkInternalError);
        let body = json!({
            "error": "stream_failed",
            "code": code.as_str(),
            "retryable": code.retryable(),
            "sessionId": self.name,
            "streamId": self.name,
            "message": code.message(),
            "errorDetail": snapshot::failure_detail(Some(run)),
        });
        answer::json(409, &body)
    }

    /// Routes that only tests need; without `TEST_SEAMS=1` they do not exist.
    async fn seam(self: &Rc<Self>, request: &Request, query: &str) -> Answer {
        if !self.config.settings.test_seams {
            return Err(answer::error(Code::ValidationNotFound));
        }
        super::seams::perform(self, request, query).await
    }
}

fn cursor_of(text: Option<String>) -> Result<Option<Cursor>, Response> {
    text.map(|text| cursor::parse(&text))
        .transpose()
        .map_err(|error| answer::explained(Code::ValidationError, &error.to_string(), Map::new()))
}

/// The run that a stop names, as `runId` or `activeStreamId`.
fn named_run(bytes: &[u8]) -> Result<Option<String>, Response> {
    let refuse = |words: &str| answer::explained(Code::ValidationError, words, Map::new());
    if bytes.trim_ascii().is_empty() {
        return Ok(None);
    }
    let body: Value = serde_json::from_slice(bytes).map_err(|_| refuse("the body must be JSON"))?;
    if has_refused_keys(&body) {
        return Err(refuse("the body must not contain a __proto__ key"));
    }
    let Value::Object(body) = body else { return Err(refuse("the body must be a JSON object")) };
    for key in ["runId", "activeStreamId"] {
        match body.get(key) {
            None | Some(Value::Null) => {}
            Some(Value::String(run)) => return Ok(Some(run.clone())),
            Some(_) => return Err(refuse("runId and activeStreamId must be strings")),
        }
    }
    Ok(None)
}

fn facts(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

fn absent(_: NotFound) -> Response {
    answer::error(Code::StateSessionNotFound)
}

fn stream_absent() -> Response {
    answer::explained(Code::StateSessionNotFound, "Stream not found", Map::new())
}

fn unread(error: &BodyError, limit: usize) -> Response {
    match error {
        BodyError::TooLarge(size) => answer::too_large(limit, *size),
        BodyError::Broken => answer::explained(Code::ValidationError, "the body could not be read", Map::new()),
    }
}

fn unopened(error: &ReaderError) -> Response {
    match error {
        ReaderError::Host(error) => unreadable(error),
        ReaderError::Stream(error) => answer::internal(&super::bindings::error_text(error)),
    }
}

/// A read that failed before it changed anything may be repeated.
fn unreadable(error: &HostError) -> Response {
    worker::console_error!("{error}");
    match error {
        HostError::Storage(StorageError::Corrupt(_) | StorageError::TooLarge(_)) => {
            let code = Code::StateHistoryIncomplete;
            let facts = facts(json!({ "cause": "corrupt_row", "retryable": false }));
            let body = answer::explained(code, code.message(), facts);
            body.with_status(409)
        }
        HostError::Storage(StorageError::Failed(_)) => {
            let code = Code::StateHistoryIncomplete;
            answer::explained(code, code.message(), facts(json!({ "cause": "store_error" })))
        }
        HostError::Busy => answer::error(Code::FrameworkInternalError),
    }
}

/// A session id as one path segment.
fn encode(name: &str) -> String {
    String::from(js_sys::encode_uri_component(name))
}

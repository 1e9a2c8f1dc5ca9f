//! What both surfaces read: the snapshot, the wire, the stream's own status and its stored chunks.

use std::rc::Rc;

use serde_json::{Map, Value, json};
use web_sys::Request;
use worker::Response;

use super::refusals::{absent, stream_absent, unopened, unreadable};
use super::{Answer, cursor_of};
use crate::core::caller::Caller;
use crate::core::counters::add;
use crate::core::error::Code;
use crate::core::ids::{Cursor, RunId};
use crate::core::reader::{Reader, Scope};
use crate::core::snapshot;
use crate::core::storage::Storage;
use crate::core::view::Fault;
use crate::dialect::route::query_value;
use crate::dialect::ui::lens::Lens;
use crate::dialect::ui::response::OPENING;
use crate::dialect::ui::sanitise::sanitise_message;
use crate::dialect::wire;
use crate::shell::answer;
use crate::shell::host::Host;
use crate::shell::readers::{Dialect, Opening};
use crate::shell::request::header;

/// Most chunks of one page of `/chunks`.
const PAGE_CHUNKS: usize = 1_000;

impl Host {
    pub(super) async fn snapshot(self: &Rc<Self>, caller: &Caller, query: &str, wire: bool) -> Answer {
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
        let places = self.session(|session| session.queue().iter().map(|row| row.place).collect::<Vec<_>>());
        let mut queued = Vec::new();
        for place in places.map_err(|error| unreadable(&error))? {
            let json = self.storage.queued(place).map_err(|error| unreadable(&error.into()))?;
            let message = json.as_deref().and_then(|json| serde_json::from_str(json).ok());
            queued.extend(message.and_then(|message| sanitise_message(message, self.config.floor)));
        }
        if !queued.is_empty()
            && let Value::Object(map) = &mut body
        {
            map.insert("queued".into(), Value::Array(queued));
        }
        if wire && let Value::Object(map) = &mut body {
            map.insert("legacy".into(), false.into());
        }
        Ok(answer::json(200, &body))
    }

    pub(super) fn sse(self: &Rc<Self>, caller: &Caller, request: &Request, query: &str) -> Answer {
        let asked = query_value(query, "fromSequence").or_else(|| header(request, "last-event-id"));
        let asked = cursor_of(asked)?.unwrap_or(Cursor::START);
        let waits = query_value(query, "waitForLive").is_some_and(|value| value == "1");
        let run = query_value(query, "runId").filter(|run| !run.is_empty());
        // A session that nobody has begun yet is waited for. Whoever has been in one of this name asks for something that is gone.
        let begins = waits && asked == Cursor::START && run.is_none();
        let place = self.session(|session| {
            let place = (session.log().head(), session.view().floor());
            let absent = session.view().status().is_none();
            session
                .authorise(caller)
                .map(|_| place)
                .or_else(|refused| if absent && begins { Ok(place) } else { Err(refused) })
        });
        let (head, floor) = place.map_err(|error| unreadable(&error))?.map_err(|_| stream_absent())?;
        if let Some(run) = run
            && self.storage.run(&RunId::new(run)).map_err(|error| unreadable(&error.into()))?.is_none()
        {
            // The cursor is one of another log, whose session had the same id.
            return Ok(self.truncated(floor));
        }
        if asked > head {
            return Err(self.beyond(head));
        }
        let reader = self.session(|session| {
            let reader = Reader::open(Scope::Stream, asked, session.view());
            if waits { reader.waiting_for_live(session.view()) } else { reader }
        });
        let reader = reader.map_err(|error| unreadable(&error))?;
        let opening = Opening {
            dialect: Dialect::Wire,
            reader,
            lens: Lens::default(),
            projector: None,
            prefix: OPENING,
            finish_sent: false,
            content_sent: false,
            holds_lead: false,
        };
        let stream = self.open_reader(request.signal().into(), opening);
        Ok(answer::events(stream.map_err(|error| unopened(&error))?, false))
    }

    /// A response that says only that what the cursor asks for is gone.
    fn truncated(&self, floor: Cursor) -> Response {
        self.count(|counters| add(&mut counters.truncated, 1));
        answer::events_of(&wire::truncated(floor), false)
    }

    pub(super) async fn info(self: &Rc<Self>, caller: &Caller) -> Answer {
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
                "queued": Some(session.queue().len()).filter(|queued| *queued > 0),
                "errorDetail": run.filter(|run| run.error.is_some()).map(|run| snapshot::fault_detail(&Fault::of(run))),
            }))
        });
        let Some(mut body) = seen.map_err(|error| unreadable(&error))? else {
            return Ok(answer::json(200, &json!({ "exists": false })));
        };
        if let Value::Object(map) = &mut body {
            map.retain(|_, value| !value.is_null());
            map.insert("readers".into(), self.readers.len().into());
            map.insert("rowsWritten".into(), self.rows_written().into());
            map.insert("counters".into(), self.counted());
        }
        Ok(answer::json(200, &body))
    }

    pub(super) async fn chunks(self: &Rc<Self>, caller: &Caller, query: &str) -> Answer {
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
}

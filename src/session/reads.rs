//! What both surfaces read without following it: the snapshot, the stream's own status, and stored chunks in pages.
//!
//! What is read may not be durable yet: the answer rests on the newest write, and is fixed at this moment.

use serde_json::{Value, json};

use super::call::SessionCall;
use super::door::Owned;
use super::engine::SessionEngine;
use super::refuse::Refusal;
use super::stored;
use super::turn::SessionTurn;
use crate::core::caller::Caller;
use crate::core::counters::add;
use crate::core::engine::answer::Answer;
use crate::core::ids::Cursor;
use crate::core::snapshot;
use crate::core::view::Fault;
use crate::dialect::ui::sanitise::sanitise_message;

/// Most chunks of one page of `/chunks`.
const PAGE_CHUNKS: usize = 1_000;

impl SessionEngine {
    /// The committed conversation (`spec/helix.md` section 6). `wire`: on the surface that says so.
    pub(super) fn snapshot(
        &mut self,
        caller: &Caller,
        call: &SessionCall,
        wire: bool,
        turn: &mut SessionTurn<'_>,
    ) -> Result<Answer, Refusal> {
        let (name, floor) = (self.name().to_owned(), self.deployment().floor);
        let session = self.session(turn.now, turn.storage)?;
        let frame = snapshot::read(session, caller, &name)?;
        let rows = turn.storage.messages(frame.message_count())?;
        let mut body = frame.with_messages(&rows, call.is_set("seed"))?;
        if let Some(Value::Array(messages)) = body.get_mut("messages") {
            let shown = std::mem::take(messages);
            *messages = shown.into_iter().filter_map(|message| sanitise_message(message, floor)).collect();
        }
        let mut queued = Vec::new();
        for row in session.queue() {
            let json = turn.storage.queued(row.place)?;
            let message = json.as_deref().and_then(|json| serde_json::from_str(json).ok());
            queued.extend(message.and_then(|message| sanitise_message(message, floor)));
        }
        if let Value::Object(map) = &mut body {
            if !queued.is_empty() {
                map.insert("queued".into(), Value::Array(queued));
            }
            if wire {
                map.insert("legacy".into(), false.into());
            }
        }
        Ok(Answer::json(200, &body))
    }

    /// The stream's own status, and what this object has done.
    pub(super) fn info(&mut self, caller: &Caller, turn: &mut SessionTurn<'_>) -> Result<Answer, Refusal> {
        let session = self.session(turn.now, turn.storage)?;
        let Ok(owned) = Owned::enter(session, caller) else {
            return Ok(Answer::json(200, &json!({ "exists": false })));
        };
        let (row, session) = (owned.row(), owned.session());
        let run = session.run();
        let mut body = json!({
            "exists": true,
            "status": row.status,
            "head": session.log().head(),
            "floor": session.log().floor(),
            "createdAt": row.created,
            "runId": run.map(|run| run.id.as_str()),
            "runStatus": run.map(|run| run.status),
            "queued": Some(session.queue().len()).filter(|queued| *queued > 0),
            "errorDetail": run.filter(|run| run.error.is_some()).map(|run| snapshot::fault_detail(&Fault::of(run))),
        });
        let counters = self.counted(turn.storage);
        if let Value::Object(map) = &mut body {
            map.retain(|_, value| !value.is_null());
            map.insert("readers".into(), counters.readers.now.into());
            map.insert("rowsWritten".into(), counters.rows_written.into());
            map.insert("counters".into(), serde_json::to_value(counters).unwrap_or_default());
        }
        Ok(Answer::json(200, &body))
    }

    /// Stored chunks in pages.
    pub(super) fn chunks(
        &mut self,
        caller: &Caller,
        call: &SessionCall,
        turn: &mut SessionTurn<'_>,
    ) -> Result<Answer, Refusal> {
        let from = call.cursor("fromSequence")?.unwrap_or(Cursor::START);
        let limit = match call.value("limit") {
            None => PAGE_CHUNKS,
            Some(text) => text
                .parse::<usize>()
                .ok()
                .filter(|limit| (1..=PAGE_CHUNKS).contains(limit))
                .ok_or_else(|| Refusal::Invalid("limit must be a whole number from 1 to 1000".to_owned()))?,
        };
        let session = self.session(turn.now, turn.storage)?;
        let Ok(owned) = Owned::enter(session, caller) else {
            return Ok(Answer::json(200, &json!({ "exists": false, "chunks": [] })));
        };
        let (head, floor) = (owned.session().log().head(), owned.session().log().floor());
        if from > head {
            return Err(Refusal::Beyond(head));
        }
        if from < floor {
            add(&mut self.counters.truncated, 1);
            return Err(Refusal::BelowFloor(floor));
        }
        let until = Cursor::new(from.get().saturating_add(limit as u64)).map_or(head, |until| until.min(head));
        let chunks: Vec<Value> = stored::chunks(turn.storage, from, until)?
            .into_iter()
            .map(|stored| json!({ "sequence": stored.sequence, "chunk": Value::Object(stored.chunk.into_map()) }))
            .collect();
        Ok(Answer::json(200, &json!({ "exists": true, "chunks": chunks, "head": head, "floor": floor })))
    }
}

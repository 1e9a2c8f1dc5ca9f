//! Stop, retry and delete.

use std::rc::Rc;

use serde_json::{Map, Value, json};
use web_sys::Request;

use super::Answer;
use super::refusals::{Refusal, facts, unread};
use super::send::Plan;
use crate::core::caller::Caller;
use crate::core::command::{Entry as RunEntry, RewindCause, StopTarget};
use crate::core::ids::CheckpointId;
use crate::core::run::Outcome;
use crate::core::storage::{Storage, Write};
use crate::dialect::ui::request::ChatBody;
use crate::dialect::ui::sanitise::has_refused_keys;
use crate::shell::answer;
use crate::shell::host::{Host, HostError};
use crate::shell::request::body;

impl Host {
    pub(super) async fn stop(self: &Rc<Self>, caller: &Caller, request: &Request) -> Answer {
        let limit = self.config.settings.max_request_bytes;
        let bytes = body(request, limit).await.map_err(|error| unread(&error, limit))?;
        let named = named_run(&bytes)?;
        let target = self.session(|session| session.stop_target(caller, named.as_deref()));
        let mut cleared = Vec::new();
        let (stopped, cause) = match target?? {
            StopTarget::Live(fence) => {
                // Before the run's end, which would go on with the first of them.
                cleared = self.clear_queue()?;
                self.conclude(&fence, Outcome::Interrupted)?;
                (Some(fence.run), None)
            }
            StopTarget::Stale => (None, Some("run_not_current")),
            StopTarget::Idle => (None, Some("run_not_live")),
        };
        let mut body = facts(json!({ "success": true, "stopped": stopped.is_some() }));
        body.extend(stopped.map(|run| ("runId".to_owned(), run.as_str().into())));
        if !cleared.is_empty() {
            body.insert("cleared".into(), json!(cleared));
        }
        body.extend(cause.map(|cause| ("cause".to_owned(), cause.into())));
        Ok(answer::json(200, &Value::Object(body)))
    }

    /// `POST /api/chat/:s/retry`: the last turn once more, or the one that began at a checkpoint.
    pub(super) async fn retry(self: &Rc<Self>, caller: &Caller, request: &Request, query: &str) -> Answer {
        let limit = self.config.settings.max_request_bytes;
        let bytes = body(request, limit).await.map_err(|error| unread(&error, limit))?;
        let body = object(&bytes)?;
        let agent = text(&body, "agent")?;
        self.session(|session| session.authorise(caller).map(|_| ()))??;
        let places = self.places(caller)?;
        let conflict = |words: &'static str, cause: &'static str| Refusal::Conflict(words, cause);
        let (keep, cause) = match text(&body, "checkpointId")? {
            None => {
                let last = places.iter().rposition(|place| place.role == "user");
                (last.map_or(0, |at| at.saturating_add(1)), RewindCause::Retry)
            }
            Some(id) => {
                let point = self.storage.rewind_point(&CheckpointId::new(id))?;
                let Some(point) = point else {
                    return Err(conflict("This checkpoint is not one to go back to", "checkpoint_unknown"));
                };
                (usize::try_from(point.message_count).unwrap_or(usize::MAX), RewindCause::Rollback)
            }
        };
        if keep.checked_sub(1).and_then(|at| places.get(at)).is_none_or(|place| place.role != "user") {
            return Err(conflict("There is no message to answer at this point", "nothing_to_answer"));
        }
        let keep = u32::try_from(keep).unwrap_or(u32::MAX);
        let entry = self.entry(request, query, ChatBody { agent, ..ChatBody::default() })?;
        self.launch(caller, entry, Plan::of(RunEntry::Rewind { keep, input: None, cause })).await
    }

    pub(super) async fn delete(self: &Rc<Self>, caller: &Caller) -> Answer {
        let writes = match self.session(|session| session.delete(caller)) {
            Ok(writes) => writes?,
            Err(HostError::Storage(error)) if error.is_lasting() => {
                worker::console_error!("session {}: deleted unread: {error}", self.log_name);
                vec![Write::DropAll]
            }
            Err(error) => return Err(error.into()),
        };
        match self.storage.apply(&writes) {
            // The file goes with all that is in it.
            Err(error) if error.is_lasting() => {
                worker::console_error!("session {}: erased unread: {error}", self.log_name);
            }
            applied => drop(applied?),
        }
        self.part_with_session().await?;
        Ok(answer::json(200, &json!({ "success": true })))
    }
}

/// The run that a stop names, as `runId` or `activeStreamId`.
fn named_run(bytes: &[u8]) -> Result<Option<String>, Refusal> {
    let body = object(bytes)?;
    Ok(text(&body, "runId")?.or(text(&body, "activeStreamId")?))
}

/// A body that may be left out.
fn object(bytes: &[u8]) -> Result<Map<String, Value>, Refusal> {
    if bytes.trim_ascii().is_empty() {
        return Ok(Map::new());
    }
    let body: Value = serde_json::from_slice(bytes).map_err(|_| refuse("the body must be JSON"))?;
    if has_refused_keys(&body) {
        return Err(refuse("the body must not contain a __proto__ key"));
    }
    match body {
        Value::Object(body) => Ok(body),
        _ => Err(refuse("the body must be a JSON object")),
    }
}

fn text(body: &Map<String, Value>, key: &str) -> Result<Option<String>, Refusal> {
    match body.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(refuse(&format!("{key} must be a string"))),
    }
}

fn refuse(words: &str) -> Refusal {
    Refusal::Invalid(words.to_owned())
}

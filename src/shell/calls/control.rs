//! Stop and delete.

use std::rc::Rc;

use serde_json::{Map, Value, json};
use web_sys::Request;
use worker::Response;

use super::Answer;
use super::refusals::{absent, facts, unread, unreadable};
use crate::core::caller::Caller;
use crate::core::command::StopTarget;
use crate::core::error::Code;
use crate::core::run::Outcome;
use crate::core::storage::{Storage, StorageError, Write};
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

    pub(super) async fn delete(self: &Rc<Self>, caller: &Caller) -> Answer {
        let writes = match self.session(|session| session.delete(caller)) {
            Ok(writes) => writes.map_err(absent)?,
            Err(HostError::Storage(StorageError::Corrupt(what))) => {
                worker::console_error!("session {}: deleted unread: {what}", self.log_name);
                vec![Write::DropAll]
            }
            Err(error) => return Err(unreadable(&error)),
        };
        self.storage.apply(&writes).map_err(|error| unreadable(&error.into()))?;
        self.part_with_session().await.map_err(|error| unreadable(&error))?;
        Ok(answer::json(200, &json!({ "success": true })))
    }
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

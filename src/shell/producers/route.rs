//! Somebody's own chat route. It is asked once: its side effects would repeat, so a run whose object died is never asked again.

use serde_json::Value;

use super::upstream::{Outgoing, Refusal, Reply, binding, relay};
use super::{Job, Produced};
use crate::core::error::{Code, Failure};
use crate::core::run::{EntryKind, Outcome};
use crate::core::time::Millis;
use crate::dialect::ui::sanitise::sanitise_message;
use crate::dialect::ui::vocabulary::Floor;
use crate::model::agent::Reference;
use crate::model::parts::Batch;
use crate::model::ui_route::request::{Asked, Forwarded, complete_keys, forwarded_history, names_reply, request_body};
use crate::model::ui_route::settings::UiRouteSettings;
use crate::model::ui_route::stream::RouteStream;

pub(super) async fn produce(
    job: &Job,
    settings: &UiRouteSettings,
    history: Vec<Value>,
    forwarded: Option<Forwarded>,
) -> Produced {
    // In memory only, so it is gone with the object that took it.
    let Some(Forwarded { mut headers, keys }) = forwarded else {
        return Err(Failure::new(Code::ProducerLost, "the request that the route would answer is gone"));
    };
    let binding = match settings.target.binding() {
        None => None,
        Some(name) => match binding(&job.host.env, name) {
            Some(found) => Some(found),
            None => return Err(Reference::Binding(name).missing(&agent(job)).failure()),
        },
    };
    // As a client of the newest version would hold and send it.
    let history: Vec<Value> =
        history.into_iter().filter_map(|message| sanitise_message(message, Floor::NEWEST)).collect();
    let run = job.host.session(|session| session.run().map(|run| (run.entry, run.message_id.clone()))).ok().flatten();
    let reply = run.as_ref().map(|(_, id)| id.as_str());
    let asked = match (run.as_ref().map(|(entry, _)| *entry), reply) {
        (Some(EntryKind::ToolResult), Some(reply)) => Asked::ToolResult { reply },
        (Some(EntryKind::Retry), _) => Asked::Regenerate,
        _ => Asked::Send,
    };
    headers.extend(reply.map(names_reply));
    let history = forwarded_history(settings, &history, asked);
    let keys = complete_keys(keys, &job.host.name, asked, &history);
    let body = Value::Object(request_body(keys, history)).to_string();
    let outgoing = Outgoing { address: settings.target.address(), binding, headers, body };
    let mut reply = Route { stream: RouteStream::new(settings.forward_errors), silence: settings.silence };
    relay(job, outgoing, &mut reply).await
}

fn agent(job: &Job) -> String {
    job.host.session(|session| session.run().map(|run| run.agent.clone())).ok().flatten().unwrap_or_default()
}

/// A route's answer, and how long it may say nothing.
struct Route {
    stream: RouteStream,
    silence: Millis,
}

impl Reply for Route {
    fn push(&mut self, bytes: &[u8]) -> Batch {
        self.stream.push(bytes)
    }

    fn end(&mut self) -> Batch {
        self.stream.end()
    }

    fn outcome(&self) -> Option<Outcome> {
        self.stream.outcome()
    }

    fn refused(&self, refusal: &Refusal<'_>) -> Failure {
        let Refusal { status, content_type, heard, body } = *refusal;
        self.stream.refused(status, content_type, heard, body)
    }

    fn silence(&self) -> Option<Millis> {
        Some(self.silence)
    }

    fn silent(&mut self) -> Batch {
        self.stream.silent(self.silence)
    }
}

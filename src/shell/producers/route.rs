//! Somebody's own chat route. It is asked once: its side effects would repeat, so a run whose object died is never asked again.

use serde_json::Value;

use super::upstream::{Outgoing, Reply, binding, relay};
use super::{Job, Produced};
use crate::core::error::{Code, Failure};
use crate::core::run::{EntryKind, Outcome};
use crate::dialect::ui::sanitise::sanitise_message;
use crate::dialect::ui::vocabulary::Floor;
use crate::model::agent::Reference;
use crate::model::parts::Batch;
use crate::model::ui_route::request::{Asked, Forwarded, complete_keys, request_body};
use crate::model::ui_route::settings::UiRouteSettings;
use crate::model::ui_route::stream::RouteStream;

pub(super) async fn produce(
    job: &Job,
    settings: &UiRouteSettings,
    history: Vec<Value>,
    forwarded: Option<Forwarded>,
) -> Produced {
    // In memory only, so it is gone with the object that took it.
    let Some(Forwarded { headers, keys }) = forwarded else {
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
        (Some(EntryKind::Retry), reply) => Asked::Regenerate { reply },
        _ => Asked::Send,
    };
    let keys = complete_keys(keys, &job.host.name, asked, &history);
    let body = Value::Object(request_body(settings, keys, &history)).to_string();
    drop(history);
    let outgoing = Outgoing { address: settings.target.address(), binding, headers, body };
    relay(job, outgoing, &mut RouteStream::new()).await
}

fn agent(job: &Job) -> String {
    job.host.session(|session| session.run().map(|run| run.agent.clone())).ok().flatten().unwrap_or_default()
}

impl Reply for RouteStream {
    fn push(&mut self, bytes: &[u8]) -> Batch {
        self.push(bytes)
    }

    fn end(&mut self) -> Batch {
        self.end()
    }

    fn outcome(&self) -> Option<Outcome> {
        self.outcome()
    }
}

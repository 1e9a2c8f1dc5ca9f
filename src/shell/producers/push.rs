//! A producer outside: told of its run by one request, and that is all; it writes the run over HTTP.

use std::rc::Rc;

use serde_json::Value;
use web_sys::AbortController;

use super::upstream::{Outgoing, binding, post, unreached};
use super::{Host, history};
use crate::core::chunk::Chunk;
use crate::core::error::{Code, Failure};
use crate::core::run::Outcome;
use crate::core::storage::RunRow;
use crate::dialect::ui::sanitise::sanitise_message;
use crate::dialect::ui::vocabulary::Floor;
use crate::model::agent::{Agent, Reference};
use crate::model::push_agent::{PushSettings, Told, body};

/// Tells the run's agent of it. No answer, or a refusal, fails the run.
pub fn tell(host: &Rc<Host>, run: &RunRow, origin: String, answers: Vec<Chunk>) {
    let (host, run) = (Rc::clone(host), run.clone());
    let task = Rc::clone(&host);
    host.spawn(async move {
        if let Err(failure) = ask(&task, &run, &origin, &answers).await {
            worker::console_error!("session {} run {}: {failure}", task.log_name, run.id);
            let _ = task.conclude(&run.fence(), Outcome::Failed(failure.code));
        }
    });
}

async fn ask(host: &Rc<Host>, run: &RunRow, origin: &str, answers: &[Chunk]) -> Result<(), Failure> {
    let (_, agent) = host.config.agents.choose(Some(&run.agent)).map_err(|error| error.failure())?;
    let Agent::Push(settings) = agent else { return Ok(()) };
    let outgoing = outgoing(host, settings, run, origin, answers)?;
    let cancel =
        AbortController::new().map_err(|_| Failure::new(Code::FrameworkInternalError, "no abort controller"))?;
    let response = post(outgoing, &cancel.signal())
        .await
        .map_err(|error| Failure::new(Code::ProducerUnreachable, unreached(&error)))?;
    let status = response.status();
    if let Some(body) = response.body() {
        let _ = body.cancel();
    }
    if (200..300).contains(&status) {
        return Ok(());
    }
    Err(Failure::new(Code::ProducerUnreachable, format!("the producer answered {status}")))
}

fn outgoing(
    host: &Rc<Host>,
    settings: &PushSettings,
    run: &RunRow,
    origin: &str,
    answers: &[Chunk],
) -> Result<Outgoing, Failure> {
    let bound = match settings.target.binding() {
        None => None,
        Some(name) => {
            Some(binding(&host.env, name).ok_or_else(|| Reference::Binding(name).missing(&run.agent).failure())?)
        }
    };
    // As a client of the newest version would hold it.
    let messages: Vec<Value> =
        history(host)?.into_iter().filter_map(|message| sanitise_message(message, Floor::NEWEST)).collect();
    let path = |text: &str| String::from(js_sys::encode_uri_component(text));
    let append_url = format!("{origin}/sessions/{}/runs/{}/chunks", path(&host.name), path(run.id.as_str()));
    let lease_ms = run.push.as_ref().map_or(0, |push| push.lease.get());
    let told = Told {
        entry: run.entry,
        session: &host.name,
        run: &run.id,
        epoch: run.epoch,
        lease_ms,
        messages,
        answers,
        append_url,
    };
    let mut headers = vec![("content-type".to_owned(), "application/json".to_owned())];
    headers.extend(settings.send_headers.iter().cloned());
    Ok(Outgoing { address: settings.target.address(), binding: bound, headers, body: body(told).to_string() })
}

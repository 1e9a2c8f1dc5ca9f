//! A producer outside: told of its run by one request, and that is all; it writes the run over HTTP.

use std::rc::Rc;

use futures::future::{Either, select};
use serde_json::Value;
use web_sys::AbortController;

use super::upstream::{Outgoing, beginning, binding, post, retry_after, unreached, without};
use super::{Host, calls, named_history};
use crate::core::chunk::Chunk;
use crate::core::error::{Code, Failure};
use crate::core::redact::secrets_of;
use crate::core::run::Outcome;
use crate::core::storage::RunRow;
use crate::core::time::Millis;
use crate::dialect::ui::own_ids::with_own_ids;
use crate::dialect::ui::sanitise::sanitise_message;
use crate::dialect::ui::vocabulary::Floor;
use crate::model::agent::{Agent, Reference};
use crate::model::push_agent::{PushSettings, Told, body, result};
use crate::shell::clock::sleep;

/// How long a refusal's words are waited for.
const LAST_WORDS: Millis = Millis::new(2_000);

/// Tells the run's agent of it. No answer, or a refusal, fails the run. `own`: the address at which the agent reaches the service.
pub fn tell(host: &Rc<Host>, run: &RunRow, own: String, answers: Vec<Chunk>) {
    let (host, run) = (Rc::clone(host), run.clone());
    let task = Rc::clone(&host);
    host.spawn(async move {
        if let Err(failure) = ask(&task, &run, &own, &answers).await {
            worker::console_error!("session {} run {}: {failure}", task.log_name, run.id);
            let _ = task.session(|session| session.explain(&run.fence(), &failure));
            let _ = task.conclude(&run.fence(), Outcome::Failed(failure.code));
        }
    });
}

async fn ask(host: &Rc<Host>, run: &RunRow, own: &str, answers: &[Chunk]) -> Result<(), Failure> {
    let (_, agent) = host.config.agents.choose(Some(&run.agent)).map_err(|error| error.failure())?;
    let Agent::Push(settings) = agent else { return Ok(()) };
    let outgoing = outgoing(host, settings, run, own, answers)?;
    let secrets = secrets_of(&outgoing.address, &outgoing.headers);
    asked(outgoing).await.map_err(|failure| without(failure, &secrets))
}

async fn asked(outgoing: Outgoing) -> Result<(), Failure> {
    let cancel =
        AbortController::new().map_err(|_| Failure::new(Code::FrameworkInternalError, "no abort controller"))?;
    let response = post(outgoing, &cancel.signal())
        .await
        .map_err(|error| Failure::new(Code::ProducerUnreachable, unreached(&error)))?;
    let status = response.status();
    if (200..300).contains(&status) {
        if let Some(body) = response.body() {
            let _ = body.cancel();
        }
        return Ok(());
    }
    let wait = retry_after(&response);
    let said = select(Box::pin(beginning(&response)), sleep(LAST_WORDS)).await;
    let said = match said {
        Either::Left((said, _)) => said,
        Either::Right(_) => Vec::new(),
    };
    cancel.abort();
    let words = format!("the producer answered {status}: {}", String::from_utf8_lossy(&said));
    Err(Failure { retry_after_ms: wait, ..Failure::new(Code::ProducerUnreachable, words) })
}

fn outgoing(
    host: &Rc<Host>,
    settings: &PushSettings,
    run: &RunRow,
    own: &str,
    answers: &[Chunk],
) -> Result<Outgoing, Failure> {
    let bound = match settings.target.binding() {
        None => None,
        Some(name) => {
            Some(binding(&host.env, name).ok_or_else(|| Reference::Binding(name).missing(&run.agent).failure())?)
        }
    };
    // As a client of the newest version would hold it.
    let named: Vec<Value> =
        named_history(host)?.into_iter().filter_map(|message| sanitise_message(message, Floor::NEWEST)).collect();
    let calls = calls(host)?;
    let path = |text: &str| String::from(js_sys::encode_uri_component(text));
    let append_url = format!("{own}/sessions/{}/runs/{}/chunks", path(&host.name), path(run.id.as_str()));
    let lease_ms = run.push.as_ref().map_or(0, |push| push.lease.get());
    let told = Told {
        entry: run.entry,
        session: &host.name,
        run: &run.id,
        epoch: run.epoch,
        lease_ms,
        results: answers.iter().map(|answer| result(answer, &named, &calls)).collect(),
        messages: named.into_iter().map(|message| with_own_ids(message, &calls)).collect(),
        append_url,
    };
    let mut headers = vec![("content-type".to_owned(), "application/json".to_owned())];
    headers.extend(settings.send_headers.iter().cloned());
    Ok(Outgoing { address: settings.target.address(), binding: bound, headers, body: body(told).to_string() })
}

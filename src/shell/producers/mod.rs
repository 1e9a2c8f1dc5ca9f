//! The producers that live inside the object, each a task that feeds [`Host::produce`] until its run is no longer its own.
//!
//! * `demo`: the built-in script.
//! * `model`: a model API: chat completions, or Anthropic's messages.
//! * `route`: somebody's own chat route. `push`: a producer outside, which is only told of its run.
//! * `upstream`: one outgoing request and its body, for all that ask somebody else.

mod demo;
mod model;
mod push;
mod route;
mod upstream;

use std::panic::AssertUnwindSafe;
use std::rc::Rc;

use futures::FutureExt;

use serde_json::Value;
use web_sys::AbortSignal;

use super::config::variable;
use super::host::{Host, HostError};
use crate::core::call_ids::CallIds;
use crate::core::chunk::Chunk;
use crate::core::error::{Code, Failure};
use crate::core::run::{EntryKind, Fence, Outcome};
use crate::core::storage::{Storage, StorageError};
use crate::dialect::ui::own_ids::with_own_ids;
use crate::model::agent::{Agent, Reference};
use crate::model::ui_route::request::Forwarded;

/// The run that a producer writes.
struct Job {
    host: Rc<Host>,
    fence: Fence,
    signal: AbortSignal,
}

impl Job {
    /// The producer has more. `false` when its run is no longer its own to write.
    fn produce(&self, chunks: Vec<Chunk>) -> bool {
        self.is_current() && self.host.produce(&self.fence, chunks)
    }

    /// The producer is alive.
    fn renew(&self) {
        if self.is_current() {
            self.host.renew(&self.fence);
        }
    }

    fn is_current(&self) -> bool {
        self.host.is_fed_by(&self.fence, &self.signal)
    }
}

/// How a production ended; `None` when the run has been taken from it, and with it the say.
type Produced = Result<Option<Outcome>, Failure>;

pub use push::tell;

/// Starts the task that produces this run. `forwarded` is what the run's own request hands on to a chat route.
pub fn spawn(host: &Rc<Host>, fence: Fence, agent: &str, forwarded: Option<Forwarded>, signal: AbortSignal) {
    let job = Job { host: Rc::clone(host), fence, signal };
    let name = agent.to_owned();
    host.spawn(async move {
        let produced = AssertUnwindSafe(produce(&job, &name, forwarded)).catch_unwind().await;
        if !job.is_current() {
            return;
        }
        match produced {
            Ok(Ok(Some(outcome))) => {
                let _ = job.host.conclude(&job.fence, outcome);
            }
            Ok(Ok(None)) => {}
            Ok(Err(failure)) => job.host.fail(&job.fence, &failure),
            Err(_) => {
                job.host.fail(&job.fence, &Failure::new(Code::FrameworkInternalError, "the producer panicked"));
            }
        }
    });
}

async fn produce(job: &Job, agent: &str, forwarded: Option<Forwarded>) -> Produced {
    let history = history(&job.host)?;
    let (_, agent) = job.host.config.agents.choose(Some(agent)).map_err(|error| error.failure())?;
    match agent {
        Agent::Demo(settings) => Ok(demo::produce(job, settings, &history).await),
        Agent::OpenAi(settings) => model::openai(job, settings, &history).await,
        Agent::Anthropic(settings) => model::anthropic(job, settings, history).await,
        Agent::Ui(settings) => route::produce(job, settings, history, forwarded).await,
        // Its run has no producer in this object.
        Agent::Push(_) => Ok(None),
    }
}

/// Whether the deployment has what an agent's configuration names. Asked before a run starts, so that nothing is stored for nothing.
pub fn check(host: &Host, name: &str, agent: &Agent) -> Result<(), Failure> {
    let Some(reference) = agent.reference() else { return Ok(()) };
    let is_there = match reference {
        Reference::Secret(secret) => variable(&host.env, secret).is_some(),
        Reference::Binding(binding) => upstream::binding(&host.env, binding).is_some(),
    };
    if is_there { Ok(()) } else { Err(reference.missing(name).failure()) }
}

/// The committed conversation that the run answers, under the producer's own ids of calls: without what the run itself has committed,
/// unless it continues a message.
fn history(host: &Host) -> Result<Vec<Value>, Failure> {
    let calls = calls(host)?;
    Ok(named_history(host)?.into_iter().map(|message| with_own_ids(message, &calls)).collect())
}

/// The same conversation, with the session's names of calls.
fn named_history(host: &Host) -> Result<Vec<Value>, Failure> {
    let count = host.session(|session| {
        let own = session.run().filter(|run| run.entry != EntryKind::ToolResult).map(|run| run.message_index);
        own.map_or(session.message_count(), |own| own.min(session.message_count()))
    });
    let count = count.map_err(unread)?;
    let rows = host.storage.messages(count).map_err(|error| unread(error.into()))?;
    rows.iter().map(|row| serde_json::from_str(&row.json).map_err(|error| broken(&error))).collect()
}

fn calls(host: &Host) -> Result<CallIds, Failure> {
    host.session(|session| session.calls().clone()).map_err(unread)
}

/// Storage that fails for a while is neither the model's fault nor a lasting one.
fn unread(error: HostError) -> Failure {
    match &error {
        HostError::Storage(StorageError::Failed(_)) => Failure::new(Code::StateStoreFailed, error.to_string()),
        _ => broken(&error),
    }
}

fn broken(error: &dyn std::fmt::Display) -> Failure {
    Failure::new(Code::FrameworkInternalError, error.to_string())
}

/// Begins the ids of a run's parts and calls; short, because it stands on every delta.
fn id_prefix(host: &Host) -> String {
    let turn = host.session(|session| session.run().map_or(0, |run| run.turn)).unwrap_or_default();
    format!("r{turn}.")
}

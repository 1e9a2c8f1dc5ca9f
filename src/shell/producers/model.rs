//! A model behind an API of its own: one request, one translated answer; another one where the API pauses a long turn.

use serde_json::{Map, Value};

use super::upstream::{Outgoing, Reply, relay};
use super::{Job, Produced, id_prefix};
use crate::core::error::{Code, Failure};
use crate::core::run::Outcome;
use crate::model::answer::{Answer, StreamOptions, Translation};
use crate::model::anthropic::{self, settings::AnthropicSettings, stream::MessageStream};
use crate::model::history::with_reply;
use crate::model::openai::{self, settings::OpenAiSettings, stream::CompletionStream};
use crate::model::parts::Batch;
use crate::model::tools::{Approvals, Tool};
use crate::shell::config::variable;

pub(super) async fn openai(job: &Job, settings: &OpenAiSettings, history: &[Value]) -> Produced {
    let key = key(job, settings.api_key.as_deref())?;
    let address = openai::request::endpoint(&settings.base_url);
    let headers = openai::request::headers(settings, key.as_deref());
    let body = openai::request::request_body(settings, history);
    ask(job, address, headers, body, &mut CompletionStream::new(options(job, &settings.tools, settings.origin()))).await
}

pub(super) async fn anthropic(job: &Job, settings: &AnthropicSettings, mut history: Vec<Value>) -> Produced {
    let key = key(job, settings.api_key.as_deref())?;
    let address = anthropic::request::endpoint(&settings.base_url);
    let headers = anthropic::request::headers(settings, key.as_deref());
    let mut answer = 1;
    loop {
        let body = anthropic::request::request_body(settings, &history);
        let options = StreamOptions {
            id_prefix: anthropic::request::id_prefix(&id_prefix(&job.host), answer),
            may_pause: answer < anthropic::request::MAX_ANSWERS,
            ..options(job, &settings.tools, String::new())
        };
        let mut reply = MessageStream::new(options);
        let produced = ask(job, address.clone(), headers.clone(), body, &mut reply).await?;
        if produced.is_none() || !reply.translation().pauses() {
            return Ok(produced);
        }
        let so_far = job.host.with_production(&job.fence, |production| production.writer.fold().message());
        let Some(so_far) = so_far else { return Ok(None) };
        history = with_reply(history, so_far);
        answer = answer.saturating_add(1);
    }
}

async fn ask<T: Translation>(
    job: &Job,
    address: String,
    headers: Vec<(String, String)>,
    body: Map<String, Value>,
    reply: &mut Answer<T>,
) -> Produced {
    let outgoing = Outgoing { address, binding: None, headers, body: Value::Object(body).to_string() };
    relay(job, outgoing, reply).await
}

fn options(job: &Job, tools: &[Tool], origin: String) -> StreamOptions {
    StreamOptions { id_prefix: id_prefix(&job.host), approvals: Approvals::of(tools), may_pause: false, origin }
}

/// The value of the secret that an agent names.
fn key(job: &Job, name: Option<&str>) -> Result<Option<String>, Failure> {
    let Some(name) = name else { return Ok(None) };
    let missing = || format!("the secret {name} that an agent's apiKey names is not set");
    variable(&job.host.env, name).map(Some).ok_or_else(|| Failure::new(Code::ConfigurationInvalid, missing()))
}

impl<T: Translation> Reply for Answer<T> {
    fn push(&mut self, bytes: &[u8]) -> Batch {
        self.push(bytes)
    }

    fn end(&mut self) -> Batch {
        self.end()
    }

    fn outcome(&self) -> Option<Outcome> {
        self.is_finished().then_some(Outcome::Completed)
    }
}

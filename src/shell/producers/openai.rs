//! A model behind a chat-completions API.

use serde_json::Value;

use super::upstream::{Outgoing, Reply, relay};
use super::{Job, Produced, id_prefix};
use crate::core::error::{Code, Failure};
use crate::core::run::Outcome;
use crate::model::openai::request::{endpoint, headers, request_body};
use crate::model::openai::settings::OpenAiSettings;
use crate::model::openai::stream::{CompletionStream, StreamOptions};
use crate::model::parts::Batch;
use crate::shell::config::variable;

pub(super) async fn produce(job: &Job, settings: &OpenAiSettings, history: &[Value]) -> Produced {
    let key = match &settings.api_key {
        None => None,
        Some(name) => Some(variable(&job.host.env, name).ok_or_else(|| {
            Failure::new(
                Code::ConfigurationInvalid,
                format!("the secret {name} that an agent's apiKey names is not set"),
            )
        })?),
    };
    let outgoing = Outgoing {
        address: endpoint(&settings.base_url),
        binding: None,
        headers: headers(settings, key.as_deref()),
        body: Value::Object(request_body(settings, history)).to_string(),
    };
    let mut reply = CompletionStream::new(StreamOptions { id_prefix: id_prefix(&job.host) });
    relay(job, outgoing, &mut reply).await
}

impl Reply for CompletionStream {
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

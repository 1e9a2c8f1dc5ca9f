//! What an agent of this kind is configured with.

use serde_json::{Map, Value};

use crate::core::digest;
use crate::model::agents_error::AgentsError;
use crate::model::fields::Fields;
use crate::model::settings::{self, Kind};
use crate::model::tools::Tool;

/// An agent with `"producer":"openai"`.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenAiSettings {
    /// `baseUrl`: what stands before `/chat/completions`. Default [`OpenAiSettings::BASE_URL`].
    pub base_url: String,
    /// `model`, as the API names it.
    pub model: String,
    /// `apiKey`: the name of the secret that holds the key. Without it no key is sent (a local server).
    pub api_key: Option<String>,
    /// `keyHeader`: `authorization` (the default) or `api-key` (Azure).
    pub key_header: KeyHeader,
    /// `headers`: sent as they are, after the others and instead of those of the same name.
    pub headers: Vec<(String, String)>,
    /// `system`: the system prompt.
    pub system: Option<String>,
    /// Keys of the request body under the API's names: the sampling settings, then those of `body`.
    pub body: Map<String, Value>,
    /// `tools` that the model may call; the client executes them.
    pub tools: Vec<Tool>,
    /// `sendReasoning`: whether earlier reasoning is sent back, as `reasoning_content`, empty where there was none. Default false.
    pub send_reasoning: bool,
    /// `includeUsage`: whether token counts are asked for. Default true; for servers that refuse `stream_options`.
    pub include_usage: bool,
    /// `maxHistory`: most UI messages that are sent. Default [`settings::MAX_HISTORY`].
    pub max_history: usize,
    /// `maxHistoryBytes`: most bytes of JSON of the UI messages that are sent. Default [`settings::MAX_HISTORY_BYTES`].
    pub max_history_bytes: usize,
}

/// The header that carries the key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyHeader {
    /// `authorization: Bearer …`.
    #[default]
    Authorization,
    /// `api-key: …`.
    ApiKey,
}

/// Sampling settings: the name in the configuration, the API's name, what it must be.
const SAMPLING: [(&str, &str, Kind); 12] = [
    ("temperature", "temperature", Kind::Number),
    ("topP", "top_p", Kind::Number),
    ("topK", "top_k", Kind::Number),
    ("maxTokens", "max_tokens", Kind::Number),
    ("maxCompletionTokens", "max_completion_tokens", Kind::Number),
    ("presencePenalty", "presence_penalty", Kind::Number),
    ("frequencyPenalty", "frequency_penalty", Kind::Number),
    ("seed", "seed", Kind::Number),
    ("stop", "stop", Kind::Strings),
    ("reasoningEffort", "reasoning_effort", Kind::Text),
    ("parallelToolCalls", "parallel_tool_calls", Kind::Boolean),
    ("toolChoice", "tool_choice", Kind::Choice),
];

/// Keys of the body that the service itself writes.
const OWN_KEYS: [&str; 6] = ["model", "messages", "stream", "stream_options", "tools", "n"];

impl OpenAiSettings {
    /// OpenAI's own address.
    pub const BASE_URL: &str = "https://api.openai.com/v1";

    /// Names the model that is asked, without saying where it is. Stored with what a vendor wants back of a reply: no other takes it.
    pub fn origin(&self) -> String {
        digest::short(&format!("{} {}", self.base_url, self.model))
    }

    /// Reads the agent's fields.
    ///
    /// # Errors
    /// [`AgentsError::Field`] for the first thing to change.
    pub fn parse(mut fields: Fields) -> Result<Self, AgentsError> {
        let key_header = match fields.string("keyHeader")?.as_deref() {
            None | Some("authorization") => KeyHeader::Authorization,
            Some("api-key") => KeyHeader::ApiKey,
            Some(_) => return Err(fields.error("keyHeader", "must be \"authorization\" or \"api-key\"")),
        };
        let (max_history, max_history_bytes) = settings::history_bounds(&mut fields)?;
        let settings = Self {
            base_url: settings::base_url(&mut fields, Self::BASE_URL)?,
            model: settings::model(&mut fields)?,
            api_key: settings::api_key(&mut fields)?,
            key_header,
            headers: settings::headers(&mut fields)?,
            system: fields.string("system")?,
            body: settings::body(&mut fields, &SAMPLING, &OWN_KEYS)?,
            tools: tools(&mut fields)?,
            send_reasoning: fields.boolean("sendReasoning")?.unwrap_or(false),
            include_usage: fields.boolean("includeUsage")?.unwrap_or(true),
            max_history,
            max_history_bytes,
        };
        fields.end()?;
        Ok(settings)
    }
}

fn tools(fields: &mut Fields) -> Result<Vec<Tool>, AgentsError> {
    let agent = fields.agent().to_owned();
    let mut tools: Vec<Tool> = Vec::new();
    for (index, value) in fields.list("tools")?.into_iter().enumerate() {
        let tool = Tool::parse(Fields::of(&agent, &format!("tools[{index}]"), value)?)?;
        if tools.iter().any(|other| other.name == tool.name) {
            return Err(fields.error(&format!("tools[{index}].name"), "is used twice"));
        }
        tools.push(tool);
    }
    Ok(tools)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(value: Value) -> Result<OpenAiSettings, AgentsError> {
        OpenAiSettings::parse(Fields::of("x", "", value).unwrap())
    }

    #[test]
    fn reads_every_field() {
        let settings = parse(json!({
            "baseUrl": "https://a.test/v1/", "model": "m", "apiKey": "KEY", "keyHeader": "api-key", "system": "s",
            "temperature": 0.5, "topP": 1, "maxTokens": 9, "stop": ["a"], "body": {"top_k": 3},
            "headers": {"X-Title": "t"}, "sendReasoning": true, "includeUsage": false, "maxHistory": 2, "maxHistoryBytes": 100,
            "tools": [{"name": "f", "description": "d", "parameters": {"type": "object"}, "strict": true}],
        }))
        .unwrap();
        assert_eq!(settings.key_header, KeyHeader::ApiKey);
        assert_eq!(settings.headers, [("x-title".to_owned(), "t".to_owned())]);
        assert_eq!(
            Value::Object(settings.body),
            json!({"temperature": 0.5, "top_p": 1, "max_tokens": 9, "stop": ["a"], "top_k": 3})
        );
        assert_eq!(settings.tools.len(), 1);
        assert_eq!((settings.max_history, settings.max_history_bytes), (2, 100));
    }

    #[test]
    fn refuses_what_would_fail_later() {
        for (extra, field) in [
            (json!({"baseUrl": "ftp://a"}), "baseUrl"),
            (json!({"temperature": "hot"}), "temperature"),
            (json!({"body": {"stream": false}}), "body.stream"),
            (json!({"headers": {"a b": "c"}}), "headers"),
            (json!({"headers": {"a": "b\nc"}}), "headers.a"),
            (json!({"tools": {}}), "tools"),
            (json!({"tools": [{"name": "f", "x": 1}]}), "tools[0].x"),
            (json!({"tools": [{"name": "f"}, {"name": "f"}]}), "tools[1].name"),
            (json!({"model": null}), "model"),
            (json!({"maxHistory": 0}), "maxHistory"),
        ] {
            let mut value = json!({"model": "m"});
            value.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            let Err(AgentsError::Field { field: named, .. }) = parse(value) else { panic!("{extra}") };
            assert_eq!(named, field);
        }
    }
}

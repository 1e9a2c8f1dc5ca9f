//! What an agent of this kind is configured with.

use serde_json::{Map, Value, json};

use crate::model::agent::AgentsError;
use crate::model::fields::Fields;

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
    /// `sendReasoning`: whether earlier reasoning is sent back, as `reasoning_content`. Default false.
    pub send_reasoning: bool,
    /// `includeUsage`: whether token counts are asked for. Default true; for servers that refuse `stream_options`.
    pub include_usage: bool,
    /// `maxHistory`: most UI messages that are sent. Default [`OpenAiSettings::MAX_HISTORY`].
    pub max_history: usize,
    /// `maxHistoryBytes`: most bytes of JSON of the UI messages that are sent. Default [`OpenAiSettings::MAX_HISTORY_BYTES`].
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

/// One tool that the model may call.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// 1 to 64 letters, digits, `-` or `_`, as the API demands.
    pub name: String,
    /// For the model.
    pub description: Option<String>,
    /// `inputSchema` (or `parameters`): JSON schema of the arguments.
    pub input_schema: Value,
    /// Whether the API shall enforce the schema.
    pub strict: Option<bool>,
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

#[derive(Clone, Copy, Debug)]
enum Kind {
    Number,
    Text,
    Boolean,
    Strings,
    Choice,
}

impl Kind {
    fn accepts(self, value: &Value) -> bool {
        match self {
            Self::Number => value.is_number(),
            Self::Text => value.is_string(),
            Self::Boolean => value.is_boolean(),
            Self::Strings => {
                value.is_string() || value.as_array().is_some_and(|list| list.iter().all(Value::is_string))
            }
            Self::Choice => value.is_string() || value.is_object(),
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Number => "must be a number",
            Self::Text => "must be a string",
            Self::Boolean => "must be true or false",
            Self::Strings => "must be a string or a list of strings",
            Self::Choice => "must be a string or an object",
        }
    }
}

impl OpenAiSettings {
    /// OpenAI's own address.
    pub const BASE_URL: &str = "https://api.openai.com/v1";

    /// 500 UI messages: more turns than people hold in one chat, and a bound on the work of one send.
    pub const MAX_HISTORY: usize = 500;

    /// 8 MiB: some two million tokens of text, more than models take, or a few pictures; read, translated and serialised it stays far
    /// below an isolate's 128 MB.
    pub const MAX_HISTORY_BYTES: usize = 8 << 20;

    /// Reads the agent's fields.
    ///
    /// # Errors
    /// [`AgentsError::Field`] for the first thing to change.
    pub fn parse(mut fields: Fields) -> Result<Self, AgentsError> {
        let base_url = fields.string("baseUrl")?.unwrap_or_else(|| Self::BASE_URL.to_owned());
        if !(base_url.starts_with("https://") || base_url.starts_with("http://"))
            || base_url.contains(char::is_whitespace)
        {
            return Err(fields.error("baseUrl", "must be an http or https address"));
        }
        let model = fields.string("model")?.ok_or_else(|| fields.error("model", "is missing"))?;
        let api_key = fields.string("apiKey")?;
        if api_key.as_deref().is_some_and(|name| !is_variable_name(name)) {
            return Err(
                fields.error("apiKey", "must be the name of a secret (letters, digits and _), not the key itself")
            );
        }
        let key_header = match fields.string("keyHeader")?.as_deref() {
            None | Some("authorization") => KeyHeader::Authorization,
            Some("api-key") => KeyHeader::ApiKey,
            Some(_) => return Err(fields.error("keyHeader", "must be \"authorization\" or \"api-key\"")),
        };
        let settings = Self {
            base_url,
            model,
            api_key,
            key_header,
            headers: headers(&mut fields)?,
            system: fields.string("system")?,
            body: body(&mut fields)?,
            tools: tools(&mut fields)?,
            send_reasoning: fields.boolean("sendReasoning")?.unwrap_or(false),
            include_usage: fields.boolean("includeUsage")?.unwrap_or(true),
            max_history: bound(&mut fields, "maxHistory", Self::MAX_HISTORY)?,
            max_history_bytes: bound(&mut fields, "maxHistoryBytes", Self::MAX_HISTORY_BYTES)?,
        };
        fields.end()?;
        Ok(settings)
    }
}

fn bound(fields: &mut Fields, field: &str, default: usize) -> Result<usize, AgentsError> {
    let value = fields.whole(field, 1, 64 << 20)?;
    Ok(value.and_then(|value| usize::try_from(value).ok()).unwrap_or(default))
}

fn headers(fields: &mut Fields) -> Result<Vec<(String, String)>, AgentsError> {
    let mut headers = Vec::new();
    for (name, value) in fields.object("headers")?.unwrap_or_default() {
        // The token and field-value characters of HTTP (RFC 9110): anything else makes the platform throw.
        let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        if name.is_empty() || !name.chars().all(token) {
            return Err(fields.error("headers", "must have HTTP header names as keys"));
        }
        match value {
            Value::String(value) if value.chars().all(|c| c == '\t' || (' '..='~').contains(&c)) => {
                headers.push((name.to_ascii_lowercase(), value));
            }
            _ => return Err(fields.error(&format!("headers.{name}"), "must be a string of printable ASCII")),
        }
    }
    Ok(headers)
}

fn body(fields: &mut Fields) -> Result<Map<String, Value>, AgentsError> {
    let mut body = Map::new();
    for (field, name, kind) in SAMPLING {
        let Some(value) = fields.take(field) else { continue };
        if !kind.accepts(&value) {
            return Err(fields.error(field, kind.words()));
        }
        body.insert(name.to_owned(), value);
    }
    for (name, value) in fields.object("body")?.unwrap_or_default() {
        if OWN_KEYS.contains(&name.as_str()) {
            return Err(fields.error(&format!("body.{name}"), "is written by the service"));
        }
        body.insert(name, value);
    }
    Ok(body)
}

fn tools(fields: &mut Fields) -> Result<Vec<Tool>, AgentsError> {
    let agent = fields.agent().to_owned();
    let mut tools: Vec<Tool> = Vec::new();
    for (index, value) in fields.list("tools")?.into_iter().enumerate() {
        let mut tool = Fields::of(&agent, &format!("tools[{index}]"), value)?;
        let name = tool.string("name")?.ok_or_else(|| tool.error("name", "is missing"))?;
        if name.len() > 64 || !name.chars().all(is_tool_name_char) {
            return Err(tool.error("name", "must have 1 to 64 letters, digits, - or _"));
        }
        if tools.iter().any(|other| other.name == name) {
            return Err(tool.error("name", "is used twice"));
        }
        let description = tool.string("description")?;
        let schema = tool.object("inputSchema")?;
        let parameters = tool.object("parameters")?;
        if schema.is_some() && parameters.is_some() {
            return Err(tool.error("parameters", "is another word for inputSchema; give one of them"));
        }
        let input_schema =
            schema.or(parameters).map_or_else(|| json!({"type": "object", "properties": {}}), Value::Object);
        let strict = tool.boolean("strict")?;
        tool.end()?;
        tools.push(Tool { name, description, input_schema, strict });
    }
    Ok(tools)
}

/// Whether the API accepts this character in a tool's name.
pub fn is_tool_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_')
}

fn is_variable_name(name: &str) -> bool {
    !name.starts_with(|c: char| c.is_ascii_digit()) && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

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

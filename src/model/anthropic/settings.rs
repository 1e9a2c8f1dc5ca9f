//! What an agent of this kind is configured with.

use serde_json::{Map, Value, json};

use crate::model::agents_error::AgentsError;
use crate::model::fields::Fields;
use crate::model::settings::{self, Kind};
use crate::model::tools::Tool;
use crate::model::values::string;

/// An agent with `"producer":"anthropic"`.
#[derive(Clone, Debug, PartialEq)]
pub struct AnthropicSettings {
    /// `baseUrl`: what stands before `/messages`. Default [`AnthropicSettings::BASE_URL`].
    pub base_url: String,
    /// `model`, as the API names it.
    pub model: String,
    /// `apiKey`: the name of the secret that holds the key. Without it no key is sent (a gateway that adds it).
    pub api_key: Option<String>,
    /// `keyHeader`: `x-api-key` (the default) or `authorization` (gateways).
    pub key_header: KeyHeader,
    /// `version`: the `anthropic-version`. Default [`AnthropicSettings::VERSION`].
    pub version: String,
    /// `beta`: the `anthropic-beta`, one or several names.
    pub beta: Option<String>,
    /// `headers`: sent as they are, after the others and instead of those of the same name.
    pub headers: Vec<(String, String)>,
    /// `system`: the system prompt.
    pub system: Option<String>,
    /// `maxTokens`: most tokens of one answer, which the API wants to be told. Default [`AnthropicSettings::MAX_TOKENS`].
    pub max_tokens: u32,
    /// `thinking`, under the API's names.
    pub thinking: Option<Map<String, Value>>,
    /// Keys of the request body under the API's names: the sampling settings, then those of `body`.
    pub body: Map<String, Value>,
    /// `tools` without a `type`: the model may call them, and the client executes them.
    pub tools: Vec<Tool>,
    /// `tools` with a `type`: the API's own, such as `{"type":"web_search_20250305","name":"web_search"}`, sent as they are.
    pub server_tools: Vec<Value>,
    /// `sendReasoning`: whether earlier thinking is sent back. Default true: the API demands it between a call and its result.
    pub send_reasoning: bool,
    /// `maxHistory`: most UI messages that are sent. Default [`settings::MAX_HISTORY`].
    pub max_history: usize,
    /// `maxHistoryBytes`: most bytes of JSON of the UI messages that are sent. Default [`settings::MAX_HISTORY_BYTES`].
    pub max_history_bytes: usize,
}

/// The header that carries the key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyHeader {
    /// `x-api-key: …`.
    #[default]
    ApiKey,
    /// `authorization: Bearer …`.
    Authorization,
}

/// Sampling settings: the name in the configuration, the API's name, what it must be.
const SAMPLING: [(&str, &str, Kind); 6] = [
    ("temperature", "temperature", Kind::Number),
    ("topP", "top_p", Kind::Number),
    ("topK", "top_k", Kind::Number),
    ("stop", "stop_sequences", Kind::Strings),
    ("serviceTier", "service_tier", Kind::Text),
    ("toolChoice", "tool_choice", Kind::Choice),
];

/// Keys of the body that the service itself writes.
const OWN_KEYS: [&str; 7] = ["model", "messages", "stream", "system", "tools", "max_tokens", "thinking"];

impl AnthropicSettings {
    /// Anthropic's own address.
    pub const BASE_URL: &str = "https://api.anthropic.com/v1";

    /// The version of the API that this translation is written for.
    pub const VERSION: &str = "2023-06-01";

    /// 4096: what every model of the API can say.
    pub const MAX_TOKENS: u32 = 4096;

    /// The API's least budget for thinking, in tokens.
    pub const MIN_BUDGET: u32 = 1024;

    /// Reads the agent's fields.
    ///
    /// # Errors
    /// [`AgentsError::Field`] for the first thing to change.
    pub fn parse(mut fields: Fields) -> Result<Self, AgentsError> {
        let key_header = match fields.string("keyHeader")?.as_deref() {
            None | Some("x-api-key") => KeyHeader::ApiKey,
            Some("authorization") => KeyHeader::Authorization,
            Some(_) => return Err(fields.error("keyHeader", "must be \"x-api-key\" or \"authorization\"")),
        };
        let version = fields.string("version")?.unwrap_or_else(|| Self::VERSION.to_owned());
        if !settings::is_header_value(&version) {
            return Err(fields.error("version", "must be a string of printable ASCII"));
        }
        let beta = beta(&mut fields)?;
        let max_tokens = fields.whole("maxTokens", 1, 10_000_000)?.unwrap_or(Self::MAX_TOKENS);
        // With interleaved thinking the budget spans several answers.
        let most = if beta.as_deref().is_some_and(|beta| beta.contains("interleaved-thinking")) {
            u32::MAX
        } else {
            max_tokens.saturating_sub(1)
        };
        let thinking = thinking(&mut fields, most)?;
        let (tools, server_tools) = tools(&mut fields)?;
        let (max_history, max_history_bytes) = settings::history_bounds(&mut fields)?;
        let settings = Self {
            base_url: settings::base_url(&mut fields, Self::BASE_URL)?,
            model: settings::model(&mut fields)?,
            api_key: settings::api_key(&mut fields)?,
            key_header,
            version,
            beta,
            headers: settings::headers(&mut fields)?,
            system: fields.string("system")?,
            max_tokens,
            thinking,
            body: body(&mut fields)?,
            tools,
            server_tools,
            send_reasoning: fields.boolean("sendReasoning")?.unwrap_or(true),
            max_history,
            max_history_bytes,
        };
        fields.end()?;
        Ok(settings)
    }
}

fn beta(fields: &mut Fields) -> Result<Option<String>, AgentsError> {
    let problem = "must be a string, or a list of strings, that is not empty";
    let names = match fields.take("beta") {
        None => return Ok(None),
        Some(Value::String(name)) => vec![Value::String(name)],
        Some(Value::Array(names)) => names,
        Some(_) => return Err(fields.error("beta", problem)),
    };
    let names: Option<Vec<&str>> = names.iter().map(Value::as_str).collect();
    let joined = names.unwrap_or_default().join(",");
    if joined.trim().is_empty() || !settings::is_header_value(&joined) {
        return Err(fields.error("beta", problem));
    }
    Ok(Some(joined))
}

/// `{"budgetTokens":2000}`, or with the `type` that the API knows besides `enabled`.
fn thinking(fields: &mut Fields, most: u32) -> Result<Option<Map<String, Value>>, AgentsError> {
    let Some(value) = fields.object("thinking")? else { return Ok(None) };
    let agent = fields.agent().to_owned();
    let mut fields = Fields::of(&agent, "thinking", Value::Object(value))?;
    let kind = fields.string("type")?.unwrap_or_else(|| "enabled".to_owned());
    let budget = fields.whole("budgetTokens", AnthropicSettings::MIN_BUDGET, u32::MAX)?;
    let mut thinking = Map::new();
    thinking.insert("type".into(), kind.clone().into());
    match (kind.as_str(), budget) {
        ("enabled", None) => return Err(fields.error("budgetTokens", "is missing")),
        ("enabled", Some(budget)) if budget > most => {
            return Err(fields.error("budgetTokens", "must be less than maxTokens"));
        }
        ("enabled", Some(budget)) => {
            thinking.insert("budget_tokens".into(), budget.into());
        }
        (_, Some(_)) => return Err(fields.error("budgetTokens", "belongs to the type \"enabled\"")),
        ("adaptive" | "disabled", None) => {}
        _ => return Err(fields.error("type", "must be \"enabled\", \"adaptive\" or \"disabled\"")),
    }
    if let Some(display) = fields.string("display")? {
        thinking.insert("display".into(), display.into());
    }
    fields.end()?;
    Ok(Some(thinking))
}

fn body(fields: &mut Fields) -> Result<Map<String, Value>, AgentsError> {
    let mut body = settings::body(fields, &SAMPLING, &OWN_KEYS)?;
    if let Some(stop) = body.get_mut("stop_sequences").filter(|stop| stop.is_string()) {
        *stop = Value::Array(vec![stop.take()]);
    }
    if let Some(choice) = body.get_mut("tool_choice") {
        // The words that other agents use, in the API's form.
        let form = match choice.as_str() {
            None => None,
            Some("required") => Some(json!({"type": "any"})),
            Some(word @ ("auto" | "any" | "none")) => Some(json!({"type": word})),
            Some(_) => return Err(fields.error("toolChoice", "must be auto, any, none or an object")),
        };
        if let Some(form) = form {
            *choice = form;
        }
    }
    Ok(body)
}

fn tools(fields: &mut Fields) -> Result<(Vec<Tool>, Vec<Value>), AgentsError> {
    let agent = fields.agent().to_owned();
    let mut names: Vec<String> = Vec::new();
    let (mut tools, mut server_tools) = (Vec::new(), Vec::new());
    for (index, value) in fields.list("tools")?.into_iter().enumerate() {
        let path = format!("tools[{index}]");
        let name = if value.get("type").is_some() {
            if string(&value, "type").is_none_or(str::is_empty) {
                return Err(fields.error(&format!("{path}.type"), "must be a string that is not empty"));
            }
            let name = string(&value, "name").or_else(|| string(&value, "mcp_server_name")).unwrap_or_default();
            let name = name.to_owned();
            server_tools.push(value);
            name
        } else {
            let tool = Tool::parse(Fields::of(&agent, &path, value)?)?;
            let name = tool.name.clone();
            tools.push(tool);
            name
        };
        if !name.is_empty() && names.contains(&name) {
            return Err(fields.error(&format!("{path}.name"), "is used twice"));
        }
        names.push(name);
    }
    Ok((tools, server_tools))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(value: Value) -> Result<AnthropicSettings, AgentsError> {
        AnthropicSettings::parse(Fields::of("x", "", value).unwrap())
    }

    #[test]
    fn reads_every_field() {
        let settings = parse(json!({
            "baseUrl": "https://a.test/v1", "model": "m", "apiKey": "KEY", "keyHeader": "authorization", "system": "s",
            "version": "2024-01-01", "beta": ["a", "b"], "maxTokens": 5000, "thinking": {"budgetTokens": 2000},
            "temperature": 1, "topP": 1, "topK": 3, "stop": "x", "toolChoice": "required", "body": {"metadata": {}},
            "headers": {"X-Title": "t"}, "sendReasoning": false, "maxHistory": 2, "maxHistoryBytes": 100,
            "tools": [{"name": "f", "parameters": {"type": "object"}}, {"type": "web_search_20250305", "name": "web_search"}],
        }))
        .unwrap();
        assert_eq!(settings.beta.as_deref(), Some("a,b"));
        assert_eq!(settings.thinking.map(Value::Object), Some(json!({"type": "enabled", "budget_tokens": 2000})));
        assert_eq!(
            Value::Object(settings.body),
            json!({"temperature": 1, "top_p": 1, "top_k": 3, "stop_sequences": ["x"], "tool_choice": {"type": "any"}, "metadata": {}})
        );
        assert_eq!((settings.tools.len(), settings.server_tools.len()), (1, 1));
        let plain = parse(json!({"model": "m"})).unwrap();
        assert!(plain.send_reasoning && plain.max_tokens == 4096 && plain.version == "2023-06-01");
    }

    #[test]
    fn refuses_what_would_fail_later() {
        for (extra, field) in [
            (json!({"baseUrl": "ftp://a"}), "baseUrl"),
            (json!({"model": null}), "model"),
            (json!({"maxTokens": 0}), "maxTokens"),
            (json!({"beta": []}), "beta"),
            (json!({"beta": ["a\nb"]}), "beta"),
            (json!({"version": "a\nb"}), "version"),
            (json!({"keyHeader": "api-key"}), "keyHeader"),
            (json!({"thinking": {}}), "thinking.budgetTokens"),
            (json!({"thinking": {"budgetTokens": 4096}}), "thinking.budgetTokens"),
            (json!({"thinking": {"type": "adaptive", "budgetTokens": 2000}}), "thinking.budgetTokens"),
            (json!({"thinking": {"type": "deep"}}), "thinking.type"),
            (json!({"toolChoice": "f"}), "toolChoice"),
            (json!({"body": {"max_tokens": 1}}), "body.max_tokens"),
            (json!({"tools": [{"type": 1}]}), "tools[0].type"),
            (json!({"tools": [{"name": "f"}, {"type": "x", "name": "f"}]}), "tools[1].name"),
            (json!({"tools": [{"name": "f", "x": 1}]}), "tools[0].x"),
        ] {
            let mut value = json!({"model": "m"});
            value.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            let Err(AgentsError::Field { field: named, .. }) = parse(value) else { panic!("{extra}") };
            assert_eq!(named, field);
        }
    }
}

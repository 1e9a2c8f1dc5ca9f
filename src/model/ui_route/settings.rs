//! What an agent of this kind is configured with.

use serde_json::Value;

use crate::core::time::Millis;
use crate::model::agents_error::AgentsError;
use crate::model::fields::Fields;

/// An agent with `"producer":"ui"`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UiRouteSettings {
    /// `url`, or `binding` and `path`.
    pub target: Target,
    /// `headers`: names of the request headers that are handed on, in lower case. All others stay here.
    pub headers: Vec<String>,
    /// `sendHeaders`: sent as they are, instead of a forwarded one of the same name.
    pub send_headers: Vec<(String, String)>,
    /// `maxHistory`: most UI messages that are sent.
    pub max_history: usize,
    /// `maxHistoryBytes`: most bytes of JSON of the UI messages that are sent.
    pub max_history_bytes: usize,
    /// `forwardErrors`: whether clients read the route's own words of an error or a refusal.
    pub forward_errors: bool,
    /// `silenceMs`: how long the route may be silent while its connection stands.
    pub silence: Millis,
}

/// Where the route is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// At a public address.
    Url(String),
    /// In another Worker, behind a service binding.
    Binding {
        /// The binding's name.
        name: String,
        /// The route's path there, with its query.
        path: String,
    },
}

impl Target {
    /// The address of the request. A binding ignores the host, but a route may parse its own address.
    pub fn address(&self) -> String {
        match self {
            Self::Url(url) => url.clone(),
            Self::Binding { path, .. } => format!("https://chat-route{path}"),
        }
    }

    /// The service binding that takes the request; none for an address.
    pub fn binding(&self) -> Option<&str> {
        match self {
            Self::Url(_) => None,
            Self::Binding { name, .. } => Some(name),
        }
    }
}

/// The header that tells the route the id of the message that its answer becomes.
pub const RESPONSE_MESSAGE_ID: &str = "x-response-message-id";

/// Headers that belong to one connection, that describe the body, which is the service's, or that the service writes.
const OWN_HEADERS: [&str; 13] = [
    "accept",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    RESPONSE_MESSAGE_ID,
];

impl UiRouteSettings {
    /// The path of the AI SDK's own examples.
    pub const PATH: &str = "/api/chat";

    /// 500 UI messages: more turns than people hold in one chat, and a bound on the work of one send.
    pub const MAX_HISTORY: usize = 500;

    /// 8 MiB: read and serialised again it stays far below an isolate's 128 MB.
    pub const MAX_HISTORY_BYTES: usize = 8 << 20;

    /// 5 minutes: a route that lets a tool or a model work says nothing meanwhile, and few write comments to keep a connection alive.
    pub const SILENCE_MS: u32 = 300_000;

    /// One day.
    const MAX_SILENCE_MS: u32 = 86_400_000;

    /// Reads the agent's fields.
    ///
    /// # Errors
    /// [`AgentsError::Field`] for the first thing to change.
    pub fn parse(mut fields: Fields) -> Result<Self, AgentsError> {
        let settings = Self {
            target: target(&mut fields, Self::PATH)?,
            headers: forwarded(&mut fields)?,
            send_headers: fixed(&mut fields)?,
            max_history: bound(&mut fields, "maxHistory", Self::MAX_HISTORY)?,
            max_history_bytes: bound(&mut fields, "maxHistoryBytes", Self::MAX_HISTORY_BYTES)?,
            forward_errors: fields.boolean("forwardErrors")?.unwrap_or(true),
            silence: silence(&mut fields)?,
        };
        fields.end()?;
        Ok(settings)
    }
}

/// `url`, or `binding` and `path`, whose default is given.
///
/// # Errors
/// [`AgentsError::Field`].
pub fn target(fields: &mut Fields, default_path: &str) -> Result<Target, AgentsError> {
    let (url, binding, path) = (fields.string("url")?, fields.string("binding")?, fields.string("path")?);
    match (url, binding) {
        (Some(_), Some(_)) => Err(fields.error("binding", "stands beside url; give one of them")),
        (None, None) => Err(fields.error("url", "is missing (or binding, the name of a service binding)")),
        (Some(_), None) if path.is_some() => Err(fields.error("path", "belongs to binding; write it into url")),
        (Some(url), None) => {
            let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
            let Some(rest) = rest.filter(|rest| !rest.is_empty() && !url.contains(char::is_whitespace)) else {
                return Err(fields.error("url", "must be an http or https address"));
            };
            // The runtime refuses such an address, and it would stand in logs.
            if rest.split(['/', '?', '#']).next().unwrap_or_default().contains('@') {
                return Err(fields.error("url", "must not hold a user or password; use sendHeaders"));
            }
            Ok(Target::Url(url))
        }
        (None, Some(name)) => {
            if name.starts_with(|c: char| c.is_ascii_digit())
                || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            {
                return Err(fields.error("binding", "must be the name of a service binding (letters, digits and _)"));
            }
            let path = path.unwrap_or_else(|| default_path.to_owned());
            if !path.starts_with('/') || path.contains(char::is_whitespace) {
                return Err(fields.error("path", "must begin with / and have no white space"));
            }
            Ok(Target::Binding { name, path })
        }
    }
}

fn forwarded(fields: &mut Fields) -> Result<Vec<String>, AgentsError> {
    let mut names = Vec::new();
    for (index, value) in fields.list("headers")?.into_iter().enumerate() {
        let field = format!("headers[{index}]");
        match value.as_str().filter(|name| is_header_name(name)).map(str::to_ascii_lowercase) {
            Some(name) if OWN_HEADERS.contains(&name.as_str()) => {
                return Err(fields.error(&field, "is written by the service"));
            }
            Some(name) => names.push(name),
            None => return Err(fields.error(&field, "must be the name of an HTTP header")),
        }
    }
    Ok(names)
}

/// `sendHeaders`.
///
/// # Errors
/// [`AgentsError::Field`].
pub fn fixed(fields: &mut Fields) -> Result<Vec<(String, String)>, AgentsError> {
    let mut headers = Vec::new();
    for (name, value) in fields.object("sendHeaders")?.unwrap_or_default() {
        if !is_header_name(&name) {
            return Err(fields.error("sendHeaders", "must have HTTP header names as keys"));
        }
        let field = format!("sendHeaders.{name}");
        let name = name.to_ascii_lowercase();
        if OWN_HEADERS.contains(&name.as_str()) {
            return Err(fields.error(&field, "is written by the service"));
        }
        match value {
            Value::String(value) if value.chars().all(|c| c == '\t' || (' '..='~').contains(&c)) => {
                headers.push((name, value));
            }
            _ => return Err(fields.error(&field, "must be a string of printable ASCII")),
        }
    }
    Ok(headers)
}

/// A token of RFC 9110: anything else makes the platform throw.
fn is_header_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c))
}

fn silence(fields: &mut Fields) -> Result<Millis, AgentsError> {
    let ms = fields.whole("silenceMs", 1, UiRouteSettings::MAX_SILENCE_MS)?;
    Ok(Millis::new(u64::from(ms.unwrap_or(UiRouteSettings::SILENCE_MS))))
}

fn bound(fields: &mut Fields, field: &str, default: usize) -> Result<usize, AgentsError> {
    let value = fields.whole(field, 1, 64 << 20)?;
    Ok(value.and_then(|value| usize::try_from(value).ok()).unwrap_or(default))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(value: Value) -> Result<UiRouteSettings, AgentsError> {
        UiRouteSettings::parse(Fields::of("x", "", value).unwrap())
    }

    #[test]
    fn reads_an_address_with_every_field() {
        let settings = parse(json!({
            "url": "https://a.test/api/chat?x=1", "headers": ["Cookie", "authorization"], "sendHeaders": {"X-Key": "k"},
            "maxHistory": 2, "maxHistoryBytes": 100, "forwardErrors": false, "silenceMs": 900_000,
        }))
        .unwrap();
        assert_eq!(settings.target.address(), "https://a.test/api/chat?x=1");
        assert_eq!(settings.target.binding(), None);
        assert_eq!(settings.headers, ["cookie", "authorization"]);
        assert_eq!(settings.send_headers, [("x-key".to_owned(), "k".to_owned())]);
        assert_eq!((settings.max_history, settings.max_history_bytes), (2, 100));
        assert_eq!((settings.forward_errors, settings.silence), (false, Millis::new(900_000)));
    }

    #[test]
    fn reads_a_binding_with_its_path() {
        let short = parse(json!({"binding": "CHAT"})).unwrap();
        assert_eq!(
            (short.target.binding(), short.target.address().as_str()),
            (Some("CHAT"), "https://chat-route/api/chat")
        );
        let long = parse(json!({"binding": "CHAT", "path": "/v2?x=1"})).unwrap();
        assert_eq!(long.target.address(), "https://chat-route/v2?x=1");
        assert!(short.headers.is_empty(), "nothing is forwarded unless it is named");
        assert_eq!((short.forward_errors, short.silence), (true, Millis::new(300_000)), "five minutes");
    }

    #[test]
    fn refuses_what_would_fail_later() {
        for (value, field) in [
            (json!({}), "url"),
            (json!({"url": "ftp://a"}), "url"),
            (json!({"url": "https://"}), "url"),
            (json!({"url": "https://a b"}), "url"),
            (json!({"url": "https://user:pass@a.test/x"}), "url"),
            (json!({"url": "https://a", "binding": "B"}), "binding"),
            (json!({"url": "https://a", "path": "/x"}), "path"),
            (json!({"binding": "a-b"}), "binding"),
            (json!({"binding": "B", "path": "x"}), "path"),
            (json!({"url": "https://a", "headers": "cookie"}), "headers"),
            (json!({"url": "https://a", "headers": ["cookie", "a b"]}), "headers[1]"),
            (json!({"url": "https://a", "headers": ["Content-Length"]}), "headers[0]"),
            (json!({"url": "https://a", "headers": ["X-Response-Message-Id"]}), "headers[0]"),
            (json!({"url": "https://a", "forwardErrors": "no"}), "forwardErrors"),
            (json!({"url": "https://a", "silenceMs": 0}), "silenceMs"),
            (json!({"url": "https://a", "silenceMs": 86_400_001}), "silenceMs"),
            (json!({"url": "https://a", "sendHeaders": {"a": "b\nc"}}), "sendHeaders.a"),
            (json!({"url": "https://a", "sendHeaders": {"a b": "c"}}), "sendHeaders"),
            (json!({"url": "https://a", "sendHeaders": {"Host": "c"}}), "sendHeaders.Host"),
            (json!({"url": "https://a", "maxHistory": 0}), "maxHistory"),
            (json!({"url": "https://a", "model": "m"}), "model"),
        ] {
            let Err(AgentsError::Field { field: named, .. }) = parse(value.clone()) else { panic!("{value}") };
            assert_eq!(named, field, "{value}");
        }
        assert!(parse(json!({"url": "https://a.test/@me"})).is_ok());
    }
}

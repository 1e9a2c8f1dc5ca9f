//! Settings that agents behind different model APIs have in common, and the address and headers that follow from them.

use serde_json::{Map, Value};

use super::agents_error::AgentsError;
use super::fields::Fields;

/// 500 UI messages: more turns than people hold in one chat, and a bound on the work of one send.
pub const MAX_HISTORY: usize = 500;

/// 8 MiB: some two million tokens of text, more than models take, or a few pictures; read, translated and serialised it stays far
/// below an isolate's 128 MB.
pub const MAX_HISTORY_BYTES: usize = 8 << 20;

/// What a value of the request body must be.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A number.
    Number,
    /// A string.
    Text,
    /// `true` or `false`.
    Boolean,
    /// A string or a list of strings.
    Strings,
    /// A string or an object.
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

/// `baseUrl`.
///
/// # Errors
/// [`AgentsError::Field`] when it is not a web address.
pub fn base_url(fields: &mut Fields, default: &str) -> Result<String, AgentsError> {
    let url = fields.string("baseUrl")?.unwrap_or_else(|| default.to_owned());
    if !(url.starts_with("https://") || url.starts_with("http://")) || url.contains(char::is_whitespace) {
        return Err(fields.error("baseUrl", "must be an http or https address"));
    }
    Ok(url)
}

/// `model`.
///
/// # Errors
/// [`AgentsError::Field`] without one.
pub fn model(fields: &mut Fields) -> Result<String, AgentsError> {
    fields.string("model")?.ok_or_else(|| fields.error("model", "is missing"))
}

/// `apiKey`: the name of a secret.
///
/// # Errors
/// [`AgentsError::Field`] for what cannot be a name: it might be the key itself.
pub fn api_key(fields: &mut Fields) -> Result<Option<String>, AgentsError> {
    let name = fields.string("apiKey")?;
    if name.as_deref().is_some_and(|name| !is_variable_name(name)) {
        return Err(fields.error("apiKey", "must be the name of a secret (letters, digits and _), not the key itself"));
    }
    Ok(name)
}

fn is_variable_name(name: &str) -> bool {
    !name.starts_with(|c: char| c.is_ascii_digit()) && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// `maxHistory` and `maxHistoryBytes`.
///
/// # Errors
/// [`AgentsError::Field`] for what is not a size.
pub fn history_bounds(fields: &mut Fields) -> Result<(usize, usize), AgentsError> {
    Ok((bound(fields, "maxHistory", MAX_HISTORY)?, bound(fields, "maxHistoryBytes", MAX_HISTORY_BYTES)?))
}

fn bound(fields: &mut Fields, field: &str, default: usize) -> Result<usize, AgentsError> {
    let value = fields.whole(field, 1, 64 << 20)?;
    Ok(value.and_then(|value| usize::try_from(value).ok()).unwrap_or(default))
}

/// `headers`, names in lower case.
///
/// # Errors
/// [`AgentsError::Field`] for what HTTP does not allow.
pub fn headers(fields: &mut Fields) -> Result<Vec<(String, String)>, AgentsError> {
    let mut headers = Vec::new();
    for (name, value) in fields.object("headers")?.unwrap_or_default() {
        // The token and field-value characters of HTTP (RFC 9110): anything else makes the platform throw.
        let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        if name.is_empty() || !name.chars().all(token) {
            return Err(fields.error("headers", "must have HTTP header names as keys"));
        }
        match value {
            Value::String(value) if is_header_value(&value) => headers.push((name.to_ascii_lowercase(), value)),
            _ => return Err(fields.error(&format!("headers.{name}"), "must be a string of printable ASCII")),
        }
    }
    Ok(headers)
}

/// Whether the text may stand in a header.
pub fn is_header_value(text: &str) -> bool {
    text.chars().all(|c| c == '\t' || (' '..='~').contains(&c))
}

/// Keys of the request body: the sampling settings (name in the configuration, name of the API, kind), then those of `body`.
///
/// # Errors
/// [`AgentsError::Field`] for a value of another kind, and for the API's keys that the service itself writes.
pub fn body(
    fields: &mut Fields,
    sampling: &[(&str, &str, Kind)],
    own_keys: &[&str],
) -> Result<Map<String, Value>, AgentsError> {
    let mut body = Map::new();
    for (field, name, kind) in sampling {
        let Some(value) = fields.take(field) else { continue };
        if !kind.accepts(&value) {
            return Err(fields.error(field, kind.words()));
        }
        body.insert((*name).to_owned(), value);
    }
    for (name, value) in fields.object("body")?.unwrap_or_default() {
        if own_keys.contains(&name.as_str()) {
            return Err(fields.error(&format!("body.{name}"), "is written by the service"));
        }
        body.insert(name, value);
    }
    Ok(body)
}

/// The address to POST to: the base with the API's path, unless it has it already. A query (Azure's `api-version`) stays at the end.
pub fn endpoint(base_url: &str, api_path: &str) -> String {
    let base = base_url.split('#').next().unwrap_or_default();
    let (path, query) = base.split_once('?').map_or((base, None), |(path, query)| (path, Some(query)));
    let path = path.trim_end_matches('/');
    let mut address = path.strip_suffix(api_path).unwrap_or(path).to_owned();
    address.push_str(api_path);
    if let Some(query) = query {
        address.push('?');
        address.push_str(query);
    }
    address
}

/// The headers of every request, those of the API, then the agent's own, which win.
pub fn all_headers(api: Vec<(String, String)>, own: &[(String, String)]) -> Vec<(String, String)> {
    let mut headers: Vec<(String, String)> =
        vec![("content-type".into(), "application/json".into()), ("accept".into(), "text/event-stream".into())];
    headers.extend(api);
    headers.retain(|(name, _)| !own.iter().any(|(other, _)| other == name));
    headers.extend(own.iter().cloned());
    headers
}

/// A secret's value as it may stand in a header. One that was pasted with its line end is a header value that the platform refuses.
pub fn key_of_secret(secret: Option<&str>) -> Option<&str> {
    secret.map(str::trim).filter(|key| !key.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_endpoint() {
        for (base, expected) in [
            ("https://a.test/v1", "https://a.test/v1/messages"),
            ("https://a.test/v1//", "https://a.test/v1/messages"),
            ("https://a.test/v1/messages", "https://a.test/v1/messages"),
            ("https://a.test/v1/messages/?x=1#y", "https://a.test/v1/messages?x=1"),
            ("https://a.test/d?api-version=2024-10-21", "https://a.test/d/messages?api-version=2024-10-21"),
        ] {
            assert_eq!(endpoint(base, "/messages"), expected);
        }
    }
}

//! What a model API's refusal means: one classifier for HTTP answers and for errors inside a stream.
//!
//! The facts are those of the public APIs' error pages (OpenAI, Azure, Anthropic, Mistral, Groq, OpenRouter, vLLM): an `error` object with
//! `message`, `type` and `code`, where `code` may be a number; flat objects with the same keys; or no JSON at all.

use serde_json::Value;

use super::waits::{Headers, Waits, said_in};
use crate::core::error::{Code, Failure};
use crate::core::redact::quote;
use crate::core::time::UnixMillis;

/// Longest part of a body that is looked at, in bytes. An error answer that is longer is not an API's.
pub const MAX_ERROR_BODY_BYTES: usize = 64 * 1024;

/// The failure that an HTTP answer of a model API stands for: any status but 200, or a 200 whose body is not an event stream.
/// `heard`: its headers, and when it came.
pub fn failure_of_response(
    status: u16,
    content_type: Option<&str>,
    heard: Option<(&Headers, UnixMillis)>,
    body: &[u8],
) -> Failure {
    let bounded = body.get(..MAX_ERROR_BODY_BYTES).unwrap_or(body);
    let text = String::from_utf8_lossy(bounded);
    let html = content_type.is_some_and(|kind| kind.to_ascii_lowercase().contains("text/html"))
        || text.trim_start_matches('\u{feff}').trim_start().starts_with('<');
    let json = if html { None } else { serde_json::from_slice::<Value>(bounded).ok() };
    let now = heard.map(|(_, now)| now);
    let facts = json.as_ref().map(|json| Facts::of_body(json, now)).unwrap_or_default();
    let waits = heard.map(|(headers, now)| Waits::of_headers(headers, now)).unwrap_or_default();
    let code = facts.code().unwrap_or_else(|| match (status, facts.status) {
        // Some servers answer 200 and put the error, and perhaps its status, into the body.
        (200..=299, Some(inner)) if inner >= 400 => code_of_status(inner),
        (200..=299, _) if facts.is_error => Code::ProviderError,
        _ => code_of_status(status),
    });
    let what = if html {
        format!("an HTML page: {text}")
    } else if facts.message.is_empty() {
        text.into_owned()
    } else {
        facts.to_string()
    };
    Failure {
        retry_after_ms: facts.wait(code, waits),
        ..Failure::new(code, quote(&format!("the model API answered {status}: {what}")))
    }
}

/// The failure that an error event inside a stream stands for: the whole event, or its `error`.
pub fn failure_of_event(event: &Value) -> Failure {
    let facts = Facts::of_body(event, None);
    let code = facts
        .code()
        .or_else(|| facts.status.filter(|status| *status >= 400).map(code_of_status))
        .unwrap_or(Code::ProviderError);
    // Inside a stream "unavailable" would be wrong: the API was reached, and it reported.
    let code = if code == Code::ProviderUnavailable { Code::ProviderError } else { code };
    let words = if facts.message.is_empty() { event.to_string() } else { facts.to_string() };
    Failure {
        retry_after_ms: facts.wait(code, Waits::default()),
        ..Failure::new(code, quote(&format!("the model API reported in its stream: {words}")))
    }
}

fn code_of_status(status: u16) -> Code {
    match status {
        401 | 403 => Code::ProviderAuth,
        402 => Code::ProviderQuota,
        429 => Code::ProviderRateLimited,
        // 498: Groq's capacity; 529: Anthropic's overload.
        498 | 503 | 529 => Code::ProviderOverloaded,
        408 | 500..=599 => Code::ProviderUnavailable,
        // A success that is not an event stream.
        200..=299 => Code::ProviderStreamInvalid,
        // Redirects as well: the configured address is not the API's, and a key must not follow to another host.
        _ => Code::ProviderBadRequest,
    }
}

/// The words of an error object that the classes are read from.
#[derive(Debug, Default)]
struct Facts {
    /// `code` and `type`, in lower case.
    names: Vec<String>,
    message: String,
    /// A numeric `code` or `status`.
    status: Option<u16>,
    /// Whether the body has an `error`.
    is_error: bool,
    waits: Waits,
}

impl Facts {
    fn of_body(body: &Value, now: Option<UnixMillis>) -> Self {
        let mut facts = Self::default();
        // Some gateways wrap the answer in a list.
        let body = body.as_array().and_then(|list| list.first()).unwrap_or(body);
        let error = body.get("error").filter(|error| !error.is_null());
        facts.is_error = error.is_some();
        let error = error.unwrap_or(body);
        facts.read(error);
        facts.waits = Waits::of_error(error, now);
        // Azure's content filter names itself one level deeper.
        if let Some(inner) = error.get("innererror") {
            facts.read(inner);
        }
        if facts.message.is_empty() {
            let message = ["message", "detail", "errors", "error"].iter().find_map(|key| body.get(key));
            facts.message = message.map(text_of).unwrap_or_default();
        }
        facts
    }

    fn read(&mut self, error: &Value) {
        if let Some(text) = error.as_str() {
            self.message = text.to_owned();
        }
        for key in ["code", "type", "status"] {
            match error.get(key) {
                Some(Value::String(name)) => {
                    self.status = self.status.or_else(|| name.parse().ok());
                    self.names.push(name.to_ascii_lowercase());
                }
                Some(Value::Number(number)) => {
                    self.status = self.status.or_else(|| number.as_u64().and_then(|code| u16::try_from(code).ok()));
                }
                _ => {}
            }
        }
        if self.message.is_empty() {
            self.message = error.get("message").map(text_of).unwrap_or_default();
        }
    }

    /// The wait, in ms, for a failure of this code. Limits are reset whatever happens, so that their reset is the cure only where they
    /// are what was met.
    fn wait(&self, code: Code, headers: Waits) -> Option<u64> {
        let waits = headers.or(self.waits);
        let (limited, busy) = (code == Code::ProviderRateLimited, code == Code::ProviderOverloaded);
        let asked = waits.asked.filter(|_| code.retryable());
        let said = || said_in(&self.message).filter(|_| limited || busy);
        asked.or_else(said).or_else(|| waits.reset.filter(|_| limited || (busy && waits.is_used_up)))
    }

    fn code(&self) -> Option<Code> {
        let message = self.message.to_ascii_lowercase();
        let named = |words: &[&str]| self.names.iter().any(|name| words.iter().any(|word| name.contains(word)));
        let says = |words: &[&str]| words.iter().any(|word| message.contains(word));
        // A quota that comes back is a rate: Google says both in the same words, and when.
        let comes_back = self.waits.asked.is_some() || said_in(&message).is_some();
        if named(&["insufficient_quota", "billing", "insufficient_balance", "insufficient_credits", "quota_exceeded"])
            || (says(&["exceeded your current quota"]) && !comes_back)
            || says(&[
                "insufficient balance",
                "insufficient credits",
                "credit balance is too low",
                "specified api usage limits",
            ])
        {
            Some(Code::ProviderQuota)
        } else if named(&["context_length", "context_window", "context_size", "request_too_large"])
            || says(&[
                "maximum context length",
                "context window",
                "prompt is too long",
                "exceed context limit",
                "context length exceeded",
                "context_length_exceeded",
                // llama.cpp; the size is that of its server's context.
                "context size has been exceeded",
                "available context size",
                // Ollama and LM Studio; xAI; vLLM; Gemini; Mistral.
                "exceeds the context length",
                "reached context length",
                "maximum prompt length",
                "maximum model length",
                "maximum number of tokens allowed",
                "too large for model with",
            ])
        {
            Some(Code::ProviderContextLength)
        } else if named(&["content_filter", "content_policy", "responsibleaipolicy", "moderation", "safety"])
            || says(&["content management policy", "content filtering policy", "input was flagged"])
        {
            Some(Code::ProviderContentFilter)
        } else if named(&["rate_limit", "ratelimit", "too_many_requests", "throttl", "tokens_per_"]) {
            Some(Code::ProviderRateLimited)
        } else if named(&["overloaded", "capacity_exceeded", "slow_down"]) {
            Some(Code::ProviderOverloaded)
        } else if named(&["invalid_api_key", "authentication", "permission_error", "unauthorized"]) {
            Some(Code::ProviderAuth)
        } else if named(&["invalid_request", "badrequest", "bad_request", "model_not_found", "not_found_error"])
            && self.status.is_none()
        {
            Some(Code::ProviderBadRequest)
        } else {
            None
        }
    }
}

impl std::fmt::Display for Facts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.names.is_empty() {
            return f.write_str(&self.message);
        }
        write!(f, "{}: {}", self.names.join(", "), self.message)
    }
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn code(status: u16, body: &str) -> Code {
        failure_of_response(status, Some("application/json"), None, body.as_bytes()).code
    }

    #[test]
    fn classifies_by_status() {
        for (status, expected) in [
            (301, Code::ProviderBadRequest),
            (400, Code::ProviderBadRequest),
            (401, Code::ProviderAuth),
            (402, Code::ProviderQuota),
            (403, Code::ProviderAuth),
            (404, Code::ProviderBadRequest),
            (408, Code::ProviderUnavailable),
            (422, Code::ProviderBadRequest),
            (429, Code::ProviderRateLimited),
            (500, Code::ProviderUnavailable),
            (502, Code::ProviderUnavailable),
            (503, Code::ProviderOverloaded),
            (529, Code::ProviderOverloaded),
            (200, Code::ProviderStreamInvalid),
        ] {
            for body in ["", "null", "nope", "[]", "{}", r#"{"message":"x"}"#, r#"{"error":null}"#, "<html>"] {
                assert_eq!(code(status, body), expected, "{status} {body}");
            }
        }
    }

    #[test]
    fn classifies_by_what_the_body_says() {
        for (status, body, expected) in [
            (
                429,
                r#"{"error":{"message":"m","type":"insufficient_quota","code":"insufficient_quota"}}"#,
                Code::ProviderQuota,
            ),
            (
                400,
                r#"{"error":{"message":"m","type":"invalid_request_error","code":"context_length_exceeded"}}"#,
                Code::ProviderContextLength,
            ),
            (
                400,
                r#"{"object":"error","message":"This model's maximum context length is 10 tokens","type":"BadRequestError","code":400}"#,
                Code::ProviderContextLength,
            ),
            (
                400,
                r#"{"error":{"code":"content_filter","message":"m","innererror":{"code":"ResponsibleAIPolicyViolation"}}}"#,
                Code::ProviderContentFilter,
            ),
            (413, r#"{"error":{"code":"rate_limit_exceeded","message":"m"}}"#, Code::ProviderRateLimited),
            (
                400,
                r#"{"error":{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error","n_ctx":512}}"#,
                Code::ProviderContextLength,
            ),
            (
                500,
                r#"{"error":{"code":500,"message":"Context size has been exceeded.","type":"server_error"}}"#,
                Code::ProviderContextLength,
            ),
            (
                400,
                r#"[{"error":{"code":400,"message":"The input token count (9) exceeds the maximum number of tokens allowed (8).","status":"INVALID_ARGUMENT"}}]"#,
                Code::ProviderContextLength,
            ),
            (500, r#"[{"error":{"message":"m","status":"RESOURCE"}}]"#, Code::ProviderUnavailable),
            (400, r#"{"detail":"Bad"}"#, Code::ProviderBadRequest),
            (400, r#"{"error":{"message":"x"}}"#, Code::ProviderBadRequest),
            (200, r#"{"error":{"message":"x"}}"#, Code::ProviderError),
            (200, r#"[{"error":{"message":"x","code":503}}]"#, Code::ProviderOverloaded),
        ] {
            assert_eq!(code(status, body), expected, "{body}");
        }
    }

    #[test]
    fn classifies_the_messages_api() {
        for (status, name, message, expected, inside) in [
            (400, "invalid_request_error", "m", Code::ProviderBadRequest, Code::ProviderBadRequest),
            (401, "authentication_error", "m", Code::ProviderAuth, Code::ProviderAuth),
            (402, "billing_error", "m", Code::ProviderQuota, Code::ProviderQuota),
            (403, "permission_error", "m", Code::ProviderAuth, Code::ProviderAuth),
            (404, "not_found_error", "model: x", Code::ProviderBadRequest, Code::ProviderBadRequest),
            (413, "request_too_large", "m", Code::ProviderContextLength, Code::ProviderContextLength),
            (429, "rate_limit_error", "m", Code::ProviderRateLimited, Code::ProviderRateLimited),
            (500, "api_error", "Internal server error", Code::ProviderUnavailable, Code::ProviderError),
            (504, "timeout_error", "m", Code::ProviderUnavailable, Code::ProviderError),
            (529, "overloaded_error", "Overloaded", Code::ProviderOverloaded, Code::ProviderOverloaded),
            (
                400,
                "invalid_request_error",
                "prompt is too long: 210000 tokens > 200000 maximum",
                Code::ProviderContextLength,
                Code::ProviderContextLength,
            ),
            (
                400,
                "invalid_request_error",
                "input length and `max_tokens` exceed context limit: 1 + 2 > 2",
                Code::ProviderContextLength,
                Code::ProviderContextLength,
            ),
            (
                400,
                "invalid_request_error",
                "Your credit balance is too low to access the Anthropic API.",
                Code::ProviderQuota,
                Code::ProviderQuota,
            ),
            (
                400,
                "invalid_request_error",
                "Output blocked by content filtering policy",
                Code::ProviderContentFilter,
                Code::ProviderContentFilter,
            ),
        ] {
            let body = serde_json::json!({"type": "error", "error": {"type": name, "message": message}});
            assert_eq!(code(status, &body.to_string()), expected, "{body}");
            assert_eq!(failure_of_event(&body).code, inside, "{body}");
        }
    }

    #[test]
    fn classifies_errors_inside_a_stream() {
        for (event, expected) in [
            (r#"{"error":{"message":"m"}}"#, Code::ProviderError),
            (r#"{"error":"m"}"#, Code::ProviderError),
            (r#"{"error":{"code":502,"message":"m"}}"#, Code::ProviderError),
            (r#"{"error":{"code":429,"message":"m"}}"#, Code::ProviderRateLimited),
            (r#"{"error":{"code":"server_error","message":"m"}}"#, Code::ProviderError),
            (r#"{"type":"error","error":{"type":"overloaded_error","message":"m"}}"#, Code::ProviderOverloaded),
            ("7", Code::ProviderError),
        ] {
            assert_eq!(failure_of_event(&serde_json::from_str(event).unwrap()).code, expected, "{event}");
        }
    }

    #[test]
    fn a_wait_is_told_where_it_is_the_cure() {
        let now = UnixMillis::new(1_796_112_000_000);
        let google = r#"[{"error":{"code":429,"message":"You exceeded your current quota, please check your plan and billing details.","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34.5s"}]}}]"#;
        let spent = r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota"}}"#;
        let limited = r#"{"error":{"message":"Limit reached. Please try again in 1.5s.","type":"rate_limit_error"}}"#;
        for (status, header, body, code, wait) in [
            (429, ("retry-after-ms", "7"), "", Code::ProviderRateLimited, Some(7)),
            (503, ("retry-after", "2"), "", Code::ProviderOverloaded, Some(2_000)),
            (529, ("retry-after", "Tue, 01 Dec 2026 08:00:07 GMT"), "", Code::ProviderOverloaded, Some(7_000)),
            (401, ("retry-after", "2"), "", Code::ProviderAuth, None),
            (429, ("x-none", ""), google, Code::ProviderRateLimited, Some(34_500)),
            (429, ("retry-after", "60"), google, Code::ProviderRateLimited, Some(60_000)),
            (429, ("retry-after", "60"), spent, Code::ProviderQuota, None),
            (429, ("x-none", ""), limited, Code::ProviderRateLimited, Some(1_500)),
            (429, ("x-ratelimit-reset-requests", "1m30s"), "", Code::ProviderRateLimited, Some(90_000)),
            (
                429,
                ("anthropic-ratelimit-tokens-reset", "2026-12-01T08:00:20Z"),
                "",
                Code::ProviderRateLimited,
                Some(20_000),
            ),
            (503, ("x-ratelimit-reset-requests", "1m30s"), "", Code::ProviderOverloaded, None),
            (500, ("x-ratelimit-reset-requests", "1m30s"), "", Code::ProviderUnavailable, None),
        ] {
            let headers = [(header.0.to_owned(), header.1.to_owned())];
            let failure = failure_of_response(status, None, Some((&headers, now)), body.as_bytes());
            assert_eq!((failure.code, failure.retry_after_ms), (code, wait), "{status} {header:?} {body}");
        }
        let event = failure_of_event(&serde_json::from_str::<Value>(google).unwrap());
        assert_eq!((event.code, event.retry_after_ms), (Code::ProviderRateLimited, Some(34_500)));
    }

    #[test]
    fn the_internal_text_is_short_and_without_keys() {
        let body = format!(
            r#"{{"error":{{"message":"Incorrect API key provided: sk-proj-abc123DEF. {}"}}}}"#,
            "x ".repeat(2000)
        );
        let failure = failure_of_response(401, None, None, body.as_bytes());
        assert!(failure.internal.chars().count() <= 500);
        assert!(!failure.internal.contains("abc123DEF"), "{}", failure.internal);
        assert!(failure.internal.contains("401"));
    }

    proptest! {
        #[test]
        fn any_answer_gets_a_provider_code(status in any::<u16>(), body in prop::collection::vec(any::<u8>(), 0..100)) {
            prop_assert_eq!(failure_of_response(status, None, None, &body).code.category(), "provider");
        }
    }
}

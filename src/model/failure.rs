//! What a model API's refusal means: one classifier for HTTP answers and for errors inside a stream.
//!
//! The facts are those of the public APIs' error pages (OpenAI, Azure, Anthropic, Mistral, Groq, OpenRouter, vLLM): an `error` object with
//! `message`, `type` and `code`, where `code` may be a number; flat objects with the same keys; or no JSON at all.

use serde_json::Value;

use crate::core::error::{Code, Failure};
use crate::core::redact::quote;

/// Longest part of a body that is looked at, in bytes. An error answer that is longer is not an API's.
pub const MAX_ERROR_BODY_BYTES: usize = 64 * 1024;

/// A day, in ms: nobody waits longer for a chat reply, so a longer wait says nothing more.
const MAX_WAIT_MS: f64 = 86_400_000.0;

/// The wait that an answer asks for, in ms, from its `retry-after` (only the form in seconds: a date needs a clock) and its
/// `retry-after-ms` header, which OpenAI and Azure send and which is finer.
pub fn retry_after_ms(retry_after: Option<&str>, retry_after_ms: Option<&str>) -> Option<u64> {
    let number = |text: &str| {
        let value = text.trim().parse::<f64>().ok()?;
        (value.is_finite() && value >= 0.0).then_some(value)
    };
    // In bounds for the conversion after the cut.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let whole = |value: f64| value.min(MAX_WAIT_MS).ceil() as u64;
    if let Some(ms) = retry_after_ms.and_then(number) {
        return Some(whole(ms));
    }
    retry_after.and_then(number).map(|seconds| whole(seconds * 1000.0))
}

/// The failure that an HTTP answer of a model API stands for: any status but 200, or a 200 whose body is not an event stream.
/// `retry_after_ms` is what [`retry_after_ms`] read.
pub fn failure_of_response(
    status: u16,
    content_type: Option<&str>,
    retry_after_ms: Option<u64>,
    body: &[u8],
) -> Failure {
    let bounded = body.get(..MAX_ERROR_BODY_BYTES).unwrap_or(body);
    let text = String::from_utf8_lossy(bounded);
    let html = content_type.is_some_and(|kind| kind.to_ascii_lowercase().contains("text/html"))
        || text.trim_start_matches('\u{feff}').trim_start().starts_with('<');
    let json = if html { None } else { serde_json::from_slice::<Value>(bounded).ok() };
    let facts = json.as_ref().map(Facts::of_body).unwrap_or_default();
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
        retry_after_ms: retry_after_ms.filter(|_| code.retryable()),
        ..Failure::new(code, quote(&format!("the model API answered {status}: {what}")))
    }
}

/// The failure that an error event inside a stream stands for: the whole event, or its `error`.
pub fn failure_of_event(event: &Value) -> Failure {
    let facts = Facts::of_body(event);
    let code = facts
        .code()
        .or_else(|| facts.status.filter(|status| *status >= 400).map(code_of_status))
        .unwrap_or(Code::ProviderError);
    // Inside a stream "unavailable" would be wrong: the API was reached, and it reported.
    let code = if code == Code::ProviderUnavailable { Code::ProviderError } else { code };
    let words = if facts.message.is_empty() { event.to_string() } else { facts.to_string() };
    Failure::new(code, quote(&format!("the model API reported in its stream: {words}")))
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
}

impl Facts {
    fn of_body(body: &Value) -> Self {
        let mut facts = Self::default();
        // Some gateways wrap the answer in a list.
        let body = body.as_array().and_then(|list| list.first()).unwrap_or(body);
        let error = body.get("error").filter(|error| !error.is_null());
        facts.is_error = error.is_some();
        let error = error.unwrap_or(body);
        facts.read(error);
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

    fn code(&self) -> Option<Code> {
        let message = self.message.to_ascii_lowercase();
        let named = |words: &[&str]| self.names.iter().any(|name| words.iter().any(|word| name.contains(word)));
        let says = |words: &[&str]| words.iter().any(|word| message.contains(word));
        if named(&["insufficient_quota", "billing", "insufficient_balance", "insufficient_credits", "quota_exceeded"])
            || says(&[
                "exceeded your current quota",
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
    fn reads_the_wait() {
        assert_eq!(retry_after_ms(Some("2"), None), Some(2000));
        assert_eq!(retry_after_ms(Some("0.5"), None), Some(500));
        assert_eq!(retry_after_ms(Some("9"), Some("120")), Some(120));
        assert_eq!(retry_after_ms(Some("Wed, 21 Oct 2026 07:28:00 GMT"), None), None);
        assert_eq!(retry_after_ms(Some("-1"), Some("NaN")), None);
        assert_eq!(retry_after_ms(Some("1e300"), None), Some(86_400_000));
        let failure = failure_of_response(429, None, Some(7), b"");
        assert_eq!(failure.retry_after_ms, Some(7));
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

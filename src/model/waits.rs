//! How long a model API asks to wait: what its answer's headers say, and what its error says.
//!
//! | who | says |
//! |---|---|
//! | HTTP (RFC 9110) | `retry-after`: seconds or a date |
//! | OpenAI, Azure | `retry-after-ms`; `x-ratelimit-reset-requests: 1m30s`, beside `-remaining-` and `-limit-` of the same name |
//! | Groq, Cerebras, Mistral, OpenRouter | the same with seconds or a moment as a number; `x-ratelimit-reset`, `ratelimit-reset` |
//! | Anthropic | `anthropic-ratelimit-tokens-reset`: a moment of RFC 3339 |
//! | Google | in the error's `details`: `RetryInfo` with `retryDelay: "34.5s"` |
//! | OpenRouter | in the error's `metadata`: `headers` as above |
//! | others | in the error: `retry_after` in seconds; in its words: `try again in 7.66s` |

use serde_json::Value;

use super::dates::{http_date, rfc_3339};
use super::values::{list, string};
use crate::core::time::UnixMillis;

/// A day, in ms: nobody waits longer for a chat reply, so a longer wait says nothing more.
const MAX_WAIT_MS: f64 = 86_400_000.0;

/// Headers of an answer, names in lower case.
pub type Headers = [(String, String)];

/// Whether a header may say something about waiting.
pub fn is_about_waiting(name: &str) -> bool {
    matches!(name, "date" | "retry-after" | "retry-after-ms") || name.contains("ratelimit")
}

/// What an answer asks for, in ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// The wait that it names.
    pub asked: Option<u64>,
    /// Until the limit that is nearest to be used up is reset.
    pub reset: Option<u64>,
    /// Whether that limit is used up, as far as the answer says.
    pub is_used_up: bool,
}

impl Waits {
    /// Reads the headers. `now` is the moment of the answer; the server's own `date` comes before it, because moments are of that clock.
    pub fn of_headers(headers: &Headers, now: UnixMillis) -> Self {
        let header = |name: &str| headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.trim());
        let now = header("date").and_then(http_date).unwrap_or(now);
        let asked = header("retry-after-ms").and_then(|text| whole(text.parse().ok()?));
        let after = || {
            let text = header("retry-after")?;
            seconds(text).or_else(|| until(http_date(text)?, now)).or_else(|| until(rfc_3339(text)?, now))
        };
        let nearest = nearest(headers, now);
        Self {
            asked: asked.or_else(after),
            reset: nearest.map(|limit| limit.reset),
            is_used_up: nearest.is_some_and(|limit| limit.left == Some(0.0)),
        }
    }

    /// Reads an error's object; its words are [`said_in`]'s. Without `now` it may name no moments.
    pub fn of_error(error: &Value, now: Option<UnixMillis>) -> Self {
        let details = list(error, "details").iter();
        let info = details.filter(|detail| string(detail, "@type").is_some_and(|kind| kind.ends_with("RetryInfo")));
        let delays = info.filter_map(|info| duration(string(info, "retryDelay")?));
        let key = |name: &str| match error.get(name)? {
            Value::Number(number) => whole(number.as_f64()? * 1000.0),
            Value::String(text) => duration(text).or_else(|| seconds(text)),
            _ => None,
        };
        let metadata = error.get("metadata").unwrap_or(&Value::Null);
        let headers: Vec<(String, String)> = metadata
            .get("headers")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .map(|(name, value)| {
                (name.to_ascii_lowercase(), value.as_str().map_or_else(|| value.to_string(), str::to_owned))
            })
            .collect();
        let inner = now.map(|now| Self::of_headers(&headers, now)).unwrap_or_default();
        Self {
            asked: delays.max().or_else(|| key("retry_after")).or_else(|| key("retryAfter")).or(inner.asked),
            ..inner
        }
    }

    /// The longer of what two places of one answer ask for.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        let (reset, is_used_up) =
            if self.reset.is_some() { (self.reset, self.is_used_up) } else { (other.reset, other.is_used_up) };
        Self { asked: self.asked.max(other.asked), reset, is_used_up }
    }
}

/// One limit of several: requests, tokens, by minute, by day.
#[derive(Clone, Copy)]
struct Limit {
    reset: u64,
    /// Which part of it is left, 0 to 1.
    left: Option<f64>,
}

/// The limit that is nearest to be used up; among those of which nobody knows how much is left, the one that takes longest.
fn nearest(headers: &Headers, now: UnixMillis) -> Option<Limit> {
    let value = |name: String| {
        headers.iter().find(|(own, _)| *own == name).and_then(|(_, value)| value.trim().parse::<f64>().ok())
    };
    let limits = headers.iter().filter(|(name, _)| name.contains("ratelimit") && name.contains("reset")).filter_map(
        |(name, text)| {
            let reset = reset(text.trim(), now)?;
            let remaining = value(name.replace("reset", "remaining"));
            let most = value(name.replace("reset", "limit")).filter(|most| *most > 0.0);
            let left = remaining
                .map(|remaining| if remaining <= 0.0 { 0.0 } else { most.map_or(1.0, |most| remaining / most) });
            Some(Limit { reset, left })
        },
    );
    limits.min_by(|one, other| {
        let left = |limit: &Limit| limit.left.unwrap_or(f64::INFINITY);
        left(one).total_cmp(&left(other)).then(other.reset.cmp(&one.reset))
    })
}

/// The value of a reset header: a length of time or a moment.
fn reset(text: &str, now: UnixMillis) -> Option<u64> {
    if let Ok(number) = text.parse::<f64>() {
        // A number of seconds or of milliseconds since 1970 is larger than any wait.
        return match number {
            moment if moment >= 1e11 => whole(moment - as_f64(now)),
            moment if moment >= 1e9 => whole(moment * 1000.0 - as_f64(now)),
            seconds => whole(seconds * 1000.0),
        };
    }
    duration(text).or_else(|| until(rfc_3339(text)?, now)).or_else(|| until(http_date(text)?, now))
}

/// A number of seconds.
fn seconds(text: &str) -> Option<u64> {
    whole(text.parse::<f64>().ok()? * 1000.0)
}

/// A length of time as Go and Protobuf write it: `1h2m3.5s`, `120ms`.
pub fn duration(text: &str) -> Option<u64> {
    let mut rest = text.trim();
    let mut sum = 0.0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(digits);
        let unit = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit);
        let ms = match unit {
            "d" => 86_400_000.0,
            "h" => 3_600_000.0,
            "m" => 60_000.0,
            "s" => 1_000.0,
            "ms" => 1.0,
            "us" | "ns" => 0.0,
            _ => return None,
        };
        sum += number.parse::<f64>().ok()? * ms;
        rest = tail;
    }
    whole(sum)
}

/// The wait that an error's words ask for: `Please try again in 1m2.5s.`, `Please retry in 34.07s.`
pub fn said_in(message: &str) -> Option<u64> {
    let message = message.to_ascii_lowercase();
    let (_, rest) = message.split_once("try again in ").or_else(|| message.split_once("retry in "))?;
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '.').unwrap_or(rest.len());
    let (time, rest) = rest.split_at(end);
    let time = time.trim_end_matches('.');
    duration(time).or_else(|| {
        let unit = rest.trim_start();
        let factor = if unit.starts_with("sec") {
            1.0
        } else if unit.starts_with("min") {
            60.0
        } else {
            return None;
        };
        whole(time.parse::<f64>().ok()? * factor * 1000.0)
    })
}

fn until(moment: UnixMillis, now: UnixMillis) -> Option<u64> {
    whole(as_f64(moment) - as_f64(now))
}

/// Exact for every moment of this millennium.
#[allow(clippy::cast_precision_loss)]
fn as_f64(moment: UnixMillis) -> f64 {
    moment.get() as f64
}

/// A moment that has passed asks for nothing; a length that is negative is no length.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn whole(ms: f64) -> Option<u64> {
    (ms.is_finite() && ms >= 0.0).then(|| ms.min(MAX_WAIT_MS).ceil() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    /// 2026-12-01T08:00:00Z.
    const NOW: UnixMillis = UnixMillis::new(1_796_112_000_000);

    fn waits(headers: &[(&str, &str)]) -> Waits {
        let headers: Vec<(String, String)> =
            headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Waits::of_headers(&headers, NOW)
    }

    #[test]
    fn reads_the_wait_that_headers_name() {
        for (headers, ms) in [
            (vec![("retry-after", "2")], Some(2_000)),
            (vec![("retry-after", "0.5")], Some(500)),
            (vec![("retry-after", "9"), ("retry-after-ms", "120")], Some(120)),
            (vec![("retry-after", "9"), ("retry-after-ms", "soon")], Some(9_000)),
            (vec![("retry-after", "Tue, 01 Dec 2026 08:00:07 GMT")], Some(7_000)),
            (
                vec![("retry-after", "Tue, 01 Dec 2026 08:00:07 GMT"), ("date", "Tue, 01 Dec 2026 08:00:02 GMT")],
                Some(5_000),
            ),
            (vec![("retry-after", "Tue, 01 Dec 2026 07:00:00 GMT")], None),
            (vec![("retry-after", "-1"), ("retry-after-ms", "NaN")], None),
            (vec![("retry-after", "1e300")], Some(86_400_000)),
            (vec![], None),
        ] {
            assert_eq!(waits(&headers).asked, ms, "{headers:?}");
        }
    }

    #[test]
    fn reads_the_reset_of_the_limit_that_is_nearest_to_be_used_up() {
        for (headers, ms, is_used_up) in [
            (vec![("x-ratelimit-reset-requests", "1m30s")], 90_000, false),
            (vec![("x-ratelimit-reset-tokens", "120ms"), ("x-ratelimit-remaining-tokens", "0")], 120, true),
            (
                vec![
                    ("x-ratelimit-limit-requests", "1000"),
                    ("x-ratelimit-remaining-requests", "990"),
                    ("x-ratelimit-reset-requests", "2h"),
                    ("x-ratelimit-limit-tokens", "6000"),
                    ("x-ratelimit-remaining-tokens", "20"),
                    ("x-ratelimit-reset-tokens", "7.66s"),
                ],
                7_660,
                false,
            ),
            (vec![("x-ratelimit-reset", "1796112003")], 3_000, false),
            (vec![("x-ratelimit-reset", "1796112004000"), ("x-ratelimit-remaining", "0")], 4_000, true),
            (vec![("ratelimit-reset", "12"), ("ratelimit-remaining", "0")], 12_000, true),
            (
                vec![
                    ("anthropic-ratelimit-requests-reset", "2026-12-01T09:00:00Z"),
                    ("anthropic-ratelimit-requests-remaining", "5"),
                    ("anthropic-ratelimit-input-tokens-reset", "2026-12-01T08:00:20Z"),
                    ("anthropic-ratelimit-input-tokens-remaining", "0"),
                ],
                20_000,
                true,
            ),
            (vec![("x-ratelimit-reset-requests", "1s"), ("x-ratelimit-reset-tokens", "6m0s")], 360_000, false),
        ] {
            assert_eq!(waits(&headers), Waits { asked: None, reset: Some(ms), is_used_up }, "{headers:?}");
        }
    }

    #[test]
    fn reads_what_an_error_says() {
        let google = json!({"code": 429, "status": "RESOURCE_EXHAUSTED", "details": [
            {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": []},
            {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.074s"},
        ]});
        assert_eq!(Waits::of_error(&google, None).asked, Some(34_074));
        assert_eq!(Waits::of_error(&json!({"retry_after": 1.5}), None).asked, Some(1_500));
        let openrouter = json!({"metadata": {"headers": {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": 1_796_112_009_000_u64}}});
        assert_eq!(
            Waits::of_error(&openrouter, Some(NOW)),
            Waits { asked: None, reset: Some(9_000), is_used_up: true }
        );
        for (message, ms) in [
            ("Rate limit reached. Please try again in 7.66s. Visit", Some(7_660)),
            ("Please try again in 1m2.5s.", Some(62_500)),
            ("Please retry in 34.07s.", Some(34_070)),
            ("Try again in 20 seconds", Some(20_000)),
            ("Please try again in 2 minutes.", Some(120_000)),
            ("please try again in a while", None),
            ("slow down", None),
        ] {
            assert_eq!(said_in(message), ms, "{message}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in "[0-9a-z.: TZ+-]{0,30}") {
            let _ = (duration(&text), said_in(&format!("try again in {text}")), waits(&[("x-ratelimit-reset", &text), ("retry-after", &text)]));
        }

        #[test]
        fn a_length_of_time_is_the_sum_of_its_units(hours in 0..20u64, minutes in 0..60u64, seconds in 0..60u64, ms in 0..1000u64) {
            let expected = ((hours * 60 + minutes) * 60 + seconds) * 1000 + ms;
            prop_assert_eq!(duration(&format!("{hours}h{minutes}m{seconds}s{ms}ms")), Some(expected));
        }
    }
}

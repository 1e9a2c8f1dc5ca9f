//! Which browsers' pages may call. Closed unless an origin is named.

/// Whether a page of this origin may call. `*` in the list stands for every origin.
pub fn allows(allowed: &[String], origin: &str) -> bool {
    allowed.iter().any(|known| known == "*" || known == origin)
}

/// On every chat response: the id under which its stream is resumed.
pub const RESUMABLE_STREAM_ID: &str = "x-resumable-stream-id";

/// Headers of every answer to an allowed origin.
pub fn response_headers(origin: &str) -> Vec<(&'static str, String)> {
    vec![
        ("access-control-allow-origin", origin.to_owned()),
        ("access-control-expose-headers", format!("x-vercel-ai-ui-message-stream, {RESUMABLE_STREAM_ID}, retry-after")),
        ("vary", "Origin".to_owned()),
    ]
}

/// Headers that clients are known to send; some old ones set `user-agent`, which two browsers then ask for.
const KNOWN_HEADERS: &str = "content-type, authorization, user-agent, last-event-id, x-resume-from-sequence, \
                             x-existing-message-id, x-helix-replay-prefix, x-helix-request-key, x-rejoin-history";

/// Headers of the answer to a preflight. The headers that the browser asks for are reflected.
pub fn preflight_headers(origin: &str, asked: Option<&str>) -> Vec<(&'static str, String)> {
    let mut headers = response_headers(origin);
    headers.push(("access-control-allow-methods", "GET, POST, DELETE".to_owned()));
    headers.push(("access-control-allow-headers", asked.unwrap_or(KNOWN_HEADERS).to_owned()));
    headers.push(("access-control-max-age", "86400".to_owned()));
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preflight_that_names_nothing_allows_what_clients_are_known_to_send() {
        let headers = preflight_headers("https://app.example", None);
        let allowed = headers.iter().find(|(name, _)| *name == "access-control-allow-headers").unwrap().1.as_str();
        for name in ["content-type", "last-event-id", "x-helix-request-key", "x-rejoin-history"] {
            assert!(allowed.split(", ").any(|known| known == name), "{name}");
        }
    }

    #[test]
    fn only_named_origins() {
        let allowed = vec!["https://app.example".to_owned()];
        assert!(allows(&allowed, "https://app.example"));
        assert!(!allows(&allowed, "https://app.example.evil"));
        assert!(!allows(&[], "null"));
        assert!(allows(&["*".to_owned()], "https://any.example"));
    }
}

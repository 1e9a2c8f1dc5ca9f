//! Which browsers' pages may read what is answered, and which may act.
//!
//! The headers of CORS only keep answers from a page: its request has arrived by then, with the visitor's cookies, if it is one that browsers
//! send without asking first. So a request that acts is refused itself, unless its page is the service's own or named.

/// On every chat response: the id under which its stream is resumed.
pub const RESUMABLE_STREAM_ID: &str = "x-resumable-stream-id";

/// Longest origin that an answer quotes, in characters.
const QUOTED: usize = 256;

/// Whether pages of this origin are named. `*` in the list stands for every origin.
pub fn allows(allowed: &[String], origin: &str) -> bool {
    allowed.iter().any(|known| known == "*" || is_same(known, origin))
}

/// What a request tells of itself and of the page that sent it.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The method.
    pub method: &'a str,
    /// Whether it wants to become a socket.
    pub upgrades: bool,
    /// `Origin`: browsers send it with everything that acts, other programs do not.
    pub origin: Option<&'a str>,
    /// `Sec-Fetch-Site`, which no page can set.
    pub site: Option<&'a str>,
}

/// The origin of the page that must not do this; `None` when the request may go on. `own` are the service's own origins. A request without
/// `Origin` is no page's.
pub fn foreign<'a>(asked: &Asked<'a>, own: &[&str], allowed: &[String]) -> Option<&'a str> {
    let acts = asked.upgrades || !matches!(asked.method, "GET" | "HEAD" | "OPTIONS");
    let origin = asked.origin.filter(|_| acts)?;
    let is_own = asked.site == Some("same-origin") || own.iter().any(|own| is_same(own, origin));
    if is_own || allows(allowed, origin) { None } else { Some(origin) }
}

/// Why a page may not act: names its origin, and the setting.
pub fn refusal(origin: &str) -> String {
    let origin: String = origin.chars().take(QUOTED).collect();
    format!("pages of {origin} may not do this; name the origin in ALLOWED_ORIGINS")
}

/// Whether a body of this type is one that a page may send to anybody without asking first: a form's, or plain text. None of them is JSON.
pub fn is_sent_unasked(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    matches!(essence.as_str(), "application/x-www-form-urlencoded" | "multipart/form-data" | "text/plain")
}

/// Whether two origins are the same: written in capitals, with the scheme's own port or with a slash at the end, or not.
fn is_same(one: &str, other: &str) -> bool {
    plain(one).eq_ignore_ascii_case(plain(other))
}

fn plain(origin: &str) -> &str {
    let origin = origin.strip_suffix('/').unwrap_or(origin);
    let port = match origin.split_once("://") {
        Some((scheme, _)) if scheme.eq_ignore_ascii_case("https") => ":443",
        Some((scheme, _)) if scheme.eq_ignore_ascii_case("http") => ":80",
        _ => return origin,
    };
    origin.strip_suffix(port).unwrap_or(origin)
}

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
                             x-existing-message-id, x-helix-replay-prefix, x-helix-request-key, x-rejoin-history, x-rejoin-busy";

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
    use proptest::prelude::*;

    const NAMED: [&str; 4] =
        ["https://app.example", "capacitor://localhost", "http://localhost:3000", "https://Shop.example:443/"];
    const OWN: [&str; 2] = ["http://127.0.0.1:8787", "https://chat.example"];

    fn named(list: &[&str]) -> Vec<String> {
        list.iter().map(|origin| (*origin).to_owned()).collect()
    }

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
        let allowed = named(&["https://app.example"]);
        assert!(allows(&allowed, "https://app.example"));
        assert!(!allows(&allowed, "https://app.example.evil"));
        assert!(!allows(&[], "null"));
        assert!(allows(&["*".to_owned()], "https://any.example"));
    }

    #[test]
    fn who_may_act() {
        let post = |origin, site| Asked { method: "POST", upgrades: false, origin, site };
        for (origin, site, may) in [
            (None, None, true),
            (None, Some("cross-site"), true),
            (Some("http://127.0.0.1:8787"), None, true),
            (Some("https://127.0.0.1:8787"), None, false),
            (Some("http://127.0.0.1:8788"), None, false),
            (Some("https://chat.example"), Some("same-site"), true),
            (Some("https://chat.example:443"), None, true),
            (Some("https://chat.example:444"), None, false),
            (Some("https://app.example"), Some("cross-site"), true),
            (Some("https://APP.example"), None, true),
            (Some("https://shop.example"), None, true),
            (Some("http://shop.example"), None, false),
            (Some("http://localhost:3000"), None, true),
            (Some("http://localhost"), None, false),
            (Some("capacitor://localhost"), None, true),
            (Some("ionic://localhost"), None, false),
            (Some("https://behind-a-proxy.example"), Some("same-origin"), true),
            (Some("https://evil.example"), Some("same-site"), false),
            (Some("https://evil.example"), Some("cross-site"), false),
            (Some("https://evil.example"), Some("none"), false),
            (Some("https://evil.example"), Some("SAME-ORIGIN"), false),
            (Some("https://app.example.evil.example"), None, false),
            (Some("https://app.example, https://evil.example"), None, false),
            (Some("null"), Some("cross-site"), false),
            (Some(""), None, false),
        ] {
            let told = foreign(&post(origin, site), &OWN, &named(&NAMED));
            assert_eq!(told, origin.filter(|_| !may), "{origin:?} {site:?}");
        }
        assert_eq!(
            foreign(&post(Some("null"), None), &[], &named(&["null"])),
            None,
            "files and sandboxes may be named"
        );
        assert_eq!(foreign(&post(Some("https://any.example"), None), &[], &named(&["*"])), None);
    }

    #[test]
    fn what_acts() {
        let acts = |method, upgrades| {
            foreign(&Asked { method, upgrades, origin: Some("https://evil.example"), site: None }, &OWN, &[]).is_some()
        };
        for method in ["POST", "PUT", "PATCH", "DELETE", "PROPFIND", "get"] {
            assert!(acts(method, false), "{method}");
        }
        for method in ["GET", "HEAD", "OPTIONS"] {
            assert!(!acts(method, false) && acts(method, true), "{method}, and every upgrade");
        }
    }

    #[test]
    fn types_that_browsers_send_unasked() {
        for text in [
            "text/plain",
            "Text/Plain;charset=UTF-8",
            " application/x-www-form-urlencoded ",
            "multipart/form-data; boundary=x",
        ] {
            assert!(is_sent_unasked(text), "{text}");
        }
        for text in [
            "",
            "application/json",
            "application/json; charset=utf-8",
            "application/x-ndjson",
            "text/json",
            "application/octet-stream",
        ] {
            assert!(!is_sent_unasked(text), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_origin_but_a_known_one_may_act(origin in "(https?|null|capacitor)(://)?[a-z.]{0,12}(:[0-9]{1,4})?/?") {
            let asked = Asked { method: "POST", upgrades: false, origin: Some(&origin), site: None };
            let known = OWN.iter().chain(&NAMED).any(|known| plain(&known.to_ascii_lowercase()) == plain(&origin));
            prop_assert_eq!(foreign(&asked, &OWN, &named(&NAMED)).is_none(), known);
            prop_assert!(refusal(&origin).contains(&origin));
        }
    }
}

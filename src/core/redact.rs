//! Other people's words for the log line: short, on one line, and without anything that opens a door.
//!
//! Two rules. What looks like a secret goes: keys of public services, tokens, what stands behind a name such as `api_key` or
//! `authorization`, the user and the query of an address. And what **is** one goes, whatever it looks like: the values of the headers that a
//! request was sent with ([`hide`]).

/// Longest quotation, in characters.
pub const MAX_QUOTE_CHARS: usize = 500;

/// What stands where a secret stood.
const REMOVED: &str = "[removed]";

/// Beginnings of the keys of public services.
const KEY_PREFIXES: [&str; 20] = [
    "sk-",
    "sk_",
    "gsk_",
    "xai-",
    "pplx-",
    "hf_",
    "r8_",
    "AIza",
    "eyJ",
    "nvapi-",
    "AKIA",
    "ASIA",
    "ghp_",
    "gho_",
    "ghs_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "ya29.",
];

/// A word of letters and digits alone that is this long is a key rather than a name; request ids with dashes stay.
const KEY_CHARS: usize = 32;

/// Behind a word such as `key`, one of this length with a digit in it is a key.
const NAMED_KEY_CHARS: usize = 8;

/// Names whose values are secrets, in lower case and without `-` and `_`; also at the end of a longer name (`OPENAI_API_KEY`).
const SECRET_NAMES: [&str; 14] = [
    "key",
    "apikey",
    "token",
    "secret",
    "password",
    "passwd",
    "pwd",
    "authorization",
    "cookie",
    "credential",
    "credentials",
    "signature",
    "sig",
    "bearer",
];

/// Beginnings of the names of errors that end like a secret's name.
const ERRORS: [&str; 9] =
    ["invalid", "incorrect", "missing", "wrong", "expired", "bad", "unknown", "revoked", "disabled"];

/// Words between a name and its value that are not the value.
const SCHEMES: [&str; 6] = ["bearer", "basic", "digest", "token", "apikey", "negotiate"];

/// How many words may stand between a name and the colon before its value ("API key provided: …").
const NEAR: u8 = 2;

/// Shortest header value that is looked for in a text: a shorter one says nothing, and stands everywhere.
const MIN_SECRET_BYTES: usize = 6;

/// Headers that every request has, or that name no secret.
const HARMLESS_HEADERS: [&str; 5] =
    ["accept", "content-type", "anthropic-version", "anthropic-beta", "x-response-message-id"];

/// The text as it may stand in a log line: secrets removed, white space and control characters as single spaces, at most
/// [`MAX_QUOTE_CHARS`] characters.
pub fn quote(text: &str) -> String {
    // Four times the result's bound is plenty to fill it, and keeps the work small for a large text.
    let start: String = text.chars().take(MAX_QUOTE_CHARS.saturating_mul(4)).collect();
    let blank = |c: char| c.is_whitespace() || c.is_control();
    let words: Vec<&str> = start.split(blank).filter(|word| !word.is_empty()).collect();
    cut(&redacted(&words.join(" ")))
}

/// What a request was sent with and its answer must not be heard to say: the values of its headers, and of its address's query.
pub fn secrets_of(address: &str, headers: &[(String, String)]) -> Vec<String> {
    let is_told = |name: &str| !HARMLESS_HEADERS.iter().any(|harmless| name.eq_ignore_ascii_case(harmless));
    let told = headers.iter().filter(|(name, _)| is_told(name)).map(|(_, value)| value.as_str());
    let query = address.split_once('?').map(|(_, query)| query);
    let pieces = told.chain(query).flat_map(|value| value.split([' ', ';', ',', '\t', '&', '#']));
    let values = pieces.flat_map(|piece| [piece, piece.split_once('=').map_or("", |(_, value)| value)]);
    let mut secrets: Vec<String> = values
        .filter(|value| value.len() >= MIN_SECRET_BYTES && !SCHEMES.contains(&name_of(value).as_str()))
        .map(str::to_owned)
        .collect();
    // The longest first: one may be a part of another.
    secrets.sort_unstable_by_key(|secret| std::cmp::Reverse(secret.len()));
    secrets.dedup();
    secrets
}

/// A quotation without these secrets, also where it was cut inside one.
pub fn hide(quotation: &str, secrets: &[String]) -> String {
    let mut text = quotation.to_owned();
    for secret in secrets {
        if text.contains(secret.as_str()) {
            text = text.replace(secret.as_str(), REMOVED);
        }
    }
    let Some(whole) = text.strip_suffix('…') else { return text };
    let begun = |secret: &String| {
        let lengths = (1..secret.len()).rev().filter(|length| secret.is_char_boundary(*length));
        lengths.filter_map(|length| secret.get(..length)).find_map(|begin| whole.strip_suffix(begin))
    };
    match secrets.iter().filter_map(begun).min_by_key(|rest| rest.len()) {
        Some(rest) => format!("{rest}{REMOVED}…"),
        None => text,
    }
}

fn cut(text: &str) -> String {
    if text.chars().count() <= MAX_QUOTE_CHARS {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(MAX_QUOTE_CHARS.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

/// Where a value begins and ends.
fn ends_value(c: char) -> bool {
    matches!(c, ' ' | '"' | '\'' | '`' | ',' | ';' | '&' | '(' | ')' | '{' | '}' | '[' | ']' | '<' | '>' | '\\')
}

/// What the words so far lead to expect.
#[derive(Clone, Copy, PartialEq)]
enum Expects {
    Nothing,
    /// A secret's name was said; within so many further words a colon or an equals sign makes what follows its value.
    Assignment(u8),
    /// The next word is a secret.
    Secret,
    /// A cookie header's name was said.
    Cookie,
    /// Names and values of cookies, to the end of the string that holds them.
    Cookies,
}

fn redacted(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut expects = Expects::Nothing;
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_quote = matches!(first, ' ' | '"' | '\'' | '`' | '\\');
        if let Some(behind) = rest.strip_prefix(REMOVED) {
            out.push_str(REMOVED);
            (rest, expects) = (behind, Expects::Nothing);
        } else if expects == Expects::Cookies && !is_quote {
            rest = after(rest, |c| matches!(c, '"' | '\'' | '`')).1;
            out.push_str(REMOVED);
            expects = Expects::Nothing;
        } else if let Some(address) = rest.strip_prefix("//").filter(|_| expects != Expects::Secret) {
            let (address, behind) = after(address, |c| c != '\\' && is_quote_or_angle(c));
            write_address(address, &mut out);
            (rest, expects) = (behind, Expects::Nothing);
        } else if ends_value(first) || (matches!(first, ':' | '=') && expects != Expects::Secret) {
            expects = behind_mark(first, expects);
            out.push(first);
            rest = rest.get(first.len_utf8()..).unwrap_or_default();
        } else {
            let (run, behind) =
                after(rest, |c| ends_value(c) || (matches!(c, ':' | '=') && expects != Expects::Secret));
            expects = write_word(run, expects, &mut out);
            rest = behind;
        }
    }
    out
}

/// A text up to the first of these characters, and from there on.
fn after(text: &str, ends: impl Fn(char) -> bool) -> (&str, &str) {
    let end = text.find(ends).unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or((text, ""))
}

fn is_quote_or_angle(c: char) -> bool {
    matches!(c, ' ' | '"' | '\'' | '`' | '<' | '>')
}

fn behind_mark(mark: char, expects: Expects) -> Expects {
    match (mark, expects) {
        (':' | '=', Expects::Assignment(_)) => Expects::Secret,
        (':' | '=', Expects::Cookie) => Expects::Cookies,
        (' ' | '"' | '\'' | '`' | '\\', expects) => expects,
        ('(' | '[' | '{' | '<', Expects::Secret) => Expects::Secret,
        _ => Expects::Nothing,
    }
}

/// Writes one word, or what stands in its place, and says what it leads to expect.
fn write_word(run: &str, expects: Expects, out: &mut String) -> Expects {
    let name = name_of(run);
    if expects == Expects::Secret && SCHEMES.contains(&name.as_str()) {
        out.push_str(run);
        return Expects::Secret;
    }
    let is_secret = match expects {
        Expects::Secret => true,
        Expects::Assignment(NEAR) if is_named_key(run) => true,
        _ => is_key(run) || run.split(['/', '?', '%', '#', '@', '|', '$', '!', '.']).any(is_key),
    };
    if is_secret {
        out.push_str(REMOVED);
        // The end of a sentence is no part of a key.
        out.push_str(if run.ends_with('.') { "." } else { "" });
        return Expects::Nothing;
    }
    out.push_str(run);
    match expects {
        _ if name.ends_with("cookie") => Expects::Cookie,
        _ if name == "bearer" => Expects::Secret,
        _ if is_secret_name(&name) => Expects::Assignment(NEAR),
        Expects::Assignment(near) => near.checked_sub(1).map_or(Expects::Nothing, Expects::Assignment),
        _ => Expects::Nothing,
    }
}

/// What follows the `//` of an address, without its user, its query and what looks like a key in its path.
fn write_address(text: &str, out: &mut String) {
    out.push_str("//");
    // A password may hold any character, also one that should have been escaped.
    let text = match text.rsplit_once('@') {
        Some((user, text)) if user.contains(':') || !user.contains('/') => {
            out.extend([REMOVED, "@"]);
            text
        }
        _ => text,
    };
    let (place, behind) = after(text, |c| matches!(c, '?' | '#'));
    let (host, path) = after(place, |c| c == '/');
    out.push_str(host);
    for piece in path.split('/').skip(1) {
        out.push('/');
        out.push_str(if is_key(piece) { REMOVED } else { piece });
    }
    if !behind.is_empty() {
        out.extend(["?", REMOVED]);
    }
}

/// A word as a name: letters and digits in lower case.
fn name_of(run: &str) -> String {
    run.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

fn is_secret_name(name: &str) -> bool {
    // `invalid_api_key: …` is the name of an error; what follows is its sentence.
    if ERRORS.iter().any(|error| name.starts_with(error)) {
        return false;
    }
    SECRET_NAMES.iter().any(|secret| name == *secret || (secret.len() > 3 && name.ends_with(secret)))
        || ["secretkey", "accesskey", "privatekey", "accesskeyid"].iter().any(|secret| name.ends_with(secret))
}

fn is_key(piece: &str) -> bool {
    let piece = piece.trim_matches(|c: char| !c.is_ascii_alphanumeric() && c != '*');
    let named = KEY_PREFIXES.iter().any(|prefix| {
        piece
            .strip_prefix(prefix)
            .is_some_and(|rest| rest.len() >= 4 && rest.starts_with(|c: char| c.is_ascii_alphanumeric()))
    });
    named || piece.contains("**") || piece.split(|c: char| !c.is_ascii_alphanumeric()).any(is_long)
}

fn is_long(run: &str) -> bool {
    run.len() >= KEY_CHARS && has_both(run)
}

fn is_named_key(run: &str) -> bool {
    let run = run.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    run.len() >= NAMED_KEY_CHARS && has_both(run)
}

fn has_both(run: &str) -> bool {
    run.contains(|c: char| c.is_ascii_digit()) && run.contains(|c: char| c.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn removes_secrets_and_leaves_words() {
        for (text, expected) in [
            ("key sk-proj-Ab12 is wrong", "key [removed] is wrong"),
            ("(sk-ant-api03-xyz).", "([removed])."),
            ("Authorization: Bearer abc def", "Authorization: Bearer [removed] def"),
            ("\"authorization\":\"Bearer abc\"", "\"authorization\":\"Bearer [removed]\""),
            ("authorization=Basic dXNlcjpwYXNz== next", "authorization=Basic [removed] next"),
            ("api-key=0123456789abcdef0123456789abcdef", "api-key=[removed]"),
            ("OPENAI_API_KEY=abc", "OPENAI_API_KEY=[removed]"),
            ("{\\\"apiKey\\\": \\\"abc\\\", \\\"n\\\": 1}", "{\\\"apiKey\\\": \\\"[removed]\\\", \\\"n\\\": 1}"),
            ("Incorrect API key provided: hunter2. Try", "Incorrect API key provided: [removed]. Try"),
            ("the token 12ab34cd is old", "the token [removed] is old"),
            ("password=p@ss:w0rd&x=1", "password=[removed]&x=1"),
            ("{\"cookie\":\"a=b; sid=c\",\"n\":1}", "{\"cookie\":\"[removed]\",\"n\":1}"),
            ("GET https://u:p@a.test/v1/x?key=1#f failed", "GET https://[removed]@a.test/v1/x?[removed] failed"),
            ("https://a.test/bot/sk-abcdef/send", "https://a.test/bot/[removed]/send"),
            ("abc***xyz", "[removed]"),
            (
                "request 7027d986-3c59-a37a-9a5f-50713e01c8a6 of gpt-4.1-nano",
                "request 7027d986-3c59-a37a-9a5f-50713e01c8a6 of gpt-4.1-nano",
            ),
            ("a\r\nb\u{0}c", "a b c"),
            ("the task-force", "the task-force"),
            ("max_tokens=5, code: rate_limit_exceeded", "max_tokens=5, code: rate_limit_exceeded"),
            ("invalid_request_error: messages.0.content", "invalid_request_error: messages.0.content"),
            (
                "invalid_api_key: Incorrect API key provided hunter22 by us",
                "invalid_api_key: Incorrect API key provided hunter22 by us",
            ),
            ("{\"code\":\"invalid_api_key\",\"message\":\"no\"}", "{\"code\":\"invalid_api_key\",\"message\":\"no\"}"),
        ] {
            assert_eq!(quote(text), expected);
        }
    }

    #[test]
    fn what_a_request_was_sent_with_is_hidden_whatever_it_looks_like() {
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let headers = [
            header("content-type", "application/json"),
            header("Authorization", "Bearer correct horse-battery"),
            header("cookie", "sid=staple-x; theme=dark-mode"),
            header("x-tenant", "us"),
        ];
        let secrets = secrets_of("https://a.test/x?code=open-sesame&v=1", &headers);
        let said = "application/json horse-battery staple-x dark-mode us correct open-sesame v=1";
        assert_eq!(hide(said, &secrets), "application/json [removed] [removed] [removed] us [removed] [removed] v=1");
        assert_eq!(hide("it said horse-bat…", &secrets), "it said [removed]…");
        assert!(secrets_of("https://a.test", &headers[..1]).is_empty());
    }

    /// A sentence with a secret in it, as public services and proxies write them.
    fn leak() -> impl Strategy<Value = (String, String)> {
        let secret = "[A-Za-z0-9][A-Za-z0-9_+/.~-]{6,40}[A-Za-z0-9]";
        let shape = prop::sample::select(vec![
            "Incorrect API key provided: {}.",
            "invalid x-api-key: {}",
            "{\"error\":{\"api_key\":\"{}\"}}",
            "Authorization: Bearer {}",
            "header \"authorization\": \"Basic {}\" refused",
            "https://user:{}@host.test/path",
            "POST https://a.test/v1?key={}&alt=sse",
            "Bearer {} has expired",
            "access_token={}&scope=x",
            "client_secret='{}'",
            "cookie: sid={}; a=b",
            "[password: {}]",
            "sk-{} is no key",
            "env OPENAI_API_KEY={}",
            "{\\\"token\\\":\\\"{}\\\"}",
        ]);
        (secret, shape).prop_filter_map("a word of the sentence", |(secret, shape): (String, &str)| {
            (!shape.contains(&secret)).then(|| (shape.replace("{}", &secret), secret))
        })
    }

    proptest! {
        #[test]
        fn is_short_and_never_panics(text in ".{0,3000}") {
            prop_assert!(quote(&text).chars().count() <= MAX_QUOTE_CHARS);
        }

        #[test]
        fn no_planted_secret_survives((text, secret) in leak(), before in "[a-z \"':=(,]{0,20}", after in "[a-z ,.]{0,20}") {
            let quoted = quote(&format!("{before} {text} {after}"));
            prop_assert!(!quoted.contains(&secret), "{quoted}");
        }

        #[test]
        fn quoting_twice_is_quoting_once((text, _) in leak(), more in "\\PC{0,40}") {
            let once = quote(&format!("{text} {more}"));
            prop_assert_eq!(quote(&once), once);
        }

        #[test]
        fn a_value_that_was_sent_never_comes_back(
            value in "[!-~]{6,40}",
            noise in "[ -~]{0,600}",
            at in 0..600usize,
        ) {
            let headers = [("x-own".to_owned(), value.clone())];
            let at = at.min(noise.len());
            let said = format!("{}{value}{}", &noise[..at], &noise[at..]);
            for secret in secrets_of("https://a.test", &headers) {
                prop_assert!(!hide(&quote(&said), &secrets_of("https://a.test", &headers)).contains(&secret));
            }
        }
    }
}

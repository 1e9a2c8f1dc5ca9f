//! From method and path to what is asked (DESIGN.md section 6), for the Worker and for the object itself.

use std::borrow::Cow;

use thiserror::Error;

use crate::core::error::Code;
use crate::core::ids::{InvalidSessionId, RunId, SessionId, percent_encode};

/// What a producer outside does with its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Appends chunks.
    Chunks,
    /// Commits messages, state and cursor.
    Commit,
    /// Says that it is alive.
    Renew,
    /// Ends the run.
    End,
    /// Says that the run failed.
    Fail,
    /// Suspends the run.
    Pause,
    /// Asks what clients want of it.
    Control,
}

impl Deed {
    const ALL: [(Self, &'static str); 7] = [
        (Self::Chunks, "chunks"),
        (Self::Commit, "commit"),
        (Self::Renew, "renew"),
        (Self::End, "end"),
        (Self::Fail, "fail"),
        (Self::Pause, "pause"),
        (Self::Control, "control"),
    ];

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, known)| *known == name).map(|(deed, _)| deed)
    }

    fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(deed, _)| *deed == self).map_or("", |(_, name)| name)
    }

    fn method(self) -> &'static str {
        if self == Self::Control { "GET" } else { "POST" }
    }
}

/// What a request asks of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// A send, or an attach when it brings nothing new.
    Send,
    /// Resume by cursor.
    Attach,
    /// The stock AI SDK reconnect.
    Reconnect,
    /// The snapshot of the chat surface.
    ChatSnapshot,
    /// Stop the current run.
    Stop,
    /// One answer to a suspended run's call.
    ToolResult,
    /// The turn once more.
    Retry,
    /// Delete the session.
    Delete,
    /// Stream wire v2.
    Sse,
    /// The snapshot of the wire surface.
    WireSnapshot,
    /// The stream's own status.
    Info,
    /// Stored chunks in pages.
    Chunks,
    /// A producer outside opens a run, or claims one again.
    OpenRun,
    /// A producer outside writes this run.
    Run(RunId, Deed),
    /// Routes that exist only with `TEST_SEAMS=1`.
    Seam,
}

impl Call {
    /// What a call is answered that was lost on its way to the object or back. One that may have stored what a repeat would store again is
    /// not to be repeated (`spec/helix.md` 7.1), unless its request key makes that safe.
    pub fn when_lost(&self, keyed: bool) -> Code {
        match self {
            Self::Send if keyed => Code::TransportError,
            Self::Send | Self::ToolResult | Self::Retry => Code::FrameworkInternalError,
            _ => Code::TransportError,
        }
    }
}

/// Where a request goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// The page that says what the service is.
    Home,
    /// Whether the Worker serves.
    Health,
    /// A chat POST that names its session in the body.
    SendByBody,
    /// A session's own.
    Session(SessionId, Call),
}

/// Why a request goes nowhere.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum NoRoute {
    /// Nothing lives at this path.
    #[error("no such route")]
    NotFound,
    /// The path exists with another method.
    #[error("method not allowed")]
    Method,
    /// The session id in the path cannot be one.
    #[error(transparent)]
    Id(#[from] InvalidSessionId),
}

impl NoRoute {
    /// The code of the answer.
    pub fn code(self) -> Code {
        match self {
            Self::NotFound => Code::ValidationNotFound,
            Self::Method => Code::ValidationMethod,
            Self::Id(_) => Code::ValidationError,
        }
    }
}

/// Finds where a request to the Worker goes. `path` is still percent-encoded.
///
/// # Errors
/// [`NoRoute`].
pub fn resolve(method: &str, path: &str) -> Result<Route, NoRoute> {
    let mut segments = path.strip_prefix('/').unwrap_or(path).split('/');
    let parts: [Option<&str>; 6] = std::array::from_fn(|_| segments.next());
    if segments.next().is_some() {
        return Err(NoRoute::NotFound);
    }
    match parts {
        [Some(""), None, ..] => allow(without_body(method), "GET", Route::Home),
        [Some("health"), None, ..] => allow(without_body(method), "GET", Route::Health),
        [Some("api"), Some("chat"), None | Some(""), None, ..] => allow(method, "POST", Route::SendByBody),
        [Some("api"), Some("chat"), Some(id), first, second, None] => chat(method, id, [first, second]),
        [Some("sessions"), Some(id), Some("runs"), None, ..] => {
            allow(method, "POST", Route::Session(SessionId::from_path_segment(id)?, Call::OpenRun))
        }
        [Some("sessions"), Some(id), Some("runs"), Some(run), Some(deed), None] => {
            let session = SessionId::from_path_segment(id)?;
            let (call, allowed) = run_call(run, deed)?;
            allow(method, allowed, Route::Session(session, call))
        }
        [Some("sessions"), Some(id), Some(name), rest, None, None] => {
            let call = match (name, rest) {
                ("sse", None) => Call::Sse,
                ("snapshot", None) => Call::WireSnapshot,
                ("info", None) => Call::Info,
                ("chunks", None) => Call::Chunks,
                ("__seam", Some(_)) => return Ok(Route::Session(SessionId::from_path_segment(id)?, Call::Seam)),
                _ => return Err(NoRoute::NotFound),
            };
            allow(method, "GET", Route::Session(SessionId::from_path_segment(id)?, call))
        }
        _ => Err(NoRoute::NotFound),
    }
}

fn chat(method: &str, id: &str, rest: [Option<&str>; 2]) -> Result<Route, NoRoute> {
    let (call, allowed) = match rest {
        [None, None] => match method {
            "POST" => (Call::Send, "POST"),
            "DELETE" => (Call::Delete, "DELETE"),
            _ => (Call::Attach, "GET"),
        },
        [Some("stream"), None] => (Call::Reconnect, "GET"),
        [Some("snapshot"), None] => (Call::ChatSnapshot, "GET"),
        [Some("stop"), None] => (Call::Stop, "POST"),
        [Some("tool-result"), None] => (Call::ToolResult, "POST"),
        [Some("retry"), None] => (Call::Retry, "POST"),
        // A client whose `api` is already `/api/chat/:id` appends its chat id once more.
        [Some(again), Some("stream")] if again == id => (Call::Reconnect, "GET"),
        _ => return Err(NoRoute::NotFound),
    };
    allow(method, allowed, Route::Session(SessionId::from_path_segment(id)?, call))
}

/// A run's id is written in a path as a session's is.
fn run_call(run: &str, deed: &str) -> Result<(Call, &'static str), NoRoute> {
    let deed = Deed::named(deed).ok_or(NoRoute::NotFound)?;
    let run = SessionId::from_path_segment(run)?;
    Ok((Call::Run(RunId::new(run.as_str()), deed), deed.method()))
}

/// Monitors ask with HEAD; the runtime leaves the body out by itself.
fn without_body(method: &str) -> &str {
    if method == "HEAD" { "GET" } else { method }
}

fn allow(method: &str, allowed: &str, route: Route) -> Result<Route, NoRoute> {
    if method == allowed { Ok(route) } else { Err(NoRoute::Method) }
}

impl Call {
    /// Whether it is one of the chat surface.
    pub fn is_chat(&self) -> bool {
        match self {
            Self::Send | Self::Attach | Self::Reconnect | Self::ChatSnapshot => true,
            Self::Stop | Self::ToolResult | Self::Retry | Self::Delete => true,
            Self::Sse | Self::WireSnapshot | Self::Info | Self::Chunks => false,
            Self::OpenRun | Self::Run(..) | Self::Seam => false,
        }
    }

    /// The path at which the object itself serves this call.
    pub fn object_path(&self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::Run(run, deed) => {
                return Cow::Owned(format!("/runs/{}/{}", percent_encode(run.as_str()), deed.name()));
            }
            Self::Send | Self::Attach | Self::Delete => "/chat",
            Self::Reconnect => "/chat/stream",
            Self::ChatSnapshot => "/chat/snapshot",
            Self::Stop => "/chat/stop",
            Self::ToolResult => "/chat/tool-result",
            Self::Retry => "/chat/retry",
            Self::Sse => "/sse",
            Self::WireSnapshot => "/snapshot",
            Self::Info => "/info",
            Self::Chunks => "/chunks",
            Self::OpenRun => "/runs",
            Self::Seam => "/__seam",
        })
    }

    /// What a request to the object asks.
    ///
    /// # Errors
    /// [`NoRoute`].
    pub fn of_object(method: &str, path: &str) -> Result<Self, NoRoute> {
        let mut segments = path.split('/').skip(1);
        if let (Some("runs"), Some(run), Some(deed), None) =
            (segments.next(), segments.next(), segments.next(), segments.next())
        {
            let (call, allowed) = run_call(run, deed)?;
            return if method == allowed { Ok(call) } else { Err(NoRoute::Method) };
        }
        let (call, allowed) = match (path, method) {
            ("/runs", _) => (Self::OpenRun, "POST"),
            ("/chat", "POST") => (Self::Send, "POST"),
            ("/chat", "DELETE") => (Self::Delete, "DELETE"),
            ("/chat", _) => (Self::Attach, "GET"),
            ("/chat/stream", _) => (Self::Reconnect, "GET"),
            ("/chat/snapshot", _) => (Self::ChatSnapshot, "GET"),
            ("/chat/stop", _) => (Self::Stop, "POST"),
            ("/chat/tool-result", _) => (Self::ToolResult, "POST"),
            ("/chat/retry", _) => (Self::Retry, "POST"),
            ("/sse", _) => (Self::Sse, "GET"),
            ("/snapshot", _) => (Self::WireSnapshot, "GET"),
            ("/info", _) => (Self::Info, "GET"),
            ("/chunks", _) => (Self::Chunks, "GET"),
            ("/__seam", _) => (Self::Seam, method),
            _ => return Err(NoRoute::NotFound),
        };
        if method == allowed { Ok(call) } else { Err(NoRoute::Method) }
    }
}

/// Scheme and host of an absolute URL.
pub fn origin(url: &str) -> &str {
    let host = url.find("://").map_or(0, |at| at.saturating_add(3));
    let end = url.get(host..).and_then(|rest| rest.find(['/', '?', '#'])).map(|at| at.saturating_add(host));
    end.and_then(|end| url.get(..end)).unwrap_or(url)
}

/// Splits an absolute URL into its encoded path and its query, without a parser: a runtime has already accepted the URL.
pub fn path_and_query(url: &str) -> (&str, &str) {
    let after_scheme = url.split_once("://").map_or(url, |(_, rest)| rest);
    let path = after_scheme.find('/').and_then(|at| after_scheme.get(at..)).unwrap_or("/");
    let path = path.split('#').next().unwrap_or("/");
    path.split_once('?').unwrap_or((path, ""))
}

/// The first value of a query parameter, decoded.
pub fn query_value(query: &str, name: &str) -> Option<String> {
    query.split('&').find_map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        if key != name {
            return None;
        }
        Some(crate::core::ids::percent_decode(&value.replace('+', " ")).unwrap_or_else(|| value.to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(id: &str, call: Call) -> Result<Route, NoRoute> {
        Ok(Route::Session(SessionId::parse(id).unwrap(), call))
    }

    #[test]
    fn a_lost_call_is_to_be_repeated_only_where_that_stores_nothing_twice() {
        for call in [Call::Send, Call::ToolResult, Call::Retry] {
            assert_eq!(call.when_lost(false).status(), 500, "{call:?}");
        }
        assert_eq!(Call::ToolResult.when_lost(true).status(), 500);
        for (call, keyed) in [(Call::Send, true), (Call::Attach, false), (Call::Stop, false), (Call::Delete, false)] {
            assert_eq!((call.when_lost(keyed).status(), call.when_lost(keyed).retryable()), (503, true), "{call:?}");
        }
    }

    #[test]
    fn every_route_of_the_design() {
        assert_eq!(resolve("GET", "/"), Ok(Route::Home));
        assert_eq!(resolve("GET", "/health"), Ok(Route::Health));
        assert_eq!(resolve("HEAD", "/health"), Ok(Route::Health));
        assert_eq!(resolve("POST", "/api/chat"), Ok(Route::SendByBody));
        assert_eq!(resolve("POST", "/api/chat/s1"), session("s1", Call::Send));
        assert_eq!(resolve("GET", "/api/chat/s1"), session("s1", Call::Attach));
        assert_eq!(resolve("DELETE", "/api/chat/s1"), session("s1", Call::Delete));
        assert_eq!(resolve("GET", "/api/chat/s1/stream"), session("s1", Call::Reconnect));
        assert_eq!(resolve("GET", "/api/chat/s1/s1/stream"), session("s1", Call::Reconnect));
        assert_eq!(resolve("GET", "/api/chat/stream/stream"), session("stream", Call::Reconnect));
        assert_eq!(resolve("GET", "/api/chat/s%201/snapshot"), session("s 1", Call::ChatSnapshot));
        assert_eq!(resolve("POST", "/api/chat/s1/stop"), session("s1", Call::Stop));
        assert_eq!(resolve("GET", "/sessions/s1/sse"), session("s1", Call::Sse));
        assert_eq!(resolve("GET", "/sessions/s1/snapshot"), session("s1", Call::WireSnapshot));
        assert_eq!(resolve("GET", "/sessions/s1/info"), session("s1", Call::Info));
        assert_eq!(resolve("GET", "/sessions/s1/chunks"), session("s1", Call::Chunks));
    }

    #[test]
    fn what_is_not_a_route_says_why() {
        assert_eq!(resolve("GET", "/api/chat"), Err(NoRoute::Method));
        assert_eq!(resolve("PUT", "/api/chat/s1"), Err(NoRoute::Method));
        assert_eq!(resolve("POST", "/sessions/s1/sse"), Err(NoRoute::Method));
        assert_eq!(resolve("GET", "/nowhere"), Err(NoRoute::NotFound));
        assert_eq!(resolve("GET", "/api/chat/a/b/stream"), Err(NoRoute::NotFound));
        assert_eq!(resolve("GET", "/a/b/c/d/e/f"), Err(NoRoute::NotFound));
        assert_eq!(resolve("GET", "/sessions/%2e%2e/info"), Err(NoRoute::Id(InvalidSessionId::Dots)));
    }

    #[test]
    fn the_object_serves_the_same_calls() {
        for (method, call) in
            [("POST", Call::Send), ("GET", Call::Attach), ("DELETE", Call::Delete), ("GET", Call::Sse)]
        {
            assert_eq!(Call::of_object(method, &call.object_path()), Ok(call));
        }
        let run = RunId::new("a run::é");
        let call = Call::Run(run, Deed::Chunks);
        assert_eq!(call.object_path(), "/runs/a%20run%3A%3A%C3%A9/chunks");
        assert_eq!(Call::of_object("POST", &call.object_path()), Ok(call.clone()));
        assert_eq!(Call::of_object("GET", &call.object_path()), Err(NoRoute::Method));
        let session = SessionId::parse("s").unwrap();
        assert_eq!(
            resolve("POST", "/sessions/s/runs/a%20run::%C3%A9/chunks"),
            Ok(Route::Session(session.clone(), call))
        );
        assert_eq!(resolve("POST", "/sessions/s/runs"), Ok(Route::Session(session, Call::OpenRun)));
        assert_eq!(resolve("POST", "/sessions/s/runs/r/sing"), Err(NoRoute::NotFound));
        assert_eq!(resolve("GET", "/sessions/s/runs/r/commit"), Err(NoRoute::Method));
        assert_eq!(Call::of_object("POST", "/sse"), Err(NoRoute::Method));
    }

    #[test]
    fn urls_are_split_by_hand() {
        assert_eq!(path_and_query("http://h:1/a%20b?x=1&y"), ("/a%20b", "x=1&y"));
        assert_eq!(path_and_query("https://h"), ("/", ""));
        assert_eq!((origin("http://h:1/a?b"), origin("https://h")), ("http://h:1", "https://h"));
        assert_eq!(query_value("a=1&seed=1&b=%20x", "b").as_deref(), Some(" x"));
        assert_eq!(query_value("seed", "seed").as_deref(), Some(""));
        assert_eq!(query_value("unseed=1", "seed"), None);
    }
}

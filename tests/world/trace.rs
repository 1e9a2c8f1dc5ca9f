//! What happened in one schedule, in words; nothing is written unless somebody will read it.

use std::fmt::Debug;

use rejoin::core::engine::action::Action;
use rejoin::core::engine::event::{BodyNews, Event, FetchNews};
use rejoin::core::engine::ids::Exchange;
use rejoin::core::time::UnixMillis;

use crate::network::News;

/// The lines so far.
#[derive(Debug, Default)]
pub struct Trace {
    lines: Option<Vec<String>>,
}

impl Trace {
    /// One that is written.
    pub fn written() -> Self {
        Self { lines: Some(Vec::new()) }
    }

    /// Notes what happens at a moment.
    pub fn note(&mut self, now: UnixMillis, what: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{:>8}  {}", now.get(), what()));
        }
    }

    /// All of it.
    pub fn text(&self) -> String {
        self.lines.as_deref().unwrap_or_default().join("\n")
    }
}

/// Bytes as somebody can read them.
pub fn bytes(bytes: &[u8]) -> String {
    const SHOWN: usize = 120;
    let text = bytes[..bytes.len().min(SHOWN)].escape_ascii();
    if bytes.len() > SHOWN { format!("\"{text}\"… {} bytes", bytes.len()) } else { format!("\"{text}\"") }
}

/// An event on one line.
pub fn event<C: Debug>(event: &Event<C>) -> String {
    match event {
        Event::Asked { exchange, ask } => format!("asked #{}: {:?}", exchange.get(), ask.call),
        Event::Body { exchange, news: BodyNews::Bytes(piece) } => format!("body #{}: {}", exchange.get(), bytes(piece)),
        Event::Body { exchange, news } => format!("body #{}: {news:?}", exchange.get()),
        Event::Left(exchange) => format!("left #{}", exchange.get()),
        Event::Room(exchange) => format!("room #{}", exchange.get()),
        Event::Full(exchanges) => format!("full {}", names(exchanges)),
        Event::Durable(ticket) => format!("durable {}", ticket.get()),
        Event::Fetched { fetch, news: FetchNews::Bytes(piece) } => format!("call {}: {}", fetch.get(), bytes(piece)),
        Event::Fetched { fetch, news } => format!("call {}: {news:?}", fetch.get()),
        event => format!("{event:?}"),
    }
}

/// An action on one line.
pub fn action(action: &Action) -> String {
    match action {
        Action::Arm(at) => format!("arm for {}", at.get()),
        Action::Timer(at) => format!("timer for {}", at.get()),
        Action::Sync(ticket) => format!("sync {}", ticket.get()),
        Action::Open { exchange, head, .. } => format!("open #{} with {}", exchange.get(), head.status),
        Action::Give { to, bytes: piece, .. } => format!("give {}: {}", names(to), bytes(piece)),
        Action::Close(exchange) => format!("close #{}", exchange.get()),
        Action::Break(exchange) => format!("break #{}", exchange.get()),
        Action::Answer { exchange, answer, .. } => {
            format!("answer #{} with {}: {}", exchange.get(), answer.status, bytes(&answer.body))
        }
        Action::Take { exchange, want } => format!("take #{}: {want:?}", exchange.get()),
        Action::Fetch { fetch, call } => format!("call {}: {call:?}", fetch.get()),
        Action::ReadOn(fetch) => format!("read on of call {}", fetch.get()),
        Action::Abort(fetch) => format!("abort call {}", fetch.get()),
        Action::Log(level, line) => format!("log {level:?}: {line}"),
        action => format!("{action:?}"),
    }
}

/// What a client sees, on one line.
pub fn news(news: &News) -> String {
    match news {
        News::Head { status, .. } => format!("head {status}"),
        News::Bytes(piece) => bytes(piece),
        News::End => "a clean end".into(),
        News::Broke => "a broken connection".into(),
    }
}

fn names(exchanges: &[Exchange]) -> String {
    exchanges.iter().map(|exchange| format!("#{}", exchange.get())).collect::<Vec<_>>().join(" ")
}

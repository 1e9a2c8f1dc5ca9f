//! One open response: what it begins with, where it stands, and how it ends.

use std::rc::Rc;

use serde_json::{Value, json};

use crate::core::engine::action::Head;
use crate::core::error::Code;
use crate::core::ids::Cursor;
use crate::core::pace::Pace;
use crate::core::reader::{Eviction, Reader, Scope, Terminal};
use crate::core::time::{Millis, UnixMillis};
use crate::core::view::View;
use crate::dialect::helix::projector::Projector;
use crate::dialect::ui::lead::Lead;
use crate::dialect::ui::lens::Lens;

/// The language of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// Stream wire v2.
    Wire,
    /// AI SDK and Helix chat.
    Chat,
}

impl Dialect {
    fn name(self) -> &'static str {
        match self {
            Self::Wire => "wire",
            Self::Chat => "chat",
        }
    }

    /// The head of an event stream. Proxies must neither compress nor buffer it (`spec/ai-sdk.md` A.9).
    pub fn head(self) -> Head {
        let mut headers = vec![
            ("content-type", "text/event-stream".into()),
            ("cache-control", "no-cache, no-transform".into()),
            ("x-accel-buffering", "no".into()),
        ];
        if self == Self::Chat {
            headers.push(("connection", "keep-alive".into()));
            headers.push(("x-vercel-ai-ui-message-stream", "v1".into()));
        }
        Head { status: 200, headers }
    }
}

/// One open response.
#[derive(Debug)]
pub struct Open {
    /// Its place in the log.
    pub reader: Reader,
    /// How well it keeps up.
    pub pace: Pace,
    /// Its language.
    pub dialect: Dialect,
    /// What a chat response shows of the log.
    pub lens: Rc<Lens>,
    /// What a run of Helix chunks has said so far, for a chat response that follows one.
    pub projector: Option<Box<Projector>>,
    /// Whether the run's `finish` was sent.
    pub finish_sent: bool,
    /// Whether content was sent, which a stock client would show twice.
    pub content_sent: bool,
    /// What it has not said yet, until its reply has begun.
    pub lead: Option<Lead>,
    /// When it was last given a byte.
    pub written: UnixMillis,
    /// When its wait for a run ends, if it waits.
    pub parked_until: Option<UnixMillis>,
    /// Whether it takes more, as far as was told.
    pub room: bool,
    /// Whether there was more for it than it had room for when it was looked at last.
    pub wants: bool,
    /// What it begins with, until that has left.
    unsent: Option<Unsent>,
    from: Cursor,
    chunks: u64,
    bytes: u64,
}

/// A head that has not left, with the first bytes behind it.
#[derive(Debug)]
struct Unsent {
    prefix: Vec<u8>,
    /// Whether it waits for [`lets_go`](super::readers::Readers::lets_go).
    held: bool,
}

impl Open {
    /// The response was given a slice of the log, which became so many bytes in its dialect.
    pub fn gave(&mut self, now: UnixMillis, through: Cursor, log_bytes: usize, bytes: usize) {
        let live = self.reader.is_live();
        self.chunks = self.chunks.saturating_add(through.get().saturating_sub(self.reader.cursor().get()));
        self.bytes = self.bytes.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
        self.reader.took(through);
        self.pace.took(log_bytes, live);
        self.written = now;
    }

    /// Whether it can go on with another run than it began with: its client understands that, or has not seen anything yet.
    pub fn may_move_on(&self) -> bool {
        self.lens.aware || !self.content_sent
    }

    /// Whether it must keep the log's pace.
    pub fn is_held_to_log(&self) -> bool {
        self.dialect == Dialect::Wire && self.reader.is_live()
    }

    /// Whether its head has not left.
    pub fn is_unsent(&self) -> bool {
        self.unsent.is_some()
    }

    /// Whether its head waits for a word of its caller.
    pub fn is_held(&self) -> bool {
        self.unsent.as_ref().is_some_and(|unsent| unsent.held)
    }

    /// Its head may leave; `false` when it has.
    pub fn lets_go(&mut self) -> bool {
        self.unsent.as_mut().is_some_and(|unsent| std::mem::replace(&mut unsent.held, false))
    }

    /// The first bytes, with which its head leaves; `None` when it has.
    pub fn take_prefix(&mut self) -> Option<Vec<u8>> {
        Some(self.unsent.take()?.prefix)
    }

    /// What the operator is told of its end.
    pub fn closing_line(&self, session: &str, ending: Ending, now: UnixMillis) -> Value {
        let run = match self.reader.scope() {
            Scope::Run(run) => Some(run.as_str()),
            Scope::Stream => None,
        };
        json!({
            "event": "response_closed",
            "session": session,
            "dialect": self.dialect.name(),
            "run": run,
            "ending": ending.words(),
            "from": self.from,
            "through": self.reader.cursor(),
            "chunks": self.chunks,
            "bytes": self.bytes,
            "ms": now.since(self.pace.opened()),
        })
    }
}

/// What a response begins with.
#[derive(Debug)]
pub struct Opening {
    /// Its language.
    pub dialect: Dialect,
    /// Its place in the log.
    pub reader: Reader,
    /// What it shows.
    pub lens: Lens,
    /// For a chat response that follows Helix chunks.
    pub projector: Option<Box<Projector>>,
    /// Sent at once.
    pub prefix: Vec<u8>,
    /// Whether the prefix holds the run's `finish`.
    pub finish_sent: bool,
    /// Whether the prefix holds content.
    pub content_sent: bool,
    /// Whether frames that only open a reply wait for what they open.
    pub holds_lead: bool,
    /// Whether its head waits for [`lets_go`](super::readers::Readers::lets_go).
    pub held: bool,
}

impl Opening {
    /// The response, which begins now; `live_wait` is how long it waits for a run if it waits for one.
    pub fn begin(self, now: UnixMillis, view: &View, live_wait: Millis) -> Open {
        let from = self.reader.cursor();
        let parked = self.reader.is_parked(view);
        Open {
            reader: self.reader,
            pace: Pace::new(now, view),
            dialect: self.dialect,
            lens: Rc::new(self.lens),
            projector: self.projector,
            finish_sent: self.finish_sent,
            content_sent: self.content_sent,
            lead: self.holds_lead.then(Lead::default),
            written: now,
            parked_until: parked.then(|| now.after(live_wait)),
            room: false,
            wants: false,
            unsent: Some(Unsent { prefix: self.prefix, held: self.held }),
            from,
            chunks: 0,
            bytes: 0,
        }
    }
}

/// How a response ended, for its log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With its dialect's terminal.
    Terminal(Terminal),
    /// On purpose.
    Evicted(Eviction),
    /// Its client has left.
    Gone,
    /// With the session, which was deleted.
    Deleted,
}

impl Ending {
    /// What a client is told instead of a body that breaks before its first byte.
    pub fn instead_of_body(self) -> Code {
        match self {
            Self::Terminal(Terminal::Superseded) => Code::StateRunSuperseded,
            Self::Evicted(Eviction::ServerError) => Code::FrameworkInternalError,
            Self::Deleted => Code::StateSessionNotFound,
            Self::Terminal(_) | Self::Evicted(_) | Self::Gone => Code::TransportStreamDrop,
        }
    }

    fn words(self) -> String {
        match self {
            Self::Terminal(Terminal::Completed) => "completed".to_owned(),
            Self::Terminal(Terminal::Paused) => "paused".to_owned(),
            Self::Terminal(Terminal::Interrupted) => "interrupted".to_owned(),
            Self::Terminal(Terminal::Failed(code)) => format!("failed:{}", code.as_str()),
            Self::Terminal(Terminal::Dropped) => "dropped".to_owned(),
            Self::Terminal(Terminal::Superseded) => "superseded".to_owned(),
            Self::Terminal(Terminal::NotLive) => "not_live".to_owned(),
            Self::Terminal(Terminal::Truncated(_)) => "truncated".to_owned(),
            Self::Evicted(reason) => format!("evicted:{}", reason.as_str()),
            Self::Gone => "gone".to_owned(),
            Self::Deleted => "deleted".to_owned(),
        }
    }
}

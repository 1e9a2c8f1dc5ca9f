//! Open responses: the registry, how one is opened, and how it is closed. [`super::drain`] feeds them, [`super::watch`] looks after them.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use js_sys::Uint8Array;
use serde_json::json;
use wasm_bindgen::JsValue;
use web_sys::{AbortSignal, ReadableStream};
use worker::console_error;

use super::body::{self, Body};
use super::clock::now;
use super::host::{Host, HostError};
use crate::core::counters::add;
use crate::core::error::Code;
use crate::core::ids::{Cursor, RunId};
use crate::core::pace::Pace;
use crate::core::reader::{Eviction, Reader, Scope, Terminal};
use crate::core::time::UnixMillis;
use crate::dialect::helix::projector::Projector;
use crate::dialect::ui::attempts::Attempts;
use crate::dialect::ui::lead::Lead;
use crate::dialect::ui::lens::Lens;
use crate::dialect::wire;

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
}

/// One open response.
pub struct Open {
    pub reader: Reader,
    pub pace: Pace,
    pub dialect: Dialect,
    pub body: Body,
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
    from: Cursor,
    chunks: u64,
    bytes: u64,
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
}

/// What a response begins with.
pub struct Opening<'a> {
    pub dialect: Dialect,
    pub reader: Reader,
    pub lens: Lens,
    /// For a chat response that follows Helix chunks.
    pub projector: Option<Box<Projector>>,
    /// Sent at once.
    pub prefix: &'a [u8],
    /// Whether the prefix holds the run's `finish`.
    pub finish_sent: bool,
    /// Whether the prefix holds content.
    pub content_sent: bool,
    /// Whether frames that only open a reply wait for what they open.
    pub holds_lead: bool,
}

/// How a response ended, for its log line.
#[derive(Clone, Copy, Debug)]
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
    /// What a chat client is told instead of a body that breaks before its first byte; `None` for an ending that a body can say.
    fn broken(self) -> Option<Code> {
        match self {
            Self::Terminal(Terminal::Superseded) => Some(Code::StateRunSuperseded),
            Self::Terminal(Terminal::Dropped | Terminal::NotLive | Terminal::Truncated(_)) => {
                Some(Code::TransportStreamDrop)
            }
            Self::Evicted(Eviction::ServerError) => Some(Code::FrameworkInternalError),
            Self::Evicted(_) => Some(Code::TransportStreamDrop),
            Self::Deleted => Some(Code::StateSessionNotFound),
            Self::Terminal(_) | Self::Gone => None,
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

/// The open responses of one object.
#[derive(Default)]
pub struct Readers {
    open: RefCell<BTreeMap<u64, Open>>,
    next: Cell<u64>,
    /// Readers that asked for more while there was more; the next drain is theirs.
    pub(super) asking: RefCell<BTreeSet<u64>>,
    pub(super) draining: Cell<bool>,
    /// Responses whose head has not left yet, and how those of them ended that broke meanwhile.
    unsent: RefCell<BTreeMap<u64, (ReadableStream, Option<Ending>)>>,
    pub(super) watching: Cell<bool>,
}

impl Readers {
    /// Whether nobody follows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Open responses now.
    pub fn len(&self) -> usize {
        self.open.try_borrow().map_or(0, |open| open.len())
    }

    /// Looks at one response. `look` must not call into JavaScript.
    pub fn look<T>(&self, id: u64, look: impl FnOnce(&Open) -> T) -> Option<T> {
        self.open.try_borrow().ok()?.get(&id).map(look)
    }

    /// Changes one response. `change` must not call into JavaScript.
    pub fn change<T>(&self, id: u64, change: impl FnOnce(&mut Open) -> T) -> Option<T> {
        self.open.try_borrow_mut().ok()?.get_mut(&id).map(change)
    }

    /// Changes the named responses under one borrow, and gives what `change` makes of them. `change` must not call into JavaScript.
    pub fn change_each<T>(&self, ids: &[u64], mut change: impl FnMut(u64, &mut Open) -> Option<T>) -> Vec<T> {
        let Ok(mut open) = self.open.try_borrow_mut() else { return Vec::new() };
        ids.iter().filter_map(|id| open.get_mut(id).and_then(|open| change(*id, open))).collect()
    }

    /// All responses, in the order in which they came.
    pub fn ids(&self) -> Vec<u64> {
        self.open.try_borrow().map(|open| open.keys().copied().collect()).unwrap_or_default()
    }

    /// What `pick` makes of each response.
    pub fn each<T>(&self, mut pick: impl FnMut(u64, &Open) -> Option<T>) -> Vec<T> {
        let Ok(open) = self.open.try_borrow() else { return Vec::new() };
        open.iter().filter_map(|(id, open)| pick(*id, open)).collect()
    }
}

impl Host {
    /// Opens the response of a reader.
    pub fn open_reader(
        self: &Rc<Self>,
        signal: Option<AbortSignal>,
        opening: Opening<'_>,
    ) -> Result<ReadableStream, ReaderError> {
        let Opening { dialect, reader, lens, projector, prefix, finish_sent, content_sent, holds_lead } = opening;
        let id = self.readers.next.get();
        self.readers.next.set(id.wrapping_add(1));
        let left_already = signal.as_ref().is_some_and(AbortSignal::aborted);
        let now = now();
        let (parked, pace) =
            self.session(|session| (reader.is_parked(session.view()), Pace::new(now, session.view())))?;
        let wants = Rc::downgrade(self);
        let leaves = Rc::downgrade(self);
        let (stream, body) = body::open(
            signal,
            move || {
                if let Some(host) = wants.upgrade() {
                    host.asks(id);
                }
            },
            move || {
                if let Some(host) = leaves.upgrade() {
                    let gone = Rc::clone(&host);
                    host.spawn(async move { gone.close_reader(id, Ending::Gone) });
                }
            },
        )
        .map_err(ReaderError::Stream)?;
        body.pen().write(&Uint8Array::from(prefix));
        let from = reader.cursor();
        let open = Open {
            reader,
            pace,
            dialect,
            body,
            lens: Rc::new(lens),
            projector,
            finish_sent,
            content_sent,
            lead: holds_lead.then(Lead::default),
            written: now,
            parked_until: parked.then(|| now.after(self.config.settings.live_wait)),
            from,
            chunks: 0,
            bytes: 0,
        };
        self.readers.open.try_borrow_mut().map_err(|_| HostError::Busy)?.insert(id, open);
        self.count(|counters| {
            add(&mut counters.opened, 1);
            add(&mut counters.resumed, u64::from(from > Cursor::START));
            counters.readers.set(self.readers.len());
        });
        self.make_room(id);
        self.followers_changed();
        self.watch_readers();
        self.asks(id);
        if left_already {
            // An abort that came before the listener was there is never reported again.
            self.close_reader(id, Ending::Gone);
        }
        // A run that nobody followed may have waited longer than a followed one does.
        self.pump_soon();
        if let Ok(mut unsent) = self.readers.unsent.try_borrow_mut() {
            let ended = self.readers.look(id, |_| ()).is_none().then_some(Ending::Gone);
            unsent.insert(id, (stream.clone(), ended));
        }
        Ok(stream)
    }

    /// The head of this response is about to leave: why its body is broken already, if it is.
    pub fn sends(&self, stream: &ReadableStream) -> Option<Code> {
        let mut unsent = self.readers.unsent.try_borrow_mut().ok()?;
        let id = unsent.iter().find(|(_, (one, _))| one == stream).map(|(id, _)| *id)?;
        let (_, ended) = unsent.remove(&id)?;
        // Those that were never sent are forgotten with their reader.
        unsent.retain(|_, (_, ended)| ended.is_none());
        ended?.broken()
    }

    /// In a turn of its own: a response may end from within a write.
    fn followers_changed(self: &Rc<Self>) {
        if self.config.settings.detached.is_none() {
            return;
        }
        let host = Rc::clone(self);
        self.spawn(async move {
            if let Err(error) = host.note_followers() {
                console_error!("session {}: {error}", host.log_name);
            }
        });
    }

    /// Over the cap the newcomer stays; the one furthest behind leaves, the oldest of several.
    fn make_room(self: &Rc<Self>, newcomer: u64) {
        while self.readers.len() > self.config.settings.max_readers {
            let others = self.readers.each(|id, open| (id != newcomer).then(|| (open.reader.cursor(), id)));
            let Some((_, id)) = others.into_iter().min() else { return };
            self.evict(id, Eviction::ConnectionCap);
        }
    }

    /// Forgets a response, whether or not its socket ever reads what is still on its way.
    pub fn close_reader(self: &Rc<Self>, id: u64, ending: Ending) {
        let closed = self.readers.open.try_borrow_mut().ok().and_then(|mut open| open.remove(&id));
        let Some(closed) = closed else { return };
        // On the wire every ending is a frame, which must not be lost with its head.
        if closed.dialect == Dialect::Chat
            && let Ok(mut unsent) = self.readers.unsent.try_borrow_mut()
            && let Some((_, ended)) = unsent.get_mut(&id)
        {
            *ended = Some(ending);
        }
        self.count(|counters| {
            counters.readers.set(self.readers.len());
            match ending {
                Ending::Evicted(reason) => counters.evicted.add(reason),
                Ending::Terminal(Terminal::Truncated(_)) => add(&mut counters.truncated, 1),
                _ => {}
            }
        });
        if self.readers.is_empty() {
            self.followers_changed();
        }
        let run = match closed.reader.scope() {
            Scope::Run(run) => Some(run.as_str()),
            Scope::Stream => None,
        };
        self.log(&json!({
            "event": "response_closed",
            "session": self.log_name,
            "dialect": closed.dialect.name(),
            "run": run,
            "ending": ending.words(),
            "from": closed.from,
            "through": closed.reader.cursor(),
            "chunks": closed.chunks,
            "bytes": closed.bytes,
            "ms": now().since(closed.pace.opened()),
        }));
    }

    /// Ends a response on purpose: the wire says why and where to go on, every other dialect's body breaks.
    pub fn evict(self: &Rc<Self>, id: u64, reason: Eviction) {
        let Some((dialect, pen, cursor)) =
            self.readers.look(id, |open| (open.dialect, open.body.pen(), open.reader.cursor()))
        else {
            return;
        };
        self.close_reader(id, Ending::Evicted(reason));
        match dialect {
            Dialect::Wire => {
                pen.write(&Uint8Array::from(wire::evicted(cursor, reason).as_slice()));
                pen.close();
            }
            Dialect::Chat => pen.break_off(),
        }
    }

    /// The attempts of a run are not what they were: its responses leave out what does not count any more. A stock one that has sent
    /// some of it breaks, because its client would show it twice (DESIGN.md invariant 12).
    pub fn readers_learn(self: &Rc<Self>, run: &RunId, attempts: &Attempts) {
        let follows = |open: &Open| open.dialect == Dialect::Chat && *open.reader.scope() == Scope::Run(run.clone());
        let followers = self.readers.each(|id, open| follows(open).then_some(id));
        for id in followers {
            let told = self.readers.change(id, |open| {
                let mut lens = Lens::clone(&open.lens);
                let taken_back = lens.follow(attempts, open.reader.cursor());
                open.lens = Rc::new(lens);
                taken_back && !open.lens.aware
            });
            if told == Some(true) {
                self.break_reader(id, Ending::Terminal(Terminal::Superseded));
            }
        }
    }

    /// Breaks a response's body.
    pub fn break_reader(self: &Rc<Self>, id: u64, ending: Ending) {
        let pen = self.readers.look(id, |open| open.body.pen());
        self.close_reader(id, ending);
        if let Some(pen) = pen {
            pen.break_off();
        }
    }

    /// Ends every response because of a fault of the service.
    pub fn evict_all(self: &Rc<Self>) {
        for id in self.readers.ids() {
            self.evict(id, Eviction::ServerError);
        }
    }

    /// Ends every response, because what it followed is gone: the wire says that it saw no end, every other dialect's body breaks.
    pub fn part_with_readers(self: &Rc<Self>) {
        for id in self.readers.ids() {
            let Some((dialect, pen)) = self.readers.look(id, |open| (open.dialect, open.body.pen())) else { continue };
            self.close_reader(id, Ending::Deleted);
            match dialect {
                Dialect::Wire => {
                    pen.write(&Uint8Array::from(wire::terminal(Terminal::Dropped).as_slice()));
                    pen.close();
                }
                Dialect::Chat => pen.break_off(),
            }
        }
    }
}

/// Why a response did not open.
#[derive(Debug)]
pub enum ReaderError {
    Host(HostError),
    Stream(JsValue),
}

impl From<HostError> for ReaderError {
    fn from(error: HostError) -> Self {
        Self::Host(error)
    }
}

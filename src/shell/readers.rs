//! Open responses: one registry, one drain, one heartbeat for all of them.
//!
//! The drain decides with the borrows held, drops them, and only then writes, because a write may call back into the object. A buffer is
//! encoded once and shared by all readers of the same dialect that stand at the same cursor.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use js_sys::Uint8Array;
use wasm_bindgen::JsValue;
use web_sys::{AbortSignal, ReadableStream};
use worker::console_error;

use super::body::{self, Body, Pen};
use super::clock::{now, sleep};
use super::host::{Host, HostError};
use crate::core::ids::Cursor;
use crate::core::log::Batch;
use crate::core::reader::{Next, Reader, Terminal};
use crate::core::storage::{Storage, StorageError};
use crate::core::time::{Millis, UnixMillis};
use crate::dialect::ui::lens::Lens;
use crate::dialect::ui::response as chat;
use crate::dialect::wire;

/// Bytes that a reader is given in one go.
const SLICE_BYTES: usize = 256 * 1024;

/// The language of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// Stream wire v2.
    Wire,
    /// AI SDK and Helix chat.
    Chat,
}

struct Open {
    reader: Reader,
    dialect: Dialect,
    body: Body,
    finish_sent: bool,
    written: UnixMillis,
}

/// The open responses of one object.
#[derive(Default)]
pub struct Readers {
    open: RefCell<BTreeMap<u64, Open>>,
    next: Cell<u64>,
    /// Readers that asked for more while there was more; the next drain is theirs.
    asking: RefCell<BTreeSet<u64>>,
    draining: Cell<bool>,
    beating: Cell<bool>,
}

/// What one reader does next, decided while the borrows were held.
struct Step {
    pen: Rc<Pen>,
    dialect: Dialect,
    next: Next,
    hungry: bool,
    finish_sent: bool,
}

/// A slice of the log in one dialect, encoded once.
struct Slice {
    bytes: Option<Uint8Array>,
    through: Cursor,
    finish: bool,
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

    /// Breaks every body: clients come back with their cursors.
    pub fn break_all(&self) {
        let all = self.open.try_borrow_mut().map(|mut open| std::mem::take(&mut *open)).unwrap_or_default();
        for open in all.values() {
            open.body.pen().break_off();
        }
    }

    fn remove(&self, id: u64) {
        let gone = self.open.try_borrow_mut().ok().and_then(|mut open| open.remove(&id));
        drop(gone);
    }

    fn change(&self, id: u64, change: impl FnOnce(&mut Open)) {
        if let Ok(mut open) = self.open.try_borrow_mut()
            && let Some(entry) = open.get_mut(&id)
        {
            change(entry);
        }
    }

    fn ids(&self) -> Vec<u64> {
        self.open.try_borrow().map(|open| open.keys().copied().collect()).unwrap_or_default()
    }
}

impl Host {
    /// Opens the response of a reader. `prefix` is sent at once; `finish_sent` when it holds the run's `finish`.
    pub fn open_reader(
        self: &Rc<Self>,
        signal: Option<AbortSignal>,
        dialect: Dialect,
        reader: Reader,
        prefix: &[u8],
        finish_sent: bool,
    ) -> Result<ReadableStream, ReaderError> {
        let id = self.readers.next.get();
        self.readers.next.set(id.wrapping_add(1));
        let left_already = signal.as_ref().is_some_and(AbortSignal::aborted);
        let parked = self.session(|session| reader.is_parked(session.view()))?;
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
                    host.spawn(async move { gone.readers.remove(id) });
                }
            },
        )
        .map_err(ReaderError::Stream)?;
        body.pen().write(&Uint8Array::from(prefix));
        let open = Open { reader, dialect, body, finish_sent, written: now() };
        self.readers.open.try_borrow_mut().map_err(|_| HostError::Busy)?.insert(id, open);
        self.beat_soon();
        self.asks(id);
        if parked {
            self.give_up_later(id);
        }
        if left_already {
            // An abort that came before the listener was there is never reported again.
            self.readers.remove(id);
        }
        // A run that nobody followed may have waited longer than a followed one does.
        self.pump_soon();
        Ok(stream)
    }

    /// Bounds the wait of a reader that waits for a run.
    fn give_up_later(self: &Rc<Self>, id: u64) {
        let host = Rc::clone(self);
        self.spawn(async move {
            sleep(host.config.settings.live_wait).await;
            host.readers.change(id, |open| open.reader.gave_up());
            host.drain();
        });
    }

    /// A reader wants more. When there is more, it gets it in a turn of its own: this may be called from within a write.
    fn asks(self: &Rc<Self>, id: u64) {
        if !matches!(self.step(id), Ok(Some(step)) if step.next != Next::Wait) {
            return;
        }
        if let Ok(mut asking) = self.readers.asking.try_borrow_mut() {
            asking.insert(id);
        }
        if self.readers.draining.replace(true) {
            return;
        }
        let host = Rc::clone(self);
        self.spawn(async move {
            host.readers.draining.set(false);
            let asking = host.readers.asking.try_borrow_mut().map(|mut asking| std::mem::take(&mut *asking));
            host.serve(asking.unwrap_or_default());
        });
    }

    /// The log has moved: gives every hungry reader its next slice.
    pub fn drain(self: &Rc<Self>) {
        self.serve(self.readers.ids());
    }

    fn serve(self: &Rc<Self>, ids: impl IntoIterator<Item = u64>) {
        if self.is_held() {
            return;
        }
        let mut slices = HashMap::new();
        let now = now();
        for id in ids {
            while self.advance(id, now, &mut slices) {}
        }
    }

    /// One step of one reader; `true` when another may follow at once.
    fn advance(
        self: &Rc<Self>,
        id: u64,
        now: UnixMillis,
        slices: &mut HashMap<(Dialect, Cursor, Cursor), Slice>,
    ) -> bool {
        let Ok(Some(step)) = self.step(id) else { return false };
        match step.next {
            Next::Wait => false,
            Next::CaughtUp(head) => {
                self.readers.change(id, |open| open.reader.announced());
                if step.dialect == Dialect::Wire {
                    step.pen.write(&Uint8Array::from(wire::caught_up(head).as_slice()));
                }
                true
            }
            Next::Slice(after, until) => {
                if !step.hungry || !step.pen.has_room() {
                    return false;
                }
                let slice = match slices.entry((step.dialect, after, until)) {
                    std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
                    std::collections::hash_map::Entry::Vacant(place) => match self.slice(step.dialect, after, until) {
                        Ok(slice) => place.insert(slice),
                        Err(error) => {
                            console_error!("session {}: {error}", self.name);
                            step.pen.break_off();
                            self.readers.remove(id);
                            return false;
                        }
                    },
                };
                self.readers.change(id, |open| {
                    open.reader.took(slice.through);
                    open.finish_sent |= slice.finish;
                    open.written = now;
                });
                if let Some(bytes) = &slice.bytes {
                    step.pen.write(bytes);
                }
                true
            }
            Next::End(terminal) => {
                let last = last_words(step.dialect, terminal, step.finish_sent);
                self.readers.remove(id);
                match last {
                    Some(bytes) => {
                        step.pen.write(&Uint8Array::from(bytes.as_slice()));
                        step.pen.close();
                    }
                    None => step.pen.break_off(),
                }
                false
            }
        }
    }

    fn step(&self, id: u64) -> Result<Option<Step>, HostError> {
        // Loads the session, if need be, before the borrow: a load calls into JavaScript.
        self.session(|_| ())?;
        let open = self.readers.open.try_borrow().map_err(|_| HostError::Busy)?;
        let Some(entry) = open.get(&id) else { return Ok(None) };
        let next = self.session(|session| entry.reader.next(session.view()))?;
        Ok(Some(Step {
            pen: entry.body.pen(),
            dialect: entry.dialect,
            next,
            hungry: entry.body.is_hungry(),
            finish_sent: entry.finish_sent,
        }))
    }

    /// The chunks after `after`, up to `until` or a good deal fewer, in a dialect's bytes.
    fn slice(&self, dialect: Dialect, after: Cursor, until: Cursor) -> Result<Slice, HostError> {
        let batch = match self.session(|session| session.log().recent(after, until, SLICE_BYTES))? {
            Some(batch) => batch,
            None => self.stored_batch(after, until)?,
        };
        let (bytes, finish) = match dialect {
            Dialect::Wire => (batch.bytes, false),
            Dialect::Chat => {
                let mut out = Vec::with_capacity(batch.bytes.len());
                let projected = chat::project_stored(&batch.bytes, self.config.floor, &Lens::default(), &mut out)
                    .map_err(|_| StorageError::Corrupt("chunk_block.bytes"))?;
                (out, projected.finish)
            }
        };
        let bytes = (!bytes.is_empty()).then(|| Uint8Array::from(bytes.as_slice()));
        Ok(Slice { bytes, through: batch.through, finish })
    }

    /// A batch from the rows, cut at both cursors.
    fn stored_batch(&self, after: Cursor, until: Cursor) -> Result<Batch, HostError> {
        let mut batch = Batch { after, through: after, bytes: Vec::new() };
        for block in self.storage.blocks(after, SLICE_BYTES)? {
            batch.take(&block, until);
        }
        if batch.through == after {
            return Err(StorageError::Corrupt("the log has a gap").into());
        }
        Ok(batch)
    }

    /// One timer for all: a response that was silent for half a heartbeat gets a comment, so that no silence is longer than a whole one.
    fn beat_soon(self: &Rc<Self>) {
        if self.readers.beating.replace(true) {
            return;
        }
        let host = Rc::clone(self);
        self.spawn(async move {
            let half = Millis::new((host.config.settings.heartbeat.get() / 2).max(1));
            let _beating = Beating(Rc::clone(&host));
            while !host.readers.is_empty() {
                sleep(half).await;
                host.beat(half);
            }
        });
    }

    fn beat(&self, silence: Millis) {
        let now = now();
        let quiet: Vec<(u64, Rc<Pen>)> = match self.readers.open.try_borrow() {
            Ok(open) => open
                .iter()
                .filter(|(_, open)| now.since(open.written) >= silence && open.body.is_hungry())
                .map(|(id, open)| (*id, open.body.pen()))
                .collect(),
            Err(_) => return,
        };
        let comment = Uint8Array::from(chat::HEARTBEAT);
        for (id, pen) in quiet {
            if pen.has_room() {
                pen.write(&comment);
                self.readers.change(id, |open| open.written = now);
            }
        }
    }
}

/// The heartbeat's task, whichever way it ends.
struct Beating(Rc<Host>);

impl Drop for Beating {
    fn drop(&mut self) {
        self.0.readers.beating.set(false);
    }
}

/// How a response ends; `None` breaks its body.
fn last_words(dialect: Dialect, terminal: Terminal, finish_sent: bool) -> Option<Vec<u8>> {
    if dialect == Dialect::Wire {
        return Some(wire::terminal(terminal));
    }
    let outcome = match terminal {
        Terminal::Completed => chat::Outcome::Completed,
        Terminal::Paused => chat::Outcome::Suspended,
        Terminal::Interrupted => chat::Outcome::Stopped,
        Terminal::Failed(code) => chat::Outcome::Failed(code),
        Terminal::Dropped | Terminal::NotLive => return None,
    };
    let mut bytes = Vec::new();
    chat::terminal(outcome, finish_sent, &mut bytes);
    Some(bytes)
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

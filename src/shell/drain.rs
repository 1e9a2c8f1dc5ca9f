//! The drain: gives hungry responses their next slice of the log.
//!
//! It decides with the borrows held, drops them, and only then writes, because a write may call back into the object. A buffer is encoded
//! once and shared by all readers of the same dialect that stand at the same cursor.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::rc::Rc;

use js_sys::Uint8Array;
use worker::console_error;

use super::body::Pen;
use super::clock::{now, sleep};
use super::host::{Host, HostError};
use super::readers::{Dialect, Ending};
use crate::core::counters::add;
use crate::core::ids::Cursor;
use crate::core::log::Batch;
use crate::core::pace::Patience;
use crate::core::reader::{Eviction, Next, Terminal};
use crate::core::storage::{Storage, StorageError};
use crate::core::time::{Millis, UnixMillis};
use crate::dialect::helix::response::project_helix;
use crate::dialect::ui::lens::Lens;
use crate::dialect::ui::response::{self as chat, OPENING_CHUNKS, Projected};
use crate::dialect::wire;

/// Bytes that a reader is given in one go.
const SLICE_BYTES: usize = 256 * 1024;

/// Bytes that are read from rows in one turn of the object, so that writers get theirs however many read history.
const TURN_BYTES: usize = 1024 * 1024;

/// What one reader does next, decided while the borrows were held.
struct Step {
    pen: Rc<Pen>,
    dialect: Dialect,
    next: Next,
    hungry: bool,
    finish_sent: bool,
    lens: Rc<Lens>,
    /// Whether it follows Helix chunks.
    projects: bool,
    late: Option<Eviction>,
}

/// A slice of the log in one dialect, encoded once.
struct Slice {
    bytes: Option<Uint8Array>,
    through: Cursor,
    log_bytes: usize,
    finish: bool,
    content: bool,
}

/// What one turn of the drain has at hand.
struct Turn {
    now: UnixMillis,
    patience: Patience,
    slices: HashMap<(Dialect, Rc<Lens>, Cursor, Cursor), Slice>,
    read_bytes: usize,
}

/// What became of a step.
enum Stepped {
    /// Another step may follow at once.
    Again,
    /// Nothing more for this reader now.
    Done,
    /// The turn has read enough; the reader's turn comes after others had theirs.
    Later,
}

impl Host {
    /// A reader wants more. When there is more, it gets it in a turn of its own: this may be called from within a write.
    pub fn asks(self: &Rc<Self>, id: u64) {
        if !matches!(self.step(id, None), Ok(Some(step)) if step.next != Next::Wait) {
            return;
        }
        self.come_back(std::iter::once(id), None);
    }

    fn come_back(self: &Rc<Self>, ids: impl Iterator<Item = u64>, pause: Option<Millis>) {
        if let Ok(mut asking) = self.readers.asking.try_borrow_mut() {
            asking.extend(ids);
        }
        if self.readers.draining.replace(true) {
            return;
        }
        let host = Rc::clone(self);
        self.spawn(async move {
            if let Some(pause) = pause {
                sleep(pause).await;
            }
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
        let patience = Patience::of(&self.config.settings);
        let mut turn = Turn { now: now(), patience, slices: HashMap::new(), read_bytes: 0 };
        let mut later = Vec::new();
        for id in ids {
            loop {
                match self.advance(id, &mut turn) {
                    Stepped::Again => {}
                    Stepped::Done => break,
                    Stepped::Later => {
                        later.push(id);
                        break;
                    }
                }
            }
        }
        if !later.is_empty() {
            // A timer, not a task of this turn: requests that wait come first.
            self.come_back(later.into_iter(), Some(Millis::default()));
        }
    }

    fn advance(self: &Rc<Self>, id: u64, turn: &mut Turn) -> Stepped {
        let Ok(Some(step)) = self.step(id, Some(turn)) else { return Stepped::Done };
        match step.next {
            Next::Wait => Stepped::Done,
            Next::CaughtUp(head) => {
                self.readers.change(id, |open| open.reader.announced());
                if step.dialect == Dialect::Wire {
                    step.pen.write(&Uint8Array::from(wire::caught_up(head).as_slice()));
                }
                Stepped::Again
            }
            Next::Slice(after, until) => {
                if !step.hungry || !step.pen.has_room() {
                    self.readers.change(id, |open| open.pace.waits(turn.now));
                    if let Some(reason) = step.late {
                        self.evict(id, reason);
                    }
                    return Stepped::Done;
                }
                self.give(id, &step, (after, until), turn)
            }
            Next::End(Terminal::Superseded) if self.moves_on(id) => Stepped::Again,
            Next::End(terminal) => {
                let mut last = last_words(step.dialect, terminal, step.finish_sent);
                if let Some(last) = &mut last {
                    self.before_last_words(id, &step, terminal, last);
                }
                self.close_reader(id, Ending::Terminal(terminal));
                match last {
                    Some(bytes) => {
                        step.pen.write(&Uint8Array::from(bytes.as_slice()));
                        step.pen.close();
                    }
                    None => step.pen.break_off(),
                }
                Stepped::Done
            }
        }
    }

    /// A response whose run was superseded goes on with the run that took its place, if its client can.
    fn moves_on(&self, id: u64) -> bool {
        let moved = self.session(|session| {
            self.readers.change(id, |open| {
                let moved = open.may_move_on() && open.reader.move_on(OPENING_CHUNKS, open.lens.aware, session.view());
                if moved {
                    open.lens = Rc::new(Lens { aware: open.lens.aware, ..Lens::default() });
                    open.finish_sent = false;
                    open.projector = None;
                }
                moved
            })
        });
        matches!(moved, Ok(Some(true)))
    }

    /// Gives a reader the slice between two cursors, or as much of it as is good for one go.
    fn give(self: &Rc<Self>, id: u64, step: &Step, (after, until): (Cursor, Cursor), turn: &mut Turn) -> Stepped {
        if step.projects {
            return self.give_projected(id, step, (after, until), turn);
        }
        let slice = match turn.slices.entry((step.dialect, Rc::clone(&step.lens), after, until)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(_) if turn.read_bytes >= TURN_BYTES => return Stepped::Later,
            Entry::Vacant(place) => match self.slice(step, after, until, &mut turn.read_bytes) {
                Ok(slice) => place.insert(slice),
                Err(error) => {
                    console_error!("session {}: {error}", self.log_name);
                    self.evict(id, Eviction::ServerError);
                    return Stepped::Done;
                }
            },
        };
        self.hand_over(id, step, after, slice, turn.now);
        Stepped::Again
    }

    /// A slice of Helix chunks: what they say depends on what was said before, so it is nobody else's.
    fn give_projected(
        self: &Rc<Self>,
        id: u64,
        step: &Step,
        (after, until): (Cursor, Cursor),
        turn: &mut Turn,
    ) -> Stepped {
        if turn.read_bytes >= TURN_BYTES {
            return Stepped::Later;
        }
        let Some(mut projector) = self.readers.change(id, |open| open.projector.take()).flatten() else {
            return Stepped::Done;
        };
        let projected = self.batch(after, until, &mut turn.read_bytes).and_then(|batch| {
            let mut out = Vec::with_capacity(batch.bytes.len());
            let written = project_helix(&batch.bytes, &mut projector, self.config.floor, &step.lens, &mut out)
                .map_err(|_| StorageError::Corrupt("chunk_block.bytes"))?;
            Ok((batch, out, written))
        });
        let (batch, out, written) = match projected {
            Ok(projected) => projected,
            Err(error) => {
                console_error!("session {}: {error}", self.log_name);
                self.evict(id, Eviction::ServerError);
                return Stepped::Done;
            }
        };
        self.readers.change(id, |open| open.projector = Some(projector));
        let bytes = (!out.is_empty()).then(|| Uint8Array::from(out.as_slice()));
        let slice = Slice {
            bytes,
            through: batch.through,
            log_bytes: batch.bytes.len(),
            finish: written.finish,
            content: written.content,
        };
        self.hand_over(id, step, after, &slice, turn.now);
        Stepped::Again
    }

    fn hand_over(&self, id: u64, step: &Step, after: Cursor, slice: &Slice, now: UnixMillis) {
        let sent = slice.bytes.as_ref().map_or(0, |bytes| usize::try_from(bytes.length()).unwrap_or(0));
        self.readers.change(id, |open| {
            open.gave(now, slice.through, slice.log_bytes, sent);
            open.finish_sent |= slice.finish;
            open.content_sent |= slice.content;
        });
        self.count(|counters| {
            add(&mut counters.chunks_sent, slice.through.get().saturating_sub(after.get()));
            add(&mut counters.bytes_sent, u64::try_from(sent).unwrap_or(u64::MAX));
        });
        if let Some(bytes) = &slice.bytes {
            step.pen.write(bytes);
        }
    }

    fn step(&self, id: u64, turn: Option<&Turn>) -> Result<Option<Step>, HostError> {
        // Loads the session, if need be, before the borrow: a load calls into JavaScript.
        self.session(|_| ())?;
        self.session(|session| {
            self.readers.look(id, |open| Step {
                pen: open.body.pen(),
                dialect: open.dialect,
                next: open.reader.next(session.view()),
                hungry: open.body.is_hungry(),
                finish_sent: open.finish_sent,
                lens: Rc::clone(&open.lens),
                projects: open.projector.is_some(),
                late: turn.and_then(|turn| {
                    let held = open.is_held_to_log();
                    open.pace.verdict(turn.now, session.view(), held, &turn.patience)
                }),
            })
        })
    }

    /// The chunks after `after`, up to `until` or a good deal fewer, in a dialect's bytes. What came from rows is added to `read_bytes`.
    fn slice(&self, step: &Step, after: Cursor, until: Cursor, read_bytes: &mut usize) -> Result<Slice, HostError> {
        let batch = self.batch(after, until, read_bytes)?;
        let log_bytes = batch.bytes.len();
        let (bytes, projected) = match step.dialect {
            Dialect::Wire => (batch.bytes, Projected::default()),
            Dialect::Chat => {
                let mut out = Vec::with_capacity(batch.bytes.len());
                let projected = chat::project_stored(&batch.bytes, self.config.floor, &step.lens, &mut out)
                    .map_err(|_| StorageError::Corrupt("chunk_block.bytes"))?;
                (out, projected)
            }
        };
        let bytes = (!bytes.is_empty()).then(|| Uint8Array::from(bytes.as_slice()));
        Ok(Slice { bytes, through: batch.through, log_bytes, finish: projected.finish, content: projected.content })
    }

    /// What stands before a terminal: on the wire a run's result is in it, and a projected response closes what is open.
    fn before_last_words(&self, id: u64, step: &Step, terminal: Terminal, last: &mut Vec<u8>) {
        match step.dialect {
            Dialect::Wire => {
                let result = self.session(|session| {
                    let (run, state) = (session.run()?, session.checkpoint().and_then(|last| last.state.clone()));
                    Some((run.push.as_ref()?.result.clone(), state))
                });
                if let Ok(Some((result, state))) = result {
                    *last = wire::end_of_pushed(terminal, result.as_deref(), state.as_deref());
                }
            }
            Dialect::Chat if step.projects => {
                let Some(mut projector) = self.readers.change(id, |open| open.projector.take()).flatten() else {
                    return;
                };
                let mut closing = Vec::new();
                for chunk in projector.close() {
                    if let Some(chunk) = step.lens.show(chunk) {
                        chat::synthesise(chunk, self.config.floor, &mut closing);
                    }
                }
                closing.append(last);
                *last = closing;
            }
            Dialect::Chat => {}
        }
    }

    /// The frames after `after`, from memory or from rows.
    fn batch(&self, after: Cursor, until: Cursor, read_bytes: &mut usize) -> Result<Batch, HostError> {
        if let Some(batch) = self.session(|session| session.log().recent(after, until, SLICE_BYTES))? {
            return Ok(batch);
        }
        let batch = self.stored_batch(after, until)?;
        *read_bytes = read_bytes.saturating_add(batch.bytes.len());
        Ok(batch)
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
        Terminal::Dropped | Terminal::Superseded | Terminal::NotLive | Terminal::Truncated(_) => return None,
    };
    let mut bytes = Vec::new();
    chat::terminal(outcome, finish_sent, &mut bytes);
    Some(bytes)
}

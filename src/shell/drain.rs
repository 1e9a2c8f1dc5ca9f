//! The drain: gives hungry responses their next slice of the log.
//!
//! It decides with the borrows held, drops them, and only then writes, because a write may call back into the object. A buffer is encoded
//! once and shared by all readers of the same dialect that stand at the same cursor.

use std::rc::Rc;

use js_sys::Uint8Array;
use worker::console_error;

use super::body::Pen;
use super::clock::{now, sleep};
use super::host::{Host, HostError};
use super::readers::{Dialect, Ending, Open};
use crate::core::counters::add;
use crate::core::ids::Cursor;
use crate::core::log::Batch;
use crate::core::pace::Patience;
use crate::core::reader::{Eviction, Next, Scope, Terminal};
use crate::core::run::Vocabulary;
use crate::core::storage::{RunRow, Storage, StorageError};
use crate::core::time::{Millis, UnixMillis};
use crate::core::view::{Fault, RunView, View};
use crate::dialect::helix::projector::Projector;
use crate::dialect::helix::response::project_helix;
use crate::dialect::ui::fold::Fold;
use crate::dialect::ui::lead::Lead;
use crate::dialect::ui::lens::Lens;
use crate::dialect::ui::replay::owned_calls;
use crate::dialect::ui::response::{self as chat, OPENING_CHUNKS, Projected};
use crate::dialect::wire;

/// Bytes that a reader is given in one go.
const SLICE_BYTES: usize = 256 * 1024;

/// Bytes that are read from rows in one turn of the object, so that writers get theirs however many read history.
const TURN_BYTES: usize = 1024 * 1024;

/// A slice up to this size goes to whoever has asked, without a look at what the stream still has queued: asking costs as much as giving,
/// and a stream asks at most once more than it has room.
const SMALL_SLICE: usize = 16 * 1024;

/// What one reader does next, decided while the borrows were held.
struct Step {
    id: u64,
    pen: Rc<Pen>,
    dialect: Dialect,
    act: Act,
}

enum Act {
    /// Take the chunks between two cursors.
    Take { after: Cursor, until: Cursor, lens: Rc<Lens> },
    /// The same of Helix chunks: what they say depends on what was said before, so it is nobody else's.
    Project { after: Cursor, until: Cursor, lens: Rc<Lens> },
    /// History ended at this head.
    Announce(Cursor),
    /// The response ends. `fault`: why the run that it followed has failed.
    End { terminal: Terminal, fault: Option<Fault>, finish_sent: bool, lens: Rc<Lens> },
    /// It ends because it takes nothing.
    Evict(Eviction),
}

/// Readers of one dialect that stand at the same cursor and are shown the same.
struct Group {
    dialect: Dialect,
    after: Cursor,
    until: Cursor,
    lens: Rc<Lens>,
    takers: Vec<(u64, Rc<Pen>)>,
}

/// A slice of the log in one dialect, encoded once.
struct Slice {
    bytes: Vec<u8>,
    size: usize,
    through: Cursor,
    log_bytes: usize,
    finish: bool,
    content: bool,
}

/// What one turn of the drain has at hand.
struct Turn {
    now: UnixMillis,
    patience: Patience,
    read_bytes: usize,
    /// Readers for whom another step may follow at once.
    again: Vec<u64>,
    /// Readers whose turn comes after others had theirs, because this turn has read enough.
    later: Vec<u64>,
}

impl Host {
    /// A reader that was left with less than there is wants more. It gets it in a turn of its own: this may be called from within a write.
    pub fn asks(self: &Rc<Self>, id: u64) {
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
            host.serve(asking.unwrap_or_default().into_iter().collect());
        });
    }

    /// The log has moved: gives every hungry reader its next slice.
    pub fn drain(self: &Rc<Self>) {
        self.serve(self.readers.ids());
    }

    fn serve(self: &Rc<Self>, mut ids: Vec<u64>) {
        if self.is_held() {
            return;
        }
        let patience = Patience::of(&self.config.settings);
        let mut turn = Turn { now: now(), patience, read_bytes: 0, again: Vec::new(), later: Vec::new() };
        while !ids.is_empty() {
            let Ok(steps) = self.session(|session| {
                let view = session.view();
                self.readers.change_each(&ids, |id, open| decide(id, open, view, &turn))
            }) else {
                // Nobody knows what they lack: the next pull of each finds out.
                self.readers.change_each(&ids, |_, open| -> Option<()> {
                    open.body.listen(true);
                    None
                });
                break;
            };
            self.perform(steps, &mut turn);
            ids = std::mem::take(&mut turn.again);
        }
        if !turn.later.is_empty() {
            // A timer, not a task of this turn: requests that wait come first.
            self.come_back(turn.later.into_iter(), Some(Millis::default()));
        }
    }

    fn perform(self: &Rc<Self>, steps: Vec<Step>, turn: &mut Turn) {
        let mut groups: Vec<Group> = Vec::new();
        for Step { id, pen, dialect, act } in steps {
            match act {
                Act::Take { after, until, lens } => {
                    let same = |group: &&mut Group| {
                        (group.after, group.until, group.dialect) == (after, until, dialect) && group.lens == lens
                    };
                    match groups.iter_mut().find(same) {
                        Some(group) => group.takers.push((id, pen)),
                        None => groups.push(Group { dialect, after, until, lens, takers: vec![(id, pen)] }),
                    }
                }
                Act::Announce(head) => {
                    if dialect == Dialect::Wire {
                        pen.write(&Uint8Array::from(wire::caught_up(head).as_slice()));
                    }
                    turn.again.push(id);
                }
                Act::End { terminal: Terminal::Superseded, .. } if self.moves_on(id) => turn.again.push(id),
                Act::End { terminal: Terminal::Paused, finish_sent: false, .. } if self.goes_on_with(id) => {
                    turn.again.push(id);
                }
                Act::Project { after, until, lens } => self.give_projected(id, &pen, (after, until), &lens, turn),
                Act::End { terminal, fault, finish_sent, lens } => {
                    let last = last_words(dialect, terminal, fault, finish_sent);
                    let last = last.map(|last| self.with_result(id, dialect, (terminal, last), &lens));
                    let last = last.map(|last| self.behind_lead(id, terminal, last));
                    self.end(id, &pen, last, terminal)
                }
                Act::Evict(reason) => self.evict(id, reason),
            }
        }
        for group in groups {
            self.give(group, turn);
        }
    }

    fn end(self: &Rc<Self>, id: u64, pen: &Pen, last: Option<Vec<u8>>, terminal: Terminal) {
        self.close_reader(id, Ending::Terminal(terminal));
        match last {
            Some(bytes) => {
                pen.write(&Uint8Array::from(bytes.as_slice()));
                pen.close();
            }
            None => pen.break_off(),
        }
    }

    /// A response whose run was superseded goes on with the run that took its place, if its client can.
    fn moves_on(&self, id: u64) -> bool {
        let moved = self.session(|session| {
            self.readers.change(id, |open| {
                // What was held back of the old opening was never said, so the new one is.
                let skipped = if open.lead.is_some() { 0 } else { OPENING_CHUNKS };
                let moved = open.may_move_on() && open.reader.move_on(skipped, open.lens.aware, session.view());
                if moved {
                    open.lead = open.lead.is_some().then(Lead::default);
                    open.lens = Rc::new(Lens { aware: open.lens.aware, ..Lens::default() });
                    open.finish_sent = false;
                    open.projector = followed(session.view(), open.reader.scope()).and_then(projector_of);
                }
                moved
            })
        });
        matches!(moved, Ok(Some(true)))
    }

    /// A response whose run has paused with its answers at hand, so that another run goes on with the message at once, follows that run.
    fn goes_on_with(&self, id: u64) -> bool {
        let next = self.session(|session| {
            let scope = self.readers.look(id, |open| open.reader.scope().clone())?;
            let Scope::Run(run) = scope else { return None };
            session.view().continuation(&run).cloned()
        });
        let Ok(Some(next)) = next else { return false };
        let Ok(message) = self.stored_message(next.message_index) else { return false };
        let moved = self.session(|session| {
            self.readers.change(id, |open| {
                let moved = open.reader.go_on(OPENING_CHUNKS, session.view());
                if moved {
                    // Its client holds the message, the calls that are answered among its parts.
                    open.lens =
                        Rc::new(Lens { aware: open.lens.aware, owned: owned_calls(&message), ..Lens::default() });
                    let begun = open.projector.take();
                    open.projector = (next.vocabulary == Vocabulary::Helix).then(|| match begun {
                        Some(begun) => Box::new(begun.followed_by(next.id.clone())),
                        None => {
                            let fold = Fold::continuing(message.clone());
                            Box::new(Projector::continuing(next.id.clone(), &fold).started())
                        }
                    });
                }
                moved
            })
        });
        matches!(moved, Ok(Some(true)))
    }

    /// Gives the readers of a group the slice between two cursors, or as much of it as is good for one go.
    fn give(self: &Rc<Self>, group: Group, turn: &mut Turn) {
        let slice = match self.slice(&group, &mut turn.read_bytes) {
            Ok(Some(slice)) => slice,
            Ok(None) => return turn.later.extend(group.takers.iter().map(|(id, _)| *id)),
            Err(error) => {
                console_error!("session {}: {error}", self.log_name);
                return group.takers.iter().for_each(|(id, _)| self.evict(*id, Eviction::ServerError));
            }
        };
        // Who turns out to have no room is looked at once more, as one that has not asked.
        turn.again.extend(group.takers.iter().map(|(id, _)| *id));
        let mut takers = group.takers;
        if slice.size > SMALL_SLICE {
            takers.retain(|(_, pen)| pen.has_room());
        }
        let ids: Vec<u64> = takers.iter().map(|(id, _)| *id).collect();
        self.readers.change_each(&ids, |_, open| -> Option<()> {
            open.gave(turn.now, slice.through, slice.log_bytes, slice.size);
            open.finish_sent |= slice.finish;
            open.content_sent |= slice.content;
            None
        });
        let times = u64::try_from(takers.len()).unwrap_or(u64::MAX);
        let bytes = u64::try_from(slice.size).unwrap_or(u64::MAX);
        self.count(|counters| {
            add(&mut counters.chunks_sent, slice.through.get().saturating_sub(group.after.get()).saturating_mul(times));
            add(&mut counters.bytes_sent, bytes.saturating_mul(times));
        });
        if slice.bytes.is_empty() {
            return;
        }
        let shared = Uint8Array::from(slice.bytes.as_slice());
        for (id, pen) in &takers {
            let own = self.readers.change(*id, |open| {
                let (bytes, begun) = open.lead.as_mut()?.take(&slice.bytes);
                open.lead.take_if(|_| begun);
                Some(bytes)
            });
            match own.flatten() {
                Some(bytes) if bytes.is_empty() => {}
                Some(bytes) => pen.write(&Uint8Array::from(bytes.as_slice())),
                None => pen.write(&shared),
            }
        }
    }

    /// The chunks between the group's cursors, or a good deal fewer, in its dialect's bytes. What came from rows is added to
    /// `read_bytes`; `None` when it would have to and enough was read.
    fn slice(&self, group: &Group, read_bytes: &mut usize) -> Result<Option<Slice>, HostError> {
        let Some(batch) = self.batch(group.after, group.until, read_bytes)? else { return Ok(None) };
        let log_bytes = batch.bytes.len();
        let (bytes, projected) = match group.dialect {
            Dialect::Wire => (batch.bytes, Projected::default()),
            Dialect::Chat => {
                let mut out = Vec::with_capacity(batch.bytes.len());
                let projected = chat::project_stored(&batch.bytes, self.config.floor, &group.lens, &mut out)
                    .map_err(|_| StorageError::Corrupt("chunk_block.bytes"))?;
                (out, projected)
            }
        };
        let size = bytes.len();
        let Projected { finish, content, .. } = projected;
        Ok(Some(Slice { bytes, size, through: batch.through, log_bytes, finish, content }))
    }

    /// A slice of Helix chunks for one reader.
    fn give_projected(
        self: &Rc<Self>,
        id: u64,
        pen: &Pen,
        (after, until): (Cursor, Cursor),
        lens: &Lens,
        turn: &mut Turn,
    ) {
        let Some(mut projector) = self.readers.change(id, |open| open.projector.take()).flatten() else { return };
        let projected = self.batch(after, until, &mut turn.read_bytes).and_then(|batch| {
            let Some(batch) = batch else { return Ok(None) };
            let mut out = Vec::with_capacity(batch.bytes.len());
            let written = project_helix(&batch.bytes, &mut projector, self.config.floor, lens, &mut out)
                .map_err(|_| StorageError::Corrupt("chunk_block.bytes"))?;
            Ok(Some((batch, out, written)))
        });
        self.readers.change(id, |open| open.projector = Some(projector));
        let (batch, out, written) = match projected {
            Ok(Some(projected)) => projected,
            Ok(None) => return turn.later.push(id),
            Err(error) => {
                console_error!("session {}: {error}", self.log_name);
                return self.evict(id, Eviction::ServerError);
            }
        };
        self.readers.change(id, |open| {
            open.gave(turn.now, batch.through, batch.bytes.len(), out.len());
            open.finish_sent |= written.finish;
            open.content_sent |= written.content;
        });
        self.count(|counters| {
            add(&mut counters.chunks_sent, batch.through.get().saturating_sub(after.get()));
            add(&mut counters.bytes_sent, u64::try_from(out.len()).unwrap_or(u64::MAX));
        });
        turn.again.push(id);
        if !out.is_empty() {
            pen.write(&Uint8Array::from(out.as_slice()));
        }
    }

    /// A terminal with the opening that was held back before it, if the reply is there.
    fn behind_lead(&self, id: u64, terminal: Terminal, last: Vec<u8>) -> Vec<u8> {
        let lead = self.readers.change(id, |open| open.lead.take()).flatten();
        match (terminal, lead) {
            (Terminal::Completed | Terminal::Paused, Some(mut lead)) => [lead.release(), last].concat(),
            _ => last,
        }
    }

    /// A terminal with what stands in it or before it: on the wire a run's result, and a projected response closes what is open.
    fn with_result(&self, id: u64, dialect: Dialect, (terminal, last): (Terminal, Vec<u8>), lens: &Lens) -> Vec<u8> {
        if dialect == Dialect::Wire {
            if matches!(terminal, Terminal::Failed(_)) {
                return last;
            }
            let said = self.session(|session| session.view().run().and_then(|run| run.last.clone()));
            return match said {
                Ok(Some(said)) => wire::end_of_pushed(terminal, said.result.as_deref(), said.state.as_deref()),
                _ => last,
            };
        }
        let Some(mut projector) = self.readers.change(id, |open| open.projector.take()).flatten() else { return last };
        let mut closing = Vec::new();
        for chunk in projector.close().into_iter().filter_map(|chunk| lens.show(chunk)) {
            chat::synthesise(chunk, self.config.floor, &mut closing);
        }
        closing.extend(last);
        closing
    }

    /// The frames after `after`, from memory or from rows; `None` when rows would have to be read and enough was read.
    fn batch(&self, after: Cursor, until: Cursor, read_bytes: &mut usize) -> Result<Option<Batch>, HostError> {
        if let Some(batch) = self.session(|session| session.log().recent(after, until, SLICE_BYTES))? {
            return Ok(Some(batch));
        }
        if *read_bytes >= TURN_BYTES {
            return Ok(None);
        }
        let batch = self.stored_batch(after, until)?;
        *read_bytes = read_bytes.saturating_add(batch.bytes.len());
        Ok(Some(batch))
    }

    /// A batch from the rows, cut at both cursors.
    fn stored_batch(&self, after: Cursor, until: Cursor) -> Result<Batch, HostError> {
        let mut batch = Batch { after, through: after, bytes: Vec::new() };
        for block in self.storage.blocks(after, SLICE_BYTES)? {
            batch.take(&block, until);
        }
        if batch.through == after {
            return Err(StorageError::Short("the log has a gap").into());
        }
        Ok(batch)
    }
}

/// What follows the Helix chunks of a run from its first one on.
pub(super) fn projector_of_whole(run: &RunRow) -> Option<Box<Projector>> {
    let is_helix = run.vocabulary == Vocabulary::Helix;
    is_helix.then(|| Box::new(Projector::new(run.id.clone(), run.message_id.clone())))
}

/// What follows the Helix chunks of a run behind its opening.
fn projector_of(run: &RunView) -> Option<Box<Projector>> {
    let projector = || Projector::new(run.id.clone(), run.message_id.clone()).started();
    (run.vocabulary == Vocabulary::Helix).then(|| Box::new(projector()))
}

/// The run that a reader follows, as it is durable.
fn followed<'a>(view: &'a View, scope: &Scope) -> Option<&'a RunView> {
    match scope {
        Scope::Run(id) => view.find(id),
        Scope::Stream => None,
    }
}

/// What comes next for a reader; `None` when it has all there is, or has not asked for more. Whoever is left with less than there is
/// will be heard when it asks.
fn decide(id: u64, open: &mut Open, view: &View, turn: &Turn) -> Option<Step> {
    let next = open.reader.next(view);
    open.body.listen(next != Next::Wait);
    let act = match next {
        Next::Wait => return None,
        Next::CaughtUp(head) => {
            open.reader.announced();
            Act::Announce(head)
        }
        Next::Slice(after, until) if open.body.is_hungry() && open.projector.is_some() => {
            Act::Project { after, until, lens: Rc::clone(&open.lens) }
        }
        Next::Slice(after, until) if open.body.is_hungry() => Act::Take { after, until, lens: Rc::clone(&open.lens) },
        Next::Slice(..) => {
            let late = open.pace.verdict(turn.now, view, open.is_held_to_log(), &turn.patience);
            open.pace.waits(turn.now);
            Act::Evict(late?)
        }
        Next::End(terminal) => {
            let (fault, lens) = (open.reader.fault(view), Rc::clone(&open.lens));
            Act::End { terminal, fault, finish_sent: open.finish_sent, lens }
        }
    };
    Some(Step { id, pen: open.body.pen(), dialect: open.dialect, act })
}

/// How a response ends; `None` breaks its body.
fn last_words(dialect: Dialect, terminal: Terminal, fault: Option<Fault>, finish_sent: bool) -> Option<Vec<u8>> {
    if dialect == Dialect::Wire {
        return Some(match (terminal, fault) {
            (Terminal::Failed(_), Some(fault)) => wire::failed(&fault),
            _ => wire::terminal(terminal),
        });
    }
    let outcome = match terminal {
        Terminal::Completed => chat::Outcome::Completed,
        Terminal::Paused => chat::Outcome::Suspended,
        Terminal::Interrupted => chat::Outcome::Stopped,
        Terminal::Failed(code) => chat::Outcome::Failed(fault.unwrap_or_else(|| Fault::from(code))),
        Terminal::Dropped | Terminal::Superseded | Terminal::NotLive | Terminal::Truncated(_) => return None,
    };
    let mut bytes = Vec::new();
    chat::terminal(&outcome, finish_sent, &mut bytes);
    Some(bytes)
}

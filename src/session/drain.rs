//! The drain: gives responses that have room their next slice of the log.
//!
//! A buffer is encoded once and shared by all readers of the same dialect that stand at the same cursor and are shown the same.

use std::rc::Rc;

use super::readers::Readers;
use super::response::{Dialect, Ending};
use super::turn::SessionTurn;
use crate::core::counters::{Counters, add};
use crate::core::engine::action::{Action, Level};
use crate::core::engine::ids::Exchange;
use crate::core::ids::Cursor;
use crate::core::log::Batch;
use crate::core::pace::Patience;
use crate::core::reader::{Eviction, Next, Scope, Terminal};
use crate::core::run::Vocabulary;
use crate::core::session::Session;
use crate::core::storage::StorageError;
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

/// What one reader does next.
struct Step {
    id: Exchange,
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
    takers: Vec<Exchange>,
}

/// A slice of the log in one dialect, encoded once.
struct Slice {
    bytes: Vec<u8>,
    through: Cursor,
    log_bytes: usize,
    finish: bool,
    content: bool,
}

/// One drain.
pub struct Drain<'a, 't> {
    /// Whom it serves.
    pub readers: &'a mut Readers,
    /// What they follow.
    pub session: &'a Session,
    /// What was given.
    pub counters: &'a mut Counters,
    /// The turn.
    pub turn: &'a mut SessionTurn<'t>,
}

/// What one drain has come to so far.
struct Round {
    patience: Patience,
    read_bytes: usize,
    /// Readers for whom another step may follow at once.
    again: Vec<Exchange>,
    /// Readers whose turn comes after others had theirs, because this one has read enough.
    later: Vec<Exchange>,
}

impl Drain<'_, '_> {
    /// Gives these readers what comes next for them, as far as they have room.
    pub fn serve(mut self, mut ids: Vec<Exchange>) {
        let patience = Patience::of(&self.readers.deployment.settings);
        let mut round = Round { patience, read_bytes: 0, again: Vec::new(), later: Vec::new() };
        while !ids.is_empty() {
            let steps: Vec<Step> = ids.into_iter().filter_map(|id| self.decide(id, &round)).collect();
            self.perform(steps, &mut round);
            ids = std::mem::take(&mut round.again);
        }
        self.readers.give_way(round.later, self.turn.now);
    }

    /// What comes next for a reader; `None` when it has all there is, or no room. Whoever is left with less than there is will be heard
    /// when it has room.
    fn decide(&mut self, id: Exchange, round: &Round) -> Option<Step> {
        let (view, now) = (self.session.view(), self.turn.now);
        let open = self.readers.get_mut(id).filter(|open| !open.is_held())?;
        let next = open.reader.next(view);
        open.wants = matches!(next, Next::Slice(..));
        let act = match next {
            Next::Wait => None,
            Next::CaughtUp(head) => {
                open.reader.announced();
                Some(Act::Announce(head))
            }
            Next::Slice(after, until) if open.room && open.projector.is_some() => {
                Some(Act::Project { after, until, lens: Rc::clone(&open.lens) })
            }
            Next::Slice(after, until) if open.room => Some(Act::Take { after, until, lens: Rc::clone(&open.lens) }),
            Next::Slice(..) => {
                let late = open.pace.verdict(now, view, open.is_held_to_log(), &round.patience);
                open.pace.waits(now);
                late.map(Act::Evict)
            }
            Next::End(terminal) => {
                let (fault, lens) = (open.reader.fault(view), Rc::clone(&open.lens));
                Some(Act::End { terminal, fault, finish_sent: open.finish_sent, lens })
            }
        };
        let (dialect, wants) = (open.dialect, open.wants);
        match act {
            Some(act) => Some(Step { id, dialect, act }),
            None => {
                self.readers.send_head(id, wants, self.turn);
                None
            }
        }
    }

    fn perform(&mut self, steps: Vec<Step>, round: &mut Round) {
        let mut groups: Vec<Group> = Vec::new();
        for Step { id, dialect, act } in steps {
            match act {
                Act::Take { after, until, lens } => {
                    let same = |group: &&mut Group| {
                        (group.after, group.until, group.dialect) == (after, until, dialect) && group.lens == lens
                    };
                    match groups.iter_mut().find(same) {
                        Some(group) => group.takers.push(id),
                        None => groups.push(Group { dialect, after, until, lens, takers: vec![id] }),
                    }
                }
                Act::Project { after, until, lens } => self.give_projected(id, (after, until), &lens, round),
                Act::Announce(head) => {
                    if dialect == Dialect::Wire {
                        self.readers.send_head(id, false, self.turn);
                        self.give(vec![id], wire::caught_up(head));
                    }
                    round.again.push(id);
                }
                Act::End { terminal: Terminal::Superseded, .. } if self.moves_on(id) => round.again.push(id),
                Act::End { terminal: Terminal::Paused, finish_sent: false, .. } if self.goes_on_with(id) => {
                    round.again.push(id);
                }
                Act::End { terminal, fault, finish_sent, lens } => {
                    let last = last_words(dialect, terminal, fault, finish_sent);
                    let last = last.map(|last| self.with_result(id, dialect, (terminal, last), &lens));
                    let last = last.map(|last| self.behind_lead(id, terminal, last));
                    self.end(id, last, Ending::Terminal(terminal));
                }
                Act::Evict(reason) => self.readers.evict(id, reason, self.counters, self.turn),
            }
        }
        for group in groups {
            self.give_slice(group, round);
        }
    }

    fn end(&mut self, id: Exchange, last: Option<Vec<u8>>, ending: Ending) {
        match last {
            Some(last) => self.readers.close(id, (ending, last), self.counters, self.turn),
            None => self.readers.break_off(id, ending, self.counters, self.turn),
        }
    }

    fn give(&mut self, to: Vec<Exchange>, bytes: Vec<u8>) {
        for id in &to {
            if let Some(open) = self.readers.get_mut(*id) {
                open.wants = matches!(open.reader.next(self.session.view()), Next::Slice(..));
            }
        }
        self.readers.give(to, &bytes.into(), self.turn);
    }

    /// A response whose run was superseded goes on with the run that took its place, if its client can.
    fn moves_on(&mut self, id: Exchange) -> bool {
        let view = self.session.view();
        let Some(open) = self.readers.get_mut(id) else { return false };
        // What was held back of the old opening was never said, so the new one is.
        let skipped = if open.lead.is_some() { 0 } else { OPENING_CHUNKS };
        let moved = open.may_move_on() && open.reader.move_on(skipped, open.lens.aware, view);
        if moved {
            open.lead = open.lead.is_some().then(Lead::default);
            open.lens = Rc::new(Lens { aware: open.lens.aware, ..Lens::default() });
            open.finish_sent = false;
            open.projector = followed(view, open.reader.scope()).and_then(projector_of);
        }
        moved
    }

    /// A response whose run has paused with its answers at hand, so that another run goes on with the message at once, follows that run.
    fn goes_on_with(&mut self, id: Exchange) -> bool {
        let view = self.session.view();
        let Some(open) = self.readers.get_mut(id) else { return false };
        let Scope::Run(run) = open.reader.scope() else { return false };
        let Some(next) = view.continuation(run) else { return false };
        let Ok(Some(row)) = self.turn.storage.message_at(next.message_index) else { return false };
        let Ok(message) = serde_json::from_str(&row.json) else { return false };
        let moved = open.reader.go_on(OPENING_CHUNKS, view);
        if moved {
            // Its client holds the message, the calls that are answered among its parts.
            open.lens = Rc::new(Lens { aware: open.lens.aware, owned: owned_calls(&message), ..Lens::default() });
            let begun = open.projector.take();
            open.projector = (next.vocabulary == Vocabulary::Helix).then(|| match begun {
                Some(begun) => Box::new(begun.followed_by(next.id.clone())),
                None => Box::new(Projector::continuing(next.id.clone(), &Fold::continuing(message)).started()),
            });
        }
        moved
    }

    /// Gives the readers of a group the slice between two cursors, or as much of it as is good for one go.
    fn give_slice(&mut self, group: Group, round: &mut Round) {
        let slice = match self.slice(&group, &mut round.read_bytes) {
            Ok(Some(slice)) => slice,
            Ok(None) => return round.later.extend(group.takers),
            Err(error) => return group.takers.into_iter().for_each(|id| self.fail(id, &error)),
        };
        round.again.extend(&group.takers);
        let size = slice.bytes.len();
        let times = u64::try_from(group.takers.len()).unwrap_or(u64::MAX);
        self.count(slice.through.get().saturating_sub(group.after.get()).saturating_mul(times), size, times);
        let mut sharing = Vec::with_capacity(group.takers.len());
        for id in group.takers {
            let Some(open) = self.readers.get_mut(id) else { continue };
            open.gave(self.turn.now, slice.through, slice.log_bytes, size);
            open.finish_sent |= slice.finish;
            open.content_sent |= slice.content;
            let Some(lead) = open.lead.as_mut() else {
                sharing.push(id);
                continue;
            };
            let (own, begun) = lead.take(&slice.bytes);
            open.lead.take_if(|_| begun);
            if !own.is_empty() {
                self.give(vec![id], own);
            }
        }
        if size > 0 {
            self.give(sharing, slice.bytes);
        }
    }

    /// The chunks between the group's cursors, or a good deal fewer, in its dialect's bytes. What came from rows is added to
    /// `read_bytes`; `None` when it would have to and enough was read.
    fn slice(&self, group: &Group, read_bytes: &mut usize) -> Result<Option<Slice>, StorageError> {
        let Some(batch) = self.batch(group.after, group.until, read_bytes)? else { return Ok(None) };
        let log_bytes = batch.bytes.len();
        let (bytes, Projected { finish, content, .. }) = match group.dialect {
            Dialect::Wire => (batch.bytes, Projected::default()),
            Dialect::Chat => {
                let mut out = Vec::with_capacity(batch.bytes.len());
                let floor = self.readers.deployment.floor;
                let projected = chat::project_stored(&batch.bytes, floor, &group.lens, &mut out)
                    .map_err(|_| StorageError::Corrupt("chunk_block.bytes"))?;
                (out, projected)
            }
        };
        Ok(Some(Slice { bytes, through: batch.through, log_bytes, finish, content }))
    }

    /// A slice of Helix chunks for one reader.
    fn give_projected(&mut self, id: Exchange, (after, until): (Cursor, Cursor), lens: &Lens, round: &mut Round) {
        let batch = match self.batch(after, until, &mut round.read_bytes) {
            Ok(Some(batch)) => batch,
            Ok(None) => return round.later.push(id),
            Err(error) => return self.fail(id, &error),
        };
        let floor = self.readers.deployment.floor;
        let Some(open) = self.readers.get_mut(id) else { return };
        let Some(projector) = open.projector.as_mut() else { return };
        let mut out = Vec::with_capacity(batch.bytes.len());
        let Ok(written) = project_helix(&batch.bytes, projector, floor, lens, &mut out) else {
            return self.fail(id, &StorageError::Corrupt("chunk_block.bytes"));
        };
        open.gave(self.turn.now, batch.through, batch.bytes.len(), out.len());
        open.finish_sent |= written.finish;
        open.content_sent |= written.content;
        self.count(batch.through.get().saturating_sub(after.get()), out.len(), 1);
        round.again.push(id);
        if !out.is_empty() {
            self.give(vec![id], out);
        }
    }

    fn count(&mut self, chunks: u64, size: usize, times: u64) {
        add(&mut self.counters.chunks_sent, chunks);
        add(&mut self.counters.bytes_sent, u64::try_from(size).unwrap_or(u64::MAX).saturating_mul(times));
    }

    /// What a reader follows cannot be read.
    fn fail(&mut self, id: Exchange, error: &StorageError) {
        let line = format!("session {}: {error}", self.readers.log_name);
        self.turn.act(Action::Log(Level::Wrong, line.into()));
        self.readers.evict(id, Eviction::ServerError, self.counters, self.turn);
    }

    /// A terminal with the opening that was held back before it, if the reply is there.
    fn behind_lead(&mut self, id: Exchange, terminal: Terminal, last: Vec<u8>) -> Vec<u8> {
        let lead = self.readers.get_mut(id).and_then(|open| open.lead.take());
        match (terminal, lead) {
            (Terminal::Completed | Terminal::Paused, Some(mut lead)) => [lead.release(), last].concat(),
            _ => last,
        }
    }

    /// A terminal with what stands in it or before it: on the wire a run's result, and a projected response closes what is open.
    fn with_result(
        &mut self,
        id: Exchange,
        dialect: Dialect,
        (terminal, last): (Terminal, Vec<u8>),
        lens: &Lens,
    ) -> Vec<u8> {
        if dialect == Dialect::Wire {
            return match self.session.view().run().and_then(|run| run.last.as_ref()) {
                Some(said) if !matches!(terminal, Terminal::Failed(_)) => {
                    wire::end_of_pushed(terminal, said.result.as_deref(), said.state.as_deref())
                }
                _ => last,
            };
        }
        let Some(mut projector) = self.readers.get_mut(id).and_then(|open| open.projector.take()) else { return last };
        let mut closing = Vec::new();
        for chunk in projector.close().into_iter().filter_map(|chunk| lens.show(chunk)) {
            chat::synthesise(chunk, self.readers.deployment.floor, &mut closing);
        }
        closing.extend(last);
        closing
    }

    /// The frames after `after`, from memory or from rows; `None` when rows would have to be read and enough was read.
    fn batch(&self, after: Cursor, until: Cursor, read_bytes: &mut usize) -> Result<Option<Batch>, StorageError> {
        if let Some(batch) = self.session.log().recent(after, until, SLICE_BYTES) {
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
    fn stored_batch(&self, after: Cursor, until: Cursor) -> Result<Batch, StorageError> {
        let mut batch = Batch { after, through: after, bytes: Vec::new() };
        for block in self.turn.storage.blocks(after, SLICE_BYTES)? {
            batch.take(&block, until);
        }
        if batch.through == after {
            return Err(StorageError::Short("the log has a gap"));
        }
        Ok(batch)
    }
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

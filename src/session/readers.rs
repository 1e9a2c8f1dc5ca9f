//! The registry of open responses: how one is opened, and how it is closed. [`super::drain`] feeds them, [`super::watch`] looks after them.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::deployment::Deployment;
use super::response::{Dialect, Ending, Open, Opening};
use super::turn::SessionTurn;
use crate::core::counters::{Counters, add};
use crate::core::engine::action::{Action, Level};
use crate::core::engine::answer::Answer;
use crate::core::engine::ids::Exchange;
use crate::core::ids::{Cursor, RunId};
use crate::core::reader::{Eviction, Scope, Terminal};
use crate::core::run::Vocabulary;
use crate::core::storage::RunRow;
use crate::core::time::UnixMillis;
use crate::core::view::View;
use crate::dialect::helix::projector::Projector;
use crate::dialect::ui::attempts::Attempts;
use crate::dialect::ui::lens::Lens;
use crate::dialect::wire;

/// The open responses of one object, in the order in which they came. They outlive the image.
#[derive(Debug)]
pub struct Readers {
    pub(super) deployment: Rc<Deployment>,
    pub(super) log_name: String,
    open: BTreeMap<Exchange, Open>,
    /// Those whose heads leave at the end of the turn.
    heads: BTreeSet<Exchange>,
    asking: Asking,
    /// When somebody must look after them.
    pub(super) look: Option<UnixMillis>,
    /// Whether somebody has begun to follow, or nobody follows any more.
    changed: bool,
    /// Who was told something in this turn, which a panic takes back.
    touched: Vec<Touched>,
    /// Those who were told something in a turn that panicked.
    torn: Vec<Touched>,
}

/// A response to which something was said.
#[derive(Clone, Copy, Debug)]
struct Touched {
    id: Exchange,
    /// Whether its head had not left before.
    unsent: bool,
}

/// Who is to be given something.
#[derive(Debug, Default)]
struct Asking {
    everyone: bool,
    these: BTreeSet<Exchange>,
    /// Since when those who ask give way to whatever waits.
    pause: Option<UnixMillis>,
}

impl Readers {
    /// Nobody yet; `log_name` is how log lines name the session.
    pub fn new(deployment: Rc<Deployment>, log_name: String) -> Self {
        Self {
            deployment,
            log_name,
            open: BTreeMap::new(),
            heads: BTreeSet::new(),
            asking: Asking::default(),
            look: None,
            changed: false,
            touched: Vec::new(),
            torn: Vec::new(),
        }
    }

    /// Whether nobody follows.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Open responses.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// One response.
    pub fn get(&self, id: Exchange) -> Option<&Open> {
        self.open.get(&id)
    }

    /// One response, to be changed.
    pub fn get_mut(&mut self, id: Exchange) -> Option<&mut Open> {
        self.open.get_mut(&id)
    }

    /// All responses.
    pub fn ids(&self) -> Vec<Exchange> {
        self.open.keys().copied().collect()
    }

    /// All responses, to be changed.
    pub fn each_mut(&mut self) -> impl Iterator<Item = (Exchange, &mut Open)> {
        self.open.iter_mut().map(|(id, open)| (*id, open))
    }

    /// What `pick` makes of each response.
    pub fn each<T>(&self, mut pick: impl FnMut(Exchange, &Open) -> Option<T>) -> Vec<T> {
        self.open.iter().filter_map(|(id, open)| pick(*id, open)).collect()
    }

    /// Whether somebody has begun to follow, or nobody follows any more, since this was asked last.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Opens the response of a reader. Its head leaves at the end of the turn, unless it is held. A response whose body breaks before its head
    /// has left is a typed status.
    pub fn open(
        &mut self,
        id: Exchange,
        opening: Opening,
        view: &View,
        counters: &mut Counters,
        turn: &mut SessionTurn<'_>,
    ) {
        let (from, held) = (opening.reader.cursor(), opening.held);
        let open = opening.begin(turn.now, view, self.deployment.settings.live_wait);
        turn.park(id);
        self.open.insert(id, open);
        if !held {
            self.heads.insert(id);
        }
        self.changed = true;
        add(&mut counters.opened, 1);
        add(&mut counters.resumed, u64::from(from > Cursor::START));
        counters.readers.set(self.len());
        self.make_room(id, counters, turn);
        self.asks(id);
    }

    /// A head that was held leaves at the end of the turn.
    pub fn lets_go(&mut self, id: Exchange) {
        if self.open.get_mut(&id).is_some_and(Open::lets_go) {
            self.heads.insert(id);
            self.asks(id);
        }
    }

    /// Over the cap the newcomer stays; the one furthest behind leaves, the oldest of several.
    fn make_room(&mut self, newcomer: Exchange, counters: &mut Counters, turn: &mut SessionTurn<'_>) {
        while self.len() > self.deployment.settings.max_readers {
            let others = self.each(|id, open| (id != newcomer).then(|| (open.reader.cursor(), id)));
            let Some((_, id)) = others.into_iter().min() else { return };
            self.evict(id, Eviction::ConnectionCap, counters, turn);
        }
    }

    /// The response takes more.
    pub fn has_room(&mut self, id: Exchange) {
        let Some(open) = self.open.get_mut(&id) else { return };
        open.room = true;
        if open.wants {
            self.asks(id);
        }
    }

    /// The response takes no more for the time being.
    pub fn is_full(&mut self, id: Exchange) {
        if let Some(open) = self.open.get_mut(&id) {
            open.room = false;
        }
    }

    /// This response is looked at in the next drain.
    fn asks(&mut self, id: Exchange) {
        self.asking.these.insert(id);
    }

    /// These were to be looked at, which was not possible: they are in the next drain.
    pub fn ask_again(&mut self, ids: Vec<Exchange>) {
        self.asking.these.extend(ids);
    }

    /// The log has moved: every response is looked at in the next drain.
    pub fn everyone_asks(&mut self) {
        self.asking.everyone = true;
    }

    /// These come after others had their turn.
    pub fn give_way(&mut self, ids: Vec<Exchange>, now: UnixMillis) {
        if !ids.is_empty() {
            self.asking.these.extend(ids);
            self.asking.pause = Some(now);
        }
    }

    /// Those who gave way are heard again.
    pub fn go_on(&mut self) {
        self.asking.pause = None;
    }

    /// When somebody is to be given something, or looked after, without anything happening before.
    pub fn next_moment(&self) -> Option<UnixMillis> {
        [self.asking.pause, self.look].into_iter().flatten().min()
    }

    /// Whoever is to be looked at; none of them asks any more.
    pub fn take_asking(&mut self) -> Vec<Exchange> {
        if std::mem::take(&mut self.asking.everyone) {
            self.asking.these.clear();
            return self.ids();
        }
        if self.asking.pause.is_some() {
            return Vec::new();
        }
        std::mem::take(&mut self.asking.these).into_iter().collect()
    }

    /// Gives the same bytes to these responses, which have no room from here on.
    pub fn give(&mut self, to: Vec<Exchange>, bytes: &Rc<[u8]>, turn: &mut SessionTurn<'_>) {
        self.touched.extend(to.iter().map(|id| Touched { id: *id, unsent: false }));
        let (wanting, sated): (Vec<_>, Vec<_>) = to.into_iter().partition(|id| {
            self.open.get_mut(id).is_some_and(|open| {
                open.room = false;
                open.wants
            })
        });
        for (to, more) in [(wanting, true), (sated, false)] {
            if !to.is_empty() {
                turn.act(Action::Give { to, bytes: Rc::clone(bytes), more });
            }
        }
    }

    /// The head and the first bytes of a response leave, unless they have.
    pub fn send_head(&mut self, id: Exchange, more: bool, turn: &mut SessionTurn<'_>) {
        let Some(open) = self.open.get_mut(&id) else { return };
        let Some(prefix) = open.take_prefix() else { return };
        self.heads.remove(&id);
        self.touched.push(Touched { id, unsent: true });
        turn.open(id, open.dialect.head(), None);
        turn.act(Action::Give { to: vec![id], bytes: prefix.into(), more });
    }

    /// Every head leaves that is not held.
    pub fn send_heads(&mut self, turn: &mut SessionTurn<'_>) {
        std::mem::take(&mut self.heads).into_iter().for_each(|id| self.send_head(id, true, turn));
    }

    /// Forgets a response, whether or not its socket ever reads what is still on its way.
    pub fn forget(
        &mut self,
        id: Exchange,
        ending: Ending,
        counters: &mut Counters,
        turn: &mut SessionTurn<'_>,
    ) -> Option<Open> {
        let closed = self.open.remove(&id)?;
        self.asking.these.remove(&id);
        self.heads.remove(&id);
        self.touched.push(Touched { id, unsent: closed.is_unsent() });
        self.changed |= self.open.is_empty();
        counters.readers.set(self.len());
        match ending {
            Ending::Evicted(reason) => counters.evicted.add(reason),
            Ending::Terminal(Terminal::Truncated(_)) => add(&mut counters.truncated, 1),
            _ => {}
        }
        let line = closed.closing_line(&self.log_name, ending, turn.now);
        turn.act(Action::Log(Level::Told, line));
        Some(closed)
    }

    /// Ends a response with these last bytes.
    pub fn close(
        &mut self,
        id: Exchange,
        (ending, last): (Ending, Vec<u8>),
        counters: &mut Counters,
        turn: &mut SessionTurn<'_>,
    ) {
        self.send_head(id, false, turn);
        if self.forget(id, ending, counters, turn).is_some() {
            turn.act(Action::Give { to: vec![id], bytes: last.into(), more: false });
            turn.act(Action::Close(id));
        }
    }

    /// Breaks a response's body; one whose head has not left is answered as a whole.
    pub fn break_off(&mut self, id: Exchange, ending: Ending, counters: &mut Counters, turn: &mut SessionTurn<'_>) {
        let Some(closed) = self.forget(id, ending, counters, turn) else { return };
        if closed.is_unsent() {
            turn.answer(id, Answer::error(ending.instead_of_body()));
        } else {
            turn.act(Action::Break(id));
        }
    }

    /// Ends a response without a terminal: the wire says what is to be said, every other dialect's body breaks.
    fn part_with(
        &mut self,
        id: Exchange,
        ending: Ending,
        wire: impl FnOnce(Cursor) -> Vec<u8>,
        counters: &mut Counters,
        turn: &mut SessionTurn<'_>,
    ) {
        match self.get(id).map(|open| (open.dialect, open.reader.cursor())) {
            Some((Dialect::Wire, cursor)) => self.close(id, (ending, wire(cursor)), counters, turn),
            Some((Dialect::Chat, _)) => self.break_off(id, ending, counters, turn),
            None => {}
        }
    }

    /// Ends a response on purpose: the wire says why and where to go on.
    pub fn evict(&mut self, id: Exchange, reason: Eviction, counters: &mut Counters, turn: &mut SessionTurn<'_>) {
        let told = |cursor| wire::evicted(cursor, reason);
        self.part_with(id, Ending::Evicted(reason), told, counters, turn);
    }

    /// Ends every response because of a fault of the service.
    pub fn evict_all(&mut self, counters: &mut Counters, turn: &mut SessionTurn<'_>) {
        self.ids().into_iter().for_each(|id| self.evict(id, Eviction::ServerError, counters, turn));
    }

    /// Ends every response, because what it followed is gone: the wire says that it saw no end.
    pub fn part_with_all(&mut self, counters: &mut Counters, turn: &mut SessionTurn<'_>) {
        let told = |_| wire::terminal(Terminal::Dropped);
        self.ids().into_iter().for_each(|id| self.part_with(id, Ending::Deleted, told, counters, turn));
    }

    /// What was said so far in this turn is heard.
    pub fn are_heard(&mut self) {
        self.touched.clear();
    }

    /// The turn that panicked was not heard: whoever was told something in it lacks what the registry believes that it has got, or an end.
    /// [`Readers::mend`] ends them.
    pub fn tear(&mut self) {
        self.torn.append(&mut self.touched);
    }

    /// Ends the responses that a panic has torn.
    pub fn mend(&mut self, counters: &mut Counters, turn: &mut SessionTurn<'_>) {
        let mut torn: BTreeMap<Exchange, bool> = BTreeMap::new();
        for Touched { id, unsent } in std::mem::take(&mut self.torn) {
            *torn.entry(id).or_default() |= unsent;
        }
        for (id, unsent) in torn {
            let ending = Ending::Evicted(Eviction::ServerError);
            self.forget(id, ending, counters, turn);
            if unsent {
                turn.answer(id, Answer::error(ending.instead_of_body()));
            } else {
                turn.act(Action::Break(id));
            }
        }
    }

    /// The attempts of a run are not what they were: its responses leave out what does not count any more. A stock one that has sent
    /// some of it breaks, because its client would show it twice (DESIGN.md invariant 12).
    pub fn learn(&mut self, run: &RunId, attempts: &Attempts, counters: &mut Counters, turn: &mut SessionTurn<'_>) {
        let mut repeats = Vec::new();
        for (id, open) in self.followers(run).filter(|(_, open)| open.dialect == Dialect::Chat) {
            let mut lens = Lens::clone(&open.lens);
            let taken_back = lens.follow(attempts, open.reader.cursor());
            if taken_back && !lens.aware {
                repeats.push(id);
            }
            open.lens = Rc::new(lens);
        }
        repeats.into_iter().for_each(|id| self.break_off(id, Ending::Terminal(Terminal::Superseded), counters, turn));
    }

    /// A run that was waited for has started: responses project its Helix chunks from its first one on.
    pub fn project(&mut self, run: &RunRow) {
        for (_, open) in self.followers(&run.id) {
            open.projector = (run.vocabulary == Vocabulary::Helix)
                .then(|| Box::new(Projector::new(run.id.clone(), run.message_id.clone())));
        }
    }

    fn followers(&mut self, run: &RunId) -> impl Iterator<Item = (Exchange, &mut Open)> {
        self.each_mut().filter(move |(_, open)| matches!(open.reader.scope(), Scope::Run(id) if id == run))
    }
}

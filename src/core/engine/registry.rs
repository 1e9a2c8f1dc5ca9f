//! Who is owed an end. Every request gets exactly one: an answer, or a response that is closed or broken, or its client has left.

use std::collections::{BTreeMap, BTreeSet};

use super::action::{Action, Want};
use super::ids::Exchange;

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Its engine has its turn with it.
    Heard,
    /// Its body, or something else that the engine waits for, will bring the next event.
    Awaiting,
    /// Its response is open.
    Open {
        /// The turn of its last give, if that said that nothing more is there for it.
        sated: Option<u64>,
    },
    /// It was ended in the engine's place, which has not heard of it yet.
    Ended,
}

/// The requests of one object that are not over. It outlives the engine's image.
#[derive(Debug, Default)]
pub struct Registry {
    standing: BTreeMap<Exchange, Standing>,
    /// Those whose clients left in this turn: what was said of them before it could be known is no fault, and is not done.
    gone: BTreeSet<Exchange>,
    surplus: u64,
    /// How many turns are over.
    turns: u64,
}

impl Registry {
    /// The engine hears something of this request; `true` when it is one that is not over.
    pub fn hears(&mut self, exchange: Exchange) -> bool {
        match self.standing.get_mut(&exchange) {
            Some(standing @ (Standing::Heard | Standing::Awaiting)) => *standing = Standing::Heard,
            Some(Standing::Open { .. }) => {}
            Some(Standing::Ended) | None => return false,
        }
        true
    }

    /// A request begins.
    pub fn begins(&mut self, exchange: Exchange) {
        self.standing.insert(exchange, Standing::Heard);
    }

    /// The engine waits for something with it.
    pub fn awaits(&mut self, exchange: Exchange) {
        if let Some(standing @ Standing::Heard) = self.standing.get_mut(&exchange) {
            *standing = Standing::Awaiting;
        }
    }

    /// Its client has left; `true` when the engine has to hear of it.
    pub fn left(&mut self, exchange: Exchange) -> bool {
        if self.standing.get(&exchange) != Some(&Standing::Ended) {
            self.gone.insert(exchange);
        }
        self.ends(exchange)
    }

    /// It gets its end from somebody else than the engine, which is to hear of it as of a client that left; `false` when the engine has
    /// done with it already.
    pub fn ends_unasked(&mut self, exchange: Exchange) -> bool {
        match self.standing.get_mut(&exchange) {
            Some(standing) => *standing = Standing::Ended,
            None => return false,
        }
        true
    }

    /// The engine was told that it is over, and has lost it.
    pub fn has_not_heard(&mut self, exchange: Exchange) {
        self.standing.insert(exchange, Standing::Ended);
    }

    fn ends(&mut self, exchange: Exchange) -> bool {
        self.standing.remove(&exchange).is_some()
    }

    /// The turn is over.
    pub fn turn_over(&mut self) {
        self.gone.clear();
        self.turns = self.turns.saturating_add(1);
    }

    /// Whether room for this response is worth a turn: there was more for it, or there may be since a turn has passed.
    pub fn misses_something(&self, exchange: Exchange) -> bool {
        match self.standing.get(&exchange) {
            Some(Standing::Open { sated: Some(turn) }) => turn.saturating_add(1) < self.turns,
            _ => true,
        }
    }

    fn is_open(&self, exchange: Exchange) -> bool {
        matches!(self.standing.get(&exchange), Some(Standing::Open { .. }))
    }

    /// Takes note of what an action does to requests. `false` when it must not be carried out, because its request is over already: one end
    /// was enough. A give is cut to those who are open.
    pub fn permits(&mut self, action: &mut Action) -> bool {
        let permitted = match action {
            Action::Open { exchange, .. } => match self.standing.get_mut(exchange) {
                Some(standing @ (Standing::Heard | Standing::Awaiting)) => {
                    *standing = Standing::Open { sated: None };
                    true
                }
                _ => false,
            },
            Action::Answer { exchange, .. } => {
                matches!(self.standing.get(exchange), Some(Standing::Heard | Standing::Awaiting))
                    && self.ends(*exchange)
            }
            Action::Close(exchange) | Action::Break(exchange) => self.is_open(*exchange) && self.ends(*exchange),
            Action::Give { to, more, .. } => {
                let given = (!*more).then_some(self.turns);
                to.retain(|exchange| match self.standing.get_mut(exchange) {
                    Some(Standing::Open { sated }) => {
                        *sated = given;
                        true
                    }
                    _ => false,
                });
                return !to.is_empty();
            }
            // It is no promise of an end.
            Action::Take { exchange, want: Want::Nothing } => return self.is_owed(*exchange),
            Action::Take { exchange, .. } => {
                self.awaits(*exchange);
                // A body may be read while its response is open.
                return self.is_owed(*exchange);
            }
            _ => true,
        };
        let known = |exchange: &Exchange| {
            !self.gone.contains(exchange) && self.standing.get(exchange) != Some(&Standing::Ended)
        };
        let is_surplus = !permitted && ended_by(action).as_ref().is_some_and(known);
        self.surplus = self.surplus.saturating_add(u64::from(is_surplus));
        permitted
    }

    /// Whether an action that was permitted has become void by what came later in the same turn. A give is cut to those who have not left.
    pub fn is_void(&self, action: &mut Action) -> bool {
        match action {
            Action::Give { to, .. } => {
                to.retain(|exchange| !self.gone.contains(exchange));
                to.is_empty()
            }
            Action::Take { want: Want::Nothing, .. } => false,
            Action::Take { exchange, .. } => !self.is_owed(*exchange),
            action => ended_by(action).is_some_and(|exchange| self.gone.contains(&exchange)),
        }
    }

    fn is_owed(&self, exchange: Exchange) -> bool {
        self.standing.get(&exchange).is_some_and(|standing| *standing != Standing::Ended)
    }

    /// Requests that nothing will ever answer.
    pub fn lost(&self) -> Vec<Exchange> {
        self.standing.iter().filter(|(_, standing)| **standing == Standing::Heard).map(|(id, _)| *id).collect()
    }

    /// Requests whose end the engine has not said yet. A whole answer that waits for its ticket is said.
    pub fn len(&self) -> usize {
        self.standing.values().filter(|standing| **standing != Standing::Ended).count()
    }

    /// Whether the engine owes nobody anything.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ends that were one too many, and were not carried out: each is a fault of the engine.
    pub fn surplus(&self) -> u64 {
        self.surplus
    }
}

/// The request whose response begins or ends with this action.
fn ended_by(action: &Action) -> Option<Exchange> {
    match action {
        Action::Open { exchange, .. } | Action::Answer { exchange, .. } => Some(*exchange),
        Action::Close(exchange) | Action::Break(exchange) => Some(*exchange),
        _ => None,
    }
}

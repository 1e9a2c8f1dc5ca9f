//! Who is owed an end. Every request gets exactly one: an answer, or a response that is closed or broken, or its client has left.

use std::collections::{BTreeMap, BTreeSet};

use super::action::Action;
use super::ids::Exchange;

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Its engine has its turn with it.
    Heard,
    /// Its body, or something else that the engine waits for, will bring the next event.
    Awaiting,
    /// Its response is open.
    Open,
}

/// The requests of one object that are not over. It outlives the engine's image.
#[derive(Debug, Default)]
pub struct Registry {
    standing: BTreeMap<Exchange, Standing>,
    /// Those that ended in this turn without the engine's doing: what it said of them before it could know is no fault.
    gone: BTreeSet<Exchange>,
    surplus: u64,
}

impl Registry {
    /// The engine hears something of this request; `true` when it is one that is not over.
    pub fn hears(&mut self, exchange: Exchange) -> bool {
        match self.standing.get_mut(&exchange) {
            Some(standing @ (Standing::Heard | Standing::Awaiting)) => *standing = Standing::Heard,
            Some(Standing::Open) => {}
            None => return false,
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

    /// It is over without the engine's doing; `true` when it was owed something.
    pub fn left(&mut self, exchange: Exchange) -> bool {
        self.gone.insert(exchange);
        self.ends(exchange)
    }

    fn ends(&mut self, exchange: Exchange) -> bool {
        self.standing.remove(&exchange).is_some()
    }

    /// The turn is over.
    pub fn turn_over(&mut self) {
        self.gone.clear();
    }

    /// Takes note of what an action does to requests. `false` when it must not be carried out, because its request is over already: one end
    /// was enough. A give is cut to those who are open.
    pub fn permits(&mut self, action: &mut Action) -> bool {
        let permitted = match action {
            Action::Open { exchange, .. } => match self.standing.get_mut(exchange) {
                Some(standing @ (Standing::Heard | Standing::Awaiting)) => {
                    *standing = Standing::Open;
                    true
                }
                _ => false,
            },
            Action::Answer { exchange, .. } => {
                self.standing.get(exchange).is_some_and(|standing| *standing != Standing::Open) && self.ends(*exchange)
            }
            Action::Close(exchange) | Action::Break(exchange) => {
                self.standing.get(exchange) == Some(&Standing::Open) && self.ends(*exchange)
            }
            Action::Give { to, .. } => {
                to.retain(|exchange| self.standing.get(exchange) == Some(&Standing::Open));
                return !to.is_empty();
            }
            Action::Take { exchange, .. } => {
                self.awaits(*exchange);
                // A body may be read while its response is open.
                return self.standing.contains_key(exchange);
            }
            _ => true,
        };
        let known = |exchange: &Exchange| !self.gone.contains(exchange);
        let is_surplus = !permitted && ended_by(action).as_ref().is_some_and(known);
        self.surplus = self.surplus.saturating_add(u64::from(is_surplus));
        permitted
    }

    /// Requests that nothing will ever answer.
    pub fn lost(&self) -> Vec<Exchange> {
        self.standing.iter().filter(|(_, standing)| **standing == Standing::Heard).map(|(id, _)| *id).collect()
    }

    /// Requests that are not over.
    pub fn len(&self) -> usize {
        self.standing.len()
    }

    /// Whether nobody is owed anything.
    pub fn is_empty(&self) -> bool {
        self.standing.is_empty()
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

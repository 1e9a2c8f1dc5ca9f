//! What must hold whatever the engine serves. What clients must see of it is checked by the clients, and altogether by the subject.

use rejoin::core::engine::ids::Exchange;

use crate::network::Stage;
use crate::subject::{Subject, Verdict};
use crate::world::World;

impl<S: Subject> World<S> {
    /// After each turn: one end each, and nothing held of requests that are over.
    pub(crate) fn check_turn(&self) -> Verdict {
        let surplus = self.cycle.registry().surplus();
        if surplus > 0 {
            return Err(format!("{surplus} ends too many"));
        }
        let (owed, lines) = (self.cycle.registry().len(), self.lines.len());
        if owed > lines {
            return Err(format!("{owed} requests are under way, but only {lines} were asked"));
        }
        Ok(())
    }

    /// A response that was told to be full gets nothing but its end.
    pub(crate) fn check_windows(&self, given: &[Exchange]) -> Verdict {
        let goes_on = |exchange: &&Exchange| self.lines.get(exchange).is_some_and(|line| line.stage == Stage::Open);
        match given.iter().find(goes_on) {
            Some(exchange) => Err(format!("#{} is full and was given more", exchange.get())),
            None => Ok(()),
        }
    }

    /// When everybody has come to an end: nothing is left of anybody.
    pub(crate) fn check_end(&self) -> Verdict {
        self.check_turn()?;
        if let Some((exchange, line)) = self.lines.iter().next() {
            return Err(format!("#{} of client {} has no end", exchange.get(), line.client));
        }
        if !self.cycle.registry().is_empty() {
            return Err(format!("{} requests have no end", self.cycle.registry().len()));
        }
        if self.calls.len() > 0 {
            return Err(format!("{} outgoing calls are for nobody", self.calls.len()));
        }
        let held = S::held(&self.engine);
        if held > 0 {
            return Err(format!("the engine still holds {held} of those who are gone"));
        }
        self.subject.judge(&self.witness)
    }

    /// Who still waits, and for what.
    pub(crate) fn who_waits(&self) -> String {
        let clients = self.clients.iter().enumerate();
        let mut waiting: Vec<String> = clients
            .filter_map(|(place, client)| {
                let client = client.as_ref().filter(|client| !client.is_done())?;
                Some(format!("client {place} ({})", client.describe()))
            })
            .collect();
        waiting.extend(
            self.lines
                .iter()
                .map(|(exchange, line)| format!("#{} of client {}, {:?}", exchange.get(), line.client, line.stage)),
        );
        waiting.join("; ")
    }
}

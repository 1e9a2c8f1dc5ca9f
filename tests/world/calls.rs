//! Outgoing calls, and what their servers say.

use std::collections::{BTreeMap, VecDeque};

use rejoin::core::engine::event::FetchNews;
use rejoin::core::engine::ids::FetchId;

use crate::random::Rng;
use crate::subject::Violation;

#[derive(Debug)]
struct Call {
    script: VecDeque<FetchNews>,
    /// Whether the engine waits for the next piece: the head at first, then what it asked for.
    is_wanted: bool,
}

/// The calls under way.
#[derive(Debug, Default)]
pub struct Calls(BTreeMap<FetchId, Call>);

impl Calls {
    /// A call begins; this is what will come of it.
    ///
    /// # Errors
    /// The name is in use.
    pub fn begin(&mut self, fetch: FetchId, script: Vec<FetchNews>) -> Result<(), Violation> {
        let call = Call { script: script.into(), is_wanted: true };
        match self.0.insert(fetch, call) {
            None => Ok(()),
            Some(_) => Err(format!("the name of call {} is used twice", fetch.get())),
        }
    }

    /// The engine wants the next piece.
    pub fn read_on(&mut self, fetch: FetchId) {
        if let Some(call) = self.0.get_mut(&fetch) {
            call.is_wanted = true;
        }
    }

    /// The engine gives it up.
    pub fn abort(&mut self, fetch: FetchId) {
        self.0.remove(&fetch);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The object is gone, and its calls with it.
    pub fn object_died(&mut self) {
        self.0.clear();
    }

    /// What comes next of one of them, or its end before its time.
    pub fn next(&mut self, breaks: bool, rng: &mut Rng) -> Option<(FetchId, FetchNews)> {
        let wanted: Vec<FetchId> = self.0.iter().filter(|(_, call)| call.is_wanted).map(|(id, _)| *id).collect();
        let fetch = rng.pick(&wanted)?;
        let call = self.0.get_mut(&fetch)?;
        call.is_wanted = false;
        let news = match call.script.pop_front() {
            _ if breaks => FetchNews::Broke("the connection is gone".into()),
            Some(news) => news,
            None => FetchNews::Ended,
        };
        if matches!(news, FetchNews::Ended | FetchNews::Broke(_)) {
            self.0.remove(&fetch);
        }
        Some((fetch, news))
    }
}

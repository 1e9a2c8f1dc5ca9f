//! The chat session.
//!
//! * [`stand_in`]: the engine, with calls that stand in for those which it does not hear itself so far.
//! * [`producer`]: a producer from outside. [`reader`]: one of `/sse`. [`pager`]: one of what is read without following it.
//! * [`witness`]: what all have seen.

mod pager;
mod producer;
mod reader;
mod stand_in;
mod witness;

use std::rc::Rc;

use rejoin::core::config::Settings;
use rejoin::core::storage::Storage;
use rejoin::core::storage::double::Double;
use rejoin::core::storage::native::Native;
use rejoin::core::storage::sql::SqlStorage;
use rejoin::dialect::ui::vocabulary::Floor;
use rejoin::model::agent::Agents;
use rejoin::session::deployment::Deployment;
use rejoin::session::engine::SessionEngine;

use crate::campaign;
use crate::disk::Disk;
use crate::random::Rng;
use crate::stored::Faulty;
use crate::subject::{Bounds, Client, Subject, Verdict};
use pager::Pager;
use producer::Producer;
use reader::Reader;
use stand_in::{Call, LEASE, PLANTS, Plant, StandIn};
use witness::Witness;

/// A chat session under the settings of these tests, with at most one fault.
#[derive(Clone, Copy, Debug, Default)]
pub struct Session {
    plant: Option<Plant>,
}

impl Subject for Session {
    type Call = Call;
    type Storage = dyn Storage;
    type Engine = StandIn;
    type Witness = Witness;

    const NAME: &'static str = "session";
    const BOUNDS: Bounds = Bounds { unread: 16 * 1024, calls: 0 };
    const PATIENCE: u64 = 120_000;

    fn disk(&self, is_native: bool) -> Box<dyn Disk<dyn Storage>> {
        if is_native { Box::new(Faulty::<SqlStorage<Native>>::new()) } else { Box::new(Faulty::<Double>::new()) }
    }

    fn engine(&self) -> StandIn {
        let read = |name: &str| (name == "LEASE_MS").then(|| LEASE.get().to_string());
        let settings = Settings::read(read).unwrap();
        let agents = Agents::parse(r#"{"default":{"producer":"demo"}}"#).unwrap();
        let deployment = Rc::new(Deployment { settings, agents, floor: Floor::default() });
        StandIn::new(SessionEngine::new(deployment, "world".into()), self.plant)
    }

    fn cast(&self, rng: &mut Rng) -> Vec<Box<dyn Client<Self>>> {
        let mut cast: Vec<Box<dyn Client<Self>>> = Vec::new();
        let producers = 1 + rng.below(2);
        for id in 0..producers {
            cast.push(Box::new(Producer::new(id as u32)));
        }
        for _ in 0..1 + rng.below(4) {
            cast.push(Box::new(Reader::new(producers)));
        }
        if rng.one_in(2) {
            cast.push(Box::new(Pager::new()));
        }
        cast
    }

    fn held(engine: &StandIn) -> usize {
        engine.held()
    }

    fn judge(&self, witness: &Witness) -> Verdict {
        witness.judge()
    }
}

#[test]
fn holds() {
    campaign::must_hold(&Session::default());
}

#[test]
fn every_planted_fault_is_found() {
    for (plant, within) in PLANTS {
        campaign::must_find(&Session { plant: Some(plant) }, &format!("{plant:?}"), within);
    }
}

//! A toy object: the smallest engine that meets everything that an engine can meet. It shows what the seam asks for, and what the world finds.
//!
//! * [`engine`]: the machine. [`rows`]: its storage, twice. [`frames`]: its two languages.
//! * [`clients`]: who writes and who reads. [`plants`]: faults for it.

mod clients;
mod engine;
mod frames;
mod plants;
mod rows;

use rejoin::core::engine::action::{Fetch, Target};
use rejoin::core::engine::event::{FetchNews, Headers};

use crate::campaign;
use crate::disk::Disk;
use crate::random::Rng;
use crate::subject::{Bounds, Client, Subject, Verdict};
use clients::{Reader, Way, Witness, Writer};
use frames::Frames;
use plants::{PLANTS, Plant};
use rows::{Double, Rows, Sqlite};

/// The toy, with at most one fault.
#[derive(Clone, Copy, Debug, Default)]
pub struct Toy {
    plant: Option<Plant>,
}

impl Subject for Toy {
    type Call = engine::Call;
    type Storage = dyn Rows;
    type Engine = engine::Toy;
    type Witness = Witness;

    const NAME: &'static str = "toy";
    const BOUNDS: Bounds = Bounds { unread: 8 * 1024, calls: 16 };
    const PATIENCE: u64 = 120_000;

    fn disk(&self, is_native: bool) -> Box<dyn Disk<dyn Rows>> {
        if is_native { Box::new(Sqlite::open()) } else { Box::new(Double::default()) }
    }

    fn engine(&self) -> engine::Toy {
        engine::Toy::new(self.plant)
    }

    fn cast(&self, rng: &mut Rng) -> Vec<Box<dyn Client<Self>>> {
        let mut cast: Vec<Box<dyn Client<Self>>> = Vec::new();
        let frames = |rng: &mut Rng| if rng.one_in(2) { Frames::Text } else { Frames::Binary };
        for id in 0..1 + rng.below(3) {
            cast.push(Box::new(Writer::new(id as u32)));
        }
        for _ in 0..1 + rng.below(4) {
            cast.push(Box::new(Reader::new(Way::Follow, frames(rng))));
        }
        for way in [Way::Poll, Way::LongPoll] {
            if rng.one_in(3) {
                cast.push(Box::new(Reader::new(way, frames(rng))));
            }
        }
        cast
    }

    fn serve(&self, call: &Fetch, rng: &mut Rng) -> Vec<FetchNews> {
        let Target::Address(address) = &call.to else { return Vec::new() };
        let mut path = address.rsplit('/').map(|part| part.parse::<u64>().unwrap_or_default());
        let (count, number, writer) = (path.next(), path.next(), path.next());
        let (Some(count), Some(number), Some(writer)) = (count, number, writer) else { return Vec::new() };
        let status = if rng.one_in(12) { 500 } else { 200 };
        let lines: Vec<_> = (number..number + count).map(|number| clients::entry(writer as u32, number)).collect();
        let body = lines.join(&b'\n');
        let piece = 1 + rng.below(body.len());
        let mut news = vec![FetchNews::Answered { status, headers: Headers::default() }];
        news.extend(body.chunks(piece).map(|piece| FetchNews::Bytes(piece.to_vec())));
        news
    }

    fn held(engine: &engine::Toy) -> usize {
        engine.held()
    }

    fn judge(&self, witness: &Witness) -> Verdict {
        witness.judge()
    }
}

#[test]
fn holds() {
    campaign::must_hold(&Toy::default());
}

#[test]
fn every_planted_fault_is_found() {
    for (plant, within) in PLANTS {
        campaign::must_find(&Toy { plant: Some(plant) }, &format!("{plant:?}"), within);
    }
}

/// The same seed is the same schedule, to the last word of its trace.
#[test]
fn a_seed_is_one_schedule() {
    for seed in 1..40 {
        assert_eq!(campaign::trace_of(&Toy::default(), seed), campaign::trace_of(&Toy::default(), seed));
    }
}

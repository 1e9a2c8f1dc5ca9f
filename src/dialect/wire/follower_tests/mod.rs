//! The follower, fed by hand.

mod rules;
mod simulation;

use super::follower::{Follower, Step};
use crate::core::chunk::{Chunk, Stamp};
use crate::core::frame::encode;
use crate::core::ids::{Cursor, RunId, Sequence};

fn at(cursor: u64) -> Cursor {
    Cursor::new(cursor).unwrap()
}

fn chunk(sequence: u64, run: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let stamp = Stamp { run: RunId::new(run), attempt: None };
    encode(Sequence::new(sequence).unwrap(), &Chunk::new("x"), &stamp, &mut bytes);
    bytes
}

/// What a follower does between two reports: the sequences that it delivers, whether it catches up, and what it wants then.
#[derive(Debug, PartialEq)]
struct Took {
    chunks: Vec<u64>,
    caught_up: bool,
    then: Step,
}

fn run(follower: &mut Follower) -> Took {
    let mut took = Took { chunks: Vec::new(), caught_up: false, then: Step::Read };
    loop {
        match follower.step() {
            Step::Chunk { sequence, .. } => took.chunks.push(sequence.get()),
            Step::CaughtUp => {
                assert!(!took.caught_up);
                took.caught_up = true;
            }
            then => return Took { then, ..took },
        }
    }
}

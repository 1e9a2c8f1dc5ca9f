//! The world: whole objects in a simulation, from one seed.
//!
//! An object's engine is a machine without I/O (`rejoin::core::engine`). Here it is driven by the second of its drivers: clients that
//! come, stall and leave, a network that cuts bodies at any byte, storage that confirms late, fails before or after it has landed, and loses
//! in a crash what was not durable; clocks that jump, alarms that are late or come twice. All of it is chosen by one random number, the seed.
//! What is checked is what clients *saw*.
//!
//! * [`subject`]: the seam. A kind of object brings an engine, storage, clients and what they must see.
//! * [`world`]: the driver: turns, actions, crashes. [`schedule`]: what happens next, and the calm behind it, in which nothing fails any
//!   more and everybody must come to an end. [`checks`]: what must hold whatever is served.
//! * [`disk`]: transactions, units, mishaps. [`network`]: one request and its response on the way. [`calls`]: outgoing calls.
//! * [`stored`]: the disk of whatever keeps its rows in `rejoin::core::storage`, on the double and on native SQLite.
//! * [`random`]: chance. [`trace`]: what happened, in words. [`campaign`]: many seeds, and the first that fails.
//! * [`toy`]: a small object that shows the seam, with faults planted in it that the world must find. [`session`]: the chat session.
//!
//! # One more kind of object
//!
//! A folder of its own beside `toy`, with one type that implements [`subject::Subject`], and two tests: `holds`, which calls
//! [`campaign::must_hold`], and one that calls [`campaign::must_find`] for each planted fault. Its storage implements [`disk::Disk`]: what a transaction is,
//! what a crash takes back, and the four [`disk::Mishap`]s.
//!
//! # One more client
//!
//! A type that implements [`subject::Client`], put into [`subject::Subject::cast`]. It asks, sends bodies piece by piece and leaves through
//! its [`subject::Desk`], and is told what it sees of its responses: a head, bytes cut anywhere, a clean end or a broken connection. It
//! returns what must never be seen as an error, and puts what only all clients together can know into [`subject::Subject::Witness`], which
//! [`subject::Subject::judge`] reads at the end. Once the desk is calm it starts nothing new, and comes to its end: it is the world's
//! proof that nobody waits for ever. Servers of outgoing calls are [`subject::Subject::serve`].
//!
//! How to run one seed, and how to plant a fault: CONTRIBUTING.md.

// Helpers of tests, which the lints do not see outside a `#[test]` function.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::arithmetic_side_effects
)]

mod calls;
mod campaign;
mod checks;
mod disk;
mod network;
mod random;
mod schedule;
mod session;
mod stored;
mod subject;
mod toy;
mod trace;
mod world;

//! What proves the session machine.
//!
//! * `model`: what a session is, in the plainest words: lists of facts.
//! * `world`: one session with its storage, producers and confirmations, with `keeping` and `readers`: every step is checked against the model.
//! * `interleavings`: random scripts for the world.
//! * `commands`, `retention`, `snapshots`, `rows`: literal examples, which begin with `examples`.

mod commands;
mod examples;
mod interleavings;
mod keeping;
mod model;
mod readers;
mod retention;
mod rows;
mod snapshots;
mod world;

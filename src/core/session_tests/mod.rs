//! What proves the session machine.
//!
//! * `model`: what a session is, in the plainest words: lists of facts.
//! * `world`: one session with its storage and confirmations; `entries`, `producers`, `keeping` and `readers` are what happens to it. Every
//!   step is checked against the model, by `checks` and on the spot.
//! * `interleavings`: random scripts for the world.
//! * `commands`, `suspensions`, `retention`, `snapshots`, `rows`: literal examples, which begin with `examples`.

mod checks;
mod commands;
mod entries;
mod examples;
mod interleavings;
mod keeping;
mod model;
mod producers;
mod readers;
mod retention;
mod rows;
mod snapshots;
mod suspensions;
mod world;

//! What proves the session machine.
//!
//! * `model`: what a session is, in the plainest words: lists of facts.
//! * `world`: one session with its storage and confirmations; `entries`, `producers`, `outside`, `keeping` and `readers` are what happens to
//!   it. Every step is checked against the model, by `checks` and on the spot. `pushed` is the model of producers outside.
//! * `queue`: the messages that wait, with literal examples.
//! * `acts`: what can happen, as data; `interleavings`: random scripts of it.
//! * `commands`, `suspensions`, `holding`, `numbers`, `retention`, `snapshots`, `rows`: literal examples, which begin with `examples`.
//!   `plans`: how long one fits, and what it says. `refusals`: what a refused command leaves. `silences`: who is heard by a process that was frozen, or whose clock was set. `lives`: deaths of objects, and runs that nobody
//!   follows.

mod acts;
mod checks;
mod commands;
mod entries;
mod examples;
mod holding;
mod interleavings;
mod keeping;
mod lives;
mod model;
mod numbers;
mod outside;
mod plans;
mod producers;
mod pushed;
mod queue;
mod readers;
mod refusals;
mod retention;
mod rows;
mod silences;
mod snapshots;
mod suspensions;
mod world;

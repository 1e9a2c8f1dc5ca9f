//! Rejoin: resumable AI chat streams on Cloudflare Durable Objects.
//!
//! The rooms, and what each is for:
//!
//! * [`core`]: pure decision. The session machine, the log and its blocks, leases, checkpoints, snapshots, typed errors.
//! * [`dialect`]: pure translation between the log and one client's language, both ways.
//! * [`model`]: pure translation of model APIs: messages to request bodies, event streams to chunks.
//! * [`session`]: pure decision of one chat session: the engine of an object, driven by `shell/heart` and by the simulation.
//! * [`streams`]: pure decision of the Durable Streams protocol.
//! * `shell`: the wasm target only. The Worker, the Durable Object, storage, timers, response bodies. It does and decides nothing.
//!
//! Imports point one way: `shell → {session, streams} → {dialect, model} → conversation → core`.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects))]

pub mod core;
pub mod dialect;
pub mod model;
pub mod session;
pub mod streams;

#[cfg(target_arch = "wasm32")]
mod shell;

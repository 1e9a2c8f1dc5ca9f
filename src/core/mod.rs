//! Pure decision: no clock, no I/O, no bindings. This file is the map of the room.
//!
//! * [`ids`]: sequences, cursors and identifiers.
//! * [`chunk`]: one JSON event of a reply.
//! * [`error`]: every failure that leaves the service.

pub mod chunk;
pub mod error;
pub mod ids;

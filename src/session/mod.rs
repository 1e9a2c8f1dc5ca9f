//! The chat session as an engine: what one object decides (DESIGN.md section 3). This file is the map of the room.
//!
//! * [`engine`]: the image that is read from the rows, what is durable of it, and the alarm.
//! * [`deployment`]: everything that the deployment says.

pub mod deployment;
pub mod engine;
#[cfg(test)]
mod engine_tests;

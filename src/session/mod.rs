//! The chat session as an engine: what one object decides (DESIGN.md section 3). This file is the map of the room.
//!
//! * [`call`]: what a request asks. [`door`]: whose session it is. [`refuse`]: why it is refused.
//! * [`reads`]: the snapshot, the status, and chunks in pages; [`stored`]: chunks from the rows.
//! * [`engine`]: the image that is read from the rows, what is durable of it, and the alarm.
//! * [`deployment`]: everything that the deployment says.

pub mod call;
pub mod deployment;
pub mod door;
pub mod engine;
#[cfg(test)]
mod engine_tests;
mod reads;
pub mod refuse;
pub mod stored;

//! The chat session as an engine: what one object decides (DESIGN.md section 3). This file is the map of the room.
//!
//! * [`call`]: what a request asks. [`door`]: whose session it is. [`refuse`]: why it is refused.
//! * [`admissions`]: what a producer's chunks are held against. [`messages`]: the committed messages, and the answers that are held.
//! * [`reads`]: the snapshot, the status, and chunks in pages; [`stored`]: chunks from the rows.
//! * [`sse`]: the response that follows the whole stream.
//! * [`engine`]: the image that is read from the rows, what is durable of it, and the alarm.
//! * [`response`]: one open response. [`readers`]: all of them; [`drain`] feeds them, [`watch`] looks after them.
//! * [`deployment`]: everything that the deployment says. [`turn`]: the types of a turn.

pub mod admissions;
#[cfg(test)]
mod admissions_tests;
pub mod call;
pub mod deployment;
pub mod door;
mod drain;
#[cfg(test)]
mod drain_tests;
pub mod engine;
#[cfg(test)]
mod engine_tests;
pub mod messages;
pub mod readers;
mod reads;
pub mod refuse;
pub mod response;
mod sse;
#[cfg(test)]
mod sse_tests;
pub mod stored;
#[cfg(test)]
mod testing;
pub mod turn;
mod watch;
#[cfg(test)]
mod watch_tests;

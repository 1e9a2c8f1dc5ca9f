//! Stream wire v2, both ways.
//!
//! * [`frames`]: what the service says around stored chunks.
//! * [`decode`]: the same from a reader's side. [`follower`]: a reader that outlives what happens to its connections.

pub mod decode;
pub mod follower;
#[cfg(test)]
mod follower_tests;
pub mod frames;

pub use frames::{caught_up, end_of_pushed, evicted, fail, failed, terminal, truncated};

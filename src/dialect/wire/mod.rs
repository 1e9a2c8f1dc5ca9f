//! Stream wire v2, both ways.
//!
//! * [`frames`]: what the service says around stored chunks.

pub mod frames;

pub use frames::{caught_up, evicted, fail, terminal, truncated};

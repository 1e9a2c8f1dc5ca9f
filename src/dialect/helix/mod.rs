//! Helix chunks (`spec/helix.md` section 10). This file is the map of the room.
//!
//! The log keeps them as they come; `/sse` readers get them so.
//! * [`words`]: the chunk types that chat knows, and where each keeps its facts.
//! * [`response`]: the bytes of a chat response.
//! * [`projector`]: the same run as UI chunks, for chat readers and for the message that is committed; `calls` is its part for tool
//!   calls, `steps` the one for steps and their attempts.

mod calls;
pub mod projector;
#[cfg(test)]
mod projector_tests;
pub mod response;
mod steps;
pub mod words;

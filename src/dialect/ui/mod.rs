//! The AI SDK's UI message stream, protocol v1 (`spec/ai-sdk.md`). This file is the map of the room.
//!
//! * [`vocabulary`]: every chunk type, its keys, and the first client version that accepts each; `values` says what fits a key.
//! * [`sanitise`]: a stored chunk as one client generation accepts it.
//! * [`fold`]: chunks to one UI message, as the client's reducer does it; `tool` is its part for tool calls, `fold_attempts` the one for
//!   attempts of a step, `metadata` the one for metadata,
//!   [`partial_json`] reads an input that is still being streamed.
//! * [`attempts`]: which attempts of a step a replay leaves out.
//! * [`reopen`]: what a response must send first when it begins in the middle of a run.
//! * [`writer`]: whatever a producer emits to a run that every client can read; `calls` repairs the tool chunks.
//! * [`response`]: the bytes of a chat response; `delta` cuts plain deltas out of their stored frames.
//! * [`request`]: the chat request's body and what it asks for; [`message`] says what a valid UI message is.

pub mod attempts;
mod calls;
mod delta;
pub mod fold;
mod fold_attempts;
pub mod message;
mod metadata;
pub mod partial_json;
pub mod reopen;
pub mod request;
pub mod response;
pub mod sanitise;
mod tool;
mod values;
pub mod vocabulary;
pub mod writer;

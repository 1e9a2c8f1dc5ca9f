//! The AI SDK's UI message stream, protocol v1 (`spec/ai-sdk.md`). This file is the map of the room.
//!
//! * [`vocabulary`]: every chunk type, its keys, and the first client version that accepts each; `values` says what fits a key.
//! * [`sanitise`]: a stored chunk as one client generation accepts it.
//! * [`fold`]: chunks to one UI message, as the client's reducer does it; `fold::tool` is its part for tool calls, `fold::attempts` the one
//!   for attempts of a step, [`fold_calls`] the calls of a message as other rooms see them, `metadata` the one for metadata,
//!   [`partial_json`] reads an input that is still being streamed.
//! * [`attempts`]: which attempts of a step a replay leaves out.
//! * [`lens`]: what one response shows of the log; [`resync`] makes the events that tell a client to read again.
//! * [`replay`]: a committed message as the chunks that a response begins with.
//! * [`reopen`]: what a response must send first when it begins in the middle of a run.
//! * [`writer`]: whatever a producer emits to a run that every client can read, also in the place of a writer that died and
//!   in a new attempt; `calls` names the calls and repairs the tool chunks.
//! * [`response`]: the bytes of a chat response; `delta` cuts plain deltas out of their stored frames; [`lead`] holds back what only opens a
//!   reply.
//! * [`request`]: the chat request's body and what it asks for; [`message`] says what a valid UI message is; [`identity`] tells a repeat from
//!   an edit, and where a regenerate cuts.
//! * [`tool_result`]: the answers to the calls of a stored reply; [`tool_submit`] reads a single one;
//!   [`held`] says what a client's copy of a reply lacks, [`copy`] how far it has come. [`held_answers`]: answers that came early.
//!   [`own_ids`] puts the producer's own ids of calls into messages and takes them out.

#[cfg(test)]
mod answers_tests;
pub mod attempts;
pub(super) mod calls;
pub mod copy;
mod delta;
pub mod fold;
pub mod fold_calls;
pub mod held;
pub mod held_answers;
pub mod identity;
pub mod lead;
pub mod lens;
pub mod message;
mod metadata;
pub mod own_ids;
pub mod partial_json;
pub mod reopen;
pub mod replay;
pub mod request;
pub mod response;
pub mod resync;
pub mod sanitise;
#[cfg(test)]
pub(super) mod testing;
pub mod tool_result;
pub mod tool_submit;
mod values;
pub mod vocabulary;
pub mod writer;

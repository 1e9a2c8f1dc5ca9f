//! Somebody's own chat route, which answers an AI SDK UI message stream. This file is the map.
//!
//! * [`settings`]: what an agent of this kind is configured with.
//! * [`request`]: headers and body of the request: the client's own, with the stored conversation.
//! * [`stream`]: the answer's chunks as they are, and how the answer ended.

pub mod request;
pub mod settings;
pub mod stream;

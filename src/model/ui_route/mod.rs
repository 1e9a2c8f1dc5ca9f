//! Somebody's own chat route, which answers an AI SDK UI message stream. This file is the map.
//!
//! * [`settings`]: what an agent of this kind is configured with.
//! * [`request`]: headers and body of the request: the client's own, with the stored conversation.
//! * [`history`]: the stored conversation as strict routes accept it.
//! * [`stream`]: the answer's chunks as they are, and how the answer ended.
//! * [`words`]: what clients are told of an error or a refusal.

pub mod history;
pub mod request;
pub mod settings;
pub mod stream;
pub mod words;

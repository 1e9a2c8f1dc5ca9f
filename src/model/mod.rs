//! Pure translation of model APIs: conversation to request body, event stream to chunks. This file is the map of the room.
//!
//! * [`agent`]: the `AGENTS` configuration.
//! * [`fields`]: one object of that configuration, read strictly.
//! * [`event_stream`]: server-sent events, from bytes cut anywhere.
//! * [`parts`]: the parts of a reply, opened and closed in order.
//! * [`failure`]: what a model API's refusal means.
//! * [`openai`]: the chat-completions API, which many services speak.
//! * [`ui_route`]: somebody's own chat route.
//! * [`lenient_json`]: JSON that was cut inside a character.
//! * [`redact`]: keys out of log lines.
//! * [`demo`]: the reply that needs no model and no key.

pub mod agent;
pub mod demo;
pub mod event_stream;
pub mod failure;
pub mod fields;
pub mod lenient_json;
pub mod openai;
pub mod parts;
pub mod redact;
pub mod ui_route;

//! Pure translation of model APIs: conversation to request body, event stream to chunks. This file is the map of the room.
//!
//! * [`agent`]: the `AGENTS` configuration; [`agents_error`]: what is wrong with it.
//! * [`fields`]: one object of that configuration, read strictly.
//! * [`parts`]: the parts of a reply, opened and closed in order. [`sums`]: how much of what an event says is new.
//! * [`answer`]: an API's answer from its first byte to its end. [`comments`]: what gateways put between its events.
//! * [`failure`]: what a model API's refusal means. [`waits`], [`dates`]: how long it asks to wait.
//! * [`settings`], [`tools`], [`files`], [`history`], [`values`]: what requests to different APIs have in common.
//! * [`openai`]: the chat-completions API, which many services speak.
//! * [`anthropic`]: Anthropic's Messages API.
//! * [`ui_route`]: somebody's own chat route.
//! * [`demo`]: the reply that needs no model and no key.

pub mod agent;
pub mod agents_error;
pub mod answer;
pub mod anthropic;
pub mod comments;
pub mod dates;
pub mod demo;
pub mod failure;
pub mod fields;
pub mod files;
pub mod history;
pub mod openai;
pub mod parts;
pub mod push_agent;
pub mod settings;
pub mod sums;
pub mod tools;
pub mod ui_route;
pub mod values;
pub mod waits;

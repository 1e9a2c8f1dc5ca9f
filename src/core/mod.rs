//! Pure decision: no clock, no I/O, no bindings. This file is the map of the room.
//!
//! What things are: [`ids`], [`time`], [`caller`], [`chunk`], [`record`], [`run`], [`error`]; [`call_ids`]: whose name a call's id is;
//! [`truth`]: whose list of messages counts.
//!
//! What happens to them:
//! * [`session`]: the machine. Commands in, refusals or effects out; [`command`] has both.
//! * [`engine`]: one object as a machine without I/O, and the turn that every driver of it makes.
//! * [`log`]: numbers, tickets, durable head, memory tail; [`frame`] is a stored chunk's form, [`block`] its place in rows.
//! * [`batch`]: when a producer's records are flushed. [`pulse`]: what of its connection is a sign of life. [`vigil`]: whether a silence is a
//!   producer's, or the watch's own. [`busy`]: what a send does that finds a reply under way.
//! * [`retention`]: what is kept, how long, and how far the log is cut.
//! * [`view`] and [`reader`]: what a response may see, and what it does next; [`pace`]: when the service ends it on purpose.
//! * [`snapshot`]: the committed conversation. [`state`]: the custom state beside it, and patches of it.
//! * [`counters`]: what an object has done; [`digest`]: ids that log lines may carry. [`config`]: the deployment's settings.
//! * [`redact`]: other people's words for a log line, without secrets.
//! * [`event_stream`]: server-sent events, from bytes cut anywhere. [`lenient_json`]: JSON that cuts an emoji in two. [`halves`]: joins it.
//! * [`json_line`]: JSON that every reader of lines takes for one.
//! * [`storage`]: rows, writes, and the trait that keeps them.

pub mod approval;
pub mod attempt;
pub mod batch;
pub mod block;
pub mod busy;
pub mod call_ids;
pub mod caller;
pub mod chunk;
pub mod command;
pub mod config;
pub mod counters;
pub mod digest;
pub mod engine;
pub mod error;
pub mod event_stream;
pub mod frame;
pub mod halves;
pub mod ids;
pub mod json_line;
pub mod lenient_json;
pub mod log;
pub mod pace;
pub mod pulse;
pub mod reader;
pub mod record;
pub mod redact;
pub mod retention;
pub mod run;
pub mod session;
#[cfg(test)]
mod session_tests;
pub mod snapshot;
pub mod state;
pub mod storage;
pub mod time;
pub mod truth;
pub mod view;
pub mod vigil;

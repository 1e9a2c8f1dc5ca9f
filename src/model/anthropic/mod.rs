//! Anthropic's Messages API. This file is the map.
//!
//! * [`settings`]: what an agent of this kind is configured with.
//! * [`request`]: address, headers and body of the request.
//! * [`messages`]: stored UI messages as the API's messages.
//! * [`steps`]: where in a reply each call and each result stood. [`conversation`]: the rules of the API for the list of messages.
//! * [`server_tools`]: calls that the API executes itself, kept in a reply and sent back.
//! * [`files`]: a user's files as the API takes them.
//! * [`stream`]: the answer's event stream as UI message chunks.
//! * [`tool_calls`]: calls put together from their pieces, and their results. [`echo`]: words that are said twice.

pub mod conversation;
pub mod echo;
pub mod files;
pub mod messages;
pub mod request;
pub mod server_tools;
pub mod settings;
pub mod steps;
pub mod stream;
pub mod tool_calls;

//! The chat-completions API: OpenAI's, and that of the many services that copy it with small differences. This file is the map.
//!
//! * [`settings`]: what an agent of this kind is configured with.
//! * [`request`]: address, headers and body of the request.
//! * [`messages`]: stored UI messages as the API's messages. [`conversation`]: the list of them as strict servers accept it.
//! * [`files`]: a user's files as the API takes them.
//! * [`stream`]: the answer's event stream as UI message chunks.
//! * [`delta`]: the shapes in which servers say the same thing.
//! * [`tool_calls`]: calls put together from their pieces.
//! * [`media`]: pictures, sound and files that a model says. [`state`]: what its vendor wants back.

pub mod conversation;
pub mod delta;
pub mod files;
pub mod media;
pub mod messages;
pub mod request;
pub mod settings;
pub mod state;
pub mod stream;
pub mod tool_calls;

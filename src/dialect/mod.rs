//! Pure translation, one file or folder per client language. This file is the map of the room.
//!
//! * [`route`]: from method and path to what is asked. [`cors`]: which pages may call. [`cursor`]: cursors as clients write them.
//! * [`address`]: under which address producers are told to write.
//! * [`helix`]: Helix chunks, as they become UI chunks. [`push`]: what a producer outside sends, and what the log keeps of it.
//! * [`ui`]: AI SDK UI message streams, as stock `useChat` and Helix chat clients read them.
//! * [`wire`]: stream wire v2, the language of `/sse`.

pub mod address;
pub mod cors;
pub mod cursor;
pub mod helix;
pub mod push;
pub mod route;
pub mod ui;
pub mod wire;

//! Pure translation, one file or folder per client language. This file is the map of the room.
//!
//! * [`ui`]: AI SDK UI message streams, as stock `useChat` and Helix chat clients read them.

pub mod ui;

//! Pure translation, one file or folder per client language. This file is the map of the room.

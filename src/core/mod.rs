//! Pure decision: no clock, no I/O, no bindings. This file is the map of the room.

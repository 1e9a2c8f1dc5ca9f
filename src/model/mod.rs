//! Pure translation of model APIs: conversation to request body, event stream to chunks. This file is the map of the room.

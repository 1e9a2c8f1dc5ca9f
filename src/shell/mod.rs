//! The wasm shell: does, decides nothing. This file is the map of the room.
//!
//! * [`worker`]: the Worker; finds the session and passes the request on. [`object`]: the Durable Object; catches panics.
//! * [`heart`]: the loop around an engine. [`host`]: the calls beside it, which are not the engine's yet. [`calls`]: what it does for each call, a file a kind.
//! * [`entry`]: who answers a send, and what is handed on. [`production`] and [`producers`]: the run that lives in the object, and what feeds it;
//!   [`settling`]: how it ends. [`stored`]: its chunks, read from the rows.
//! * [`queue`]: the messages that wait for their answer.
//! * [`admissions`]: what is known of the run that a producer outside writes.
//! * [`readers`]: open responses; [`drain`] feeds them, [`watch`] looks after them, [`body`] is the stream. [`journal`]: log lines and counters.
//! * [`holding`]: answers that come while their run still writes.
//! * [`lease_watch`]: the lease of whoever writes the run. [`keeping`]: retention, the size limit, the end of an idle session.
//! * [`follower`]: another session's stream, followed from here.
//! * [`answer`], [`request`], [`incoming`], [`config`], [`clock`], [`sql`], [`bindings`]: the edges.
//! * [`seams`]: handles for tests.

mod admissions;
mod answer;
mod bindings;
mod body;
mod calls;
mod clock;
mod config;
mod entry;
mod follower;
mod following;
mod heart;
mod holding;
mod host;
mod incoming;
mod journal;
mod keeping;
mod lease_watch;
mod object;
mod producers;
mod production;
mod queue;
mod request;
mod seams;
mod settling;
mod sql;
mod stored;
mod worker;

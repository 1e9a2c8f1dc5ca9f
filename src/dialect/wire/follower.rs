//! A reader of `/sse` that outlives dropped connections, evictions and restarts, by the rules of `spec/helix.md` 11.1, without I/O.
//!
//! Its driver asks [`Follower::step`] what to do, does it, and says what came of it:
//!
//! ```text
//! Open  → ask the server from a cursor → opened(status) or unreached()
//! Read  → read the body                → bytes(…), ended() or broke()
//! Chunk, CaughtUp                      → what the follower is for
//! Done                                 → stop; a body that is still open is cancelled
//! ```
//!
//! Where the table leaves a choice: a re-open that fails (nobody answers, 5xx, 429) is tried again after a pause and counts like any other,
//! because a server that restarts needs a moment. A frame that cannot be read breaks the connection that it came on.

use serde_json::Value;
use thiserror::Error;

use super::decode::{DecodeError, Decoder, EndStatus, WireFailure, WireFrame};
use crate::core::ids::{Cursor, RunId, Sequence};
use crate::core::reader::Eviction;
use crate::core::time::Millis;

/// Most counted re-opens of one follower (`MAX_STREAM_REOPENS`, `spec/helix.md` section 9).
pub const MAX_STREAM_REOPENS: u32 = 8;

/// Connections in a row that may bring nothing new; the last of them is final.
const MAX_FRUITLESS: u32 = 2;

/// Pause before a re-open that follows a failed or fruitless one; doubles with each.
const FIRST_PAUSE_MS: u64 = 250;
const LONGEST_PAUSE_MS: u64 = 8_000;

/// What the driver does next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Connect, after the pause, and report with [`Follower::opened`] or [`Follower::unreached`].
    Open(Open),
    /// Read the body, and report with [`Follower::bytes`], [`Follower::ended`] or [`Follower::broke`].
    Read,
    /// One chunk; each comes once, in order.
    Chunk {
        /// Its place in the log.
        sequence: Sequence,
        /// The chunk.
        chunk: Value,
    },
    /// History is over, everything from here on is live. Comes once at most.
    CaughtUp,
    /// The follower is finished; every later step says the same.
    Done(Result<Ending, FollowError>),
}

/// A connection to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// `fromSequence`: everything up to here has come.
    pub from: Cursor,
    /// `waitForLive`. No longer asked for once something live has come, because the run's end is then no stale one.
    pub wait_for_live: bool,
    /// Whether it counts towards [`MAX_STREAM_REOPENS`].
    pub counted: bool,
    /// How long to wait first.
    pub pause: Millis,
}

/// How a followed stream ended, as its server says.
#[derive(Clone, Debug, PartialEq)]
pub enum Ending {
    /// `end`.
    Ended(EndStatus),
    /// `fail` that is not recoverable.
    Failed(WireFailure),
}

/// Why a follower gave up. What had come before has been delivered; [`Follower::cursor`] says how far.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum FollowError {
    /// Chunks after the cursor are gone, or were lost on the way: read the snapshot and follow from its sequence.
    #[error("chunks after the cursor are gone; the snapshot has what they said")]
    Truncated {
        /// Up to here they are missing, when the server says so.
        through: Option<Cursor>,
    },
    /// The server ended connection after connection.
    #[error("the server ends the connection again and again: {}", reason.map_or("for an unknown reason", Eviction::as_str))]
    Evicted {
        /// Why the last time; `None` for a reason that this reader does not know.
        reason: Option<Eviction>,
    },
    /// After an eviction the stream is another run's.
    #[error("the stream has become that of the run {run}")]
    RunChanged {
        /// The newer run.
        run: RunId,
    },
    /// Connection after connection broke, or none could be made. Following again from the cursor may succeed.
    #[error("the stream was interrupted: {cause}")]
    Dropped {
        /// What happened last.
        cause: Loss,
    },
    /// There is no such stream (404).
    #[error("there is no such stream")]
    Absent,
    /// The server refuses; never a sign that the stream does not exist.
    #[error("the server refuses with status {status}")]
    Refused {
        /// The answer's status.
        status: u16,
    },
}

impl FollowError {
    /// Whether following again from the cursor may succeed.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Dropped { .. } => true,
            Self::Refused { status } => is_passing(*status),
            _ => false,
        }
    }
}

/// How a connection was lost.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Loss {
    /// The body ended without a terminal.
    #[error("the body ended early")]
    Ended,
    /// The body could not be read on.
    #[error("the body broke")]
    Broke,
    /// The body is not what the protocol says.
    #[error("{0}")]
    Unreadable(DecodeError),
    /// `fail` that is recoverable.
    #[error("the server broke it off")]
    BrokenOff,
    /// Nobody answered.
    #[error("nobody answered")]
    Unreached,
    /// An answer that may be another one later.
    #[error("status {0}")]
    Status(u16),
}

/// The state of one follower.
#[derive(Clone, Debug)]
pub struct Follower {
    place: Place,
    cursor: Cursor,
    /// The run of the last chunk that came.
    run: Option<RunId>,
    waits: bool,
    caught_up: bool,
    decoder: Decoder,
    /// This connection is behind its history.
    live: bool,
    /// This connection has brought something new.
    fruitful: bool,
    /// An eviction lies behind, and no history since has been read to its end: what comes may belong to a run that took the stream.
    evicted: bool,
    opens: u32,
    counted: u32,
    fruitless: u32,
    setbacks: u32,
}

#[derive(Clone, Debug)]
enum Place {
    Apart(Open),
    Connected(Option<Loss>),
    Done(Result<Ending, FollowError>),
}

impl Follower {
    /// A follower that has everything up to `from`. `wait_for_live`: it does not take the end of an earlier run for an answer
    /// (`spec/helix.md` 4.3, 6).
    pub fn new(from: Cursor, wait_for_live: bool) -> Self {
        let open = Open { from, wait_for_live, counted: false, pause: Millis::new(0) };
        Self {
            place: Place::Apart(open),
            cursor: from,
            run: None,
            waits: wait_for_live,
            caught_up: false,
            decoder: Decoder::default(),
            live: false,
            fruitful: false,
            evicted: false,
            opens: 0,
            counted: 0,
            fruitless: 0,
            setbacks: 0,
        }
    }

    /// Everything up to here has been delivered.
    pub fn cursor(&self) -> Cursor {
        self.cursor
    }

    /// Whether history has been read to its end.
    pub fn is_caught_up(&self) -> bool {
        self.caught_up
    }

    /// Connections that were made or tried.
    pub fn opens(&self) -> u32 {
        self.opens
    }

    /// What to do next. [`Step::Open`] and [`Step::Read`] are repeated until it is reported what came of them.
    pub fn step(&mut self) -> Step {
        loop {
            match &self.place {
                Place::Apart(open) => return Step::Open(*open),
                Place::Done(result) => return Step::Done(result.clone()),
                Place::Connected(over) => match (self.decoder.next_frame(), *over) {
                    (Ok(Some(frame)), _) => {
                        if let Some(step) = self.take(frame) {
                            return step;
                        }
                    }
                    (Ok(None), None) => return Step::Read,
                    (Ok(None), Some(loss)) => self.dropped(loss),
                    (Err(error), _) => self.dropped(Loss::Unreadable(error)),
                },
            }
        }
    }

    /// The server has answered with this status.
    pub fn opened(&mut self, status: u16) {
        if !self.answered() {
            return;
        }
        match status {
            200..=299 => {
                self.place = Place::Connected(None);
                self.decoder = Decoder::default();
                self.live = false;
                self.fruitful = false;
            }
            404 => self.finish(Err(FollowError::Absent)),
            _ if self.opens > 1 && is_passing(status) => self.not_opened(Loss::Status(status)),
            _ => self.finish(Err(FollowError::Refused { status })),
        }
    }

    /// No answer came.
    pub fn unreached(&mut self) {
        if self.answered() {
            self.not_opened(Loss::Unreached);
        }
    }

    /// The next bytes of the body.
    pub fn bytes(&mut self, bytes: &[u8]) {
        if let Place::Connected(None) = self.place {
            self.decoder.push(bytes);
        }
    }

    /// The body has ended.
    pub fn ended(&mut self) {
        self.over(Loss::Ended);
    }

    /// The body could not be read on.
    pub fn broke(&mut self) {
        self.over(Loss::Broke);
    }

    fn over(&mut self, loss: Loss) {
        // What was read before is still delivered; a terminal among it is the end.
        if let Place::Connected(over) = &mut self.place {
            over.get_or_insert(loss);
        }
    }

    fn answered(&mut self) -> bool {
        let awaited = matches!(self.place, Place::Apart(_));
        self.opens = self.opens.saturating_add(u32::from(awaited));
        awaited
    }

    fn take(&mut self, frame: WireFrame) -> Option<Step> {
        match frame {
            WireFrame::Chunk { sequence, chunk } => return self.deliver(sequence, chunk),
            WireFrame::CaughtUp => {
                self.live = true;
                self.evicted = false;
                let first = !std::mem::replace(&mut self.caught_up, true);
                return first.then_some(Step::CaughtUp);
            }
            WireFrame::End(status) => self.finish(Ok(Ending::Ended(status))),
            WireFrame::Fail { recoverable: false, failure } => self.finish(Ok(Ending::Failed(failure))),
            WireFrame::Fail { recoverable: true, .. } => self.dropped(Loss::BrokenOff),
            WireFrame::Truncated { floor } => self.finish(Err(FollowError::Truncated { through: floor })),
            WireFrame::Rewound { head } => {
                if head.is_none_or(|head| self.cursor < head) {
                    self.finish(Err(FollowError::Truncated { through: head }));
                }
            }
            WireFrame::Evicted { resume_from, .. } if self.cursor < resume_from => {
                self.finish(Err(FollowError::Truncated { through: Some(resume_from) }));
            }
            WireFrame::Evicted { reason, .. } => {
                self.evicted = true;
                let counted = !matches!(reason, Some(Eviction::SlowConsumer | Eviction::Stale));
                self.lost(counted, FollowError::Evicted { reason });
            }
        }
        None
    }

    fn deliver(&mut self, sequence: Sequence, chunk: Value) -> Option<Step> {
        if !self.cursor.lacks(sequence) {
            return None;
        }
        if let Some(run) = chunk.get("runId").and_then(Value::as_str).map(RunId::new) {
            if self.evicted && self.run.as_ref().is_some_and(|known| *known != run) {
                self.finish(Err(FollowError::RunChanged { run }));
                return None;
            }
            self.run = Some(run);
        }
        self.cursor = sequence.cursor();
        self.fruitful = true;
        self.waits &= !self.live;
        Some(Step::Chunk { sequence, chunk })
    }

    fn dropped(&mut self, cause: Loss) {
        self.lost(true, FollowError::Dropped { cause });
    }

    /// The connection is gone: another one, or `error`.
    fn lost(&mut self, counted: bool, error: FollowError) {
        if self.fruitful {
            self.fruitless = 0;
            self.setbacks = 0;
        } else {
            self.fruitless = self.fruitless.saturating_add(1);
            self.setbacks = self.setbacks.saturating_add(1);
        }
        if self.fruitless >= MAX_FRUITLESS {
            self.finish(Err(error));
        } else {
            self.reopen(counted, error);
        }
    }

    fn not_opened(&mut self, cause: Loss) {
        let error = FollowError::Dropped { cause };
        if self.opens > 1 {
            self.setbacks = self.setbacks.saturating_add(1);
            self.reopen(true, error);
        } else {
            self.finish(Err(error));
        }
    }

    fn reopen(&mut self, counted: bool, error: FollowError) {
        if counted && self.counted >= MAX_STREAM_REOPENS {
            self.finish(Err(error));
            return;
        }
        self.counted = self.counted.saturating_add(u32::from(counted));
        let open = Open { from: self.cursor, wait_for_live: self.waits, counted, pause: pause(self.setbacks) };
        self.place = Place::Apart(open);
    }

    fn finish(&mut self, result: Result<Ending, FollowError>) {
        self.place = Place::Done(result);
    }
}

/// Whether an answer of this status may be another one later.
fn is_passing(status: u16) -> bool {
    matches!(status, 408 | 429 | 500..=599)
}

fn pause(setbacks: u32) -> Millis {
    let Some(doublings) = setbacks.checked_sub(1) else { return Millis::new(0) };
    let factor = 1_u64.checked_shl(doublings).unwrap_or(u64::MAX);
    Millis::new(FIRST_PAUSE_MS.saturating_mul(factor).min(LONGEST_PAUSE_MS))
}

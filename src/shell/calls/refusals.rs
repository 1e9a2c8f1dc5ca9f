//! Refusals of the calls beside the engine, as the runtime takes them.

use worker::Response;

use crate::core::command::NotFound;
use crate::core::counters::add;
use crate::core::error::Code;
use crate::core::ids::Cursor;
use crate::core::storage::{RunRow, StorageError};
use crate::session::refuse::Refusal;
pub(super) use crate::session::refuse::facts;
use crate::shell::answer;
use crate::shell::heart::response;
use crate::shell::host::{Host, HostError};
use crate::shell::readers::ReaderError;
use crate::shell::request::BodyError;

impl Host {
    /// A refusal as its answer.
    pub(super) fn refusal(&self, refusal: &Refusal) -> Response {
        response(refusal.answer(&self.name))
    }

    pub(super) fn beyond(&self, head: Cursor) -> Response {
        self.refusal(&Refusal::Beyond(head))
    }

    pub(super) fn below_floor(&self, floor: Cursor) -> Response {
        self.count(|counters| add(&mut counters.truncated, 1));
        self.refusal(&Refusal::BelowFloor(floor))
    }

    /// The page's snapshot is too old to be completed by one reply.
    pub(super) fn stale(&self) -> Response {
        self.refusal(&Refusal::Stale)
    }

    /// `spec/helix.md` E15: nothing to follow, because the run failed.
    pub(super) fn stream_failed(&self, run: &RunRow) -> Response {
        self.refusal(&Refusal::StreamFailed(Box::new(run.clone())))
    }
}

/// `spec/helix.md` E12: what the client wants to go on with is not there.
pub(super) fn resume_unknown() -> Response {
    nameless(&Refusal::RESUME_UNKNOWN)
}

/// A continuation that does not exist, and why.
pub(super) fn not_resumable(words: &'static str, cause: &'static str) -> Response {
    nameless(&Refusal::NotResumable(words, cause))
}

/// `spec/helix.md` E13: no run has said anything in time.
pub(super) fn not_live() -> Response {
    nameless(&Refusal::NotLive)
}

/// `spec/helix.md` E14: the committed part of a reply could not be read.
pub(super) fn history_unread(error: &HostError) -> Response {
    told(error, Refusal::HistoryUnread)
}

/// A failure behind a commit: the request must not be repeated, so it is never a 503 (`spec/helix.md` E7, E11).
pub(super) fn committed(response: Response) -> Response {
    if response.status_code() == 503 { answer::error(Code::FrameworkInternalError) } else { response }
}

pub(super) fn absent(absent: NotFound) -> Response {
    nameless(&absent.into())
}

pub(super) fn stream_absent() -> Response {
    nameless(&Refusal::StreamAbsent)
}

pub(super) fn unread(error: &BodyError, limit: usize) -> Response {
    match error {
        BodyError::TooLarge(size) => nameless(&Refusal::TooLarge { limit, size: *size }),
        BodyError::NotJson => answer::error(Code::ValidationMediaType),
        BodyError::Broken => nameless(&Refusal::Invalid("the body could not be read".to_owned())),
    }
}

pub(super) fn unopened(error: &ReaderError) -> Response {
    match error {
        ReaderError::Host(error) => unreadable(error),
        ReaderError::Stream(error) => answer::internal(&crate::shell::bindings::error_text(error)),
    }
}

/// A read that failed before it changed anything may be repeated.
pub(super) fn unreadable(error: &HostError) -> Response {
    told(error, Refusal::Unread)
}

fn told(error: &HostError, refusal: impl FnOnce(StorageError) -> Refusal) -> Response {
    worker::console_error!("{error}");
    match error {
        HostError::Storage(error) => nameless(&refusal(error.clone())),
        HostError::Busy => nameless(&Refusal::Internal),
    }
}

/// A refusal whose answer does not name the session.
fn nameless(refusal: &Refusal) -> Response {
    response(refusal.answer(""))
}

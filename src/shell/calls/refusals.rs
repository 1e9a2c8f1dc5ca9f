//! What the calls beside the engine meet, as refusals.

use worker::Response;

use crate::core::counters::add;
use crate::core::error::Code;
use crate::core::ids::Cursor;
pub(super) use crate::session::refuse::{Refusal, facts};
use crate::shell::heart::response;
use crate::shell::host::{Host, HostError};
use crate::shell::request::BodyError;

impl Host {
    /// A refusal as the runtime takes it; what is the service's own fault is logged.
    pub(super) fn refused(&self, refusal: &Refusal) -> Response {
        if let Some(fault) = refusal.fault() {
            worker::console_error!("session {}: {fault}", self.log_name);
        }
        response(refusal.answer(&self.name))
    }

    pub(super) fn below_floor(&self, floor: Cursor) -> Refusal {
        self.count(|counters| add(&mut counters.truncated, 1));
        Refusal::BelowFloor(floor)
    }
}

impl From<HostError> for Refusal {
    fn from(error: HostError) -> Self {
        match error {
            HostError::Storage(error) => Self::Unread(error),
            HostError::Busy => failed(error),
        }
    }
}

/// A failure that is nobody's but the service's.
pub fn failed(error: HostError) -> Refusal {
    Refusal::Failed(error.to_string())
}

/// `spec/helix.md` E14: the committed part of a reply could not be read.
pub(super) fn history_unread(error: HostError) -> Refusal {
    match error {
        HostError::Storage(error) => Refusal::HistoryUnread(error),
        HostError::Busy => failed(error),
    }
}

pub(super) fn committed(refusal: impl Into<Refusal>) -> Refusal {
    refusal.into().committed()
}

pub(super) fn unread(error: &BodyError, limit: usize) -> Refusal {
    match error {
        BodyError::TooLarge(size) => Refusal::TooLarge { limit, size: *size },
        BodyError::NotJson => Refusal::Coded(Code::ValidationMediaType),
        BodyError::Broken => Refusal::Invalid("the body could not be read".to_owned()),
    }
}

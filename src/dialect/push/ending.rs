//! How a producer lets go of its run: it ends it, fails it, or lets it wait.

use super::body::{EndBody, FailBody, PauseBody, object};
use super::fields::Keys;
use super::refusal::Refusal;

/// Which of the three a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndDeed {
    /// `POST …/end`.
    End,
    /// `POST …/fail`.
    Fail,
    /// `POST …/pause`.
    Pause,
}

/// What it says.
#[derive(Clone, Debug, PartialEq)]
pub enum Ending {
    /// The run's end.
    End(EndBody),
    /// The run's failure.
    Fail(FailBody),
    /// The run waits.
    Pause(PauseBody),
}

impl EndDeed {
    /// Reads the request's body.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn parse(self, body: &[u8]) -> Result<Ending, Refusal> {
        self.read(&object(body)?)
    }

    pub(super) fn read(self, keys: &Keys) -> Result<Ending, Refusal> {
        Ok(match self {
            Self::End => Ending::End(EndBody::read(keys)?),
            Self::Fail => Ending::Fail(FailBody::read(keys)?),
            Self::Pause => Ending::Pause(PauseBody::read(keys)?),
        })
    }
}

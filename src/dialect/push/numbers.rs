//! The headers that say who writes, and which chunk comes first.
//!
//! `Producer-Seq` numbers what a run is sent, from 0: each chunk takes one number, and so does a commit, an end, a failure and a pause. The
//! header gives the number of the request's first element or line.

use thiserror::Error;

/// Largest number: what JavaScript counts exactly.
const MAX: u64 = (1 << 53) - 1;

/// Why a header was refused.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum InvalidNumber {
    /// It is not there.
    #[error("the header {0} is missing")]
    Missing(&'static str),
    /// It is no decimal number.
    #[error("the header {0} must be a whole number without sign, blanks or fraction")]
    NotANumber(&'static str),
}

/// The claim of a run's producer, as the run's start has answered it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProducerEpoch(u32);

/// The number of a request's first element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProducerSeq(u64);

impl ProducerEpoch {
    /// The header's name.
    pub const HEADER: &'static str = "Producer-Epoch";

    /// Reads the header.
    ///
    /// # Errors
    /// [`InvalidNumber`].
    pub fn parse(header: Option<&str>) -> Result<Self, InvalidNumber> {
        let number = parse(Self::HEADER, header)?;
        u32::try_from(number).map(Self).map_err(|_| InvalidNumber::NotANumber(Self::HEADER))
    }

    /// The bare number, as in [`Fence`](crate::core::run::Fence).
    pub fn get(self) -> u32 {
        self.0
    }
}

impl ProducerSeq {
    /// The header's name.
    pub const HEADER: &'static str = "Producer-Seq";

    /// Reads the header.
    ///
    /// # Errors
    /// [`InvalidNumber`].
    pub fn parse(header: Option<&str>) -> Result<Self, InvalidNumber> {
        parse(Self::HEADER, header).map(Self)
    }

    /// The bare number.
    pub fn get(self) -> u64 {
        self.0
    }

    /// The number of what comes `count` elements later.
    #[must_use]
    pub fn after(self, count: usize) -> Self {
        Self(self.0.saturating_add(u64::try_from(count).unwrap_or(u64::MAX)))
    }
}

fn parse(name: &'static str, header: Option<&str>) -> Result<u64, InvalidNumber> {
    let text = header.ok_or(InvalidNumber::Missing(name))?;
    let digits = (1..=16).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = if digits { text.parse().ok() } else { None };
    number.filter(|number| *number <= MAX).ok_or(InvalidNumber::NotANumber(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_plain_whole_numbers() {
        assert_eq!(ProducerSeq::parse(Some("0")).unwrap().get(), 0);
        assert_eq!(ProducerSeq::parse(Some("9007199254740991")).unwrap().get(), MAX);
        assert_eq!(ProducerSeq::parse(Some("4")).unwrap().after(2).get(), 6);
        assert_eq!(ProducerEpoch::parse(Some("4294967295")).unwrap().get(), u32::MAX);
        assert_eq!(ProducerSeq::parse(None), Err(InvalidNumber::Missing("Producer-Seq")));
        for text in ["", "-1", "+1", " 1", "1.0", "1e3", "0x1", "9007199254740992", "99999999999999999"] {
            assert_eq!(ProducerSeq::parse(Some(text)), Err(InvalidNumber::NotANumber("Producer-Seq")), "{text}");
        }
        assert_eq!(ProducerEpoch::parse(Some("4294967296")), Err(InvalidNumber::NotANumber("Producer-Epoch")));
    }
}

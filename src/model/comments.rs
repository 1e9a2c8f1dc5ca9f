//! Words that a gateway puts where an event's JSON should stand, to keep the connection open: `data: : PROCESSING`, `data: ping`.

use crate::core::error::Failure;
use crate::core::redact::quote;

/// Most of them in one answer: at one a second, more than a quarter of an hour.
const MOST: u32 = 1_000;

/// Longest one, in bytes. More is something that was meant to be read.
const LONGEST: usize = 256;

/// The comments of one answer.
#[derive(Clone, Debug, Default)]
pub struct Comments {
    count: u32,
    /// The newest, for the log line of a failure: it may have been an error in plain words.
    last: String,
}

impl Comments {
    /// Skips the data of an event that is no JSON object. `false` when it is no comment: a piece of JSON or HTML, digits, something long, or
    /// one more than [`MOST`].
    pub fn take(&mut self, data: &str) -> bool {
        let words = data.starts_with(|c: char| c.is_alphabetic() || matches!(c, ':' | '-' | '"'));
        if !words || data.len() > LONGEST || data.contains(['{', '<']) || self.count >= MOST {
            return false;
        }
        self.count = self.count.saturating_add(1);
        data.clone_into(&mut self.last);
        true
    }

    /// The failure of an answer that ended early, with the last words of its gateway.
    pub fn explain(&self, failure: Failure) -> Failure {
        if self.count == 0 {
            return failure;
        }
        let words = format!("{}; {} comments in data lines, the last: {}", failure.internal, self.count, self.last);
        Failure { internal: quote(&words), ..failure }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_comments_and_damage_is_not() {
        let mut comments = Comments::default();
        for data in [": PROCESSING", "ping", "PROCESSING", "keep-alive", "- -", "\"ping\"", "null"] {
            assert!(comments.take(data), "{data}");
        }
        for data in ["{\"oops\":", "[1", "<html>", "1", "\u{1}", "x{\"choices\":[]}", "oops <html>", &"x".repeat(257)] {
            assert!(!comments.take(data), "{data}");
        }
    }

    #[test]
    fn their_number_is_bounded() {
        let mut comments = Comments::default();
        assert_eq!((0..5_000).filter(|_| comments.take("ping")).count(), 1_000);
    }
}

//! Whether a producer that failed is asked once more.

use super::error::Failure;
use super::time::Millis;

/// The first pause, in ms; it doubles with each attempt.
const FIRST_PAUSE_MS: u64 = 500;

/// The pause before the next attempt, after `attempts` of at most `most`. `None` when there is none: the failure would come again, or its
/// cure takes longer than half a lease, in which nobody hears from the producer.
pub fn pause_before_next(failure: &Failure, attempts: u32, most: u32, lease: Millis) -> Option<Millis> {
    if !failure.code.retryable() || attempts >= most {
        return None;
    }
    let doublings = attempts.saturating_sub(1).min(20);
    let pause = FIRST_PAUSE_MS.saturating_mul(1 << doublings).max(failure.retry_after_ms.unwrap_or(0));
    (pause <= lease.get() / 2).then(|| Millis::new(pause))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::error::Code;

    const LEASE: Millis = Millis::new(30_000);

    fn pause(code: Code, retry_after_ms: Option<u64>, attempts: u32) -> Option<u64> {
        let failure = Failure { retry_after_ms, ..Failure::new(code, "x") };
        pause_before_next(&failure, attempts, 3, LEASE).map(Millis::get)
    }

    #[test]
    fn only_a_failure_that_may_pass_is_tried_again_and_not_for_ever() {
        assert_eq!(pause(Code::ProviderOverloaded, None, 1), Some(500));
        assert_eq!(pause(Code::ProviderOverloaded, None, 2), Some(1_000));
        assert_eq!(pause(Code::ProviderOverloaded, None, 3), None);
        for code in [Code::ProviderAuth, Code::ProviderContextLength, Code::FrameworkInternalError] {
            assert_eq!(pause(code, None, 1), None, "{code:?}");
        }
    }

    #[test]
    fn the_other_side_says_when_unless_that_takes_too_long() {
        assert_eq!(pause(Code::ProviderRateLimited, Some(7_000), 1), Some(7_000));
        assert_eq!(pause(Code::ProviderRateLimited, Some(100), 2), Some(1_000));
        assert_eq!(pause(Code::ProviderRateLimited, Some(15_000), 1), Some(15_000));
        assert_eq!(pause(Code::ProviderRateLimited, Some(15_001), 1), None);
    }
}

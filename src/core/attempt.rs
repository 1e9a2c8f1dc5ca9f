//! Whether a producer that failed is asked once more, and when one goes on whose object died.

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

/// Most deaths of objects that a run survives.
const MAX_DEATHS: u32 = 10;

/// The pause before the attempt that follows the death of a run's object, its `deaths`-th: none after the first, because most deaths are
/// deployments, then growing up to half a lease, so that a crash that comes again and again is outlasted. `None` when it was one too many.
pub fn pause_after_death(deaths: u32, lease: Millis) -> Option<Millis> {
    if deaths > MAX_DEATHS {
        return None;
    }
    let Some(doublings) = deaths.checked_sub(2) else { return Some(Millis::default()) };
    let pause = FIRST_PAUSE_MS.saturating_mul(1 << doublings.min(20));
    Some(Millis::new(pause.min(lease.get() / 2)))
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
    fn deaths_are_spread_by_growing_pauses_and_have_an_end() {
        let pauses =
            |lease| (1..=11).map(|deaths| pause_after_death(deaths, lease).map(Millis::get)).collect::<Vec<_>>();
        let some = |pauses: [u64; 10]| pauses.into_iter().map(Some).chain([None]).collect::<Vec<_>>();
        assert_eq!(pauses(LEASE), some([0, 500, 1_000, 2_000, 4_000, 8_000, 15_000, 15_000, 15_000, 15_000]));
        let short = Millis::new(1_000);
        assert_eq!(pauses(short), some([0, 500, 500, 500, 500, 500, 500, 500, 500, 500]), "at most half a lease");
    }

    #[test]
    fn the_other_side_says_when_unless_that_takes_too_long() {
        assert_eq!(pause(Code::ProviderRateLimited, Some(7_000), 1), Some(7_000));
        assert_eq!(pause(Code::ProviderRateLimited, Some(100), 2), Some(1_000));
        assert_eq!(pause(Code::ProviderRateLimited, Some(15_000), 1), Some(15_000));
        assert_eq!(pause(Code::ProviderRateLimited, Some(15_001), 1), None);
    }
}

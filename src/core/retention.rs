//! What a session keeps, and for how long (`spec/helix.md` 1.9, 4.4).
//!
//! The log is cut from its front only, at the end of a finished run: blocks never span runs, so no block is cut in two. Messages and run
//! rows stay until the whole session goes.

use serde::Serialize;

use super::ids::Cursor;
use super::time::{Millis, UnixMillis};

/// The part of the deployment's settings that a session follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// How long a producer may be silent.
    pub lease: Millis,
    /// How long the chunks of a finished run are kept.
    pub retention: Millis,
    /// How long a session may be idle before all of it goes; `None` for ever.
    pub ttl: Option<Millis>,
    /// Most bytes of chunks that a session keeps.
    pub max_bytes: u64,
    /// How long a run goes on that nobody follows; `None` for ever.
    pub detached: Option<Millis>,
}

/// A finished run whose chunks are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct KeptRun {
    /// Its last chunk.
    pub end: Cursor,
    /// When it ended.
    pub ended: UnixMillis,
    /// Bytes of its blocks.
    pub bytes: u64,
}

/// What the rows say of the chunks that are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Kept {
    /// Bytes of all blocks, those of a live run included.
    pub bytes: u64,
    /// The finished runs above the floor, oldest first.
    pub runs: Vec<KeptRun>,
}

/// How far the log is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The new floor: an end of a finished run, or the floor as it was.
    pub through: Cursor,
    /// Bytes of the blocks that stay.
    pub bytes: u64,
    /// When the oldest finished run that stays has ended.
    pub oldest: Option<UnixMillis>,
}

/// When room must be made, one part in so many is made free at once: a session that lives at its limit is not cut at each append.
const SPARE: u64 = 16;

impl Kept {
    /// Decides how far to cut: whatever has expired, then the oldest finished runs until `wanted` bytes more would fit. Nothing above
    /// `limit`, the cursor that precedes a live run.
    pub fn cut(&self, policy: &Policy, now: UnixMillis, floor: Cursor, limit: Option<Cursor>, wanted: u64) -> Cut {
        let goal = if self.bytes.saturating_add(wanted) > policy.max_bytes {
            let spare = policy.max_bytes.checked_div(SPARE).unwrap_or(0);
            policy.max_bytes.saturating_sub(spare).saturating_sub(wanted)
        } else {
            u64::MAX
        };
        let mut cut = Cut { through: floor, bytes: self.bytes, oldest: None };
        for run in self.runs.iter().take_while(|run| limit.is_none_or(|limit| run.end <= limit)) {
            // A run without chunks ends where the one before it did, and went with it.
            if run.end <= cut.through {
                continue;
            }
            let expired = now >= run.ended.after(policy.retention);
            if !expired && cut.bytes <= goal {
                cut.oldest = Some(run.ended);
                break;
            }
            cut.through = run.end;
            cut.bytes = cut.bytes.saturating_sub(run.bytes);
        }
        cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const POLICY: Policy =
        Policy { lease: Millis::new(1), retention: Millis::new(1_000), ttl: None, max_bytes: 1_600, detached: None };

    fn at(cursor: u64) -> Cursor {
        Cursor::new(cursor).unwrap()
    }

    fn run(end: u64, ended: u64, bytes: u64) -> KeptRun {
        KeptRun { end: at(end), ended: UnixMillis::new(ended), bytes }
    }

    fn cut(kept: &Kept, now: u64, wanted: u64) -> (u64, u64, Option<u64>) {
        let cut = kept.cut(&POLICY, UnixMillis::new(now), Cursor::START, None, wanted);
        (cut.through.get(), cut.bytes, cut.oldest.map(UnixMillis::get))
    }

    #[test]
    fn what_has_expired_goes_from_the_front() {
        let kept = Kept { bytes: 600, runs: vec![run(5, 100, 100), run(9, 200, 200), run(12, 300, 300)] };
        assert_eq!(cut(&kept, 1_099, 0), (0, 600, Some(100)));
        assert_eq!(cut(&kept, 1_100, 0), (5, 500, Some(200)));
        assert_eq!(cut(&kept, 1_299, 0), (9, 300, Some(300)));
        assert_eq!(cut(&kept, 1_300, 0), (12, 0, None));
    }

    #[test]
    fn a_run_that_has_expired_behind_one_that_has_not_stays() {
        // The clock was set back between the two.
        let kept = Kept { bytes: 300, runs: vec![run(5, 900, 100), run(9, 200, 200)] };
        assert_eq!(cut(&kept, 1_500, 0), (0, 300, Some(900)));
    }

    #[test]
    fn the_oldest_make_room_and_a_little_more() {
        let kept = Kept { bytes: 1_550, runs: vec![run(5, 100, 20), run(9, 200, 200), run(12, 300, 300)] };
        assert_eq!(cut(&kept, 400, 50), (0, 1_550, Some(100)), "it fits");
        assert_eq!(cut(&kept, 400, 51), (9, 1_330, Some(300)));
        assert_eq!(cut(&kept, 400, 1_600), (12, 1_030, None), "all that may go, and it still does not fit");
    }

    #[test]
    fn a_session_over_a_limit_that_was_lowered_is_cut_without_anybody_asking_for_room() {
        let kept = Kept { bytes: 2_000, runs: vec![run(5, 100, 700), run(9, 200, 1_300)] };
        assert_eq!(cut(&kept, 400, 0), (5, 1_300, Some(200)));
    }

    #[test]
    fn a_run_without_chunks_goes_with_the_one_before_it() {
        let kept = Kept { bytes: 300, runs: vec![run(5, 100, 100), run(5, 900, 0), run(9, 950, 200)] };
        assert_eq!(cut(&kept, 1_100, 0), (5, 200, Some(950)));
    }

    #[test]
    fn nothing_below_the_floor_or_of_a_live_run() {
        let kept = Kept { bytes: 300, runs: vec![run(5, 100, 100), run(9, 100, 200)] };
        let cut = |floor, limit| kept.cut(&POLICY, UnixMillis::new(5_000), at(floor), limit, 0).through;
        assert_eq!((cut(0, Some(at(8))), cut(7, Some(at(5))), cut(9, None)), (at(5), at(7), at(9)));
    }

    proptest! {
        #[test]
        fn a_cut_is_a_prefix_of_finished_runs(
            sizes in prop::collection::vec((1_u64..9, 0_u64..3_000, 0_u64..900), 0..9),
            live in 0_u64..900, now in 0_u64..4_000, wanted in 0_u64..2_000,
        ) {
            let mut end = 0;
            let runs: Vec<_> = sizes.into_iter().map(|(more, ended, bytes)| { end += more; run(end, ended, bytes) }).collect();
            let kept = Kept { bytes: runs.iter().map(|run| run.bytes).sum::<u64>() + live, runs };
            let now = UnixMillis::new(now);
            let cut = kept.cut(&POLICY, now, Cursor::START, None, wanted);
            let (gone, stay): (Vec<&KeptRun>, Vec<&KeptRun>) = kept.runs.iter().partition(|run| run.end <= cut.through);
            prop_assert_eq!(cut.bytes, stay.iter().map(|run| run.bytes).sum::<u64>() + live);
            prop_assert_eq!(cut.oldest, stay.first().map(|run| run.ended));
            prop_assert!(stay.first().is_none_or(|run| now < run.ended.after(POLICY.retention)), "nothing expired is left in front");
            prop_assert!(stay.is_empty() || cut.bytes + wanted <= POLICY.max_bytes, "room is made while there is a finished run");
            let fits = kept.bytes + wanted <= POLICY.max_bytes;
            prop_assert!(!fits || gone.iter().all(|run| now >= run.ended.after(POLICY.retention)), "nothing goes without a reason");
        }
    }
}

//! Whether a silence is a producer's, or the watch's own.
//!
//! A watch that waits for a lease to lapse sees clocks only. A process that was frozen, and a clock that was set forward, look like a
//! silence in which nobody could have been heard; a clock that was set back looks like a lease that never ends. So the watch looks at the
//! clock in small steps, and compares each step with what it had planned.

use super::time::{Millis, UnixMillis};

/// A lease is watched in so many steps.
const STEPS: u64 = 8;

/// Least length of a step.
const LEAST: Millis = Millis::new(50);

/// A look may be late by a step, and by this at least, before the watch counts as asleep: timers are late whenever the process is busy.
const LATE: Millis = Millis::new(200);

/// What a look at the clock has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// The clock shows what was expected: whoever spoke since the last look was heard.
    Clear,
    /// Nobody knows what has passed since the last look: the process was frozen, or the clock was set.
    Blind,
}

/// The watch over one lease after the other.
#[derive(Clone, Debug, Default)]
pub struct Vigil {
    /// When it last looked, and how long it may sleep from then on without having overslept.
    last: Option<(UnixMillis, Millis)>,
}

impl Vigil {
    /// A look at the clock. Without a step that was planned before, there is nothing to be late for.
    pub fn look(&mut self, now: UnixMillis) -> Sight {
        let Some((last, allowed)) = self.last else { return Sight::Clear };
        self.last = Some((now, allowed));
        if now < last || now.since(last) > allowed { Sight::Blind } else { Sight::Clear }
    }

    /// How long to sleep until the next look, when `left` of the lease is left.
    pub fn plan(&mut self, now: UnixMillis, lease: Millis, left: Millis) -> Millis {
        let step = step_of(lease);
        let pause = step.min(left).max(Millis::new(1));
        self.last = Some((now, pause.and(step.max(LATE))));
        pause
    }
}

/// Time between two looks.
fn step_of(lease: Millis) -> Millis {
    Millis::new(lease.get().checked_div(STEPS).unwrap_or(0)).max(LEAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Millis = Millis::new(8_000);

    fn at(ms: u64) -> UnixMillis {
        UnixMillis::new(ms)
    }

    #[test]
    fn a_step_is_an_eighth_of_the_lease_or_what_is_left_of_it() {
        let mut vigil = Vigil::default();
        assert_eq!(vigil.plan(at(0), LEASE, LEASE), Millis::new(1_000));
        assert_eq!(vigil.plan(at(0), LEASE, Millis::new(300)), Millis::new(300));
        assert_eq!(vigil.plan(at(0), LEASE, Millis::default()), Millis::new(1), "never a loop without a pause");
        assert_eq!(vigil.plan(at(0), Millis::new(3), LEASE), LEAST);
    }

    #[test]
    fn a_look_is_compared_with_the_plan() {
        let mut vigil = Vigil::default();
        assert_eq!(vigil.look(at(5)), Sight::Clear, "nothing was planned");
        vigil.plan(at(5_000), LEASE, LEASE);
        assert_eq!(vigil.look(at(7_000)), Sight::Clear, "late by no more than a step");
        assert_eq!(vigil.look(at(9_001)), Sight::Blind);
        assert_eq!(vigil.look(at(9_002)), Sight::Clear, "said once");
        assert_eq!(vigil.look(at(9_001)), Sight::Blind, "set back");
        assert_eq!(vigil.look(at(9_001)), Sight::Clear);
    }

    #[test]
    fn a_busy_process_is_not_a_frozen_one() {
        let mut vigil = Vigil::default();
        let pause = vigil.plan(at(0), Millis::new(80), Millis::new(80));
        assert_eq!(vigil.look(at(0).after(pause).after(LATE)), Sight::Clear);
        vigil.plan(at(1_000), Millis::new(80), Millis::new(80));
        assert_eq!(vigil.look(at(1_001).after(pause).after(LATE)), Sight::Blind);
    }
}

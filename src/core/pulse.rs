//! Whether what arrives from a producer's connection is a sign of life.
//!
//! Bytes alone are not: who drips a byte a second would never lapse. Whole lines are, for a while: a model that waits in its vendor's queue sends
//! comments or empty events. But one that says nothing for [`MUTE_LEASES`] leases is silent, whatever it sends.

use super::time::{Millis, UnixMillis};

/// Bytes of a line that is not whole yet which count as a sign of life.
const LINE_BYTES: usize = 1 << 10;

/// For how many leases a producer may send lines that say nothing.
pub const MUTE_LEASES: u64 = 10;

/// What arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// The producer lives: its lease is renewed.
    Alive,
    /// Not enough to say so.
    Nothing,
    /// It has said nothing for so long that it counts as silent.
    Mute,
}

/// The connection of one answer.
#[derive(Clone, Copy, Debug)]
pub struct Pulse {
    bound: Millis,
    /// When something was said, or the answer began.
    said: UnixMillis,
    /// Bytes since the last sign of life.
    waiting: usize,
}

impl Pulse {
    /// An answer that begins at this moment, of a producer with this lease.
    pub fn new(lease: Millis, now: UnixMillis) -> Self {
        Self { bound: Millis::new(lease.get().saturating_mul(MUTE_LEASES)), said: now, waiting: 0 }
    }

    /// Bytes have arrived.
    pub fn heard(&mut self, now: UnixMillis, bytes: &[u8]) -> Sign {
        // A clock that was set back must not keep it alive for longer.
        self.said = self.said.min(now);
        if now.since(self.said) >= self.bound {
            return Sign::Mute;
        }
        self.waiting = self.waiting.saturating_add(bytes.len());
        if self.waiting < LINE_BYTES && !bytes.contains(&b'\n') {
            return Sign::Nothing;
        }
        self.waiting = 0;
        Sign::Alive
    }

    /// What arrived said something.
    pub fn spoke(&mut self, now: UnixMillis) {
        self.said = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> UnixMillis {
        UnixMillis::new(ms)
    }

    #[test]
    fn lines_are_signs_of_life_and_single_bytes_are_not() {
        let mut pulse = Pulse::new(Millis::new(1_000), at(0));
        assert_eq!(pulse.heard(at(1), b"data"), Sign::Nothing);
        assert_eq!(pulse.heard(at(2), b": {}\n"), Sign::Alive);
        assert_eq!(pulse.heard(at(3), &[b'x'; LINE_BYTES - 1]), Sign::Nothing);
        assert_eq!(pulse.heard(at(4), b"x"), Sign::Alive);
    }

    #[test]
    fn comments_alone_keep_nobody_alive_for_ever() {
        let mut pulse = Pulse::new(Millis::new(1_000), at(5_000));
        for now in (5_000..15_000).step_by(500) {
            assert_eq!(pulse.heard(at(now), b": PROCESSING\n\n"), Sign::Alive, "{now}");
        }
        assert_eq!(pulse.heard(at(15_000), b": PROCESSING\n\n"), Sign::Mute);
        pulse.spoke(at(15_001));
        assert_eq!(pulse.heard(at(20_000), b": PROCESSING\n\n"), Sign::Alive);
    }

    #[test]
    fn a_clock_that_is_set_back_counts_from_then() {
        let mut pulse = Pulse::new(Millis::new(1_000), at(1_000_000));
        assert_eq!(pulse.heard(at(0), b"\n"), Sign::Alive);
        assert_eq!(pulse.heard(at(10_000), b"\n"), Sign::Mute);
    }
}

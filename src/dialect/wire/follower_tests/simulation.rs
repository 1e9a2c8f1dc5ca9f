//! A server that does to its readers whatever a server can do, and what must hold of a follower for all that.

use proptest::prelude::*;

use super::{at, chunk, run};
use crate::core::reader::{Eviction, Terminal};
use crate::dialect::wire;
use crate::dialect::wire::decode::EndStatus;
use crate::dialect::wire::follower::{Ending, FollowError, Follower, MAX_STREAM_REOPENS, Open, Step};

/// What happens to one connection.
#[derive(Clone, Debug)]
enum Fate {
    /// All that there is, in pieces of this size.
    Whole(usize),
    /// It breaks or ends after so many bytes.
    Cut {
        bytes: usize,
        ended: bool,
        piece: usize,
    },
    /// It is ended on purpose after so many chunks, the last `lost` of which did not arrive.
    Evict {
        chunks: usize,
        lost: usize,
        reason: Eviction,
    },
    /// It repeats the last chunks before the cursor.
    Repeats(u64),
    /// The log's beginning is removed before it is opened.
    Trim(u64),
    /// Nobody answers, or only with a status.
    Unreached,
    Status(u16),
}

fn fates() -> impl Strategy<Value = Fate> {
    let reason = prop::sample::select(Eviction::ALL.to_vec());
    prop_oneof![
        2 => (1_usize..400).prop_map(Fate::Whole),
        8 => (0_usize..3000, any::<bool>(), 1_usize..400).prop_map(|(bytes, ended, piece)| Fate::Cut { bytes, ended, piece }),
        4 => (0_usize..12, prop_oneof![5 => Just(0), 1 => 0_usize..3], reason)
            .prop_map(|(chunks, lost, reason)| Fate::Evict { chunks, lost, reason }),
        2 => (1_u64..5).prop_map(Fate::Repeats),
        1 => (0_u64..10).prop_map(Fate::Trim),
        3 => Just(Fate::Unreached),
        2 => prop::sample::select(vec![503, 429, 404, 409]).prop_map(Fate::Status),
    ]
}

/// The log 1..=`length` of one run, of which everything up to `floor` is gone.
struct Server {
    length: u64,
    floor: u64,
}

impl Server {
    fn frames(&self, from: u64) -> Vec<Vec<u8>> {
        if from < self.floor {
            return vec![wire::truncated(at(self.floor))];
        }
        let mut frames: Vec<Vec<u8>> = (from + 1..=self.length).map(|sequence| chunk(sequence, "a")).collect();
        // Somewhere in the middle, as for a reader that came while the run was running.
        frames.insert(frames.len() / 2, wire::caught_up(at(from + frames.len() as u64 / 2)));
        frames.push(wire::terminal(Terminal::Completed));
        frames
    }

    /// One connection; whether the follower lost chunks that the server had written.
    fn serve(&mut self, follower: &mut Follower, open: Open, fate: &Fate) -> bool {
        let from = open.from.get();
        match *fate {
            Fate::Unreached => follower.unreached(),
            Fate::Status(status) => follower.opened(status),
            Fate::Whole(piece) => write(follower, &self.frames(from).concat(), piece),
            Fate::Repeats(back) => {
                write(follower, &self.frames(from.saturating_sub(back).max(self.floor)).concat(), 64)
            }
            Fate::Trim(more) => {
                self.floor = (self.floor + more).min(self.length);
                write(follower, &self.frames(from).concat(), 100);
            }
            Fate::Cut { bytes, ended, piece } => {
                let all = self.frames(from).concat();
                write(follower, &all[..bytes.min(all.len())], piece);
                if ended { follower.ended() } else { follower.broke() }
            }
            Fate::Evict { chunks, lost, reason } => {
                let mut sent: Vec<Vec<u8>> =
                    (from + 1..=self.length).take(chunks).map(|sequence| chunk(sequence, "a")).collect();
                let resume_from = at(from + sent.len() as u64);
                let lost = lost.min(sent.len());
                sent.truncate(sent.len() - lost);
                sent.push(wire::evicted(resume_from, reason));
                write(follower, &sent.concat(), 50);
                return lost > 0;
            }
        }
        false
    }
}

fn write(follower: &mut Follower, bytes: &[u8], piece: usize) {
    follower.opened(200);
    for piece in bytes.chunks(piece) {
        follower.bytes(piece);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn all_comes_once_in_order_or_the_error_says_why(
        fates in prop::collection::vec(fates(), 0..16), length in 0_u64..40, start in 0_u64..40,
    ) {
        let start = start.min(length);
        let mut server = Server { length, floor: 0 };
        let mut follower = Follower::new(at(start), false);
        let mut fates = fates.into_iter();
        let (mut delivered, mut counted, mut fruitless, mut lost) = (start, 0, 0, false);
        let mut last = Fate::Whole(1);
        let result = loop {
            let before = delivered;
            let took = run(&mut follower);
            for sequence in took.chunks {
                prop_assert_eq!(sequence, delivered + 1, "in order, without gap or repetition");
                delivered = sequence;
            }
            if !matches!(last, Fate::Unreached | Fate::Status(_)) {
                fruitless = if delivered > before { 0 } else { fruitless + 1 };
            }
            match took.then {
                Step::Done(result) => break result,
                Step::Open(open) => {
                    prop_assert_eq!(open.from.get(), delivered);
                    prop_assert!(!lost, "lost chunks are not passed over");
                    if follower.opens() > 0 {
                        prop_assert!(fruitless < 2);
                        let free = matches!(last, Fate::Evict { reason: Eviction::SlowConsumer | Eviction::Stale, .. });
                        prop_assert_eq!(open.counted, !free);
                        counted += u32::from(open.counted);
                        prop_assert!(counted <= MAX_STREAM_REOPENS);
                    } else {
                        fruitless = 0;
                    }
                    last = fates.next().unwrap_or(Fate::Whole(7));
                    lost = server.serve(&mut follower, open, &last);
                }
                then => prop_assert!(false, "{:?} after a whole body", then),
            }
        };
        prop_assert_eq!(follower.cursor().get(), delivered);
        let evicted = matches!(last, Fate::Evict { .. });
        let spent = fruitless >= 2 || counted == MAX_STREAM_REOPENS;
        match result {
            Ok(ending) => {
                prop_assert_eq!(ending, Ending::Ended(EndStatus::Completed));
                prop_assert_eq!(delivered, length);
            }
            Err(FollowError::Truncated { .. }) => prop_assert!(lost || delivered < server.floor),
            Err(FollowError::Evicted { .. }) => prop_assert!(spent && evicted),
            Err(FollowError::Dropped { .. }) => {
                prop_assert!(!evicted && (spent || follower.opens() == 1));
            }
            Err(FollowError::Absent) => prop_assert!(matches!(last, Fate::Status(404))),
            Err(FollowError::Refused { status }) => {
                prop_assert!(matches!(last, Fate::Status(s) if s == status && (s == 409 || follower.opens() == 1)));
            }
            Err(error @ FollowError::RunChanged { .. }) => prop_assert!(false, "{}", error),
        }
    }
}

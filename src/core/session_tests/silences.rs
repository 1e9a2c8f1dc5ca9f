//! Silences of a producer, and of the process that listens to it: a frozen process and a clock that is set are no death, and the dead are
//! not kept alive by them.

use super::examples::{POLICY, at, me};
use crate::core::command::{Due, Entry, Start, Started};
use crate::core::ids::RunId;
use crate::core::log::Ticket;
use crate::core::run::{Fence, Vocabulary};
use crate::core::session::Session;
use crate::core::time::{Millis, UnixMillis};
use proptest::prelude::*;

const LEASE: u64 = 1_000;

/// Longest silence of the process itself that may go unnoticed: a step, and what a look may be late by.
const UNNOTICED: u64 = LEASE / 8 + 200;

/// A process that holds a session whose run a producer outside writes. `time` is what really passes, in ms.
struct Process {
    session: Session,
    fence: Fence,
    time: u64,
    /// What is added to `time` to read the clock.
    clock: i64,
    /// When the watch wakes.
    wakes: u64,
    /// When the run was lost.
    lost: Option<u64>,
}

/// Who is first when a frozen process goes on.
#[derive(Clone, Copy, Debug, PartialEq)]
enum First {
    Watch,
    Request,
}

impl Process {
    fn new() -> Self {
        let mut session = Session::load(None, POLICY, false, Ticket::FIRST);
        let mut process = Self {
            fence: begin(&mut session),
            session,
            time: 0,
            clock: i64::try_from(START.get()).unwrap(),
            wakes: 0,
            lost: None,
        };
        process.plan();
        process
    }

    fn now(&self) -> UnixMillis {
        UnixMillis::new(self.time.saturating_add_signed(self.clock))
    }

    fn plan(&mut self) {
        if let Some(pause) = self.session.next_look(self.now()) {
            self.wakes = self.time + pause.get();
        }
    }

    fn watch(&mut self) {
        self.asked();
        self.plan();
    }

    /// Anybody's request but the producer's: a dead run is settled before it is answered.
    fn asked(&mut self) {
        if let Some(Due::Lapsed(fence)) = self.session.look(self.now()) {
            assert_eq!(fence, self.fence);
            self.lost = self.lost.or(Some(self.time));
        }
    }

    /// The producer's request: heard before a settling.
    fn written(&mut self) {
        if !self.session.hears(&self.fence) {
            self.asked();
        }
        self.session.renew(self.now(), &self.fence);
    }

    /// Time passes; the watch wakes on time.
    fn pass(&mut self, ms: u64) {
        let until = self.time + ms;
        while self.wakes <= until && self.lost.is_none() {
            self.time = self.wakes;
            self.watch();
        }
        self.time = until;
    }

    fn freeze(&mut self, ms: u64, first: First) {
        self.time += ms;
        if first == First::Request {
            self.asked();
        }
        if self.wakes <= self.time {
            self.watch();
        }
    }
}

const START: UnixMillis = UnixMillis::new(1_000_000_000_000);

fn begin(session: &mut Session) -> Fence {
    let start = Start {
        now: START,
        caller: &me(),
        run: RunId::new("r1"),
        salt: "salt",
        agent: "",
        vocabulary: Vocabulary::Ui,
        lease: Millis::new(LEASE),
        key: None,
        entry: Entry::Push { inputs: Vec::new(), supersede: false, abandoned: None },
        push: Some(Millis::new(LEASE)),
        state: None,
    };
    let plan = session.plan(start).unwrap();
    let Started { fence, start, .. } = session.start(plan, &[]).unwrap();
    assert_eq!(start, at(0));
    fence
}

/// What happens to the process between two words of its producer.
#[derive(Clone, Debug)]
enum Trouble {
    None,
    Freeze(u64, First),
    Set(i64),
}

fn trouble() -> impl Strategy<Value = Trouble> {
    let first = prop_oneof![Just(First::Watch), Just(First::Request)];
    prop_oneof![
        Just(Trouble::None),
        (UNNOTICED + 1..20_000, first).prop_map(|(ms, first)| Trouble::Freeze(ms, first)),
        prop_oneof![-100_000_000_i64..-1, (UNNOTICED as i64 + 1)..100_000_000].prop_map(Trouble::Set),
    ]
}

#[test]
fn a_frozen_process_hears_who_speaks_within_a_lease_after_it_goes_on() {
    for frozen in [1_500, 5_000] {
        for before in (0..LEASE).step_by(10) {
            for first in [First::Watch, First::Request] {
                let mut process = Process::new();
                process.pass(before);
                process.freeze(frozen, first);
                process.pass(LEASE - 1);
                process.written();
                process.pass(LEASE - 1);
                assert_eq!(process.lost, None, "frozen for {frozen} ms, {before} ms after its word, {first:?} first");
                process.pass(2);
                assert!(process.lost.is_some(), "and a silence is a silence again");
            }
        }
    }
}

#[test]
fn a_late_word_is_heard_if_nobody_has_settled_the_run_before() {
    let mut process = Process::new();
    process.pass(LEASE - 1);
    process.time += 100;
    process.written();
    process.watch();
    process.pass(LEASE - 2);
    assert_eq!(process.lost, None);
    let stale = Fence { epoch: 9, ..process.fence.clone() };
    assert!(process.session.hears(&process.fence) && !process.session.hears(&stale), "of the current producer only");
}

#[test]
fn a_clock_that_is_set_kills_nobody_and_keeps_no_dead_alive_for_longer_than_a_lease() {
    for set in [-86_400_000, -3_600_000, -5_000, -1_000, 1_000, 5_000, 3_600_000, 86_400_000] {
        for after in (0..LEASE).step_by(50) {
            let mut process = Process::new();
            process.pass(after);
            process.clock += set;
            process.asked();
            process.pass(LEASE - 1);
            assert_eq!(process.lost, None, "set by {set} ms, {after} ms after its word");
            process.pass(2);
            assert!(process.lost.is_some(), "set by {set} ms, {after} ms after its word");
        }
    }
}

proptest! {
    /// However often the process is frozen and its clock set: who speaks within each lease of its waking time lives.
    #[test]
    fn who_speaks_within_each_lease_is_never_lost(
        steps in prop::collection::vec((trouble(), 0..LEASE, prop::collection::vec(0..LEASE, 0..3)), 1..20)
    ) {
        let mut process = Process::new();
        for (trouble, silent, requests) in steps {
            match trouble {
                Trouble::None => {}
                Trouble::Freeze(ms, first) => process.freeze(ms, first),
                Trouble::Set(by) => process.clock += by,
            }
            let mut requests: Vec<u64> = requests.into_iter().filter(|at| *at < silent).chain([silent]).collect();
            requests.sort_unstable();
            let mut at = 0;
            for request in requests {
                process.pass(request - at);
                at = request;
                if request < silent {
                    process.asked();
                }
            }
            prop_assert_eq!(process.lost, None);
            process.written();
        }
    }

    /// And who is silent is lost, a lease and a step after the last trouble at the latest; without trouble after exactly a lease.
    #[test]
    fn who_is_silent_is_lost(steps in prop::collection::vec((trouble(), 0_u64..300), 0..20)) {
        let mut process = Process::new();
        for (trouble, later) in &steps {
            match trouble {
                Trouble::None => {}
                Trouble::Freeze(ms, first) => process.freeze(*ms, *first),
                Trouble::Set(by) => process.clock += by,
            }
            process.pass(*later);
        }
        let last = process.time;
        process.pass(2 * LEASE);
        let lost = process.lost.unwrap();
        prop_assert!(lost <= last + LEASE + LEASE / 8 + 1, "lost {} ms after the last trouble", lost - last);
        if steps.is_empty() {
            prop_assert_eq!(lost, LEASE);
        }
    }
}

//! Random interleavings of producers, readers, confirmations, faults, crashes and clocks.

use proptest::prelude::*;

use super::entries::Wish;
use super::world::World;
use crate::core::error::Code;
use crate::core::run::Outcome;

#[derive(Clone, Debug)]
enum Act {
    /// What is wanted, the request's key, and how many chunks the run begins with.
    Start(Wish, Option<u8>, usize),
    /// A fence, what it writes (`None` is a commit, else a chunk with so many bytes of padding), and the end.
    Write(usize, Vec<Option<usize>>, Option<Outcome>),
    /// Answers to a suspended run's calls.
    Answer(usize, Vec<Option<usize>>),
    Attempt(usize),
    /// Whether the request names another run.
    Stop(bool),
    Renew(usize),
    Settle,
    /// Time goes on to the alarm.
    Ring,
    Retain,
    Expire,
    Sync,
    Confirm(usize),
    LoseConfirmation,
    /// Sync and confirm at once, as a local runtime does.
    Flush,
    Fail(bool),
    Crash(usize),
    Clock(i64),
    Delete,
    Open(Option<usize>, usize),
    /// A reader, the most it takes, whether it must read blocks, and how many steps.
    Read(usize, usize, bool, usize),
    Stranger,
}

fn items() -> impl Strategy<Value = Vec<Option<usize>>> {
    let padding = prop_oneof![8 => 0_usize..40, 2 => 4_000_usize..20_000, 1 => Just(90_000)];
    prop::collection::vec(prop::option::weighted(0.8, padding), 0..5)
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        6 => Just(Outcome::Suspended),
        1 => Just(Outcome::Completed),
        1 => Just(Outcome::Interrupted),
        1 => Just(Outcome::Failed(Code::ProviderError)),
        1 => Just(Outcome::Failed(Code::ProducerLost)),
    ]
}

fn wish() -> impl Strategy<Value = Wish> {
    prop_oneof![
        8 => prop::bool::weighted(0.9).prop_map(|apt| Wish::Send { apt }),
        4 => Just(Wish::Results),
        2 => (0_usize..12, any::<bool>()).prop_map(|(keep, input)| Wish::Rewind { keep, input }),
        2 => (0_usize..30, any::<bool>()).prop_map(|(point, input)| Wish::GoBack { point, input }),
    ]
}

/// Fences are counted from the newest, so that most writes come from the run that holds the session.
fn act() -> impl Strategy<Value = Act> {
    let fence = || prop_oneof![5 => Just(0), 1 => 1_usize..8];
    prop_oneof![
        9 => (wish(), prop::option::of(0_u8..3), 0_usize..3).prop_map(|(wish, key, opening)| Act::Start(wish, key, opening)),
        16 => (fence(), items()).prop_map(|(fence, items)| Act::Write(fence, items, None)),
        7 => (fence(), items(), outcome()).prop_map(|(fence, items, outcome)| Act::Write(fence, items, Some(outcome))),
        7 => (fence(), items()).prop_map(|(fence, items)| Act::Answer(fence, items)),
        2 => fence().prop_map(Act::Attempt),
        2 => prop::bool::weighted(0.2).prop_map(Act::Stop),
        3 => fence().prop_map(Act::Renew),
        3 => Just(Act::Settle),
        4 => Just(Act::Ring),
        2 => Just(Act::Retain),
        1 => Just(Act::Expire),
        5 => Just(Act::Sync),
        5 => (0_usize..4).prop_map(Act::Confirm),
        1 => Just(Act::LoseConfirmation),
        8 => Just(Act::Flush),
        2 => any::<bool>().prop_map(Act::Fail),
        3 => (0_usize..5).prop_map(Act::Crash),
        3 => (-100_000_i64..100_000).prop_map(Act::Clock),
        1 => Just(Act::Delete),
        6 => (prop::option::of(0_usize..5), 0_usize..60).prop_map(|(run, cursor)| Act::Open(run, cursor)),
        20 => (0_usize..6, 0_usize..40_000, any::<bool>(), 1_usize..9).prop_map(|(reader, bytes, blocks, steps)| {
            Act::Read(reader, bytes, blocks, steps)
        }),
        1 => Just(Act::Stranger),
    ]
}

fn perform(world: &mut World, act: Act) {
    match act {
        Act::Start(wish, key, opening) => world.start(&wish, key, opening),
        Act::Write(fence, items, outcome) => world.write(fence, &items, outcome),
        Act::Answer(fence, items) => world.answer(fence, &items),
        Act::Attempt(fence) => world.begin_attempt(fence),
        Act::Stop(stale) => world.stop(stale),
        Act::Renew(fence) => world.renew(fence),
        Act::Settle => world.settle(),
        Act::Ring => world.ring(),
        Act::Retain => drop(world.retain(0)),
        Act::Expire => world.expire(),
        Act::Sync => world.sync(),
        Act::Confirm(which) => world.confirm(which),
        Act::LoseConfirmation => world.lose_confirmation(),
        Act::Flush => {
            world.sync();
            world.confirm_newest();
        }
        Act::Fail(after) => world.fail_next(after),
        Act::Crash(kept) => world.crash(kept),
        Act::Clock(by) => world.clock(by),
        Act::Delete => world.delete(),
        Act::Open(run, cursor) => world.open(run, cursor),
        Act::Read(reader, bytes, blocks, steps) => {
            for _ in 0..steps {
                if !world.step(reader, bytes, blocks) {
                    break;
                }
            }
        }
        Act::Stranger => world.may_not_be_started_by_others(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(160))]
    #[test]
    fn a_session_keeps_its_promises(script in prop::collection::vec(act(), 1..90)) {
        let mut world = World::new();
        for act in script {
            perform(&mut world, act);
            world.check();
        }
        world.wind_down();
    }
}

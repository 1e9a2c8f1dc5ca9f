//! Random interleavings of producers, readers, confirmations, faults, crashes and clocks.
//!
//! A seed is printed with each property; `PROPTEST_RNG_SEED` takes it to run the same cases again. What fails is kept in
//! `proptest-regressions/` at the root of the repository and tried first from then on.

use std::io::Write;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::acts::{Act, perform};
use super::entries::Wish;
use super::outside::Word;
use super::world::World;
use crate::core::command::Displacement;
use crate::core::error::Code;
use crate::core::run::{Outcome, OwnPause};

/// So many cases, from a seed that is printed past the test harness, which keeps what passing tests print to itself.
fn cases(name: &str, cases: u32) -> ProptestConfig {
    let config = ProptestConfig::with_cases(cases);
    let seed = match config.rng_seed {
        RngSeed::Fixed(seed) => seed,
        RngSeed::Random => rand_seed(),
    };
    let cases = config.cases;
    let _ = writeln!(std::io::stderr(), "{name}: {cases} cases, PROPTEST_RNG_SEED={seed}");
    ProptestConfig { rng_seed: RngSeed::Fixed(seed), ..config }
}

fn rand_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0_u8)
}

fn play(script: Vec<Act>) {
    let mut world = World::new();
    for act in script {
        perform(&mut world, act);
        world.check();
    }
    world.wind_down();
}

fn items() -> impl Strategy<Value = Vec<Option<usize>>> {
    let padding = prop_oneof![8 => 0_usize..40, 2 => 4_000_usize..20_000, 1 => Just(90_000)];
    prop::collection::vec(prop::option::weighted(0.8, padding), 0..5)
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        6 => Just(Outcome::Suspended),
        2 => Just(Outcome::Paused(OwnPause::AwaitingChildren)),
        1 => Just(Outcome::Paused(OwnPause::StepPartial)),
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
        2 => (0_usize..3, any::<bool>(), prop::bool::weighted(0.9)).prop_map(|(inputs, supersede, apt)| {
            Wish::Push { inputs, supersede, apt }
        }),
        2 => (0_usize..30, any::<bool>()).prop_map(|(point, input)| Wish::GoBack { point, input }),
    ]
}

fn start(push: BoxedStrategy<Option<u64>>) -> impl Strategy<Value = Act> {
    (wish(), prop::option::of(0_u8..3), 0_usize..3, push)
        .prop_map(|(wish, key, opening, push)| Act::Start(wish, key, opening, push))
}

/// Mostly an interrupt by a send, or a producer that supersedes; of the run that holds the session.
fn instead() -> impl Strategy<Value = Act> {
    let sends = prop::bool::weighted(0.9).prop_map(|apt| (Wish::Send { apt }, Displacement::Interrupted));
    let pushes = (0_usize..3, prop::bool::weighted(0.8))
        .prop_map(|(inputs, apt)| (Wish::Push { inputs, supersede: true, apt }, Displacement::Superseded));
    let any = (wish(), any::<bool>())
        .prop_map(|(wish, stops)| (wish, if stops { Displacement::Interrupted } else { Displacement::Superseded }));
    let fence = prop_oneof![5 => Just(0), 1 => 1_usize..4];
    (prop_oneof![4 => sends, 2 => pushes, 1 => any], 0_usize..3, fence)
        .prop_map(|((wish, displacement), opening, fence)| Act::Instead(wish, opening, fence, displacement))
}

fn words() -> impl Strategy<Value = Vec<Word>> {
    let padding = prop_oneof![20 => 0_usize..9, 1 => 4_000_usize..20_000, 1 => Just(50_000)];
    let word = prop_oneof![
        6 => padding.prop_map(Word::Chunk),
        1 => Just(Word::Fold),
        3 => (prop_oneof![6 => Just(0), 2 => 1_i64..4, 1 => Just(-1)], 0_usize..4, any::<bool>())
            .prop_map(|(back, messages, state)| Word::Commit { back, messages, state }),
    ];
    prop::collection::vec(word, 0..5)
}

/// From the expected number on most times, else from an earlier one, or behind a gap. The fence is the newest, the one before it, or older.
fn send(words: impl Strategy<Value = Vec<Word>>) -> impl Strategy<Value = Act> {
    let fence = prop_oneof![5 => Just(0), 3 => Just(1), 1 => 2_usize..6];
    let offset = prop_oneof![6 => Just(0), 3 => -6_i64..0, 1 => 1_i64..3];
    (fence, offset, words, prop::option::weighted(0.2, outcome()))
        .prop_map(|(fence, offset, words, outcome)| Act::Send(fence, offset, words, outcome))
}

/// Mostly two processes that both believe to hold the same run, and whatever takes it from them.
fn act_outside() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => start(prop::option::weighted(0.9, 4_000_u64..50_000).boxed()),
        2 => instead(),
        5 => prop_oneof![3 => Just(0_usize), 1 => 1_usize..4].prop_map(Act::Claim),
        16 => send(words()),
        2 => Just(Act::SendAll),
        2 => (0_usize..3).prop_map(Act::Renew),
        2 => prop::bool::weighted(0.2).prop_map(Act::Stop),
        1 => (0_usize..2, items()).prop_map(|(fence, items)| Act::Answer(fence, items)),
        1 => Just(Act::Settle),
        2 => Just(Act::Ring),
        2 => Just(Act::Sync),
        2 => (0_usize..4).prop_map(Act::Confirm),
        1 => Just(Act::LoseConfirmation),
        4 => Just(Act::Flush),
        2 => any::<bool>().prop_map(Act::Fail),
        4 => (0_usize..5).prop_map(Act::Crash),
        2 => (-20_000_i64..60_000).prop_map(Act::Clock),
        2 => (prop::option::of(0_usize..3), 0_usize..30).prop_map(|(run, cursor)| Act::Open(run, cursor)),
        3 => (0_usize..3, 0_usize..40_000, any::<bool>(), 1_usize..5).prop_map(|(reader, bytes, blocks, steps)| {
            Act::Read(reader, bytes, blocks, steps)
        }),
    ]
}

/// Fences are counted from the newest, so that most writes come from the run that holds the session.
fn act() -> impl Strategy<Value = Act> {
    let fence = || prop_oneof![5 => Just(0), 1 => 1_usize..8];
    prop_oneof![
        9 => start(prop::option::weighted(0.3, 4_000_u64..50_000).boxed()),
        3 => instead(),
        4 => prop::option::weighted(0.2, 0_usize..3).prop_map(Act::Enqueue),
        4 => Just(Act::GoOn),
        1 => Just(Act::ClearQueue),
        2 => (0_usize..3).prop_map(Act::OpenQueued),
        2 => fence().prop_map(Act::Claim),
        3 => send(words()),
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

proptest! {
    #![proptest_config(cases("sessions", 160))]
    #[test]
    fn a_session_keeps_its_promises(script in prop::collection::vec(act(), 1..90)) {
        play(script);
    }
}

// Together 10,000 cases of producers outside, in two properties so that they run beside each other.
proptest! {
    #![proptest_config(cases("producers outside", 5_000))]
    #[test]
    fn producers_outside_lose_nothing_and_double_nothing(script in prop::collection::vec(act_outside(), 1..18)) {
        play(script);
    }
}

proptest! {
    #![proptest_config(cases("two claims of one run", 5_000))]
    #[test]
    fn two_claims_of_one_run_are_one_writer(
        inputs in 0_usize..3, opening in 0_usize..3, lease in 4_000_u64..50_000,
        script in prop::collection::vec(act_outside(), 1..12),
    ) {
        let start = Act::Start(Wish::Push { inputs, supersede: false, apt: true }, None, opening, Some(lease));
        play([start, Act::Claim(0)].into_iter().chain(script).collect());
    }
}

/// Scripts that once failed, in words: a seed means another script as soon as a strategy changes.
#[test]
fn what_has_failed_before() {
    let send = || Act::Start(Wish::Send { apt: true }, None, 0, None);
    let push = || Act::Start(Wish::Push { inputs: 1, supersede: false, apt: true }, None, 0, Some(5_000));
    let says = |words: &[Word], outcome| Act::Send(0, 0, words.to_vec(), outcome);
    let own = |messages| Word::Commit { back: 0, messages, state: true };
    let results = Act::Start(Wish::Results, None, 0, Some(5_000));
    for script in [
        // A reader of the whole stream, and a run that is superseded before its first chunk.
        vec![
            send(),
            Act::Open(None, 0),
            Act::Open(None, 0),
            Act::Start(Wish::Rewind { keep: 0, input: false }, None, 1, None),
        ],
        // A paused run of several messages that is continued.
        vec![push(), says(&[Word::Chunk(0), own(3)], Some(Outcome::Suspended)), results.clone(), says(&[own(1)], None)],
        // A fold in the place of several messages, and one that must not take it.
        vec![push(), says(&[own(3)], None), says(&[Word::Chunk(0)], Some(Outcome::Completed))],
        vec![push(), says(&[own(3)], Some(Outcome::Completed))],
        vec![push(), says(&[own(3)], None), Act::Stop(false)],
        // A rewind that would leave the calls of a suspended run, and one to an entry whose message has changed.
        vec![
            send(),
            Act::Write(0, vec![Some(0), None], Some(Outcome::Suspended)),
            Act::Start(Wish::Rewind { keep: 2, input: false }, None, 0, None),
            results,
            Act::Start(Wish::GoBack { point: 2, input: false }, None, 0, None),
        ],
    ] {
        play(script);
    }
}

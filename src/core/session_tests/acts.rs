//! What can happen to a world, as data.

use super::entries::Wish;
use super::outside::Word;
use super::world::World;
use crate::core::command::Displacement;
use crate::core::run::Outcome;

#[derive(Clone, Debug)]
pub enum Act {
    /// What is wanted, the request's key, how many chunks the run begins with, and the lease of a producer outside.
    Start(Wish, Option<u8>, usize, Option<u64>),
    /// What is wanted in the place of a live run, how many chunks its run begins with, the live run's fence, and what becomes of that.
    Instead(Wish, usize, usize, Displacement),
    /// A message joins the queue, or takes the place of one that waits.
    Enqueue(Option<usize>),
    /// The next message is answered.
    GoOn,
    ClearQueue,
    /// A response that waits for a message's run.
    OpenQueued(usize),
    /// The run of a fence is claimed again.
    Claim(usize),
    /// A fence, at which offset from the expected number, what the script says after its end, and the end.
    Send(usize, i64, Vec<Word>, Option<Outcome>),
    /// All of the script once more.
    SendAll,
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

pub fn perform(world: &mut World, act: Act) {
    match act {
        Act::Start(wish, key, opening, push) => world.start(&wish, key, opening, push),
        Act::Instead(wish, opening, fence, displacement) => world.start_instead(&wish, opening, fence, displacement),
        Act::Enqueue(replaced) => world.enqueue(replaced),
        Act::GoOn => drop(world.go_on()),
        Act::ClearQueue => world.clear_queue(),
        Act::OpenQueued(which) => world.open_queued(which),
        Act::Claim(fence) => world.claim(fence),
        Act::Send(fence, offset, words, outcome) => {
            if let Some(fence) = world.fence(fence) {
                world.send(&fence, offset, &words, outcome);
            }
        }
        Act::SendAll => world.send_all_again(),
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

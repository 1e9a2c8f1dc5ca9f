//! Every row of `spec/helix.md` 11.1.

use super::{Took, at, chunk, run};
use crate::core::error::Code;
use crate::core::ids::{Cursor, RunId};
use crate::core::reader::{Eviction, Terminal};
use crate::core::time::Millis;
use crate::dialect::wire;
use crate::dialect::wire::decode::{DecodeError, EndStatus};
use crate::dialect::wire::follower::{Ending, FollowError, Follower, Loss, MAX_STREAM_REOPENS, Open, Step};

fn rewound(at: u64, head: u64) -> Vec<u8> {
    format!("event: rewound\ndata: {{\"at\":{at},\"head\":{head}}}\n\n").into_bytes()
}

/// One connection that brings these frames, and then ends.
fn brings(follower: &mut Follower, frames: &[Vec<u8>]) -> Took {
    follower.opened(200);
    follower.bytes(&frames.concat());
    follower.ended();
    run(follower)
}

fn reopens(took: &Took) -> Open {
    let Step::Open(open) = took.then else { panic!("{took:?}") };
    open
}

fn fails(took: Took) -> FollowError {
    let Step::Done(Err(error)) = took.then else { panic!("{took:?}") };
    error
}

fn follower() -> Follower {
    Follower::new(Cursor::START, false)
}

/// A follower that has the chunks up to `cursor` of the run `a` from a connection that then dropped.
fn with_chunks(cursor: u64) -> Follower {
    let mut follower = follower();
    let took = brings(&mut follower, &(1..=cursor).map(|sequence| chunk(sequence, "a")).collect::<Vec<_>>());
    assert_eq!(reopens(&took).from, at(cursor));
    follower
}

#[test]
fn chunks_come_once_and_a_terminal_ends() {
    let mut follower = follower();
    let first = Open { from: Cursor::START, wait_for_live: false, counted: false, pause: Millis::new(0) };
    assert_eq!(follower.step(), Step::Open(first));
    assert_eq!(follower.step(), Step::Open(first));
    follower.opened(200);
    assert_eq!(follower.step(), Step::Read);
    let frames = [chunk(1, "a"), chunk(2, "a"), chunk(1, "a"), wire::caught_up(at(2)), chunk(2, "a"), chunk(3, "a")];
    follower.bytes(&frames.concat());
    assert_eq!(run(&mut follower), Took { chunks: vec![1, 2, 3], caught_up: true, then: Step::Read });
    follower.bytes(&wire::terminal(Terminal::Interrupted));
    follower.bytes(&chunk(4, "a"));
    let end = Step::Done(Ok(Ending::Ended(EndStatus::Interrupted)));
    assert_eq!(run(&mut follower), Took { chunks: vec![], caught_up: false, then: end.clone() });
    follower.broke();
    follower.opened(500);
    assert_eq!(follower.step(), end);
    assert_eq!((follower.cursor(), follower.opens(), follower.is_caught_up()), (at(3), 1, true));
}

#[test]
fn a_failure_is_final_or_a_reason_to_come_back() {
    let Step::Done(Ok(Ending::Failed(failure))) =
        brings(&mut follower(), &[wire::fail(Code::ProviderError, false)]).then
    else {
        panic!()
    };
    assert_eq!(failure.detail.unwrap()["code"], "provider_error");
    let took = brings(&mut follower(), &[chunk(1, "a"), wire::terminal(Terminal::Dropped)]);
    assert_eq!(reopens(&took), Open { from: at(1), wait_for_live: false, counted: true, pause: Millis::new(0) });
}

#[test]
fn answers_that_are_no_stream() {
    for (status, error, retryable) in [
        (404, FollowError::Absent, false),
        (409, FollowError::Refused { status: 409 }, false),
        (302, FollowError::Refused { status: 302 }, false),
        (503, FollowError::Refused { status: 503 }, true),
    ] {
        let mut follower = follower();
        follower.opened(status);
        assert_eq!((fails(run(&mut follower)), error.retryable()), (error, retryable));
    }
    let mut follower = follower();
    follower.unreached();
    assert_eq!(fails(run(&mut follower)), FollowError::Dropped { cause: Loss::Unreached });
}

#[test]
fn re_opens_that_fail_are_tried_again_with_growing_pauses() {
    let mut follower = with_chunks(2);
    let mut pauses = Vec::new();
    for n in 1..MAX_STREAM_REOPENS {
        if n.is_multiple_of(2) {
            follower.opened(503)
        } else {
            follower.unreached()
        }
        let open = reopens(&run(&mut follower));
        assert_eq!((open.from, open.counted), (at(2), true));
        pauses.push(open.pause.get());
    }
    assert_eq!(pauses, [250, 500, 1000, 2000, 4000, 8000, 8000]);
    follower.opened(503);
    assert_eq!(fails(run(&mut follower)), FollowError::Dropped { cause: Loss::Status(503) });

    for (status, error) in [(404, FollowError::Absent), (409, FollowError::Refused { status: 409 })] {
        let mut follower = with_chunks(2);
        follower.opened(status);
        assert_eq!(fails(run(&mut follower)), error);
    }
}

#[test]
fn the_second_drop_that_brought_nothing_is_final() {
    let mut follower = with_chunks(2);
    let took = brings(&mut follower, &[chunk(2, "a"), wire::caught_up(at(2))]);
    assert_eq!(reopens(&took).pause, Millis::new(250));
    assert!(took.caught_up);
    follower.unreached();
    follower.opened(200);
    follower.bytes(b"event: chunk\ndata: {}\n\n");
    let cause = Loss::Unreadable(DecodeError::Frame("chunk"));
    assert_eq!(fails(run(&mut follower)), FollowError::Dropped { cause });

    let mut follower = with_chunks(2);
    brings(&mut follower, &[]);
    assert_eq!(reopens(&brings(&mut follower, &[chunk(3, "a")])).pause, Millis::new(0));
    reopens(&brings(&mut follower, &[]));
    follower.opened(200);
    follower.broke();
    assert_eq!(fails(run(&mut follower)), FollowError::Dropped { cause: Loss::Broke });
}

#[test]
fn re_opens_are_counted_unless_the_reader_is_slow() {
    let mut counted = follower();
    let mut free = follower();
    for sequence in 1..=u64::from(MAX_STREAM_REOPENS) {
        let frames = [chunk(sequence, "a"), wire::evicted(at(sequence), Eviction::ConnectionCap)];
        assert!(reopens(&brings(&mut counted, &frames)).counted);
    }
    for sequence in 1..50 {
        let reason = if sequence % 2 == 0 { Eviction::Stale } else { Eviction::SlowConsumer };
        let frames = [chunk(sequence, "a"), wire::evicted(at(sequence), reason)];
        assert!(!reopens(&brings(&mut free, &frames)).counted);
    }
    let more = [chunk(60, "a"), wire::evicted(at(60), Eviction::ServerError)];
    assert_eq!(fails(brings(&mut counted, &more)), FollowError::Evicted { reason: Some(Eviction::ServerError) });
    assert!(reopens(&brings(&mut free, &more)).counted);
}

#[test]
fn the_second_eviction_that_brought_nothing_is_final() {
    for reason in Eviction::ALL {
        let mut follower = with_chunks(2);
        assert_eq!(reopens(&brings(&mut follower, &[wire::evicted(at(2), reason)])).from, at(2));
        let error = fails(brings(&mut follower, &[wire::evicted(at(2), reason)]));
        assert_eq!(error, FollowError::Evicted { reason: Some(reason) });
    }
}

#[test]
fn chunks_that_are_gone_are_truncation() {
    let truncated = |through| FollowError::Truncated { through: Some(at(through)) };
    assert_eq!(fails(brings(&mut with_chunks(2), &[wire::truncated(at(9))])), truncated(9));
    assert_eq!(fails(brings(&mut with_chunks(2), &[wire::evicted(at(3), Eviction::Stale)])), truncated(3));
    assert_eq!(fails(brings(&mut with_chunks(2), &[rewound(1, 5)])), truncated(5));
    let took = brings(&mut with_chunks(5), &[rewound(1, 5), chunk(6, "a"), wire::terminal(Terminal::Completed)]);
    assert_eq!((took.chunks, took.then), (vec![6], Step::Done(Ok(Ending::Ended(EndStatus::Completed)))));
}

#[test]
fn a_newer_run_after_an_eviction_is_not_followed() {
    let run_b = FollowError::RunChanged { run: RunId::new("b") };
    let mut follower = with_chunks(2);
    reopens(&brings(&mut follower, &[chunk(3, "a"), wire::evicted(at(3), Eviction::Stale)]));
    follower.unreached();
    let took = brings(&mut follower, &[chunk(4, "a"), chunk(5, "b"), wire::caught_up(at(5))]);
    assert_eq!((took.chunks.as_slice(), follower.cursor()), ([4].as_slice(), at(4)));
    assert_eq!(fails(took), run_b);

    // Without an eviction runs follow each other, and so do those that start after the eviction was made good.
    let mut follower = with_chunks(2);
    reopens(&brings(&mut follower, &[chunk(3, "b"), wire::evicted(at(3), Eviction::Stale)]));
    let took = brings(&mut follower, &[wire::caught_up(at(3)), chunk(4, "c"), wire::terminal(Terminal::Completed)]);
    assert_eq!(took.chunks, [4]);
}

#[test]
fn waiting_for_a_run_ends_with_the_first_live_chunk() {
    let mut follower = Follower::new(at(2), true);
    assert!(matches!(follower.step(), Step::Open(Open { wait_for_live: true, .. })));
    let took = brings(&mut follower, &[chunk(3, "a"), wire::caught_up(at(3)), wire::terminal(Terminal::NotLive)]);
    assert!(reopens(&took).wait_for_live, "what came was an earlier run's");
    let took = brings(&mut follower, &[wire::caught_up(at(3)), chunk(4, "b")]);
    assert!(!reopens(&took).wait_for_live, "its end is the answer");
}

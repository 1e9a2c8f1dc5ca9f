//! What time alone brings to open responses.

use super::response::{Dialect, Opening};
use super::testing::{End, NOW, Object, timed};
use crate::core::ids::Cursor;
use crate::core::reader::{Reader, Scope};
use crate::core::time::{Millis, UnixMillis};

const COMMENT: &str = ": keep-alive\n\n";

fn begun(settings: &[(&str, &str)]) -> Object {
    let mut object = Object::with(settings);
    object.start().0.unwrap();
    object.confirm();
    object
}

fn beats(object: &Object, number: u64) -> usize {
    object.got(number).matches(COMMENT).count()
}

#[test]
fn a_silent_response_with_room_gets_a_comment_within_its_heartbeat_and_a_stalled_one_none() {
    let mut object = begun(&[("HEARTBEAT_MS", "1000")]);
    let first = timed(&object.follow(1, Dialect::Wire, 1));
    assert_eq!(first, Some(NOW.after(Millis::new(500))));
    object.follow(2, Dialect::Wire, 1);
    object.read(&[1]);
    for silent in 1..=4 {
        object.after(500);
        object.read(&[1]);
        assert_eq!((beats(&object, 1), beats(&object, 2)), (silent, 0));
    }
}

#[test]
fn a_response_that_was_just_written_to_gets_no_comment() {
    let mut object = begun(&[("HEARTBEAT_MS", "1000")]);
    object.follow(1, Dialect::Wire, 1);
    object.read(&[1]);
    object.now = NOW.after(Millis::new(400));
    object.append(&["a"]);
    object.confirm();
    object.read(&[1]);
    object.after(100);
    assert_eq!(beats(&object, 1), 0);
    object.after(500);
    assert_eq!(beats(&object, 1), 1);
}

#[test]
fn a_clock_that_was_set_back_stops_no_heartbeat() {
    let mut object = begun(&[("HEARTBEAT_MS", "1000")]);
    object.follow(1, Dialect::Wire, 1);
    object.read(&[1]);
    object.now = UnixMillis::new(NOW.get() - 600_000);
    let next = timed(&object.after(0)).expect("a timer");
    assert!(next <= object.now.after(Millis::new(500)));
    object.after(500);
    assert_eq!(beats(&object, 1), 1);
}

#[test]
fn who_takes_nothing_is_stale_and_who_takes_is_not() {
    let mut object = begun(&[("READER_STALE_MS", "2000"), ("HEARTBEAT_MS", "1000")]);
    for (number, dialect) in [(1, Dialect::Wire), (2, Dialect::Chat), (3, Dialect::Wire)] {
        object.follow(number, dialect, 0);
    }
    for _ in 0..4 {
        object.read(&[3]);
        object.after(500);
    }
    assert!(object.got(1).contains("\"stale\"") && object.client(1).end == Some(End::Closed), "{}", object.got(1));
    assert_eq!((object.client(2).end, object.client(3).end), (Some(End::Broken), None));
}

#[test]
fn a_response_that_is_too_old_ends_even_when_it_takes_everything() {
    let mut object = begun(&[("READER_MAX_AGE_MS", "3000")]);
    object.follow(1, Dialect::Wire, 0);
    object.read(&[1]);
    object.after(2_999);
    object.read(&[1]);
    assert_eq!(object.client(1).end, None);
    object.after(1);
    assert_eq!(object.client(1).end, Some(End::Closed));
}

#[test]
fn a_live_wire_reader_that_falls_too_far_behind_is_a_slow_consumer() {
    let mut object = begun(&[("READER_LAG_BYTES", "1000")]);
    object.follow(1, Dialect::Wire, 1);
    object.read(&[1]);
    object.append(&["a"]);
    object.confirm();
    object.append(&[&"x".repeat(2_000)]);
    object.confirm();
    object.append(&["b"]);
    object.confirm();
    assert!(object.got(1).contains("slow_consumer"), "{}", object.got(1));
    assert_eq!(object.client(1).end, Some(End::Closed));
}

#[test]
fn a_wait_for_a_run_ends_when_it_has_been_long_enough() {
    let mut object = Object::with(&[("LIVE_WAIT_MS", "1000")]);
    let waits = |opening: Opening| {
        let view = Default::default();
        Opening { reader: Reader::open(Scope::Stream, Cursor::START, &view).waiting_for_live(&view), ..opening }
    };
    object.follow_with(1, Dialect::Wire, 0, waits);
    object.read(&[1]);
    object.after(999);
    assert_eq!(object.client(1).end, None);
    object.after(1);
    assert_eq!(object.client(1).end, Some(End::Closed));
    assert!(object.got(1).contains("event: fail"), "{}", object.got(1));
}

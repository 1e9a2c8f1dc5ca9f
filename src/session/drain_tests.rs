//! What open responses are given, and how they end.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use super::response::{Dialect, Opening};
use super::testing::{Client, End, NOW, Object, PREFIX, timed};
use crate::core::chunk::{Chunk, lifecycle};
use crate::core::engine::action::Action;
use crate::core::engine::event::Event;
use crate::core::engine::ids::Exchange;
use crate::core::error::Code;
use crate::core::ids::{RunId, Sequence};
use crate::core::reader::{Eviction, Reader, Scope};
use crate::core::run::Outcome;
use crate::core::time::UnixMillis;
use crate::dialect::ui::attempts::Attempts;
use crate::dialect::ui::lens::Lens;

/// An object whose run has one chunk, all durable.
fn begun(settings: &[(&str, &str)]) -> Object {
    let mut object = Object::with(settings);
    object.start().0.unwrap();
    object.confirm();
    object
}

/// The gives of a turn: to whom, and how many bytes.
fn gives(actions: &[Action]) -> Vec<(Vec<u64>, usize)> {
    let give = |action: &Action| match action {
        Action::Give { to, bytes, .. } => Some((to.iter().map(|to| to.get()).collect(), bytes.len())),
        _ => None,
    };
    actions.iter().filter_map(give).collect()
}

/// The sequences of the chunks that a wire response has got, and the names of its other events.
fn seen(object: &Object, number: u64) -> Vec<String> {
    let mut seen = Vec::new();
    for frame in object.got(number).split_terminator("\n\n") {
        let line = |name: &str| frame.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
        seen.extend(line("id: ").or_else(|| line("event: ")));
    }
    seen
}

fn ended(client: &Client) -> (Option<u16>, Option<End>) {
    (client.status, client.end)
}

fn logged(actions: &[Action]) -> Vec<String> {
    let line = |action: &Action| match action {
        Action::Log(_, line) => line.get("ending").and_then(|ending| ending.as_str()).map(str::to_owned),
        _ => None,
    };
    actions.iter().filter_map(line).collect()
}

#[test]
fn history_and_what_comes_live_are_one_sequence_and_nothing_undurable_is_given() {
    let mut object = begun(&[]);
    object.append(&["a", "b"]);
    object.confirm();
    object.follow(1, Dialect::Wire, 1);
    assert_eq!((object.client(1).got.as_str(), object.client(1).more), (PREFIX, true));
    object.read(&[1]);
    assert_eq!(seen(&object, 1), ["2", "3", "caught-up"]);
    assert!(!object.client(1).more);
    object.append(&["c"]);
    object.read(&[1]);
    assert_eq!(seen(&object, 1).len(), 3, "a crash could take it back");
    object.confirm();
    assert_eq!(seen(&object, 1), ["2", "3", "caught-up", "4"]);
}

#[test]
fn responses_at_the_same_cursor_share_one_buffer() {
    let mut object = begun(&[]);
    for (number, dialect) in [(1, Dialect::Wire), (2, Dialect::Chat), (3, Dialect::Wire), (4, Dialect::Chat)] {
        object.follow(number, dialect, 1);
    }
    object.follow(5, Dialect::Wire, 0);
    object.read(&[1, 2, 3, 4]);
    object.room(&[1, 2, 3, 4]);
    object.append(&["text"]);
    let given = gives(&object.confirm());
    let to: Vec<Vec<u64>> = given.into_iter().map(|(to, _)| to).collect();
    assert_eq!(to, [vec![1, 3], vec![2, 4]], "the fifth has no room");
    assert_eq!(object.got(2), object.got(4));
}

#[test]
fn a_response_without_room_gets_nothing_until_it_has_some() {
    let mut object = begun(&[]);
    object.follow(1, Dialect::Wire, 0);
    object.append(&["a"]);
    assert_eq!(gives(&object.confirm()), []);
    assert_eq!(seen(&object, 1), [""; 0]);
    object.cycle.tell(Event::Room(Exchange::new(1)));
    object.tell(Event::Full(vec![Exchange::new(1)]));
    assert_eq!(seen(&object, 1), [""; 0]);
    object.read(&[1]);
    assert_eq!(seen(&object, 1), ["1", "caught-up", "2"]);
}

#[test]
fn a_terminal_comes_whether_or_not_there_is_room() {
    let mut object = begun(&[]);
    for (number, dialect) in [(1, Dialect::Wire), (2, Dialect::Chat)] {
        object.follow(number, dialect, 1);
    }
    object.finish(Outcome::Interrupted);
    let closed = logged(&object.confirm());
    assert_eq!(closed, ["interrupted", "interrupted"]);
    assert!(object.got(1).ends_with("event: end\ndata: {\"status\":\"interrupted\"}\n\n"), "{}", object.got(1));
    assert!(object.got(2).ends_with("data: [DONE]\n\n"), "{}", object.got(2));
    assert_eq!([1, 2].map(|number| object.client(number).end), [Some(End::Closed); 2]);
    assert!(object.engine.readers.is_empty());
    assert_eq!((object.cycle.registry().len(), object.cycle.registry().surplus()), (0, 0));
}

#[test]
fn a_turn_that_has_read_enough_from_rows_lets_others_have_theirs() {
    let mut object = begun(&[]);
    let text = "x".repeat(300 * 1024);
    for _ in 0..6 {
        object.append(&[&text]);
        object.confirm();
    }
    object.append(&["y"]);
    object.confirm();
    for number in 1..=7 {
        object.follow(number, Dialect::Wire, number);
    }
    let actions = object.room(&[1, 2, 3, 4, 5, 6, 7]);
    let to = |actions: &[Action]| gives(actions).into_iter().map(|(to, _)| to).collect::<Vec<_>>();
    // The last one reads what is in memory, which costs no rows, and has caught up.
    let given = [1, 2, 3, 4, 7, 7].map(|number| vec![number]).to_vec();
    assert_eq!((to(&actions), timed(&actions)), (given, Some(NOW)));
    assert_eq!(to(&object.tell(Event::Full(vec![]))), [[0; 0]; 0], "they come behind what waits");
    assert_eq!(to(&object.tell(Event::Timer)), [[5], [6]]);
}

#[test]
fn a_response_that_cannot_go_on_is_answered_when_its_head_has_not_left_and_breaks_else() {
    let mut object = begun(&[]);
    let unknown = |opening: Opening| Opening {
        reader: Reader::open(Scope::Run(RunId::new("gone")), opening.reader.cursor(), &Default::default()),
        ..opening
    };
    object.follow_with(1, Dialect::Chat, 1, unknown);
    object.follow_with(2, Dialect::Wire, 1, unknown);
    assert_eq!(ended(object.client(1)), (Some(Code::TransportStreamDrop.status()), Some(End::Answered)));
    assert_eq!(
        (ended(object.client(2)), object.got(2).contains("event: fail")),
        ((Some(200), Some(End::Closed)), true)
    );

    object.follow(3, Dialect::Chat, 1);
    object.follow_with(4, Dialect::Chat, 1, |opening| Opening { held: true, ..opening });
    assert!(!object.clients.contains_key(&4), "its head is held");
    let all = |object: &mut Object| object.turn(|engine, turn| engine.readers.evict_all(&mut engine.counters, turn)).1;
    assert_eq!(logged(&all(&mut object)), ["evicted:server_error"; 2]);
    assert_eq!(ended(object.client(3)), (Some(200), Some(End::Broken)));
    assert_eq!(ended(object.client(4)), (Some(500), Some(End::Answered)));

    object.follow_with(5, Dialect::Chat, 1, |opening| Opening { held: true, ..opening });
    object.turn(|engine, _| engine.readers.lets_go(Exchange::new(5)));
    assert_eq!(ended(object.client(5)), (Some(200), None));
    assert_eq!(object.cycle.registry().surplus(), 0);
}

#[test]
fn storage_that_cannot_confirm_ends_every_response() {
    let mut object = begun(&[]);
    object.follow(1, Dialect::Wire, 0);
    object.follow(2, Dialect::Chat, 0);
    object.append(&["a"]);
    object.tell(Event::NotDurable("lost".into()));
    assert!(object.got(1).contains("server_error") && object.client(1).end == Some(End::Closed));
    assert_eq!(object.client(2).end, Some(End::Broken));
}

#[test]
fn over_the_cap_the_one_furthest_behind_leaves_and_the_newcomer_stays() {
    let mut object = begun(&[("MAX_READERS", "2")]);
    object.append(&["a"]);
    object.confirm();
    object.follow(1, Dialect::Wire, 2);
    object.follow(2, Dialect::Wire, 1);
    let actions = object.follow(3, Dialect::Wire, 0);
    assert_eq!(logged(&actions), ["evicted:connection_cap"]);
    assert!(object.got(2).contains("connection_cap") && object.client(2).end == Some(End::Closed));
    assert_eq!([1, 3].map(|number| object.client(number).end), [None; 2]);
    assert_eq!(object.engine.counters.readers.now, 2);
}

#[test]
fn a_stock_response_that_has_shown_what_does_not_count_any_more_breaks() {
    let mut object = begun(&[]);
    object.follow(1, Dialect::Chat, 0);
    object.follow_with(2, Dialect::Chat, 0, |opening| Opening {
        lens: Lens { aware: true, ..Lens::default() },
        ..opening
    });
    object.follow(3, Dialect::Wire, 0);
    object.read(&[1, 2, 3]);
    let step = |attempt| Chunk::new(lifecycle::STEP_START).with("step", 0).with("attemptId", attempt);
    let shown = Chunk::new("text-delta").with("id", "t").with("delta", "a").with("attemptId", "first");
    // The content stands at the first sequence, which they have got.
    let at = |sequence| Sequence::new(sequence).unwrap();
    let (first, second) = (step("first"), step("second"));
    let chunks = [(at(1), &shown), (at(2), &first), (at(3), &second)];
    let attempts = Attempts::of(chunks.into_iter());
    object.turn(|engine, turn| engine.readers.learn(&RunId::new("r"), &attempts, &mut engine.counters, turn));
    assert_eq!([1, 2, 3].map(|number| object.client(number).end), [Some(End::Broken), None, None]);
}

#[test]
fn a_client_that_left_is_forgotten_and_whoever_followed_last_is_told_of() {
    let mut object = begun(&[]);
    object.follow(1, Dialect::Wire, 0);
    assert!(object.engine.readers.take_changed());
    let actions = object.tell(Event::Left(Exchange::new(1)));
    assert_eq!((logged(&actions), object.engine.readers.is_empty()), (vec!["gone".to_owned()], true));
    assert!(object.engine.readers.take_changed());
    object.now = UnixMillis::new(NOW.get() + 60_000);
    assert_eq!(timed(&object.tell(Event::Timer)), None, "nobody is looked after");
}

#[test]
fn whoever_was_told_something_in_a_turn_that_panicked_breaks_and_the_others_go_on() {
    let mut object = begun(&[]);
    for number in [1, 2, 3] {
        object.follow(number, Dialect::Wire, 1);
    }
    object.read(&[1, 3]);
    object.room(&[1]);
    object.append(&["a"]);
    object.storage.sync();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        object.turn(|engine, turn| {
            engine.readers.evict(Exchange::new(3), Eviction::Stale, &mut engine.counters, turn);
            engine.readers.give(vec![Exchange::new(1)], &Rc::from(&b"lost"[..]), turn);
            resume_unwind(Box::new("planted"));
        })
    }));
    assert!(panicked.is_err());
    let actions = object.cycle.panicked(&mut object.engine);
    assert!(actions.iter().all(|action| matches!(action, Action::Sync(_))), "{actions:?}");
    object.tell(Event::Full(vec![]));
    assert_eq!([1, 2, 3].map(|number| object.client(number).end), [Some(End::Broken), None, Some(End::Broken)]);
    assert!(!object.got(1).contains("lost"));
    assert_eq!((object.engine.readers.len(), object.cycle.registry().len()), (1, 1));
}

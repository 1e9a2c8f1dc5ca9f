//! The turn of every driver, with an engine that says what each test tells it to.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::action::{Action, Head, Level, Rests, Want};
use super::answer::Answer;
use super::cycle::{Cycle, Surroundings};
use super::entropy::Entropy;
use super::event::{Ask, BodyNews, Event, FetchNews, Headers};
use super::ids::{Exchange, FetchId};
use super::{Engine, Turn};
use crate::core::caller::Caller;
use crate::core::error::Code;
use crate::core::log::Ticket;
use crate::core::time::UnixMillis;

/// What the engine does when it hears a request.
#[derive(Debug)]
enum Say {
    These(Vec<Action>),
    Park,
    Nothing,
    /// Says these, then panics.
    Panic(Vec<Action>),
}

/// Says what requests bring, and what a test has laid ready for other events and for the end of the turn.
#[derive(Default)]
struct Puppet {
    heard: Vec<String>,
    ready: Vec<Say>,
    over: Vec<Action>,
    thrown_away: u32,
}

impl Puppet {
    fn say(say: Say, exchange: Option<Exchange>, turn: &mut Turn<'_, ()>) {
        match say {
            Say::These(actions) => actions.into_iter().for_each(|action| turn.act(action)),
            Say::Park => exchange.into_iter().for_each(|exchange| turn.park(exchange)),
            Say::Nothing => {}
            Say::Panic(actions) => {
                actions.into_iter().for_each(|action| turn.act(action));
                resume_unwind(Box::new("planted"));
            }
        }
    }
}

impl Engine for Puppet {
    type Call = Say;
    type Storage = ();

    fn handle(&mut self, event: Event<Say>, turn: &mut Turn<'_, ()>) {
        match event {
            Event::Asked { exchange, ask } => {
                self.heard.push(format!("asked {}", exchange.get()));
                Self::say(ask.call, Some(exchange), turn);
            }
            event => {
                self.heard.push(match &event {
                    Event::Left(exchange) => format!("left {}", exchange.get()),
                    Event::Body { exchange, .. } => format!("body {}", exchange.get()),
                    Event::Durable(ticket) => format!("durable {}", ticket.get()),
                    event => format!("{event:?}"),
                });
                if !matches!(event, Event::Left(_)) && !self.ready.is_empty() {
                    Self::say(self.ready.remove(0), None, turn);
                }
            }
        }
    }

    fn turn_over(&mut self, turn: &mut Turn<'_, ()>) {
        self.over.drain(..).for_each(|action| turn.act(action));
    }

    fn throw_away(&mut self) {
        self.thrown_away += 1;
    }
}

struct Zeros;

impl Entropy for Zeros {
    fn word(&mut self) -> u64 {
        0
    }
}

#[derive(Default)]
struct Driver {
    cycle: Cycle<Say>,
    engine: Puppet,
}

impl Driver {
    fn ask(&mut self, number: u64, call: Say) {
        let ask = Ask { call, caller: Caller::Anonymous, headers: Headers::default() };
        self.cycle.tell(Event::Asked { exchange: x(number), ask: Box::new(ask) });
    }

    fn turn(&mut self) -> Vec<Action> {
        let mut zeros = Zeros;
        let surroundings = Surroundings { now: UnixMillis::new(1), storage: &(), entropy: &mut zeros };
        self.cycle.turn(&mut self.engine, surroundings)
    }

    fn asked(&mut self, number: u64, call: Say) -> Vec<Action> {
        self.ask(number, call);
        self.turn()
    }

    fn told(&mut self, event: Event<Say>) -> Vec<Action> {
        self.cycle.tell(event);
        self.turn()
    }

    /// A turn that is expected to panic.
    fn panics(&mut self) -> Vec<Action> {
        catch_unwind(AssertUnwindSafe(|| self.turn())).expect_err("the planted panic");
        self.cycle.panicked(&mut self.engine)
    }
}

fn x(number: u64) -> Exchange {
    Exchange::new(number)
}

fn ticket(number: u64) -> Ticket {
    Ticket::new(number)
}

fn failed() -> Event<Say> {
    Event::NotDurable("the disk".into())
}

fn answer(number: u64, status: u16) -> Action {
    Action::Answer { exchange: x(number), answer: Answer::empty(status), rests: None }
}

fn rests(on: u64) -> Option<Rests> {
    Some(Rests { ticket: ticket(on), otherwise: Answer::empty(503) })
}

fn resting(number: u64, on: u64) -> Action {
    Action::Answer { exchange: x(number), answer: Answer::empty(200), rests: rests(on) }
}

fn open(number: u64) -> Action {
    open_resting(number, None)
}

fn open_resting(number: u64, rests: Option<Rests>) -> Action {
    Action::Open { exchange: x(number), head: Head { status: 200, headers: Vec::new() }, rests }
}

fn give(numbers: &[u64], text: &str) -> Action {
    let to = numbers.iter().map(|number| x(*number)).collect();
    Action::Give { to, bytes: text.as_bytes().into(), more: false }
}

fn close(number: u64) -> Action {
    Action::Close(x(number))
}

fn sync(number: u64) -> Action {
    Action::Sync(ticket(number))
}

fn lost(number: u64) -> Action {
    let answer = Answer::error(Code::FrameworkInternalError);
    Action::Answer { exchange: x(number), answer, rests: None }
}

#[test]
fn actions_are_sorted_by_kind_and_of_one_kind_stay_in_order() {
    let mut driver = Driver::default();
    driver.ask(1, Say::These(vec![open(1)]));
    driver.turn();
    let log = |word: &str| Action::Log(Level::Told, word.into());
    let (at, later) = (UnixMillis::new(7), UnixMillis::new(9));
    driver.ask(
        2,
        Say::These(vec![
            log("first"),
            Action::Timer(at),
            Action::Abort(FetchId::new(3)),
            Action::Take { exchange: x(3), want: Want::Next },
            answer(2, 200),
            close(1),
            give(&[1], "a"),
            give(&[1], "b"),
            Action::Erase,
            sync(5),
            Action::Arm(at),
            log("second"),
        ]),
    );
    driver.ask(3, Say::These(vec![open(3)]));
    // Only the last alarm and the last timer of a turn count, and of its syncs the highest ticket.
    driver.engine.over = vec![sync(4), Action::Timer(later), Action::Arm(later)];
    let done = driver.turn();
    let expected = [
        Action::Arm(later),
        sync(5),
        Action::Erase,
        open(3),
        give(&[1], "a"),
        give(&[1], "b"),
        close(1),
        answer(2, 200),
        Action::Abort(FetchId::new(3)),
        Action::Timer(later),
        log("first"),
        log("second"),
    ];
    assert_eq!(done, expected);
}

#[test]
fn every_request_gets_exactly_one_end() {
    let mut driver = Driver::default();
    assert_eq!(driver.asked(1, Say::These(vec![answer(1, 200), answer(1, 201)])), [answer(1, 200)]);
    assert_eq!(driver.cycle.registry().surplus(), 1);
    assert_eq!(driver.asked(2, Say::These(vec![open(2), open(2), close(2), Action::Break(x(2))])), [open(2), close(2)]);
    assert_eq!(driver.cycle.registry().surplus(), 3);
    // An answer to an open response, and what comes behind an end in another turn.
    driver.asked(3, Say::These(vec![open(3), answer(3, 500)]));
    assert_eq!(driver.cycle.registry().surplus(), 4);
    driver.engine.over = vec![close(2), give(&[2, 3], "only 3"), close(3)];
    assert_eq!(driver.turn(), [give(&[3], "only 3"), close(3)]);
    assert_eq!(driver.cycle.registry().surplus(), 5);
    assert!(driver.cycle.registry().is_empty());
}

#[test]
fn a_lost_request_is_answered_500_and_a_parked_one_is_not() {
    let mut driver = Driver::default();
    assert_eq!(driver.asked(1, Say::Nothing), [lost(1)]);
    assert_eq!(driver.asked(2, Say::Park), []);
    assert_eq!(driver.cycle.registry().len(), 1);
    driver.engine.over = vec![answer(2, 200)];
    assert_eq!(driver.turn(), [answer(2, 200)]);
    // The engine hears that the lost one is over, so that nothing of it stays; what it says of it before that is no second end.
    assert_eq!(driver.engine.heard, ["asked 1", "left 1", "asked 2"]);
    assert_eq!((driver.cycle.registry().surplus(), driver.cycle.registry().len()), (0, 0));
}

#[test]
fn a_request_is_not_lost_while_its_body_is_awaited() {
    let mut driver = Driver::default();
    let take = || Action::Take { exchange: x(1), want: Want::Next };
    assert_eq!(driver.asked(1, Say::These(vec![take()])), [take()]);
    assert_eq!(driver.turn(), []);
    let bytes = |text: &str| Event::Body { exchange: x(1), news: BodyNews::Bytes(text.into()) };
    driver.engine.ready = vec![Say::These(vec![take()])];
    assert_eq!(driver.told(bytes("a")), [take()]);
    // The engine has heard of it again, and has said nothing.
    assert_eq!(driver.told(bytes("b")), [lost(1)]);
    assert!(driver.cycle.registry().is_empty());
}

#[test]
fn a_body_that_nobody_wants_is_taken_before_its_answer_leaves() {
    let mut driver = Driver::default();
    let nothing = Action::Take { exchange: x(1), want: Want::Nothing };
    assert_eq!(
        driver.asked(1, Say::These(vec![nothing, answer(1, 413)])),
        [Action::Take { exchange: x(1), want: Want::Nothing }, answer(1, 413)]
    );
    // It is no promise of an end.
    let nothing = Action::Take { exchange: x(2), want: Want::Nothing };
    assert!(driver.asked(2, Say::These(vec![nothing])).contains(&lost(2)));
    // More of a body that was answered is not wanted.
    let next = Action::Take { exchange: x(3), want: Want::Next };
    driver.engine.over = vec![answer(3, 200)];
    assert_eq!(driver.asked(3, Say::These(vec![next])), [answer(3, 200)]);
}

#[test]
fn what_rests_on_a_ticket_waits_for_it_in_the_order_in_which_it_was_said() {
    let mut driver = Driver::default();
    driver.ask(1, Say::These(vec![sync(5), resting(1, 5)]));
    driver.ask(2, Say::These(vec![open_resting(2, rests(5)), give(&[2], "a")]));
    driver.ask(3, Say::These(vec![open(3)]));
    assert_eq!(driver.turn(), [sync(5), open(3)]);
    driver.engine.over = vec![give(&[2, 3], "b")];
    assert_eq!(driver.turn(), [give(&[3], "b")]);
    // What is said in the turn of the release comes behind what was held.
    driver.engine.ready = vec![Say::These(vec![give(&[2], "c"), close(2)])];
    let done = driver.told(Event::Durable(ticket(5)));
    assert_eq!(done, [open(2), give(&[2], "a"), give(&[2], "b"), give(&[2], "c"), close(2), answer(1, 200)]);
    assert_eq!(driver.cycle.registry().surplus(), 0);
}

#[test]
fn a_higher_ticket_releases_what_rests_on_a_lower_one_and_not_the_other_way_round() {
    let mut driver = Driver::default();
    driver.ask(1, Say::These(vec![sync(5), resting(1, 5)]));
    driver.ask(2, Say::These(vec![sync(6), resting(2, 7)]));
    assert_eq!(driver.turn(), [sync(6)]);
    assert_eq!(driver.told(Event::Durable(ticket(6))), [answer(1, 200)]);
    assert_eq!(driver.told(Event::Durable(ticket(7))), [answer(2, 200)]);
}

#[test]
fn a_ticket_that_comes_in_the_turn_of_the_answer_or_came_before_holds_nothing() {
    let mut driver = Driver::default();
    driver.asked(1, Say::These(vec![sync(5), resting(1, 5)]));
    driver.ask(2, Say::These(vec![resting(2, 5)]));
    assert_eq!(driver.told(Event::Durable(ticket(5))), [answer(1, 200), answer(2, 200)]);
    assert_eq!(driver.asked(3, Say::These(vec![open_resting(3, rests(4)), close(3)])), [open(3), close(3)]);
}

#[test]
fn what_rests_on_a_ticket_that_fails_gets_what_was_said_for_that() {
    let mut driver = Driver::default();
    driver.ask(1, Say::These(vec![sync(5), resting(1, 5)]));
    driver.ask(2, Say::These(vec![open_resting(2, rests(5)), give(&[2], "a")]));
    driver.ask(3, Say::These(vec![open_resting(3, rests(5)), close(3)]));
    driver.turn();
    // Said in the turn in which the failure is told, but before it.
    driver.ask(4, Say::These(vec![resting(4, 5)]));
    driver.cycle.tell(failed());
    driver.engine.ready = vec![Say::These(vec![Action::Break(x(2)), sync(6)])];
    assert_eq!(driver.turn(), [sync(6), answer(1, 503), answer(2, 503), answer(3, 503), answer(4, 503)]);
    // Only who is still open for the engine is told to be over.
    assert!(driver.engine.heard.ends_with(&["NotDurable(\"the disk\")".to_owned(), "left 2".to_owned()]));
    driver.asked(5, Say::These(vec![resting(5, 6)]));
    assert_eq!(driver.told(Event::Durable(ticket(6))), [answer(5, 200)]);
    assert_eq!((driver.cycle.registry().surplus(), driver.cycle.registry().len()), (0, 0));
}

#[test]
fn one_sync_is_in_flight_and_the_later_one_is_next() {
    let mut driver = Driver::default();
    assert_eq!(driver.asked(1, Say::These(vec![sync(5), answer(1, 200)])), [sync(5), answer(1, 200)]);
    assert!(driver.cycle.is_syncing());
    assert_eq!(driver.asked(2, Say::These(vec![sync(6), answer(2, 200)])), [answer(2, 200)]);
    assert_eq!(driver.asked(3, Say::These(vec![sync(7), answer(3, 200)])), [answer(3, 200)]);
    assert_eq!(driver.told(Event::Durable(ticket(5))), [sync(7)]);
    assert_eq!(driver.told(failed()), []);
    assert!(!driver.cycle.is_syncing());
}

#[test]
fn who_leaves_gets_nothing_of_what_was_held_or_said_for_it() {
    let mut driver = Driver::default();
    driver.ask(1, Say::These(vec![sync(5), resting(1, 5)]));
    driver.ask(2, Say::These(vec![open_resting(2, rests(5)), give(&[2], "a")]));
    driver.turn();
    driver.cycle.tell(Event::Left(x(1)));
    driver.cycle.tell(Event::Left(x(2)));
    // Answered before the engine could know.
    driver.ask(3, Say::These(vec![answer(3, 200)]));
    driver.cycle.tell(Event::Left(x(3)));
    driver.ask(4, Say::These(vec![open(4), give(&[4], "b")]));
    driver.cycle.tell(Event::Left(x(4)));
    driver.engine.over = vec![close(2), close(4)];
    assert_eq!(driver.told(Event::Durable(ticket(5))), []);
    // An answered request is over for the engine; the others it hears of.
    assert_eq!(driver.engine.heard, ["asked 1", "asked 2", "left 2", "asked 3", "asked 4", "left 4", "durable 5"]);
    assert_eq!(driver.cycle.registry().surplus(), 0);
    // One turn later it knows, so that it is a fault.
    driver.engine.over = vec![close(4)];
    assert_eq!(driver.turn(), []);
    assert_eq!(driver.cycle.registry().surplus(), 1);
}

#[test]
fn nothing_is_heard_of_a_request_that_is_over() {
    let mut driver = Driver::default();
    driver.asked(1, Say::These(vec![answer(1, 200)]));
    driver.cycle.tell(Event::Body { exchange: x(1), news: BodyNews::End });
    driver.cycle.tell(Event::Left(x(1)));
    assert_eq!(driver.turn(), []);
    assert_eq!(driver.engine.heard, ["asked 1"]);
}

#[test]
fn a_panic_loses_only_what_its_own_event_has_said() {
    let mut driver = Driver::default();
    driver.ask(1, Say::These(vec![sync(5), resting(1, 5)]));
    driver.ask(2, Say::These(vec![open(2)]));
    driver.ask(3, Say::Panic(vec![answer(3, 200), give(&[2], "never")]));
    driver.ask(4, Say::These(vec![answer(4, 200)]));
    assert_eq!(driver.panics(), [sync(5), open(2), lost(3)]);
    assert_eq!(driver.engine.thrown_away, 1);
    // What waited behind it is heard in the turn that follows.
    assert!(driver.cycle.has_news());
    assert_eq!(driver.turn(), [answer(4, 200)]);
    assert_eq!(driver.told(Event::Durable(ticket(5))), [answer(1, 200)]);
    assert_eq!((driver.cycle.registry().surplus(), driver.cycle.registry().len()), (0, 1));
}

#[test]
fn a_panic_in_the_turn_of_a_ticket_keeps_what_the_ticket_has_released() {
    let mut driver = Driver::default();
    driver.asked(1, Say::These(vec![sync(5), resting(1, 5)]));
    driver.engine.ready = vec![Say::Panic(vec![])];
    driver.cycle.tell(Event::Durable(ticket(5)));
    assert_eq!(driver.panics(), [answer(1, 200)]);
    driver.asked(2, Say::These(vec![sync(6), resting(2, 6)]));
    driver.engine.ready = vec![Say::Panic(vec![])];
    driver.cycle.tell(failed());
    assert_eq!(driver.panics(), [answer(2, 503)]);
    assert!(!driver.cycle.is_syncing());
}

#[test]
fn room_is_worth_a_turn_when_there_is_more_or_a_turn_has_passed() {
    let mut driver = Driver::default();
    let gives = |more: bool| Action::Give { to: vec![x(1)], bytes: b"a"[..].into(), more };
    driver.asked(1, Say::These(vec![open(1), gives(true)]));
    driver.cycle.tell(Event::Room(x(1)));
    assert!(driver.cycle.has_news());
    driver.engine.over = vec![gives(false)];
    driver.turn();
    driver.cycle.tell(Event::Room(x(1)));
    assert!(!driver.cycle.has_news());
    // It is heard with whatever comes next.
    driver.asked(2, Say::Park);
    assert!(driver.engine.heard.ends_with(&[format!("{:?}", Event::<Say>::Room(x(1))), "asked 2".to_owned()]));
    // While it was full, something came for it: the engine could not give it.
    driver.engine.over = vec![gives(false)];
    driver.turn();
    driver.told(Event::Timer);
    driver.cycle.tell(Event::Room(x(1)));
    assert!(driver.cycle.has_news());
}

#[test]
fn what_only_a_panicked_event_has_told_is_told_once_more_and_not_a_third_time() {
    let mut driver = Driver::default();
    driver.asked(1, Say::These(vec![open(1)]));
    driver.asked(2, Say::Park);
    let news = || Event::Fetched { fetch: FetchId::new(7), news: FetchNews::Bytes(b"a".to_vec()) };
    driver.cycle.tell(news());
    driver.ask(3, Say::These(vec![answer(3, 200)]));
    driver.engine.ready = vec![Say::Panic(vec![]), Say::These(vec![answer(2, 502)])];
    // Of the call nothing more is to come, and it has broken. What waited behind the event still waits.
    assert_eq!(driver.panics(), [Action::Abort(FetchId::new(7))]);
    assert!(driver.cycle.has_news());
    assert_eq!(driver.turn(), [answer(2, 502), answer(3, 200)]);
    assert!(driver.engine.heard.iter().any(|heard| heard.contains("Broke")));
    driver.engine.ready = vec![Say::Panic(vec![]), Say::Panic(vec![])];
    driver.cycle.tell(Event::Room(x(1)));
    driver.panics();
    driver.panics();
    assert!(!driver.cycle.has_news());
    // The next event is told for the first time again.
    driver.engine.ready = vec![Say::Panic(vec![]), Say::Nothing];
    driver.cycle.tell(Event::Rang);
    driver.panics();
    assert!(driver.cycle.has_news());
    driver.turn();
    assert_eq!(driver.engine.heard.iter().filter(|heard| *heard == "Rang").count(), 2);
    assert_eq!((driver.cycle.registry().surplus(), driver.cycle.registry().len()), (0, 1));
}

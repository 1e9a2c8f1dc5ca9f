//! What `/sse` answers, and whom it lets wait.

use super::call::SessionCall;
use super::testing::{End, Object};
use crate::core::caller::Caller;
use crate::core::engine::event::{Ask, Event, Headers};
use crate::core::engine::ids::Exchange;
use crate::core::error::Code;
use crate::dialect::route::Call;

/// Asks for `/sse` under a number of its own; the status, and the end if it is over.
fn ask(object: &mut Object, number: u64, query: &str, last: Option<&str>) -> (Option<u16>, Option<End>) {
    let call = SessionCall { call: Call::Sse, query: query.to_owned() };
    let headers = Headers::new(last.map(|last| ("last-event-id".to_owned(), last.to_owned())).into_iter().collect());
    let exchange = Exchange::new(number);
    object.tell(Event::Asked { exchange, ask: Box::new(Ask { call, caller: Caller::Anonymous, headers }) });
    (object.client(number).status, object.client(number).end)
}

fn refused(code: Code) -> (Option<u16>, Option<End>) {
    (Some(code.status()), Some(End::Answered))
}

const OPEN: (Option<u16>, Option<End>) = (Some(200), None);

#[test]
fn a_session_that_nobody_has_begun_is_waited_for_only_from_its_start() {
    let mut object = Object::new();
    assert_eq!(ask(&mut object, 1, "", None), refused(Code::StateSessionNotFound));
    assert_eq!(ask(&mut object, 2, "waitForLive=1&fromSequence=3", None), refused(Code::StateSessionNotFound));
    assert_eq!(ask(&mut object, 3, "waitForLive=1&runId=r", None), refused(Code::StateSessionNotFound));
    assert_eq!(ask(&mut object, 4, "waitForLive=1", None), OPEN);
    object.start().0.unwrap();
    object.confirm();
    object.cycle.tell(Event::Room(Exchange::new(4)));
    object.tell(Event::Full(vec![]));
    assert!(object.client(4).got.contains("id: 1\n"), "{}", object.client(4).got);
}

#[test]
fn a_cursor_is_taken_from_the_address_before_the_header_and_never_lies_beyond_the_head() {
    let mut object = Object::new();
    object.start().0.unwrap();
    object.confirm();
    assert_eq!(ask(&mut object, 1, "fromSequence=1", Some("7")), OPEN);
    assert_eq!(ask(&mut object, 2, "", Some("1")), OPEN);
    assert_eq!(object.engine.counters.resumed, 2);
    assert_eq!(ask(&mut object, 3, "", Some("2")), refused(Code::StateCursorBeyondHead));
    assert_eq!(ask(&mut object, 4, "fromSequence=x", None), refused(Code::ValidationError));
    assert_eq!(ask(&mut object, 5, "", Some("x")), refused(Code::ValidationError));
}

#[test]
fn a_cursor_of_another_log_of_the_same_name_is_told_so() {
    let mut object = Object::new();
    object.start().0.unwrap();
    object.confirm();
    assert_eq!(ask(&mut object, 1, "fromSequence=9&runId=elsewhere", None), (Some(200), Some(End::Answered)));
    assert_eq!(ask(&mut object, 2, "fromSequence=1&runId=r", None), OPEN);
    assert_eq!((object.engine.counters.truncated, object.engine.readers.len()), (1, 1));
}

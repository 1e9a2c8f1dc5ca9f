//! Stream wire v2: the frames around stored chunks (`spec/helix.md` section 4). The chunks themselves are stored as finished frames.

use serde_json::{Value, json};

use crate::core::error::Code;
use crate::core::ids::Cursor;
use crate::core::json_line;
use crate::core::reader::{Eviction, Terminal};
use crate::core::snapshot::{error_detail, fault_detail};
use crate::core::view::Fault;

/// End of the initial history; everything after it is live.
pub fn caught_up(head: Cursor) -> Vec<u8> {
    event("caught-up", &json!({ "head": head }))
}

/// The last frame of a response (`spec/helix.md` 4.2).
pub fn terminal(terminal: Terminal) -> Vec<u8> {
    match terminal {
        Terminal::Completed => event("end", &json!({ "status": "completed" })),
        Terminal::Interrupted => event("end", &json!({ "status": "interrupted" })),
        Terminal::Paused => event("end", &json!({ "status": "paused" })),
        Terminal::Failed(code) => failed(&Fault::from(code)),
        Terminal::Dropped | Terminal::Superseded => fail(Code::TransportStreamDrop, true),
        Terminal::NotLive => not_live(),
        Terminal::Truncated(floor) => truncated(floor),
    }
}

/// The end of a run whose producer is outside: with what it said of its result (`output`, `usage`), and the conversation's state, when
/// they are known; both are JSON text.
pub fn end_of_pushed(ended: Terminal, result: Option<&str>, state: Option<&str>) -> Vec<u8> {
    let status = match ended {
        Terminal::Completed => "completed",
        Terminal::Interrupted => "interrupted",
        Terminal::Paused => "paused",
        _ => return terminal(ended),
    };
    let parse = |text: Option<&str>| text.and_then(|text| serde_json::from_str::<Value>(text).ok());
    let mut body = serde_json::Map::new();
    body.insert("status".into(), status.into());
    if let Some(Value::Object(result)) = parse(result) {
        body.extend(result);
    }
    body.extend(parse(state).map(|state| ("state".to_owned(), state)));
    event("end", &Value::Object(body))
}

/// The end of a run that failed, with all that clients are told of it.
pub fn failed(fault: &Fault) -> Vec<u8> {
    event("fail", &json!({ "error": fault.words(), "errorDetail": fault_detail(fault), "recoverable": false }))
}

/// `fail`; a recoverable one asks the client to attach again from its cursor.
pub fn fail(code: Code, recoverable: bool) -> Vec<u8> {
    let body = json!({ "error": code.message(), "errorDetail": error_detail(code), "recoverable": recoverable });
    event("fail", &body)
}

/// The last frame of a connection that the service ends on purpose (`spec/helix.md` 4.5). `resume_from` is the highest sequence that was
/// handed to it.
pub fn evicted(resume_from: Cursor, reason: Eviction) -> Vec<u8> {
    event("evicted", &json!({ "resumeFrom": resume_from, "reason": reason.as_str() }))
}

/// The cursor lies below what retention has kept, or in a log that is gone: the client reads the snapshot (`spec/helix.md` 4.1).
pub fn truncated(floor: Cursor) -> Vec<u8> {
    event("truncated", &json!({ "floor": floor, "errorDetail": error_detail(Code::Truncated) }))
}

fn not_live() -> Vec<u8> {
    let code = Code::TransportStreamDrop;
    let mut detail = error_detail(code);
    if let Value::Object(detail) = &mut detail {
        detail.insert("cause".into(), "run_not_live".into());
    }
    event("fail", &json!({ "error": "No run has started", "errorDetail": detail, "recoverable": true }))
}

fn event(name: &str, data: &Value) -> Vec<u8> {
    let mut frame = format!("event: {name}\ndata: {data}\n\n").into_bytes();
    json_line::escape(&mut frame, 0);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: Vec<u8>) -> String {
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn golden_frames() {
        assert_eq!(text(caught_up(Cursor::new(42).unwrap())), "event: caught-up\ndata: {\"head\":42}\n\n");
        assert_eq!(text(terminal(Terminal::Completed)), "event: end\ndata: {\"status\":\"completed\"}\n\n");
        assert_eq!(
            text(terminal(Terminal::Failed(Code::ProviderTimeout))),
            "event: fail\ndata: {\"error\":\"The model stopped answering; try again\",\"errorDetail\":{\"code\":\
             \"provider_timeout\",\"category\":\"provider\",\"retryable\":true},\"recoverable\":false}\n\n"
        );
        let code = Code::ProviderRateLimited;
        let fault = Fault { retry_after_ms: Some(7_000), words: Some("Slow down".into()), ..Fault::from(code) };
        assert_eq!(
            text(failed(&fault)),
            "event: fail\ndata: {\"error\":\"Slow down\",\"errorDetail\":{\"code\":\"provider_rate_limited\",\"category\":\
             \"provider\",\"retryable\":true,\"retryAfterMs\":7000},\"recoverable\":false}\n\n"
        );
        assert_eq!(
            text(evicted(Cursor::new(7).unwrap(), Eviction::SlowConsumer)),
            "event: evicted\ndata: {\"resumeFrom\":7,\"reason\":\"slow_consumer\"}\n\n"
        );
        assert!(text(truncated(Cursor::new(3).unwrap())).starts_with(
            "event: truncated\ndata: {\"floor\":3,\"errorDetail\":{\"code\":\"TRUNCATED\",\"category\":\"state\","
        ));
        assert_eq!(
            text(end_of_pushed(Terminal::Completed, Some("{\"output\":1}"), Some("[2]"))),
            "event: end\ndata: {\"status\":\"completed\",\"output\":1,\"state\":[2]}\n\n"
        );
        assert_eq!(
            text(end_of_pushed(Terminal::Paused, Some("{\"output\":\"a\u{2028}b\"}"), Some("\"\u{85}\u{2029}\""))),
            "event: end\ndata: {\"status\":\"paused\",\"output\":\"a\\u2028b\",\"state\":\"\\u0085\\u2029\"}\n\n"
        );
        assert!(text(terminal(Terminal::Dropped)).contains("\"recoverable\":true"));
        assert!(text(terminal(Terminal::NotLive)).contains("\"cause\":\"run_not_live\"},\"recoverable\":true"));
    }
}

//! The body of a chat request and what it asks for (`spec/ai-sdk.md` A.4, `spec/helix.md` 5.1 and 5.2).
//!
//! Only the shape is decided here: whether a trailing message is new, or a result is wanted, depends on the session.
//! A trailing user message is checked whole, because it is what gets stored. The client's history before it is not used
//! and only looked over: a client that holds one odd old message (an empty reply after a failure) must not be locked out. The
//! same goes for a trailing reply: only the answers in it are taken ([`super::tool_result`]), and clients keep an approval on a
//! part in states where no version's validator allows one.

use serde_json::{Map, Value};
use thiserror::Error;

use super::message::{Invalid, validate_message, validate_outline};
use crate::core::error::Code;
use crate::core::lenient_json;
use crate::core::truth::Truth;

/// Deepest nesting of a body. `serde_json` stops at 128 levels, so that everything accepted can be read again.
pub const MAX_DEPTH: usize = 120;

/// What the client says it is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trigger {
    /// `submit-message`; also when the body names none.
    #[default]
    Submit,
    /// `regenerate-message`.
    Regenerate,
}

/// A chat request's body.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChatBody {
    /// The chat's id, for routes without one in the path.
    pub id: Option<String>,
    /// The messages; the last one is valid, the others have an id, a role and parts.
    pub messages: Vec<Value>,
    /// What the client is doing.
    pub trigger: Trigger,
    /// The message that is edited, continued or regenerated.
    pub message_id: Option<String>,
    /// Name of the agent that shall answer.
    pub agent: Option<String>,
    /// Every key but `messages`, as it came: what a wrapped chat route is sent.
    pub keys: Map<String, Value>,
    /// Whether `messages` came as a list that is not empty: only that can say which messages stay.
    pub is_list: bool,
}

/// What a chat request asks for, by its shape.
#[derive(Clone, Debug, PartialEq)]
pub enum EntryKind {
    /// A user message.
    Send {
        /// The message.
        message: Value,
        /// The message that the request names, whose place it takes ([`super::identity::standing`] says whether).
        replaces: Option<String>,
    },
    /// An assistant message, to which the client may have added tool results or approvals. Only its outline is checked.
    ToolResults(Value),
    /// Nothing new: follow what is there.
    Attach,
    /// The reply again.
    Regenerate {
        /// The assistant message to replace; the last one when absent.
        message_id: Option<String>,
        /// The user message that the reply answers, when the client sent it and it is valid.
        last_user: Option<Value>,
    },
}

/// Why a body was refused, in words that say what to change.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Refusal {
    /// Not JSON at all.
    #[error("the body must be JSON")]
    NotJson,
    /// Nested deeper than [`MAX_DEPTH`].
    #[error("the body must not be nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// JSON, but no object.
    #[error("the body must be a JSON object")]
    NotAnObject,
    /// A key with which clients refuse to read the message back.
    #[error("the body must not contain a __proto__ key")]
    PrototypeKey,
    /// A key of the body has a value of another type.
    #[error("{key} must be {expected}")]
    WrongType {
        /// The key.
        key: &'static str,
        /// What it must be.
        expected: &'static str,
    },
    /// A message is not a UI message.
    #[error("messages[{index}]: {invalid}")]
    Message {
        /// Its place.
        index: usize,
        /// What is wrong with it.
        invalid: Invalid,
    },
    /// `X-Rejoin-History` with another word.
    #[error("X-Rejoin-History must be {}", Truth::WORDS)]
    History,
    /// The last message is neither the user's nor the assistant's.
    #[error("the last message must have the role user or assistant")]
    LastRole,
}

impl Refusal {
    /// The code of the answer.
    pub fn code(&self) -> Code {
        Code::ValidationError
    }
}

impl ChatBody {
    /// Reads a body. An empty body is one without messages. A single `message` object stands for `messages`, as in apps
    /// that send only the last message; a bare string is refused, because the message needs an id that the client knows.
    ///
    /// # Errors
    /// [`Refusal`] says what to change.
    pub fn parse(body: &[u8]) -> Result<Self, Refusal> {
        let body = without_mark(body);
        if body.trim_ascii().is_empty() {
            return Self::from_map(Map::new());
        }
        match read_json(body)? {
            Value::Object(map) => Self::from_map(map),
            _ => Err(Refusal::NotAnObject),
        }
    }

    fn from_map(mut map: Map<String, Value>) -> Result<Self, Refusal> {
        let trigger = match map.get("trigger") {
            None | Some(Value::Null) => Trigger::Submit,
            Some(Value::String(word)) if word == "submit-message" => Trigger::Submit,
            Some(Value::String(word)) if word == "regenerate-message" => Trigger::Regenerate,
            _ => return Err(Refusal::WrongType { key: "trigger", expected: "submit-message or regenerate-message" }),
        };
        let is_list = map.get("messages").and_then(Value::as_array).is_some_and(|messages| !messages.is_empty());
        let messages = match (map.shift_remove("messages"), map.get("message").cloned()) {
            (Some(Value::Array(messages)), _) => messages,
            (None | Some(Value::Null), Some(message @ Value::Object(_))) => vec![message],
            (None | Some(Value::Null), None | Some(Value::Null)) => Vec::new(),
            (None | Some(Value::Null), _) => {
                return Err(Refusal::WrongType { key: "message", expected: "an object {id, role, parts}" });
            }
            _ => return Err(Refusal::WrongType { key: "messages", expected: "an array" }),
        };
        check(&messages)?;
        Ok(Self {
            id: text(&map, "id")?,
            messages,
            trigger,
            message_id: text(&map, "messageId")?,
            agent: text(&map, "agent")?,
            keys: map,
            is_list,
        })
    }

    /// Ids of the messages that the client's list holds before its last user message, in the list's order. `None` when the client sent
    /// no list: one `message` says nothing of the others.
    pub fn listed(&self) -> Option<Vec<String>> {
        let is_user = |message: &Value| message.get("role").and_then(Value::as_str) == Some("user");
        let last = self.messages.iter().rposition(is_user).filter(|_| self.is_list)?;
        let before = self.messages.iter().take(last);
        Some(before.filter_map(|message| message.get("id").and_then(Value::as_str)).map(str::to_owned).collect())
    }
}

/// Whose list says which messages stay: the request's own word, else the agent's.
///
/// # Errors
/// [`Refusal::History`] for a word that is neither.
pub fn truth(header: Option<&str>, agent: Truth) -> Result<Truth, Refusal> {
    match header {
        None => Ok(agent),
        Some(word) => Truth::parse(word).ok_or(Refusal::History),
    }
}

/// Any body of a request that holds JSON, safe to be read and stored.
pub(super) fn read_json(body: &[u8]) -> Result<Value, Refusal> {
    let body = without_mark(body);
    if is_too_deep(body) {
        return Err(Refusal::TooDeep);
    }
    let text = std::str::from_utf8(body).map_err(|_| Refusal::NotJson)?;
    let value: Value = lenient_json::parse(text).map_err(|_| Refusal::NotJson)?;
    if has_key(&value, "__proto__") { Err(Refusal::PrototypeKey) } else { Ok(value) }
}

/// A byte order mark is no part of the JSON.
fn without_mark(body: &[u8]) -> &[u8] {
    body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body)
}

/// What the body asks for.
pub fn classify(body: &ChatBody) -> EntryKind {
    let role = |message: &Value| message.get("role").and_then(Value::as_str).map(str::to_owned);
    if body.trigger == Trigger::Regenerate {
        let last_user = body.messages.iter().rev().find(|message| role(message).as_deref() == Some("user"));
        return EntryKind::Regenerate {
            message_id: body.message_id.clone(),
            last_user: last_user.filter(|message| validate_message(message).is_ok()).cloned(),
        };
    }
    match body.messages.last() {
        Some(last) if role(last).as_deref() == Some("user") => {
            EntryKind::Send { message: last.clone(), replaces: body.message_id.clone() }
        }
        Some(last) => EntryKind::ToolResults(last.clone()),
        None => EntryKind::Attach,
    }
}

fn check(messages: &[Value]) -> Result<(), Refusal> {
    let Some((last, history)) = messages.split_last() else { return Ok(()) };
    for (index, message) in history.iter().enumerate() {
        validate_outline(message).map_err(|invalid| Refusal::Message { index, invalid })?;
    }
    let checked = match last.get("role").and_then(Value::as_str) {
        Some("assistant") => validate_outline(last).map(|_| ()),
        _ => validate_message(last),
    };
    checked.map_err(|invalid| Refusal::Message { index: history.len(), invalid })?;
    match last.get("role").and_then(Value::as_str) {
        Some("user" | "assistant") => Ok(()),
        _ => Err(Refusal::LastRole),
    }
}

fn text(map: &Map<String, Value>, key: &'static str) -> Result<Option<String>, Refusal> {
    match map.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(Refusal::WrongType { key, expected: "a string" }),
    }
}

/// Counts brackets outside strings, without recursion, before anything recursive reads the body.
fn is_too_deep(body: &[u8]) -> bool {
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    for byte in body {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'{' | b'[' => depth = depth.saturating_add(1),
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            return true;
        }
    }
    false
}

fn has_key(value: &Value, key: &str) -> bool {
    match value {
        Value::Array(items) => items.iter().any(|item| has_key(item, key)),
        Value::Object(map) => map.contains_key(key) || map.values().any(|item| has_key(item, key)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn parse(body: Value) -> Result<ChatBody, Refusal> {
        ChatBody::parse(body.to_string().as_bytes())
    }

    fn user() -> Value {
        json!({"id": "u1", "role": "user", "parts": [{"type": "text", "text": "hi"}]})
    }

    fn assistant() -> Value {
        json!({"id": "a1", "role": "assistant", "parts": [
            {"type": "tool-x", "toolCallId": "c", "state": "output-available", "input": 1, "output": 2},
        ]})
    }

    #[test]
    fn a_send_ends_in_a_user_message() {
        let body =
            parse(json!({"id": "chat", "messages": [assistant(), user()], "trigger": "submit-message", "agent": "b"}))
                .unwrap();
        assert_eq!(body.id.as_deref(), Some("chat"));
        assert_eq!(body.agent.as_deref(), Some("b"));
        let send = |replaces: Option<&str>| EntryKind::Send { message: user(), replaces: replaces.map(str::to_owned) };
        assert_eq!(classify(&body), send(None));
        assert_eq!(classify(&parse(json!({"message": user()})).unwrap()), send(None));
        assert_eq!(classify(&parse(json!({"message": user(), "messageId": "u1"})).unwrap()), send(Some("u1")));
    }

    #[test]
    fn the_keys_of_a_body_stay_as_they_came() {
        let sent = json!({"z": {"a": [null]}, "id": "chat", "message": user(), "agent": "b", "trigger": null});
        assert_eq!(Value::Object(parse(sent.clone()).unwrap().keys), sent);
        let body = parse(json!({"temperature": 1, "messages": [user()]})).unwrap();
        assert_eq!(Value::Object(body.keys), json!({"temperature": 1}));
    }

    #[test]
    fn tool_results_end_in_an_assistant_message() {
        let body = parse(json!({"messages": [user(), assistant()], "messageId": "a1"})).unwrap();
        assert_eq!(body.message_id.as_deref(), Some("a1"));
        assert_eq!(classify(&body), EntryKind::ToolResults(assistant()));
        assert_eq!(classify(&parse(json!({"message": assistant()})).unwrap()), EntryKind::ToolResults(assistant()));
    }

    #[test]
    fn nothing_new_attaches() {
        for body in ["", " \n", "{}", "{\"messages\":[]}", "{\"messages\":null,\"trigger\":null,\"id\":null}"] {
            assert_eq!(classify(&ChatBody::parse(body.as_bytes()).unwrap()), EntryKind::Attach, "{body}");
        }
    }

    #[test]
    fn a_regenerate_names_what_it_replaces() {
        let body = parse(json!({"messages": [user()], "trigger": "regenerate-message", "messageId": "a1"})).unwrap();
        assert_eq!(classify(&body), EntryKind::Regenerate { message_id: Some("a1".into()), last_user: Some(user()) });
    }

    #[test]
    fn only_a_list_says_what_the_client_holds() {
        let listed = |body: Value| parse(body).unwrap().listed();
        let held = |ids: &[&str]| Some(ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>());
        assert_eq!(listed(json!({"messages": [user()]})), held(&[]));
        let other = json!({"id": "u2", "role": "user", "parts": [{"type": "text", "text": "ho"}]});
        assert_eq!(listed(json!({"messages": [user(), assistant(), other]})), held(&["u1", "a1"]));
        let again = json!({"messages": [user(), assistant()], "trigger": "regenerate-message"});
        assert_eq!(listed(again), held(&[]));
        for none in [
            json!({"message": user()}),
            json!({"messages": null, "message": user()}),
            json!({"messages": []}),
            json!({}),
        ] {
            assert_eq!(listed(none.clone()), None, "{none}");
        }
        assert_eq!(listed(json!({"messages": [assistant()]})), None);
    }

    #[test]
    fn the_requests_word_on_its_history_wins() {
        for agent in [Truth::Server, Truth::Client] {
            assert_eq!(truth(None, agent), Ok(agent));
            assert_eq!(truth(Some("client"), agent), Ok(Truth::Client));
            assert_eq!(truth(Some("server"), agent), Ok(Truth::Server));
            let refused = truth(Some("Client"), agent).unwrap_err();
            assert_eq!(refused.to_string(), "X-Rejoin-History must be client or server");
        }
    }

    #[test]
    fn refusals_say_what_to_change() {
        let deep = format!("{}1{}", "[".repeat(5000), "]".repeat(5000));
        for (body, words) in [
            ("nope".to_owned(), "the body must be JSON"),
            ("[]".to_owned(), "the body must be a JSON object"),
            (deep, "the body must not be nested deeper than 120 levels"),
            ("{\"a\":[{\"__proto__\":1}]}".to_owned(), "the body must not contain a __proto__ key"),
            ("{\"a\":[{\"\\u005f_proto__\":1}]}".to_owned(), "the body must not contain a __proto__ key"),
            ("{\"messages\":\"hi\"}".to_owned(), "messages must be an array"),
            ("{\"message\":\"hi\"}".to_owned(), "message must be an object {id, role, parts}"),
            ("{\"id\":7}".to_owned(), "id must be a string"),
            ("{\"messageId\":{}}".to_owned(), "messageId must be a string"),
            ("{\"agent\":[]}".to_owned(), "agent must be a string"),
            ("{\"trigger\":\"resume\"}".to_owned(), "trigger must be submit-message or regenerate-message"),
            ("{\"messages\":[1]}".to_owned(), "messages[0]: message: a message must be an object"),
            (
                json!({"messages": [{"role": "user", "parts": []}, user()]}).to_string(),
                "messages[0]: id: a message must have an id, a string of 1 to 256 bytes",
            ),
            (
                json!({"messages": [{"id": "u", "role": "user", "parts": []}]}).to_string(),
                "messages[0]: parts: a message must have at least one part",
            ),
            (
                json!({"messages": [{"id": "u", "role": "user", "parts": [{"type": "image"}]}]}).to_string(),
                "messages[0]: parts[0].type: not a known part type",
            ),
            (
                json!({"messages": [{"id": "s", "role": "system", "parts": [{"type": "text", "text": "x"}]}]})
                    .to_string(),
                "the last message must have the role user or assistant",
            ),
        ] {
            let refusal = ChatBody::parse(body.as_bytes()).unwrap_err();
            assert_eq!(refusal.to_string(), words);
            assert_eq!(refusal.code(), Code::ValidationError);
        }
    }

    #[test]
    fn an_odd_old_message_locks_nobody_out() {
        let empty = json!({"id": "a0", "role": "assistant", "parts": []});
        assert!(parse(json!({"messages": [empty, user()]})).is_ok());
        // Clients leave the approval on a call that was approved and offered again, and the output on one that ran too early.
        let approval = json!({"id": "r::c", "approved": true});
        let odd = json!({"id": "a1", "role": "assistant", "parts": [
            {"type": "tool-x", "toolCallId": "c", "state": "input-available", "input": 1, "approval": approval},
            {"type": "tool-x", "toolCallId": "d", "state": "approval-responded", "input": 1, "output": 2, "approval": approval},
        ]});
        assert!(parse(json!({"messages": [user(), odd]})).is_ok());
    }

    #[test]
    fn the_depth_that_is_allowed_can_be_read() {
        let body = format!("{{\"x\":{}1{}}}", "[".repeat(MAX_DEPTH - 1), "]".repeat(MAX_DEPTH - 1));
        assert!(ChatBody::parse(body.as_bytes()).is_ok());
        let brackets_in_text = json!({"x": "[{".repeat(500)});
        assert!(parse(brackets_in_text).is_ok());
    }

    proptest! {
        #[test]
        fn never_panics(body in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = ChatBody::parse(&body);
        }

        #[test]
        fn never_panics_on_json_like_text(body in "[\\[\\]{}\",:a-c0-9\\\\ ]{0,64}") {
            let _ = ChatBody::parse(body.as_bytes());
        }
    }
}

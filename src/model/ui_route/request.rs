//! Headers and body of the request: what the client sent, with the stored conversation in the place of its own.

use serde_json::{Map, Value};

use super::history::as_forwarded;
use super::settings::{RESPONSE_MESSAGE_ID, UiRouteSettings};
use crate::model::history::newest_turns;

/// What a client's request hands on to the route. Held in memory until the request is sent, and nowhere else; not `Debug`, so that no log
/// line can hold it.
pub struct Forwarded {
    /// The headers of the request to the route.
    pub headers: Vec<(String, String)>,
    /// The client's JSON without its `messages`.
    pub keys: Map<String, Value>,
}

/// The headers of the request, names in lower case: the service's own, those of the client that the settings name, and the settings'
/// fixed ones, which win. `sent` gives the client's value of a header. The one that names the reply's message is added when it is known:
/// [`names_reply`].
pub fn headers(settings: &UiRouteSettings, sent: impl Fn(&str) -> Option<String>) -> Vec<(String, String)> {
    let mut headers: Vec<(String, String)> =
        vec![("content-type".into(), "application/json".into()), ("accept".into(), "text/event-stream".into())];
    let is_fixed = |name: &str| settings.send_headers.iter().any(|(fixed, _)| fixed == name);
    for name in settings.headers.iter().filter(|name| !is_fixed(name)) {
        headers.extend(sent(name).map(|value| (name.clone(), value)));
    }
    headers.extend(settings.send_headers.iter().cloned());
    headers
}

/// The header with the id that clients know the reply by, so that the route can store it under the same.
pub fn names_reply(message: &str) -> (String, String) {
    (RESPONSE_MESSAGE_ID.to_owned(), message.to_owned())
}

/// What a run answers, as far as a route must be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked<'a> {
    /// A user's message.
    Send,
    /// The answers to the calls of this reply, which the run goes on with.
    ToolResult {
        /// The reply's id.
        reply: &'a str,
    },
    /// A reply once more. The one that it replaces is cut, and the new one has another id: only a client can name it.
    Regenerate,
}

/// The stored conversation as the route is sent it: the newest turns within the settings' bounds, every call in it ended, but for those of
/// the reply that the run goes on with.
pub fn forwarded_history(settings: &UiRouteSettings, history: &[Value], asked: Asked<'_>) -> Vec<Value> {
    let mut messages: Vec<Value> =
        newest_turns(history, settings.max_history, settings.max_history_bytes).cloned().collect();
    for message in &mut messages {
        let id = message.get("id").and_then(Value::as_str);
        let waits = matches!(asked, Asked::ToolResult { reply } if id == Some(reply));
        as_forwarded(message, waits);
    }
    messages
}

/// The keys of the request as a stock client would send them for this entry (`spec/ai-sdk.md` A.4), whatever brought it: a client's chat
/// request, whose own keys stay as they are, or another route, which has none. `id` and `trigger` are always there, because routes in
/// Python and validators of their own want both. `history` is what will stand beside them as `messages`.
///
/// An app that sends only the last message finds the stored one in its `message`: another tab may have answered other calls of it.
pub fn complete_keys(
    mut keys: Map<String, Value>,
    chat_id: &str,
    asked: Asked<'_>,
    history: &[Value],
) -> Map<String, Value> {
    let (trigger, message_id) = match asked {
        Asked::Send => ("submit-message", None),
        Asked::ToolResult { reply } => ("submit-message", Some(reply)),
        Asked::Regenerate => ("regenerate-message", None),
    };
    let is_missing = |keys: &Map<String, Value>, key: &str| !keys.get(key).is_some_and(Value::is_string);
    for (key, value) in [("id", Some(chat_id)), ("trigger", Some(trigger)), ("messageId", message_id)] {
        if let Some(value) = value.filter(|_| is_missing(&keys, key)) {
            keys.insert(key.into(), value.into());
        }
    }
    if asked != Asked::Send
        && let (Some(message), Some(last)) =
            (keys.get_mut("message").filter(|message| message.is_object()), history.last())
    {
        *message = last.clone();
    }
    keys
}

/// The client's JSON with the stored conversation as its `messages`; `id`, `trigger`, `messageId`, `message` and the app's own keys stay as
/// they came.
pub fn request_body(mut keys: Map<String, Value>, messages: Vec<Value>) -> Map<String, Value> {
    keys.insert("messages".into(), Value::Array(messages));
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fields::Fields;
    use serde_json::json;

    fn settings(extra: Value) -> UiRouteSettings {
        let mut value = json!({"url": "https://a.test"});
        value.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        UiRouteSettings::parse(Fields::of("x", "", value).unwrap()).unwrap()
    }

    fn user(id: &str) -> Value {
        json!({"id": id, "role": "user", "parts": [{"type": "text", "text": id}]})
    }

    #[test]
    fn only_named_headers_are_forwarded_and_fixed_ones_win() {
        let settings = settings(json!({"headers": ["Cookie", "x-a", "x-b"], "sendHeaders": {"X-A": "fixed"}}));
        let sent = |name: &str| match name {
            "cookie" | "x-a" | "authorization" => Some(format!("client's {name}")),
            _ => None,
        };
        let pairs = [
            ("content-type", "application/json"),
            ("accept", "text/event-stream"),
            ("cookie", "client's cookie"),
            ("x-a", "fixed"),
        ];
        let expected = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(headers(&settings, sent), expected);
    }

    #[test]
    fn the_body_is_the_clients_with_the_stored_conversation() {
        let Value::Object(keys) =
            json!({"id": "c", "trigger": "submit-message", "messageId": "m", "temperature": 1, "deep": {"a": [null]}})
        else {
            panic!()
        };
        let history = [user("a"), user("b")];
        assert_eq!(
            Value::Object(request_body(keys, history.to_vec())),
            json!({"id": "c", "trigger": "submit-message", "messageId": "m", "temperature": 1, "deep": {"a": [null]}, "messages": history})
        );
    }

    #[test]
    fn an_entry_is_forwarded_as_a_stock_client_sends_it() {
        let reply = json!({"id": "a1", "role": "assistant", "parts": []});
        let history = [user("u1"), reply.clone()];
        let complete = |keys: Value, asked| {
            let Value::Object(keys) = keys else { panic!() };
            Value::Object(complete_keys(keys, "chat", asked, &history))
        };
        let result = Asked::ToolResult { reply: "a1" };
        let stock = json!({"id": "chat", "trigger": "submit-message", "messageId": "a1"});
        assert_eq!(complete(json!({}), result), stock);
        assert_eq!(complete(stock.clone(), result), stock);
        let own =
            json!({"id": "own", "trigger": null, "messageId": "a1", "x": 1, "message": {"id": "a1", "stale": true}});
        let expected = json!({"id": "own", "trigger": "submit-message", "messageId": "a1", "x": 1, "message": reply});
        assert_eq!(complete(own, result), expected);
        let sent = json!({"x": 1, "id": "chat", "trigger": "submit-message"});
        assert_eq!(complete(json!({"x": 1}), Asked::Send), sent, "also when the client left them out");
        let odd = json!({"x": 1, "id": 7, "trigger": null});
        assert_eq!(complete(odd, Asked::Send), sent);
        let own = json!({"id": "own", "trigger": "mine", "message": {"id": "u1"}});
        assert_eq!(complete(own.clone(), Asked::Send), own);
        assert_eq!(complete(json!({}), Asked::Regenerate), json!({"id": "chat", "trigger": "regenerate-message"}));
        assert_eq!(
            complete(json!({"messageId": "a1"}), Asked::Regenerate),
            json!({"id": "chat", "trigger": "regenerate-message", "messageId": "a1"})
        );
    }

    #[test]
    fn only_the_reply_that_goes_on_has_calls_for_the_route() {
        let reply = |id: &str| {
            let approval = json!({"id": "p", "approved": true});
            let part = json!({"type": "tool-x", "toolCallId": "c", "state": "approval-responded", "input": 1, "approval": approval});
            json!({"id": id, "role": "assistant", "parts": [part]})
        };
        let history = [user("u1"), reply("a1"), user("u2"), reply("a2")];
        let states = |asked| -> Vec<String> {
            let sent = forwarded_history(&settings(json!({})), &history, asked);
            [1, 3].map(|at: usize| sent[at]["parts"][0]["state"].as_str().unwrap().to_owned()).to_vec()
        };
        assert_eq!(states(Asked::ToolResult { reply: "a2" }), ["output-error", "approval-responded"]);
        assert_eq!(states(Asked::Send), ["output-error", "output-error"]);
    }

    #[test]
    fn a_long_conversation_is_cut_at_a_turn() {
        let history = [user("a"), user("b"), user("c")];
        let sent = forwarded_history(&settings(json!({"maxHistory": 2})), &history, Asked::Send);
        assert_eq!(sent, [user("b"), user("c")]);
    }
}

//! Headers and body of the request: what the client sent, with the stored conversation in the place of its own.

use serde_json::{Map, Value};

use super::settings::UiRouteSettings;
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
/// fixed ones, which win. `sent` gives the client's value of a header.
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
    /// A reply once more.
    Regenerate {
        /// The id of the reply that is replaced, when there is one.
        reply: Option<&'a str>,
    },
}

/// The keys of the request as a stock client would send them for this entry (`spec/ai-sdk.md` A.4), whatever brought it: a client's chat
/// request, whose own keys stay as they are, or another route, which has none. `history` is what will stand beside them as `messages`.
///
/// An app that sends only the last message finds the stored one in its `message`: another tab may have answered other calls of it.
pub fn complete_keys(
    mut keys: Map<String, Value>,
    chat_id: &str,
    asked: Asked<'_>,
    history: &[Value],
) -> Map<String, Value> {
    let (trigger, message_id) = match asked {
        Asked::Send => return keys,
        Asked::ToolResult { reply } => ("submit-message", Some(reply)),
        Asked::Regenerate { reply } => ("regenerate-message", reply),
    };
    let is_missing = |keys: &Map<String, Value>, key: &str| keys.get(key).is_none_or(Value::is_null);
    for (key, value) in [("id", Some(chat_id)), ("trigger", Some(trigger)), ("messageId", message_id)] {
        if let Some(value) = value.filter(|_| is_missing(&keys, key)) {
            keys.insert(key.into(), value.into());
        }
    }
    if let (Some(message), Some(last)) = (keys.get_mut("message").filter(|message| message.is_object()), history.last())
    {
        *message = last.clone();
    }
    keys
}

/// The client's JSON with the stored conversation as its `messages`; `id`, `trigger`, `messageId`, `message` and the app's own keys stay as
/// they came. Of a long conversation the newest turns within the settings' bounds are sent.
pub fn request_body(settings: &UiRouteSettings, mut keys: Map<String, Value>, history: &[Value]) -> Map<String, Value> {
    let messages = newest_turns(history, settings.max_history, settings.max_history_bytes).cloned().collect();
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
            Value::Object(request_body(&settings(json!({})), keys, &history)),
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
        assert_eq!(complete(json!({"x": 1}), Asked::Send), json!({"x": 1}));
        assert_eq!(
            complete(json!({}), Asked::Regenerate { reply: None }),
            json!({"id": "chat", "trigger": "regenerate-message"})
        );
        assert_eq!(
            complete(json!({}), Asked::Regenerate { reply: Some("a1") }),
            json!({"id": "chat", "trigger": "regenerate-message", "messageId": "a1"})
        );
    }

    #[test]
    fn a_long_conversation_is_cut_at_a_turn() {
        let history = [user("a"), user("b"), user("c")];
        let body = request_body(&settings(json!({"maxHistory": 2})), Map::new(), &history);
        assert_eq!(body.get("messages"), Some(&json!([user("b"), user("c")])));
    }
}

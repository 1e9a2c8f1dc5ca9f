//! How much of a long conversation is sent: whole turns, the newest ones.

use std::io;

use serde_json::Value;

/// The newest part of `history` within both bounds, cut before a user message. The newest turn is always sent whole, however large: a
/// refusal by the API says more than an answer to half a question. System messages stay, wherever they stand.
pub fn newest_turns(history: &[Value], max_messages: usize, max_bytes: usize) -> impl Iterator<Item = &Value> {
    let mut start = history.len();
    let mut bytes = 0usize;
    let mut newest_turn_begins = None;
    for (index, message) in history.iter().enumerate().rev() {
        bytes = bytes.saturating_add(json_bytes(message));
        let count = history.len().saturating_sub(index);
        let fits = count <= max_messages && bytes <= max_bytes;
        if newest_turn_begins.is_some() && !fits {
            break;
        }
        if is_role(message, "user") {
            newest_turn_begins.get_or_insert(index);
            start = index;
        } else if index == 0 {
            // What stands before the first question (a greeting) belongs to the first turn.
            start = 0;
        }
    }
    history
        .iter()
        .enumerate()
        .filter(move |(index, message)| *index >= start || is_role(message, "system"))
        .map(|(_, message)| message)
}

/// The conversation with a reply as it stands, whose beginning may be its last message already. A reply without content adds nothing.
pub fn with_reply(mut history: Vec<Value>, reply: Option<Value>) -> Vec<Value> {
    if let Some(reply) = reply {
        if history.last().is_some_and(|last| last.get("id") == reply.get("id")) {
            history.pop();
        }
        history.push(reply);
    }
    history
}

fn is_role(message: &Value, role: &str) -> bool {
    message.get("role").and_then(Value::as_str) == Some(role)
}

/// Size of the value as JSON, without making the text.
fn json_bytes(value: &Value) -> usize {
    struct Count(usize);
    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.saturating_add(bytes.len());
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // Neither the counter nor a `Value` can fail here; if one did, the message would count as too large.
    serde_json::to_writer(&mut count, value).map_or(usize::MAX, |()| count.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn conversation(roles: &str) -> Vec<Value> {
        let role = |c| match c {
            'u' => "user",
            's' => "system",
            _ => "assistant",
        };
        roles.chars().enumerate().map(|(index, c)| json!({"id": index, "role": role(c)})).collect()
    }

    fn kept(roles: &str, max_messages: usize, max_bytes: usize) -> Vec<u64> {
        newest_turns(&conversation(roles), max_messages, max_bytes)
            .map(|message| message["id"].as_u64().unwrap())
            .collect()
    }

    #[test]
    fn cuts_whole_turns_and_keeps_the_newest() {
        assert_eq!(kept("suauau", 9, 9999), [0, 1, 2, 3, 4, 5]);
        assert_eq!(kept("auau", 9, 9999), [0, 1, 2, 3]);
        assert_eq!(kept("auau", 3, 9999), [1, 2, 3]);
        assert_eq!(kept("suauau", 4, 9999), [0, 3, 4, 5]);
        assert_eq!(kept("suauau", 2, 9999), [0, 5]);
        assert_eq!(kept("uauaa", 1, 1), [2, 3, 4]);
        assert_eq!(kept("aa", 1, 1), [0, 1]);
        assert_eq!(kept("uauau", 9, 60), [4]);
        assert!(kept("", 1, 1).is_empty());
    }

    proptest! {
        #[test]
        fn what_is_kept_begins_with_a_question(roles in "u[ua]{0,12}", most in 1..12usize) {
            let ids = kept(&roles, most, usize::MAX);
            let first = usize::try_from(ids[0]).unwrap();
            prop_assert_eq!(roles.as_bytes()[first], b'u');
            prop_assert_eq!(ids.len(), roles.len() - first);
            prop_assert!(ids.len() <= most || !roles[first + 1..].contains('u'));
        }
    }
}

//! Whether a message is one that the session holds already, and where an edit or a regenerate cuts the conversation.

use std::io::{self, Write};

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::core::storage::MessagePlace;

/// A hash of what a message says, as 64 hexadecimal digits: SHA-256 over the JSON of its role and parts, keys in order. The id and the
/// metadata are left out: a client may make new ones when it repeats a send.
pub fn content_hash(message: &Value) -> String {
    let mut hasher = Hasher(Sha256::new());
    for key in ["role", "parts"] {
        canonical(message.get(key).unwrap_or(&Value::Null), &mut hasher);
        let _ = hasher.write_all(b"\n");
    }
    hasher.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

struct Hasher(Sha256);

impl Write for Hasher {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes JSON with the keys of every object in order. Neither a hasher nor a `Value` can fail.
fn canonical(value: &Value, out: &mut Hasher) {
    match value {
        Value::Array(items) => {
            let _ = out.write_all(b"[");
            for item in items {
                canonical(item, out);
                let _ = out.write_all(b",");
            }
            let _ = out.write_all(b"]");
        }
        Value::Object(map) => {
            let mut keys: Vec<_> = map.iter().collect();
            keys.sort_unstable_by_key(|(key, _)| key.as_str());
            let _ = out.write_all(b"{");
            for (key, item) in keys {
                let _ = serde_json::to_writer(&mut *out, key);
                let _ = out.write_all(b":");
                canonical(item, out);
                let _ = out.write_all(b",");
            }
            let _ = out.write_all(b"}");
        }
        _ => {
            let _ = serde_json::to_writer(out, value);
        }
    }
}

/// One stored message, as far as its place matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<'a> {
    /// Its id.
    pub id: &'a str,
    /// Its role.
    pub role: &'a str,
}

/// The id of the user message that the reply at this index answers.
pub fn answered(places: &[MessagePlace], reply: u32) -> Option<&str> {
    let before = places.iter().take(usize::try_from(reply).unwrap_or(usize::MAX));
    before.rev().find(|place| place.role == "user").map(|place| place.id.as_str())
}

/// What a user's message is to the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing that is stored: a new turn.
    New,
    /// The stored message, word for word: a repeat of the send, whose reply is there or on its way.
    Repeat,
    /// Another text in the place of a stored message: the first `keep` messages stay, everything after them goes.
    Edit {
        /// Messages that stay.
        keep: usize,
    },
    /// Its id is that of a stored message which is not the user's.
    Taken,
}

/// Tells a repeated send from an edit. `places` is the stored conversation; `replaces` is the message that the request names
/// (`messageId`); `same` says whether the stored message at a place has the content of this one, by [`content_hash`].
///
/// An edit names the stored user message, or has its id with other content; a client that edits gives the new message the old one's id.
/// A named message with the same content is a repeat while it is the last one of the user's (the edit's answer was lost), else an edit
/// (the user wants another answer to the old words). A name that is not stored, or is a reply's, names nothing.
pub fn standing(id: &str, replaces: Option<&str>, places: &[Place<'_>], same: impl FnOnce(usize) -> bool) -> Standing {
    let at = |id: &str| places.iter().position(|place| place.id == id);
    let is_user = |at: &usize| places.get(*at).is_some_and(|place| place.role == "user");
    let own = at(id);
    if own.is_some_and(|own| !is_user(&own)) {
        return Standing::Taken;
    }
    let named = replaces.and_then(at).filter(is_user);
    match (named, own) {
        (None, None) => Standing::New,
        // A repeat of an edit that gave the message an id of its own: what it named is gone or stands before it.
        (Some(named), Some(own)) if named != own => repeat_or_edit(own, same),
        (Some(named), None) => Standing::Edit { keep: named },
        (Some(named), Some(_)) if last_user(places) != Some(named) => Standing::Edit { keep: named },
        (_, Some(own)) => repeat_or_edit(own, same),
    }
}

fn repeat_or_edit(at: usize, same: impl FnOnce(usize) -> bool) -> Standing {
    if same(at) { Standing::Repeat } else { Standing::Edit { keep: at } }
}

fn last_user(places: &[Place<'_>]) -> Option<usize> {
    places.iter().rposition(|place| place.role == "user")
}

impl Standing {
    /// The same under a client whose list says which messages stay: what is stored behind the last message of `list` goes, as an edit
    /// cuts it. `list`: the ids of the client's messages before this one. `settled`: how many of `places` a run that is running does not
    /// still write; the client need not have seen the others, and a list without them is a send like any other.
    ///
    /// A repeat stays one, whatever its list: it never runs again.
    #[must_use]
    pub fn as_listed(self, list: &[String], places: &[Place<'_>], settled: usize) -> Self {
        let held = |place: &Place<'_>| list.iter().any(|id| id == place.id);
        let kept = places.iter().rposition(held).map_or(0, |last| last.saturating_add(1));
        match self {
            Self::New if kept < settled.min(places.len()) => Self::Edit { keep: kept },
            Self::Edit { keep } => Self::Edit { keep: keep.min(kept) },
            other => other,
        }
    }
}

/// How many of the stored messages stay when a reply is asked for again; the last of them is the user's, whose reply it is. `named`: the
/// request's `messageId`, a reply or the user message before it. `last_user`: the id of the last user message of the client's history,
/// which says the place when nothing is named, or when the name is one that only the client knows. `None` when there is nothing to
/// answer.
pub fn regenerate_keeps(named: Option<&str>, last_user_sent: Option<&str>, places: &[Place<'_>]) -> Option<usize> {
    let at = |id: &str| places.iter().position(|place| place.id == id);
    let asked = named.and_then(at).or_else(|| last_user_sent.and_then(at)).or_else(|| places.len().checked_sub(1))?;
    let before = places.get(..=asked)?;
    last_user(before)?.checked_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn places() -> Vec<Place<'static>> {
        [("u1", "user"), ("a1", "assistant"), ("u2", "user"), ("a2", "assistant")]
            .map(|(id, role)| Place { id, role })
            .to_vec()
    }

    #[test]
    fn the_hash_is_that_of_role_and_parts_alone() {
        let hash = |text: &str| content_hash(&serde_json::from_str(text).unwrap());
        let one = hash(r#"{"id":"a","role":"user","parts":[{"type":"text","text":"hi"}]}"#);
        assert_eq!(one.len(), 64);
        assert_eq!(one, hash(r#"{"parts":[{"text":"hi","type":"text"}],"role":"user","metadata":{"x":1},"id":"b"}"#));
        for other in [
            r#"{"role":"assistant","parts":[{"type":"text","text":"hi"}]}"#,
            r#"{"role":"user","parts":[{"type":"text","text":"ho"}]}"#,
            r#"{"role":"user","parts":[{"type":"text","text":"hi"},{"type":"text","text":"hi"}]}"#,
            r#"{"role":"user","parts":[{"type":"text","text":"hi","x":[]}]}"#,
            r#"{"role":"user"}"#,
        ] {
            assert_ne!(one, hash(other), "{other}");
        }
        assert_ne!(content_hash(&json!({"parts": [1, 23]})), content_hash(&json!({"parts": [12, 3]})));
        // Pinned: it is stored.
        let pinned = content_hash(&json!({"role": "user", "parts": [{"type": "text", "text": "hi"}]}));
        assert_eq!(pinned, "c68a1399db9d544f6530a787e81e98797e119ebfcbdc83abfa43479e536be3af");
    }

    #[test]
    fn a_repeat_is_no_edit() {
        let stand = |id, replaces, same| standing(id, replaces, &places(), |_| same);
        for (id, replaces, same, expected) in [
            ("u3", None, false, Standing::New),
            ("u3", Some("gone"), false, Standing::New),
            ("u3", Some("a2"), false, Standing::New),
            ("u2", None, true, Standing::Repeat),
            ("u1", None, true, Standing::Repeat),
            ("u1", None, false, Standing::Edit { keep: 0 }),
            ("u2", Some("u2"), true, Standing::Repeat),
            ("u2", Some("u2"), false, Standing::Edit { keep: 2 }),
            ("u1", Some("u1"), true, Standing::Edit { keep: 0 }),
            ("u3", Some("u2"), false, Standing::Edit { keep: 2 }),
            ("u2", Some("u1"), true, Standing::Repeat),
            ("a1", None, true, Standing::Taken),
            ("a1", Some("u1"), true, Standing::Taken),
        ] {
            assert_eq!(stand(id, replaces, same), expected, "{id} {replaces:?} {same}");
        }
    }

    #[test]
    fn a_list_that_counts_cuts_what_it_does_not_hold() {
        let listed = |standing: Standing, list: &[&str], settled| {
            let list: Vec<_> = list.iter().map(|id| (*id).to_owned()).collect();
            standing.as_listed(&list, &places(), settled)
        };
        for (list, settled, expected) in [
            (&["u1", "a1", "u2", "a2"][..], 4, Standing::New),
            (&["u1", "a1", "u2"][..], 4, Standing::Edit { keep: 3 }),
            (&["u1", "a1"][..], 4, Standing::Edit { keep: 2 }),
            // Another branch of the reply, which only the client holds.
            (&["u1", "old a1"][..], 4, Standing::Edit { keep: 1 }),
            // Nothing shared, as when the first message is edited.
            (&[][..], 4, Standing::Edit { keep: 0 }),
            (&["x", "y"][..], 4, Standing::Edit { keep: 0 }),
            // Holes stay: only what lies behind the last shared message is cut.
            (&["a2"][..], 4, Standing::New),
            // A run that is running still writes a2.
            (&["u1", "a1", "u2"][..], 3, Standing::New),
            (&["u1", "a1"][..], 3, Standing::Edit { keep: 2 }),
            (&["u1", "a1", "u2", "a2"][..], 9, Standing::New),
        ] {
            assert_eq!(listed(Standing::New, list, settled), expected, "{list:?} {settled}");
        }
        assert_eq!(listed(Standing::Edit { keep: 2 }, &["u1", "a1"], 4), Standing::Edit { keep: 2 });
        assert_eq!(listed(Standing::Edit { keep: 2 }, &["u1"], 4), Standing::Edit { keep: 1 });
        assert_eq!(listed(Standing::Edit { keep: 0 }, &["u1", "a1"], 4), Standing::Edit { keep: 0 });
        assert_eq!(listed(Standing::Repeat, &[], 4), Standing::Repeat);
        assert_eq!(listed(Standing::Taken, &[], 4), Standing::Taken);
        assert_eq!(Standing::New.as_listed(&[], &[], 0), Standing::New);
    }

    #[test]
    fn a_regenerate_keeps_up_to_the_question() {
        let keeps = |named, last_user| regenerate_keeps(named, last_user, &places());
        assert_eq!(keeps(None, None), Some(3));
        assert_eq!(keeps(Some("a2"), Some("u2")), Some(3));
        assert_eq!(keeps(Some("a1"), None), Some(1));
        assert_eq!(keeps(Some("u1"), None), Some(1));
        assert_eq!(keeps(Some("known to the client only"), Some("u1")), Some(1));
        assert_eq!(keeps(None, Some("u1")), Some(1));
        assert_eq!(keeps(None, Some("gone")), Some(3));
        assert_eq!(regenerate_keeps(None, None, &[]), None);
        assert_eq!(regenerate_keeps(None, None, &[Place { id: "a", role: "assistant" }]), None);
    }
}

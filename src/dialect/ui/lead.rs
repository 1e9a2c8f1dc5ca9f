//! What a stock response has not said yet, because it may turn out to be the beginning of nothing.
//!
//! A stock client shows an empty reply for a `start` that names its message. A chat route that fails before its first word shows none when it
//! is called directly: its own `start` rarely names the message. So behind a route the frames that only open a reply wait for what they open:
//! the first part, metadata, or the reply's end. A failure or a stop comes alone.

use serde_json::{Map, Value};

/// The frames that wait, and what has passed them.
#[derive(Clone, Debug, Default)]
pub struct Lead {
    held: Vec<u8>,
    /// Whether a later frame went first: the held ones then have no `id` any more, because ids of a response only increase.
    passed: bool,
}

impl Lead {
    /// Takes the next frames of the response, and gives those that may be sent now. `true`: the reply has begun, and nothing is held
    /// from here on.
    pub fn take(&mut self, frames: &[u8]) -> (Vec<u8>, bool) {
        let mut out = Vec::new();
        let mut rest = frames;
        while let Some((frame, behind)) = next_frame(rest) {
            match role_of(frame) {
                Role::Opens => self.held.extend_from_slice(frame),
                Role::Passes => {
                    self.passed |= !self.held.is_empty();
                    out.extend_from_slice(frame);
                }
                Role::Begins => {
                    out.extend(self.release());
                    out.extend_from_slice(rest);
                    return (out, true);
                }
            }
            rest = behind;
        }
        (out, false)
    }

    /// What was held: the reply is complete, so that it has begun.
    pub fn release(&mut self) -> Vec<u8> {
        let held = std::mem::take(&mut self.held);
        if self.passed { without_ids(&held) } else { held }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    /// Only opens: no client shows it by itself.
    Opens,
    /// About the response; no message holds it.
    Passes,
    Begins,
}

fn role_of(frame: &[u8]) -> Role {
    let lines = frame.split(|byte| *byte == b'\n');
    let Some(data) = lines.filter_map(|line| line.strip_prefix(b"data: ")).next() else { return Role::Passes };
    let Ok(chunk) = serde_json::from_slice::<Map<String, Value>>(data) else { return Role::Begins };
    match chunk.get("type").and_then(Value::as_str).unwrap_or_default() {
        "start" if chunk.get("messageMetadata").is_none() => Role::Opens,
        "start-step" | "finish-step" => Role::Opens,
        kind if kind.starts_with("data-") && chunk.get("transient") == Some(&Value::Bool(true)) => Role::Passes,
        _ => Role::Begins,
    }
}

/// The first frame, with the empty line that ends it, and what follows.
fn next_frame(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = memchr::memmem::find(bytes, b"\n\n").map_or(bytes.len(), |at| at.saturating_add(2));
    bytes.split_at_checked(end).filter(|(frame, _)| !frame.is_empty())
}

fn without_ids(frames: &[u8]) -> Vec<u8> {
    let lines = frames.split_inclusive(|byte| *byte == b'\n');
    lines.filter(|line| !line.starts_with(b"id: ")).flatten().copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn frame(id: usize, chunk: &Value) -> String {
        format!("id: {id}\ndata: {chunk}\n\n")
    }

    fn chunk(kind: &str) -> Value {
        match kind {
            "status" => json!({"type": "data-status", "data": 1, "transient": true}),
            "named" => json!({"type": "start", "messageId": "m", "messageMetadata": {"a": 1}}),
            "start" => json!({"type": "start", "messageId": "m"}),
            kind => json!({"type": kind, "id": "t"}),
        }
    }

    fn said(bytes: &[u8]) -> Vec<String> {
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
        data.map(|data| serde_json::from_str::<Value>(data).unwrap()["type"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn what_only_opens_a_reply_waits_for_what_it_opens() {
        for (kinds, sent, begun) in [
            (vec!["start"], vec![], false),
            (vec!["start", "start-step"], vec![], false),
            (vec!["start", "start-step", "text-start"], vec!["start", "start-step", "text-start"], true),
            (vec!["start", "finish"], vec!["start", "finish"], true),
            (vec!["named"], vec!["start"], true),
            (vec!["start", "status"], vec!["data-status"], false),
            (vec!["start", "status", "text-start"], vec!["data-status", "start", "text-start"], true),
        ] {
            let mut lead = Lead::default();
            let frames: String = kinds.iter().enumerate().map(|(at, kind)| frame(at + 1, &chunk(kind))).collect();
            let (out, done) = lead.take(frames.as_bytes());
            assert_eq!((said(&out), done), (sent.iter().map(|kind| (*kind).to_owned()).collect(), begun), "{kinds:?}");
        }
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_ids_only_increase(
            kinds in prop::collection::vec(prop::sample::select(vec!["start-step", "status", "finish-step", "text-start", "text-delta"]), 0..8),
            cuts in prop::collection::vec(any::<bool>(), 8),
        ) {
            let kinds: Vec<&str> = std::iter::once("start").chain(kinds).collect();
            let mut lead = Lead::default();
            let (mut out, mut begun, mut piece) = (Vec::new(), false, String::new());
            for (at, kind) in kinds.iter().enumerate() {
                piece += &frame(at + 1, &chunk(kind));
                if !cuts[at.min(7)] && at + 1 < kinds.len() {
                    continue;
                }
                if begun {
                    out.extend(piece.as_bytes());
                } else {
                    let (sent, now) = lead.take(piece.as_bytes());
                    out.extend(sent);
                    begun = now;
                }
                piece.clear();
            }
            let has_begun = kinds.iter().any(|kind| kind.starts_with("text"));
            prop_assert_eq!(begun, has_begun);
            out.extend(lead.release());
            let mut expected: Vec<String> = kinds.iter().map(|kind| chunk(kind)["type"].as_str().unwrap().to_owned()).collect();
            let mut got = said(&out);
            let text = String::from_utf8(out).unwrap();
            let ids: Vec<usize> = text.lines().filter_map(|line| line.strip_prefix("id: ")?.parse().ok()).collect();
            prop_assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "{:?}", ids);
            expected.sort();
            got.sort();
            prop_assert_eq!(got, expected);
        }
    }
}

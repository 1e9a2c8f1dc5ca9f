//! How far a client's copy of a reply has come that is still being written: a response to a POST is put behind the parts that the copy
//! holds, so it begins behind the last chunk whose doing the copy shows.

use serde_json::{Map, Value};

use super::calls::tool_of;
use super::fold::tool::call_of;
use super::fold::{Fold, kind_of};
use crate::core::chunk::Chunk;
use crate::core::ids::{Cursor, Sequence};

/// Where a copy stands.
#[derive(Clone, Debug)]
pub struct Shown {
    /// The copy shows everything up to here.
    pub cursor: Cursor,
    /// The message at that place.
    pub fold: Fold,
}

/// How far the copy `sent` has come. `base` is the message at the cursor `from`, `chunks` are what follows, several of one sequence
/// together. `None` when the copy does not even show the base.
pub fn shown(sent: &Value, base: &Fold, from: Cursor, chunks: &[(Sequence, Chunk)]) -> Option<Shown> {
    let held: Vec<&Map<String, Value>> = parts(sent).collect();
    let after = |count: usize| {
        let mut fold = base.clone();
        for (_, chunk) in chunks.iter().take(count) {
            // What does not fold is not shown either.
            drop(fold.apply(chunk));
        }
        fold
    };
    let shows = |fold: &Fold| {
        let message = fold.message();
        let said = message.iter().flat_map(parts).collect::<Vec<_>>();
        said.len() <= held.len() && said.iter().zip(&held).all(|(said, held)| holds(held, said))
    };
    if !shows(base) {
        return None;
    }
    // A copy that lacks a part lacks what follows it: the places that it shows come first.
    let mut places: Vec<usize> = Vec::new();
    for (at, (sequence, _)) in chunks.iter().enumerate() {
        let next = at.saturating_add(1);
        if chunks.get(next).is_none_or(|(following, _)| following != sequence) {
            places.push(next);
        }
    }
    let count = places.partition_point(|place| shows(&after(*place)));
    let place = count.checked_sub(1).and_then(|last| places.get(last)).copied().unwrap_or(0);
    let last = place.checked_sub(1).and_then(|last| chunks.get(last));
    Some(Shown { cursor: last.map_or(from, |(sequence, _)| sequence.cursor()), fold: after(place) })
}

/// The parts that every version keeps in one order.
fn parts(message: &Value) -> impl Iterator<Item = &Map<String, Value>> {
    let parts = message.get("parts").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object);
    parts.filter(|part| kind_of(part) != "step-start" && !kind_of(part).starts_with("data-"))
}

/// Whether the copy's part shows this much.
fn holds(held: &Map<String, Value>, said: &Map<String, Value>) -> bool {
    let text = |part: &Map<String, Value>| part.get("text").and_then(Value::as_str).unwrap_or_default().to_owned();
    match (tool_of(said), tool_of(held)) {
        (Some(said_tool), Some(held_tool)) => said_tool == held_tool && call_of(said) == call_of(held),
        (None, None) => kind_of(said) == kind_of(held) && text(held).starts_with(&text(said)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::ids::MessageId;
    use proptest::prelude::*;
    use serde_json::json;

    fn run() -> Vec<(Sequence, Chunk)> {
        let chunks = json!([
            {"type": "run_started"},
            {"type": "start", "messageId": "m"},
            {"type": "start-step"},
            {"type": "text-start", "id": "t"},
            {"type": "text-delta", "id": "t", "delta": "Let me "},
            {"type": "text-delta", "id": "t", "delta": "ask."},
            {"type": "text-end", "id": "t"},
            {"type": "data-note", "id": "n", "data": 1},
            {"type": "tool-input-start", "toolCallId": "c", "toolName": "ask"},
            {"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": "{}"},
            {"type": "tool-input-available", "toolCallId": "c", "toolName": "ask", "input": {}},
            {"type": "text-start", "id": "u"},
            {"type": "text-delta", "id": "u", "delta": "Meanwhile, "},
            {"type": "text-delta", "id": "u", "delta": "so."},
            {"type": "text-end", "id": "u"},
        ]);
        let number = |at: usize| Sequence::new(at as u64 + 1).unwrap();
        let chunks = chunks.as_array().unwrap().iter().enumerate();
        chunks.map(|(at, chunk)| (number(at), Chunk::parse(chunk.clone()).unwrap())).collect()
    }

    fn folded(count: usize) -> Fold {
        let mut fold = Fold::new(&MessageId::new("m"));
        for (_, chunk) in run().iter().take(count) {
            fold.apply(chunk).unwrap();
        }
        fold
    }

    fn shown_through(sent: &Value) -> usize {
        shown(sent, &Fold::new(&MessageId::new("m")), Cursor::START, &run()).unwrap().cursor.get() as usize
    }

    proptest! {
        /// What a client holds and what it is then given is the reply, once.
        #[test]
        fn a_copy_and_what_follows_it_are_the_whole(count in 0_usize..16, answered in any::<bool>()) {
            let fold = folded(count);
            let mut sent = fold.message().unwrap_or(json!({"id": "m", "role": "assistant", "parts": []}));
            if answered {
                for part in sent["parts"].as_array_mut().unwrap().iter_mut().filter(|part| part["toolCallId"] == "c") {
                    part["state"] = "output-available".into();
                    part["output"] = 1.into();
                }
            }
            let through = shown_through(&sent);
            let text = |fold: &Fold| fold.message().map(|message| parts(&message).map(|part| part.get("text").cloned()).collect::<Vec<_>>()).unwrap_or_default();
            prop_assert!(through >= count, "nothing is told twice");
            prop_assert_eq!(text(&folded(through)), text(&fold), "and nothing is left out");
        }
    }

    #[test]
    fn steps_and_data_do_not_count_and_another_text_does() {
        let call =
            json!({"type": "tool-ask", "toolCallId": "c", "state": "output-available", "input": {}, "output": 1});
        let text = |text: &str| json!({"type": "text", "text": text});
        let through = |parts: Vec<Value>| shown_through(&json!({ "parts": parts }));
        assert_eq!(through(vec![text("Let me ask."), call.clone()]), 11);
        assert_eq!(through(vec![text("Let me ask."), call.clone(), text("Mean")]), 12);
        assert_eq!(through(vec![text("Let me ask."), call.clone(), text("Meanwhile, s")]), 13);
        assert_eq!(through(vec![call]), 3, "a copy without the text lacks it and all that follows");
        assert_eq!(through(vec![text("Something else")]), 4);
    }

    #[test]
    fn a_copy_that_lacks_the_base_stands_nowhere() {
        assert!(shown(&json!({"parts": []}), &folded(11), Cursor::START, &[]).is_none());
        let whole = folded(15).message().unwrap();
        assert_eq!(shown(&whole, &folded(11), Cursor::new(11).unwrap(), &run()[11..]).unwrap().cursor.get(), 15);
    }
}

//! The calls of whole messages under their producer's own ids and under their names in the session ([`CallIds`]): what a producer is told
//! has the former, what it brings gets the latter.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::calls::tool_of;
use super::fold::tool::call_of;
use crate::core::call_ids::{CallIds, CallName};

/// The message as its producer knows it: each call under its own id. An approval that is named like its call goes with it.
#[must_use]
pub fn with_own_ids(mut message: Value, ids: &CallIds) -> Value {
    for part in parts_of(&mut message) {
        let own = ids.own_of(call_of(part)).to_owned();
        rename(part, &own);
    }
    message
}

/// Names the calls of a message that a producer brings, and returns the names that are new. `is_known`: whether a name is that of a call
/// which the producer's messages are known to hold; of several calls with one id each is another one, in their order: `met` are those so far.
pub fn name_calls(
    message: &mut Value,
    ids: &mut CallIds,
    met: &mut BTreeSet<String>,
    is_known: impl Fn(&CallIds, &str) -> bool,
) -> Vec<CallName> {
    let mut new = Vec::new();
    for part in parts_of(message) {
        let own = call_of(part).to_owned();
        let known = ids.uses(&own).find(|id| is_known(ids, id) && !met.contains(*id)).map(str::to_owned);
        let id = match known {
            Some(id) => id,
            None => match ids.name(&own) {
                Some(name) => {
                    let id = name.id.clone();
                    new.push(name);
                    id
                }
                None => continue,
            },
        };
        rename(part, &id);
        met.insert(id);
    }
    new
}

fn rename(part: &mut Map<String, Value>, to: &str) {
    let from = call_of(part).to_owned();
    if from == to {
        return;
    }
    if let Some(Value::Object(approval)) = part.get_mut("approval")
        && approval.get("id").and_then(Value::as_str) == Some(from.as_str())
    {
        approval.insert("id".into(), to.into());
    }
    part.insert("toolCallId".into(), to.into());
}

/// The tool parts of a message that have an id.
fn parts_of(message: &mut Value) -> impl Iterator<Item = &mut Map<String, Value>> {
    let parts = message.get_mut("parts").and_then(Value::as_array_mut).map(Vec::as_mut_slice).unwrap_or_default();
    parts
        .iter_mut()
        .filter_map(Value::as_object_mut)
        .filter(|part| tool_of(part).is_some() && !call_of(part).is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn message(calls: &[&str]) -> Value {
        let part = |call: &&str| json!({"type": "tool-f", "toolCallId": call, "approval": {"id": call}});
        let parts: Vec<Value> = calls.iter().map(part).chain([json!({"type": "text", "text": "x"})]).collect();
        json!({"id": "m", "role": "assistant", "parts": parts})
    }

    #[test]
    fn a_message_that_is_brought_gets_names_and_is_told_without_them() {
        let mut ids = CallIds::default();
        ids.begin_run(1);
        ids.name("c");
        ids.begin_run(2);
        let said = message(&["c", "c", "d"]);
        let mut brought = said.clone();
        let new = name_calls(&mut brought, &mut ids, &mut BTreeSet::new(), CallIds::is_own_run);
        assert_eq!(brought, message(&["c_2", "c_3", "d"]));
        assert_eq!(new.iter().map(|name| name.id.as_str()).collect::<Vec<_>>(), ["c_2", "c_3", "d"]);
        assert_eq!(with_own_ids(brought.clone(), &ids), said);
        // Brought once more, as every commit of a run does.
        let mut again = said;
        assert_eq!(name_calls(&mut again, &mut ids, &mut BTreeSet::new(), CallIds::is_own_run), []);
        assert_eq!(again, brought);
    }

    #[test]
    fn what_is_no_message_stays_as_it_is() {
        for value in [json!(1), json!({"parts": 1}), json!({"parts": [1, {"type": "tool-f"}, {"toolCallId": "c"}]})] {
            let mut named = value.clone();
            assert_eq!(name_calls(&mut named, &mut CallIds::default(), &mut BTreeSet::new(), |_, _| false), []);
            assert_eq!(with_own_ids(named, &CallIds::default()), value);
        }
    }
}

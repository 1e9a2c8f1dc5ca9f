//! A session's custom state: its bounds, and how patches change it (RFC 6902).

use json_patch::{AddOperation, CopyOperation, MoveOperation, PatchOperation, ReplaceOperation, patch_unsafe};
use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;

use super::chunk::{MAX_DEPTH, is_too_deep};

/// Largest state, in bytes of JSON text: it stands in every checkpoint's row and in every snapshot.
pub const MAX_BYTES: usize = 1 << 20;

/// Most operations of one patch.
pub const MAX_OPERATIONS: usize = 10_000;

/// Why a state, or a patch of it, was refused. The state is as it was.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum StateRefused {
    /// Nested deeper than [`MAX_DEPTH`].
    #[error("the state must not be nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// Larger than [`MAX_BYTES`].
    #[error("the state must not be larger than {MAX_BYTES} bytes")]
    TooLarge,
    /// Not a list, or a list of too many operations.
    #[error("a patch must be an array of at most {MAX_OPERATIONS} operations (RFC 6902)")]
    NotAPatch,
    /// An operation that RFC 6902 does not have, or one without what it needs.
    #[error("operation {index} is not one of RFC 6902")]
    NotAnOperation {
        /// Its place in the patch.
        index: usize,
    },
    /// Its path does not exist, or its test failed.
    #[error("operation {index} does not fit the state at its path")]
    DoesNotFit {
        /// Its place in the patch.
        index: usize,
    },
}

/// Whether a whole state may be kept.
///
/// # Errors
/// [`StateRefused::TooDeep`] and [`StateRefused::TooLarge`].
pub fn check(state: &Value) -> Result<(), StateRefused> {
    if is_too_deep(state) {
        return Err(StateRefused::TooDeep);
    }
    if size(state) > MAX_BYTES { Err(StateRefused::TooLarge) } else { Ok(()) }
}

/// The state after a patch; all of it or nothing. `operations` is the array of RFC 6902.
///
/// # Errors
/// [`StateRefused`] names the first operation that cannot be done.
pub fn patched(state: &Value, operations: &Value) -> Result<Value, StateRefused> {
    let list = operations.as_array().filter(|list| list.len() <= MAX_OPERATIONS).ok_or(StateRefused::NotAPatch)?;
    let mut state = state.clone();
    // Never less than what the state has; measured again only when it may have become too much.
    let mut most = size(&state);
    for (index, operation) in list.iter().enumerate() {
        let operation = PatchOperation::deserialize(operation).map_err(|_| StateRefused::NotAnOperation { index })?;
        let (levels, bytes) = growth(&state, &operation);
        if levels > MAX_DEPTH {
            return Err(StateRefused::TooDeep);
        }
        most = most.saturating_add(bytes);
        if most > MAX_BYTES {
            most = size(&state).saturating_add(bytes);
        }
        // Twice the limit, so that a replaced value is not counted against its successor.
        if most > MAX_BYTES.saturating_mul(2) {
            return Err(StateRefused::TooLarge);
        }
        // Of one operation, on a copy: there is nothing to undo.
        patch_unsafe(&mut state, &[operation]).map_err(|_| StateRefused::DoesNotFit { index })?;
    }
    check(&state)?;
    Ok(state)
}

/// How deep the value that an operation puts somewhere reaches afterwards, and how many bytes it brings.
fn growth(state: &Value, operation: &PatchOperation) -> (usize, usize) {
    let (path, value) = match operation {
        PatchOperation::Add(AddOperation { path, value })
        | PatchOperation::Replace(ReplaceOperation { path, value }) => (path, Some(value)),
        PatchOperation::Copy(CopyOperation { from, path }) | PatchOperation::Move(MoveOperation { from, path }) => {
            (path, from.resolve(state).ok())
        }
        PatchOperation::Remove(_) | PatchOperation::Test(_) => return (0, 0),
    };
    let bytes = path.as_str().len().saturating_add(value.map_or(0, size)).saturating_add(8);
    (path.count().saturating_add(value.map_or(0, depth)), bytes)
}

/// Levels of a value, at most a little more than [`MAX_DEPTH`].
fn depth(value: &Value) -> usize {
    fn levels(value: &Value, left: usize) -> usize {
        let Some(left) = left.checked_sub(1) else { return 1 };
        let inner = match value {
            Value::Array(items) => items.iter().map(|item| levels(item, left)).max(),
            Value::Object(map) => map.values().map(|item| levels(item, left)).max(),
            _ => None,
        };
        inner.unwrap_or(0).saturating_add(1)
    }
    levels(value, MAX_DEPTH.saturating_add(1))
}

/// Bytes of a value's JSON text.
fn size(value: &Value) -> usize {
    struct Counter(usize);
    impl std::io::Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 = self.0.saturating_add(bytes.len());
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter(0);
    // Neither a counter nor a JSON value can fail.
    let _ = serde_json::to_writer(&mut counter, value);
    counter.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn operations_follow_the_standard() {
        for (state, operations, expected) in [
            (json!({"a": [1]}), json!([{"op": "add", "path": "/a/-", "value": 2}]), json!({"a": [1, 2]})),
            (json!({"a": 1}), json!([{"op": "replace", "path": "", "value": null}]), json!(null)),
            (json!({"a/b": 1, "~": 2}), json!([{"op": "move", "from": "/a~1b", "path": "/~0"}]), json!({"~": 1})),
            (json!({"a": 1}), json!([{"op": "copy", "from": "", "path": "/b"}]), json!({"a": 1, "b": {"a": 1}})),
            (
                json!({"a": 1}),
                json!([{"op": "test", "path": "/a", "value": 1}, {"op": "remove", "path": "/a"}]),
                json!({}),
            ),
            (json!({}), json!([]), json!({})),
        ] {
            assert_eq!(patched(&state, &operations), Ok(expected), "{operations}");
        }
    }

    #[test]
    fn a_refusal_names_the_operation() {
        let state = json!({"a": 1});
        for (operations, refusal) in [
            (json!({"op": "add"}), StateRefused::NotAPatch),
            (json!([{"op": "grow", "path": "/a"}]), StateRefused::NotAnOperation { index: 0 }),
            (
                json!([{"op": "add", "path": "/b", "value": 1}, {"op": "add", "path": "/c"}]),
                StateRefused::NotAnOperation { index: 1 },
            ),
            (json!([{"op": "remove", "path": "/b"}]), StateRefused::DoesNotFit { index: 0 }),
            (json!([{"op": "test", "path": "/a", "value": 2}]), StateRefused::DoesNotFit { index: 0 }),
            (json!([{"op": "add", "path": "/a/b", "value": 2}]), StateRefused::DoesNotFit { index: 0 }),
        ] {
            assert_eq!(patched(&state, &operations), Err(refusal), "{operations}");
        }
    }

    #[test]
    fn a_state_that_doubles_or_digs_is_stopped() {
        let double = json!({"op": "copy", "from": "", "path": "/b"});
        let start = json!({"text": "x".repeat(1_000)});
        let operations = Value::Array(vec![double; 120]);
        assert!(matches!(patched(&start, &operations), Err(StateRefused::TooLarge | StateRefused::TooDeep)));
        let rows = json!([{"op": "copy", "from": "", "path": "/-"}, {"op": "copy", "from": "", "path": "/-"}]);
        let wide: Vec<Value> = (0..40).flat_map(|_| rows.as_array().unwrap().clone()).collect();
        assert!(patched(&json!(["x".repeat(1_000)]), &Value::Array(wide)).is_err());
        let dig: Vec<Value> = (1..200).map(|at| json!({"op": "add", "path": "/a".repeat(at), "value": {}})).collect();
        assert_eq!(patched(&json!({}), &Value::Array(dig)), Err(StateRefused::TooDeep));
        let same: Vec<Value> =
            (0..50).map(|_| json!({"op": "add", "path": "/a", "value": "x".repeat(MAX_BYTES / 2)})).collect();
        assert!(patched(&json!({}), &Value::Array(same)).is_ok(), "what is replaced does not count");
    }

    proptest! {
        #[test]
        fn whatever_is_accepted_is_within_bounds(
            ops in prop::collection::vec((0..6_usize, 0..4_usize, 0..4_usize), 0..30)
        ) {
            let names = ["add", "remove", "replace", "move", "copy", "test"];
            let paths = ["", "/a", "/a/b", "/l/-"];
            let list: Vec<Value> = ops.iter().map(|(name, path, from)| {
                json!({"op": names[*name], "path": paths[*path], "from": paths[*from], "value": {"b": {}, "l": []}})
            }).collect();
            let start = json!({"a": {"b": 1}, "l": []});
            if let Ok(state) = patched(&start, &Value::Array(list)) {
                prop_assert_eq!(check(&state), Ok(()));
            }
        }
    }
}

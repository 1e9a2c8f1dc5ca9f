//! One JSON event of a reply, and the marks that the log adds when it stores one.

use serde_json::{Map, Value};
use thiserror::Error;

use super::ids::{AttemptId, RunId};

/// One JSON event of a reply. Always an object with a string `type`; the rest is opaque to the log.
#[derive(Clone, Debug, PartialEq)]
pub struct Chunk(Map<String, Value>);

/// The value is not an object with a string `type`.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("a chunk is a JSON object with a string `type`")]
pub struct NotAChunk;

impl Chunk {
    /// A chunk of this type with no further keys.
    pub fn new(kind: &str) -> Self {
        let mut map = Map::new();
        map.insert("type".into(), Value::String(kind.into()));
        Self(map)
    }

    /// Accepts an object with a string `type`.
    ///
    /// # Errors
    /// [`NotAChunk`] for every other value.
    pub fn parse(value: Value) -> Result<Self, NotAChunk> {
        match value {
            Value::Object(map) if map.get("type").is_some_and(Value::is_string) => Ok(Self(map)),
            _ => Err(NotAChunk),
        }
    }

    /// The same chunk with `key` set.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.0.insert(key.into(), value.into());
        self
    }

    /// The `type`.
    pub fn kind(&self) -> &str {
        self.0.get("type").and_then(Value::as_str).unwrap_or_default()
    }

    /// A key's value.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key)
    }

    /// A key's value, when it is a string.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.0.get(key).and_then(Value::as_str)
    }

    /// Removes a key.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        self.0.remove(key)
    }

    /// All keys, in the order in which they arrived.
    pub fn as_map(&self) -> &Map<String, Value> {
        &self.0
    }

    /// The object itself.
    pub fn into_map(self) -> Map<String, Value> {
        self.0
    }
}

/// Deepest nesting of a value inside a chunk. `serde_json` reads 128 levels; a frame and a message row add a few of their own, and
/// what is stored must be readable for ever.
pub const MAX_DEPTH: usize = 100;

/// Whether a value is nested deeper than [`MAX_DEPTH`].
pub fn is_too_deep(value: &Value) -> bool {
    fn deeper(value: &Value, left: usize) -> bool {
        let Some(left) = left.checked_sub(1) else { return true };
        match value {
            Value::Array(items) => items.iter().any(|item| deeper(item, left)),
            Value::Object(map) => map.values().any(|item| deeper(item, left)),
            _ => false,
        }
    }
    deeper(value, MAX_DEPTH)
}

/// What the log writes on every stored chunk (`spec/helix.md` 10.1): the run, and for an attempt's chunks the attempt and its step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The run that wrote the chunk.
    pub run: RunId,
    /// The attempt and its step number, from the attempt's `step_start` on.
    pub attempt: Option<(AttemptId, u32)>,
}

/// The name of the tool whose call began before the run, on a chunk that answers such a call. The run's writer sets it, so that
/// whoever reads this one chunk knows that the call may stand in a message that the reader does not show.
pub const CONTINUES: &str = "continues";

/// Bookkeeping keys of a stored chunk, in stored order: those that [`Stamp`] owns, then [`CONTINUES`]. A writer takes them off what
/// a producer says, and a dialect removes them again.
pub const STAMP_KEYS: [&str; 4] = ["runId", "attemptId", "step", CONTINUES];

/// Stored for every producer; chat projects them to nothing (`spec/helix.md` 1.4).
pub mod lifecycle {
    /// First chunk of a run.
    pub const RUN_STARTED: &str = "run_started";
    /// First chunk of an attempt.
    pub const STEP_START: &str = "step_start";
    /// A step's commit; carries `committedAttemptId`.
    pub const STEP_COMMITTED: &str = "step_committed";
}

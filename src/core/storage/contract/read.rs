//! Operations and rows of the contract, read from JSON.
//!
//! By hand, because the derived readers of all rows were 5 % of the bundle, which has them for its tests only.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::Operation;
use crate::core::error::Code;
use crate::core::ids::{AttemptId, CheckpointId, Cursor, MessageId, RequestKey, RunId, Sequence};
use crate::core::run::StreamStatus;
use crate::core::run::{EntryKind, RunStatus, Vocabulary};
use crate::core::storage::cells::untag;
use crate::core::storage::{
    BlockRow, CallRow, CheckpointKind, CheckpointRow, HeldRow, Life, MessageRow, Pushed, QueuedRow, RunRow, SessionRow,
    Write,
};
use crate::core::time::UnixMillis;

/// What can be read from JSON, as its `Serialize` writes it.
pub(super) trait Read: Sized {
    /// `None` when it is something else.
    fn read(value: &Value) -> Option<Self>;
}

/// `None` stands for a field that is missing, so that only an `Option` takes it.
fn field<T: Read>(row: &Map<String, Value>, name: &str) -> Option<T> {
    T::read(row.get(name).unwrap_or(&Value::Null))
}

macro_rules! read {
    ($($type:ty: |$value:ident| $read:expr;)*) => {
        $(impl Read for $type {
            fn read($value: &Value) -> Option<Self> {
                $read
            }
        })*
    };
}

macro_rules! read_rows {
    ($($row:ident { $($name:ident),* })*) => {
        $(impl Read for $row {
            fn read(value: &Value) -> Option<Self> {
                let row = value.as_object()?;
                Some(Self { $($name: field(row, stringify!($name))?),* })
            }
        })*
    };
}

fn plain<T: serde::de::DeserializeOwned>(value: &Value) -> Option<T> {
    untag(value.as_str()?).ok()
}

read! {
    u64: |value| value.as_u64();
    u32: |value| u32::try_from(value.as_u64()?).ok();
    u8: |value| u8::try_from(value.as_u64()?).ok();
    usize: |value| usize::try_from(value.as_u64()?).ok();
    String: |value| Some(value.as_str()?.to_owned());
    UnixMillis: |value| Some(Self::new(value.as_u64()?));
    Cursor: |value| Self::new(value.as_u64()?).ok();
    Sequence: |value| Self::new(value.as_u64()?).ok();
    RunId: |value| Some(Self::new(value.as_str()?));
    AttemptId: |value| Some(Self::new(value.as_str()?));
    MessageId: |value| Some(Self::new(value.as_str()?));
    CheckpointId: |value| Some(Self::new(value.as_str()?));
    RequestKey: |value| plain(value);
    StreamStatus: |value| plain(value);
    RunStatus: |value| plain(value);
    EntryKind: |value| plain(value);
    Vocabulary: |value| plain(value);
    CheckpointKind: |value| plain(value);
    Code: |value| plain(value);
}

impl Read for Pushed {
    fn read(value: &Value) -> Option<Self> {
        serde_json::from_value(value.clone()).ok()
    }
}

impl Read for Life {
    fn read(value: &Value) -> Option<Self> {
        Option::<Self>::deserialize(value).ok().map(Option::unwrap_or_default)
    }
}

impl<T: Read> Read for Option<T> {
    fn read(value: &Value) -> Option<Self> {
        if value.is_null() { Some(None) } else { T::read(value).map(Some) }
    }
}

impl<T: Read> Read for Vec<T> {
    fn read(value: &Value) -> Option<Self> {
        value.as_array()?.iter().map(T::read).collect()
    }
}

impl<A: Read, B: Read> Read for (A, B) {
    fn read(value: &Value) -> Option<Self> {
        match value.as_array()?.as_slice() {
            [a, b] => Some((A::read(a)?, B::read(b)?)),
            _ => None,
        }
    }
}

read_rows! {
    SessionRow { owner, salt, created, floor, run, status }
    RunRow {
        turn, id, status, entry, request_key, input_hash, start, end, message_index, message_id, lease_until, epoch, attempts, vocabulary,
        agent, started, ended, error, retry_after_ms, push, error_text, life
    }
    BlockRow { key, last, run, attempt, bytes }
    MessageRow { index, id, role, run, json }
    HeldRow { ordinal, json }
    QueuedRow { place, message, run, agent, request_key, input_hash, origin, queued, json }
    CheckpointRow { ordinal, id, kind, message_count, sequence, step_count, state, run }
    CallRow { id, own, turn }
}

/// A case of an enum: its name, and what it holds.
fn case(value: &Value) -> Option<(&str, &Value)> {
    match value {
        Value::String(name) => Some((name, &Value::Null)),
        Value::Object(one) if one.len() == 1 => one.iter().next().map(|(name, held)| (name.as_str(), held)),
        _ => None,
    }
}

impl Read for Write {
    fn read(value: &Value) -> Option<Self> {
        let (name, held) = case(value)?;
        Some(match name {
            "Session" => Self::Session(Read::read(held)?),
            "Run" => Self::Run(Read::read(held)?),
            "OpenBlock" => Self::OpenBlock(Read::read(held)?),
            "ExtendBlock" => {
                let row = held.as_object()?;
                Self::ExtendBlock { key: field(row, "key")?, last: field(row, "last")?, bytes: field(row, "bytes")? }
            }
            "TrimBlocks" => Self::TrimBlocks(Read::read(held)?),
            "Message" => Self::Message(Read::read(held)?),
            "TruncateMessages" => Self::TruncateMessages(Read::read(held)?),
            "Checkpoint" => Self::Checkpoint(Read::read(held)?),
            "Call" => Self::Call(Read::read(held)?),
            "Hold" => Self::Hold(Read::read(held)?),
            "DropHeld" => Self::DropHeld,
            "Enqueue" => Self::Enqueue(Read::read(held)?),
            "Dequeue" => Self::Dequeue(Read::read(held)?),
            "DropAll" => Self::DropAll,
            _ => return None,
        })
    }
}

fn pair<A: Read, B: Read>(value: &Value) -> Option<(A, B)> {
    Read::read(value)
}

impl Read for Operation {
    fn read(value: &Value) -> Option<Self> {
        let (name, held) = case(value)?;
        Some(match name {
            "load" => Self::Load,
            "apply" => Self::Apply(Read::read(held)?),
            "blocks" => pair(held).map(|(cursor, bytes)| Self::Blocks(cursor, bytes))?,
            "messages" => Self::Messages(Read::read(held)?),
            "message" => pair(held).map(|(id, count)| Self::Message(id, count))?,
            "messageAt" => Self::MessageAt(Read::read(held)?),
            "places" => Self::Places(Read::read(held)?),
            "queued" => Self::Queued(Read::read(held)?),
            "run" => Self::Run(Read::read(held)?),
            "runAt" => Self::RunAt(Read::read(held)?),
            "runOfKey" => Self::RunOfKey(Read::read(held)?),
            "rewindPoint" => Self::RewindPoint(Read::read(held)?),
            "kept" => Self::Kept(Read::read(held)?),
            "counts" => Self::Counts,
            _ => return None,
        })
    }
}

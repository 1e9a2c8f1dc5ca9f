//! What the requests of a push producer say.
//!
//! Keys that nobody knows are ignored; what is known and cannot be used is refused in words that say what to change.

use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error as Unknown, StrDeserializer};
use serde_json::Value;

use super::fields::{Keys, MAX_ID_BYTES, flag, id, lease, list, text, whole};
use super::refusal::Refusal;
use crate::core::chunk::is_too_deep;
use crate::core::error::{Code, Failure};
use crate::core::ids::{Cursor, RequestKey, RunId, SessionId};
use crate::core::lenient_json;
use crate::core::run::{Outcome, OwnPause, Vocabulary};
use crate::core::state;
use crate::core::time::Millis;
use crate::dialect::ui::message::validate_message;

/// `POST …/runs`.
#[derive(Clone, Debug, PartialEq)]
pub struct Begin {
    /// The run's id, when the producer names it.
    pub run: Option<RunId>,
    /// Whose session this creates.
    pub owner: Option<String>,
    /// What the run answers, oldest first; valid UI messages unless the vocabulary is opaque.
    pub messages: Vec<Value>,
    /// The language of the run's chunks.
    pub vocabulary: Vocabulary,
    /// The idempotency key of this start.
    pub request_key: Option<RequestKey>,
    /// Whether a live run is superseded.
    pub supersede: bool,
    /// How long the producer may be silent.
    pub lease: Option<Millis>,
    /// The session's state from here on; `None` leaves it.
    pub state: Option<Value>,
}

/// `POST …/commit`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CommitBody {
    /// What the commit covers; else what [`Admission::commit`](super::admit::Admission::commit) says.
    pub through: Option<Cursor>,
    /// The messages that the run has written; `None`: the object folds.
    pub messages: Option<Vec<Value>>,
    /// The state at the commit; `None`: what the run's patches have made of it.
    pub state: Option<Value>,
    /// Steps that the run has finished; `None`: those that were counted.
    pub step_count: Option<u32>,
}

/// `POST …/renew`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Renew {
    /// The lease from now on; `None`: as before.
    pub lease: Option<Millis>,
}

/// The status of a run that ends well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndStatus {
    /// The producer finished.
    Completed,
    /// The producer was stopped.
    Interrupted,
}

/// `POST …/end`.
#[derive(Clone, Debug, PartialEq)]
pub struct EndBody {
    /// How; never guessed.
    pub status: EndStatus,
    /// The run's result, for wire readers.
    pub output: Option<Value>,
    /// What it has used, for wire readers.
    pub usage: Option<Value>,
}

/// `POST …/fail`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailBody {
    /// Why. Its code is one of ours; the producer's own words stay internal.
    pub failure: Failure,
}

/// What a paused run waits for (`spec/helix.md` 1.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PauseKind {
    /// A client's tool result or approval.
    ClientTool,
    /// Sub-agents.
    AwaitingChildren,
    /// The rest of a step.
    StepPartial,
}

impl PauseKind {
    /// How the run ends that pauses so.
    pub fn outcome(self) -> Outcome {
        match self {
            Self::ClientTool => Outcome::Suspended,
            Self::AwaitingChildren => Outcome::Paused(OwnPause::AwaitingChildren),
            Self::StepPartial => Outcome::Paused(OwnPause::StepPartial),
        }
    }
}

/// `POST …/pause`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PauseBody {
    /// Ids of the calls that wait; `None`: those that the message holds.
    pub pending: Option<Vec<String>>,
    /// What for.
    pub kind: PauseKind,
}

impl Begin {
    /// Reads a body.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn parse(body: &[u8]) -> Result<Self, Refusal> {
        let keys = object(body)?;
        let vocabulary = match text(&keys, "vocabulary")? {
            Some("ui") => Vocabulary::Ui,
            Some("helix") => Vocabulary::Helix,
            Some("opaque") => Vocabulary::Opaque,
            _ => return Err(Refusal::WrongType { key: "vocabulary", expected: "ui, helix or opaque" }),
        };
        let run = text(&keys, "runId")?.map(run_id).transpose()?;
        let one = keys.get("message").filter(|message| !message.is_null());
        let messages = match (one, list(&keys, "messages")?) {
            (Some(_), Some(_)) => return Err(Refusal::Both("message", "messages")),
            (Some(message), None) => vec![message.clone()],
            (None, list) => list.cloned().unwrap_or_default(),
        };
        check_messages(&messages, vocabulary)?;
        Ok(Self {
            run,
            owner: id(&keys, "owner")?,
            messages,
            vocabulary,
            request_key: text(&keys, "requestKey")?.map(RequestKey::parse).transpose()?,
            supersede: flag(&keys, "supersede")?,
            lease: lease(&keys)?,
            state: state_of(&keys)?,
        })
    }
}

impl CommitBody {
    /// Reads a body; an empty one says nothing.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn parse(body: &[u8], vocabulary: Vocabulary) -> Result<Self, Refusal> {
        Self::read(&object(body)?, vocabulary)
    }

    pub(super) fn read(keys: &Keys, vocabulary: Vocabulary) -> Result<Self, Refusal> {
        let messages = list(keys, "messages")?.cloned();
        check_messages(messages.as_deref().unwrap_or_default(), vocabulary)?;
        let steps = whole(keys, "stepCount")?.map(|steps| {
            u32::try_from(steps).map_err(|_| Refusal::WrongType { key: "stepCount", expected: "at most 4294967295" })
        });
        Ok(Self {
            through: whole(keys, "throughSequence")?.map(Cursor::new).transpose()?,
            messages,
            state: state_of(keys)?,
            step_count: steps.transpose()?,
        })
    }
}

impl Renew {
    /// Reads a body; an empty one says nothing.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn parse(body: &[u8]) -> Result<Self, Refusal> {
        Ok(Self { lease: lease(&object(body)?)? })
    }
}

impl EndBody {
    pub(super) fn read(keys: &Keys) -> Result<Self, Refusal> {
        let status = match text(keys, "status")? {
            Some("completed") => EndStatus::Completed,
            Some("interrupted") => EndStatus::Interrupted,
            _ => return Err(Refusal::WrongType { key: "status", expected: "completed or interrupted" }),
        };
        Ok(Self { status, output: shallow(keys, "output")?, usage: shallow(keys, "usage")? })
    }
}

impl FailBody {
    /// `error` is a text, or an object with `code`, `message` and `retryAfterMs`.
    pub(super) fn read(keys: &Keys) -> Result<Self, Refusal> {
        let failure = match keys.get("error") {
            Some(Value::String(message)) => Failure::new(Code::ProducerFailed, message.as_str()),
            Some(Value::Object(error)) => {
                let code = text(error, "code")?.map_or(Code::ProducerFailed, code_of);
                let message = text(error, "message")?.unwrap_or_default();
                Failure { retry_after_ms: whole(error, "retryAfterMs")?, ..Failure::new(code, message) }
            }
            _ => return Err(Refusal::WrongType { key: "error", expected: "a string or an object with a code" }),
        };
        Ok(Self { failure })
    }
}

impl PauseBody {
    /// `pending` holds calls' ids, or objects with a `toolCallId`.
    pub(super) fn read(keys: &Keys) -> Result<Self, Refusal> {
        let kind = text(keys, "kind")?.map(|kind| kind.strip_prefix("suspended_").unwrap_or(kind));
        let kind = match kind {
            None | Some("client_tool" | "approval") => PauseKind::ClientTool,
            Some("awaiting_children") => PauseKind::AwaitingChildren,
            Some("step_partial") => PauseKind::StepPartial,
            Some(_) => {
                let expected = "client_tool, approval, awaiting_children or step_partial";
                return Err(Refusal::WrongType { key: "kind", expected });
            }
        };
        let call = |value: &Value| {
            let id = value.as_str().or_else(|| value.get("toolCallId")?.as_str());
            id.filter(|id| (1..=MAX_ID_BYTES).contains(&id.len())).map(str::to_owned)
        };
        let pending = list(keys, "pending")?.map(|list| list.iter().map(call).collect::<Option<Vec<_>>>());
        match pending {
            Some(None) => Err(Refusal::WrongType { key: "pending", expected: "an array of tool call ids" }),
            pending => Ok(Self { pending: pending.flatten(), kind }),
        }
    }
}

pub(super) fn json(body: &[u8]) -> Result<Value, Refusal> {
    let body = body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body);
    let text = std::str::from_utf8(body).map_err(|_| Refusal::NotJson)?;
    lenient_json::parse(text).map_err(|_| Refusal::NotJson)
}

pub(super) fn object(body: &[u8]) -> Result<Keys, Refusal> {
    if body.trim_ascii().is_empty() {
        return Ok(Keys::new());
    }
    match json(body)? {
        Value::Object(keys) => Ok(keys),
        _ => Err(Refusal::NotA("a JSON object")),
    }
}

/// A run's id stands in a path, and before the `::` of an approval's id.
fn run_id(text: &str) -> Result<RunId, Refusal> {
    let fits = SessionId::parse(text).is_ok() && !text.contains("::");
    if fits { Ok(RunId::new(text)) } else { Err(Refusal::RunId) }
}

fn check_messages(messages: &[Value], vocabulary: Vocabulary) -> Result<(), Refusal> {
    for (index, message) in messages.iter().enumerate() {
        let is_text = |key: &str| message.get(key).and_then(Value::as_str).is_some_and(|text| !text.is_empty());
        if is_too_deep(message) || !is_text("id") || !is_text("role") {
            return Err(Refusal::Outline(index));
        }
        if messages.iter().take(index).any(|before| before.get("id") == message.get("id")) {
            return Err(Refusal::Twice(index));
        }
        if vocabulary != Vocabulary::Opaque {
            validate_message(message).map_err(|invalid| Refusal::Message { index, invalid })?;
        }
    }
    Ok(())
}

fn state_of(keys: &Keys) -> Result<Option<Value>, Refusal> {
    let state = keys.get("state").cloned();
    state.iter().try_for_each(state::check)?;
    Ok(state)
}

fn shallow(keys: &Keys, key: &'static str) -> Result<Option<Value>, Refusal> {
    let value = keys.get(key).filter(|value| !value.is_null());
    if value.is_some_and(is_too_deep) {
        return Err(Refusal::WrongType { key, expected: "nested at most 100 levels" });
    }
    Ok(value.cloned())
}

/// What a producer may say about its failure: a code of ours about the model or the producer. Any other word is a model's error.
fn code_of(word: &str) -> Code {
    let word: StrDeserializer<'_, Unknown> = word.into_deserializer();
    let code = Code::deserialize(word).unwrap_or(Code::ProducerFailed);
    if matches!(code.category(), "provider" | "producer") { code } else { Code::ProducerFailed }
}

#[cfg(test)]
#[path = "body_tests.rs"]
mod tests;

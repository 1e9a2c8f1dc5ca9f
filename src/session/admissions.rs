//! What is known of the run that a producer outside writes: what its next chunk is held against. Read again from its rows whenever the
//! image was thrown away.

use serde_json::Value;

use super::messages;
use super::stored;
use super::turn::Rows;
use crate::core::approval::Executor;
use crate::core::ids::{Cursor, RunId};
use crate::core::record::{Commit, Record};
use crate::core::run::{EntryKind, Fence};
use crate::core::session::Session;
use crate::core::storage::{CheckpointKind, MessageRow, RunRow, StorageError};
use crate::dialect::push::admit::{Admission, Admitted, Folded, Opened};
use crate::dialect::push::elsewhere::Elsewhere;
use crate::dialect::push::reason::{Reason, Refused};
use crate::dialect::ui::held_answers::settle;
use crate::dialect::ui::response::OPENING_CHUNKS;
use crate::dialect::ui::tool_result::abandon;

/// The admission of the run that was written last, and its head at that time.
#[derive(Debug, Default)]
pub struct Admissions(Option<(RunId, Cursor, Admission)>);

impl Admissions {
    /// What the run's next chunk is held against, taken out: it is put back ([`Admissions::keep`]) once what it has admitted is stored, and
    /// when it has admitted nothing. Dropped, it is read again.
    ///
    /// # Errors
    /// [`StorageError`]: the run's rows could not be read.
    pub fn take(&mut self, session: &Session, rows: &Rows, run: &RunRow) -> Result<Admission, StorageError> {
        match self.0.take() {
            Some((id, at, admission)) if id == run.id && at == session.log().head() => Ok(admission),
            _ => read(session, rows, run),
        }
    }

    /// Keeps what a stored request has made of it.
    pub fn keep(&mut self, session: &Session, fence: &Fence, admission: Admission) {
        self.0 = Some((fence.run.clone(), session.log().head(), admission));
    }

    /// Another process writes from here on.
    pub fn forget(&mut self) {
        self.0 = None;
    }

    /// What a pushed run has said that is not committed, closed and folded. Nothing is known of it afterwards.
    ///
    /// # Errors
    /// [`StorageError`]: its rows could not be read, which must not keep the run alive.
    pub fn last_words(&mut self, session: &Session, rows: &Rows, run: &RunRow) -> Result<Vec<Record>, StorageError> {
        if run.end.is_some() {
            self.forget();
        }
        // What a paused run was answered stands behind its end.
        let mut admission = self.take(session, rows, &RunRow { end: None, ..run.clone() })?;
        let own = has_own_words(session, rows, run, &admission);
        let mut records = Vec::new();
        records.extend(admission.answered(&messages::held_answers(session)).into_iter().flat_map(Admitted::records));
        records.extend(admission.close(true).into_iter().flat_map(Admitted::records));
        let commit = if own { None } else { last_commit(&admission) };
        records.extend(abandoned(session, rows, run, commit));
        Ok(records)
    }
}

/// Several chunks as records, all or none.
///
/// # Errors
/// [`Refused`]: which one, and why.
pub fn admit_all(
    session: &Session,
    rows: &Rows,
    admission: &mut Admission,
    chunks: impl IntoIterator<Item = Value>,
) -> Result<Vec<Record>, Refused> {
    let mut records = Vec::new();
    for (index, value) in chunks.into_iter().enumerate() {
        admit(session, rows, admission, value, &mut records).map_err(|reason| Refused { index, reason })?;
    }
    Ok(records)
}

/// Adds a chunk to the records. A result for an earlier message's call names its tool and goes into that message, too.
///
/// # Errors
/// [`Reason`].
pub fn admit(
    session: &Session,
    rows: &Rows,
    admission: &mut Admission,
    value: Value,
    records: &mut Vec<Record>,
) -> Result<(), Reason> {
    let earlier = Elsewhere::of(admission, &value).and_then(|late| earlier(session, rows, &late, records));
    let (value, amended) = match earlier {
        Some((tool, amended)) => (Elsewhere::named(value, &tool), amended),
        None => (value, None),
    };
    records.extend(admission.admit(value)?.records());
    records.extend(amended.map(Record::Amend));
    Ok(())
}

/// The tool of a call that an earlier message holds, and that message with the call's late result. `before`: what is not stored yet.
fn earlier(
    session: &Session,
    rows: &Rows,
    late: &Elsewhere,
    before: &[Record],
) -> Option<(String, Option<MessageRow>)> {
    (0..session.message_count()).rev().find_map(|index| {
        let amended = before.iter().rev().find_map(|record| match record {
            Record::Amend(row) if row.index == index => Some(row.clone()),
            _ => None,
        });
        let row = amended.or_else(|| rows.message_at(index).ok().flatten())?;
        // Most messages need not be read for that.
        let message = row.json.contains(late.call()).then(|| serde_json::from_str::<Value>(&row.json).ok());
        let (tool, amended) = late.in_message(message.flatten()?)?;
        Some((tool, amended.map(|message| MessageRow { json: message.to_string(), ..row })))
    })
}

/// The run's chunks are read from its start, so that it is known which calls are its own; one that continues a message and has committed is
/// read from its last commit.
///
/// # Errors
/// [`StorageError`].
pub fn read(session: &Session, rows: &Rows, run: &RunRow) -> Result<Admission, StorageError> {
    let last = session.checkpoint();
    let own = last.filter(|last| last.run == run.id && last.kind == CheckpointKind::Step);
    let committed = own.map(|last| (last.sequence, &last.state));
    let continues = run.entry == EntryKind::ToolResult;
    let base = if continues { messages::of_run(session, rows, run)? } else { None };
    let start = Cursor::new(run.start.get().saturating_add(OPENING_CHUNKS)).unwrap_or(run.start);
    let from = match committed {
        Some((cursor, _)) if continues => cursor,
        _ => start,
    };
    let parse = |state: &Option<String>| state.as_deref().and_then(|text| serde_json::from_str::<Value>(text).ok());
    let mut admission = Admission::new(Opened {
        vocabulary: run.vocabulary,
        run: run.id.clone(),
        message_id: run.message_id.clone(),
        base,
        state: last.and_then(|last| parse(&last.state)),
        at: from,
        calls: session.calls().clone(),
    });
    stored::each(rows, from, run.end, &mut |stored| {
        if let Some((cursor, state)) = committed
            && cursor.next().is_ok_and(|next| next == stored.sequence)
        {
            // What was patched before the commit is in its state.
            admission.set_state(parse(state));
        }
        admission.replay(stored.sequence, &stored.chunk);
    })?;
    if let Some((cursor, state)) = committed
        && admission.at() <= cursor
    {
        admission.set_state(parse(state));
    }
    Ok(admission)
}

/// The last commit of a run that is broken off: its calls are given up, because a model refuses a conversation with an open one.
fn abandoned(session: &Session, rows: &Rows, run: &RunRow, commit: Option<Record>) -> Option<Record> {
    if let Some(Record::Commit(commit)) = commit {
        return Some(Record::Commit(Commit { message: abandon(commit.message), ..commit }));
    }
    let last = session.checkpoint()?;
    let message = messages::of_run(session, rows, run).ok().flatten()?;
    let given_up = abandon(settle(message.clone(), &messages::held_answers(session), Executor::Producer).message);
    let commit = Commit { message: given_up, step_count: last.step_count, state: None };
    (commit.message != message).then_some(Record::Commit(commit))
}

/// Whether the conversation is here what the producer itself has said in its last commit, and not what its chunks make: then the run's end
/// leaves it so.
pub fn has_own_words(session: &Session, rows: &Rows, run: &RunRow, admission: &Admission) -> bool {
    let last = session.checkpoint().filter(|last| last.run == run.id && last.kind == CheckpointKind::Step);
    if last.is_none_or(|last| last.sequence != admission.at()) {
        return false;
    }
    let stored = messages::of_run(session, rows, run).ok().flatten();
    stored.is_some() && admission.last().ok().is_some_and(|folded| folded.message != stored)
}

/// The commit of a run that ends here, when its chunks make one.
pub fn last_commit(admission: &Admission) -> Option<Record> {
    let Folded { message, step_count, state, .. } = admission.last().ok()?;
    Some(Record::Commit(Commit { message: message?, step_count, state: state.map(|state| state.to_string()) }))
}

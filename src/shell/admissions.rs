//! What is known of the run that a producer outside writes: read again from its rows whenever the memory was thrown away.

use std::rc::Rc;

use serde_json::Value;
use worker::{console_error, console_log};

use super::calls::failed;
use super::host::{Host, HostError};
use crate::core::approval::Executor;
use crate::core::command::WriteRefused;
use crate::core::ids::{Cursor, RunId};
use crate::core::record::{Commit, Record};
use crate::core::run::{EntryKind, Fence, Outcome, Vocabulary};
use crate::core::storage::{CheckpointKind, MessageRow, RunRow, Storage};
use crate::dialect::push::admit::{Admission, Admitted, Folded, Opened};
use crate::dialect::push::elsewhere::Elsewhere;
use crate::dialect::push::reason::{Reason, Refused};
use crate::dialect::ui::held_answers::settle;
use crate::dialect::ui::response::OPENING_CHUNKS;
use crate::dialect::ui::tool_result::abandon;
use crate::session::refuse::Refusal;

/// The admission of the run that was written last, and its head at that time.
pub type KnownAdmission = Option<(RunId, Cursor, Admission)>;

impl Host {
    /// The language of a run's chunks.
    pub fn vocabulary(&self, fence: &Fence) -> Result<Vocabulary, Refusal> {
        let run = self.session(|session| session.run().filter(|run| run.id == fence.run).map(|run| run.vocabulary));
        match run {
            Ok(Some(vocabulary)) => Ok(vocabulary),
            Ok(None) => Err(self.write_refused(&fence.run, &WriteRefused::Superseded)),
            Err(error) => Err(failed(error)),
        }
    }

    /// What the run's next chunk is held against, taken out: it is put back ([`Host::keep_admission`]) once what it has admitted is
    /// stored, and when it has admitted nothing. Dropped, it is read again.
    pub fn admission(&self, fence: &Fence) -> Result<Admission, Refusal> {
        let run = self.session(|session| session.run().filter(|run| run.id == fence.run).cloned());
        let run = run.map_err(failed)?;
        let run = run.ok_or_else(|| self.write_refused(&fence.run, &WriteRefused::Superseded))?;
        self.admission_of(&run).map_err(failed)
    }

    /// As [`Host::admission`].
    pub fn admission_of(&self, run: &RunRow) -> Result<Admission, HostError> {
        let head = self.session(|session| session.log().head())?;
        let known = self.known_admission.try_borrow_mut().ok().and_then(|mut known| known.take());
        match known {
            Some((id, at, admission)) if id == run.id && at == head => Ok(admission),
            _ => self.read_admission(run),
        }
    }

    /// Several chunks as records, all or none.
    pub fn admit_all(
        &self,
        fence: &Fence,
        chunks: impl IntoIterator<Item = Value>,
    ) -> Result<Result<(Admission, Vec<Record>), Refused>, Refusal> {
        let mut admission = self.admission(fence)?;
        let mut records = Vec::new();
        for (index, value) in chunks.into_iter().enumerate() {
            if let Err(reason) = self.admit(&mut admission, value, &mut records) {
                if index == 0 {
                    self.keep_admission(fence, admission);
                }
                return Ok(Err(Refused { index, reason }));
            }
        }
        Ok(Ok((admission, records)))
    }

    /// Adds a chunk to the records. A result for an earlier message's call names its tool and goes into that message, too.
    pub fn admit(&self, admission: &mut Admission, value: Value, records: &mut Vec<Record>) -> Result<(), Reason> {
        let earlier = Elsewhere::of(admission, &value).and_then(|late| self.earlier(&late, records));
        let (value, amended) = match earlier {
            Some((tool, amended)) => (Elsewhere::named(value, &tool), amended),
            None => (value, None),
        };
        records.extend(admission.admit(value)?.records());
        records.extend(amended.map(Record::Amend));
        Ok(())
    }

    /// The tool of a call that an earlier message holds, and that message with the call's late result. `before`: what is not stored yet.
    fn earlier(&self, late: &Elsewhere, before: &[Record]) -> Option<(String, Option<MessageRow>)> {
        let count = self.session(|session| session.message_count()).ok()?;
        (0..count).rev().find_map(|index| {
            let amended = before.iter().rev().find_map(|record| match record {
                Record::Amend(row) if row.index == index => Some(row.clone()),
                _ => None,
            });
            let row = amended.or_else(|| self.storage.message_at(index).ok().flatten())?;
            // Most messages need not be read for that.
            let message = row.json.contains(late.call()).then(|| serde_json::from_str::<Value>(&row.json).ok());
            let (tool, amended) = late.in_message(message.flatten()?)?;
            Some((tool, amended.map(|message| MessageRow { json: message.to_string(), ..row })))
        })
    }

    /// Keeps what a stored request has made of it.
    pub fn keep_admission(&self, fence: &Fence, admission: Admission) {
        let head = self.session(|session| session.log().head()).unwrap_or_default();
        if let Ok(mut known) = self.known_admission.try_borrow_mut() {
            *known = Some((fence.run.clone(), head, admission));
        }
    }

    /// Another process writes from here on.
    pub fn forget_admission(&self) {
        if let Ok(mut known) = self.known_admission.try_borrow_mut() {
            *known = None;
        }
    }

    /// The run's chunks are read from its start, so that it is known which calls are its own; one that continues a message and has
    /// committed is read from its last commit.
    pub(super) fn read_admission(&self, run: &RunRow) -> Result<Admission, HostError> {
        let committed = self.session(|session| {
            let last = session.checkpoint().filter(|last| last.run == run.id)?;
            (last.kind == CheckpointKind::Step).then(|| (last.sequence, last.state.clone()))
        })?;
        let state_now = self.session(|session| session.checkpoint().and_then(|last| last.state.clone()))?;
        let continues = run.entry == EntryKind::ToolResult;
        let base = if continues { self.message_of(run)? } else { None };
        let start = Cursor::new(run.start.get().saturating_add(OPENING_CHUNKS)).unwrap_or(run.start);
        let from = match &committed {
            Some((cursor, _)) if continues => *cursor,
            _ => start,
        };
        let parse = |state: &Option<String>| state.as_deref().and_then(|text| serde_json::from_str::<Value>(text).ok());
        let mut admission = Admission::new(Opened {
            vocabulary: run.vocabulary,
            run: run.id.clone(),
            message_id: run.message_id.clone(),
            base,
            state: parse(&state_now),
            at: from,
            calls: self.session(|session| session.calls().clone())?,
        });
        let end = run.end;
        self.each_stored(from, end, &mut |stored| {
            if let Some((cursor, state)) = &committed
                && cursor.next().is_ok_and(|next| next == stored.sequence)
            {
                // What was patched before the commit is in its state.
                admission.set_state(parse(state));
            }
            admission.replay(stored.sequence, &stored.chunk);
        })?;
        if let Some((cursor, state)) = &committed
            && admission.at() <= *cursor
        {
            admission.set_state(parse(state));
        }
        Ok(admission)
    }

    /// Ends a pushed run that its producer does not end itself, keeping what it has said.
    pub fn bury_pushed(self: &Rc<Self>, run: &RunRow, outcome: Outcome) -> Result<(), HostError> {
        let records = self.last_words_of_pushed(run);
        console_log!("session {} run {}: settled without its producer", self.log_name, run.id);
        self.finish(&run.fence(), outcome, &records)
    }

    /// What a pushed run has said that is not committed, closed and folded.
    pub fn last_words_of_pushed(&self, run: &RunRow) -> Vec<Record> {
        let mut records = Vec::new();
        if run.end.is_some() {
            self.forget_admission();
        }
        // What a paused run was answered stands behind its end.
        match self.admission_of(&RunRow { end: None, ..run.clone() }) {
            Ok(mut admission) => {
                let own = self.has_own_words(run, &admission);
                records.extend(admission.answered(&self.held_answers()).into_iter().flat_map(Admitted::records));
                records.extend(admission.close(true).into_iter().flat_map(Admitted::records));
                let commit = if own { None } else { self.last_commit(&admission) };
                records.extend(self.abandoned(run, commit));
            }
            // Rows that cannot be read must not keep the run alive.
            Err(error) => console_error!("session {} run {}: {error}", self.log_name, run.id),
        }
        self.forget_admission();
        records
    }

    /// The last commit of a run that is broken off: its calls are given up, because a model refuses a conversation with an open one.
    fn abandoned(&self, run: &RunRow, commit: Option<Record>) -> Option<Record> {
        if let Some(Record::Commit(commit)) = commit {
            return Some(Record::Commit(Commit { message: abandon(commit.message), ..commit }));
        }
        let last = self.session(|session| session.checkpoint().cloned()).ok()??;
        let message = self.message_of(run).ok().flatten()?;
        let given_up = abandon(settle(message.clone(), &self.held_answers(), Executor::Producer).message);
        let commit = Commit { message: given_up, step_count: last.step_count, state: None };
        (commit.message != message).then_some(Record::Commit(commit))
    }

    /// Whether the conversation is here what the producer itself has said in its last commit, and not what its chunks make: then the run's
    /// end leaves it so.
    pub fn has_own_words(&self, run: &RunRow, admission: &Admission) -> bool {
        let last = self.session(|session| session.checkpoint().cloned()).ok().flatten();
        let Some(last) = last.filter(|last| last.run == run.id && last.kind == CheckpointKind::Step) else {
            return false;
        };
        if last.sequence != admission.at() {
            return false;
        }
        let stored = self.message_of(run).ok().flatten();
        stored.is_some() && admission.last().ok().is_some_and(|folded| folded.message != stored)
    }

    /// The commit of a run that ends here, when its chunks make one.
    pub fn last_commit(&self, admission: &Admission) -> Option<Record> {
        let Folded { message, step_count, state, .. } = admission.last().ok()?;
        Some(Record::Commit(Commit { message: message?, step_count, state: state.map(|state| state.to_string()) }))
    }
}

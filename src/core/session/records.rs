//! From a producer's records to writes.

use super::Session;
use crate::core::call_ids::{CallIds, CallName};
use crate::core::chunk::{Chunk, Stamp};
use crate::core::command::WriteRefused;
use crate::core::ids::{CheckpointId, Cursor, RunId};
use crate::core::log::Encoded;
use crate::core::record::{Commit, Record};
use crate::core::storage::{CallRow, CheckpointKind, CheckpointRow, MessageRow, RunRow, SessionRow, Write};

/// What records come to: decided, with nothing changed. It fits for as long as the session decides nothing else.
#[derive(Debug)]
pub(super) struct Draft {
    run: RunId,
    turn: u32,
    encoded: Encoded,
    names: Vec<CallName>,
    /// Rows of messages.
    messages: Vec<Write>,
    checkpoint: Option<CheckpointRow>,
}

impl Draft {
    /// The commit, if there is one.
    pub(super) fn checkpoint(&self) -> Option<&CheckpointRow> {
        self.checkpoint.as_ref()
    }

    /// The names that calls have taken, once those of the records are taken too.
    pub(super) fn calls_behind(&self, before: &CallIds) -> CallIds {
        let mut calls = before.clone();
        self.names.iter().for_each(|name| calls.take(name.clone()));
        calls
    }

    /// The log's head behind the records.
    pub(super) fn through(&self) -> Cursor {
        self.encoded.through()
    }
}

impl Session {
    /// Decides what records come to. Of several commits in one transaction only the last can ever be seen, so only it is written. `most`
    /// is what the log's blocks may hold afterwards, in bytes.
    pub(super) fn draft(
        &self,
        run: &RunRow,
        row: &SessionRow,
        records: &[Record],
        end: Option<CheckpointKind>,
        most: Option<u64>,
    ) -> Result<Draft, WriteRefused> {
        let mut head = self.log.head();
        let mut commit: Option<(Cursor, &Commit)> = None;
        for record in records {
            match record {
                Record::Chunk { .. } => head = head.next()?.cursor(),
                Record::Commit(said) => commit = Some((head, said)),
                Record::Call(_) | Record::Amend(_) => {}
            }
        }
        let encoded = Encoded::after(self.log.head(), chunks_of(&run.id, records).iter().map(|(c, s)| (*c, s)))?;
        let fits = |most| self.log.size().is_some_and(|size| size.saturating_add(encoded.size()) <= most);
        if !most.is_none_or(fits) {
            return Err(WriteRefused::NoRoom { wanted: encoded.size() });
        }
        let mut count = self.message_count();
        let amended = records.iter().filter_map(|record| match record {
            // What the run itself writes is committed, and what was cut away stays so.
            Record::Amend(row) if row.index < count && row.index != run.message_index => {
                Some(Write::Message(row.clone()))
            }
            _ => None,
        });
        let mut messages: Vec<Write> = amended.collect();
        let mut steps = self.checkpoint.as_ref().filter(|last| last.run == run.id).map_or(0, |last| last.step_count);
        let mut state = None;
        if let Some((_, Commit { message, step_count, state: said })) = commit {
            steps = *step_count;
            state.clone_from(said);
            let before = std::mem::replace(&mut count, run.message_index.saturating_add(1));
            messages.push(Write::Message(MessageRow {
                index: run.message_index,
                id: run.message_id.clone(),
                role: "assistant".to_owned(),
                run: Some(run.id.clone()),
                json: message.to_string(),
            }));
            if before > count {
                // A producer outside had laid the run into several messages.
                messages.push(Write::TruncateMessages(count));
            }
        }
        let point = match end {
            Some(kind) => Some((head, kind)),
            None => commit.map(|(cursor, _)| (cursor, CheckpointKind::Step)),
        };
        let checkpoint = point.map(|(cursor, kind)| {
            let place = Place { kind, message_count: count, sequence: cursor, step_count: steps };
            let next = checkpoint_after(self.checkpoint.as_ref(), place, &run.id, &row.salt);
            CheckpointRow { state: state.or(next.state), ..next }
        });
        Ok(Draft { run: run.id.clone(), turn: run.turn, encoded, names: names_in(records), messages, checkpoint })
    }

    /// Does what was decided.
    pub(super) fn lay(&mut self, draft: Draft) -> Vec<Write> {
        let Draft { run, turn, encoded, names, messages, checkpoint } = draft;
        let mut writes = self.log.store(&run, encoded);
        writes.extend(self.take_names(turn, names));
        writes.extend(messages);
        if let Some(checkpoint) = checkpoint {
            writes.push(Write::Checkpoint(checkpoint.clone()));
            self.checkpoint = Some(checkpoint);
        }
        writes
    }

    /// Takes the names of calls that a run of this turn has begun.
    pub(super) fn take_names(&mut self, turn: u32, names: Vec<CallName>) -> Vec<Write> {
        let mut writes = Vec::new();
        for name in names {
            self.calls.take(name.clone());
            let CallName { id, own } = name;
            writes.push(Write::Call(CallRow { id, own, turn }));
        }
        writes
    }
}

/// The names that calls have got among these records.
pub(super) fn names_in(records: &[Record]) -> Vec<CallName> {
    let named = records.iter().filter_map(|record| match record {
        Record::Call(name) => Some(name.clone()),
        Record::Chunk { .. } | Record::Commit(_) | Record::Amend(_) => None,
    });
    named.collect()
}

/// What a checkpoint stands for and covers.
pub(super) struct Place {
    pub kind: CheckpointKind,
    pub message_count: u32,
    pub sequence: Cursor,
    pub step_count: u32,
}

/// The checkpoint after `last`, whose state it carries on.
pub(super) fn checkpoint_after(last: Option<&CheckpointRow>, place: Place, run: &RunId, salt: &str) -> CheckpointRow {
    let ordinal = last.map_or(1, |last| last.ordinal.saturating_add(1));
    CheckpointRow {
        ordinal,
        id: CheckpointId::new(format!("cp_{salt}_{ordinal}")),
        kind: place.kind,
        message_count: place.message_count,
        sequence: place.sequence,
        step_count: place.step_count,
        state: last.and_then(|last| last.state.clone()),
        run: run.clone(),
    }
}

pub(super) fn chunks_of<'a>(run: &RunId, records: &'a [Record]) -> Vec<(&'a Chunk, Stamp)> {
    records
        .iter()
        .filter_map(|record| match record {
            Record::Chunk { chunk, attempt } => Some((chunk, Stamp { run: run.clone(), attempt: attempt.clone() })),
            Record::Commit(_) | Record::Call(_) | Record::Amend(_) => None,
        })
        .collect()
}

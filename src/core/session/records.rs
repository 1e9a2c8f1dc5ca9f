//! From a producer's records to writes.

use super::Session;
use crate::core::call_ids::CallName;
use crate::core::chunk::{Chunk, Stamp};
use crate::core::command::WriteRefused;
use crate::core::ids::{CheckpointId, Cursor, RunId};
use crate::core::record::{Commit, Record};
use crate::core::storage::{CallRow, CheckpointKind, CheckpointRow, MessageRow, RunRow, SessionRow, Write};

impl Session {
    /// Lays records into writes. Of several commits in one transaction only the last can ever be seen, so only it is
    /// written. `most` is what the log's blocks may hold afterwards, in bytes.
    pub(super) fn write(
        &mut self,
        run: &RunRow,
        row: &SessionRow,
        records: &[Record],
        end: Option<CheckpointKind>,
        most: Option<u64>,
    ) -> Result<Vec<Write>, WriteRefused> {
        let mut head = self.log.head();
        let mut commit: Option<(Cursor, &Commit)> = None;
        for record in records {
            match record {
                Record::Chunk { .. } => head = head.next()?.cursor(),
                Record::Commit(said) => commit = Some((head, said)),
                Record::Call(_) | Record::Amend(_) => {}
            }
        }
        let encoded = self.log.encode(chunks_of(&run.id, records).iter().map(|(c, s)| (*c, s)))?;
        let fits = |most| self.log.size().is_some_and(|size| size.saturating_add(encoded.size()) <= most);
        if !most.is_none_or(fits) {
            return Err(WriteRefused::NoRoom { wanted: encoded.size() });
        }
        let mut writes = self.log.store(&run.id, encoded);
        writes.extend(self.take_names(run.turn, records));
        let mut count = self.message_count();
        writes.extend(records.iter().filter_map(|record| match record {
            // What the run itself writes is committed, and what was cut away stays so.
            Record::Amend(row) if row.index < count && row.index != run.message_index => {
                Some(Write::Message(row.clone()))
            }
            _ => None,
        }));
        let mut steps = self.checkpoint.as_ref().filter(|last| last.run == run.id).map_or(0, |last| last.step_count);
        let mut state = None;
        if let Some((_, Commit { message, step_count, state: said })) = commit {
            steps = *step_count;
            state.clone_from(said);
            let before = std::mem::replace(&mut count, run.message_index.saturating_add(1));
            writes.push(Write::Message(MessageRow {
                index: run.message_index,
                id: run.message_id.clone(),
                role: "assistant".to_owned(),
                run: Some(run.id.clone()),
                json: message.to_string(),
            }));
            if before > count {
                // A producer outside had laid the run into several messages.
                writes.push(Write::TruncateMessages(count));
            }
        }
        let point = match end {
            Some(kind) => Some((head, kind)),
            None => commit.map(|(cursor, _)| (cursor, CheckpointKind::Step)),
        };
        if let Some((cursor, kind)) = point {
            let place = Place { kind, message_count: count, sequence: cursor, step_count: steps };
            let mut checkpoint = checkpoint_after(self.checkpoint.as_ref(), place, &run.id, &row.salt);
            checkpoint.state = state.or(checkpoint.state);
            writes.push(Write::Checkpoint(checkpoint.clone()));
            self.checkpoint = Some(checkpoint);
        }
        Ok(writes)
    }
}

impl Session {
    /// The names that calls have got among these records.
    pub(super) fn take_names(&mut self, turn: u32, records: &[Record]) -> Vec<Write> {
        let names = records.iter().filter_map(|record| match record {
            Record::Call(name) => Some(name),
            Record::Chunk { .. } | Record::Commit(_) | Record::Amend(_) => None,
        });
        let mut writes = Vec::new();
        for name in names {
            self.calls.take(name.clone());
            let CallName { id, own } = name.clone();
            writes.push(Write::Call(CallRow { id, own, turn }));
        }
        writes
    }
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

//! What a producer's chunks are held against, for the calls beside the engine.

use std::rc::Rc;

use serde_json::Value;
use worker::{console_error, console_log};

use super::calls::failed;
use super::host::{Host, HostError};
use crate::core::command::WriteRefused;
use crate::core::record::Record;
use crate::core::run::{Fence, Outcome, Vocabulary};
use crate::core::session::Session;
use crate::core::storage::RunRow;
use crate::dialect::push::admit::Admission;
use crate::dialect::push::reason::{Reason, Refused};
use crate::session::admissions::{Admissions, admit, admit_all, has_own_words};
use crate::session::refuse::Refusal;
use crate::session::turn::Rows;

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

    /// What the run's next chunk is held against, taken out: it is put back once what it has admitted is stored.
    pub fn admission(&self, fence: &Fence) -> Result<Admission, Refusal> {
        let run = self.session(|session| session.run().filter(|run| run.id == fence.run).cloned());
        let run = run.map_err(failed)?;
        let run = run.ok_or_else(|| self.write_refused(&fence.run, &WriteRefused::Superseded))?;
        self.admission_of(&run).map_err(failed)
    }

    /// As [`Host::admission`].
    pub fn admission_of(&self, run: &RunRow) -> Result<Admission, HostError> {
        Ok(self.known(|session, known, rows| known.take(session, rows, run))??)
    }

    fn known<T>(&self, look: impl FnOnce(&Session, &mut Admissions, &Rows) -> T) -> Result<T, HostError> {
        let mut engine = self.read()?;
        let (session, known) = engine.admissions().ok_or(HostError::Busy)?;
        Ok(look(session, known, &*self.storage))
    }

    /// Several chunks as records, all or none.
    pub fn admit_all(
        &self,
        fence: &Fence,
        chunks: impl IntoIterator<Item = Value>,
    ) -> Result<Result<(Admission, Vec<Record>), Refused>, Refusal> {
        let mut admission = self.admission(fence)?;
        let admitted = self.session(|session| admit_all(session, &*self.storage, &mut admission, chunks));
        match admitted.map_err(failed)? {
            Ok(records) => Ok(Ok((admission, records))),
            Err(refused) => {
                if refused.index == 0 {
                    self.keep_admission(fence, admission);
                }
                Ok(Err(refused))
            }
        }
    }

    /// Adds a chunk to the records.
    pub fn admit(
        &self,
        admission: &mut Admission,
        value: Value,
        records: &mut Vec<Record>,
    ) -> Result<Result<(), Reason>, HostError> {
        self.session(|session| admit(session, &*self.storage, admission, value, records))
    }

    /// Keeps what a stored request has made of it.
    pub fn keep_admission(&self, fence: &Fence, admission: Admission) {
        let _ = self.known(|session, known, _| known.keep(session, fence, admission));
    }

    /// Another process writes from here on.
    pub fn forget_admission(&self) {
        let _ = self.known(|_, known, _| known.forget());
    }

    /// Ends a pushed run that its producer does not end itself, keeping what it has said.
    pub fn bury_pushed(self: &Rc<Self>, run: &RunRow, outcome: Outcome) -> Result<(), HostError> {
        let records = self.last_words_of_pushed(run);
        console_log!("session {} run {}: settled without its producer", self.log_name, run.id);
        self.finish(&run.fence(), outcome, &records)
    }

    /// What a pushed run has said that is not committed, closed and folded.
    pub fn last_words_of_pushed(&self, run: &RunRow) -> Vec<Record> {
        let said = self.known(|session, known, rows| {
            let said = known.last_words(session, rows, run);
            known.forget();
            said
        });
        match said {
            Ok(Ok(records)) => records,
            // Rows that cannot be read must not keep the run alive.
            Ok(Err(error)) => {
                console_error!("session {} run {}: {error}", self.log_name, run.id);
                Vec::new()
            }
            Err(_) => Vec::new(),
        }
    }

    /// Whether the conversation is here what the producer itself has said in its last commit.
    pub fn has_own_words(&self, run: &RunRow, admission: &Admission) -> bool {
        self.session(|session| has_own_words(session, &*self.storage, run, admission)).unwrap_or(false)
    }
}

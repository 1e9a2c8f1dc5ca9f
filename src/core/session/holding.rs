//! Answers that come while their run is still writing: they are held, and count when the run waits for them.
//!
//! What a client was shown it may answer at once, and a crash must not take the answer back. So each is a row until its run suspends: then
//! [`Session::answer_held`] tells it, or the run that goes on begins with it. Any other end of the run, and any other run, drops what is
//! left.

use super::Session;
use crate::core::command::{Effects, WriteRefused};
use crate::core::record::Record;
use crate::core::run::Fence;
use crate::core::storage::{HeldRow, Write};

impl Session {
    /// Whose session it is.
    pub fn owner(&self) -> Option<&str> {
        self.row.as_ref()?.owner.as_deref()
    }

    /// What clients have answered while the run is writing, in the order in which it came.
    pub fn held(&self) -> &[HeldRow] {
        &self.held
    }

    /// Holds answers to calls of the run that is writing, each as JSON text.
    ///
    /// # Errors
    /// [`WriteRefused`]; nothing has changed.
    pub fn hold(&mut self, fence: &Fence, answers: Vec<String>) -> Result<Effects, WriteRefused> {
        self.producing(fence)?;
        let mut writes = Vec::new();
        for json in answers {
            let row = HeldRow { ordinal: self.held.last().map_or(1, |last| last.ordinal.saturating_add(1)), json };
            writes.push(Write::Hold(row.clone()));
            self.held.push(row);
        }
        Ok(self.effects(writes))
    }

    /// As [`Session::answer`], with what the held answers have come to; nothing is held afterwards.
    ///
    /// # Errors
    /// [`WriteRefused`]; nothing has changed.
    pub fn answer_held(&mut self, fence: &Fence, records: &[Record]) -> Result<Effects, WriteRefused> {
        let mut effects = self.answer(fence, records)?;
        effects.writes.extend(self.forget_held());
        Ok(effects)
    }

    pub(super) fn forget_held(&mut self) -> Option<Write> {
        let held = std::mem::take(&mut self.held);
        (!held.is_empty()).then_some(Write::DropHeld)
    }
}

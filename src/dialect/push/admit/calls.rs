//! The names of a pushed run's calls.

use serde_json::Value;

use super::{Admission, Language, PRODUCER_INPUT};
use crate::core::call_ids::CallName;
use crate::core::chunk::Chunk;
use crate::dialect::helix::words::begins_call as begins_helix_call;
use crate::dialect::push::reason::Reason;
use crate::dialect::push::ui_rules::check_keys;
use crate::dialect::ui::calls::{approval_of, asked, begins_call, is_granted_only, meant, names, repeated};

/// A chunk whose call has its name.
pub(super) struct Named {
    pub chunk: Chunk,
    /// The name, when the chunk begins the call.
    pub name: Option<CallName>,
    /// Whether it says an earlier step's call once more, so that it only stands for its number.
    pub stands: bool,
}

impl Named {
    /// A chunk of a call that has its name already.
    pub fn known(chunk: Chunk) -> Self {
        Self { chunk, name: None, stands: false }
    }
}

impl Admission {
    /// The chunk with its call's name in the place of the producer's id.
    pub(super) fn named(&self, chunk: Chunk) -> Result<Named, Reason> {
        let is_helix = matches!(self.language, Language::Helix { .. });
        if !is_helix && chunk.kind() == "tool-approval-response" {
            return Ok(Named::known(self.with_asked_approval(chunk)));
        }
        let Some(own) = chunk.text("toolCallId").map(str::to_owned) else { return Ok(Named::known(chunk)) };
        let begins = match is_helix {
            true => begins_helix_call(&chunk),
            false => begins_call(chunk.kind()),
        };
        let known = match (begins, is_helix) {
            (false, _) => Some(meant(&self.fold, &self.calls, &own)),
            (true, true) => self.said_again(&own),
            (true, false) => {
                let continues = self.inherited > 0 && self.fold.step_begin() <= self.inherited;
                repeated(&self.fold, &self.calls, (Some(self.begin()), continues), &chunk)
            }
        };
        let known = known.map(str::to_owned);
        if let Some(id) = known.as_deref().filter(|id| !is_helix && self.is_said_before(id, &chunk)) {
            check_keys(&chunk)?;
            return Ok(Named { chunk: standing_for(chunk, id), name: None, stands: true });
        }
        Ok(match known {
            Some(id) => Named::known(self.renamed(chunk, &own, &id)),
            None => {
                let name = self.calls.next_name(&own, |id| self.fold.call(id).is_some());
                let id = name.as_ref().map_or(own.as_str(), |name| name.id.as_str());
                Named { chunk: self.renamed(chunk, &own, id), name, stands: false }
            }
        })
    }

    fn renamed(&self, mut chunk: Chunk, own: &str, id: &str) -> Chunk {
        if own == id {
            return chunk;
        }
        if let Some(approval) = chunk.text("approvalId") {
            let approval = approval_of(&self.run, approval, own, id).into_owned();
            chunk = chunk.with("approvalId", approval);
        }
        chunk.with("toolCallId", id)
    }

    /// The first part that is the run's own and stands in the last step.
    fn begin(&self) -> usize {
        self.fold.step_begin().max(self.inherited)
    }

    /// Whether an input says a call that stands before the step which is open. A delta does so only behind such an input.
    fn is_said_before(&self, id: &str, chunk: &Chunk) -> bool {
        let said = begins_call(chunk.kind());
        let call = self.fold.call(id).filter(|call| call.at < self.begin());
        call.is_some_and(|call| said || chunk.kind() == "tool-input-delta" && is_granted_only(call.part))
    }

    /// The call of the message that Helix chunks go on with: one whose attempt counts and that has no result yet, or that stands in the last
    /// step.
    fn said_again<'a>(&'a self, own: &'a str) -> Option<&'a str> {
        let goes_on = |id: &&str| self.fold.call(id).is_some_and(|call| !call.is_settled() || call.in_step);
        names(&self.fold, &self.calls, own).find(goes_on)
    }

    fn with_asked_approval(&self, chunk: Chunk) -> Chunk {
        let Some(own) = chunk.text("approvalId") else { return chunk };
        match asked(&self.fold, &self.calls, own).map(|(id, _)| id.to_owned()) {
            Some(id) => chunk.with("approvalId", id),
            None => chunk,
        }
    }
}

fn standing_for(chunk: Chunk, id: &str) -> Chunk {
    let mut map = chunk.with("toolCallId", id).into_map();
    let said = map.insert("type".into(), PRODUCER_INPUT.into());
    map.insert("said".into(), said.unwrap_or_default());
    Chunk::parse(Value::Object(map)).unwrap_or(Chunk::new(PRODUCER_INPUT))
}

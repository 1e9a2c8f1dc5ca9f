//! Admission of UI chunks.

use serde_json::Value;

use super::calls::Named;
use super::{Admission, Admitted, Done, PRODUCER_APPROVAL, PRODUCER_RESET, PRODUCER_START};
use crate::core::approval::approval_id;
use crate::core::chunk::{CONTINUES, Chunk, STAMP_KEYS};
use crate::core::ids::Sequence;
use crate::dialect::helix::words::STATE_PATCH;
use crate::dialect::push::reason::Reason;
use crate::dialect::push::ui_rules::{check_keys, check_place};
use crate::dialect::ui::resync::is_event;

impl Admission {
    pub(super) fn admit_ui(&mut self, named: Named, sequence: Sequence) -> Result<Admitted, Reason> {
        let Named { mut chunk, stands, .. } = named;
        for key in STAMP_KEYS {
            chunk.remove(key);
        }
        if self.finished {
            return Err(Reason::AfterFinish);
        }
        if chunk.kind() != STATE_PATCH && !stands {
            self.check_ui(&chunk)?;
        }
        let chunk = self.as_stored(chunk);
        let state = self.patched_by(&chunk)?;
        self.fold.apply(&chunk)?;
        self.state = state.or(self.state.take());
        self.finished = chunk.kind() == "finish";
        self.note_ui(&chunk, sequence);
        Ok(Admitted { chunk, attempt: None, name: None })
    }

    fn check_ui(&self, chunk: &Chunk) -> Result<(), Reason> {
        match chunk.kind() {
            "error" => return Err(Reason::UseFail),
            "abort" => return Err(Reason::UseEnd),
            "finish-step" if self.step_from.is_none() => return Err(Reason::NoStep),
            "reset-step" if self.step_from.is_none_or(|from| self.fold.part_count() > from) => {
                return Err(Reason::Reset);
            }
            kind if is_event(kind) => return Err(Reason::Event(kind.into())),
            _ => {}
        }
        check_keys(chunk)?;
        let place = self.with_known_approval(chunk.clone());
        check_place(&self.fold, self.inherited, &place)
    }

    /// The chunk with which the log says what the producer said.
    fn as_stored(&self, chunk: Chunk) -> Chunk {
        match chunk.kind() {
            "start" => match chunk.get("messageMetadata").filter(|metadata| !metadata.is_null()) {
                Some(metadata) => Chunk::new("message-metadata").with("messageMetadata", metadata.clone()),
                None => {
                    let mut map = chunk.into_map();
                    map.insert("type".into(), PRODUCER_START.into());
                    Chunk::parse(Value::Object(map)).unwrap_or(Chunk::new(PRODUCER_START))
                }
            },
            // Clients that know it would also take back what a resumed response has opened again.
            "reset-step" => Chunk::new(PRODUCER_RESET),
            // A signature covers the id.
            "tool-approval-request" if chunk.get("signature").is_none() => {
                let own = chunk.get("approvalId").cloned().unwrap_or_default();
                let id = approval_id(&self.run, chunk.text("toolCallId").unwrap_or_default());
                self.marked(chunk.with("approvalId", id).with(PRODUCER_APPROVAL, own))
            }
            _ => {
                let chunk = self.with_known_approval(chunk);
                self.marked(chunk)
            }
        }
    }

    /// An answer to an approval names it as the log does.
    fn with_known_approval(&self, chunk: Chunk) -> Chunk {
        let Some(own) = chunk.text("approvalId").filter(|_| chunk.kind() == "tool-approval-response") else {
            return chunk;
        };
        if self.fold.call_of_approval(own).is_some() {
            return chunk;
        }
        let known = self.approvals.get(own).cloned();
        match known {
            Some(id) => chunk.with("approvalId", id),
            None => chunk,
        }
    }

    /// Marks what answers a call of the continued message, so that a response without that call leaves it out.
    fn marked(&self, chunk: Chunk) -> Chunk {
        let call = match chunk.kind() {
            "tool-approval-response" => self.fold.call_of_approval(chunk.text("approvalId").unwrap_or_default()),
            kind if kind.starts_with("tool-output-") || kind == "tool-approval-request" => {
                self.fold.call(chunk.text("toolCallId").unwrap_or_default())
            }
            _ => None,
        };
        match call.filter(|call| call.at < self.inherited) {
            Some(call) => {
                let (id, tool) = (call.id().to_owned(), call.tool().to_owned());
                chunk.with("toolCallId", id).with(CONTINUES, tool)
            }
            None => chunk,
        }
    }

    /// Where the run stands after a UI chunk that was folded.
    pub(super) fn note_ui(&mut self, chunk: &Chunk, sequence: Sequence) {
        match chunk.kind() {
            "start-step" => self.step_from = Some(self.fold.part_count()),
            "finish-step" => {
                self.step_from = None;
                self.steps = self.steps.saturating_add(1);
                self.done = Some(Done { cursor: sequence.cursor(), step_count: self.steps });
            }
            "tool-approval-request" => {
                if let (Some(own), Some(id)) = (chunk.text(PRODUCER_APPROVAL), chunk.text("approvalId")) {
                    self.approvals.insert(own.to_owned(), id.to_owned());
                }
            }
            _ => {}
        }
    }
}

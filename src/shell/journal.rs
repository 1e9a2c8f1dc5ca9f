//! What the operator sees: one structured line for each closed response and each settled run, and the counters. Ids, durations and
//! counts; never content.

use serde_json::{Value, json};
use worker::console_log;

use super::host::Host;
use crate::core::counters::Counters;
use crate::core::run::Fence;

impl Host {
    /// Writes one line of JSON.
    pub fn log(&self, line: &Value) {
        console_log!("{line}");
    }

    /// Changes the counters. `change` must not call into JavaScript.
    pub fn count(&self, change: impl FnOnce(&mut Counters)) {
        if let Ok(mut counters) = self.counters.try_borrow_mut() {
            change(&mut counters);
        }
    }

    /// The counters as `/info` shows them.
    pub fn counted(&self) -> Value {
        let mut counters = self.counters.try_borrow().map(|counters| *counters).unwrap_or_default();
        counters.rows_written = self.storage.connection().rows_written();
        serde_json::to_value(counters).unwrap_or_default()
    }

    /// The line of a run that has just ended.
    pub fn log_settled(&self, fence: &Fence) {
        let line = self.session(|session| {
            let run = session.run().filter(|run| run.id == fence.run)?;
            Some(json!({
                "event": "run_settled",
                "session": self.log_name,
                "run": run.id,
                "turn": run.turn,
                "agent": run.agent,
                "status": run.status,
                "code": run.error,
                "attempts": run.attempts,
                "chunks": run.end.map(|end| end.get().saturating_sub(run.start.get())),
                "ms": run.ended.map(|ended| ended.since(run.started)),
            }))
        });
        if let Ok(Some(line)) = line {
            self.log(&line);
        }
    }
}

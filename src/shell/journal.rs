//! What the operator sees: one structured line for each closed response and each settled run, and the counters. Ids, durations and
//! counts; never content.

use serde_json::{Value, json};
use worker::console_log;

use super::host::Host;
use crate::core::counters::Counters;
use crate::core::ids::RunId;
use crate::core::run::Fence;
use crate::core::storage::{RunRow, Storage};

impl Host {
    /// Writes one line of JSON.
    pub fn log(&self, line: &Value) {
        console_log!("{line}");
    }

    /// Changes the counters. `change` must not call into JavaScript.
    pub fn count(&self, change: impl FnOnce(&mut Counters)) {
        let _ = self.heart.look(|engine, _| change(&mut engine.counters));
    }

    /// The line of a run that has just ended.
    pub fn log_settled(&self, fence: &Fence) {
        let run = self.session(|session| session.run().filter(|run| run.id == fence.run).cloned());
        if let Ok(Some(run)) = run {
            self.log_run(&run);
        }
    }

    /// The line of a run that was interrupted by another one.
    pub fn log_interrupted(&self, run: &RunId) {
        if let Ok(Some(run)) = self.storage.run(run) {
            self.log_run(&run);
        }
    }

    fn log_run(&self, run: &RunRow) {
        self.log(&json!({
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
        }));
    }
}

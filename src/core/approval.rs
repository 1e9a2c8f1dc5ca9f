//! Approvals of tool calls: how they are named, and who acts on them.

use super::ids::RunId;

/// Who executes a call once the user has approved it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Executor {
    /// The client: after the approval the run still waits for the result.
    Client,
    /// The producer: it goes on with the approval, and brings the result itself.
    Producer,
}

/// Stands between the two halves of an approval's id.
const SEPARATOR: &str = "::";

/// The id of an approval: `runId::toolCallId` (`spec/helix.md` 5.5).
pub fn approval_id(run: &RunId, tool_call_id: &str) -> String {
    format!("{run}{SEPARATOR}{tool_call_id}")
}

/// The run and the call that an approval's id names; `None` for an id of another form (an upstream's own).
pub fn parse_approval_id(id: &str) -> Option<(RunId, &str)> {
    let (run, call) = id.split_once(SEPARATOR)?;
    (!run.is_empty() && !call.is_empty()).then(|| (RunId::new(run), call))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_approval_names_its_run_and_its_call() {
        let id = approval_id(&RunId::new("run1"), "call::2");
        assert_eq!(id, "run1::call::2");
        assert_eq!(parse_approval_id(&id), Some((RunId::new("run1"), "call::2")));
        for other in ["", "aitxt-1", "::call", "run::"] {
            assert_eq!(parse_approval_id(other), None, "{other}");
        }
    }
}

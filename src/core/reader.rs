//! One open response that follows the log: a cursor, never a copy.
//!
//! Atomic join (DESIGN.md invariant 3): history and live tail are one loop over the same log, so there is no seam to lose a chunk in.

use super::error::Code;
use super::ids::{Cursor, RunId};
use super::run::RunStatus;
use super::session::StreamStatus;
use super::view::View;

/// What a reader follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The whole stream, run after run, until it is not active.
    Stream,
    /// One run's chunks.
    Run(RunId),
}

/// How a response ends. Every dialect has its own words for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terminal {
    /// The run finished.
    Completed,
    /// The run is suspended.
    Paused,
    /// The run was stopped.
    Interrupted,
    /// The run failed.
    Failed(Code),
    /// The reader can learn no more here; its client comes back with its cursor.
    Dropped,
}

/// What a reader does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Take chunks after the first cursor, up to the second.
    Slice(Cursor, Cursor),
    /// Say that history ends at this head.
    CaughtUp(Cursor),
    /// Say how it ended, and close.
    End(Terminal),
    /// Wait for the log to move.
    Wait,
}

/// A reader's place.
#[derive(Clone, Debug)]
pub struct Reader {
    scope: Scope,
    cursor: Cursor,
    joined: Option<Cursor>,
}

impl Reader {
    /// A reader that has everything up to `cursor`; history ends at the durable head of this moment.
    pub fn open(scope: Scope, cursor: Cursor, view: &View) -> Self {
        Self { scope, cursor, joined: Some(view.durable().max(cursor)) }
    }

    /// Everything up to here was handed to the response.
    pub fn cursor(&self) -> Cursor {
        self.cursor
    }

    /// What the reader follows.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// The response has taken the chunks up to here.
    pub fn took(&mut self, through: Cursor) {
        self.cursor = self.cursor.max(through);
    }

    /// The end of history was announced, or need not be.
    pub fn announced(&mut self) {
        self.joined = None;
    }

    /// What comes next, given what is durable.
    pub fn next(&self, view: &View) -> Next {
        let (limit, terminal) = match &self.scope {
            Scope::Stream => (view.durable(), stream_terminal(view)),
            Scope::Run(id) => match view.find(id) {
                Some(run) => {
                    (run.end.unwrap_or(view.durable()).min(view.durable()), run_terminal(run.status, run.error))
                }
                None if view.awaits(id) => return Next::Wait,
                None => (self.cursor, Some(Terminal::Dropped)),
            },
        };
        if self.cursor < limit {
            let until = match self.joined {
                Some(joined) if self.cursor < joined => limit.min(joined),
                Some(joined) => return Next::CaughtUp(joined),
                None => limit,
            };
            return Next::Slice(self.cursor, until);
        }
        match (self.joined, terminal) {
            (Some(joined), _) => Next::CaughtUp(joined),
            (None, Some(terminal)) => Next::End(terminal),
            (None, None) => Next::Wait,
        }
    }
}

fn run_terminal(status: RunStatus, error: Option<Code>) -> Option<Terminal> {
    match status {
        RunStatus::Running => None,
        RunStatus::SuspendedClientTool => Some(Terminal::Paused),
        RunStatus::Completed => Some(Terminal::Completed),
        RunStatus::Interrupted => Some(Terminal::Interrupted),
        RunStatus::Failed => Some(Terminal::Failed(error.unwrap_or(Code::FrameworkInternalError))),
        RunStatus::Superseded => Some(Terminal::Dropped),
    }
}

fn stream_terminal(view: &View) -> Option<Terminal> {
    let run = view.run();
    match view.status() {
        Some(StreamStatus::Active) => None,
        Some(StreamStatus::Paused) => Some(Terminal::Paused),
        Some(StreamStatus::Failed) => {
            Some(Terminal::Failed(run.and_then(|run| run.error).unwrap_or(Code::FrameworkInternalError)))
        }
        Some(StreamStatus::Ended) => Some(match run.map(|run| run.status) {
            Some(RunStatus::Interrupted) => Terminal::Interrupted,
            _ => Terminal::Completed,
        }),
        None => Some(Terminal::Dropped),
    }
}

//! One open response that follows the log: a cursor, never a copy.
//!
//! Atomic join (DESIGN.md invariant 3): history and live tail are one loop over the same log, so there is no seam to lose a chunk in.

use super::error::Code;
use super::ids::{Cursor, RunId};
use super::run::RunStatus;
use super::run::StreamStatus;
use super::view::{Fault, RunView, View};

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
    /// The run failed; [`Reader::fault`] says why.
    Failed(Code),
    /// The reader can learn no more here; its client comes back with its cursor.
    Dropped,
    /// The reader waited for a run, and none started in time.
    NotLive,
    /// What comes next was removed, up to this floor: its client reads the snapshot.
    Truncated(Cursor),
    /// Another run took the session; [`Reader::move_on`] follows it.
    Superseded,
}

/// Why the service ends a response on purpose (`spec/helix.md` 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Eviction {
    /// The client reads too slowly.
    SlowConsumer,
    /// The client takes nothing, or the response is too old.
    Stale,
    /// There are too many responses.
    ConnectionCap,
    /// The log could not be read.
    ServerError,
}

impl Eviction {
    /// Every reason.
    pub const ALL: [Self; 4] = [Self::SlowConsumer, Self::Stale, Self::ConnectionCap, Self::ServerError];

    /// The reason as it stands on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SlowConsumer => "slow_consumer",
            Self::Stale => "stale",
            Self::ConnectionCap => "connection_cap",
            Self::ServerError => "server_error",
        }
    }
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
    parked: Option<Parked>,
}

/// A reader that does not take the end of an earlier run for an answer (`spec/helix.md` 1.5).
#[derive(Clone, Debug)]
struct Parked {
    /// The run whose end is stale.
    past: Option<RunId>,
    gave_up: bool,
}

impl Reader {
    /// A reader that has everything up to `cursor`; history ends at the durable head of this moment. A run's reader never gets what
    /// lies before the run.
    pub fn open(scope: Scope, cursor: Cursor, view: &View) -> Self {
        let cursor = match &scope {
            Scope::Stream => cursor,
            Scope::Run(id) => view.find(id).map_or(cursor, |run| cursor.max(run.start)),
        };
        Self { scope, cursor, joined: Some(view.durable().max(cursor)), parked: None }
    }

    /// The same reader, which waits for a run when none is live (`waitForLive=1`). [`Reader::gave_up`] ends the wait.
    #[must_use]
    pub fn waiting_for_live(mut self, view: &View) -> Self {
        let live = matches!(view.status(), Some(StreamStatus::Active));
        self.parked = (!live).then(|| Parked { past: view.run().map(|run| run.id.clone()), gave_up: false });
        self
    }

    /// Whether the reader waits for a run to start.
    pub fn is_parked(&self, view: &View) -> bool {
        self.parked.as_ref().is_some_and(|parked| parked.past.as_ref() == view.run().map(|run| &run.id))
    }

    /// The wait for a run has been long enough.
    pub fn gave_up(&mut self) {
        if let Some(parked) = &mut self.parked {
            parked.gave_up = true;
        }
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

    /// From a run that was superseded to the one that took its place, behind the first `opening` chunks of it if the response has had an
    /// opening: a run may lose its place before its first chunk. `false` when that run is not known any more, or answers another message and the client is not `aware` of what
    /// happened: it would show the reply below its own message.
    pub fn move_on(&mut self, opening: u64, aware: bool, view: &View) -> bool {
        let Scope::Run(id) = &self.scope else { return false };
        if !aware && !view.is_retried(id) {
            return false;
        }
        let Some(successor) = view.successor(id) else { return false };
        let has_begun = view.find(id).is_none_or(|run| self.cursor > run.start);
        let skipped = if has_begun { opening } else { 0 };
        let begin = Cursor::new(successor.start.get().saturating_add(skipped)).unwrap_or(successor.start);
        self.cursor = self.cursor.max(begin);
        self.scope = Scope::Run(successor.id.clone());
        true
    }

    /// Why the run that the reader follows has failed, if it has: of the whole stream, the last run.
    pub fn fault(&self, view: &View) -> Option<Fault> {
        let run = match &self.scope {
            Scope::Stream => view.run(),
            Scope::Run(id) => view.find(id),
        };
        run?.fault.clone()
    }

    /// From a run that has paused to the one that goes on with its message, behind the first `opening` chunks of it. `false` when there
    /// is none.
    pub fn go_on(&mut self, opening: u64, view: &View) -> bool {
        let Scope::Run(id) = &self.scope else { return false };
        let Some(successor) = view.continuation(id) else { return false };
        let begin = Cursor::new(successor.start.get().saturating_add(opening)).unwrap_or(successor.start);
        self.cursor = self.cursor.max(begin);
        self.scope = Scope::Run(successor.id.clone());
        true
    }

    /// Whether history is behind the reader.
    pub fn is_live(&self) -> bool {
        self.joined.is_none()
    }

    /// The end of history was announced, or need not be.
    pub fn announced(&mut self) {
        self.joined = None;
    }

    /// What comes next, given what is durable.
    pub fn next(&self, view: &View) -> Next {
        let (from, limit, terminal) = match &self.scope {
            Scope::Stream => (self.cursor, view.durable(), stream_terminal(view)),
            Scope::Run(id) => match view.find(id) {
                Some(run) => {
                    let end = run.end.unwrap_or(view.durable()).min(view.durable());
                    (self.cursor.max(run.start), end, run_terminal(run))
                }
                None if view.awaits(id) => return Next::Wait,
                None if view.has_given_up(id) => return Next::End(Terminal::Failed(Code::StateQueueCleared)),
                // Too long ago to know where it ended: nothing more is said, not even that history is complete.
                None => return Next::End(Terminal::Dropped),
            },
        };
        if self.cursor > view.durable() {
            // Beyond what is stored only a reader of another log can be, one that was removed and begun again.
            return if self.cursor > view.stored() { Next::End(Terminal::Dropped) } else { Next::Wait };
        }
        if from < limit && from < view.floor() {
            return Next::End(Terminal::Truncated(view.floor()));
        }
        if from < limit {
            let until = match self.joined {
                Some(joined) if from < joined => limit.min(joined),
                Some(joined) => return Next::CaughtUp(joined),
                None => limit,
            };
            return Next::Slice(from, until);
        }
        match (self.joined, terminal) {
            (Some(joined), _) => Next::CaughtUp(joined),
            (None, Some(_)) if self.is_parked(view) => match &self.parked {
                Some(Parked { gave_up: true, .. }) => Next::End(Terminal::NotLive),
                _ => Next::Wait,
            },
            (None, Some(terminal)) => Next::End(terminal),
            (None, None) => Next::Wait,
        }
    }
}

fn code_of(run: Option<&RunView>) -> Code {
    run.and_then(|run| run.fault.as_ref()).map_or(Code::FrameworkInternalError, |fault| fault.code)
}

fn run_terminal(run: &RunView) -> Option<Terminal> {
    match run.status {
        _ if run.paused => Some(Terminal::Paused),
        RunStatus::Running => None,
        RunStatus::Completed => Some(Terminal::Completed),
        RunStatus::Interrupted => Some(Terminal::Interrupted),
        RunStatus::Failed => Some(Terminal::Failed(code_of(Some(run)))),
        RunStatus::Superseded => Some(Terminal::Superseded),
        RunStatus::SuspendedClientTool | RunStatus::SuspendedAwaitingChildren | RunStatus::SuspendedStepPartial => {
            Some(Terminal::Paused)
        }
    }
}

fn stream_terminal(view: &View) -> Option<Terminal> {
    let run = view.run();
    match view.status() {
        Some(StreamStatus::Active) => None,
        Some(StreamStatus::Paused) => Some(Terminal::Paused),
        Some(StreamStatus::Failed) => Some(Terminal::Failed(code_of(run))),
        Some(StreamStatus::Ended) => Some(match run.map(|run| run.status) {
            Some(RunStatus::Interrupted) => Terminal::Interrupted,
            _ => Terminal::Completed,
        }),
        None => Some(Terminal::Dropped),
    }
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;

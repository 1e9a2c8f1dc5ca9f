//! One open response that follows the log: a cursor, never a copy.
//!
//! Atomic join (DESIGN.md invariant 3): history and live tail are one loop over the same log, so there is no seam to lose a chunk in.

use super::error::Code;
use super::ids::{Cursor, RunId};
use super::run::RunStatus;
use super::session::StreamStatus;
use super::view::{RunView, View};

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

    /// From a run that was superseded to the one that took its place, behind the first `opening` chunks of it: the response has had an
    /// opening of its own. `false` when that run is not known any more, or answers another message and the client is not `aware` of what
    /// happened: it would show the reply below its own message.
    pub fn move_on(&mut self, opening: u64, aware: bool, view: &View) -> bool {
        let Scope::Run(id) = &self.scope else { return false };
        if !aware && !view.is_retried(id) {
            return false;
        }
        let Some(successor) = view.successor(id) else { return false };
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

fn run_terminal(run: &RunView) -> Option<Terminal> {
    match run.status {
        _ if run.paused => Some(Terminal::Paused),
        RunStatus::Running => None,
        RunStatus::SuspendedClientTool => Some(Terminal::Paused),
        RunStatus::Completed => Some(Terminal::Completed),
        RunStatus::Interrupted => Some(Terminal::Interrupted),
        RunStatus::Failed => Some(Terminal::Failed(run.error.unwrap_or(Code::FrameworkInternalError))),
        RunStatus::Superseded => Some(Terminal::Superseded),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::ids::MessageId;
    use crate::core::run::EntryKind;

    fn at(cursor: u64) -> Cursor {
        Cursor::new(cursor).unwrap()
    }

    fn run(id: &str, status: RunStatus, start: u64, end: Option<u64>, error: Option<Code>) -> RunView {
        RunView {
            id: RunId::new(id),
            status,
            entry: EntryKind::Send,
            message_id: MessageId::new("m"),
            start: at(start),
            end: end.map(at),
            error,
            paused: false,
        }
    }

    fn view(durable: u64, status: StreamStatus, run: RunView) -> View {
        View::new(at(durable), Cursor::START, Some(status), Some(run))
    }

    fn running(durable: u64) -> View {
        view(durable, StreamStatus::Active, run("r", RunStatus::Running, 0, None, None))
    }

    /// All that a reader does until it waits or ends.
    fn steps(reader: &mut Reader, view: &View) -> Vec<Next> {
        let mut steps = Vec::new();
        loop {
            let next = reader.next(view);
            steps.push(next);
            match next {
                Next::Slice(_, until) => reader.took(until),
                Next::CaughtUp(_) => reader.announced(),
                Next::End(_) | Next::Wait => return steps,
            }
        }
    }

    #[test]
    fn a_reader_that_waits_for_a_run_takes_no_stale_end() {
        let over = view(5, StreamStatus::Ended, run("r", RunStatus::Completed, 0, Some(5), None));
        let open = || Reader::open(Scope::Stream, at(5), &over).waiting_for_live(&over);
        let mut reader = open();
        assert_eq!(steps(&mut reader, &over), [Next::CaughtUp(at(5)), Next::Wait]);
        let next = |status, stream, end| view(9, stream, run("r2", status, 5, end, None));
        let mut follows = reader.clone();
        assert_eq!(
            steps(&mut follows, &next(RunStatus::Running, StreamStatus::Active, None)),
            [Next::Slice(at(5), at(9)), Next::Wait]
        );
        let mut late = reader.clone();
        let done = next(RunStatus::Completed, StreamStatus::Ended, Some(9));
        assert_eq!(steps(&mut late, &done), [Next::Slice(at(5), at(9)), Next::End(Terminal::Completed)]);
        reader.gave_up();
        assert_eq!(steps(&mut reader, &over), [Next::End(Terminal::NotLive)]);
        let live = Reader::open(Scope::Stream, at(5), &running(5)).waiting_for_live(&running(5));
        assert!(!live.is_parked(&running(5)));
    }

    #[test]
    fn history_then_one_caught_up_then_live() {
        let mut reader = Reader::open(Scope::Stream, at(2), &running(5));
        assert_eq!(reader.next(&running(5)), Next::Slice(at(2), at(5)));
        reader.took(at(3));
        // The log moves while history is read: history still ends where it ended when the reader came.
        assert_eq!(reader.next(&running(9)), Next::Slice(at(3), at(5)));
        reader.took(at(5));
        let expected = [Next::CaughtUp(at(5)), Next::Slice(at(5), at(9)), Next::Wait];
        assert_eq!(steps(&mut reader, &running(9)), expected);
        reader.took(at(4));
        assert_eq!(reader.cursor(), at(9), "a cursor never goes back");
        assert_eq!(steps(&mut reader, &running(10)), [Next::Slice(at(9), at(10)), Next::Wait]);
    }

    #[test]
    fn a_reader_at_the_head_is_caught_up_at_once_unless_it_need_not_be_said() {
        let mut reader = Reader::open(Scope::Stream, at(5), &running(5));
        assert_eq!(steps(&mut reader, &running(5)), [Next::CaughtUp(at(5)), Next::Wait]);
        let mut quiet = Reader::open(Scope::Stream, at(5), &running(5));
        quiet.announced();
        assert_eq!(steps(&mut quiet, &running(5)), [Next::Wait]);
        assert_eq!(steps(&mut quiet, &running(6)), [Next::Slice(at(5), at(6)), Next::Wait]);
    }

    #[test]
    fn a_run_reader_gets_its_run_only() {
        let second = view(9, StreamStatus::Failed, run("r2", RunStatus::Failed, 4, Some(7), Some(Code::ProducerLost)));
        let mut reader = Reader::open(Scope::Run(RunId::new("r2")), at(1), &second);
        assert_eq!(reader.cursor(), at(4), "what lies before the run is not its");
        let end = Next::End(Terminal::Failed(Code::ProducerLost));
        assert_eq!(steps(&mut reader, &second), [Next::Slice(at(4), at(7)), Next::CaughtUp(at(9)), end]);
    }

    #[test]
    fn a_cursor_below_the_floor_is_told_so_and_never_gets_a_hole() {
        let trimmed =
            |status, end| View::new(at(9), at(5), Some(StreamStatus::Ended), Some(run("r", status, 5, end, None)));
        let over = trimmed(RunStatus::Completed, Some(9));
        let cut = Next::End(Terminal::Truncated(at(5)));
        for (cursor, expected) in [
            (0, vec![cut]),
            (4, vec![cut]),
            (5, vec![Next::Slice(at(5), at(9)), Next::CaughtUp(at(9)), Next::End(Terminal::Completed)]),
        ] {
            let mut reader = Reader::open(Scope::Stream, at(cursor), &over);
            assert_eq!(steps(&mut reader, &over), expected, "{cursor}");
        }
        let gone =
            View::new(at(9), at(9), Some(StreamStatus::Ended), Some(run("r", RunStatus::Completed, 5, Some(9), None)));
        let mut reader = Reader::open(Scope::Run(RunId::new("r")), at(7), &gone);
        assert_eq!(steps(&mut reader, &gone), [Next::End(Terminal::Truncated(at(9)))]);
        let mut at_end = Reader::open(Scope::Stream, at(9), &gone);
        assert_eq!(steps(&mut at_end, &gone), [Next::CaughtUp(at(9)), Next::End(Terminal::Completed)]);
    }

    #[test]
    fn an_unknown_run_is_dropped_and_never_called_complete() {
        let mut reader = Reader::open(Scope::Run(RunId::new("gone")), at(1), &running(5));
        assert_eq!(steps(&mut reader, &running(5)), [Next::End(Terminal::Dropped)]);
    }

    #[test]
    fn the_reader_of_a_run_that_starts_waits_also_beyond_the_durable_head() {
        let mut view = running(5);
        view.starts(RunId::new("r2"));
        view.starts(RunId::new("r3"));
        for id in ["r2", "r3"] {
            assert_eq!(Reader::open(Scope::Run(RunId::new(id)), at(7), &view).next(&view), Next::Wait, "{id}");
        }
        let mut reader = Reader::open(Scope::Run(RunId::new("r2")), at(0), &view);
        view.advance(at(9), 9, StreamStatus::Active, [run("r2", RunStatus::Running, 7, None, None)]);
        assert_eq!(reader.next(&view), Next::CaughtUp(at(5)));
        reader.announced();
        assert_eq!(steps(&mut reader, &view), [Next::Slice(at(7), at(9)), Next::Wait]);
        assert!(!view.awaits(&RunId::new("r2")) && view.awaits(&RunId::new("r3")));
    }

    #[test]
    fn a_reader_of_a_log_that_begins_again_is_dropped() {
        let mut reader = Reader::open(Scope::Stream, at(5), &running(5));
        assert_eq!(steps(&mut reader, &running(3)), [Next::End(Terminal::Dropped)]);
        let mut reader = Reader::open(Scope::Stream, Cursor::START, &View::default());
        assert_eq!(steps(&mut reader, &View::default()), [Next::CaughtUp(at(0)), Next::End(Terminal::Dropped)]);
    }

    #[test]
    fn the_reader_of_a_superseded_run_moves_on_behind_the_next_ones_opening() {
        let mut view = running(5);
        let mut reader = Reader::open(Scope::Run(RunId::new("r")), at(2), &view);
        assert!(!reader.move_on(2, true, &view), "nobody has taken its place");
        view.advance(at(5), 5, StreamStatus::Active, [run("r", RunStatus::Superseded, 0, Some(5), None)]);
        let retried = RunView { entry: EntryKind::Retry, ..run("r2", RunStatus::Running, 5, None, None) };
        view.advance(at(9), 9, StreamStatus::Active, [retried]);
        let over = Next::End(Terminal::Superseded);
        assert_eq!(steps(&mut reader, &view), [Next::Slice(at(2), at(5)), Next::CaughtUp(at(5)), over]);
        assert!(reader.move_on(2, false, &view));
        assert_eq!(steps(&mut reader, &view), [Next::Slice(at(7), at(9)), Next::Wait]);
    }

    #[test]
    fn only_an_aware_reader_moves_on_to_the_answer_of_another_message() {
        let retried = RunView { entry: EntryKind::Retry, ..run("r2", RunStatus::Running, 5, None, None) };
        for next in [
            RunView { entry: EntryKind::Edit, ..retried.clone() },
            RunView { entry: EntryKind::Send, ..retried.clone() },
            RunView { message_id: MessageId::new("another"), ..retried },
        ] {
            let mut view = running(5);
            view.advance(at(5), 5, StreamStatus::Active, [run("r", RunStatus::Superseded, 0, Some(5), None)]);
            view.advance(at(9), 9, StreamStatus::Active, [next]);
            let mut reader = Reader::open(Scope::Run(RunId::new("r")), at(5), &view);
            assert!(!reader.move_on(2, false, &view));
            assert!(reader.move_on(2, true, &view));
        }
    }

    #[test]
    fn every_ending_has_its_terminal() {
        let failed = Terminal::Failed(Code::ProviderError);
        let unnamed = Terminal::Failed(Code::FrameworkInternalError);
        for (stream, status, error, of_run, of_stream) in [
            (StreamStatus::Active, RunStatus::Running, None, None, None),
            (
                StreamStatus::Paused,
                RunStatus::SuspendedClientTool,
                None,
                Some(Terminal::Paused),
                Some(Terminal::Paused),
            ),
            (StreamStatus::Ended, RunStatus::Completed, None, Some(Terminal::Completed), Some(Terminal::Completed)),
            (
                StreamStatus::Ended,
                RunStatus::Interrupted,
                None,
                Some(Terminal::Interrupted),
                Some(Terminal::Interrupted),
            ),
            (StreamStatus::Failed, RunStatus::Failed, Some(Code::ProviderError), Some(failed), Some(failed)),
            (StreamStatus::Failed, RunStatus::Failed, None, Some(unnamed), Some(unnamed)),
            (StreamStatus::Active, RunStatus::Superseded, None, Some(Terminal::Superseded), None),
        ] {
            let ended = (status != RunStatus::Running).then_some(3);
            let view = view(3, stream, run("r", status, 0, ended, error));
            for (scope, terminal) in [(Scope::Run(RunId::new("r")), of_run), (Scope::Stream, of_stream)] {
                let mut reader = Reader::open(scope.clone(), at(3), &view);
                let last = terminal.map_or(Next::Wait, Next::End);
                assert_eq!(steps(&mut reader, &view), [Next::CaughtUp(at(3)), last], "{status:?} {scope:?}");
            }
        }
    }
}

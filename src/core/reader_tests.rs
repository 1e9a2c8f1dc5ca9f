//! Readers: history, live, parked, moved on, and how each ends.

use super::*;
use crate::core::ids::MessageId;
use crate::core::run::{EntryKind, Vocabulary};
use crate::core::view::RunView;

fn at(cursor: u64) -> Cursor {
    Cursor::new(cursor).unwrap()
}

fn run(id: &str, status: RunStatus, start: u64, end: Option<u64>, error: Option<Code>) -> RunView {
    RunView {
        id: RunId::new(id),
        status,
        entry: EntryKind::Send,
        message_id: MessageId::new("m"),
        message_index: 1,
        vocabulary: Vocabulary::Ui,
        start: at(start),
        end: end.map(at),
        fault: error.map(Fault::from),
        last: None,
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
fn a_reader_that_had_nothing_moves_on_to_the_very_beginning() {
    let mut view = running(5);
    let mut reader = Reader::open(Scope::Run(RunId::new("r")), Cursor::START, &view);
    view.advance(at(0), 0, StreamStatus::Active, [run("r", RunStatus::Superseded, 0, Some(0), None)]);
    let retried = RunView { entry: EntryKind::Retry, ..run("r2", RunStatus::Running, 0, None, None) };
    view.advance(at(4), 4, StreamStatus::Active, [retried]);
    assert!(reader.move_on(2, false, &view));
    reader.announced();
    assert_eq!(steps(&mut reader, &view), [Next::Slice(at(0), at(4)), Next::Wait]);
}

#[test]
fn a_reader_of_a_run_whose_answers_are_there_goes_on_behind_the_next_ones_opening() {
    let next = RunView { entry: EntryKind::ToolResult, ..run("r2", RunStatus::Running, 5, None, None) };
    for (next, goes_on) in [
        (next.clone(), true),
        (RunView { entry: EntryKind::Send, ..next.clone() }, false),
        (RunView { message_id: MessageId::new("another"), ..next }, false),
    ] {
        let mut view = running(3);
        let mut reader = Reader::open(Scope::Run(RunId::new("r")), at(3), &view);
        reader.announced();
        let paused = RunView { paused: true, ..run("r", RunStatus::Completed, 0, Some(5), None) };
        view.advance(at(9), 9, StreamStatus::Active, [paused, next]);
        assert_eq!(steps(&mut reader, &view), [Next::Slice(at(3), at(5)), Next::End(Terminal::Paused)]);
        assert_eq!(reader.go_on(2, &view), goes_on);
        if goes_on {
            assert_eq!(steps(&mut reader, &view), [Next::Slice(at(7), at(9)), Next::Wait]);
        }
    }
}

#[test]
fn only_an_aware_reader_moves_on_to_the_answer_of_another_message() {
    let retried = RunView { entry: EntryKind::Retry, ..run("r2", RunStatus::Running, 5, None, None) };
    for next in [
        RunView { entry: EntryKind::Edit, ..retried.clone() },
        RunView { entry: EntryKind::Send, ..retried.clone() },
        RunView { message_index: 3, ..retried },
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
        (StreamStatus::Paused, RunStatus::SuspendedClientTool, None, Some(Terminal::Paused), Some(Terminal::Paused)),
        (StreamStatus::Ended, RunStatus::Completed, None, Some(Terminal::Completed), Some(Terminal::Completed)),
        (StreamStatus::Ended, RunStatus::Interrupted, None, Some(Terminal::Interrupted), Some(Terminal::Interrupted)),
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

//! The world's readers: every slice, announcement and end is compared with what is durable.

use super::model::Run;
use super::world::{World, place};
use crate::core::error::Code;
use crate::core::frame;
use crate::core::ids::Cursor;
use crate::core::log::Batch;
use crate::core::reader::{Next, Reader, Scope, Terminal};
use crate::core::run::RunStatus;
use crate::core::storage::Storage;
use crate::core::view::RunView;

/// An open response.
pub(super) struct Following {
    pub(super) reader: Reader,
    pub(super) opened: usize,
    pub(super) caught_up: bool,
    pub(super) ended: bool,
}

fn at(place: usize) -> Cursor {
    Cursor::new(place as u64).unwrap()
}

/// A running run never ends a response.
fn terminal(run: &RunView) -> Option<Terminal> {
    Some(match run.status {
        _ if run.paused => Terminal::Paused,
        RunStatus::Running => return None,
        RunStatus::SuspendedClientTool | RunStatus::SuspendedAwaitingChildren | RunStatus::SuspendedStepPartial => {
            Terminal::Paused
        }
        RunStatus::Completed => Terminal::Completed,
        RunStatus::Interrupted => Terminal::Interrupted,
        RunStatus::Failed => Terminal::Failed(run.fault.as_ref().unwrap().code),
        RunStatus::Superseded => Terminal::Superseded,
    })
}

/// How far a reader has come. One that was opened before its run was known may stand before the run's start.
fn reached(reader: &Reader, shown: Option<&RunView>) -> Cursor {
    let start = shown.filter(|_| matches!(reader.scope(), Scope::Run(_))).map(|run| run.start);
    reader.cursor().max(start.unwrap_or(Cursor::START))
}

/// Whether a run was once as it is shown, for good or in between.
fn was(run: &Run, shown: &RunView) -> bool {
    let end = shown.end.map(place);
    match shown.status {
        RunStatus::Running => end.is_none(),
        status if status.is_suspended() => end == run.paused,
        status => (status, end, shown.fault.as_ref().map(|fault| fault.code)) == (run.status, run.end, run.error),
    }
}

impl World {
    pub fn open(&mut self, run: Option<usize>, cursor: usize) {
        let view = self.session.view();
        let runs = &self.model.latest().runs;
        let scope = match run.and_then(|run| runs.get(run % runs.len().max(1))) {
            Some(run) => Scope::Run(run.id.clone()),
            None => Scope::Stream,
        };
        let reader = Reader::open(scope, at(cursor % (place(view.durable()) + 1)), view);
        self.readers.push(Following { opened: place(reader.cursor()), reader, caught_up: false, ended: false });
    }

    /// One step of a reader. Whether it went on.
    pub fn step(&mut self, which: usize, max_bytes: usize, from_blocks: bool) -> bool {
        let index = which % self.readers.len().max(1);
        let (view, durable) = (self.session.view(), self.model.durable());
        let Some(Following { reader, opened, caught_up, ended }) = self.readers.get_mut(index) else { return false };
        if *ended {
            return false;
        }
        let shown = match reader.scope() {
            Scope::Stream => view.run(),
            Scope::Run(id) => view.find(id),
        };
        let fact =
            shown.map(|shown| durable.runs.iter().find(|run| run.id == shown.id).expect("only durable runs show"));
        assert!(fact.zip(shown).is_none_or(|(run, shown)| was(run, shown)));
        match reader.next(view) {
            // What it lacks is gone, and never silently skipped.
            Next::End(Terminal::Truncated(floor)) => {
                assert!(reader.cursor() < floor && place(floor) <= self.model.latest().floor);
                *ended = true;
                false
            }
            Next::Slice(after, until) => {
                assert!(after >= reader.cursor() && after < until && until <= view.durable());
                reader.took(after);
                let recent = if from_blocks { None } else { self.session.log().recent(after, until, max_bytes) };
                let batch = recent.unwrap_or_else(|| {
                    let mut batch = Batch { after, through: after, bytes: Vec::new() };
                    let blocks = self.storage.blocks(after, max_bytes).unwrap();
                    blocks.iter().for_each(|block| batch.take(block, until));
                    batch
                });
                let frames = frame::decode(&batch.bytes).unwrap();
                assert!(!frames.is_empty() && batch.through <= until, "a slice makes progress, and ends where it must");
                assert_eq!(frames.last().map(|frame| frame.sequence.cursor()), Some(batch.through));
                for frame in frames {
                    assert_eq!(frame.sequence, reader.cursor().next().unwrap(), "no gap, no repeat");
                    let (run, text) = &durable.chunks[place(frame.sequence.cursor()) - 1];
                    assert_eq!(frame.chunk.text("delta"), Some(text.as_str()), "what a crash cannot take back");
                    assert_eq!(frame.chunk.text("runId"), Some(run.as_str()));
                    assert!(!matches!(reader.scope(), Scope::Run(id) if id != run), "a run's reader gets its run only");
                    reader.took(frame.sequence.cursor());
                }
                true
            }
            Next::CaughtUp(_) => {
                assert!(!std::mem::replace(caught_up, true), "caught up once");
                reader.announced();
                true
            }
            Next::End(said) => {
                *ended = true;
                let Some(shown) = shown else {
                    let given_up = matches!(said, Terminal::Failed(Code::StateQueueCleared));
                    assert!(given_up || said == Terminal::Dropped, "of an unknown run");
                    return false;
                };
                assert_eq!(terminal(shown), Some(said));
                let is_stream = matches!(reader.scope(), Scope::Stream);
                let end = if is_stream { view.durable() } else { shown.end.unwrap() };
                assert_eq!(
                    place(reached(reader, Some(shown))),
                    place(end).max(*opened),
                    "everything before the terminal"
                );
                // Some responses end here, others go on with the run that came after.
                if said != Terminal::Superseded || index.is_multiple_of(3) {
                    return false;
                }
                let at = durable.runs.iter().position(|run| run.id == shown.id).unwrap();
                let successor = &durable.runs[at + 1];
                let skipped = if place(reader.cursor()) > durable.runs[at].start { successor.opening } else { 0 };
                assert!(
                    reader.move_on(successor.opening as u64, true, view),
                    "its successor shows together with its end"
                );
                assert_eq!(*reader.scope(), Scope::Run(successor.id.clone()));
                assert_eq!(place(reader.cursor()), (successor.start + skipped).max(*opened));
                (*opened, *ended) = (place(reader.cursor()), false);
                true
            }
            Next::Wait => {
                let starting = matches!(reader.scope(), Scope::Run(id) if view.awaits(id));
                let beyond = reader.cursor() > view.durable() && reader.cursor() <= view.stored();
                if !starting && !beyond {
                    assert_eq!(shown.map(|run| run.status), Some(RunStatus::Running));
                    assert_eq!(reached(reader, shown), view.durable());
                }
                false
            }
        }
    }
}

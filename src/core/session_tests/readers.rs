//! The world's readers: every slice, announcement and end is compared with what is durable.

use super::world::{World, place};
use crate::core::frame;
use crate::core::ids::Cursor;
use crate::core::log::Batch;
use crate::core::reader::{Next, Reader, Scope, Terminal};
use crate::core::run::{Outcome, RunStatus};
use crate::core::storage::Storage;

/// An open response.
pub(super) struct Following {
    pub(super) reader: Reader,
    opened: usize,
    caught_up: bool,
    pub(super) ended: bool,
}

fn at(place: usize) -> Cursor {
    Cursor::new(place as u64).unwrap()
}

fn terminal(outcome: Outcome) -> Terminal {
    match outcome {
        Outcome::Completed => Terminal::Completed,
        Outcome::Interrupted => Terminal::Interrupted,
        Outcome::Failed(code) => Terminal::Failed(code),
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
                match (fact, said) {
                    (None, Terminal::Dropped) => {}
                    (Some(run), said) => {
                        assert_eq!(run.outcome.map(terminal), Some(said), "a running run never ends a response");
                        assert_eq!(place(reader.cursor()), run.end.max(*opened), "everything before the terminal");
                    }
                    (None, said) => panic!("{said:?} of an unknown run"),
                }
                false
            }
            Next::Wait => {
                let starting = matches!(reader.scope(), Scope::Run(id) if view.awaits(id));
                let beyond = reader.cursor() > view.durable() && reader.cursor() <= view.stored();
                if !starting && !beyond {
                    assert_eq!(shown.map(|run| run.status), Some(RunStatus::Running));
                    assert_eq!(reader.cursor(), view.durable());
                }
                false
            }
        }
    }
}

//! The world's producers outside. Each run has one script, by its numbers, that every process which claims the run knows: one begins where
//! another was killed, sends again what may be stored already, or too much at once. Several claim the same run.

use super::model::{Deed, Facts, Item, Run, quoted};
use super::producers::chunk;
use super::pushed::{Committed, Ending};
use super::world::{POLICY, World, fence_of, lease_of};
use crate::core::command::{Effects, WriteRefused};
use crate::core::error::Code;
use crate::core::ids::{Cursor, RunId};
use crate::core::log::Ticket;
use crate::core::record::{Commit, Record};
use crate::core::run::{Fence, Outcome, RunStatus};
use crate::core::session::Session;
use crate::core::session::push::PushCommit;
use crate::core::storage::Storage;

/// What a producer is told to say next.
#[derive(Clone, Debug)]
pub enum Word {
    /// A chunk with so much padding.
    Chunk(usize),
    /// A commit at the head, of one message.
    Fold,
    /// A commit so far behind the head (-1 is beyond it), of so many messages, with a state or not.
    Commit { back: i64, messages: usize, state: bool },
}

/// What stands in its script.
#[derive(Clone, Debug)]
pub enum Said {
    Chunk(String),
    Commit { back: i64, messages: Vec<String>, state: Option<String> },
    End { outcome: Outcome, closing: Vec<String>, fold: Option<Option<String>>, result: Option<String> },
}

fn records(chunks: &[String]) -> Vec<Record> {
    chunks.iter().map(|text| Record::Chunk { chunk: chunk(text), attempt: None }).collect()
}

impl World {
    fn run_of(&self, id: &RunId) -> Option<&Run> {
        self.model.latest().runs.iter().find(|run| run.id == *id)
    }

    pub(super) fn is_outside(&self, id: &RunId) -> bool {
        self.scripts.contains_key(id)
    }

    /// Some process claims the run of a fence.
    pub fn claim(&mut self, back: usize) {
        let Some(Fence { run, .. }) = self.fence(back) else { return };
        let (before, mut facts) = (self.state(), self.model.latest().clone());
        let claimed = self.session.claim_again(self.now, &run, None);
        let last = facts.runs.last_mut().filter(|last| last.id == run && last.push.is_some());
        let refusal = match last.as_ref().map(|last| last.status) {
            None => Some(WriteRefused::Superseded),
            Some(RunStatus::Running) => None,
            Some(_) => Some(WriteRefused::Ended),
        };
        let Ok((fence, effects)) = claimed else {
            assert_eq!((claimed.err(), self.state()), (refusal, before));
            return;
        };
        assert_eq!(refusal, None);
        let last = last.unwrap();
        let old = fence_of(last);
        last.epoch += 1;
        last.lease = self.now.after(lease_of(last));
        assert_eq!(fence, fence_of(last));
        self.lease_until = last.lease;
        assert_eq!(self.session.append(&old, &[]), Err(WriteRefused::StaleEpoch(fence.epoch)), "fenced off at once");
        self.fences.push(fence);
        self.apply(&effects, facts);
    }

    fn write_down(&mut self, run: &RunId, word: &Word) {
        let (back, messages, state) = match *word {
            Word::Chunk(padding) => {
                let text = self.fresh(padding);
                return self.scripts.entry(run.clone()).or_default().push(Said::Chunk(text));
            }
            Word::Fold => (0, 1, false),
            Word::Commit { back, messages, state } => (back, messages, state),
        };
        let messages = (0..messages).map(|_| self.fresh(0)).collect();
        let state = state.then(|| quoted(&self.fresh(0)));
        self.scripts.entry(run.clone()).or_default().push(Said::Commit { back, messages, state });
    }

    /// Sends what the run's script says from `offset` numbers after the expected one; the script grows by `words` and an end if it is
    /// too short.
    pub fn send(&mut self, fence: &Fence, offset: i64, words: &[Word], outcome: Option<Outcome>) {
        let run = &fence.run;
        if !self.is_outside(run) {
            return;
        }
        let expected = self.run_of(run).and_then(|run| run.push.as_ref()).map_or(0, |push| push.taken);
        let first = expected.saturating_add_signed(offset);
        let ended = |script: &[Said]| matches!(script.last(), Some(Said::End { .. }));
        let until = usize::try_from(first).unwrap() + words.len();
        for at in 0.. {
            let script = &self.scripts[run];
            if ended(script) || script.len() >= until {
                break;
            }
            self.write_down(run, words.get(at % words.len().max(1)).unwrap_or(&Word::Chunk(0)));
        }
        let mut until = until;
        if let Some(outcome) = outcome
            && !ended(&self.scripts[run])
            && self.scripts[run].len() == until
        {
            let closing: Vec<_> = (0..words.len() % 2).map(|_| self.fresh(0)).collect();
            let fold = (words.len() != 2).then(|| (words.len() == 3).then(|| quoted(&self.fresh(0))));
            let result = (outcome == Outcome::Completed).then(|| quoted(&self.fresh(0)));
            self.scripts.entry(run.clone()).or_default().push(Said::End { outcome, closing, fold, result });
        }
        let script = self.scripts[run].clone();
        if ended(&script) {
            until += 1;
        }
        let first_at = usize::try_from(first).unwrap().min(script.len());
        self.deliver(fence, first, &script[first_at..until.clamp(first_at, script.len())]);
    }

    /// The whole script once more, by the process that holds the run: what is stored is skipped, the rest follows.
    pub(super) fn send_all_again(&mut self) {
        let Some(run) = self.model.latest().running().filter(|run| run.push.is_some()) else { return };
        let (fence, script) = (fence_of(run), self.scripts[&run.id].clone());
        self.deliver(&fence, 0, &script);
    }

    fn deliver(&mut self, fence: &Fence, first: u64, said: &[Said]) {
        let (before, facts) = (self.state(), self.model.latest().clone());
        let numbers = |facts: &Facts| facts.runs.last().unwrap().push.as_ref().unwrap().taken;
        let refusal = facts.refusal(fence, &Deed::Append).or_else(|| {
            let expected = numbers(&facts);
            (first > expected).then_some(WriteRefused::Gap(expected))
        });
        let taken = match (self.session.taken(fence, first), refusal) {
            (Ok(taken), None) => taken,
            (taken, refusal) => {
                assert_eq!((taken.err(), self.state()), (refusal, before), "a refused request changes nothing");
                return;
            }
        };
        assert_eq!(first + taken, numbers(&facts));
        self.session.renew(self.now, fence);
        self.lease_until = self.now.after(lease_of(facts.running().unwrap()));
        let mut rest = said.get(usize::try_from(taken).unwrap()..).unwrap_or_default();
        while let Some(next) = rest.first() {
            let chunk = |said: &Said| if let Said::Chunk(text) = said { Some(text.clone()) } else { None };
            let chunks: Vec<_> = rest.iter().map_while(chunk).collect();
            let goes_on = match (next, rest.get(chunks.len())) {
                (Said::Commit { back, messages, state }, _) => {
                    rest = &rest[1..];
                    self.commit(fence, *back, messages, state.as_ref())
                }
                // The last chunks in one request with the end, or the end alone.
                (_, Some(Said::End { outcome, closing, fold, result })) if chunks.is_empty() || said.len() % 2 == 1 => {
                    let (closing, fold, result) = (closing.clone(), fold.clone(), result.clone());
                    return self.conclude(fence, Ending { outcome: *outcome, chunks, closing, fold, result });
                }
                _ => {
                    rest = &rest[chunks.len()..];
                    self.take(fence, &chunks)
                }
            };
            if !goes_on || self.holder().as_ref() != Some(fence) {
                return;
            }
            assert_eq!(self.session.expected(fence), Ok(numbers(self.model.latest())));
        }
    }

    fn take(&mut self, fence: &Fence, chunks: &[String]) -> bool {
        let before = self.state();
        let effects = self.session.append(fence, &records(chunks));
        let Some(effects) = self.with_room(fence, &before, effects) else {
            let retried = self.has_room_again(fence);
            return retried && self.take(fence, chunks);
        };
        let mut facts = self.model.latest().clone();
        facts.take(chunks);
        assert_eq!(effects.chunks, chunks.len() as u64);
        self.apply(&effects, facts)
    }

    /// `None` when room has to be made first.
    fn with_room(&mut self, fence: &Fence, before: &str, effects: Result<Effects, WriteRefused>) -> Option<Effects> {
        match effects {
            Ok(effects) => Some(effects),
            Err(WriteRefused::NoRoom { wanted }) => {
                assert_eq!(self.state(), before, "a write that finds no room changes nothing");
                if self.retain(wanted) && self.stored_bytes() + wanted > POLICY.max_bytes {
                    let error = Item::Chunk(self.fresh(0));
                    self.write_items(fence, &[error], &Deed::Finish(Outcome::Failed(Code::StateSessionFull)));
                }
                None
            }
            Err(refused) => panic!("{refused:?}"),
        }
    }

    fn has_room_again(&self, fence: &Fence) -> bool {
        self.holder().as_ref() == Some(fence) && self.session.log().size().is_some()
    }

    fn commit(&mut self, fence: &Fence, back: i64, messages: &[String], state: Option<&String>) -> bool {
        let (before, mut facts) = (self.state(), self.model.latest().clone());
        let run = facts.runs.last().unwrap();
        let through = i64::try_from(facts.chunks.len()).unwrap() - back;
        let through = usize::try_from(through).unwrap_or(0);
        let number = run.push.as_ref().unwrap().taken;
        let name = |at: usize, text: &str| if at == 0 { run.message.clone() } else { format!("m{text}") };
        let roles = ["assistant", "user", "system"];
        let messages: Vec<_> = messages
            .iter()
            .enumerate()
            .map(|(at, text)| (name(at, text), roles[at % roles.len()], quoted(text)))
            .collect();
        let commit = PushCommit {
            through: Cursor::new(through as u64).unwrap(),
            messages: messages.iter().map(|(id, role, json)| (id.clone(), (*role).to_owned(), json.clone())).collect(),
            state: state.cloned(),
            step_count: 1,
            calls: Vec::new(),
        };
        let effects = self.session.commit(self.now, fence, commit);
        if !facts.is_place(through) {
            let (floor, head) = (facts.cursor() as u64, facts.chunks.len() as u64);
            let refused = WriteRefused::Place(Cursor::new(floor).unwrap(), Cursor::new(head).unwrap());
            assert_eq!((effects.unwrap_err(), self.state()), (refused, before));
            // It has taken no number: the producer says something else.
            let script = self.scripts.get_mut(&fence.run).unwrap();
            script.truncate(usize::try_from(number).unwrap());
            return false;
        }
        facts.commit(Committed { through, messages, state: state.cloned() }, self.lease_until);
        self.lease_until = self.now.after(lease_of(facts.runs.last().unwrap()));
        let effects = effects.unwrap();
        assert_eq!(effects.chunks, 0);
        self.apply(&effects, facts)
    }

    fn conclude(&mut self, fence: &Fence, ending: Ending) {
        let (before, mut facts) = (self.state(), self.model.latest().clone());
        let number = facts.runs.last().unwrap().push.as_ref().unwrap().taken + ending.chunks.len() as u64;
        facts.conclude(ending.clone(), self.now, self.lease_until);
        let mut last = records(&[ending.chunks.clone(), ending.closing.clone()].concat());
        if let Some(state) = &ending.fold {
            let reply = facts.messages.get(facts.runs.last().unwrap().reply);
            let message = serde_json::from_str(reply.map_or("\"\"", |message| &message.json)).unwrap();
            last.push(Record::Commit(Commit { message, step_count: 1, state: state.clone() }));
        }
        assert!(!self.session.has_said(fence, number), "not yet");
        let gap = self.session.finish_pushed(self.now, fence, ending.outcome, &last, (number + 9, None));
        assert!(matches!(gap, Err(WriteRefused::Gap(_))));
        let told = (number, ending.result.clone());
        let effects = self.session.finish_pushed(self.now, fence, ending.outcome, &last, told);
        let Some(effects) = self.with_room(fence, &before, effects) else {
            if self.has_room_again(fence) {
                self.conclude(fence, ending);
            }
            return;
        };
        assert!(self.session.has_said(fence, number) && !self.session.has_said(fence, number + 1));
        self.apply(&effects, facts);
    }

    /// Numbers and fences of the run that is current, and each script as far as it was taken.
    pub(super) fn check_producers_outside(&self, facts: &Facts) {
        assert_eq!(self.session.pushed_run(&self.caller, &RunId::new("stranger")).is_ok(), facts.exists);
        for (at, (row, run)) in self.storage.runs().iter().zip(&facts.runs).enumerate() {
            assert_eq!(row.push.is_some(), run.push.is_some());
            let (Some(row), Some(push)) = (&row.push, &run.push) else { continue };
            assert_eq!((row.lease, &row.result), (push.lease, &push.result));
            self.check_script(facts, run, push.taken);
            if at + 1 == facts.runs.len() {
                self.check_numbers(run, push.taken, push.noted);
            }
        }
    }

    /// Nothing is lost, nothing doubled: the run's chunks are its opening and its script, as far as that was taken.
    fn check_script(&self, facts: &Facts, run: &Run, taken: u64) {
        let script = self.scripts[&run.id].iter().take(usize::try_from(taken).unwrap());
        let said = script.filter_map(|said| if let Said::Chunk(text) = said { Some(text) } else { None });
        let mut stored = facts.chunks.iter().filter(|(id, _)| *id == run.id).skip(run.opening).map(|(_, text)| text);
        assert!(said.into_iter().all(|text| stored.next() == Some(text)));
        let more = stored.count();
        assert!(run.end.is_some() || more == 0, "only an end adds to what the producer has said");
    }

    fn check_numbers(&self, run: &Run, taken: u64, noted: u64) {
        let (fence, stale) = (fence_of(run), Fence { epoch: run.epoch + 1, run: run.id.clone() });
        let again = Session::load(self.storage.load().unwrap(), POLICY, false, Ticket::FIRST);
        let running = run.status == RunStatus::Running;
        let expected = if running { Ok(taken) } else { Err(WriteRefused::Ended) };
        for session in [&self.session, &again] {
            assert_eq!(session.expected(&fence), expected);
            assert_eq!(session.taken(&stale, 0), Err(WriteRefused::StaleEpoch(run.epoch)));
            for number in [noted.saturating_sub(1), noted] {
                assert_eq!(session.has_said(&fence, number), !running && number < noted);
                assert!(!session.has_said(&stale, number));
            }
            assert_eq!(session.pushed_run(&self.caller, &run.id).unwrap().map(|row| &row.id), Some(&run.id));
        }
    }
}

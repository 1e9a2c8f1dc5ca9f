//! The messages that wait: each is answered in its order, or given up so that whoever waits learns of it.

use super::entries::Wish;
use super::examples::{LEASE, NOW, POLICY, at, chunk, me, send, start, started, wish};
use super::model::quoted;
use super::readers::Following;
use super::world::{World, place};
use crate::core::caller::Caller;
use crate::core::command::{Displacement, LastWords, StartRefused, Started};
use crate::core::error::Code;
use crate::core::ids::{Cursor, MessageId, RunId};
use crate::core::log::Ticket;
use crate::core::reader::{Next, Reader, Scope, Terminal};
use crate::core::run::{Outcome, OwnPause, RunStatus};
use crate::core::session::Session;
use crate::core::storage::double::Double;
use crate::core::storage::{QueuedRow, Storage};
use crate::core::time::{Millis, UnixMillis};

/// A message that waits, as the model knows it.
#[derive(Clone, Debug)]
pub struct Waiting {
    pub place: u32,
    pub message: String,
    pub run: RunId,
    pub queued: UnixMillis,
    pub json: String,
}

fn row(waiting: &Waiting) -> QueuedRow {
    QueuedRow {
        place: waiting.place,
        message: MessageId::new(&*waiting.message),
        run: waiting.run.clone(),
        agent: "default".into(),
        request_key: None,
        input_hash: "hash".into(),
        origin: None,
        queued: waiting.queued,
        json: waiting.json.clone(),
    }
}

impl World {
    /// A message joins the queue, or takes the place of one that waits.
    pub fn enqueue(&mut self, replaced: Option<usize>) {
        let (before, mut facts) = (self.state(), self.model.latest().clone());
        let text = self.fresh(0);
        let known = replaced.and_then(|which| facts.queue.get(which % facts.queue.len().max(1)).cloned());
        let waiting = Waiting {
            place: known.as_ref().map_or(self.session.next_place(), |known| known.place),
            message: format!("u{text}"),
            run: known.as_ref().map_or_else(|| RunId::new(format!("r{text}")), |known| known.run.clone()),
            queued: self.now,
            json: quoted(&text),
        };
        assert!(self.session.enqueue(&Caller::Anonymous, row(&waiting)).is_err(), "not yours");
        let effects = self.session.enqueue(&self.caller, row(&waiting));
        if facts.live().is_none() {
            assert!(effects.is_err());
            assert_eq!(self.state(), before, "a refused message changes nothing");
            return;
        }
        match facts.queue.iter_mut().find(|known| known.place == waiting.place) {
            Some(known) => *known = waiting,
            None => facts.queue.push(waiting),
        }
        self.apply_keeping_orphan(&effects.unwrap(), facts);
    }

    /// The next message is answered, if it is time.
    pub fn go_on(&mut self) -> bool {
        let first = self.model.latest().queue.first().filter(|_| self.model.latest().live().is_none()).cloned();
        assert_eq!(self.session.next_queued().map(|next| &next.run), first.as_ref().map(|first| &first.run));
        let Some(first) = first else { return false };
        assert_eq!(self.storage.queued(first.place).unwrap().as_deref(), Some(&*first.json));
        self.start(
            &Wish::Queued { place: first.place, message: first.message, json: first.json, run: first.run },
            None,
            1,
            None,
        );
        true
    }

    pub fn clear_queue(&mut self) {
        let mut facts = self.model.latest().clone();
        let cleared = self.session.clear_queue();
        assert_eq!(cleared.is_some(), !facts.queue.is_empty());
        let Some((effects, messages)) = cleared else { return };
        let waiting: Vec<_> = facts.queue.drain(..).map(|waiting| waiting.message).collect();
        assert_eq!(messages.iter().map(MessageId::as_str).collect::<Vec<_>>(), waiting);
        self.apply_keeping_orphan(&effects, facts);
    }

    /// A response that waits for a run in the queue.
    pub fn open_queued(&mut self, which: usize) {
        let queue = &self.model.latest().queue;
        let Some(waiting) = queue.get(which % queue.len().max(1)) else { return };
        let mut reader = Reader::open(Scope::Run(waiting.run.clone()), Cursor::START, self.session.view());
        let opened = place(reader.cursor());
        assert_eq!(reader.next(self.session.view()), Next::Wait, "it waits");
        reader.announced();
        self.readers.push(Following { opened, reader, caught_up: true, ended: false });
    }

    pub(super) fn check_queue(&self) {
        let queue = &self.model.latest().queue;
        let known: Vec<_> =
            self.session.queue().iter().map(|row| (row.place, row.message.as_str(), &row.run)).collect();
        let facts: Vec<_> = queue.iter().map(|waiting| (waiting.place, &*waiting.message, &waiting.run)).collect();
        assert_eq!(known, facts);
        assert!(known.is_sorted(), "in their order");
        for waiting in queue {
            assert_eq!(self.storage.queued(waiting.place).unwrap().as_deref(), Some(&*waiting.json));
            assert!(self.session.view().awaits(&waiting.run), "its responses wait");
        }
        let rows = self.storage.counts().unwrap().into_iter().find(|(table, _)| table == "queued");
        assert_eq!(rows.map_or(0, |(_, rows)| rows), queue.len() as u64, "no row beyond the queue");
    }
}

fn waiting(session: &Session, id: &str) -> QueuedRow {
    let (run, json) = (RunId::new(format!("q-{id}")), format!("{{\"id\":\"{id}\"}}"));
    row(&Waiting { place: session.next_place(), message: id.into(), run, queued: NOW, json })
}

pub(super) fn enqueue(storage: &Double, session: &mut Session, id: &str) {
    let row = waiting(session, id);
    let effects = session.enqueue(&me(), row).unwrap();
    storage.apply(&effects.writes).unwrap();
    session.confirmed(effects.ticket);
}

fn start_queued(session: &mut Session, run: &str, id: &str) -> Result<Started, StartRefused> {
    let plan = session.plan_queued(wish(&me(), run, send(id)))?;
    session.start(plan, &[chunk("run_started")])
}

#[test]
fn messages_wait_for_a_live_run_and_are_answered_in_their_order() {
    let (storage, mut session, fence) = started();
    enqueue(&storage, &mut session, "u2");
    enqueue(&storage, &mut session, "u3");
    assert_eq!((session.next_queued(), session.message_count()), (None, 1), "no part of the conversation");
    assert!(start_queued(&mut session, "q-u2", "u2").is_err(), "one reply at a time");
    let effects = session.finish(NOW, &fence, Outcome::Failed(Code::ProviderError), &[]).unwrap();
    storage.apply(&effects.writes).unwrap();
    assert_eq!(
        session.next_queued().map(|next| next.message.as_str()),
        Some("u2"),
        "a failure does not stop the queue"
    );
    assert_eq!(session.alarm(NOW), Some(NOW), "nobody else may come");
    let before = format!("{session:?}");
    assert_eq!(start_queued(&mut session, "q-u3", "u3").unwrap_err(), StartRefused::Conflict, "not the first");
    assert_eq!(format!("{session:?}"), before);
    let next = start_queued(&mut session, "q-u2", "u2").unwrap();
    storage.apply(&next.effects.writes).unwrap();
    let reloaded = Session::load(storage.load().unwrap(), POLICY, true, Ticket::FIRST);
    assert_eq!(reloaded.queue().iter().map(|row| row.message.as_str()).collect::<Vec<_>>(), ["u3"]);
    assert_eq!(reloaded.message_count(), 2, "U1, which nobody answered, and U2");
}

#[test]
fn a_run_that_waits_for_clients_or_for_itself_keeps_the_queue_waiting() {
    for outcome in [Outcome::Suspended, Outcome::Paused(OwnPause::AwaitingChildren)] {
        let (storage, mut session, fence) = started();
        enqueue(&storage, &mut session, "u2");
        session.finish(NOW, &fence, outcome, &[]).unwrap();
        assert_eq!(session.next_queued(), None, "{outcome:?}");
        session.finish(NOW, &fence, Outcome::Interrupted, &[]).unwrap();
        assert!(session.next_queued().is_some());
    }
}

#[test]
fn nothing_waits_where_nothing_runs() {
    let mut session = Session::load(None, POLICY, false, Ticket::FIRST);
    let row = waiting(&session, "u1");
    assert_eq!(session.enqueue(&me(), row).unwrap_err().code(), Code::StateSessionNotFound);
    let (_, mut session, fence) = started();
    session.finish(NOW, &fence, Outcome::Completed, &[]).unwrap();
    let row = waiting(&session, "u2");
    assert_eq!(session.enqueue(&me(), row), Err(StartRefused::Conflict));
}

#[test]
fn an_edit_of_a_waiting_message_takes_its_place_and_its_run() {
    let (storage, mut session, _) = started();
    enqueue(&storage, &mut session, "u2");
    enqueue(&storage, &mut session, "u3");
    let edited = QueuedRow { message: MessageId::new("u2b"), json: "{}".into(), ..waiting(&session, "u2") };
    let edited = QueuedRow { place: 1, ..edited };
    let effects = session.enqueue(&me(), edited.clone()).unwrap();
    storage.apply(&effects.writes).unwrap();
    let ids: Vec<_> = session.queue().iter().map(|row| row.message.as_str()).collect();
    assert_eq!((ids, storage.queued(1).unwrap().as_deref()), (vec!["u2b", "u3"], Some("{}")));
    let stranger = QueuedRow { run: RunId::new("another"), ..edited };
    assert_eq!(session.enqueue(&me(), stranger), Err(StartRefused::Conflict), "who waits for the run waits on");
}

#[test]
fn what_is_given_up_ends_the_responses_that_wait_for_it_once_that_is_durable() {
    let (storage, mut session, _) = started();
    enqueue(&storage, &mut session, "u2");
    let run = RunId::new("q-u2");
    let reader = Reader::open(Scope::Run(run.clone()), at(0), session.view());
    assert_eq!(reader.next(session.view()), Next::Wait);
    let (effects, messages) = session.clear_queue().unwrap();
    assert_eq!(messages, [MessageId::new("u2")]);
    storage.apply(&effects.writes).unwrap();
    assert_eq!((reader.next(session.view()), storage.queued(1).unwrap()), (Next::Wait, None));
    session.confirmed(effects.ticket);
    assert_eq!(reader.next(session.view()), Next::End(Terminal::Failed(Code::StateQueueCleared)));
    assert!(session.clear_queue().is_none());
}

#[test]
fn an_idle_session_waits_for_its_youngest_message() {
    let (storage, _, fence) = started();
    let policy = crate::core::retention::Policy { ttl: Some(Millis::new(1_000)), ..POLICY };
    let mut session = Session::load(storage.load().unwrap(), policy, true, Ticket::FIRST);
    session.retain(NOW, &storage.kept(at(0)).unwrap(), 0);
    session.finish(NOW, &fence, Outcome::Suspended, &[]).unwrap();
    let late = NOW.after(LEASE).after(Millis::new(500));
    assert!(session.expired(late.after(Millis::new(600))));
    let row = QueuedRow { queued: late, ..waiting(&session, "u2") };
    session.enqueue(&me(), row).unwrap();
    assert!(!session.expired(late.after(Millis::new(600))) && session.expired(late.after(Millis::new(1_000))));
}

#[test]
fn an_interrupt_leaves_the_queue_behind_it() {
    let (storage, mut session, fence) = started();
    enqueue(&storage, &mut session, "u2");
    let refused = start(&mut session, "r2", &[]).unwrap_err();
    assert_eq!(refused, StartRefused::AlreadyRunning(RunId::new("r1")));
    let last = LastWords { fence: &fence, records: &[chunk("partial")], displacement: Displacement::Interrupted };
    let plan = session.plan_instead(&last, wish(&me(), "r2", send("u3"))).unwrap();
    assert_eq!(plan.opening().displaced, None, "it ends, and the conversation grows behind it");
    let next = session.start(plan, &[chunk("run_started")]).unwrap();
    assert_eq!((next.start, next.superseded, next.effects.chunks), (at(2), None, 2));
    storage.apply(&next.effects.writes).unwrap();
    assert_eq!(
        storage.run(&fence.run).unwrap().map(|run| (run.status, run.end)),
        Some((RunStatus::Interrupted, Some(at(2))))
    );
    assert_eq!(session.view().run().map(|run| run.id.as_str()), Some("r1"), "neither is shown before both are durable");
    session.confirmed(next.effects.ticket);
    let view = session.view();
    assert_eq!(view.find(&fence.run).map(|run| run.status), Some(RunStatus::Interrupted));
    assert_eq!(view.run().map(|run| (run.id.as_str(), run.status)), Some(("r2", RunStatus::Running)));
    // Who follows the session goes on, who follows the run is told.
    let mut stream = Reader::open(Scope::Stream, at(3), view);
    stream.announced();
    assert_eq!(stream.next(view), Next::Wait);
    let mut follower = Reader::open(Scope::Run(fence.run), at(2), view);
    follower.announced();
    assert_eq!(follower.next(view), Next::End(Terminal::Interrupted));
    assert_eq!(session.queue().len(), 1);
}

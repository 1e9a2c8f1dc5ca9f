//! One object over the storage double, and what its clients have got, for the tests of this room.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::call::SessionCall;
use super::deployment::Deployment;
use super::engine::SessionEngine;
use super::response::{Dialect, Opening};
use super::turn::{Rows, SessionTurn};
use crate::core::caller::Caller;
use crate::core::chunk::Chunk;
use crate::core::command::{Effects, Entry, Input, Start};
use crate::core::config::Settings;
use crate::core::engine::action::Action;
use crate::core::engine::cycle::{Cycle, Surroundings};
use crate::core::engine::entropy::Entropy;
use crate::core::engine::event::Event;
use crate::core::engine::ids::Exchange;
use crate::core::ids::{Cursor, MessageId, RunId};
use crate::core::log::Ticket;
use crate::core::reader::{Reader, Scope};
use crate::core::record::Record;
use crate::core::run::{Outcome, Vocabulary};
use crate::core::session::Session;
use crate::core::storage::StorageError;
use crate::core::storage::double::Double;
use crate::core::time::{Millis, UnixMillis};
use crate::dialect::ui::lens::Lens;
use crate::dialect::ui::vocabulary::Floor;
use crate::model::agent::Agents;

pub const NOW: UnixMillis = UnixMillis::new(1_000_000);

/// What every test response begins with.
pub const PREFIX: &str = "prefix;";

struct Words(u64);

impl Entropy for Words {
    fn word(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }
}

pub struct Object {
    pub engine: SessionEngine,
    pub cycle: Cycle<SessionCall>,
    pub storage: Double,
    pub now: UnixMillis,
    /// What clients have got.
    pub clients: BTreeMap<u64, Client>,
    unconfirmed: Option<Ticket>,
}

/// What one client has got.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Client {
    pub status: Option<u16>,
    pub got: String,
    pub end: Option<End>,
    /// Whether the last give has said that there is more.
    pub more: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum End {
    Closed,
    Broken,
    Answered,
}

fn client(clients: &mut BTreeMap<u64, Client>, exchange: Exchange) -> &mut Client {
    clients.entry(exchange.get()).or_default()
}

impl Object {
    pub fn new() -> Self {
        Self::with(&[])
    }

    /// An object of a deployment with these settings.
    pub fn with(settings: &[(&str, &str)]) -> Self {
        let read = |name: &str| settings.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        let deployment = Rc::new(Deployment {
            settings: Settings::read(read).unwrap(),
            agents: Agents::parse(r#"{"default":{"producer":"demo"}}"#).unwrap(),
            floor: Floor::default(),
        });
        let engine = SessionEngine::new(deployment, "s".into());
        let (cycle, clients) = (Cycle::default(), BTreeMap::new());
        Self { engine, cycle, storage: Double::new(), now: NOW, clients, unconfirmed: None }
    }

    pub fn turn<T>(&mut self, deed: impl FnOnce(&mut SessionEngine, &mut SessionTurn<'_>) -> T) -> (T, Vec<Action>) {
        let surroundings = Surroundings { now: self.now, storage: &self.storage as &Rows, entropy: &mut Words(0) };
        let (mut done, mut deed) = (None, Some(deed));
        let actions = self.cycle.turn_with(&mut self.engine, surroundings, &mut |engine, turn| {
            done = deed.take().map(|deed| deed(engine, turn));
        });
        actions.iter().for_each(|action| self.sees(action));
        (done.unwrap(), actions)
    }

    pub fn tell(&mut self, event: Event<SessionCall>) -> Vec<Action> {
        self.cycle.tell(event);
        self.turn(|_, _| ()).1
    }

    fn sees(&mut self, action: &Action) {
        let clients = &mut self.clients;
        match action {
            Action::Sync(ticket) => self.unconfirmed = Some(*ticket),
            Action::Open { exchange, head, .. } => client(clients, *exchange).status = Some(head.status),
            Action::Give { to, bytes, more } => {
                for exchange in to {
                    let client = client(clients, *exchange);
                    assert!(client.status.is_some() && client.end.is_none(), "{exchange:?} is not open");
                    client.got.push_str(std::str::from_utf8(bytes).unwrap());
                    client.more = *more;
                }
            }
            Action::Close(exchange) => client(clients, *exchange).end = Some(End::Closed),
            Action::Break(exchange) => client(clients, *exchange).end = Some(End::Broken),
            Action::Answer { exchange, answer, .. } => {
                client(clients, *exchange).status = Some(answer.status);
                client(clients, *exchange).end = Some(End::Answered);
            }
            _ => {}
        }
    }

    /// What was written is durable.
    pub fn confirm(&mut self) -> Vec<Action> {
        self.storage.sync();
        let ticket = self.unconfirmed.take().expect("a ticket that waits");
        self.tell(Event::Durable(ticket))
    }

    /// Starts a run.
    pub fn start(&mut self) -> (Result<(), StorageError>, Vec<Action>) {
        let now = self.now;
        self.turn(|engine, turn| {
            let effects = begun(engine, now, turn.storage);
            engine.persist(&effects, turn)
        })
    }

    /// A command of the session's, stored and not yet durable.
    pub fn store(&mut self, command: impl FnOnce(&mut Session) -> Effects) -> Vec<Action> {
        let now = self.now;
        let (stored, actions) = self.turn(|engine, turn| {
            let effects = command(engine.session(now, turn.storage).unwrap());
            engine.persist(&effects, turn)
        });
        stored.unwrap();
        actions
    }

    /// One chunk per text, stored and not yet durable.
    pub fn append(&mut self, texts: &[&str]) -> Vec<Action> {
        let chunk = |text: &&str| Chunk::new("text-delta").with("id", "t").with("delta", *text);
        let record = |text| Record::Chunk { chunk: chunk(text), attempt: None };
        let records: Vec<Record> = texts.iter().map(record).collect();
        self.store(|session| {
            let fence = session.run().unwrap().fence();
            session.append(&fence, &records).unwrap()
        })
    }

    /// Ends the run, not yet durable.
    pub fn finish(&mut self, outcome: Outcome) -> Vec<Action> {
        let now = self.now;
        self.store(|session| {
            let fence = session.run().unwrap().fence();
            session.finish(now, &fence, outcome, &[]).unwrap()
        })
    }

    pub fn published(&mut self) -> Cursor {
        self.engine.session(self.now, &self.storage).unwrap().view().durable()
    }

    /// A response of this number follows the log from a cursor.
    pub fn follow(&mut self, number: u64, dialect: Dialect, from: u64) -> Vec<Action> {
        self.follow_with(number, dialect, from, |opening| opening)
    }

    /// The same with an opening of its own.
    pub fn follow_with(
        &mut self,
        number: u64,
        dialect: Dialect,
        from: u64,
        change: impl FnOnce(Opening) -> Opening,
    ) -> Vec<Action> {
        let scope = match dialect {
            Dialect::Wire => Scope::Stream,
            Dialect::Chat => Scope::Run(RunId::new("r")),
        };
        let session = self.engine.session(self.now, &self.storage).unwrap();
        let reader = Reader::open(scope, Cursor::new(from).unwrap(), session.view());
        let opening = change(Opening {
            dialect,
            reader,
            lens: Lens::default(),
            projector: None,
            prefix: PREFIX.into(),
            finish_sent: false,
            content_sent: false,
            holds_lead: false,
            held: false,
        });
        let exchange = Exchange::new(number);
        self.cycle.adopts(exchange);
        let (opened, actions) = self.turn(|engine, turn| engine.open_reader(exchange, opening, turn));
        opened.unwrap();
        actions
    }

    /// These responses have room.
    pub fn room(&mut self, numbers: &[u64]) -> Vec<Action> {
        numbers.iter().for_each(|number| self.cycle.tell(Event::Room(Exchange::new(*number))));
        self.turn(|_, _| ()).1
    }

    /// These have room again and again, until they are given nothing more.
    pub fn read(&mut self, numbers: &[u64]) {
        while self.room(numbers).iter().any(|action| matches!(action, Action::Give { .. })) {}
    }

    pub fn client(&self, number: u64) -> &Client {
        self.clients.get(&number).expect("a client that was told something")
    }

    /// What a client has got behind the prefix.
    pub fn got(&self, number: u64) -> &str {
        self.client(number).got.strip_prefix(PREFIX).expect("the prefix comes first")
    }

    /// Time passes, and the timer fires.
    pub fn after(&mut self, ms: u64) -> Vec<Action> {
        self.now = self.now.after(Millis::new(ms));
        self.tell(Event::Timer)
    }
}

/// What the start of a first run comes to.
pub fn begun(engine: &mut SessionEngine, now: UnixMillis, storage: &Rows) -> Effects {
    let session = engine.session(now, storage).unwrap();
    let input = Input { id: MessageId::new("u"), json: r#"{"id":"u"}"#.into() };
    let first = Record::Chunk { chunk: Chunk::new("data-first"), attempt: None };
    let start = Start {
        now,
        caller: &Caller::Anonymous,
        run: RunId::new("r"),
        salt: "salt",
        agent: "default",
        vocabulary: Vocabulary::Ui,
        lease: Millis::new(30_000),
        key: None,
        entry: Entry::Send { input, abandoned: None },
        push: None,
        state: None,
    };
    let plan = session.plan(start).unwrap();
    session.start(plan, &[first]).unwrap().effects
}

pub fn synced(actions: &[Action]) -> Option<Ticket> {
    actions.iter().find_map(|action| if let Action::Sync(ticket) = action { Some(*ticket) } else { None })
}

pub fn armed(actions: &[Action]) -> Option<UnixMillis> {
    actions.iter().find_map(|action| if let Action::Arm(at) = action { Some(*at) } else { None })
}

pub fn timed(actions: &[Action]) -> Option<UnixMillis> {
    actions.iter().find_map(|action| if let Action::Timer(at) = action { Some(*at) } else { None })
}

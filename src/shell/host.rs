//! One session's place in the runtime: its storage, its memory, and the order of write, confirmation and publication.
//!
//! Shared state is borrowed with `try_borrow` only, and never across an `await` or a call into JavaScript.

use std::cell::{RefCell, RefMut};
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::rc::{Rc, Weak};

use futures::FutureExt;
use futures::channel::oneshot;
use thiserror::Error;
use wasm_bindgen_futures::spawn_local;
use web_sys::Request;
use worker::{Env, Response};

use super::bindings::ObjectStorage;
use super::clock::now;
use super::heart::{Beside, Busy, Heart, done};
use super::lease_watch::LeaseWatch;
use super::production::{HeldRun, Production};
use super::queue::HandedOn;
use super::sql::ObjectConnection;
use super::stored::KnownAttempts;
use crate::core::command::Effects;
use crate::core::engine::Engine;
use crate::core::engine::ids::Exchange;
use crate::core::log::Ticket;
use crate::core::run::Fence;
use crate::core::session::{Session, keep_alive};
use crate::core::storage::sql::SqlStorage;
use crate::core::storage::{Storage, StorageError};
use crate::core::time::UnixMillis;
use crate::model::ui_route::request::Forwarded;
use crate::session::deployment::Deployment;
use crate::session::engine::{Passed, SessionEngine};
use crate::session::turn::Rows;

/// The session's memory could not be used in this turn.
#[derive(Debug, Error)]
pub enum HostError {
    /// Storage refused; the memory was thrown away.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// Somebody up the stack holds the memory.
    #[error("the session is in use")]
    Busy,
}

impl From<Busy> for HostError {
    fn from(_: Busy) -> Self {
        Self::Busy
    }
}

/// A response that the engine has opened and whose head is held.
pub struct Opened {
    /// Whose.
    pub request: Request,
    /// Its name.
    pub exchange: Exchange,
    /// What leaves.
    pub head: oneshot::Receiver<Response>,
}

/// One session in this object.
pub struct Host {
    /// The session's id.
    pub name: String,
    /// How log lines name it.
    pub log_name: String,
    /// The deployment's configuration.
    pub config: Rc<Deployment>,
    /// Secrets and bindings.
    pub env: Env,
    /// The session's rows.
    pub storage: Rc<SqlStorage<ObjectConnection>>,
    /// The engine in its loop.
    pub heart: Rc<Heart<SessionEngine>>,
    /// Responses whose heads are held.
    pub opened: RefCell<Vec<Opened>>,
    /// The producer that lives in this object, if one does.
    pub production: RefCell<Option<Production>>,
    /// The watch over the lease of whoever writes the run.
    pub lease_watch: RefCell<Option<LeaseWatch>>,
    /// A run whose first chunk a test holds back.
    pub held_run: RefCell<Option<HeldRun>>,
    /// What the last held answer's request hands on to a chat route. In memory only: with the object such a route's run dies too.
    pub held_forward: RefCell<Option<Forwarded>>,
    /// What is known of a run's attempts.
    pub attempts: RefCell<KnownAttempts>,
    object: ObjectStorage,
    /// Requests that answer once everything written before them is durable.
    waiting: RefCell<Vec<(Ticket, oneshot::Sender<()>)>>,
    /// Requests that wait for the log to move.
    watching: RefCell<Vec<oneshot::Sender<()>>>,
    /// A run whose words could not be stored.
    pub unstorable: RefCell<Option<Fence>>,
    /// What the requests of messages that wait hand on.
    pub handed_on: RefCell<HandedOn>,
}

impl Host {
    pub fn new(name: String, object: ObjectStorage, env: Env, deployment: Deployment) -> Rc<Self> {
        let config = Rc::new(deployment);
        let storage = Rc::new(SqlStorage::new(ObjectConnection::new(object.clone())));
        let engine = SessionEngine::new(Rc::clone(&config), name.clone());
        let log_name = engine.log_name().to_owned();
        let heart = Heart::new(engine, Rc::clone(&storage) as Rc<Rows>, object.clone());
        let host = Rc::new(Self {
            name,
            log_name,
            config,
            env,
            storage,
            heart: Rc::clone(&heart),
            opened: RefCell::default(),
            production: RefCell::new(None),
            lease_watch: RefCell::default(),
            held_run: RefCell::default(),
            held_forward: RefCell::default(),
            attempts: RefCell::default(),
            object,
            waiting: RefCell::default(),
            watching: RefCell::default(),
            unstorable: RefCell::default(),
            handed_on: RefCell::default(),
        });
        heart.stands_beside(Rc::new(Calls(Rc::downgrade(&host))));
        host
    }

    /// Runs one command against the session, loaded from its rows if need be. `command` must not call into JavaScript.
    pub fn session<T>(&self, command: impl FnOnce(&mut Session) -> T) -> Result<T, HostError> {
        self.read()?.loaded().map(command).ok_or(HostError::Busy)
    }

    /// The engine, its session loaded.
    // Apart from its callers, of which the bundle would otherwise hold one copy each.
    #[inline(never)]
    pub fn read(&self) -> Result<RefMut<'_, SessionEngine>, HostError> {
        let (now, producing) = (now(), self.is_producing());
        let mut engine = self.heart.engine()?;
        engine.producing = producing;
        engine.session(now, &*self.storage)?;
        Ok(engine)
    }

    fn is_producing(&self) -> bool {
        // Whoever changes the producer at this moment has one.
        self.production.try_borrow().map_or(true, |production| production.is_some())
    }

    /// Applies what a command decided, and publishes it once it is durable.
    pub fn persist(self: &Rc<Self>, effects: Effects) -> Result<(), HostError> {
        Ok(self.heart.turn(|engine, turn| engine.persist(&effects, turn))??)
    }

    /// Waits until everything written so far is durable. What is written meanwhile may be read as well: the platform holds a finished
    /// answer back until the writes before it are durable.
    pub async fn settled_writes(self: &Rc<Self>) -> Result<(), HostError> {
        self.session(|_| ())?;
        let Some(ticket) = self.heart.look(|engine, _| engine.unconfirmed())? else { return Ok(()) };
        let (done, confirmed) = oneshot::channel();
        self.waiting.try_borrow_mut().map_err(|_| HostError::Busy)?.push((ticket, done));
        confirmed.await.map_err(|_| StorageError::Failed("the writes were not confirmed".to_owned()).into())
    }

    /// Resolves when something has been published, or the memory thrown away.
    pub fn moved(&self) -> oneshot::Receiver<()> {
        let (moves, moved) = oneshot::channel();
        if let Ok(mut watching) = self.watching.try_borrow_mut() {
            watching.retain(|watcher: &oneshot::Sender<()>| !watcher.is_canceled());
            watching.push(moves);
        }
        moved
    }

    fn wake_watchers(&self) {
        let watching = self.watching.try_borrow_mut().map(|mut watching| std::mem::take(&mut *watching));
        for watcher in watching.unwrap_or_default() {
            let _ = watcher.send(());
        }
    }

    /// Forgets the session in memory; the next command reads it from its rows again.
    pub fn throw_away(self: &Rc<Self>) {
        let _ = self.heart.turn(|engine, _| engine.throw_away());
    }

    /// The memory was thrown away, and with it what was known from its rows.
    fn forget(&self) {
        if let Ok(mut known) = self.attempts.try_borrow_mut() {
            *known = None;
        }
        self.wake_watchers();
    }

    /// Runs a task of this object. A panic in it costs the memory, not the object.
    pub fn spawn(self: &Rc<Self>, task: impl Future<Output = ()> + 'static) {
        let host = Rc::clone(self);
        spawn_local(async move {
            if AssertUnwindSafe(task).catch_unwind().await.is_err() {
                host.throw_away();
            }
        });
    }

    /// Arms the object's one alarm, unless it is armed for then or earlier.
    pub fn arm(self: &Rc<Self>, at: Option<UnixMillis>) {
        if let Some(at) = at {
            let _ = self.heart.turn(|engine, turn| engine.arm(at, turn));
        }
    }

    /// The alarm rang: whatever is due is settled, and the next one armed last.
    pub async fn rang(self: &Rc<Self>) -> Result<(), HostError> {
        self.heart.look(|engine, _| engine.disarmed())?;
        self.watch_lease();
        let settled = match self.expire().await {
            Ok(()) => {
                let settled = self.settle_or_hear().await.and_then(|()| self.note_followers());
                settled
                    .and_then(|()| self.stop_detached())
                    .and_then(|()| self.answer_queued())
                    .and_then(|()| self.retain())
            }
            failed => failed,
        };
        let next = match &settled {
            Ok(()) => self.session(|session| session.alarm(now()))?,
            // Nobody mends it meanwhile: whoever asks next finds it so.
            Err(HostError::Storage(error)) if error.is_lasting() => None,
            // The runtime tries again a few times only.
            Err(_) => Some(now().after(keep_alive(self.config.settings.lease))),
        };
        self.arm(next);
        settled
    }

    /// Deletes everything, the file behind the tables included.
    pub async fn erase(self: &Rc<Self>) -> Result<(), HostError> {
        self.heart.look(|engine, _| engine.disarmed())?;
        let mut erased = done(self.object.delete_alarm()).await;
        erased = erased.and(done(self.object.delete_all()).await);
        if erased.is_err() {
            // A damaged file is told once more as it goes.
            self.storage.forget();
            let gone = done(self.object.delete_all()).await;
            erased = gone.or_else(|error| if self.storage.load() == Ok(None) { Ok(()) } else { Err(error) });
        }
        Ok(erased?)
    }

    /// What follows from what has happened to the memory.
    fn follow(self: &Rc<Self>, passed: Passed) {
        if passed.undurable {
            drop(self.waiting.try_borrow_mut().map(|mut waiting| std::mem::take(&mut *waiting)));
        }
        if !passed.durable {
            return;
        }
        let confirmed = |(ticket, _): &mut (Ticket, _)| passed.through.is_some_and(|through| *ticket <= through);
        let ready =
            self.waiting.try_borrow_mut().map(|mut waiting| waiting.extract_if(.., confirmed).collect::<Vec<_>>());
        for (_, done) in ready.unwrap_or_default() {
            let _ = done.send(());
        }
        self.wake_watchers();
        self.flushed();
        self.pump();
    }
}

/// The calls beside the engine.
struct Calls(Weak<Host>);

impl Beside<SessionEngine> for Calls {
    fn before(&self, engine: &mut SessionEngine, at_once: bool) {
        if let Some(host) = self.0.upgrade() {
            engine.producing = host.is_producing();
            engine.unfinished = !at_once;
        }
    }

    fn after(&self, heart: &Rc<Heart<SessionEngine>>, at_once: bool) {
        let Some(host) = self.0.upgrade() else { return };
        let passed = heart.look(|engine, _| (engine.take_passed(), engine.readers.take_changed()));
        let Ok((passed, followers_changed)) = passed else { return };
        if followers_changed {
            let told = Rc::clone(&host);
            host.spawn(async move { told.followers_changed() });
        }
        if passed.thrown {
            host.forget();
        }
        if !passed.durable && !passed.undurable {
            return;
        }
        if at_once {
            return host.follow(passed);
        }
        // Somebody up the stack is in the middle of something.
        let later = Rc::clone(&host);
        host.spawn(async move { later.follow(passed) });
    }
}

//! One session's place in the runtime: its storage, its memory, and the order of write, confirmation and publication.
//!
//! Shared state is borrowed with `try_borrow` only, and never across an `await` or a call into JavaScript.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;

use futures::FutureExt;
use futures::channel::oneshot;
use js_sys::Promise;
use thiserror::Error;
use wasm_bindgen::JsValue;
use wasm_bindgen_futures::{JsFuture, spawn_local};
use worker::{Env, console_error};

use super::admissions::KnownAdmission;
use super::bindings::{ObjectStorage, error_text};
use super::clock::{now, sleep};
use super::config::Config;
use super::lease_watch::LeaseWatch;
use super::production::{HeldRun, Production};
use super::queue::HandedOn;
use super::readers::Readers;
use super::sql::ObjectConnection;
use super::stored::KnownAttempts;
use crate::core::command::Effects;
use crate::core::counters::{Counters, add};
use crate::core::digest;
use crate::core::log::Ticket;
use crate::core::run::Fence;
use crate::core::session::{Session, keep_alive};
use crate::core::storage::sql::SqlStorage;
use crate::core::storage::{RunRow, Storage, StorageError};
use crate::core::time::{Millis, UnixMillis};
use crate::model::ui_route::request::Forwarded;

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

/// Pause before storage that did not confirm is asked again.
const SYNC_RETRY: Millis = Millis::new(1_000);

/// One session in this object.
pub struct Host {
    /// The session's id.
    pub name: String,
    /// How log lines name it.
    pub log_name: String,
    /// What this object has done since it was loaded.
    pub counters: RefCell<Counters>,
    /// The deployment's configuration.
    pub config: Config,
    /// Secrets and bindings.
    pub env: Env,
    /// The session's rows.
    pub storage: SqlStorage<ObjectConnection>,
    /// Open responses.
    pub readers: Readers,
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
    /// What is known of the run that a producer outside writes.
    pub known_admission: RefCell<KnownAdmission>,
    object: ObjectStorage,
    session: RefCell<Option<Session>>,
    /// Rises whenever the memory is thrown away: a ticket of an older memory confirms nothing.
    generation: Cell<u64>,
    /// The first ticket of the next memory.
    tickets: Cell<Ticket>,
    unconfirmed: Cell<Option<Ticket>>,
    syncing: Cell<bool>,
    /// Requests that answer once everything written before them is durable.
    waiting: RefCell<Vec<oneshot::Sender<()>>>,
    /// Requests that wait for the log to move.
    watching: RefCell<Vec<oneshot::Sender<()>>>,
    /// Nothing is published until the rows that a reload found are known to be durable.
    held: Cell<bool>,
    armed: Cell<Option<UnixMillis>>,
    /// A run whose words could not be stored.
    pub unstorable: RefCell<Option<Fence>>,
    /// What the requests of messages that wait hand on.
    pub handed_on: RefCell<HandedOn>,
}

impl Host {
    pub fn new(name: String, object: ObjectStorage, env: Env, config: Config) -> Rc<Self> {
        let log_name = if config.settings.log_session_ids { name.clone() } else { digest::short(&name) };
        Rc::new(Self {
            name,
            log_name,
            counters: RefCell::default(),
            config,
            env,
            storage: SqlStorage::new(ObjectConnection::new(object.clone())),
            readers: Readers::default(),
            production: RefCell::new(None),
            lease_watch: RefCell::default(),
            held_run: RefCell::default(),
            held_forward: RefCell::default(),
            attempts: RefCell::default(),
            known_admission: RefCell::default(),
            object,
            session: RefCell::new(None),
            generation: Cell::new(0),
            tickets: Cell::new(Ticket::FIRST),
            unconfirmed: Cell::new(None),
            syncing: Cell::new(false),
            waiting: RefCell::default(),
            watching: RefCell::default(),
            held: Cell::new(false),
            armed: Cell::new(None),
            unstorable: RefCell::default(),
            handed_on: RefCell::default(),
        })
    }

    /// Runs one command against the session, loaded from its rows if need be. `command` must not call into JavaScript.
    pub fn session<T>(&self, command: impl FnOnce(&mut Session) -> T) -> Result<T, HostError> {
        self.load()?;
        let mut slot = self.session.try_borrow_mut().map_err(|_| HostError::Busy)?;
        slot.as_mut().map(command).ok_or(HostError::Busy)
    }

    // Apart from its callers, of which the bundle would otherwise hold one copy each.
    #[inline(never)]
    fn load(&self) -> Result<(), HostError> {
        let loaded = self.session.try_borrow().map_err(|_| HostError::Busy)?.is_some();
        if !loaded {
            let stored = self.storage.load()?;
            let alive = self.production.try_borrow().is_ok_and(|production| production.is_some());
            let mut session = Session::load(stored, self.config.settings.policy(), alive, self.tickets.get());
            // Renewals are in memory only, so the rows know an old lease of a producer that is alive in this object, or outside.
            let lives = |run: &RunRow| alive || run.push.is_some();
            if let Some(run) = session.run().filter(|run| lives(run)) {
                let fence = run.fence();
                session.renew(now(), &fence);
            }
            *self.session.try_borrow_mut().map_err(|_| HostError::Busy)? = Some(session);
        }
        Ok(())
    }

    /// Applies what a command decided, and publishes it once it is durable.
    pub fn persist(self: &Rc<Self>, effects: Effects) -> Result<(), HostError> {
        if let Err(error) = self.storage.apply(&effects.writes) {
            console_error!("session {}: {error}", self.log_name);
            self.throw_away();
            return Err(error.into());
        }
        self.count(|counters| {
            add(&mut counters.flushes, 1);
            add(&mut counters.appended, effects.chunks);
        });
        self.unconfirmed.set(Some(effects.ticket));
        self.confirm_soon();
        Ok(())
    }

    /// Whether readers must wait for storage before they are given anything.
    pub fn is_held(&self) -> bool {
        self.held.get()
    }

    /// Waits until everything written so far is durable. What is written meanwhile may be read as well: the platform holds a finished
    /// answer back until the writes before it are durable.
    pub async fn settled_writes(self: &Rc<Self>) -> Result<(), HostError> {
        if !self.held.get() && !self.session(|session| session.is_unconfirmed())? {
            return Ok(());
        }
        let (done, confirmed) = oneshot::channel();
        self.waiting.try_borrow_mut().map_err(|_| HostError::Busy)?.push(done);
        self.confirm_soon();
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
        self.generation.set(self.generation.get().wrapping_add(1));
        self.storage.forget();
        self.forget_admission();
        if let Ok(mut known) = self.attempts.try_borrow_mut() {
            *known = None;
        }
        if let Ok(mut slot) = self.session.try_borrow_mut()
            && let Some(session) = slot.take()
        {
            self.tickets.set(session.next_ticket());
        }
        self.held.set(true);
        self.unconfirmed.set(None);
        self.wake_watchers();
        self.confirm_soon();
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
        let Some(at) = at else { return };
        if self.armed.get().is_some_and(|armed| armed <= at) {
            return;
        }
        self.armed.set(Some(at));
        self.storage.connection().count_alarm();
        match self.object.set_alarm(at.get() as f64) {
            Ok(promise) => {
                let host = Rc::clone(self);
                spawn_local(async move {
                    if let Err(error) = JsFuture::from(promise).await {
                        host.not_armed(&error);
                    }
                });
            }
            Err(error) => self.not_armed(&error),
        }
    }

    fn not_armed(&self, error: &JsValue) {
        self.armed.set(None);
        console_error!("session {}: the alarm was not set: {}", self.log_name, error_text(error));
    }

    /// The alarm rang: whatever is due is settled, and the next one armed last.
    pub async fn rang(self: &Rc<Self>) -> Result<(), HostError> {
        self.armed.set(None);
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
        self.armed.set(None);
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

    fn is_awaited(&self) -> bool {
        self.waiting.try_borrow().is_ok_and(|waiting| !waiting.is_empty())
    }

    async fn sync(&self) -> Result<(), StorageError> {
        done(self.object.sync()).await
    }

    /// One task confirms for everybody: all writes of a turn share one `sync`.
    fn confirm_soon(self: &Rc<Self>) {
        if self.syncing.replace(true) {
            return;
        }
        let host = Rc::clone(self);
        spawn_local(async move {
            // Whatever panics in a round costs the memory and nobody's confirmation: the next round starts from the rows.
            while AssertUnwindSafe(host.confirm()).catch_unwind().await.is_err() {
                host.throw_away();
            }
            host.syncing.set(false);
        });
    }

    async fn confirm(self: &Rc<Self>) {
        let host = self;
        while host.held.get() || host.unconfirmed.get().is_some() || host.is_awaited() {
            let generation = host.generation.get();
            let ticket = host.unconfirmed.take();
            let waiting = host.waiting.try_borrow_mut().map(|mut waiting| std::mem::take(&mut *waiting));
            if let Err(error) = host.sync().await {
                console_error!("session {}: {error}", host.log_name);
                host.evict_all();
                host.throw_away();
                sleep(SYNC_RETRY).await;
                continue;
            }
            if host.generation.get() == generation {
                host.held.set(false);
                if let Some(ticket) = ticket {
                    let _ = host.session(|session| session.confirmed(ticket));
                }
            }
            for done in waiting.unwrap_or_default() {
                let _ = done.send(());
            }
            host.wake_watchers();
            host.flushed();
            host.drain();
            host.pump();
        }
    }
}

/// Waits for what the storage has promised.
async fn done(promised: Result<Promise, JsValue>) -> Result<(), StorageError> {
    let outcome = match promised {
        Ok(promise) => JsFuture::from(promise).await,
        Err(error) => Err(error),
    };
    outcome.map(|_| ()).map_err(|error| StorageError::told(error_text(&error)))
}

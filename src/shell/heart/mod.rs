//! The loop around one engine: it tells what happened, lets turns follow, and carries out what they say. It knows no session.
//!
//! * [`act`]: carrying out actions: storage's confirmation, the alarm, the timer, log lines.
//! * [`exchange`]: a request's body in, its response out, and its client's leaving.
//!
//! The engine is borrowed for the length of a turn, and actions are carried out without a borrow: one may call back into the object.

mod act;
mod exchange;

use std::cell::{Cell, RefCell, RefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use js_sys::Promise;
use thiserror::Error;
use wasm_bindgen::JsValue;
use wasm_bindgen_futures::{JsFuture, spawn_local};

use super::bindings::{ObjectStorage, error_text};
use super::clock::{Random, now};
use crate::core::engine::action::Action;
use crate::core::engine::cycle::{Cycle, Surroundings};
use crate::core::engine::event::Event;
use crate::core::engine::{Engine, Turn};
use crate::core::storage::StorageError;
use act::Timer;
use exchange::Channels;
pub use exchange::response;

/// What stands beside an engine and is told of its turns: the calls that are not its own yet.
pub trait Beside<E> {
    /// A turn is about to begin. `at_once`: nobody is up the stack.
    fn before(&self, engine: &mut E, at_once: bool);
    /// A turn is over and its actions are under way. `at_once`: nobody is up the stack.
    fn after(&self, heart: &Rc<Heart<E>>, at_once: bool)
    where
        E: Engine;
}

/// The engine is in a turn already.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("the engine is in use")]
pub struct Busy;

/// One engine in this object.
pub struct Heart<E: Engine> {
    engine: RefCell<E>,
    cycle: RefCell<Cycle<E::Call>>,
    storage: Rc<E::Storage>,
    object: ObjectStorage,
    beside: RefCell<Option<Rc<dyn Beside<E>>>>,
    /// Whether a turn will follow what is ready at this moment.
    scheduled: Cell<bool>,
    timer: RefCell<Option<Timer>>,
    channels: Channels,
}

impl<E: Engine + 'static> Heart<E> {
    /// A heart around this engine.
    pub fn new(engine: E, storage: Rc<E::Storage>, object: ObjectStorage) -> Rc<Self> {
        Rc::new(Self {
            engine: RefCell::new(engine),
            cycle: RefCell::default(),
            storage,
            object,
            beside: RefCell::default(),
            scheduled: Cell::new(false),
            timer: RefCell::default(),
            channels: Channels::default(),
        })
    }

    /// Who is told of turns.
    pub fn stands_beside(&self, beside: Rc<dyn Beside<E>>) {
        if let Ok(mut slot) = self.beside.try_borrow_mut() {
            *slot = Some(beside);
        }
    }

    fn beside(&self) -> Option<Rc<dyn Beside<E>>> {
        self.beside.try_borrow().ok().and_then(|slot| slot.clone())
    }

    /// The engine between turns. Whoever holds it must not call into JavaScript, storage apart.
    ///
    /// # Errors
    /// [`Busy`].
    pub fn engine(&self) -> Result<RefMut<'_, E>, Busy> {
        self.engine.try_borrow_mut().map_err(|_| Busy)
    }

    /// Looks at the engine between turns. `look` must not call into JavaScript, storage apart.
    ///
    /// # Errors
    /// [`Busy`].
    pub fn look<T>(&self, look: impl FnOnce(&mut E, &E::Storage) -> T) -> Result<T, Busy> {
        Ok(look(&mut *self.engine()?, &self.storage))
    }

    /// Something happened. A turn follows, once everything that is ready has been told.
    pub fn tell(self: &Rc<Self>, event: Event<E::Call>) {
        self.tell_quietly(event);
        self.soon();
    }

    /// Something happened that is worth no turn of its own.
    fn tell_quietly(&self, event: Event<E::Call>) {
        if let Ok(mut cycle) = self.cycle.try_borrow_mut() {
            cycle.tell(event);
        }
    }

    /// What was told is heard now. Not from within a turn.
    fn turn_at_once(self: &Rc<Self>) {
        match catch_unwind(AssertUnwindSafe(|| self.make_turn(&mut |_, _| (), true))) {
            Ok(Ok(())) => {}
            Ok(Err(Busy)) => self.soon(),
            Err(_) => self.panicked(),
        }
    }

    /// Lets a turn follow what is ready at this moment.
    pub fn soon(self: &Rc<Self>) {
        if self.scheduled.replace(true) {
            return;
        }
        let heart = Rc::clone(self);
        spawn_local(async move {
            heart.scheduled.set(false);
            heart.turn_at_once();
        });
    }

    /// One turn at once, with a deed of the caller's own behind what was told. `deed` must not call into JavaScript, storage apart.
    ///
    /// # Errors
    /// [`Busy`].
    pub fn turn<T>(self: &Rc<Self>, deed: impl FnOnce(&mut E, &mut Turn<'_, E::Storage>) -> T) -> Result<T, Busy> {
        let (mut done, mut deed) = (None, Some(deed));
        self.make_turn(&mut |engine, turn| done = deed.take().map(|deed| deed(engine, turn)), false)?;
        // What the caller writes until it gives way is confirmed together.
        self.soon();
        done.ok_or(Busy)
    }

    fn make_turn(
        self: &Rc<Self>,
        deed: &mut dyn FnMut(&mut E, &mut Turn<'_, E::Storage>),
        at_once: bool,
    ) -> Result<(), Busy> {
        let beside = self.beside();
        let actions = {
            let mut engine = self.engine.try_borrow_mut().map_err(|_| Busy)?;
            let mut cycle = self.cycle.try_borrow_mut().map_err(|_| Busy)?;
            if let Some(beside) = &beside {
                beside.before(&mut engine, at_once);
            }
            let surroundings = Surroundings { now: now(), storage: &*self.storage, entropy: &mut Random };
            cycle.turn_with(&mut *engine, surroundings, deed)
        };
        self.carry_out(actions);
        if let Some(beside) = beside {
            beside.after(self, at_once);
        }
        Ok(())
    }

    /// A turn has panicked: its image is thrown away, and a turn follows in which the engine goes on from its rows.
    pub fn panicked(self: &Rc<Self>) {
        let actions = match (self.engine.try_borrow_mut(), self.cycle.try_borrow_mut()) {
            (Ok(mut engine), Ok(mut cycle)) => cycle.panicked(&mut *engine),
            _ => Vec::new(),
        };
        self.carry_out(actions);
        self.soon();
    }

    fn carry_out(self: &Rc<Self>, actions: Vec<Action>) {
        actions.into_iter().for_each(|action| self.act(action));
    }
}

/// Waits for what the storage has promised.
pub async fn done(promised: Result<Promise, JsValue>) -> Result<(), StorageError> {
    let outcome = match promised {
        Ok(promise) => JsFuture::from(promise).await,
        Err(error) => Err(error),
    };
    outcome.map(|_| ()).map_err(|error| StorageError::told(error_text(&error)))
}

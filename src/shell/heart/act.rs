//! Carrying out what a turn has said.

use std::rc::Rc;

use futures::future::{AbortHandle, Abortable};
use wasm_bindgen_futures::spawn_local;
use worker::{console_error, console_log};

use super::{Heart, done};
use crate::core::engine::Engine;
use crate::core::engine::action::{Action, Level};
use crate::core::engine::event::Event;
use crate::core::log::Ticket;
use crate::core::time::UnixMillis;
use crate::shell::clock::{now, sleep};

/// The one timer that is set. Dropping it clears it.
pub struct Timer(AbortHandle);

impl Drop for Timer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<E: Engine + 'static> Heart<E> {
    pub(super) fn act(self: &Rc<Self>, action: Action) {
        match action {
            Action::Arm(at) => self.arm(at),
            Action::Sync(ticket) => self.sync(ticket),
            Action::Timer(at) => self.set_timer(at),
            Action::Log(Level::Told, line) => console_log!("{}", words(&line)),
            Action::Log(Level::Wrong, line) => console_error!("{}", words(&line)),
            Action::Open { exchange, head, .. } => self.open(exchange, head),
            Action::Give { to, bytes, .. } => self.give(&to, &bytes),
            Action::Close(exchange) => self.close(exchange),
            Action::Break(exchange) => self.break_off(exchange),
            Action::Answer { exchange, answer, .. } => self.answer(exchange, answer),
            Action::Take { exchange, want } => self.take(exchange, want),
            Action::Erase | Action::Fetch { .. } | Action::ReadOn(_) | Action::Abort(_) => {
                console_error!("no engine here does that yet");
            }
        }
    }

    fn arm(self: &Rc<Self>, at: UnixMillis) {
        let promised = self.object.set_alarm(at.get() as f64);
        let heart = Rc::clone(self);
        spawn_local(async move {
            if let Err(error) = done(promised).await {
                heart.tell(Event::NotArmed(error.to_string()));
            }
        });
    }

    fn sync(self: &Rc<Self>, ticket: Ticket) {
        let promised = self.object.sync();
        let heart = Rc::clone(self);
        spawn_local(async move {
            heart.tell(match done(promised).await {
                Ok(()) => Event::Durable(ticket),
                Err(error) => Event::NotDurable(error.to_string()),
            });
        });
    }

    fn set_timer(self: &Rc<Self>, at: UnixMillis) {
        let (task, aborted) = AbortHandle::new_pair();
        // The one that was set is cleared before this one runs.
        let before = self.timer.try_borrow_mut().ok().and_then(|mut slot| slot.replace(Timer(task)));
        drop(before);
        let heart = Rc::clone(self);
        let delay = at.since(now());
        spawn_local(async move {
            if Abortable::new(sleep(delay), aborted).await.is_ok() {
                heart.tell(Event::Timer);
            }
        });
    }
}

/// A line as the console shows it: words as they are, everything else as JSON.
fn words(line: &serde_json::Value) -> String {
    line.as_str().map_or_else(|| line.to_string(), str::to_owned)
}

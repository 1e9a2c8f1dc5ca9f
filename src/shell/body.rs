//! A response body bound by hand: a value stream whose `pull` only says that the client is hungry.
//!
//! High-water mark 0 and never `type: 'bytes'`, which would detach the buffer that readers share. `cancel` and the request's abort signal
//! both report a client that is gone; either may come first, or neither.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use js_sys::{Object, Reflect, Symbol};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::spawn_local;
use web_sys::{AbortSignal, QueuingStrategy, ReadableStream, ReadableStreamDefaultController, UnderlyingSource};

use super::clock::sleep;
use crate::core::time::Millis;

/// The writing end of a response body.
pub struct Body {
    pen: Rc<Pen>,
    abort: Option<(AbortSignal, Closure<dyn FnMut()>)>,
    /// Whether a pull is reported.
    listening: Rc<Cell<bool>>,
    _source: [Closure<dyn FnMut()>; 2],
}

/// Opens a body. `on_pull` is called when the client wants more and somebody listens, `on_gone` when it has left; neither may write to the
/// body itself.
pub fn open(
    signal: Option<AbortSignal>,
    on_pull: impl Fn() + 'static,
    on_gone: impl Fn() + Clone + 'static,
) -> Result<(ReadableStream, Body), JsValue> {
    let hungry = Rc::new(Cell::new(false));
    let started: Rc<RefCell<Option<ReadableStreamDefaultController>>> = Rc::default();

    let slot = Rc::clone(&started);
    let start: Closure<dyn FnMut(JsValue)> = Closure::own_assert_unwind_safe(move |controller: JsValue| {
        if let Ok(mut slot) = slot.try_borrow_mut() {
            *slot = Some(controller.unchecked_into());
        }
    });
    let listening = Rc::new(Cell::new(true));
    let (flag, listens) = (Rc::clone(&hungry), Rc::clone(&listening));
    let begun: Rc<Cell<Begun>> = Rc::default();
    let (seen, breaks) = (Rc::clone(&begun), Rc::clone(&started));
    let pull: Closure<dyn FnMut()> = Closure::own_assert_unwind_safe(move || {
        if seen.replace(Begun::Read) == Begun::Broken
            && let Ok(controller) = breaks.try_borrow()
            && let Some(controller) = controller.clone()
        {
            // What carries the response may still hold its head back.
            return spawn_local(async move {
                sleep(HEAD_START).await;
                fail(&controller);
            });
        }
        flag.set(true);
        if listens.get() {
            on_pull();
        }
    });
    let left = on_gone.clone();
    let cancel: Closure<dyn FnMut()> = Closure::own_assert_unwind_safe(left);

    let source = UnderlyingSource::new();
    source.set_start(start.as_ref().unchecked_ref());
    source.set_pull(pull.as_ref().unchecked_ref());
    source.set_cancel(cancel.as_ref().unchecked_ref());
    let strategy = QueuingStrategy::new();
    strategy.set_high_water_mark(0.0);
    let stream = ReadableStream::new_with_underlying_source_and_strategy(source.unchecked_ref(), &strategy)?;
    let controller = started
        .try_borrow()
        .ok()
        .and_then(|slot| slot.clone())
        .ok_or_else(|| JsValue::from_str("the stream did not start"))?;

    let abort = match signal {
        Some(signal) => {
            let listener: Closure<dyn FnMut()> = Closure::own_assert_unwind_safe(on_gone);
            signal.add_event_listener_with_callback("abort", listener.as_ref().unchecked_ref())?;
            Some((signal, listener))
        }
        None => None,
    };
    let pen = Rc::new(Pen { controller, hungry, begun });
    Ok((stream, Body { pen, abort, listening, _source: [pull, cancel] }))
}

impl Body {
    /// Whether the client has asked for more than it was given.
    pub fn is_hungry(&self) -> bool {
        self.pen.is_hungry()
    }

    /// Whether to report pulls from now on: not while the client has all there is.
    pub fn listen(&self, listening: bool) {
        self.listening.set(listening);
    }

    /// A handle for writing after every borrow has been dropped.
    pub fn pen(&self) -> Rc<Pen> {
        Rc::clone(&self.pen)
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        if let Some((signal, listener)) = &self.abort {
            let _ = signal.remove_event_listener_with_callback("abort", listener.as_ref().unchecked_ref());
        }
    }
}

/// How long the first bytes of a broken body have, to leave with their head.
const HEAD_START: Millis = Millis::new(50);

/// How a console names what breaks a body.
const ON_PURPOSE: &str = "body ended on purpose";

/// Writes to a body. A body whose client is gone takes every write in silence.
pub struct Pen {
    controller: ReadableStreamDefaultController,
    hungry: Rc<Cell<bool>>,
    begun: Rc<Cell<Begun>>,
}

/// Whether a body's first bytes were taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Begun {
    /// They wait.
    #[default]
    Unread,
    /// They wait, and what follows them is the end.
    Broken,
    /// They were, and more was asked for.
    Read,
}

/// Whatever breaks a body, a console calls it uncaught. Measured, this says least: what is `retryable` is a lost connection to the server,
/// which logs none; what is no `Error` has no stack; and the name tells an operator that it was meant.
fn fail(controller: &ReadableStreamDefaultController) {
    let lost: Object = Object::create(JsValue::NULL.unchecked_ref());
    let _ = Reflect::set(&lost, &JsValue::from_str("retryable"), &JsValue::TRUE);
    let _ = Reflect::set(&lost, &Symbol::to_string_tag(), &JsValue::from_str(ON_PURPOSE));
    controller.error_with_e(&lost);
}

impl Pen {
    /// Whether the client has asked for more than it was given.
    pub fn is_hungry(&self) -> bool {
        self.hungry.get()
    }

    /// Whether the stream itself wants more: it may have been pulled while chunks were still queued. If so it does not count as hungry
    /// until it is pulled again, once they are gone.
    pub fn has_room(&self) -> bool {
        let room = self.hungry.get() && self.controller.desired_size().is_some_and(|size| size >= 0.0);
        self.hungry.set(room);
        room
    }

    /// Hands over a buffer, which may be shared with other bodies.
    pub fn write(&self, bytes: &js_sys::Uint8Array) {
        self.hungry.set(false);
        let _ = self.controller.enqueue_with_chunk(bytes);
    }

    /// Ends the body cleanly.
    pub fn close(&self) {
        let _ = self.controller.close();
    }

    /// Breaks the body: the client sees a network error, never a clean end. Not before it has its first bytes: an error throws away what
    /// waits, and a body that breaks without a byte takes its response's head with it.
    pub fn break_off(&self) {
        if self.begun.get() == Begun::Read {
            fail(&self.controller);
        } else {
            self.begun.set(Begun::Broken);
        }
    }
}

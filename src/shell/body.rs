//! A response body bound by hand: a value stream whose `pull` only says that the client is hungry.
//!
//! High-water mark 0 and never `type: 'bytes'`, which would detach the buffer that readers share.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use js_sys::{Object, Reflect, Symbol};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::spawn_local;
use web_sys::{QueuingStrategy, ReadableStream, ReadableStreamDefaultController, UnderlyingSource};

use super::clock::sleep;
use crate::core::time::Millis;

/// A buffer up to this size, in bytes, is given to whoever has asked, without a look at what the stream still has queued: asking costs as much
/// as giving, and a stream asks at most once more than it has room.
const SMALL: usize = 16 * 1024;

/// The writing end of a response body.
pub struct Body {
    pen: Rc<Pen>,
    _source: [Closure<dyn FnMut()>; 2],
}

/// Opens a body. `on_pull` is called when the client wants more, `on_gone` when it has left; neither may write to the body itself.
pub fn open(on_pull: impl Fn() + 'static, on_gone: impl Fn() + 'static) -> Result<(ReadableStream, Body), JsValue> {
    let hungry = Rc::new(Cell::new(false));
    let started: Rc<RefCell<Option<ReadableStreamDefaultController>>> = Rc::default();

    let slot = Rc::clone(&started);
    let start: Closure<dyn FnMut(JsValue)> = Closure::own_assert_unwind_safe(move |controller: JsValue| {
        if let Ok(mut slot) = slot.try_borrow_mut() {
            *slot = Some(controller.unchecked_into());
        }
    });
    let large = Rc::new(Cell::new(false));
    let (flag, was_large) = (Rc::clone(&hungry), Rc::clone(&large));
    let begun: Rc<Cell<Begun>> = Rc::default();
    let (seen, breaks) = (Rc::clone(&begun), Rc::clone(&started));
    let pull: Closure<dyn FnMut()> = Closure::own_assert_unwind_safe(move || {
        let controller = || breaks.try_borrow().ok().and_then(|slot| slot.clone());
        if seen.replace(Begun::Read) == Begun::Broken
            && let Some(controller) = controller()
        {
            // What carries the response may still hold its head back.
            return spawn_local(async move {
                sleep(HEAD_START).await;
                fail(&controller);
            });
        }
        // It may be pulled while chunks are still queued; then it is pulled again once they are gone.
        let is_queued = |stream: ReadableStreamDefaultController| stream.desired_size().is_some_and(|size| size < 0.0);
        if was_large.get() && controller().is_some_and(is_queued) {
            return;
        }
        flag.set(true);
        on_pull();
    });
    let cancel: Closure<dyn FnMut()> = Closure::own_assert_unwind_safe(on_gone);

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

    let pen = Rc::new(Pen { controller, hungry, large, begun });
    Ok((stream, Body { pen, _source: [pull, cancel] }))
}

impl Body {
    /// A handle for writing after every borrow has been dropped.
    pub fn pen(&self) -> Rc<Pen> {
        Rc::clone(&self.pen)
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
    /// Whether the last buffer was a large one.
    large: Rc<Cell<bool>>,
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

    /// Hands over a buffer of this many bytes, which may be shared with other bodies.
    pub fn write(&self, bytes: &js_sys::Uint8Array, size: usize) {
        self.hungry.set(false);
        self.large.set(size > SMALL);
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

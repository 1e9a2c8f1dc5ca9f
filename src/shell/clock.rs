//! The clock, timers and randomness.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use js_sys::{Promise, Uint8Array};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;

use super::bindings::{clear_timeout, random_values, set_timeout};
use crate::core::engine::entropy::Entropy;
use crate::core::time::{Millis, UnixMillis};

/// The current time.
pub fn now() -> UnixMillis {
    UnixMillis::new(js_sys::Date::now() as u64)
}

/// Resolves once everything that is ready has had its turn.
pub async fn turn() {
    let _ = JsFuture::from(Promise::resolve(&JsValue::UNDEFINED)).await;
}

/// Random text of 16 hexadecimal digits per word.
pub fn random_text(words: usize) -> String {
    Random.text(words)
}

/// The runtime's randomness.
pub struct Random;

impl Entropy for Random {
    fn word(&mut self) -> u64 {
        let bytes = Uint8Array::new_with_length(8);
        // A runtime without randomness cannot run the object at all; the clock then keeps ids distinct within a session.
        if random_values(&bytes).is_err() {
            return now().get();
        }
        bytes.to_vec().iter().fold(0, |word, byte| (word << 8) | u64::from(*byte))
    }
}

#[derive(Default)]
struct Alarm {
    rang: bool,
    waker: Option<Waker>,
}

/// Resolves after a time; dropping it clears the timer, so that nothing keeps the object in memory.
pub struct Sleep {
    alarm: Rc<RefCell<Alarm>>,
    timer: Option<JsValue>,
    _callback: Closure<dyn FnMut()>,
}

/// Sleeps for `delay`.
pub fn sleep(delay: Millis) -> Sleep {
    let alarm = Rc::new(RefCell::new(Alarm::default()));
    let rings = Rc::downgrade(&alarm);
    let callback: Closure<dyn FnMut()> = Closure::own_assert_unwind_safe(move || {
        let waker = rings.upgrade().and_then(|alarm| {
            let mut alarm = alarm.try_borrow_mut().ok()?;
            alarm.rang = true;
            alarm.waker.take()
        });
        if let Some(waker) = waker {
            waker.wake();
        }
    });
    let timer = set_timeout(callback.as_ref().unchecked_ref(), delay.get() as f64).ok();
    Sleep { alarm, timer, _callback: callback }
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        match self.alarm.try_borrow_mut() {
            Ok(mut alarm) if !alarm.rang => {
                alarm.waker = Some(context.waker().clone());
                Poll::Pending
            }
            _ => Poll::Ready(()),
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(timer) = &self.timer {
            let _ = clear_timeout(timer);
        }
    }
}

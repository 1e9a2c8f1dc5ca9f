//! What the shell reads of a request: headers, and a body that is refused before it is buffered.

use std::cell::Cell;

use futures::channel::oneshot;
use futures::future::select;
use js_sys::Uint8Array;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;
use web_sys::{AbortSignal, ReadableStreamDefaultReader, Request};

use super::clock::sleep;
use super::incoming;
use crate::core::time::Millis;
use crate::dialect::cors;

/// Why a body was not read.
pub enum BodyError {
    /// Larger than the limit, in bytes; the size when the client declared it.
    TooLarge(Option<usize>),
    /// Sent as a type that cannot be JSON.
    NotJson,
    /// The client went away.
    Broken,
}

/// A header's value.
pub fn header(request: &Request, name: &str) -> Option<String> {
    request.headers().get(name).ok().flatten()
}

/// Whether the client understands resync events: it says so by a header that only such a client sends.
pub fn is_aware(request: &Request) -> bool {
    let headers = js_sys::try_iter(&request.headers().keys()).ok().flatten();
    let named = |name: String| {
        name.starts_with("x-helix-") || matches!(name.as_str(), "x-resume-from-sequence" | "last-event-id")
    };
    headers.into_iter().flatten().flatten().filter_map(|name| name.as_string()).any(named)
}

/// How much of a body that nobody reads is taken before the answer leaves. A client that is cut off while it sends loses the answer in most
/// HTTP stacks; one that holds its body back is answered all the same.
#[derive(Clone, Copy)]
pub struct Farewell {
    /// How long the client may send nothing.
    pause: Millis,
    /// So many pauses at most.
    pauses: u32,
    /// So many bytes at most.
    bytes: usize,
}

impl Farewell {
    /// Of a body that is sent as fast as the connection takes it.
    pub const WHOLE: Self = Self { pause: Millis::new(1_000), pauses: 60, bytes: 512 << 20 };
    /// Of a body that may go on for as long as its producer has something to say.
    pub const STREAMED: Self = Self { pause: Millis::new(300), pauses: 4, bytes: 512 << 20 };
}

/// Reads a JSON body of at most `limit` bytes. A declared size above it is refused unread, an undeclared one as soon as it is passed.
pub async fn body(request: &Request, limit: usize) -> Result<Vec<u8>, BodyError> {
    let bytes = whole(request, limit).await?;
    let unasked = header(request, "content-type").is_some_and(|kind| cors::is_sent_unasked(&kind));
    if unasked && !bytes.is_empty() { Err(BodyError::NotJson) } else { Ok(bytes) }
}

/// Reads a body of any type, as [`body`] reads one.
pub async fn whole(request: &Request, limit: usize) -> Result<Vec<u8>, BodyError> {
    let declared = header(request, "content-length").and_then(|text| text.trim().parse::<usize>().ok());
    let Some(stream) = request.body() else { return Ok(Vec::new()) };
    if let Some(size) = declared.filter(|size| *size > limit) {
        discard(&stream.get_reader().unchecked_into(), Farewell::WHOLE).await;
        return Err(BodyError::TooLarge(Some(size)));
    }
    if declared.is_some() {
        // The runtime holds the body to its declared length.
        let whole = request.array_buffer().map_err(|_| BodyError::Broken)?;
        let bytes = Uint8Array::new(&JsFuture::from(whole).await.map_err(|_| BodyError::Broken)?).to_vec();
        Ok(bytes)
    } else {
        let reader: ReadableStreamDefaultReader = stream.get_reader().unchecked_into();
        let mut bytes = Vec::new();
        while let Some(piece) = incoming::next(&reader).await.map_err(|_| BodyError::Broken)? {
            bytes.extend_from_slice(&piece);
            if bytes.len() > limit {
                discard(&reader, Farewell::WHOLE).await;
                return Err(BodyError::TooLarge(None));
            }
        }
        Ok(bytes)
    }
}

/// Takes what is still to come of a body that the answer does not need.
pub async fn take_rest(request: &Request) {
    if !request.body_used()
        && let Some(stream) = request.body().filter(|stream| !stream.locked())
    {
        discard(&stream.get_reader().unchecked_into(), Farewell::WHOLE).await;
    }
}

/// Takes the rest of a body while it arrives, and throws it away.
pub async fn discard(reader: &ReadableStreamDefaultReader, farewell: Farewell) {
    let taken = Cell::new(0_usize);
    let rest = Box::pin(async {
        while let Ok(Some(size)) = incoming::skip(reader).await
            && taken.replace(taken.get().saturating_add(size)) < farewell.bytes
        {}
    });
    let pauses = Box::pin(async {
        let mut known = 0;
        for _ in 0..farewell.pauses {
            sleep(farewell.pause).await;
            if taken.get() == std::mem::replace(&mut known, taken.get()) {
                break;
            }
        }
    });
    select(rest, pauses).await;
    // Whoever stands in front may otherwise wait for the rest of the body before it passes the answer on.
    let _ = reader.cancel();
}

/// Listens for the end of a request's signal. Dropping it takes the listener away.
pub struct Listening {
    signal: AbortSignal,
    listener: Closure<dyn FnMut()>,
}

impl Listening {
    /// Calls `leaves` when the client leaves. `None` when it has: an abort that came before the listener is never reported again.
    pub fn to(signal: AbortSignal, leaves: impl FnMut() + 'static) -> Option<Self> {
        if signal.aborted() {
            return None;
        }
        let listener: Closure<dyn FnMut()> = Closure::own_assert_unwind_safe(leaves);
        let _ = signal.add_event_listener_with_callback("abort", listener.as_ref().unchecked_ref());
        Some(Self { signal, listener })
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.signal.remove_event_listener_with_callback("abort", self.listener.as_ref().unchecked_ref());
    }
}

/// Resolves when the client leaves.
pub struct Leaving {
    _listening: Option<Listening>,
    left: oneshot::Receiver<()>,
}

impl Leaving {
    /// Listens to a request's signal.
    pub fn of(request: &Request) -> Self {
        let (leaves, left) = oneshot::channel::<()>();
        let mut leaves = Some(leaves);
        Self { _listening: Listening::to(request.signal(), move || drop(leaves.take())), left }
    }

    /// Waits for it.
    pub async fn left(&mut self) {
        let _ = (&mut self.left).await;
    }
}

//! Follows another session's stream, object to object: does what the follower says and tells it what came of it.

use serde_json::Value;
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::{JsFuture, spawn_local};
use web_sys::ReadableStreamDefaultReader;
use worker::{Env, console_error};

use super::clock::sleep;
use super::incoming;
use crate::core::ids::{Sequence, SessionId};
use crate::dialect::route::Call;
use crate::dialect::wire::follower::{Ending, FollowError, Follower, Open, Step};

/// Follows to the end. `each` gets every chunk once, in order; whoever stops early drops the future, which cancels the body. What had come
/// until then, `follower` knows: after an error that is retryable, a new one goes on from its cursor.
pub async fn follow(
    env: &Env,
    session: &SessionId,
    follower: &mut Follower,
    mut each: impl FnMut(Sequence, Value),
) -> Result<Ending, FollowError> {
    let mut body = Body(None);
    loop {
        match follower.step() {
            Step::Open(open) => {
                // The old body ends before the new one begins.
                body = Body(None);
                if open.pause.get() > 0 {
                    sleep(open.pause).await;
                }
                match connect(env, session, open).await {
                    Ok((status, opened)) => {
                        body = opened;
                        follower.opened(status);
                    }
                    Err(error) => {
                        console_error!("following session {}: {error}", session.as_str());
                        follower.unreached();
                    }
                }
            }
            Step::Read => match body.next().await {
                Ok(Some(bytes)) => follower.bytes(&bytes),
                Ok(None) => follower.ended(),
                Err(_) => follower.broke(),
            },
            Step::Chunk { sequence, chunk } => each(sequence, chunk),
            Step::CaughtUp => {}
            Step::Done(result) => return result,
        }
    }
}

async fn connect(env: &Env, session: &SessionId, open: Open) -> worker::Result<(u16, Body)> {
    let waits = u8::from(open.wait_for_live);
    let address = format!("https://session{}?fromSequence={}&waitForLive={waits}", Call::Sse.object_path(), open.from);
    let response = env.durable_object("SESSIONS")?.get_by_name(session.as_str())?.fetch_with_str(&address).await?;
    let response = web_sys::Response::from(response);
    let reader = response.body().map(|body| body.get_reader().unchecked_into());
    Ok((response.status(), Body(reader)))
}

/// A body that is cancelled when it is given up, unless it is over.
struct Body(Option<ReadableStreamDefaultReader>);

impl Body {
    async fn next(&mut self) -> Result<Option<Vec<u8>>, JsValue> {
        let Some(reader) = &self.0 else { return Ok(None) };
        let read = incoming::next(reader).await;
        if !matches!(read, Ok(Some(_))) {
            self.0 = None;
        }
        read
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        if let Some(reader) = &self.0 {
            let cancelled = JsFuture::from(reader.cancel());
            // A body that broke meanwhile rejects, which nobody needs to hear of.
            spawn_local(async move { drop(cancelled.await) });
        }
    }
}

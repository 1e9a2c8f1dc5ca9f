//! One outgoing request, and its body read to the end: for every producer that asks somebody else.

use futures::future::{Either, select};
use js_sys::Reflect;
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;
use web_sys::{AbortSignal, ReadableStreamDefaultReader, Response};
use worker::Env;

use super::{Job, Produced};
use crate::core::error::{Code, Failure};
use crate::core::pulse::{MUTE_LEASES, Pulse, Sign};
use crate::core::redact::{hide, quote, secrets_of};
use crate::core::run::Outcome;
use crate::core::time::{Millis, UnixMillis};
use crate::model::failure::{MAX_ERROR_BODY_BYTES, failure_of_response};
use crate::model::parts::Batch;
use crate::model::waits::{Headers, Waits, is_about_waiting};
use crate::shell::bindings::{self, Fetcher, error_text};
use crate::shell::clock::{now, sleep};
use crate::shell::incoming;

/// A POST, and the service binding that takes it instead of the network.
pub(super) struct Outgoing {
    pub address: String,
    pub binding: Option<Fetcher>,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

/// The translation of an answer's body.
pub(super) trait Reply {
    /// Reads the next bytes.
    fn push(&mut self, bytes: &[u8]) -> Batch;

    /// The body has ended, or broken.
    fn end(&mut self) -> Batch;

    /// How the reply ended, once it has.
    fn outcome(&self) -> Option<Outcome>;

    /// What an answer with another status than 200 stands for.
    fn refused(&self, refusal: &Refusal<'_>) -> Failure {
        let Refusal { status, content_type, heard, body } = *refusal;
        failure_of_response(status, content_type, heard, body)
    }

    /// How long the other side may say nothing while its connection stands. Without it the run's lease decides.
    fn silence(&self) -> Option<Millis> {
        None
    }

    /// That time is over.
    fn silent(&mut self) -> Batch {
        self.end()
    }
}

/// An answer with another status than 200.
#[derive(Clone, Copy)]
pub(super) struct Refusal<'a> {
    pub status: u16,
    pub content_type: Option<&'a str>,
    /// Its headers that may ask for a wait, and when it came.
    pub heard: Option<(&'a Headers, UnixMillis)>,
    /// The beginning of its body.
    pub body: &'a [u8],
}

/// Sends the request and feeds the run with what the answer says, until its end. A status other than 200 is a failure; a redirect is not
/// followed, because headers must not travel to another host.
pub(super) async fn relay(job: &Job, outgoing: Outgoing, reply: &mut dyn Reply) -> Produced {
    let secrets = secrets_of(&outgoing.address, &outgoing.headers);
    relayed(job, outgoing, reply).await.map_err(|failure| without(failure, &secrets))
}

/// The failure without what the request was sent with: some answers quote it.
pub(super) fn without(failure: Failure, secrets: &[String]) -> Failure {
    Failure { internal: hide(&quote(&failure.internal), secrets), ..failure }
}

async fn relayed(job: &Job, outgoing: Outgoing, reply: &mut dyn Reply) -> Produced {
    let mut until = patience(reply);
    let Some(response) = hear(job, until, post(outgoing, &job.signal)).await else {
        return Err(reply.silent().failure.unwrap_or_else(|| Failure::new(Code::ProviderTimeout, "no answer")));
    };
    let response = response.map_err(|error| Failure::new(Code::ProviderUnavailable, unreached(&error)))?;
    job.renew();
    if response.status() != 200 {
        return Err(refusal(&response, reply).await);
    }
    let mut reader = reader_of(&response);
    until = patience(reply);
    let mut pulse = Pulse::new(reply.silence().unwrap_or(job.host.config.settings.lease), now());
    loop {
        if let Some(outcome) = reply.outcome() {
            if let Some(reader) = &reader {
                let _ = reader.cancel();
            }
            return Ok(Some(outcome));
        }
        let batch = match hear(job, until, read(&mut reader)).await {
            None => reply.silent(),
            Some(Ok(Some(bytes))) => {
                let sign = pulse.heard(now(), &bytes);
                let batch = reply.push(&bytes);
                let is_silent = batch == Batch::default() && reply.outcome().is_none();
                match sign {
                    Sign::Mute if is_silent => mute(reply),
                    Sign::Nothing => batch,
                    Sign::Alive | Sign::Mute => {
                        until = patience(reply);
                        job.renew();
                        batch
                    }
                }
            }
            // A body that broke may have said all that it had to say.
            Some(Ok(None) | Err(_)) => reply.end(),
        };
        if !batch.chunks.is_empty() {
            pulse.spoke(now());
        }
        if !job.produce(batch.chunks) {
            return Ok(None);
        }
        if let Some(failure) = batch.failure {
            if let Some(reader) = &reader {
                let _ = reader.cancel();
            }
            return Err(failure);
        }
    }
}

/// The end of an answer that goes on without a word. One that had all its words is complete.
fn mute(reply: &mut dyn Reply) -> Batch {
    let Batch { chunks, failure } = reply.silent();
    let timeout = |failure| {
        Failure::new(
            Code::ProviderTimeout,
            format!("no word for {MUTE_LEASES} times as long as silence may last ({failure})"),
        )
    };
    Batch { chunks, failure: failure.map(timeout) }
}

/// Until when the other side may say nothing from here on; `None`: the run's lease decides.
fn patience(reply: &dyn Reply) -> Option<UnixMillis> {
    reply.silence().map(|silence| now().after(silence))
}

/// What the other side says, or `None` when it has said nothing until then. Meanwhile its standing connection is a sign of life: the run
/// keeps its lease.
async fn hear<T>(job: &Job, until: Option<UnixMillis>, said: impl Future<Output = T>) -> Option<T> {
    let Some(until) = until else { return Some(said.await) };
    let beat = Millis::new((job.host.config.settings.lease.get() / 3).max(1));
    let mut said = Box::pin(said);
    loop {
        let left = until.since(now());
        if left == Millis::default() {
            return None;
        }
        match select(said, sleep(left.min(beat))).await {
            Either::Left((said, _)) => return Some(said),
            Either::Right(((), still)) => {
                job.renew();
                said = still;
            }
        }
    }
}

/// Why nobody answered, for the log line.
pub(super) fn unreached(error: &JsValue) -> String {
    format!("no answer: {}", error_text(error))
}

/// The service binding of this name.
pub(super) fn binding(env: &Env, name: &str) -> Option<Fetcher> {
    let value = Reflect::get(env.unchecked_ref::<JsValue>(), &JsValue::from_str(name)).ok()?;
    let is_fetcher = value.is_object() && Reflect::get(&value, &JsValue::from_str("fetch")).ok()?.is_function();
    is_fetcher.then(|| value.unchecked_into())
}

/// What an answer that is no stream stands for.
async fn refusal(response: &Response, reply: &dyn Reply) -> Failure {
    let body = beginning(response).await;
    let kind = response.headers().get("content-type").ok().flatten();
    let headers = waits(response);
    let heard = Some((headers.as_slice(), now()));
    reply.refused(&Refusal { status: response.status(), content_type: kind.as_deref(), heard, body: &body })
}

/// The wait that an answer's headers ask for, in ms.
pub(super) fn retry_after(response: &Response) -> Option<u64> {
    Waits::of_headers(&waits(response), now()).asked
}

/// The headers that may ask for a wait, names in lower case.
fn waits(response: &Response) -> Vec<(String, String)> {
    let headers = response.headers();
    let names = js_sys::try_iter(&headers.keys()).ok().flatten();
    let names =
        names.into_iter().flatten().filter_map(|name| name.ok()?.as_string()).filter(|name| is_about_waiting(name));
    names.filter_map(|name| Some((name.clone(), headers.get(&name).ok().flatten()?))).collect()
}

/// What is looked at of a body that is no stream.
pub(super) async fn beginning(response: &Response) -> Vec<u8> {
    let mut reader = reader_of(response);
    let mut body = Vec::new();
    while let Ok(Some(bytes)) = read(&mut reader).await {
        body.extend_from_slice(&bytes);
        if body.len() >= MAX_ERROR_BODY_BYTES {
            break;
        }
    }
    body
}

fn reader_of(response: &Response) -> Option<ReadableStreamDefaultReader> {
    response.body().map(|body| body.get_reader().unchecked_into())
}

/// The body goes out of memory with this call.
pub(super) async fn post(outgoing: Outgoing, signal: &AbortSignal) -> Result<Response, JsValue> {
    let list = web_sys::Headers::new()?;
    for (name, value) in &outgoing.headers {
        list.set(name, value)?;
    }
    let init = web_sys::RequestInit::new();
    init.set_method("POST");
    init.set_headers(&list);
    init.set_body(&JsValue::from_str(&outgoing.body));
    init.set_signal(Some(signal));
    Reflect::set(&init, &JsValue::from_str("redirect"), &JsValue::from_str("manual"))?;
    let request = web_sys::Request::new_with_str_and_init(&outgoing.address, &init)?;
    let sent = match &outgoing.binding {
        Some(binding) => binding.fetch(&request)?,
        None => bindings::fetch(&request)?,
    };
    drop((init, outgoing));
    JsFuture::from(sent).await?.dyn_into()
}

/// The next bytes of a body; `None` at its end.
async fn read(reader: &mut Option<ReadableStreamDefaultReader>) -> Result<Option<Vec<u8>>, JsValue> {
    let Some(open) = reader else { return Ok(None) };
    let bytes = incoming::next(open).await?;
    if bytes.is_none() {
        *reader = None;
    }
    Ok(bytes)
}

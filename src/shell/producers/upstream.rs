//! One outgoing request, and its body read to the end: for every producer that asks somebody else.

use js_sys::Reflect;
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;
use web_sys::{AbortSignal, ReadableStreamDefaultReader, Response};
use worker::Env;

use super::{Job, Produced};
use crate::core::error::{Code, Failure};
use crate::core::run::Outcome;
use crate::model::failure::{MAX_ERROR_BODY_BYTES, failure_of_response, retry_after_ms};
use crate::model::parts::Batch;
use crate::model::redact::quote;
use crate::shell::bindings::{self, Fetcher, error_text};
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
}

/// Bytes of an event that is not whole yet which count as a sign of life. Fewer, without the end of a line, do not: who drips a byte a second
/// would never lapse.
const SIGN_OF_LIFE: usize = 1 << 10;

/// Sends the request and feeds the run with what the answer says, until its end. A status other than 200 is a failure; a redirect is not
/// followed, because headers must not travel to another host.
pub(super) async fn relay(job: &Job, outgoing: Outgoing, reply: &mut dyn Reply) -> Produced {
    let response = post(outgoing, &job.signal)
        .await
        .map_err(|error| Failure::new(Code::ProviderUnavailable, unreached(&error)))?;
    job.host.renew(&job.fence);
    let mut reader = response.body().map(|body| body.get_reader().unchecked_into::<ReadableStreamDefaultReader>());
    if response.status() != 200 {
        return Err(refusal(&response, &mut reader).await);
    }
    let mut waiting = 0_usize;
    loop {
        if let Some(outcome) = reply.outcome() {
            if let Some(reader) = &reader {
                let _ = reader.cancel();
            }
            return Ok(Some(outcome));
        }
        let batch = match read(&mut reader).await {
            Ok(Some(bytes)) => {
                waiting = waiting.saturating_add(bytes.len());
                if waiting >= SIGN_OF_LIFE || bytes.contains(&b'\n') {
                    waiting = 0;
                    job.host.renew(&job.fence);
                }
                reply.push(&bytes)
            }
            // A body that broke may have said all that it had to say.
            Ok(None) | Err(_) => reply.end(),
        };
        if !job.host.produce(&job.fence, batch.chunks) {
            return Ok(None);
        }
        if let Some(failure) = batch.failure {
            return Err(failure);
        }
    }
}

/// Why nobody answered, for the log line: without the query of an address, which may hold a key.
pub(super) fn unreached(error: &JsValue) -> String {
    let text = error_text(error);
    let words = text.split(' ').map(|word| word.split('?').next().unwrap_or_default());
    quote(&format!("no answer: {}", words.collect::<Vec<_>>().join(" ")))
}

/// The service binding of this name.
pub(super) fn binding(env: &Env, name: &str) -> Option<Fetcher> {
    let value = Reflect::get(env.unchecked_ref::<JsValue>(), &JsValue::from_str(name)).ok()?;
    let is_fetcher = value.is_object() && Reflect::get(&value, &JsValue::from_str("fetch")).ok()?.is_function();
    is_fetcher.then(|| value.unchecked_into())
}

/// What an answer that is no stream stands for.
async fn refusal(response: &Response, reader: &mut Option<ReadableStreamDefaultReader>) -> Failure {
    let header = |name: &str| response.headers().get(name).ok().flatten();
    let wait = retry_after_ms(header("retry-after").as_deref(), header("retry-after-ms").as_deref());
    let mut text = Vec::new();
    while let Ok(Some(bytes)) = read(reader).await {
        text.extend_from_slice(&bytes);
        if text.len() >= MAX_ERROR_BODY_BYTES {
            break;
        }
    }
    failure_of_response(response.status(), header("content-type").as_deref(), wait, &text)
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

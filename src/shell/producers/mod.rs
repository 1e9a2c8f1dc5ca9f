//! The producers that live inside the object, each a task that feeds [`Host::produce`] until its run is no longer its own.

use std::rc::Rc;

use js_sys::Uint8Array;
use serde_json::Value;
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;
use web_sys::{AbortSignal, ReadableStreamDefaultReader};

use super::bindings::{self, error_text};
use super::clock::sleep;
use super::config::variable;
use super::host::Host;
use crate::core::error::{Code, Failure};
use crate::core::run::Fence;
use crate::core::storage::Storage;
use crate::core::time::Millis;
use crate::model::agent::Agent;
use crate::model::demo::{DemoSettings, script};
use crate::model::failure::{failure_of_response, retry_after_ms};
use crate::model::openai::request::{endpoint, headers, request_body};
use crate::model::openai::settings::OpenAiSettings;
use crate::model::openai::stream::{CompletionStream, StreamOptions};

/// Most bytes of an error answer that are read.
const ERROR_BODY_BYTES: usize = 64 * 1024;

/// Starts the task that produces this run.
pub fn spawn(host: &Rc<Host>, fence: Fence, agent: &str, signal: AbortSignal) {
    let task = Rc::clone(host);
    let name = agent.to_owned();
    host.spawn(async move {
        let history = match history(&task) {
            Ok(history) => history,
            Err(failure) => return task.fail(&fence, &failure),
        };
        match task.config.agents.choose(Some(&name)) {
            Ok((_, Agent::Demo(settings))) => demo(&task, &fence, settings, &history).await,
            Ok((_, Agent::OpenAi(settings))) => match openai(&task, &fence, settings, &history, &signal).await {
                Ok(()) => task.complete(&fence),
                Err(failure) => task.fail(&fence, &failure),
            },
            Err(error) => task.fail(&fence, &error.failure()),
        }
    });
}

/// The committed conversation.
fn history(host: &Host) -> Result<Vec<Value>, Failure> {
    let broken = |error: &dyn std::fmt::Display| Failure::new(Code::FrameworkInternalError, error.to_string());
    let count = host.session(|session| session.message_count()).map_err(|error| broken(&error))?;
    let rows = host.storage.messages(count).map_err(|error| broken(&error))?;
    rows.iter().map(|row| serde_json::from_str(&row.json).map_err(|error| broken(&error))).collect()
}

/// Begins the ids of a run's parts and calls; short, because it stands on every delta.
fn id_prefix(host: &Host) -> String {
    let turn = host.session(|session| session.run().map_or(0, |run| run.turn)).unwrap_or_default();
    format!("r{turn}.")
}

async fn demo(host: &Rc<Host>, fence: &Fence, settings: &DemoSettings, history: &[Value]) {
    let asked = history.last().map(text_of).unwrap_or_default();
    let pace = u64::from(settings.pace_ms);
    let mut burst = Vec::new();
    for beat in script(&asked, &id_prefix(host), settings) {
        let wait = pace.saturating_mul(u64::from(beat.wait));
        if wait > 0 || burst.len() >= BURST {
            if !host.produce(fence, std::mem::take(&mut burst)) {
                return;
            }
            sleep(Millis::new(wait)).await;
        }
        burst.push(beat.chunk);
    }
    if host.produce(fence, burst) {
        host.complete(fence);
    }
}

/// Most chunks that the demo writes in one turn, so that a pace of 0 still lets others run.
const BURST: usize = 256;

/// The text parts of a UI message.
fn text_of(message: &Value) -> String {
    let parts = message.get("parts").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let texts: Vec<&str> = parts.iter().filter_map(|part| part.get("text").and_then(Value::as_str)).collect();
    texts.join("\n")
}

async fn openai(
    host: &Rc<Host>,
    fence: &Fence,
    settings: &OpenAiSettings,
    history: &[Value],
    signal: &AbortSignal,
) -> Result<(), Failure> {
    let key = match &settings.api_key {
        None => None,
        Some(name) => Some(variable(&host.env, name).ok_or_else(|| {
            Failure::new(
                Code::ConfigurationInvalid,
                format!("the secret {name} that an agent's apiKey names is not set"),
            )
        })?),
    };
    let body = Value::Object(request_body(settings, history)).to_string();
    let response = post(&endpoint(&settings.base_url), &headers(settings, key.as_deref()), &body, signal)
        .await
        .map_err(|error| Failure::new(Code::ProviderUnavailable, error_text(&error)))?;
    host.renew(fence);
    let mut reader = response.body().map(|body| body.get_reader().unchecked_into::<ReadableStreamDefaultReader>());
    if response.status() != 200 {
        let header = |name: &str| response.headers().get(name).ok().flatten();
        let wait = retry_after_ms(header("retry-after").as_deref(), header("retry-after-ms").as_deref());
        let mut text = Vec::new();
        while let Ok(Some(bytes)) = read(&mut reader).await {
            text.extend_from_slice(&bytes);
            if text.len() >= ERROR_BODY_BYTES {
                break;
            }
        }
        return Err(failure_of_response(response.status(), header("content-type").as_deref(), wait, &text));
    }
    let mut stream = CompletionStream::new(StreamOptions { id_prefix: id_prefix(host) });
    while !stream.is_finished() {
        let batch = match read(&mut reader).await {
            Ok(Some(bytes)) => stream.push(&bytes),
            // A body that broke may have said all that it had to say.
            Ok(None) | Err(_) => stream.end(),
        };
        if !host.produce(fence, batch.chunks) {
            return Ok(());
        }
        if let Some(failure) = batch.failure {
            return Err(failure);
        }
    }
    if let Some(reader) = &reader {
        let _ = reader.cancel();
    }
    Ok(())
}

async fn post(
    address: &str,
    headers: &[(String, String)],
    body: &str,
    signal: &AbortSignal,
) -> Result<web_sys::Response, JsValue> {
    let list = web_sys::Headers::new()?;
    for (name, value) in headers {
        list.set(name, value)?;
    }
    let init = web_sys::RequestInit::new();
    init.set_method("POST");
    init.set_headers(&list);
    init.set_body(&JsValue::from_str(body));
    init.set_signal(Some(signal));
    js_sys::Reflect::set(&init, &JsValue::from_str("redirect"), &JsValue::from_str("manual"))?;
    let request = web_sys::Request::new_with_str_and_init(address, &init)?;
    JsFuture::from(bindings::fetch(&request)?).await?.dyn_into()
}

/// The next bytes of a body; `None` at its end.
async fn read(reader: &mut Option<ReadableStreamDefaultReader>) -> Result<Option<Vec<u8>>, JsValue> {
    let Some(open) = reader else { return Ok(None) };
    let step = JsFuture::from(open.read()).await?;
    let done = js_sys::Reflect::get(&step, &JsValue::from_str("done"))?.is_truthy();
    if done {
        *reader = None;
        return Ok(None);
    }
    let value = js_sys::Reflect::get(&step, &JsValue::from_str("value"))?;
    Ok(Some(Uint8Array::new(&value).to_vec()))
}

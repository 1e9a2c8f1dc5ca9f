//! The Worker: finds the session that a request is for, and passes it on unread.

use serde_json::Map;
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;
use web_sys::{Request, RequestInit};
use worker::{Context, Env, Headers, Response, ResponseBuilder, Result, console_error, event};

use super::answer;
use super::bindings::{ObjectNamespace, error_text};
use super::config::settings;
use super::heart::response;
use super::request::{BodyError, body, header, take_rest};
use crate::core::config::Settings;
use crate::core::error::{Code, Failure};
use crate::core::ids::SessionId;
use crate::dialect::cors::{self, Asked};
use crate::dialect::route::{Call, NoRoute, Route, origin, path_and_query, resolve};
use crate::dialect::ui::request::ChatBody;
use crate::session::refuse::too_large;

const HOME: &str = include_str!("home.html");

#[event(start)]
fn start() {
    console_error_panic_hook::set_once();
}

// The runtime's own request and answer: what only passes through is not taken apart and put together again.
#[event(fetch)]
async fn fetch(request: Request, env: Env, _context: Context) -> Result<web_sys::Response> {
    let settings = match settings(&env) {
        Ok(settings) => settings,
        Err(words) => {
            take_rest(&request).await;
            return Ok(answer::misconfigured(&Failure::new(Code::ConfigurationInvalid, words)).into());
        }
    };
    let page = header(&request, "origin");
    let origin = page.as_deref().filter(|origin| cors::allows(&settings.allowed_origins, origin));
    if request.method() == "OPTIONS" {
        let asked = header(&request, "access-control-request-headers");
        return preflight(origin, asked.as_deref()).map(Into::into);
    }
    if let Some(refusal) = page.as_deref().and_then(|page| foreign(&settings, &request, page)) {
        take_rest(&request).await;
        return Ok(refusal.into());
    }
    let response = route(&env, &settings, &request).await;
    match origin {
        Some(origin) => opened(response.into(), origin).map(Into::into),
        None => Ok(response),
    }
}

/// The answer to a page that must not do what it asks.
fn foreign(settings: &Settings, request: &Request, page: &str) -> Option<Response> {
    let (method, site, url) = (request.method(), header(request, "sec-fetch-site"), request.url());
    let upgrades = header(request, "upgrade").is_some();
    let asked = Asked { method: &method, upgrades, origin: Some(page), site: site.as_deref() };
    let own: Vec<&str> =
        [Some(url.as_str()), settings.public_url.as_deref()].into_iter().flatten().map(origin).collect();
    let page = cors::foreign(&asked, &own, &settings.allowed_origins)?;
    Some(answer::explained(Code::ValidationOrigin, &cors::refusal(page), Map::new()))
}

/// The answer with the headers that let a page of this origin read it. An object's answer has headers that cannot be changed, so the
/// body, still unread, moves to a new one.
fn opened(response: Response, origin: &str) -> Result<Response> {
    let headers = response.headers().clone();
    for (name, value) in cors::response_headers(origin) {
        headers.set(name, &value)?;
    }
    let status = response.status_code();
    let (_, body) = response.into_parts();
    Ok(ResponseBuilder::new().with_status(status).with_headers(headers).body(body))
}

async fn route(env: &Env, settings: &Settings, request: &Request) -> web_sys::Response {
    let url = request.url();
    let (path, query) = path_and_query(&url);
    let refusal = match resolve(&request.method(), path) {
        Ok(Route::Home) => return home().into(),
        Ok(Route::Health) => return health().into(),
        Ok(Route::Session(session, call)) => return pass_on(env, &session, call, query, request).await,
        Ok(Route::SendByBody) => return send_by_body(env, settings, query, request).await,
        Err(NoRoute::Id(invalid)) => answer::explained(Code::ValidationError, &invalid.to_string(), Map::new()),
        Err(no_route) => answer::error(no_route.code()),
    };
    take_rest(request).await;
    refusal.into()
}

/// A chat POST without an id in its path: the body is read here for the id, and handed on as it came.
async fn send_by_body(env: &Env, settings: &Settings, query: &str, request: &Request) -> web_sys::Response {
    let limit = settings.max_request_bytes;
    let refuse = |words: &str| answer::explained(Code::ValidationError, words, Map::new()).into();
    let bytes = match body(request, limit).await {
        Ok(bytes) => bytes,
        Err(BodyError::TooLarge(size)) => return response(too_large(limit, size)).into(),
        Err(BodyError::NotJson) => return answer::error(Code::ValidationMediaType).into(),
        Err(BodyError::Broken) => return refuse("the body could not be read"),
    };
    let id = match ChatBody::parse(&bytes) {
        Ok(body) => body.id,
        Err(refusal) => return refuse(&refusal.to_string()),
    };
    let Some(id) = id else { return refuse("id is missing: name the session in the path or in the body") };
    let session = match SessionId::parse(&id) {
        Ok(session) => session,
        Err(invalid) => return refuse(&invalid.to_string()),
    };
    let init = RequestInit::new();
    init.set_method("POST");
    init.set_headers(&request.headers());
    init.set_body(&js_sys::Uint8Array::from(bytes.as_slice()));
    init.set_signal(Some(&request.signal()));
    let url = request.url();
    forward(env, &session, (Call::Send, is_keyed(request)), (origin(&url), query), &init).await
}

/// Hands a request on with its method, headers, body and abort signal.
async fn pass_on(env: &Env, session: &SessionId, call: Call, query: &str, request: &Request) -> web_sys::Response {
    // A request is a valid init: the runtime reads the same fields from it, and leaves the body a stream.
    let url = request.url();
    let init = request.unchecked_ref::<RequestInit>();
    forward(env, session, (call, is_keyed(request)), (origin(&url), query), init).await
}

async fn forward(
    env: &Env,
    session: &SessionId,
    (call, keyed): (Call, bool),
    (at, query): (&str, &str),
    init: &RequestInit,
) -> web_sys::Response {
    let separator = if query.is_empty() { "" } else { "?" };
    // The object learns from it where the service is reached.
    let address = format!("{at}{}{separator}{query}", call.object_path());
    let sent = async {
        let sessions: ObjectNamespace = js_sys::Reflect::get(env, &JsValue::from_str("SESSIONS"))?.unchecked_into();
        let response = JsFuture::from(sessions.get_by_name(session.as_str())?.fetch_with(&address, init)?).await?;
        response.dyn_into::<web_sys::Response>()
    };
    match sent.await {
        Ok(response) => response,
        Err(error) => {
            console_error!("{}", error_text(&error));
            answer::error(call.when_lost(keyed)).into()
        }
    }
}

fn is_keyed(request: &web_sys::Request) -> bool {
    header(request, "x-helix-request-key").is_some()
}

fn preflight(origin: Option<&str>, asked: Option<&str>) -> Result<Response> {
    let headers = Headers::new();
    if let Some(origin) = origin {
        for (name, value) in cors::preflight_headers(origin, asked) {
            headers.set(name, &value)?;
        }
    }
    Ok(ResponseBuilder::new().with_status(204).with_headers(headers).empty())
}

fn health() -> Response {
    let body = serde_json::json!({
        "status": "ok",
        "version": env!("CARGO_PKG_VERSION"),
        "build": option_env!("REJOIN_BUILD").unwrap_or("local"),
    });
    answer::json(200, &body)
}

fn home() -> Response {
    let headers = Headers::new();
    let _ = headers.set("content-type", "text/html; charset=utf-8");
    ResponseBuilder::new().with_headers(headers).fixed(HOME.as_bytes().to_vec())
}

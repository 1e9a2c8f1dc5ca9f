//! The Durable Object: one session. Catches what panics, so that one request's fault stays its own.

use std::cell::RefCell;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;

use futures::FutureExt;
use wasm_bindgen::{JsCast, JsValue};
use worker::{DurableObject, Env, Request, Response, Result, State, durable_object};

use super::answer;
use super::bindings::ObjectStorage;
use super::config;
use super::host::Host;
use super::request::take_rest;
use crate::core::error::{Code, Failure};
use crate::dialect::route::{Call, path_and_query};

struct Parts {
    state: State,
    env: Env,
    host: RefCell<Option<Rc<Host>>>,
}

/// One conversation.
// Everything inside is behind cells that a panic leaves consistent: the session in memory is thrown away and read again.
#[durable_object(alarm)]
pub struct SessionObject {
    parts: AssertUnwindSafe<Parts>,
}

impl DurableObject for SessionObject {
    fn new(state: State, env: Env) -> Self {
        Self { parts: AssertUnwindSafe(Parts { state, env, host: RefCell::new(None) }) }
    }

    async fn fetch(&self, request: Request) -> Result<Response> {
        let response = self.parts.answer(request.inner()).await;
        take_rest(request.inner()).await;
        Ok(response)
    }

    async fn alarm(&self) -> Result<Response> {
        let host = self.parts.host().map_err(|failure| worker::Error::RustError(failure.to_string()))?;
        match AssertUnwindSafe(host.rang()).catch_unwind().await {
            Ok(Ok(())) => Response::empty(),
            Ok(Err(error)) => Err(worker::Error::RustError(error.to_string())),
            Err(_) => {
                host.throw_away();
                Err(worker::Error::RustError("the alarm panicked".to_owned()))
            }
        }
    }
}

impl Parts {
    async fn answer(&self, request: &web_sys::Request) -> Response {
        let host = match self.host() {
            Ok(host) => host,
            Err(failure) => return answer::misconfigured(&failure),
        };
        let url = request.url();
        let (path, query) = path_and_query(&url);
        let call = match Call::of_object(&request.method(), path) {
            Ok(call) => call,
            Err(no_route) => return answer::error(no_route.code()),
        };
        let answered = AssertUnwindSafe(host.answer(call, request, query)).catch_unwind().await;
        answered.unwrap_or_else(|_| {
            host.throw_away();
            answer::error(Code::FrameworkInternalError)
        })
    }

    fn host(&self) -> std::result::Result<Rc<Host>, Failure> {
        let known = self.host.try_borrow().ok().and_then(|host| host.clone());
        if let Some(host) = known {
            return Ok(host);
        }
        let config = config::deployment(&self.env)?;
        let id = self.state.id();
        let name = id.name().unwrap_or_else(|| id.to_string());
        let storage: ObjectStorage = JsValue::from(&**self.state.storage().as_raw()).unchecked_into();
        let host = Host::new(name, storage, self.env.clone(), config);
        if let Ok(mut slot) = self.host.try_borrow_mut() {
            *slot = Some(Rc::clone(&host));
        }
        Ok(host)
    }
}

//! The wasm shell: does, decides nothing.

use worker::{DurableObject, Env, Request, Response, Result, State, durable_object, event};

#[event(fetch)]
async fn fetch(_req: Request, _env: Env, _ctx: worker::Context) -> Result<Response> {
    Response::ok("ok")
}

/// One conversation.
#[durable_object(fetch)]
pub struct SessionObject {
    _state: std::panic::AssertUnwindSafe<State>,
}

impl DurableObject for SessionObject {
    fn new(state: State, _env: Env) -> Self {
        Self { _state: std::panic::AssertUnwindSafe(state) }
    }

    async fn fetch(&self, _req: Request) -> Result<Response> {
        Response::ok("object")
    }
}

//! Responses that follow the log, for the calls beside the engine: they open through it.

use std::rc::Rc;

use web_sys::Request;
use worker::{Response, console_error};

use super::clock::turn;
use super::heart::response;
use super::host::{Host, HostError, Opened};
use super::request::header;
use crate::core::ids::RunId;
use crate::core::storage::RunRow;
use crate::dialect::ui::attempts::Attempts;
use crate::session::refuse::Refusal;
use crate::session::response::{Ending, Opening};

impl Host {
    /// Whether somebody follows.
    pub fn is_followed(&self) -> bool {
        self.heart.look(|engine, _| !engine.readers.is_empty()).unwrap_or(true)
    }

    /// Opens the response of a reader. What this gives stands for it until [`Host::sent`] has the head.
    pub fn open_reader(self: &Rc<Self>, request: &Request, opening: Opening) -> Result<Response, HostError> {
        let (exchange, head) = self.heart.adopts(request);
        let opened = self.heart.turn(|engine, turn| {
            let opened = engine.open_reader(exchange, opening, turn);
            if opened.is_err() {
                turn.answer(exchange, Refusal::Gone.answer(&self.name));
            }
            opened
        });
        opened??;
        let request = Clone::clone(request);
        self.opened.try_borrow_mut().map_err(|_| HostError::Busy)?.push(Opened { request, exchange, head });
        Ok(gone())
    }

    /// The response as it leaves: one whose body is broken before its first byte is a typed status.
    pub async fn sent(self: &Rc<Self>, request: &Request, answered: Result<Response, Response>) -> Response {
        let opened = self.opened.try_borrow_mut().ok().and_then(|mut opened| {
            let at = opened.iter().position(|opened| opened.request == *request)?;
            Some(opened.swap_remove(at))
        });
        let Some(Opened { exchange, head, .. }) = opened else { return answered.unwrap_or_else(|refusal| refusal) };
        if let Err(refusal) = answered {
            let _ = self.heart.turn(|engine, turn| {
                engine.readers.break_off(exchange, Ending::Gone, &mut engine.counters, turn);
            });
            return refusal;
        }
        // What this turn has begun says first whether it can go on.
        turn().await;
        let asked = header(request, "x-test-break").filter(|_| self.config.settings.test_seams);
        if asked.as_deref() == Some("early") {
            self.evict_all();
        }
        let _ = self.heart.turn(|engine, _| engine.readers.lets_go(exchange));
        head.await.unwrap_or_else(|_| gone())
    }

    /// The attempts of a run are not what they were.
    pub fn readers_learn(self: &Rc<Self>, run: &RunId, attempts: &Attempts) {
        let _ = self.heart.turn(|engine, turn| engine.readers.learn(run, attempts, &mut engine.counters, turn));
    }

    /// A run has started that responses wait for.
    pub fn readers_project(self: &Rc<Self>, run: &RunRow) {
        let _ = self.heart.turn(|engine, _| engine.readers.project(run));
    }

    /// Ends every response because of a fault of the service.
    pub fn evict_all(self: &Rc<Self>) {
        let _ = self.heart.turn(|engine, turn| engine.readers.evict_all(&mut engine.counters, turn));
    }

    /// Ends every response, because what it followed is gone.
    pub fn part_with_readers(self: &Rc<Self>) {
        let _ = self.heart.turn(|engine, turn| engine.readers.part_with_all(&mut engine.counters, turn));
    }

    /// Somebody has begun to follow, or nobody does any more.
    pub fn followers_changed(self: &Rc<Self>) {
        if self.config.settings.detached.is_some()
            && let Err(error) = self.note_followers()
        {
            console_error!("session {}: {error}", self.log_name);
        }
        // A run that nobody followed may have waited longer than a followed one does.
        self.pump();
    }
}

/// Nobody reads this answer: the client has left.
fn gone() -> Response {
    response(Refusal::Gone.answer(""))
}

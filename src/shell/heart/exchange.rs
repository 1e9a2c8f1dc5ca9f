//! One request on its way: its body in, its response out, and the news that its client has left.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use futures::channel::oneshot;
use js_sys::Uint8Array;
use wasm_bindgen::JsCast;
use wasm_bindgen_futures::spawn_local;
use web_sys::{ReadableStreamDefaultReader, Request};
use worker::{Headers, Response, ResponseBuilder, console_error};

use super::Heart;
use crate::core::engine::Engine;
use crate::core::engine::action::{Head, Want};
use crate::core::engine::answer::{Answer, AnswerHeaders};
use crate::core::engine::event::{Ask, BodyNews, Event};
use crate::core::engine::ids::Exchange;
use crate::core::error::Code;
use crate::shell::bindings::error_text;
use crate::shell::body::{self, Body};
use crate::shell::incoming;
use crate::shell::request::{BodyError, Farewell, Listening, discard, whole};

/// The requests that are not over, by their exchanges.
#[derive(Default)]
pub struct Channels {
    next: Cell<u64>,
    open: RefCell<BTreeMap<Exchange, Channel>>,
}

/// What is held of one request.
struct Channel {
    request: Request,
    reply: Option<oneshot::Sender<Response>>,
    reader: Option<ReadableStreamDefaultReader>,
    body: Option<Body>,
    _listening: Option<Listening>,
}

impl<E: Engine + 'static> Heart<E> {
    /// Asks the engine, and waits for the answer, or for the head of the response.
    pub async fn ask(self: &Rc<Self>, request: &Request, ask: Ask<E::Call>) -> Response {
        let (exchange, answered) = self.begins(request);
        self.tell_quietly(Event::Asked { exchange, ask: Box::new(ask) });
        self.turn_at_once();
        answered.await.unwrap_or_else(|_| response(Answer::error(Code::FrameworkInternalError)))
    }

    /// A request that a call beside the engine answers through it.
    pub fn adopts(self: &Rc<Self>, request: &Request) -> (Exchange, oneshot::Receiver<Response>) {
        let (exchange, answered) = self.begins(request);
        if let Ok(mut cycle) = self.cycle.try_borrow_mut() {
            cycle.adopts(exchange);
        }
        (exchange, answered)
    }

    fn begins(self: &Rc<Self>, request: &Request) -> (Exchange, oneshot::Receiver<Response>) {
        let number = self.channels.next.get().saturating_add(1);
        self.channels.next.set(number);
        let exchange = Exchange::new(number);
        let (reply, answered) = oneshot::channel();
        let channel = Channel {
            request: Clone::clone(request),
            reply: Some(reply),
            reader: None,
            body: None,
            _listening: self.listens(request, exchange),
        };
        if let Ok(mut open) = self.channels.open.try_borrow_mut() {
            open.insert(exchange, channel);
        }
        (exchange, answered)
    }

    fn listens(self: &Rc<Self>, request: &Request, exchange: Exchange) -> Option<Listening> {
        let heart = Rc::downgrade(self);
        let listening = Listening::to(request.signal(), move || {
            if let Some(heart) = heart.upgrade() {
                heart.leaves_soon(exchange);
            }
        });
        if listening.is_none() {
            self.leaves_soon(exchange);
        }
        listening
    }

    /// In a task of its own: this is called from within a listener that goes with the channel.
    fn leaves_soon(self: &Rc<Self>, exchange: Exchange) {
        let heart = Rc::clone(self);
        spawn_local(async move {
            drop(heart.channels.close(exchange));
            heart.tell(Event::Left(exchange));
        });
    }

    pub(super) fn answer(&self, exchange: Exchange, answer: Answer) {
        if let Some(Channel { reply: Some(reply), .. }) = self.channels.close(exchange) {
            let _ = reply.send(response(answer));
        }
    }

    pub(super) fn open(self: &Rc<Self>, exchange: Exchange, head: Head) {
        let (wants, leaves) = (Rc::downgrade(self), Rc::downgrade(self));
        let opened = body::open(
            move || {
                if let Some(heart) = wants.upgrade() {
                    heart.has_room(exchange);
                }
            },
            move || {
                if let Some(heart) = leaves.upgrade() {
                    heart.leaves_soon(exchange);
                }
            },
        );
        let (stream, body) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                console_error!("{}", error_text(&error));
                self.answer(exchange, Answer::error(Code::FrameworkInternalError));
                return self.tell(Event::Left(exchange));
            }
        };
        let reply = self.channels.look(exchange, |channel| {
            channel.body = Some(body);
            channel.reply.take()
        });
        if let Some(reply) = reply.flatten() {
            let builder = ResponseBuilder::new().with_status(head.status).with_headers(headers(&head.headers));
            let _ = reply.send(builder.stream(stream));
        }
    }

    /// A response takes more. The cycle knows whether that is worth a turn.
    fn has_room(self: &Rc<Self>, exchange: Exchange) {
        self.tell_quietly(Event::Room(exchange));
        if self.cycle.try_borrow().is_ok_and(|cycle| cycle.has_news()) {
            self.soon();
        }
    }

    pub(super) fn give(&self, to: &[Exchange], bytes: &[u8]) {
        let shared = Uint8Array::from(bytes);
        let mut full = Vec::new();
        for exchange in to {
            let pen = self.channels.look(*exchange, |channel| channel.body.as_ref().map(Body::pen));
            let Some(pen) = pen.flatten() else { continue };
            pen.write(&shared, bytes.len());
            if !pen.is_hungry() {
                full.push(*exchange);
            }
        }
        if !full.is_empty() {
            self.tell_quietly(Event::Full(full));
        }
    }

    pub(super) fn close(&self, exchange: Exchange) {
        if let Some(body) = self.channels.close(exchange).and_then(|channel| channel.body) {
            body.pen().close();
        }
    }

    pub(super) fn break_off(&self, exchange: Exchange) {
        if let Some(body) = self.channels.close(exchange).and_then(|channel| channel.body) {
            body.pen().break_off();
        }
    }

    pub(super) fn take(self: &Rc<Self>, exchange: Exchange, want: Want) {
        let Some(request) = self.channels.look(exchange, |channel| Clone::clone(&channel.request)) else { return };
        // At once: with its answer the request is gone.
        let unwanted = if want == Want::Nothing { self.reader(exchange, &request) } else { None };
        let heart = Rc::clone(self);
        spawn_local(async move {
            let news = match want {
                Want::Whole(limit) => match whole(&request, limit).await {
                    Ok(bytes) => BodyNews::Bytes(bytes),
                    Err(BodyError::TooLarge(size)) => BodyNews::Excess(size),
                    Err(BodyError::Broken | BodyError::NotJson) => BodyNews::Broke,
                },
                Want::Next => heart.next(exchange, &request).await,
                Want::Nothing => {
                    if let Some(reader) = unwanted {
                        discard(&reader, Farewell::STREAMED).await;
                    }
                    return;
                }
            };
            heart.tell(Event::Body { exchange, news });
        });
    }

    async fn next(&self, exchange: Exchange, request: &Request) -> BodyNews {
        let Some(reader) = self.reader(exchange, request) else { return BodyNews::End };
        match incoming::next(&reader).await {
            Ok(Some(bytes)) => BodyNews::Bytes(bytes),
            Ok(None) => BodyNews::End,
            Err(_) => BodyNews::Broke,
        }
    }

    /// The reader of a body; `None` when there is none.
    fn reader(&self, exchange: Exchange, request: &Request) -> Option<ReadableStreamDefaultReader> {
        let known = self.channels.look(exchange, |channel| channel.reader.clone())?;
        if known.is_some() {
            return known;
        }
        let reader: ReadableStreamDefaultReader = request.body()?.get_reader().unchecked_into();
        self.channels.look(exchange, |channel| channel.reader = Some(reader.clone()))?;
        Some(reader)
    }
}

impl Channels {
    /// Looks at one request. `look` must not call into JavaScript.
    fn look<T>(&self, exchange: Exchange, look: impl FnOnce(&mut Channel) -> T) -> Option<T> {
        self.open.try_borrow_mut().ok()?.get_mut(&exchange).map(look)
    }

    fn close(&self, exchange: Exchange) -> Option<Channel> {
        self.open.try_borrow_mut().ok()?.remove(&exchange)
    }
}

fn headers(list: &AnswerHeaders) -> Headers {
    let headers = Headers::new();
    for (name, value) in list {
        let _ = headers.set(name, value);
    }
    headers
}

/// An answer as the runtime takes it.
pub fn response(answer: Answer) -> Response {
    let builder = ResponseBuilder::new().with_status(answer.status).with_headers(headers(&answer.headers));
    if answer.body.is_empty() { builder.empty() } else { builder.fixed(answer.body) }
}

//! One request and its response on the way: bodies cut anywhere, windows that fill, clients that stall and leave.

use std::collections::VecDeque;
use std::rc::Rc;

use rejoin::core::engine::action::Want;
use rejoin::core::engine::event::{BodyNews, Headers};
use rejoin::core::time::UnixMillis;

use crate::random::Rng;

/// The body of a request.
#[derive(Debug)]
pub enum Body {
    /// None, or an empty one.
    Empty,
    /// All of it at once.
    Whole(Vec<u8>),
    /// It comes piece by piece ([`Desk::send`](crate::subject::Desk::send)).
    Open,
}

/// What a client sees of a response. It gets no news behind `End` and `Broke`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// Status and headers.
    Head {
        /// The HTTP status.
        status: u16,
        /// The headers.
        headers: Headers,
    },
    /// The next bytes of the body, cut anywhere.
    Bytes(Vec<u8>),
    /// The body is over, cleanly.
    End,
    /// The connection is gone.
    Broke,
}

/// What is on the way to a client.
#[derive(Debug)]
enum Down {
    Head(u16, Headers),
    Bytes(Rc<[u8]>, usize),
    End,
    Break,
}

/// How far the object is with a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It was asked.
    Asked,
    /// Its head has left, and its body is open.
    Open,
    /// It is over.
    Over,
}

/// One exchange between a client and the object.
#[derive(Debug)]
pub struct Line {
    /// Whose it is.
    pub client: usize,
    /// How far the object is.
    pub stage: Stage,
    /// Whether the client still listens.
    pub is_heard: bool,
    /// Whether the engine was told that the response is full, and not yet that it has room.
    pub is_full: bool,
    /// It delivers nothing before this moment.
    pub stalled: UnixMillis,
    down: VecDeque<Down>,
    unread: usize,
    window: usize,
    up: Vec<u8>,
    up_size: Option<usize>,
    up_ended: bool,
    want: Option<Want>,
}

impl Line {
    /// A request that was just asked.
    pub fn new(client: usize, body: Body, rng: &mut Rng) -> Self {
        let (up, up_ended) = match body {
            Body::Empty => (Vec::new(), true),
            Body::Whole(bytes) => (bytes, true),
            Body::Open => (Vec::new(), false),
        };
        Self {
            client,
            stage: Stage::Asked,
            is_heard: true,
            is_full: false,
            stalled: UnixMillis::default(),
            down: VecDeque::new(),
            unread: 0,
            // Many take nothing before they are asked for more, as the bodies of the platform do.
            window: rng.pick(&[1, 1, 16, 64, 256, 4096]).unwrap_or(1),
            up_size: up_ended.then_some(up.len()),
            up,
            up_ended,
            want: None,
        }
    }

    /// Bytes that wait for the client.
    pub fn unread(&self) -> usize {
        self.unread
    }

    /// The head leaves.
    pub fn head(&mut self, status: u16, headers: Headers) {
        self.down.push_back(Down::Head(status, headers));
    }

    /// Bytes leave.
    pub fn give(&mut self, bytes: Rc<[u8]>) {
        self.unread += bytes.len();
        self.down.push_back(Down::Bytes(bytes, 0));
    }

    /// The end leaves.
    pub fn end(&mut self, is_clean: bool) {
        self.stage = Stage::Over;
        self.down.push_back(if is_clean { Down::End } else { Down::Break });
    }

    /// Whether it takes no more, which the engine has not been told yet.
    pub fn fills(&mut self) -> bool {
        let fills = self.stage == Stage::Open && !self.is_full && self.unread >= self.window;
        self.is_full |= fills;
        fills
    }

    /// Whether it takes more again, which the engine has not been told yet.
    pub fn has_room(&mut self) -> bool {
        let has_room = self.stage == Stage::Open && self.is_full && self.unread < self.window;
        self.is_full &= !has_room;
        has_room
    }

    /// Whether something waits for the client.
    pub fn can_deliver(&self, now: UnixMillis) -> bool {
        self.is_heard && self.stalled <= now && !self.down.is_empty()
    }

    /// What the client gets next, cut at some byte.
    pub fn deliver(&mut self, rng: &mut Rng) -> Option<News> {
        Some(match self.down.pop_front()? {
            Down::Head(status, headers) => News::Head { status, headers },
            Down::Bytes(bytes, from) => {
                let rest = bytes.len() - from;
                let taken = if rng.one_in(4) { rng.below(rest) } else { rest };
                self.unread -= taken;
                let news = News::Bytes(bytes[from..from + taken].to_vec());
                if taken < rest {
                    self.down.push_front(Down::Bytes(bytes, from + taken));
                }
                news
            }
            Down::End => News::End,
            Down::Break => News::Broke,
        })
    }

    /// The client listens no more.
    pub fn hang_up(&mut self) {
        self.is_heard = false;
        self.up_ended = false;
        self.want = None;
    }

    /// The object is gone: what is on the way arrives in part, then the connection breaks.
    pub fn object_died(&mut self, rng: &mut Rng) {
        if !rng.one_in(3) {
            self.down.truncate(rng.below(self.down.len() + 1));
        }
        if !matches!(self.down.back(), Some(Down::End | Down::Break)) {
            self.down.push_back(Down::Break);
        }
        self.stage = Stage::Over;
        self.want = None;
    }

    /// The client sends more of its body.
    pub fn send(&mut self, bytes: &[u8]) {
        self.up.extend_from_slice(bytes);
    }

    /// The client has sent all of its body.
    pub fn finish(&mut self) {
        self.up_ended = true;
    }

    /// The engine wants some of the body.
    pub fn wants(&mut self, want: Want) {
        self.want = Some(want);
    }

    /// Whether the engine waits for the body.
    pub fn is_wanted(&self) -> bool {
        self.is_heard && matches!(self.want, Some(Want::Next | Want::Whole(_)))
    }

    /// What has come of the body that the engine waits for, cut at some byte; `None` while the client has not sent it.
    pub fn body(&mut self, rng: &mut Rng) -> Option<BodyNews> {
        let news = match self.want? {
            Want::Nothing => return None,
            Want::Whole(limit) if self.up.len() > limit => BodyNews::Excess(self.up_size.filter(|_| rng.one_in(2))),
            Want::Whole(_) if self.up_ended => BodyNews::Bytes(std::mem::take(&mut self.up)),
            Want::Next if !self.up.is_empty() => {
                let taken = 1 + rng.below(self.up.len());
                BodyNews::Bytes(self.up.drain(..taken).collect())
            }
            Want::Next if self.up_ended => BodyNews::End,
            Want::Next | Want::Whole(_) => return None,
        };
        self.want = None;
        Some(news)
    }

    /// The body breaks off while the engine waits for it.
    pub fn body_breaks(&mut self) -> Option<BodyNews> {
        self.want.take_if(|want| !matches!(want, Want::Nothing)).map(|_| BodyNews::Broke)
    }
}

//! A producer outside: it opens a run, appends to it, claims it again when it does not know where it stands, and ends it.

use rejoin::core::engine::ids::Exchange;
use rejoin::core::ids::RunId;
use rejoin::core::run::Fence;
use serde_json::Value;

use super::Session;
use super::stand_in::Call;
use crate::network::{Body, News};
use crate::subject::{Client, Desk, Verdict};

/// What it asked last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Open,
    /// Chunks up to this number.
    Append(u64),
    End,
}

#[derive(Debug)]
struct Pending {
    exchange: Exchange,
    deed: Deed,
    status: Option<u16>,
    body: Vec<u8>,
}

/// Writes one run after the other.
#[derive(Debug)]
pub struct Producer {
    id: u32,
    runs: u32,
    /// Its claim, once it has one.
    epoch: Option<u32>,
    texts: Vec<String>,
    acknowledged: u64,
    /// The number of its end, once it has said it: nothing comes behind it.
    ends_at: Option<u64>,
    pending: Option<Pending>,
    has_ended: bool,
}

impl Producer {
    /// The producer of this number.
    pub fn new(id: u32) -> Self {
        Self {
            id,
            runs: 0,
            epoch: None,
            texts: Vec::new(),
            acknowledged: 0,
            ends_at: None,
            pending: None,
            has_ended: false,
        }
    }

    fn run(&self) -> String {
        format!("run-{}-{}", self.id, self.runs)
    }

    fn next_run(&mut self) {
        *self = Self { runs: self.runs + 1, has_ended: true, ..Self::new(self.id) };
    }

    fn asks(&mut self, desk: &mut Desk<'_, Session>) {
        let number = self.acknowledged;
        let Some(epoch) = self.epoch else {
            // Whose place it takes may be its own before a crash.
            let supersede = desk.is_calm || desk.rng.one_in(2);
            let exchange = desk.ask(Call::Open { run: self.run(), supersede }, Body::Empty);
            return self.waits_for(exchange, Deed::Open);
        };
        let fence = Fence { run: RunId::new(self.run()), epoch };
        let ends = self.ends_at.is_some() || desk.is_calm || desk.rng.one_in(8);
        if ends && self.ends_at.is_none_or(|at| at == number) {
            self.ends_at = Some(number);
            let exchange = desk.ask(Call::End { fence, number }, Body::Empty);
            return self.waits_for(exchange, Deed::End);
        }
        let through = number + 1 + desk.rng.below(4) as u64;
        while (self.texts.len() as u64) < through {
            let padding = "x".repeat(desk.rng.below(60));
            self.texts.push(format!("{}.{}.{padding}", self.run(), self.texts.len()));
        }
        let texts = self.texts[number as usize..through as usize].to_vec();
        let exchange = desk.ask(Call::Append { fence, number, texts }, Body::Empty);
        self.waits_for(exchange, Deed::Append(through));
    }

    fn waits_for(&mut self, exchange: Exchange, deed: Deed) {
        self.pending = Some(Pending { exchange, deed, status: None, body: Vec::new() });
    }

    fn is_answered(&mut self, pending: &Pending, desk: &mut Desk<'_, Session>) -> Verdict {
        let body: Value = serde_json::from_slice(&pending.body).unwrap_or_default();
        match (pending.deed, pending.status) {
            (_, Some(500 | 503)) => self.epoch = None,
            (Deed::Open, Some(201)) => {
                let (epoch, expected) = (body["epoch"].as_u64(), body["expected"].as_u64());
                let (Some(epoch), Some(expected)) = (epoch, expected) else { return Err(format!("a claim {body}")) };
                self.epoch = u32::try_from(epoch).ok();
                return self.is_stored(expected, desk);
            }
            (Deed::Append(through), Some(200)) => return self.is_stored(through, desk),
            (Deed::End, Some(200)) => self.next_run(),
            (_, Some(409)) if body["expected"].is_u64() => {
                return self.is_stored(body["expected"].as_u64().unwrap_or_default(), desk);
            }
            // Somebody else's turn, or somebody else has taken this one's.
            (Deed::Open, Some(_)) if body["code"] == "state_already_running" => {}
            (_, Some(_)) if is_over(&body) => self.next_run(),
            (deed, status) => return Err(format!("{deed:?} was answered {status:?}: {body}")),
        }
        Ok(())
    }

    fn is_stored(&mut self, through: u64, desk: &mut Desk<'_, Session>) -> Verdict {
        if through < self.acknowledged {
            return Err(format!("{} of {} were acknowledged, and now {through}", self.acknowledged, self.run()));
        }
        let new = self.acknowledged as usize..through as usize;
        let Some(texts) = self.texts.get(new) else {
            return Err(format!("{through} chunks of {}, which has said {}", self.run(), self.texts.len()));
        };
        texts.iter().for_each(|text| desk.witness.is_acknowledged(text));
        self.acknowledged = through;
        Ok(())
    }
}

/// Whether its run is nobody's to write any more.
fn is_over(refusal: &Value) -> bool {
    let code = refusal["code"].as_str().unwrap_or_default();
    ["state_run_superseded", "state_run_ended", "state_producer_fenced"].contains(&code)
}

impl Client<Session> for Producer {
    fn acts(&mut self, desk: &mut Desk<'_, Session>) {
        // Once it is calm, one whole run is enough.
        if desk.is_calm && self.has_ended && self.pending.is_none() && self.epoch.is_none() {
            desk.witness.through.insert(self.id);
        }
        match &self.pending {
            Some(pending) if desk.rng.one_in(40) && !desk.is_calm => {
                desk.leave(pending.exchange);
                (self.pending, self.epoch) = (None, None);
            }
            Some(_) => {}
            None if desk.witness.through.contains(&self.id) => {}
            None => self.asks(desk),
        }
    }

    fn hears(&mut self, exchange: Exchange, news: News, desk: &mut Desk<'_, Session>) -> Verdict {
        let Some(pending) = self.pending.as_mut().filter(|pending| pending.exchange == exchange) else { return Ok(()) };
        match news {
            News::Head { status, .. } => pending.status = Some(status),
            News::Bytes(bytes) => pending.body.extend(bytes),
            News::End => {
                let pending = self.pending.take();
                return pending.map_or(Ok(()), |pending| self.is_answered(&pending, desk));
            }
            // It does not know where it stands.
            News::Broke => (self.pending, self.epoch) = (None, None),
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.has_ended && self.pending.is_none() && self.epoch.is_none()
    }

    fn describe(&self) -> String {
        format!("producer of {}, {} acknowledged, waits for {:?}", self.run(), self.acknowledged, self.pending)
    }
}

//! The reply that needs no model: its script, at its pace.

use serde_json::Value;

use super::{Job, id_prefix};
use crate::core::run::Outcome;
use crate::core::time::Millis;
use crate::model::demo::{DemoSettings, reply};
use crate::shell::clock::sleep;

/// Most chunks that are written in one turn, so that a pace of 0 still lets others run.
const BURST: usize = 256;

pub(super) async fn produce(job: &Job, settings: &DemoSettings, history: &[Value]) -> Option<Outcome> {
    let pace = u64::from(settings.pace_ms);
    let mut burst = Vec::new();
    // Steps that an attempt before this one has committed.
    let mut told = job.host.with_production(&job.fence, |production| production.writer.steps_done()).unwrap_or(0);
    for beat in reply(history, &id_prefix(&job.host), settings) {
        if told > 0 {
            told = told.saturating_sub(u32::from(beat.chunk.kind() == "finish-step"));
            continue;
        }
        let wait = pace.saturating_mul(u64::from(beat.wait));
        if wait > 0 || burst.len() >= BURST {
            if !job.produce(std::mem::take(&mut burst)) {
                return None;
            }
            sleep(Millis::new(wait)).await;
        }
        burst.push(beat.chunk);
    }
    job.produce(burst).then_some(Outcome::Completed)
}

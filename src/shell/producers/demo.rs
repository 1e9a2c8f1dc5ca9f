//! The reply that needs no model: its script, at its pace.

use serde_json::Value;

use super::{Job, id_prefix};
use crate::core::run::Outcome;
use crate::core::time::Millis;
use crate::model::demo::{DemoSettings, script};
use crate::shell::clock::sleep;

/// Most chunks that are written in one turn, so that a pace of 0 still lets others run.
const BURST: usize = 256;

pub(super) async fn produce(job: &Job, settings: &DemoSettings, history: &[Value]) -> Option<Outcome> {
    let asked = history.last().map(text_of).unwrap_or_default();
    let pace = u64::from(settings.pace_ms);
    let mut burst = Vec::new();
    for beat in script(&asked, &id_prefix(&job.host), settings) {
        let wait = pace.saturating_mul(u64::from(beat.wait));
        if wait > 0 || burst.len() >= BURST {
            if !job.host.produce(&job.fence, std::mem::take(&mut burst)) {
                return None;
            }
            sleep(Millis::new(wait)).await;
        }
        burst.push(beat.chunk);
    }
    job.host.produce(&job.fence, burst).then_some(Outcome::Completed)
}

/// The text parts of a UI message.
fn text_of(message: &Value) -> String {
    let parts = message.get("parts").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let texts: Vec<&str> = parts.iter().filter_map(|part| part.get("text").and_then(Value::as_str)).collect();
    texts.join("\n")
}

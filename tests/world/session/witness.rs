//! What all clients of a session have seen, put together.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::subject::Verdict;

/// What is known by everybody.
#[derive(Debug, Default)]
pub struct Witness {
    /// The chunk at each sequence.
    seen: BTreeMap<u64, Value>,
    /// What was acknowledged.
    acknowledged: BTreeSet<String>,
    /// Producers that are through.
    pub through: BTreeSet<u32>,
}

impl Witness {
    /// Somebody sees this chunk at its place.
    ///
    /// # Errors
    /// Somebody has seen another one there.
    pub fn sees(&mut self, sequence: u64, chunk: Value) -> Verdict {
        match self.seen.get(&sequence) {
            Some(before) if *before != chunk => Err(format!("two chunks at {sequence}: {before} and {chunk}")),
            _ => {
                self.seen.insert(sequence, chunk);
                Ok(())
            }
        }
    }

    /// A producer knows this text to be stored.
    pub fn is_acknowledged(&mut self, text: &str) {
        self.acknowledged.insert(text.to_owned());
    }

    /// Acknowledged is there exactly once, and nothing is there twice.
    ///
    /// # Errors
    /// What is not.
    pub fn judge(&self) -> Verdict {
        let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
        for text in self.seen.values().filter_map(|chunk| chunk.get("delta")?.as_str()) {
            *counts.entry(text).or_default() += 1;
        }
        if let Some((text, count)) = counts.iter().find(|(_, count)| **count > 1) {
            return Err(format!("{text} is there {count} times"));
        }
        if let Some(text) = self.acknowledged.iter().find(|text| !counts.contains_key(text.as_str())) {
            return Err(format!("{text} was acknowledged and is not there"));
        }
        let is_whole = self.seen.keys().copied().eq(1..=self.seen.len() as u64);
        if is_whole { Ok(()) } else { Err("there is a hole in what was seen".into()) }
    }
}

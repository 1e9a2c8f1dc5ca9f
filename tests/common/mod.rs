//! The recordings of public model APIs, which lie outside the project.

// Helpers of tests, which the lints do not see outside a `#[test]` function.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::Value;

/// One recorded answer: a file with one JSON event a line.
pub struct Recording {
    /// Name of the file.
    pub name: String,
    /// The `data` of each event.
    pub events: Vec<String>,
}

/// The recordings of one API, by name; none, and a note, where there are none.
///
/// `RECORDINGS` names another folder than the one beside the project: one with a folder for each API (`chat-completions`,
/// `anthropic-messages`), or one that holds the files themselves, of which those of the API are taken.
pub fn recordings(api: &str) -> Vec<Recording> {
    let named = std::env::var_os("RECORDINGS").map(PathBuf::from);
    assert!(named.as_ref().is_none_or(|named| named.is_dir()), "RECORDINGS names no folder");
    let root = named.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/recordings"));
    let own = root.join(api);
    let folder = if own.is_dir() { own } else { root };
    let mut recordings = read_folder(&folder);
    recordings.retain(|recording| recording.api() == api);
    if recordings.is_empty() {
        eprintln!("skipped: no recordings of {api} in {}", folder.display());
    }
    recordings
}

impl Recording {
    /// Whose answer it is: events of the Messages API have a `type`, those of chat completions have none.
    fn api(&self) -> &'static str {
        let first: Option<Value> = self.events.first().and_then(|event| serde_json::from_str(event).ok());
        if first.is_some_and(|event| event["type"].is_string()) { "anthropic-messages" } else { "chat-completions" }
    }
}

fn read_folder(folder: &Path) -> Vec<Recording> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut recordings: Vec<Recording> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"))
        .map(|path| Recording {
            name: path.file_name().unwrap().to_string_lossy().into_owned(),
            events: fs::read_to_string(&path)
                .unwrap()
                .lines()
                .filter(|line| !line.is_empty())
                .map(str::to_owned)
                .collect(),
        })
        .collect();
    recordings.sort_by(|a, b| a.name.cmp(&b.name));
    recordings
}

/// Cuts a body at random places, and holds that the pieces are still the `same`.
pub fn cut_at_random(body: &[u8], same: impl Fn(&[&[u8]]) -> bool, name: &str) {
    let cuts = prop::collection::vec(any::<prop::sample::Index>(), 1..40);
    TestRunner::new(ProptestConfig::with_cases(16))
        .run(&cuts, |cuts| {
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(body.len())).collect();
            cuts.extend([0, body.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &body[pair[0]..pair[1]]).collect();
            prop_assert!(same(&pieces), "{}", name);
            Ok(())
        })
        .unwrap();
}

//! The parts of a reply, written in the order that AI SDK clients can fold (`spec/ai-sdk.md` A.3): at most one text or
//! reasoning part is open, it is closed before anything else opens, and no delta is empty.

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::core::chunk::Chunk;
use crate::core::error::Failure;

/// What a translation has to say after a piece of input: chunks first, then perhaps the failure that ends it. Not a `Result`, because
/// the chunks before a failure count: they are stored and sent like all others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// Chunks to append, in order.
    pub chunks: Vec<Chunk>,
    /// Set once, with the last chunks; the stream has then failed.
    pub failure: Option<Failure>,
}

/// Writes the chunks of a reply. A step is opened by its first part, so that an attempt that fails before it says anything
/// leaves nothing to take back.
#[derive(Clone, Debug)]
pub struct Parts {
    prefix: String,
    chunks: Vec<Chunk>,
    step_open: bool,
    /// Whether the reply has had a step.
    finished_steps: bool,
    open: Option<(Kind, String)>,
    texts: u32,
    reasonings: u32,
    sources: HashSet<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Reasoning,
}

impl Kind {
    fn chunk_types(self) -> [&'static str; 3] {
        match self {
            Self::Text => ["text-start", "text-delta", "text-end"],
            Self::Reasoning => ["reasoning-start", "reasoning-delta", "reasoning-end"],
        }
    }
}

impl Parts {
    /// Most sources that one step lists; beyond them a client's page is no help any more.
    pub const MAX_SOURCES: usize = 1000;

    /// Parts whose ids begin with `prefix`. Ids count from 1 in every step, so a run of several steps gives each its own prefix.
    pub fn new(prefix: impl Into<String>) -> Self {
        Self {
            prefix: prefix.into(),
            chunks: Vec::new(),
            step_open: false,
            finished_steps: false,
            open: None,
            texts: 0,
            reasonings: 0,
            sources: HashSet::new(),
        }
    }

    /// Continues the open text part, or opens one. Nothing happens for an empty delta.
    pub fn text(&mut self, delta: &str) {
        self.delta(Kind::Text, delta);
    }

    /// Continues the open reasoning part, or opens one. Nothing happens for an empty delta.
    pub fn reasoning(&mut self, delta: &str) {
        self.delta(Kind::Reasoning, delta);
    }

    /// Closes the open reasoning part with what its provider wants back of it. Where none is open, the provider has kept the words to
    /// itself: one without any is written.
    pub fn end_reasoning(&mut self, metadata: Value) {
        if !matches!(self.open, Some((Kind::Reasoning, _))) {
            self.start(Kind::Reasoning);
        }
        if let Some((kind, id)) = self.open.take() {
            let [_, _, end] = kind.chunk_types();
            self.chunks.push(Chunk::new(end).with("id", id).with("providerMetadata", metadata));
        }
    }

    /// Writes a `source-url`, each address once. Only web addresses: clients put them into links.
    pub fn source(&mut self, url: &str, title: Option<&str>) {
        let web = url.starts_with("https://") || url.starts_with("http://");
        if !web || self.sources.len() >= Self::MAX_SOURCES || !self.sources.insert(url.to_owned()) {
            return;
        }
        self.open_step();
        let id = format!("{}s{}", self.prefix, self.sources.len());
        let mut chunk = Chunk::new("source-url").with("sourceId", id).with("url", url);
        if let Some(title) = title.filter(|title| !title.is_empty()) {
            chunk = chunk.with("title", title);
        }
        self.chunks.push(chunk);
    }

    /// Closes the open text or reasoning part.
    pub fn close(&mut self) {
        if let Some((kind, id)) = self.open.take() {
            let [_, _, end] = kind.chunk_types();
            self.chunks.push(Chunk::new(end).with("id", id));
        }
    }

    /// Closes the open text or reasoning part with what its provider wants back of the step. Where none is open, a reasoning part without
    /// words holds it.
    pub fn close_with(&mut self, metadata: Value) {
        if self.open.is_none() {
            self.start(Kind::Reasoning);
        }
        if let Some((kind, id)) = self.open.take() {
            let [_, _, end] = kind.chunk_types();
            self.chunks.push(Chunk::new(end).with("id", id).with("providerMetadata", metadata));
        }
    }

    /// Writes a `file`, whose address is a link or a data URL.
    pub fn file(&mut self, url: &str, media_type: &str, metadata: Option<Value>) {
        let chunk = Chunk::new("file").with("url", url).with("mediaType", media_type);
        self.other(match metadata {
            Some(metadata) => chunk.with("providerMetadata", metadata),
            None => chunk,
        });
    }

    /// Writes a chunk of another kind of part, after closing the open one.
    pub fn other(&mut self, chunk: Chunk) {
        self.close();
        self.open_step();
        self.chunks.push(chunk);
    }

    /// Whether the reply has a step: something was said.
    pub fn has_step(&self) -> bool {
        self.step_open || self.finished_steps
    }

    /// Ends the step, if one is open.
    pub fn finish_step(&mut self) {
        self.close();
        if std::mem::take(&mut self.step_open) {
            self.finished_steps = true;
            self.chunks.push(Chunk::new("finish-step"));
        }
    }

    /// Ends the step and the reply. An answer without any part still has a step.
    pub fn finish(&mut self, reason: FinishReason, metadata: Map<String, Value>) {
        if !self.finished_steps {
            self.open_step();
        }
        self.finish_step();
        let mut chunk = Chunk::new("finish").with("finishReason", reason.as_str());
        if !metadata.is_empty() {
            chunk = chunk.with("messageMetadata", metadata);
        }
        self.chunks.push(chunk);
    }

    /// The chunks written since the last call.
    pub fn take(&mut self) -> Vec<Chunk> {
        std::mem::take(&mut self.chunks)
    }

    fn delta(&mut self, kind: Kind, delta: &str) {
        if delta.is_empty() {
            return;
        }
        if !matches!(self.open, Some((open, _)) if open == kind) {
            self.start(kind);
        }
        if let Some((_, id)) = &self.open {
            let [_, part, _] = kind.chunk_types();
            self.chunks.push(Chunk::new(part).with("id", id.clone()).with("delta", delta));
        }
    }

    fn start(&mut self, kind: Kind) {
        self.close();
        self.open_step();
        let (letter, count) = match kind {
            Kind::Text => ('t', &mut self.texts),
            Kind::Reasoning => ('r', &mut self.reasonings),
        };
        *count = count.saturating_add(1);
        let id = format!("{}{letter}{count}", self.prefix);
        let [start, _, _] = kind.chunk_types();
        self.chunks.push(Chunk::new(start).with("id", id.clone()));
        self.open = Some((kind, id));
    }

    fn open_step(&mut self) {
        if !std::mem::replace(&mut self.step_open, true) {
            self.chunks.push(Chunk::new("start-step"));
        }
    }
}

/// Why a reply ended, in the only words that every AI SDK client accepts (`spec/ai-sdk.md` A.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// The model was done.
    Stop,
    /// The token limit was reached.
    Length,
    /// The content was blocked.
    ContentFilter,
    /// The model waits for tool results.
    ToolCalls,
    /// The model API says that generation failed.
    Error,
    /// Anything else.
    Other,
}

impl FinishReason {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::ContentFilter => "content-filter",
            Self::ToolCalls => "tool-calls",
            Self::Error => "error",
            Self::Other => "other",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closes_one_kind_before_the_next_and_writes_nothing_empty() {
        let mut parts = Parts::new("x");
        parts.text("");
        assert!(parts.take().is_empty());
        parts.reasoning("a");
        parts.text("b");
        parts.source("https://a.test", None);
        parts.source("https://a.test", Some("again"));
        parts.source("javascript:alert(1)", None);
        parts.text("c");
        parts.other(Chunk::new("tool-input-start"));
        parts.text("d");
        parts.finish(FinishReason::Stop, Map::new());
        let written: Vec<String> = parts
            .take()
            .iter()
            .map(|chunk| format!("{} {}", chunk.kind(), chunk.text("id").unwrap_or_default()).trim_end().to_owned())
            .collect();
        assert_eq!(
            written,
            [
                "start-step",
                "reasoning-start xr1",
                "reasoning-delta xr1",
                "reasoning-end xr1",
                "text-start xt1",
                "text-delta xt1",
                "source-url",
                "text-delta xt1",
                "text-end xt1",
                "tool-input-start",
                "text-start xt2",
                "text-delta xt2",
                "text-end xt2",
                "finish-step",
                "finish",
            ]
        );
    }
}

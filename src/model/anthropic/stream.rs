//! The event stream of a message as UI message chunks: `message_start`, content blocks one after the other, `message_delta` with the stop
//! reason and the token counts, `message_stop`. Events and blocks of unknown types are left out: the API adds new ones without notice.

use serde_json::{Map, Value, json};

use super::echo::Echo;
use super::server_tools::{self, metadata};
use super::tool_calls::ToolCalls;
use crate::core::chunk::Chunk;
use crate::core::error::{Code, Failure};
pub use crate::model::answer::StreamOptions;
use crate::model::answer::{Answer, End, Translation, parse_document};
use crate::model::failure::{failure_of_event, failure_of_response};
use crate::model::parts::{FinishReason, Parts};
use crate::model::values::{count, list, string};

/// Translates one answer of the Messages API.
pub type MessageStream = Answer<Message>;

/// Most bytes of what one block holds for the API alone: a signature has a few thousand, the summary of a long conversation more.
const MAX_OPAQUE_BYTES: usize = 1 << 20;

/// What the events have said so far.
#[derive(Debug)]
pub struct Message {
    /// The message's id, by which a second message in the same stream is told.
    id: Option<String>,
    parts: Parts,
    calls: ToolCalls,
    /// What the open block holds for the API alone, so far.
    opaque: Option<Opaque>,
    /// What the open block has said at its start.
    echo: Option<Echo>,
    /// The texts of the blocks that came with the message's start.
    begun: Vec<String>,
    /// Blocks that nobody here knows.
    unknown: u32,
    finish: Option<FinishReason>,
    /// The API interrupts a long turn, and wants the message back to go on with it.
    pauses: bool,
    may_pause: bool,
    model: Option<String>,
    container: Option<Value>,
    /// Token counts under the API's names, the newest of each.
    usage: Map<String, Value>,
    is_complete: bool,
}

/// What a block holds for the API alone. It is kept, and sent back as it came.
#[derive(Debug)]
enum Opaque {
    /// The proof of a thinking block.
    Signature { said: String, echo: Option<Echo> },
    /// The summary of the conversation so far, which stands for it from then on.
    Compaction(String),
    /// A block that came with the message's start is told again.
    Repeated,
}

impl Translation for Message {
    fn new(options: StreamOptions) -> Self {
        Self {
            id: None,
            parts: Parts::new(options.id_prefix.clone()),
            calls: ToolCalls::new(options.id_prefix, options.approvals),
            opaque: None,
            echo: None,
            begun: Vec::new(),
            unknown: 0,
            finish: None,
            pauses: false,
            may_pause: options.may_pause,
            model: None,
            container: None,
            usage: Map::new(),
            is_complete: false,
        }
    }

    fn event(&mut self, event: &Value) -> Result<(), Failure> {
        let index = event.get("index").and_then(Value::as_u64);
        match string(event, "type").unwrap_or_default() {
            "message_start" => event.get("message").map_or(Ok(()), |message| self.message_start(message)),
            "content_block_start" => event.get("content_block").map_or(Ok(()), |block| self.block_start(index, block)),
            "content_block_delta" => event.get("delta").map_or(Ok(()), |delta| self.block_delta(index, delta)),
            "content_block_stop" => {
                self.end_block();
                self.calls.stop(index, &mut self.parts);
                Ok(())
            }
            "message_delta" => {
                self.read_usage(event);
                self.read_end(event.get("delta").unwrap_or(&Value::Null));
                Ok(())
            }
            "message_stop" => self.complete(End::Said),
            "error" => Err(failure_of_event(event)),
            // A gateway's own error, which has no type.
            "" if event.get("error").is_some_and(|error| !error.is_null()) => Err(failure_of_event(event)),
            _ => Ok(()),
        }
    }

    /// A message that was not streamed is accepted: some gateways do not know `stream`.
    fn document(&mut self, body: &[u8]) -> Result<(), Failure> {
        match parse_document(body) {
            Some(message) if string(&message, "type") == Some("message") => self.message(&message),
            _ => Err(failure_of_response(200, None, None, body)),
        }
    }

    fn complete(&mut self, end: End) -> Result<(), Failure> {
        let said = end == End::Said && self.parts.has_step() && self.calls.are_whole();
        let Some(reason) = self.finish.or(said.then_some(FinishReason::Other)) else {
            return Err(Failure::new(Code::ProviderStreamEnded, format!("{end} without a stop reason")));
        };
        self.end_block();
        self.parts.close();
        self.calls.close_all(&mut self.parts);
        if self.unknown > 0 && !self.parts.has_step() {
            return Err(Failure::new(Code::ProviderStreamInvalid, "the answer holds only content of unknown kinds"));
        }
        // What matters is that results are awaited.
        let waits = matches!(reason, FinishReason::Stop | FinishReason::Other) && self.calls.wait_for_client();
        let reason = if waits { FinishReason::ToolCalls } else { reason };
        let mut facts = Map::new();
        if let Some(model) = self.model.take() {
            facts.insert("model".into(), model.into());
        }
        if let Some(usage) = usage(&Value::Object(std::mem::take(&mut self.usage))) {
            facts.insert("usage".into(), usage.into());
        }
        if let Some(container) = self.container.take() {
            facts.insert(server_tools::PROVIDER.into(), json!({"container": container}));
        }
        self.pauses = self.pauses && self.may_pause && !self.calls.wait_for_client();
        if self.pauses {
            self.parts.other(Chunk::new("message-metadata").with("messageMetadata", facts));
            self.parts.finish_step();
        } else {
            self.parts.finish(reason, facts);
        }
        self.is_complete = true;
        Ok(())
    }

    fn is_complete(&self) -> bool {
        self.is_complete
    }

    fn has_stopped(&self) -> bool {
        self.finish.is_some()
    }

    fn take(&mut self) -> Vec<Chunk> {
        self.parts.take()
    }
}

impl Message {
    /// Whether the answer has ended in the middle of its turn: the API goes on when it is given the message back.
    pub fn pauses(&self) -> bool {
        self.pauses
    }

    fn message_start(&mut self, message: &Value) -> Result<(), Failure> {
        let id = string(message, "id").filter(|id| !id.is_empty());
        match (&self.id, id) {
            // Two generations in one stream: what belongs to which cannot be told.
            (Some(first), Some(id)) if first != id => {
                let why = "a second message began before the first one ended";
                return Err(Failure::new(Code::ProviderStreamInvalid, why));
            }
            // The same again says nothing new.
            (Some(first), Some(id)) if first == id => return Ok(()),
            _ => self.id = id.map(str::to_owned),
        }
        self.message(message)
    }

    /// The message as it stands at its start: empty as a rule, but the API may put whole blocks and even the stop reason here.
    fn message(&mut self, message: &Value) -> Result<(), Failure> {
        if self.model.is_none() {
            self.model = string(message, "model").filter(|model| !model.is_empty()).map(str::to_owned);
        }
        self.read_usage(message);
        for block in list(message, "content") {
            self.block_start(None, block)?;
            self.end_block();
            self.calls.stop(None, &mut self.parts);
            self.begun.push(words_of(block).to_owned());
        }
        self.read_end(message);
        Ok(())
    }

    fn block_start(&mut self, index: Option<u64>, block: &Value) -> Result<(), Failure> {
        self.end_block();
        let begun = index.and_then(|index| usize::try_from(index).ok()).and_then(|index| self.begun.get(index));
        if let Some(begun) = begun {
            self.echo = Echo::of(begun);
            self.opaque = Some(Opaque::Repeated);
            self.say(block, words_of(block));
            return Ok(());
        }
        match string(block, "type").unwrap_or_default() {
            "text" => {
                self.say(block, words_of(block));
                list(block, "citations").iter().for_each(|citation| self.citation(citation));
                self.echo = Echo::of(words_of(block));
            }
            "thinking" => {
                let said = string(block, "signature").unwrap_or_default().to_owned();
                self.opaque = Some(Opaque::Signature { echo: Echo::of(&said), said });
                self.say(block, words_of(block));
                self.echo = Echo::of(words_of(block));
            }
            "redacted_thinking" => {
                if let Some(data) = string(block, "data") {
                    self.parts.close();
                    self.parts.end_reasoning(metadata(json!({"redactedData": data})));
                }
            }
            "compaction" => {
                self.parts.close();
                self.opaque = Some(Opaque::Compaction(string(block, "content").unwrap_or_default().to_owned()));
            }
            "tool_use" | "server_tool_use" | "mcp_tool_use" => {
                return self.calls.start(index, block, &mut self.parts);
            }
            _ if server_tools::is_result(block) => self.calls.result(block, &mut self.parts),
            _ => self.unknown = self.unknown.saturating_add(1),
        }
        Ok(())
    }

    /// The next words of a block of text or thinking.
    fn say(&mut self, block: &Value, words: &str) {
        let new = Echo::new_in(&mut self.echo, words);
        match string(block, "type").unwrap_or_default() {
            // Neighbouring text blocks are one text: with citations the API cuts a sentence into several.
            "text" | "text_delta" => self.parts.text(&new),
            "thinking" | "thinking_delta" => self.parts.reasoning(&new),
            _ => {}
        }
    }

    fn block_delta(&mut self, index: Option<u64>, delta: &Value) -> Result<(), Failure> {
        let kind = string(delta, "type").unwrap_or_default();
        match (kind, &mut self.opaque) {
            ("text_delta", _) => self.say(delta, string(delta, "text").unwrap_or_default()),
            ("thinking_delta", opaque) => {
                opaque.get_or_insert_with(|| Opaque::Signature { said: String::new(), echo: None });
                self.say(delta, string(delta, "thinking").unwrap_or_default());
            }
            ("signature_delta", opaque) => {
                let opaque = opaque.get_or_insert_with(|| Opaque::Signature { said: String::new(), echo: None });
                if let Opaque::Signature { said, echo } = opaque {
                    let new = Echo::new_in(echo, string(delta, "signature").unwrap_or_default());
                    push_bounded(said, &new)?;
                }
            }
            ("compaction_delta", Some(Opaque::Compaction(summary))) => {
                push_bounded(summary, string(delta, "content").unwrap_or_default())?;
            }
            ("input_json_delta", _) => {
                let json = string(delta, "partial_json").unwrap_or_default();
                return self.calls.piece(index, json, &mut self.parts);
            }
            ("citations_delta", _) => delta.get("citation").into_iter().for_each(|citation| self.citation(citation)),
            _ => {}
        }
        Ok(())
    }

    /// Ends the block that is open. A signature is kept even where the API leaves out the words: it wants it back.
    fn end_block(&mut self) {
        self.echo = None;
        match self.opaque.take() {
            None | Some(Opaque::Repeated) => {}
            Some(Opaque::Signature { said, .. }) if said.is_empty() => self.parts.close(),
            Some(Opaque::Signature { said, .. }) => self.parts.end_reasoning(metadata(json!({"signature": said}))),
            Some(Opaque::Compaction(summary)) if summary.is_empty() => {}
            // No client shows a block of thinking without words.
            Some(Opaque::Compaction(summary)) => self.parts.end_reasoning(metadata(json!({"compaction": summary}))),
        }
    }

    fn citation(&mut self, citation: &Value) {
        // `source`: a search result that the request itself gave.
        if let Some(url) = string(citation, "url").or_else(|| string(citation, "source")) {
            self.parts.source(url, string(citation, "title"));
        }
    }

    fn read_usage(&mut self, holder: &Value) {
        // Counts at the end are those of the whole message, but not every server repeats all of them.
        if let Some(Value::Object(counts)) = holder.get("usage") {
            let said = counts.iter().filter(|(_, value)| !value.is_null());
            self.usage.extend(said.map(|(name, value)| (name.clone(), value.clone())));
        }
    }

    fn read_end(&mut self, holder: &Value) {
        if let Some(container) = holder.get("container").filter(|container| container.is_object()) {
            self.container = Some(container.clone());
        }
        if let Some(word) = string(holder, "stop_reason").filter(|word| !word.is_empty()) {
            self.finish = Some(finish_reason(word));
            self.pauses = word == "pause_turn";
        }
    }
}

/// The words of a block of text or thinking.
fn words_of(block: &Value) -> &str {
    match string(block, "type").unwrap_or_default() {
        "text" => string(block, "text").unwrap_or_default(),
        "thinking" => string(block, "thinking").unwrap_or_default(),
        _ => "",
    }
}

fn push_bounded(held: &mut String, piece: &str) -> Result<(), Failure> {
    if held.len().saturating_add(piece.len()) > MAX_OPAQUE_BYTES {
        return Err(Failure::new(Code::ProviderStreamInvalid, "a block of the model's answer is too long"));
    }
    held.push_str(piece);
    Ok(())
}

/// One of the words that every client accepts. A turn that stays paused counts as stopped: the user may go on.
fn finish_reason(word: &str) -> FinishReason {
    match word {
        "end_turn" | "stop_sequence" | "pause_turn" => FinishReason::Stop,
        "max_tokens" | "model_context_window_exceeded" => FinishReason::Length,
        "tool_use" => FinishReason::ToolCalls,
        "refusal" => FinishReason::ContentFilter,
        _ => FinishReason::Other,
    }
}

/// The token counts under the names of the AI SDK. `None` when nothing was counted.
fn usage(counts: &Value) -> Option<Map<String, Value>> {
    let fresh = count(counts, &["input_tokens"]);
    let cached = count(counts, &["cache_read_input_tokens"]);
    let written = count(counts, &["cache_creation_input_tokens"]);
    // The API counts what it read from and wrote to its cache apart from the rest.
    let input = fresh.map(|fresh| fresh.saturating_add(cached.unwrap_or(0)).saturating_add(written.unwrap_or(0)));
    let output = count(counts, &["output_tokens"]);
    let reasoning = counts.get("output_tokens_details").and_then(|details| count(details, &["thinking_tokens"]));
    let total = input.and_then(|input| input.checked_add(output?));
    let named = [
        ("inputTokens", input),
        ("outputTokens", output),
        ("totalTokens", total),
        ("reasoningTokens", reasoning),
        ("cachedInputTokens", cached),
    ];
    let map: Map<String, Value> =
        named.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.into()))).collect();
    (!map.is_empty()).then_some(map)
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;

//! The event stream of a message as UI message chunks: `message_start`, content blocks one after the other, `message_delta` with the stop
//! reason and the token counts, `message_stop`. Events and blocks of unknown types are left out: the API adds new ones without notice.

use serde_json::{Map, Value, json};

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

/// Longest signature of one block of thinking, in bytes; they have a few thousand.
const MAX_SIGNATURE_BYTES: usize = 1 << 20;

/// What the events have said so far.
#[derive(Debug)]
pub struct Message {
    parts: Parts,
    calls: ToolCalls,
    /// The signature so far of the thinking block that is open.
    thinking: Option<String>,
    finish: Option<FinishReason>,
    model: Option<String>,
    /// Token counts under the API's names, the newest of each.
    usage: Map<String, Value>,
    is_complete: bool,
}

impl Translation for Message {
    fn new(options: StreamOptions) -> Self {
        Self {
            parts: Parts::new(options.id_prefix.clone()),
            calls: ToolCalls::new(options.id_prefix, options.approvals),
            thinking: None,
            finish: None,
            model: None,
            usage: Map::new(),
            is_complete: false,
        }
    }

    fn event(&mut self, event: &Value) -> Result<(), Failure> {
        let index = event.get("index").and_then(Value::as_u64);
        match string(event, "type").unwrap_or_default() {
            "message_start" => event.get("message").map_or(Ok(()), |message| self.message(message)),
            "content_block_start" => event.get("content_block").map_or(Ok(()), |block| self.block_start(index, block)),
            "content_block_delta" => event.get("delta").map_or(Ok(()), |delta| self.block_delta(index, delta)),
            "content_block_stop" => {
                self.end_thinking();
                self.calls.stop(index, &mut self.parts);
                Ok(())
            }
            "message_delta" => {
                self.read_usage(event);
                self.read_stop_reason(event.get("delta").unwrap_or(&Value::Null));
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
        let Some(reason) = self.finish else {
            return Err(Failure::new(Code::ProviderStreamEnded, format!("{end} without a stop reason")));
        };
        self.end_thinking();
        self.parts.close();
        self.calls.close_all(&mut self.parts);
        // What matters is that results are awaited.
        let waits = reason == FinishReason::Stop && self.calls.wait_for_client();
        let reason = if waits { FinishReason::ToolCalls } else { reason };
        let mut metadata = Map::new();
        if let Some(model) = self.model.take() {
            metadata.insert("model".into(), model.into());
        }
        if let Some(usage) = usage(&Value::Object(std::mem::take(&mut self.usage))) {
            metadata.insert("usage".into(), usage.into());
        }
        self.parts.finish(reason, metadata);
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
    /// The message as it stands at its start: empty as a rule, but the API may put whole blocks and even the stop reason here.
    fn message(&mut self, message: &Value) -> Result<(), Failure> {
        if self.model.is_none() {
            self.model = string(message, "model").filter(|model| !model.is_empty()).map(str::to_owned);
        }
        self.read_usage(message);
        for block in list(message, "content") {
            self.block_start(None, block)?;
            self.end_thinking();
            self.calls.stop(None, &mut self.parts);
        }
        self.read_stop_reason(message);
        Ok(())
    }

    fn block_start(&mut self, index: Option<u64>, block: &Value) -> Result<(), Failure> {
        self.end_thinking();
        match string(block, "type").unwrap_or_default() {
            "text" => {
                self.parts.text(string(block, "text").unwrap_or_default());
                list(block, "citations").iter().for_each(|citation| self.citation(citation));
            }
            "thinking" => {
                self.thinking = Some(string(block, "signature").unwrap_or_default().to_owned());
                self.parts.reasoning(string(block, "thinking").unwrap_or_default());
            }
            "redacted_thinking" => {
                if let Some(data) = string(block, "data") {
                    self.parts.close();
                    self.parts.end_reasoning(metadata(json!({"redactedData": data})));
                }
            }
            "tool_use" | "server_tool_use" | "mcp_tool_use" => {
                return self.calls.start(index, block, &mut self.parts);
            }
            _ if server_tools::is_result(block) => self.calls.result(block, &mut self.parts),
            _ => {}
        }
        Ok(())
    }

    fn block_delta(&mut self, index: Option<u64>, delta: &Value) -> Result<(), Failure> {
        match string(delta, "type").unwrap_or_default() {
            // Neighbouring text blocks are one text: with citations the API cuts a sentence into several.
            "text_delta" => self.parts.text(string(delta, "text").unwrap_or_default()),
            "thinking_delta" => {
                self.thinking.get_or_insert_default();
                self.parts.reasoning(string(delta, "thinking").unwrap_or_default());
            }
            "signature_delta" => {
                let signature = self.thinking.get_or_insert_default();
                let piece = string(delta, "signature").unwrap_or_default();
                if signature.len().saturating_add(piece.len()) > MAX_SIGNATURE_BYTES {
                    return Err(Failure::new(Code::ProviderStreamInvalid, "the signature of the thinking is too long"));
                }
                signature.push_str(piece);
            }
            "input_json_delta" => {
                let json = string(delta, "partial_json").unwrap_or_default();
                return self.calls.piece(index, json, &mut self.parts);
            }
            "citations_delta" => delta.get("citation").into_iter().for_each(|citation| self.citation(citation)),
            _ => {}
        }
        Ok(())
    }

    /// Ends the thinking block that is open. Its signature is kept even where the API leaves out the words: it wants it back.
    fn end_thinking(&mut self) {
        match self.thinking.take() {
            None => {}
            Some(signature) if signature.is_empty() => self.parts.close(),
            Some(signature) => self.parts.end_reasoning(metadata(json!({"signature": signature}))),
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

    fn read_stop_reason(&mut self, holder: &Value) {
        if let Some(word) = string(holder, "stop_reason").filter(|word| !word.is_empty()) {
            self.finish = Some(finish_reason(word));
        }
    }
}

/// One of the words that every client accepts. A paused turn counts as stopped, as in the AI SDK's own provider: the user may go on.
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

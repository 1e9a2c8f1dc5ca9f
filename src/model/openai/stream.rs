//! The event stream of a chat completion as UI message chunks: events, the parts of one step, a finish reason, then `[DONE]` or the end
//! of the body.

use serde_json::{Map, Value};

use super::delta::{self, Piece};
use super::tool_calls::ToolCalls;
use crate::core::chunk::Chunk;
use crate::core::error::{Code, Failure};
pub use crate::model::answer::StreamOptions;
use crate::model::answer::{Answer, End, Translation, parse_document};
use crate::model::failure::{failure_of_event, failure_of_response};
use crate::model::parts::{FinishReason, Parts};
use crate::model::values::string;

/// Translates one answer of the chat-completions API.
pub type CompletionStream = Answer<Completion>;

/// What the events have said so far.
#[derive(Debug)]
pub struct Completion {
    parts: Parts,
    calls: ToolCalls,
    finish: Option<FinishReason>,
    model: Option<String>,
    usage: Option<Map<String, Value>>,
    is_complete: bool,
}

impl Translation for Completion {
    fn new(options: StreamOptions) -> Self {
        Self {
            parts: Parts::new(options.id_prefix.clone()),
            calls: ToolCalls::new(options.id_prefix, options.approvals),
            finish: None,
            model: None,
            usage: None,
            is_complete: false,
        }
    }

    fn event(&mut self, event: &Value) -> Result<(), Failure> {
        if let Some(error) = delta::error(event) {
            return Err(failure_of_event(error));
        }
        if self.model.is_none() {
            self.model = string(event, "model").filter(|model| !model.is_empty()).map(str::to_owned);
        }
        if let Some(usage) = delta::usage(event) {
            self.usage = Some(usage);
        }
        for (url, title) in delta::sources(event) {
            self.parts.source(url, title);
        }
        // Without a choice: usage alone at the end, or Azure's filter results at the start.
        let Some(choice) = delta::choice(event) else { return Ok(()) };
        // `message` is the whole of an answer that was not streamed. Perplexity sends it beside each delta, as the sum so far.
        let said = choice.get("delta").filter(|delta| delta.is_object()).or_else(|| choice.get("message"));
        if let Some(said) = said {
            let pieces = delta::pieces(said);
            if !pieces.is_empty() {
                self.calls.close_whole(&mut self.parts);
            }
            for piece in pieces {
                match piece {
                    Piece::Text(text) => self.parts.text(text),
                    Piece::Reasoning(text) => self.parts.reasoning(text),
                }
            }
            self.calls.read(said, &mut self.parts)?;
        }
        if let Some(word) = delta::finish_word(choice) {
            self.finish = Some(delta::finish_reason(word));
            self.calls.close_whole(&mut self.parts);
        }
        Ok(())
    }

    /// A completion that was not streamed is accepted: some servers do not know `stream`.
    fn document(&mut self, body: &[u8]) -> Result<(), Failure> {
        match parse_document(body) {
            Some(completion) if delta::choice(&completion).is_some() => self.event(&completion),
            _ => Err(failure_of_response(200, None, None, body)),
        }
    }

    /// Not done with the finish reason already, because the usage comes after it. Some public servers leave the reason out: content and their
    /// own last word are an answer then, and asking again would cost its price once more.
    fn complete(&mut self, end: End) -> Result<(), Failure> {
        let said = end == End::Said && (self.parts.has_step() || !self.calls.is_empty()) && self.calls.are_whole();
        let Some(reason) = self.finish.or(said.then_some(FinishReason::Other)) else {
            return Err(Failure::new(Code::ProviderStreamEnded, format!("{end} without a finish reason")));
        };
        self.parts.close();
        self.calls.close_all(&mut self.parts)?;
        // "stop" after calls: Gemini, Ollama, and OpenAI when the request forced a tool. What matters is that results are awaited.
        let waits = matches!(reason, FinishReason::Stop | FinishReason::Other) && !self.calls.is_empty();
        let reason = if waits { FinishReason::ToolCalls } else { reason };
        let mut metadata = Map::new();
        if let Some(model) = self.model.take() {
            metadata.insert("model".into(), model.into());
        }
        if let Some(usage) = self.usage.take() {
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
        self.finish.is_some_and(|reason| reason != FinishReason::Error)
    }

    fn take(&mut self) -> Vec<Chunk> {
        self.parts.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::parts::Batch;
    use proptest::prelude::*;
    use serde_json::json;

    /// All chunks as `kind text`, and the failure's code.
    fn run(body: &[u8]) -> (Vec<String>, Option<Code>) {
        let mut stream = CompletionStream::new(StreamOptions::default());
        let mut batch = stream.push(body);
        let end = stream.end();
        batch.chunks.extend(end.chunks);
        let words = batch.chunks.iter().map(|chunk| {
            let word =
                ["delta", "inputTextDelta", "toolCallId", "url", "finishReason"].iter().find_map(|key| chunk.text(key));
            format!("{} {}", chunk.kind(), word.unwrap_or_default()).trim_end().to_owned()
        });
        (words.collect(), batch.failure.or(end.failure).map(|failure| failure.code))
    }

    fn sse(events: &[Value]) -> Vec<u8> {
        events.iter().map(|event| format!("data: {event}\n\n")).collect::<String>().into_bytes()
    }

    fn said(delta: Value) -> Value {
        json!({"choices": [{"index": 0, "delta": delta}]})
    }

    fn finish(word: &str) -> Value {
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": word}]})
    }

    #[test]
    fn accepts_azures_first_event_and_usage_after_the_finish() {
        let body = sse(&[
            json!({"choices": [], "prompt_filter_results": [{"prompt_index": 0}], "model": ""}),
            said(json!({"role": "assistant", "content": "", "refusal": null, "tool_calls": null})),
            said(json!({"content": "a"})),
            finish("stop"),
            json!({"choices": [], "model": "m", "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}}),
        ]);
        let mut stream = CompletionStream::new(StreamOptions::default());
        stream.push(&body);
        let chunks = stream.push(b"data: [DONE]\n\ndata: nonsense after the end\n\n").chunks;
        assert_eq!(
            chunks.last().unwrap().get("messageMetadata").unwrap(),
            &json!({"model": "m", "usage": {"inputTokens": 1, "outputTokens": 2, "totalTokens": 3}})
        );
        assert!(stream.is_finished());
        assert_eq!(stream.end(), Batch::default());
    }

    #[test]
    fn closes_each_part_before_the_next() {
        let call = json!({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}]});
        let body = sse(&[
            said(json!({"reasoning_content": "r"})),
            said(json!({"content": "a"})),
            said(call),
            said(json!({"content": "b"})),
            finish("stop"),
        ]);
        let expected = [
            "start-step",
            "reasoning-start",
            "reasoning-delta r",
            "reasoning-end",
            "text-start",
            "text-delta a",
            "text-end",
            "tool-input-start c",
            "tool-input-delta {}",
            "tool-input-available c",
            "text-start",
            "text-delta b",
            "text-end",
            "finish-step",
            "finish tool-calls",
        ];
        assert_eq!(run(&body), (expected.map(str::to_owned).to_vec(), None));
    }

    #[test]
    fn an_answer_without_content_is_a_reply() {
        assert_eq!(run(&sse(&[finish("content_filter")])).0, ["start-step", "finish-step", "finish content-filter"]);
    }

    #[test]
    fn a_body_that_is_not_an_event_stream_is_named() {
        for (body, code) in [
            ("", Code::ProviderStreamEnded),
            (": nothing\n\n", Code::ProviderStreamEnded),
            ("data: {}\n\n", Code::ProviderStreamEnded),
            ("<!doctype html><p>Hello", Code::ProviderStreamInvalid),
            ("\u{feff} \n{\"error\":{\"code\":\"insufficient_quota\"}}", Code::ProviderQuota),
            ("{\"hello\":1}", Code::ProviderStreamInvalid),
            ("{\"cut", Code::ProviderStreamInvalid),
            ("[]", Code::ProviderStreamInvalid),
            ("nonsense", Code::ProviderStreamEnded),
        ] {
            assert_eq!(run(body.as_bytes()), (Vec::new(), Some(code)), "{body}");
        }
    }

    #[test]
    fn a_completion_that_was_not_streamed_is_accepted() {
        let body =
            json!({"object": "chat.completion", "choices": [{"message": {"content": "a"}, "finish_reason": "stop"}]});
        let expected = ["start-step", "text-start", "text-delta a", "text-end", "finish-step", "finish stop"];
        assert_eq!(run(body.to_string().as_bytes()), (expected.map(str::to_owned).to_vec(), None));
    }

    #[test]
    fn a_last_event_without_its_blank_line_counts() {
        let mut body = sse(&[said(json!({"content": "a"})), finish("length")]);
        body.truncate(body.len() - 2);
        assert_eq!(run(&body).0.last().unwrap(), "finish length");
    }

    #[test]
    fn an_error_of_the_choice_is_a_failure() {
        let body = sse(&[
            json!({"choices": [{"delta": {}, "finish_reason": "error", "error": {"code": 429, "message": "m"}}]}),
        ]);
        assert_eq!(run(&body), (Vec::new(), Some(Code::ProviderRateLimited)));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            run(&bytes);
        }

        #[test]
        fn arbitrary_events_never_panic(text in r#"(data: |event: error\n|\{"choices":\[\{"delta":|\{"content":"a"\}|null|\{\}|\}\]\}|\n\n|\[|"error":|1){0,12}"#) {
            run(text.as_bytes());
        }
    }
}

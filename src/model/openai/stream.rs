//! The event stream of a chat completion as UI message chunks: events, the parts of one step, a finish reason, then `[DONE]` or the end
//! of the body.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::delta::{self, Piece};
use super::media::{self, Media, Sound};
use super::state::{self, State};
use super::tool_calls::ToolCalls;
use crate::core::chunk::Chunk;
use crate::core::digest;
use crate::core::error::{Code, Failure};
pub use crate::model::answer::StreamOptions;
use crate::model::answer::{Answer, End, Translation, parse_document};
use crate::model::failure::{failure_of_event, failure_of_response};
use crate::model::parts::{FinishReason, Parts};
use crate::model::sums::Words;
use crate::model::values::string;

/// Translates one answer of the chat-completions API.
pub type CompletionStream = Answer<Completion>;

/// What the events have said so far.
#[derive(Debug)]
pub struct Completion {
    parts: Parts,
    calls: ToolCalls,
    text: Words,
    reasoning: Words,
    sound: Sound,
    /// Digests of the files that were shown: a whole message repeats them.
    files: HashSet<String>,
    state: State,
    origin: String,
    finish: Option<FinishReason>,
    model: Option<String>,
    usage: Option<Map<String, Value>>,
    is_complete: bool,
}

/// Where an event says something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// In a delta, by nature a piece. `is_last`: the event names the finish reason.
    Delta { is_last: bool },
    /// In a message, by nature the whole. `is_alone`: the event has no delta.
    Message { is_alone: bool },
}

impl Form {
    fn is_whole(self) -> bool {
        matches!(self, Self::Message { .. })
    }

    fn fresh(self, words: &mut Words, said: &str) -> String {
        match self {
            Self::Delta { is_last } => words.delta(said, is_last),
            Self::Message { is_alone } => words.message(said, is_alone),
        }
    }
}

impl Translation for Completion {
    fn new(options: StreamOptions) -> Self {
        let StreamOptions { id_prefix, approvals, origin, .. } = options;
        Self {
            parts: Parts::new(id_prefix.clone()),
            calls: ToolCalls::new(id_prefix, approvals, origin.clone()),
            text: Words::default(),
            reasoning: Words::default(),
            sound: Sound::default(),
            files: HashSet::new(),
            state: State::default(),
            origin,
            finish: None,
            model: None,
            usage: None,
            is_complete: false,
        }
    }

    fn event(&mut self, event: &Value) -> Result<(), Failure> {
        if let Some(error) = delta::error(event) {
            self.pass_on_words();
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
        let finish = delta::finish_word(choice);
        let delta = choice.get("delta").filter(|delta| delta.is_object());
        if let Some(delta) = delta {
            self.say(delta, Form::Delta { is_last: finish.is_some() })?;
        }
        // `message` is the whole of an answer that was not streamed. Some servers send it behind the deltas, Perplexity beside each.
        if let Some(message) = choice.get("message").filter(|_| !delta.is_some_and(delta::says_something)) {
            self.say(message, Form::Message { is_alone: delta.is_none() })?;
        }
        if let Some(word) = finish {
            self.finish = Some(delta::finish_reason(word));
            self.pass_on_words();
            self.calls.close_whole(&mut self.parts, Some(&mut self.state));
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
        self.pass_on_words();
        let has_content = self.parts.has_step() || !self.calls.is_empty() || !self.sound.is_empty();
        let is_done = end == End::Said && has_content && self.calls.are_whole();
        let Some(reason) = self.finish.or(is_done.then_some(FinishReason::Other)) else {
            return Err(Failure::new(Code::ProviderStreamEnded, format!("{end} without a finish reason")));
        };
        if let Some(sound) = self.sound.take() {
            self.file(sound);
        }
        self.calls.close_all(&mut self.parts, Some(&mut self.state))?;
        match state::metadata(&self.origin, [("step", self.state.take()), ("calls", self.calls.late())]) {
            Some(metadata) => self.parts.close_with(metadata),
            None => self.parts.close(),
        }
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

impl Completion {
    /// Everything that a delta or a message says.
    fn say(&mut self, said: &Value, form: Form) -> Result<(), Failure> {
        self.state.read_step(said, form.is_whole())?;
        self.words(said, form)?;
        for file in media::beside(said) {
            let file = file.ok_or_else(|| media::unknown(&json!({"type": "a picture without an address"})))?;
            self.pass_on_words();
            self.file(file);
        }
        if let Some(audio) = said.get("audio") {
            self.sound.read(audio, form.is_whole())?;
        }
        if delta::has_calls(said) {
            self.pass_on_words();
        }
        self.calls.read(said, form.is_whole(), &mut self.parts)
    }

    fn words(&mut self, said: &Value, form: Form) -> Result<(), Failure> {
        let pieces = delta::pieces(said);
        let (mut reasoning, mut text) = (String::new(), String::new());
        for piece in &pieces {
            match piece {
                Piece::Reasoning(words) => reasoning.push_str(words),
                Piece::Text(words) => text.push_str(words),
                Piece::Other(_) => {}
            }
        }
        // What is said of the one kind ends the wait for more of the other.
        if !form.is_whole() && !reasoning.is_empty() {
            let held = self.text.rest();
            self.write(Piece::Text(&held));
        }
        if !form.is_whole() && !text.is_empty() {
            let held = self.reasoning.rest();
            self.write(Piece::Reasoning(&held));
        }
        let fresh = [form.fresh(&mut self.reasoning, &reasoning), form.fresh(&mut self.text, &text)];
        // In the order of the event, unless the words are not those of the event.
        let is_as_said = fresh == [reasoning, text];
        let [reasoning, text] = fresh;
        if !is_as_said {
            self.write(Piece::Reasoning(&reasoning));
            self.write(Piece::Text(&text));
        }
        for piece in pieces {
            match piece {
                Piece::Other(part) => match Media::of_part(part) {
                    Some(file) => self.file(file),
                    None => return Err(media::unknown(part)),
                },
                words if is_as_said => self.write(words),
                _ => {}
            }
        }
        Ok(())
    }

    fn write(&mut self, piece: Piece<'_>) {
        let (Piece::Text(words) | Piece::Reasoning(words)) = piece else { return };
        if words.is_empty() {
            return;
        }
        self.calls.close_whole(&mut self.parts, None);
        if matches!(piece, Piece::Text(_)) { self.parts.text(words) } else { self.parts.reasoning(words) }
    }

    /// What was held back as a possible sum is none.
    fn pass_on_words(&mut self) {
        let (reasoning, text) = (self.reasoning.rest(), self.text.rest());
        self.write(Piece::Reasoning(&reasoning));
        self.write(Piece::Text(&text));
    }

    fn file(&mut self, file: Media) {
        if self.files.insert(digest::short(&file.url)) {
            self.calls.close_whole(&mut self.parts, None);
            self.parts.file(&file.url, &file.media_type, state::mark(&self.origin));
        }
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

//! The shapes in which servers of the chat-completions API say the same thing. Reading is lenient: a key that is absent, `null` or of
//! another type than documented says nothing.

use serde_json::{Map, Value};

use crate::model::parts::FinishReason;
use crate::model::values::{count, list, string};

/// A piece of what the model says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Piece<'a> {
    /// Text of the reply.
    Text(&'a str),
    /// Text of the model's reasoning.
    Reasoning(&'a str),
    /// A content part that is neither.
    Other(&'a Value),
}

/// The choice that is the reply: one asks for one, so it is the one with index 0, or the first when the server numbers none.
pub fn choice(event: &Value) -> Option<&Value> {
    let choices = event.get("choices")?.as_array()?;
    choices.iter().find(|choice| choice.get("index").and_then(Value::as_u64).unwrap_or(0) == 0)
}

/// Everything that a delta (or a whole message) says, reasoning first, as models think before they speak.
pub fn pieces(delta: &Value) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    // `reasoning_content`: DeepSeek, xAI, vLLM, Alibaba; `reasoning`: Groq, OpenRouter, Ollama, newer vLLM; `reasoning_text`: GitHub
    // Copilot. Some servers send the same words under two names, so the first that says something counts alone.
    let named = ["reasoning_content", "reasoning", "reasoning_text"]
        .into_iter()
        .find_map(|key| delta.get(key)?.as_str().filter(|text| !text.is_empty()));
    match named {
        Some(text) => pieces.push(Piece::Reasoning(text)),
        // OpenRouter's structured form: `text` of `reasoning.text`, `summary` of `reasoning.summary`.
        None => {
            for detail in list(delta, "reasoning_details") {
                let text = string(detail, "text").or_else(|| string(detail, "summary"));
                pieces.extend(text.map(Piece::Reasoning));
            }
        }
    }
    match delta.get("content") {
        Some(Value::String(text)) => pieces.push(Piece::Text(text)),
        Some(Value::Array(parts)) => parts.iter().for_each(|part| content_part(part, &mut pieces)),
        Some(part @ Value::Object(_)) => content_part(part, &mut pieces),
        _ => {}
    }
    // A refusal is the model's answer; a client without the key would see an empty reply. So is what it says aloud.
    pieces.extend(string(delta, "refusal").map(Piece::Text));
    pieces.extend(delta.get("audio").and_then(|audio| string(audio, "transcript")).map(Piece::Text));
    pieces.retain(|piece| !matches!(piece, Piece::Text("") | Piece::Reasoning("")));
    pieces
}

/// One part of Mistral's content arrays: `{type:"text",text}`, `{type:"thinking",thinking:[{type:"text",text}]}` (or a plain string).
fn content_part<'a>(part: &'a Value, pieces: &mut Vec<Piece<'a>>) {
    if let Some(text) = part.as_str() {
        pieces.push(Piece::Text(text));
        return;
    }
    match string(part, "type").unwrap_or("text") {
        "text" | "output_text" => pieces.extend(string(part, "text").map(Piece::Text)),
        "refusal" => pieces.extend(string(part, "refusal").map(Piece::Text)),
        "thinking" | "reasoning" => {
            pieces.extend(string(part, "thinking").or_else(|| string(part, "text")).map(Piece::Reasoning));
            for inner in list(part, "thinking") {
                pieces.extend(inner.as_str().or_else(|| string(inner, "text")).map(Piece::Reasoning));
            }
        }
        // Mistral's marks of what the text rests on.
        "reference" => {}
        _ => pieces.push(Piece::Other(part)),
    }
}

/// Whether a delta has calls.
pub fn has_calls(delta: &Value) -> bool {
    !list(delta, "tool_calls").is_empty() || delta.get("function_call").is_some_and(Value::is_object)
}

/// Whether a delta says anything: words, calls, pictures, sound.
pub fn says_something(delta: &Value) -> bool {
    has_calls(delta)
        || !pieces(delta).is_empty()
        || ["images", "videos", "files"].iter().any(|key| !list(delta, key).is_empty())
        || delta.get("audio").is_some_and(Value::is_object)
}

/// The sources that an event names, as address and title.
pub fn sources(event: &Value) -> Vec<(&str, Option<&str>)> {
    let mut sources = Vec::new();
    // Perplexity names titles in `search_results` and repeats the addresses in `citations`, in every event. Titles first.
    for result in list(event, "search_results") {
        sources.extend(string(result, "url").map(|url| (url, string(result, "title"))));
    }
    for citation in list(event, "citations") {
        let url = citation.as_str().or_else(|| string(citation, "url"));
        sources.extend(url.map(|url| (url, string(citation, "title"))));
    }
    // OpenAI's and OpenRouter's annotations of a delta.
    let said = choice(event).and_then(|choice| choice.get("delta").or_else(|| choice.get("message")));
    for annotation in said.map(|said| list(said, "annotations")).unwrap_or_default() {
        let citation = annotation.get("url_citation").unwrap_or(annotation);
        sources.extend(string(citation, "url").map(|url| (url, string(citation, "title"))));
    }
    sources
}

/// The choice's finish reason, as the server spells it. Some servers send an empty text until the end.
pub fn finish_word(choice: &Value) -> Option<&str> {
    string(choice, "finish_reason").filter(|word| !word.is_empty() && *word != "null")
}

/// One of the words that every client accepts, for every spelling seen in public servers.
pub fn finish_reason(word: &str) -> FinishReason {
    match word.to_ascii_lowercase().replace('-', "_").as_str() {
        "stop" | "stop_sequence" | "end_turn" | "eos" | "eos_token" | "complete" | "completed" | "done" => {
            FinishReason::Stop
        }
        // model_length: Mistral.
        "length" | "max_tokens" | "max_output_tokens" | "model_length" | "model_context_window_exceeded" => {
            FinishReason::Length
        }
        // sensitive: Zhipu; the upper-case ones of Gemini.
        "content_filter"
        | "content_filtered"
        | "safety"
        | "recitation"
        | "blocklist"
        | "prohibited_content"
        | "spii"
        | "sensitive"
        | "refusal"
        | "guardrail_intervened" => FinishReason::ContentFilter,
        "tool_calls" | "tool_call" | "tool_use" | "function_call" | "function_calls" => FinishReason::ToolCalls,
        // network_error: Zhipu; insufficient_system_resource: DeepSeek.
        "error" | "failed" | "network_error" | "insufficient_system_resource" | "malformed_function_call" => {
            FinishReason::Error
        }
        _ => FinishReason::Other,
    }
}

/// The event's token counts under the names of the AI SDK. `None` when the event counts nothing.
pub fn usage(event: &Value) -> Option<Map<String, Value>> {
    let groq = event.get("x_groq").and_then(|groq| groq.get("usage"));
    let usage = event.get("usage").filter(|usage| usage.is_object()).or(groq)?;
    let input = count(usage, &["prompt_tokens", "input_tokens"]);
    let output = count(usage, &["completion_tokens", "output_tokens"]);
    let total = count(usage, &["total_tokens"]).or_else(|| input?.checked_add(output?));
    let details = |key: &str, names: &[&str]| usage.get(key).and_then(|details| count(details, names));
    let reasoning = details("completion_tokens_details", &["reasoning_tokens"])
        .or_else(|| details("output_tokens_details", &["reasoning_tokens"]))
        .or_else(|| count(usage, &["reasoning_tokens"]));
    // prompt_cache_hit_tokens: DeepSeek; cached_tokens at the top: Moonshot.
    let cached = details("prompt_tokens_details", &["cached_tokens"])
        .or_else(|| details("input_tokens_details", &["cached_tokens"]))
        .or_else(|| count(usage, &["prompt_cache_hit_tokens", "cached_tokens"]));
    let mut counts = Map::new();
    for (name, value) in [
        ("inputTokens", input),
        ("outputTokens", output),
        ("totalTokens", total),
        ("reasoningTokens", reasoning),
        ("cachedInputTokens", cached),
    ] {
        if let Some(value) = value {
            counts.insert(name.into(), value.into());
        }
    }
    (!counts.is_empty()).then_some(counts)
}

/// The error that an event reports, if it does. vLLM sends the error's keys at the top, with `object: "error"`.
pub fn error(event: &Value) -> Option<&Value> {
    let set =
        |holder: &Value| holder.get("error").is_some_and(|error| !error.is_null() && *error != Value::Bool(false));
    if set(event) || string(event, "object") == Some("error") || string(event, "type") == Some("error") {
        return Some(event);
    }
    // OpenRouter reports the upstream's failure in the choice.
    choice(event).filter(|choice| set(choice))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reads_content_in_every_shape() {
        let said = |delta: &Value| format!("{:?}", pieces(delta));
        for (delta, expected) in [
            (json!({"content": "a"}), r#"[Text("a")]"#),
            (json!({"content": "", "reasoning_content": null}), "[]"),
            (json!({"content": "a", "reasoning": "b", "reasoning_content": "b"}), r#"[Reasoning("b"), Text("a")]"#),
            (
                json!({"reasoning": "", "reasoning_details": [{"type": "reasoning.text", "text": "b"}]}),
                r#"[Reasoning("b")]"#,
            ),
            (
                json!({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "b"}]}, {"type": "text", "text": "a"}, {"type": "reference", "reference_ids": [1]}]}),
                r#"[Reasoning("b"), Text("a")]"#,
            ),
            (json!({"content": {"type": "thinking", "thinking": "b"}}), r#"[Reasoning("b")]"#),
            (json!({"refusal": "no"}), r#"[Text("no")]"#),
            (json!(null), "[]"),
            (json!({"content": 4}), "[]"),
        ] {
            assert_eq!(said(&delta), expected, "{delta}");
        }
    }

    #[test]
    fn maps_every_spelling() {
        for (word, expected) in [
            ("stop", "stop"),
            ("STOP", "stop"),
            ("MAX_TOKENS", "length"),
            ("model_length", "length"),
            ("content-filter", "content-filter"),
            ("SAFETY", "content-filter"),
            ("tool-calls", "tool-calls"),
            ("function_call", "tool-calls"),
            ("insufficient_system_resource", "error"),
            ("gibberish", "other"),
        ] {
            assert_eq!(finish_reason(word).as_str(), expected, "{word}");
        }
    }

    #[test]
    fn reads_usage_in_every_shape() {
        for (event, expected) in [
            (json!({"usage": null}), None),
            (json!({"usage": {}}), None),
            (
                json!({"usage": {"prompt_tokens": 1, "completion_tokens": 2}}),
                Some(json!({"inputTokens": 1, "outputTokens": 2, "totalTokens": 3})),
            ),
            (json!({"x_groq": {"usage": {"total_tokens": 2}}}), Some(json!({"totalTokens": 2}))),
            (
                json!({"usage": {"prompt_tokens": null, "prompt_cache_hit_tokens": 4}}),
                Some(json!({"cachedInputTokens": 4})),
            ),
        ] {
            assert_eq!(usage(&event).map(Value::Object), expected, "{event}");
        }
    }
}

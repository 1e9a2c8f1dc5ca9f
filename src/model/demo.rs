//! The reply that needs no model and no key: a fixed script, so that a fresh deployment streams something worth resuming.

use std::collections::VecDeque;

use serde_json::{Map, Value, json};

use super::agents_error::AgentsError;
use super::fields::Fields;
use super::parts::{FinishReason, Parts};
use super::values::{list, string};
use crate::core::chunk::Chunk;

mod calls;

/// An agent with `"producer":"demo"`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DemoSettings {
    /// `paceMs`: one beat, in ms. Default 40, about 25 words a second.
    pub pace_ms: u32,
    /// `repeat`: how often the middle paragraphs are said. Default 1.
    pub repeat: u32,
    /// `deltas`: instead of the script, one text part with exactly this many deltas, for tests and measurements.
    pub deltas: Option<u32>,
    /// `deltaBytes`: bytes of each of those deltas. Default 64.
    pub delta_bytes: u32,
}

impl Default for DemoSettings {
    fn default() -> Self {
        Self { pace_ms: 40, repeat: 1, deltas: None, delta_bytes: 64 }
    }
}

impl DemoSettings {
    /// Reads the agent's fields.
    ///
    /// # Errors
    /// [`AgentsError::Field`] for the first thing to change.
    pub fn parse(mut fields: Fields) -> Result<Self, AgentsError> {
        let default = Self::default();
        let settings = Self {
            pace_ms: fields.whole("paceMs", 0, 60_000)?.unwrap_or(default.pace_ms),
            repeat: fields.whole("repeat", 1, 10_000)?.unwrap_or(default.repeat),
            deltas: fields.whole("deltas", 1, 1_000_000)?,
            delta_bytes: fields.whole("deltaBytes", 1, 1_000_000)?.unwrap_or(default.delta_bytes),
        };
        fields.end()?;
        Ok(settings)
    }
}

/// One chunk of the script, and how long to wait before it, in beats of `paceMs`.
#[derive(Clone, Debug, PartialEq)]
pub struct Beat {
    /// The chunk to append.
    pub chunk: Chunk,
    /// Beats to wait before it.
    pub wait: u32,
}

/// A script being played: an iterator, so that a long one is never in memory as a whole.
#[derive(Clone, Debug)]
pub struct Script {
    lines: VecDeque<Line>,
    parts: Parts,
    ready: VecDeque<Beat>,
    said: Map<String, Value>,
}

#[derive(Clone, Debug)]
enum Line {
    Reasoning(String),
    Text(String),
    /// Numbered deltas of a given size: the next number, how many, how many bytes.
    Numbered(u32, u32, u32),
    Chunk(Chunk, u32),
    FinishStep,
    Finish(FinishReason),
}

/// What comes next in a conversation: the answer to the user's last message, or the rest of a reply whose calls have been answered. The
/// same arguments give the same chunks. `id_prefix` begins part and tool call ids and must differ between the runs of a session.
pub fn reply(history: &[Value], id_prefix: &str, settings: &DemoSettings) -> Script {
    match history.last() {
        Some(last) if string(last, "role") == Some("assistant") => play(calls::going_on(last), "", id_prefix),
        last => script(&last.map(text_of).unwrap_or_default(), id_prefix, settings),
    }
}

/// The text parts of a UI message.
fn text_of(message: &Value) -> String {
    let texts: Vec<&str> = list(message, "parts").iter().filter_map(|part| string(part, "text")).collect();
    texts.join("\n")
}

/// The script that answers a user's message.
fn script(user_text: &str, id_prefix: &str, settings: &DemoSettings) -> Script {
    let lines = match (settings.deltas, calls::command(user_text)) {
        (Some(count), _) => {
            vec![Line::Numbered(1, count, settings.delta_bytes), Line::FinishStep, Line::Finish(FinishReason::Stop)]
        }
        (None, Some(command)) => calls::asking(command, id_prefix),
        (None, None) => lines(user_text, id_prefix, settings.repeat),
    };
    play(lines, user_text, id_prefix)
}

fn play(lines: Vec<Line>, user_text: &str, id_prefix: &str) -> Script {
    let mut script =
        Script { lines: lines.into(), parts: Parts::new(id_prefix), ready: VecDeque::new(), said: Map::new() };
    script.said = usage(user_text, &script.lines);
    script
}

/// Longest quotation of the user's message, in characters.
const QUOTE_CHARS: usize = 280;

/// Longest delta of the script, in characters: a text without spaces must still stream.
const WORD_CHARS: usize = 16;

fn lines(user_text: &str, id_prefix: &str, repeat: u32) -> Vec<Line> {
    let quoted = quote(user_text);
    let mut lines = Vec::new();
    let thought = if quoted.is_empty() {
        "The message is empty. I will say what I am and what can be tried here."
    } else {
        "The user wrote to the demo agent. I will quote the message, so that it is plain which question this answers, and then say what can be tried here."
    };
    lines.push(Line::Reasoning(thought.to_owned()));
    if asks_for_tool(user_text) {
        lines.push(Line::Text("You ask for a tool, so I call one first: it counts your words.".to_owned()));
        lines.extend(tool_call(&quoted, user_text, id_prefix));
    }
    lines.push(Line::FinishStep);
    let opening = if quoted.is_empty() {
        "You sent a message without text.\n\n".to_owned()
    } else {
        format!("You wrote: “{quoted}”\n\n")
    };
    lines.push(Line::Text(opening));
    for _ in 0..repeat {
        lines.push(Line::Text(MIDDLE.to_owned()));
    }
    lines.push(Line::Text(CLOSING.to_owned()));
    lines.push(Line::FinishStep);
    lines.push(Line::Finish(FinishReason::Stop));
    lines
}

const MIDDLE: &str = "This reply comes from the demo agent. No model runs and no key is needed; the words are sent one by one, as a \
model would send them, and each of them is stored before you see it.\n\nReload the page while I am still writing. The text so far comes \
back at once and the rest follows, each word exactly once. Open the same conversation in a second tab: both show the same reply. Close \
all of them and come back in a minute: I will have gone on without you.\n\n";

const CLOSING: &str = "Write a message with the word “tool” to see a tool call with its streamed input and its result, /tool or /tools \
for calls that your page answers, /approve for one that you approve. To talk to a real model, name one in the AGENTS setting.";

/// A call that the service executes itself: `providerExecuted`, so that clients do not try to, and `dynamic`, so that clients accept it
/// without knowing the tool.
fn tool_call(quoted: &str, user_text: &str, id_prefix: &str) -> Vec<Line> {
    let id = format!("{id_prefix}call1");
    let input = json!({"text": quoted});
    let output = json!({"words": words(user_text), "characters": user_text.chars().count()});
    let chunk = |kind: &str| Chunk::new(kind).with("toolCallId", id.clone());
    let flagged = |chunk: Chunk| chunk.with("providerExecuted", true).with("dynamic", true);
    let mut lines = vec![Line::Chunk(flagged(chunk("tool-input-start").with("toolName", TOOL_NAME)), 4)];
    for piece in pieces(&input.to_string()) {
        lines.push(Line::Chunk(chunk("tool-input-delta").with("inputTextDelta", piece), 1));
    }
    lines.push(Line::Chunk(flagged(chunk("tool-input-available").with("toolName", TOOL_NAME).with("input", input)), 1));
    lines.push(Line::Chunk(flagged(chunk("tool-output-available").with("output", output)), 10));
    lines
}

/// The demo's own tool.
const TOOL_NAME: &str = "countWords";

fn asks_for_tool(text: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric())
        .any(|word| word.eq_ignore_ascii_case("tool") || word.eq_ignore_ascii_case("tools"))
}

fn words(text: &str) -> usize {
    text.split_whitespace().count()
}

/// The message on one line, without control characters, cut after [`QUOTE_CHARS`].
fn quote(text: &str) -> String {
    let mut quoted = String::new();
    let mut left = QUOTE_CHARS;
    let mut gap = false;
    for c in text.chars() {
        if c.is_whitespace() || c.is_control() {
            gap = !quoted.is_empty();
            continue;
        }
        if left == 0 {
            quoted.push('…');
            break;
        }
        if std::mem::take(&mut gap) {
            quoted.push(' ');
        }
        quoted.push(c);
        left = left.saturating_sub(1);
    }
    quoted
}

/// Words with the space after them, none longer than [`WORD_CHARS`].
fn pieces(text: &str) -> Vec<String> {
    let mut pieces = Vec::new();
    for word in text.split_inclusive(char::is_whitespace) {
        let mut piece = String::new();
        let mut length = 0usize;
        for c in word.chars() {
            // White space stays with its word.
            if length >= WORD_CHARS && !c.is_whitespace() {
                pieces.push(std::mem::take(&mut piece));
                length = 0;
            }
            piece.push(c);
            length = length.saturating_add(1);
        }
        pieces.push(piece);
    }
    pieces
}

/// Counts as a model would report them, with one word for one token.
fn usage(user_text: &str, lines: &VecDeque<Line>) -> Map<String, Value> {
    let output: usize = lines
        .iter()
        .map(|line| match line {
            Line::Reasoning(text) | Line::Text(text) => words(text),
            Line::Numbered(_, count, _) => usize::try_from(*count).unwrap_or(usize::MAX),
            _ => 0,
        })
        .fold(0, usize::saturating_add);
    let input = words(user_text);
    let counts = json!({"inputTokens": input, "outputTokens": output, "totalTokens": input.saturating_add(output)});
    Map::from_iter([("model".to_owned(), Value::from("demo")), ("usage".to_owned(), counts)])
}

/// The delta's number, filled up to its size, so that a reader can see a gap or a repeat.
fn numbered(number: u32, bytes: u32) -> String {
    let size = usize::try_from(bytes).unwrap_or(usize::MAX);
    let mut text: String = format!("{number} ").chars().take(size).collect();
    text.extend(std::iter::repeat_n('.', size.saturating_sub(text.len())));
    text
}

impl Script {
    /// Plays the next line. `None` after the last.
    fn play(&mut self) -> Option<()> {
        let mut wait = 0;
        match self.lines.pop_front()? {
            Line::Reasoning(text) => self.say(&text, Parts::reasoning),
            Line::Text(text) => self.say(&text, Parts::text),
            Line::Numbered(number, count, bytes) => {
                self.parts.text(&numbered(number, bytes));
                wait = 1;
                if number < count {
                    self.lines.push_front(Line::Numbered(number.saturating_add(1), count, bytes));
                }
            }
            Line::Chunk(chunk, beats) => {
                self.parts.other(chunk);
                wait = beats;
            }
            Line::FinishStep => self.parts.finish_step(),
            Line::Finish(reason) => self.parts.finish(reason, std::mem::take(&mut self.said)),
        }
        self.collect(wait);
        Some(())
    }

    fn say(&mut self, text: &str, part: fn(&mut Parts, &str)) {
        for piece in pieces(text) {
            part(&mut self.parts, &piece);
            self.collect(1);
        }
    }

    /// What has been written comes at once, after the wait.
    fn collect(&mut self, mut wait: u32) {
        for chunk in self.parts.take() {
            self.ready.push_back(Beat { chunk, wait: std::mem::take(&mut wait) });
        }
    }
}

impl Iterator for Script {
    type Item = Beat;

    fn next(&mut self) -> Option<Beat> {
        while self.ready.is_empty() {
            self.play()?;
        }
        self.ready.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn play(text: &str) -> Vec<Beat> {
        script(text, "p", &DemoSettings::default()).collect()
    }

    fn said(beats: &[Beat], kind: &str) -> String {
        beats.iter().filter(|beat| beat.chunk.kind() == kind).filter_map(|beat| beat.chunk.text("delta")).collect()
    }

    #[test]
    fn quotes_the_message_in_several_steps() {
        let beats = play("Hello\n  wörld 🐙");
        assert!(said(&beats, "text-delta").starts_with("You wrote: “Hello wörld 🐙”\n\n"));
        assert!(!said(&beats, "reasoning-delta").is_empty());
        assert_eq!(beats.iter().filter(|beat| beat.chunk.kind() == "start-step").count(), 2);
        let last = &beats.last().unwrap().chunk;
        assert_eq!((last.kind(), last.text("finishReason")), ("finish", Some("stop")));
        assert_eq!(last.get("messageMetadata").unwrap()["usage"]["inputTokens"], 3);
        assert_eq!(beats, play("Hello\n  wörld 🐙"));
    }

    #[test]
    fn calls_a_tool_when_asked() {
        let kinds =
            |text: &str| -> Vec<String> { play(text).iter().map(|beat| beat.chunk.kind().to_owned()).collect() };
        assert!(!kinds("toolbox").iter().any(|kind| kind.starts_with("tool-")));
        let beats = play("use a TOOL, please");
        let input: String = beats.iter().filter_map(|beat| beat.chunk.text("inputTextDelta")).collect();
        let find = |kind: &str| beats.iter().find(|beat| beat.chunk.kind() == kind).unwrap().chunk.clone();
        let available = find("tool-input-available");
        assert_eq!(serde_json::from_str::<Value>(&input).unwrap(), *available.get("input").unwrap());
        let output = find("tool-output-available");
        assert_eq!(*output.get("output").unwrap(), json!({"words": 4, "characters": 18}));
        assert_eq!(output.text("toolCallId"), Some("pcall1"));
    }

    #[test]
    fn survives_an_empty_and_a_huge_message() {
        assert!(said(&play(" \n"), "text-delta").starts_with("You sent a message without text."));
        let beats = play(&"ß🐙\u{301}".repeat(1_500_000));
        assert!(said(&beats, "text-delta").len() < 4000);
    }

    #[test]
    fn sends_as_many_deltas_as_asked_of_the_size_asked() {
        let settings = DemoSettings { deltas: Some(1000), delta_bytes: 7, ..DemoSettings::default() };
        let deltas: Vec<String> =
            script("x", "", &settings).filter_map(|beat| beat.chunk.text("delta").map(str::to_owned)).collect();
        assert_eq!(deltas.len(), 1000);
        assert!(deltas.iter().all(|delta| delta.len() == 7));
        assert_eq!((deltas[0].as_str(), deltas[999].as_str()), ("1 .....", "1000 .."));
        let long = DemoSettings { repeat: 5, ..DemoSettings::default() };
        assert!(script("x", "", &long).count() > 4 * play("x").len() / 2);
    }

    proptest! {
        #[test]
        fn any_message_gets_a_whole_reply(text in ".{0,400}( tool)?") {
            let beats = play(&text);
            prop_assert_eq!(beats.last().unwrap().chunk.kind(), "finish");
            let deltas = beats.iter().filter_map(|beat| beat.chunk.text("delta").or(beat.chunk.text("inputTextDelta")));
            for delta in deltas {
                prop_assert!(!delta.is_empty() && delta.chars().count() <= WORD_CHARS + 1);
            }
        }
    }
}

//! The demo's calls that the page executes or the user approves: a message with `/tool`, `/tools` or `/approve`, and the rest of the reply
//! once the answers are there.

use serde_json::{Value, json};

use super::{Line, pieces, quote};
use crate::core::chunk::Chunk;
use crate::model::parts::FinishReason;
use crate::model::values::{list, string};

/// What a message asks the demo to call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// `/tool`: one tool of the page.
    Tool,
    /// `/tools`: two in one step.
    Tools,
    /// `/approve`: a tool of the demo's own, which asks the user first.
    Approve,
}

/// The first command that is a word of the message.
pub(super) fn command(text: &str) -> Option<Command> {
    text.split_whitespace().find_map(|word| {
        match word.trim_end_matches(|c: char| c.is_ascii_punctuation()).to_ascii_lowercase().as_str() {
            "/tool" => Some(Command::Tool),
            "/tools" => Some(Command::Tools),
            "/approve" => Some(Command::Approve),
            _ => None,
        }
    })
}

/// The first part of the reply: it ends with calls that wait.
pub(super) fn asking(command: Command, id_prefix: &str) -> Vec<Line> {
    let id = |number: u8| format!("{id_prefix}call{number}");
    let say = |text: &str| Line::Text(text.to_owned());
    let where_ = ("get_location", json!({"accuracy": "city"}));
    let mut lines = Vec::new();
    match command {
        Command::Tool => {
            lines.push(say("I ask your page where you are, and go on when it has answered."));
            lines.extend(input(&id(1), &where_));
        }
        Command::Tools => {
            lines.push(say("I ask your page two things at once, and go on when it has answered both."));
            lines.extend(input(&id(1), &where_));
            lines.extend(input(&id(2), &("get_time", json!({"format": "24h"}))));
        }
        Command::Approve => {
            lines.push(say("I would like to delete a file. It is not real, and I ask first all the same."));
            lines.extend(input(&id(1), &("delete_file", json!({"path": "/demo/notes.txt"}))));
            let request = Chunk::new("tool-approval-request").with("approvalId", id(1)).with("toolCallId", id(1));
            lines.push(Line::Chunk(request, 1));
        }
    }
    lines.push(Line::FinishStep);
    lines.push(Line::Finish(FinishReason::ToolCalls));
    lines
}

/// A call's streamed input.
fn input(id: &str, (name, input): &(&str, Value)) -> Vec<Line> {
    let chunk = |kind: &str| Chunk::new(kind).with("toolCallId", id);
    let mut lines = vec![Line::Chunk(chunk("tool-input-start").with("toolName", *name), 4)];
    for piece in pieces(&input.to_string().replace(':', ": ")) {
        lines.push(Line::Chunk(chunk("tool-input-delta").with("inputTextDelta", piece), 1));
    }
    lines.push(Line::Chunk(chunk("tool-input-available").with("toolName", *name).with("input", input.clone()), 1));
    lines
}

/// The rest of a reply whose last step made calls: those that were approved are executed, then every answer is quoted.
pub(super) fn going_on(reply: &Value) -> Vec<Line> {
    let parts = list(reply, "parts");
    let step = parts
        .iter()
        .rposition(|part| string(part, "type") == Some("step-start"))
        .map_or(parts, |at| parts.get(at..).unwrap_or_default());
    let mut lines = Vec::new();
    let mut said = Vec::new();
    for part in step {
        let kind = string(part, "type").unwrap_or_default();
        let Some(name) = kind.strip_prefix("tool-").or_else(|| string(part, "toolName")) else { continue };
        let approval = part.get("approval").unwrap_or(&Value::Null);
        let granted = approval.get("approved").and_then(Value::as_bool);
        let what = match (string(part, "state").unwrap_or_default(), granted) {
            ("output-available", _) => {
                format!("answered: {}", quote(&part.get("output").unwrap_or(&Value::Null).to_string()))
            }
            ("output-error", _) => format!("failed: {}", quote(string(part, "errorText").unwrap_or_default())),
            ("approval-responded", Some(true)) => {
                let id = string(part, "toolCallId").unwrap_or_default();
                let chunk = Chunk::new("tool-output-available").with("toolCallId", id);
                lines.push(Line::Chunk(chunk.with("output", json!({"done": true})), 10));
                "was approved, and I have pretended to do it".to_owned()
            }
            ("approval-responded" | "output-denied", _) => match string(approval, "reason") {
                Some(reason) => format!("was denied: {}", quote(reason)),
                None => "was denied, so I leave it".to_owned(),
            },
            _ => "was not answered".to_owned(),
        };
        said.push(format!("{name} {what}"));
    }
    let said = if said.is_empty() { "There was nothing to answer.".to_owned() } else { said.join(".\n\n") + "." };
    lines.push(Line::Text(said));
    lines.push(Line::Text(
        "\n\nThis is the same message as before the answers, written by a run of its own.".to_owned(),
    ));
    lines.push(Line::FinishStep);
    lines.push(Line::Finish(FinishReason::Stop));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::demo::{Beat, DemoSettings, reply};

    fn play(history: &[Value]) -> Vec<Chunk> {
        reply(history, "r2.", &DemoSettings::default()).map(|Beat { chunk, .. }| chunk).collect()
    }

    fn asked(text: &str) -> Vec<Chunk> {
        play(&[json!({"id": "u", "role": "user", "parts": [{"type": "text", "text": text}]})])
    }

    fn all(chunks: &[Chunk], kind: &str, key: &str) -> Vec<String> {
        chunks
            .iter()
            .filter(|chunk| chunk.kind() == kind)
            .filter_map(|chunk| chunk.text(key).map(str::to_owned))
            .collect()
    }

    #[test]
    fn commands_are_words() {
        assert_eq!(command("please /tool."), Some(Command::Tool));
        assert_eq!(command("/TOOLS, please"), Some(Command::Tools));
        assert_eq!(command("(/approve"), None);
        assert_eq!(command("/approve"), Some(Command::Approve));
        assert_eq!(command("a tool, a /toolbox, https://a.test/tool"), None);
    }

    #[test]
    fn a_command_ends_the_reply_with_calls_that_wait() {
        for (text, names) in [("/tool", vec!["get_location"]), ("/tools", vec!["get_location", "get_time"])] {
            let chunks = asked(text);
            assert_eq!(all(&chunks, "tool-input-available", "toolName"), names);
            assert!(all(&chunks, "tool-input-delta", "inputTextDelta").len() > names.len());
            assert!(!chunks.iter().any(|chunk| chunk.kind().starts_with("tool-output-")));
            assert_eq!(chunks.iter().filter(|chunk| chunk.kind() == "start-step").count(), 1);
            assert_eq!(chunks.last().unwrap().text("finishReason"), Some("tool-calls"));
        }
        let chunks = asked("/tool");
        let input: Value = serde_json::from_str(&all(&chunks, "tool-input-delta", "inputTextDelta").concat()).unwrap();
        let available = chunks.iter().find(|chunk| chunk.kind() == "tool-input-available").unwrap();
        assert_eq!(Some(&input), available.get("input"));
        let chunks = asked("/approve");
        assert_eq!(all(&chunks, "tool-approval-request", "toolCallId"), ["r2.call1"]);
    }

    #[test]
    fn the_reply_goes_on_with_the_answers() {
        let reply = |part: Value| {
            let old = json!({"type": "tool-old", "toolCallId": "o", "state": "output-available", "input": {}, "output": "OLD"});
            let parts =
                json!([{"type": "step-start"}, old, {"type": "step-start"}, {"type": "text", "text": "t"}, part]);
            play(&[json!({"role": "user", "parts": []}), json!({"id": "a", "role": "assistant", "parts": parts})])
        };
        let text = |chunks: &[Chunk]| all(chunks, "text-delta", "delta").concat();
        let tool = |state: &str, extra: Value| {
            let mut part = json!({"type": "tool-get_location", "toolCallId": "c", "state": state, "input": {}});
            part.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            part
        };
        let chunks = reply(tool("output-available", json!({"output": {"city": "Bern"}})));
        assert!(text(&chunks).starts_with("get_location answered: {\"city\":\"Bern\"}."));
        assert!(!text(&chunks).contains("OLD"));
        assert_eq!(chunks.last().unwrap().text("finishReason"), Some("stop"));
        let chunks = reply(tool("output-error", json!({"errorText": "no signal"})));
        assert!(text(&chunks).starts_with("get_location failed: no signal."));
        let chunks = reply(tool("approval-responded", json!({"approval": {"id": "a", "approved": true}})));
        assert_eq!(all(&chunks, "tool-output-available", "toolCallId"), ["c"]);
        assert!(text(&chunks).contains("was approved"));
        for state in ["approval-responded", "output-denied"] {
            let chunks = reply(tool(state, json!({"approval": {"id": "a", "approved": false, "reason": "mine"}})));
            assert!(text(&chunks).contains("was denied: mine"));
            assert!(all(&chunks, "tool-output-available", "toolCallId").is_empty());
        }
    }
}

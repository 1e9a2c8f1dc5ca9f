//! The list of messages as the strictest servers of the API accept it: one system message, the first; then the user; roles alternate, with the
//! results of calls right behind the message that made them, and the assistant behind those; nothing is empty; the last word is not the
//! assistant's. Mistral, Perplexity and the chat templates of many open models refuse the whole request otherwise, and with it every later
//! one of the conversation.

use serde_json::{Map, Value, json};

use crate::model::values::string;

/// Stands for what the user said where a conversation begins with the assistant, or where the user said nothing that the API takes.
const NO_MESSAGE: &str = "(no message)";

/// Asks for more where a conversation ends with the assistant.
const CONTINUE: &str = "Continue.";

/// Stands for what the assistant had still to say where the user went on behind results.
const INTERRUPTED: &str = "(interrupted)";

/// Between what was said in several messages of one role.
const GAP: &str = "\n\n";

/// What the assistant says in one message.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Saying {
    /// The words; blank when there are none.
    pub text: String,
    /// What it thought.
    pub reasoning: String,
    /// Keys that the vendor wants back as they came.
    pub state: Map<String, Value>,
    /// Calls, as the API writes them.
    pub calls: Vec<Value>,
    /// `tool` messages, one for each call.
    pub results: Vec<Value>,
    /// Content parts with what the model has drawn: only users may send them.
    pub pictures: Vec<Value>,
}

/// A conversation being written.
#[derive(Clone, Debug)]
pub struct Conversation {
    /// Whether thoughts are sent, as `reasoning_content`. Vendors that want them back refuse a message of the assistant without the key.
    reasoning: bool,
    system: Vec<String>,
    turns: Vec<Turn>,
    /// Pictures of the assistant that the user's next message shows.
    pictures: Vec<Value>,
    /// Whether the last thing was a user's message without content.
    said_nothing: bool,
}

#[derive(Clone, Debug)]
enum Turn {
    /// The content parts of each message.
    User(Vec<Vec<Value>>),
    Assistant(Saying),
}

impl Conversation {
    /// Nothing has been said; `reasoning`: whether what the assistant thought is sent.
    pub fn new(reasoning: bool) -> Self {
        Self { reasoning, system: Vec::new(), turns: Vec::new(), pictures: Vec::new(), said_nothing: false }
    }

    /// A system prompt.
    pub fn system(&mut self, text: String) {
        if !text.trim().is_empty() {
            self.system.push(text);
        }
    }

    /// The user says this, as content parts.
    pub fn user(&mut self, parts: Vec<Value>) {
        self.said_nothing = parts.is_empty();
        if parts.is_empty() {
            return;
        }
        if let Some(Turn::Assistant(last)) = self.turns.last()
            && !last.calls.is_empty()
        {
            self.turns.push(Turn::Assistant(Saying { text: INTERRUPTED.into(), ..Saying::default() }));
        }
        let mut messages = Vec::new();
        let pictures = std::mem::take(&mut self.pictures);
        messages.extend(Some(pictures).filter(|pictures| !pictures.is_empty()));
        messages.push(parts);
        match self.turns.last_mut() {
            Some(Turn::User(before)) => before.extend(messages),
            _ => self.turns.push(Turn::User(messages)),
        }
    }

    /// The assistant says this.
    pub fn assistant(&mut self, mut saying: Saying) {
        self.pictures.append(&mut saying.pictures);
        if saying.text.trim().is_empty() && saying.calls.is_empty() {
            return;
        }
        self.said_nothing = false;
        match self.turns.last_mut() {
            Some(Turn::Assistant(before)) if before.calls.is_empty() => before.go_on(saying),
            Some(_) => self.turns.push(Turn::Assistant(saying)),
            None => {
                self.turns.push(Turn::User(vec![vec![text_part(NO_MESSAGE)]]));
                self.turns.push(Turn::Assistant(saying));
            }
        }
    }

    /// The API's messages.
    pub fn finish(mut self) -> Vec<Value> {
        match self.turns.last() {
            Some(Turn::User(_)) => {}
            Some(Turn::Assistant(last)) if !last.calls.is_empty() && !self.said_nothing => {}
            Some(Turn::Assistant(_)) if !self.said_nothing => self.user(vec![text_part(CONTINUE)]),
            _ => self.user(vec![text_part(NO_MESSAGE)]),
        }
        let mut messages = Vec::new();
        if !self.system.is_empty() {
            messages.push(json!({"role": "system", "content": self.system.join(GAP)}));
        }
        for turn in self.turns {
            match turn {
                Turn::User(said) => messages.push(json!({"role": "user", "content": content(said)})),
                Turn::Assistant(saying) => saying.write(self.reasoning, &mut messages),
            }
        }
        messages
    }
}

impl Saying {
    fn go_on(&mut self, next: Self) {
        if !self.text.trim().is_empty() && !next.text.trim().is_empty() {
            self.text.push_str(GAP);
        }
        self.text.push_str(&next.text);
        if !self.reasoning.is_empty() && !next.reasoning.is_empty() {
            self.reasoning.push_str(GAP);
        }
        self.reasoning.push_str(&next.reasoning);
        for (key, value) in next.state {
            match (self.state.get_mut(&key), value) {
                (Some(Value::Array(before)), Value::Array(after)) => before.extend(after),
                (_, value) => {
                    self.state.insert(key, value);
                }
            }
        }
        self.calls = next.calls;
        self.results = next.results;
    }

    fn write(self, reasoning: bool, messages: &mut Vec<Value>) {
        let mut message = Map::new();
        message.insert("role".into(), "assistant".into());
        message.insert("content".into(), if self.text.trim().is_empty() { Value::Null } else { self.text.into() });
        if reasoning {
            message.insert("reasoning_content".into(), self.reasoning.into());
        }
        message.extend(self.state);
        if !self.calls.is_empty() {
            message.insert("tool_calls".into(), self.calls.into());
        }
        messages.push(Value::Object(message));
        messages.extend(self.results);
    }
}

/// A content part of text.
pub fn text_part(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

/// Plain text as a plain string: many servers know nothing else.
fn content(said: Vec<Vec<Value>>) -> Value {
    let is_text = |part: &Value| string(part, "type") == Some("text");
    if !said.iter().flatten().all(is_text) {
        return said.into_iter().flatten().collect();
    }
    let lines =
        |parts: &Vec<Value>| parts.iter().filter_map(|part| string(part, "text")).collect::<Vec<_>>().join("\n");
    said.iter().map(lines).collect::<Vec<_>>().join(GAP).into()
}

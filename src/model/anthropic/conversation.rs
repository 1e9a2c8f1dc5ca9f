//! The list of messages as the Messages API accepts it: the first is the user's, roles alternate, every call is answered at the start of
//! the next message, nothing is empty, ids are unique and in the API's alphabet, the last message is the user's, unless the API has yet
//! to finish what it began. So what the assistant said can stay as it is: the API's rule against white space at its end is for a last
//! message, and signatures may cover what precedes.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::model::tools::in_alphabet;
use crate::model::values::string;

/// Stands for what the user said where a conversation begins with the assistant, or where the user said nothing that the API takes.
const NO_MESSAGE: &str = "(no message)";

/// Asks for more where a conversation ends with the assistant.
const CONTINUE: &str = "Continue.";

/// Longest id that is sent.
const MAX_ID: usize = 128;

/// A conversation being written.
#[derive(Clone, Debug, Default)]
pub struct Conversation {
    messages: Vec<(Role, Vec<Value>)>,
    ids: HashSet<String>,
    /// Names of the tools that were called, in order.
    called: Vec<String>,
    /// Whether the last thing was a user's message without content.
    said_nothing: bool,
    /// Whether the API owes the result of a call of its own tools.
    owes: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    User,
    Assistant,
}

impl Conversation {
    /// The user says this.
    pub fn user(&mut self, blocks: Vec<Value>) {
        self.said_nothing = blocks.is_empty();
        self.push(Role::User, blocks);
    }

    /// The assistant says this; `results` answer all its calls.
    pub fn assistant(&mut self, blocks: Vec<Value>, results: Vec<Value>) {
        self.push(Role::Assistant, blocks);
        self.push(Role::User, results);
        self.said_nothing = false;
    }

    /// The id under which a call is sent, and its tool noted.
    pub fn call(&mut self, id: &str, name: &str) -> String {
        if !self.called.iter().any(|other| other == name) {
            self.called.push(name.to_owned());
        }
        let base = in_alphabet(id, MAX_ID);
        let mut unique = base.clone();
        let mut count: u32 = 1;
        while unique.is_empty() || !self.ids.insert(unique.clone()) {
            count = count.saturating_add(1);
            unique = format!("{base}_{count}");
        }
        unique
    }

    /// Whether a call of the API's own tools may be sent under this id, which must stay as it is.
    pub fn claim(&mut self, id: &str) -> bool {
        self.ids.insert(id.to_owned())
    }

    /// A call of the API's own tools was added; `without_result`: the API goes on with it when it is given the conversation.
    pub fn owes(&mut self, without_result: bool) {
        self.owes |= without_result;
    }

    /// The tools that were called.
    pub fn called(&self) -> &[String] {
        &self.called
    }

    /// Whether the model is to go on after results, in a turn that did not begin with thinking: the API then refuses to think.
    pub fn goes_on_without_thinking(&self) -> bool {
        let first_is = |blocks: &[Value], kinds: &[&str]| {
            blocks.first().and_then(|block| string(block, "type")).is_some_and(|kind| kinds.contains(&kind))
        };
        // The turn began with the first of the assistant's messages between which there are only results.
        let mut began = None;
        let mut rest = self.messages.as_slice();
        if let ([before @ .., (Role::Assistant, said)], true) = (rest, self.owes) {
            began = Some(said);
            rest = before;
        }
        while let [before @ .., (Role::Assistant, said), (Role::User, answer)] = rest {
            if !first_is(answer, &["tool_result"]) {
                break;
            }
            began = Some(said);
            rest = before;
        }
        began.is_some_and(|said| !first_is(said, &THINKING))
    }

    /// The API's messages.
    pub fn finish(&mut self) -> Vec<Value> {
        self.end_assistant();
        let goes_on = self.owes && self.messages.last().is_some_and(|(role, _)| *role == Role::Assistant);
        if !goes_on && self.messages.last().is_none_or(|(role, _)| *role == Role::Assistant) {
            let text = if self.said_nothing || self.messages.is_empty() { NO_MESSAGE } else { CONTINUE };
            self.messages.push((Role::User, vec![text_block(text)]));
        }
        let messages = std::mem::take(&mut self.messages).into_iter().map(|(role, content)| {
            let role = if role == Role::User { "user" } else { "assistant" };
            json!({"role": role, "content": content})
        });
        messages.collect()
    }

    fn push(&mut self, role: Role, blocks: Vec<Value>) {
        if blocks.is_empty() {
            return;
        }
        if role == Role::User {
            self.end_assistant();
        }
        match self.messages.last_mut() {
            Some((last, content)) if *last == role => content.extend(blocks),
            None if role == Role::Assistant => {
                self.messages.push((Role::User, vec![text_block(NO_MESSAGE)]));
                self.messages.push((role, blocks));
            }
            _ => self.messages.push((role, blocks)),
        }
    }

    /// The assistant's message is whole. The API refuses one that ends with thinking: a reply that was stopped there.
    fn end_assistant(&mut self) {
        let Some((Role::Assistant, content)) = self.messages.last_mut() else { return };
        while content.last().and_then(|block| string(block, "type")).is_some_and(|kind| THINKING.contains(&kind)) {
            content.pop();
        }
        if content.is_empty() {
            self.messages.pop();
        }
    }
}

/// The types of blocks that hold thinking.
const THINKING: [&str; 2] = ["thinking", "redacted_thinking"];

/// A text block. The caller sees to it that the text is not blank.
pub fn text_block(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

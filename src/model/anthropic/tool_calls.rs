//! Tool calls of one answer, put together from their pieces, and the results of those that the API executed.

use serde_json::{Value, json};

use super::server_tools::{self, metadata};
use crate::core::chunk::Chunk;
use crate::core::error::{Code, Failure};
use crate::model::parts::Parts;
use crate::model::tools::{Approvals, input_chunk, parse_arguments, write_input};
use crate::model::values::string;

/// The calls of one answer.
#[derive(Clone, Debug)]
pub struct ToolCalls {
    /// Begins the ids that are made here.
    prefix: String,
    approvals: Approvals,
    calls: Vec<Call>,
}

#[derive(Clone, Debug)]
struct Call {
    /// The place of its content block.
    index: Option<u64>,
    /// The id that the API gave, by which results name it.
    given: String,
    id: String,
    name: String,
    arguments: String,
    /// The input that came with the start; used when no piece follows.
    input: Option<Value>,
    /// The mark of a call that the API executes.
    mark: Option<Value>,
    /// Who made it, where the API says so.
    caller: Option<Value>,
    closed: bool,
    answered: bool,
}

impl ToolCalls {
    /// Most calls in one answer.
    pub const MAX_CALLS: usize = 1000;

    /// Most bytes of all arguments of an answer: as much as one event may hold.
    pub const MAX_ARGUMENT_BYTES: usize = 16 << 20;

    /// No calls yet. Ids that the server leaves out begin with `prefix`.
    pub fn new(prefix: impl Into<String>, approvals: Approvals) -> Self {
        Self { prefix: prefix.into(), approvals, calls: Vec::new() }
    }

    /// Whether the model waits for results of the client.
    pub fn wait_for_client(&self) -> bool {
        self.calls.iter().any(|call| call.mark.is_none())
    }

    /// Whether the input of each call has come to its end.
    pub fn are_whole(&self) -> bool {
        self.calls.iter().all(|call| call.closed || parse_arguments(&call.arguments).is_ok())
    }

    /// A content block that is a call begins.
    ///
    /// # Errors
    /// `ProviderStreamInvalid` for a call without a name, and beyond the bounds.
    pub fn start(&mut self, index: Option<u64>, block: &Value, parts: &mut Parts) -> Result<(), Failure> {
        self.stop(index, parts);
        if self.calls.len() >= Self::MAX_CALLS {
            return Err(too_much());
        }
        let Some(name) = string(block, "name").filter(|name| !name.is_empty()) else {
            return Err(Failure::new(Code::ProviderStreamInvalid, "a tool call of the model has no name"));
        };
        let given = string(block, "id").unwrap_or_default();
        // Clients find a call by its id, so two calls must not share one.
        let taken = given.is_empty() || self.calls.iter().any(|call| call.id == given);
        let own = || format!("{}call{}", self.prefix, self.calls.len().saturating_add(1));
        let call = Call {
            index,
            given: given.to_owned(),
            id: if taken { own() } else { given.to_owned() },
            name: name.to_owned(),
            arguments: String::new(),
            input: block.get("input").filter(|input| input.is_object()).cloned(),
            mark: server_tools::mark(block),
            caller: server_tools::caller(block).cloned(),
            closed: false,
            answered: false,
        };
        let start = Chunk::new("tool-input-start").with("toolCallId", call.id.clone()).with("toolName", name);
        parts.other(call.executed(start));
        self.calls.push(call);
        Ok(())
    }

    /// A piece of a call's input.
    ///
    /// # Errors
    /// `ProviderStreamInvalid` beyond the bounds.
    pub fn piece(&mut self, index: Option<u64>, json: &str, parts: &mut Parts) -> Result<(), Failure> {
        let held: usize = self.calls.iter().map(|call| call.arguments.len()).fold(0, usize::saturating_add);
        if held.saturating_add(json.len()) > Self::MAX_ARGUMENT_BYTES {
            return Err(too_much());
        }
        let Some(call) = self.calls.iter_mut().rev().find(|call| call.index == index && !call.closed) else {
            return Ok(());
        };
        if !json.is_empty() {
            call.arguments.push_str(json);
            let delta = Chunk::new("tool-input-delta");
            parts.other(delta.with("toolCallId", call.id.clone()).with("inputTextDelta", json));
        }
        Ok(())
    }

    /// A content block has ended: writes the input, if it was a call.
    pub fn stop(&mut self, index: Option<u64>, parts: &mut Parts) {
        let Self { calls, approvals, .. } = self;
        calls.iter_mut().filter(|call| call.index == index).for_each(|call| call.close(parts, approvals));
    }

    /// The answer has ended: writes the input of every call that is still open.
    pub fn close_all(&mut self, parts: &mut Parts) {
        let Self { calls, approvals, .. } = self;
        calls.iter_mut().for_each(|call| call.close(parts, approvals));
    }

    /// A result of a call that the API executed: one of this answer, or of an earlier one of the same reply, which had to wait for the
    /// client's results. A second result is left out, and one for a call of the client.
    pub fn result(&mut self, block: &Value, parts: &mut Parts) {
        let given = string(block, "tool_use_id").unwrap_or_default();
        let (said, chunk) = (server_tools::error_of(block), Chunk::new("tool-output-available"));
        let chunk = match said {
            Some(error) => Chunk::new("tool-output-error").with("errorText", error),
            None => chunk.with("output", block.get("content").cloned().unwrap_or(Value::Null)),
        };
        let open = |call: &&mut Call| call.given == given && call.mark.is_some() && !call.answered;
        if let Some(call) = self.calls.iter_mut().find(open) {
            call.close(parts, &self.approvals);
            call.answered = true;
            let id = call.id.clone();
            write_result(&id, chunk, server_tools::result_mark(block, false), parts);
        } else if !given.is_empty() && !self.calls.iter().any(|call| call.given == given) {
            // Whether the reply has such a call is known to whoever writes its run.
            write_result(given, chunk, server_tools::result_mark(block, true), parts);
        }
        for (url, title) in server_tools::sources(block) {
            parts.source(url, title);
        }
    }
}

fn write_result(id: &str, chunk: Chunk, mark: Value, parts: &mut Parts) {
    let chunk = chunk.with("toolCallId", id).with("providerExecuted", true).with("dynamic", true);
    parts.other(chunk.with("providerMetadata", metadata(mark)));
}

impl Call {
    /// Marks a chunk of a call that the API executes: `providerExecuted`, so that clients do not try to, and `dynamic`, so that clients
    /// accept it without knowing the tool.
    fn executed(&self, chunk: Chunk) -> Chunk {
        if self.mark.is_none() { chunk } else { chunk.with("providerExecuted", true).with("dynamic", true) }
    }

    fn close(&mut self, parts: &mut Parts, approvals: &Approvals) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        let whole = self.input.take().filter(|_| self.arguments.trim().is_empty());
        let input = whole.map_or_else(|| parse_arguments(&self.arguments), Ok);
        let chunk = self.executed(input_chunk(&self.id, &self.name, input, &self.arguments));
        match (&self.mark, &self.caller) {
            (None, None) => write_input(parts, chunk, approvals),
            (None, Some(caller)) => {
                write_input(parts, chunk.with("providerMetadata", metadata(json!({"caller": caller}))), approvals);
            }
            (Some(mark), _) => parts.other(chunk.with("providerMetadata", metadata(mark.clone()))),
        }
    }
}

fn too_much() -> Failure {
    Failure::new(Code::ProviderStreamInvalid, "the model's tool calls exceed the limit")
}

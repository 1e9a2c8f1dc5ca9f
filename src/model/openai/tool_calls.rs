//! Tool calls, put together from their pieces.
//!
//! The API says: each delta names its call by `index`; `id` and `function.name` come with the first one. What servers do: no index
//! (Mistral once), index 0 for all calls (Gemini), no id, a fresh id on every piece, the name on every piece, the whole call in one piece,
//! arguments as an object, the whole arguments once more at the end. So a call is found by index, then id, then by being the last one.

use serde_json::Value;

use crate::core::chunk::Chunk;
use crate::core::error::{Code, Failure};
use crate::core::lenient_json;
use crate::model::parts::Parts;
use crate::model::tools::{Approvals, input_chunk, parse_arguments, write_input};
use crate::model::values::{list, string};

/// The calls of one step.
#[derive(Clone, Debug)]
pub struct ToolCalls {
    /// Begins the ids that are made here.
    prefix: String,
    approvals: Approvals,
    calls: Vec<Call>,
}

#[derive(Clone, Debug)]
struct Call {
    index: Option<u64>,
    /// The id that the server gave, if it did.
    given: Option<String>,
    id: String,
    name: String,
    arguments: String,
    /// How much of the arguments has been written as deltas. Nothing is, before the name is known.
    written: usize,
    started: bool,
    closed: bool,
}

impl ToolCalls {
    /// Most calls in one step.
    pub const MAX_CALLS: usize = 1000;

    /// Most bytes of all arguments of a step: as much as one event may hold.
    pub const MAX_ARGUMENT_BYTES: usize = 16 << 20;

    /// No calls yet. Ids that the server leaves out begin with `prefix`.
    pub fn new(prefix: impl Into<String>, approvals: Approvals) -> Self {
        Self { prefix: prefix.into(), approvals, calls: Vec::new() }
    }

    /// Whether the model has called any tool.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Whether nothing lacks in any call: each has its name, and arguments that can be read.
    pub fn are_whole(&self) -> bool {
        self.calls.iter().all(|call| {
            let is_empty = call.given.is_none() && call.name.is_empty() && call.arguments.trim().is_empty();
            call.closed || is_empty || (!call.name.is_empty() && parse_arguments(&call.arguments).is_ok())
        })
    }

    /// Reads the calls of a delta, or of a whole message, and writes what they add.
    ///
    /// # Errors
    /// `ProviderStreamInvalid` beyond the bounds.
    pub fn read(&mut self, delta: &Value, parts: &mut Parts) -> Result<(), Failure> {
        for piece in list(delta, "tool_calls") {
            let function = piece.get("function").unwrap_or(&Value::Null);
            self.piece(piece.get("index").and_then(Value::as_u64), string(piece, "id"), function, parts)?;
        }
        // The API's form before it had tools: at most one call, never an id.
        if let Some(function) = delta.get("function_call").filter(|call| call.is_object()) {
            self.piece(None, None, function, parts)?;
        }
        Ok(())
    }

    /// Writes the input of the calls whose arguments are whole. Called before another part opens and when the server names its finish
    /// reason; a call whose arguments still lack something stays open.
    pub fn close_whole(&mut self, parts: &mut Parts) {
        for call in self.calls.iter_mut().filter(|call| !call.closed && call.started) {
            if let Some(input) = whole_object(&call.arguments) {
                call.close(Ok(input), parts, &self.approvals);
            }
        }
    }

    /// The step ends: writes the input of every call that is still open.
    ///
    /// # Errors
    /// `ProviderStreamInvalid` for a call that never got a name.
    pub fn close_all(&mut self, parts: &mut Parts) -> Result<(), Failure> {
        for call in self.calls.iter_mut().filter(|call| !call.closed) {
            if call.name.is_empty() {
                // A server that fills its lists with empty calls says nothing by them.
                if call.given.is_none() && call.arguments.trim().is_empty() {
                    call.closed = true;
                    continue;
                }
                return Err(Failure::new(Code::ProviderStreamInvalid, "a tool call of the model has no name"));
            }
            call.close(parse_arguments(&call.arguments), parts, &self.approvals);
        }
        Ok(())
    }

    fn piece(
        &mut self,
        index: Option<u64>,
        id: Option<&str>,
        function: &Value,
        parts: &mut Parts,
    ) -> Result<(), Failure> {
        let id = id.filter(|id| !id.is_empty());
        let name = string(function, "name").filter(|name| !name.is_empty());
        let arguments = match function.get("arguments") {
            Some(Value::String(text)) => text.clone(),
            Some(object @ Value::Object(_)) => object.to_string(),
            _ => String::new(),
        };
        let held: usize = self.calls.iter().map(|call| call.arguments.len()).fold(0, usize::saturating_add);
        if self.calls.len() >= Self::MAX_CALLS || held.saturating_add(arguments.len()) > Self::MAX_ARGUMENT_BYTES {
            return Err(Failure::new(Code::ProviderStreamInvalid, "the model's tool calls exceed the limit"));
        }
        let position = match self.find(index, id, name, &arguments) {
            Some(position) => position,
            None => {
                self.close_whole(parts);
                self.open(index, id)
            }
        };
        let Some(call) = self.calls.get_mut(position) else { return Ok(()) };
        if call.closed {
            // Arguments after their end: white space, or the whole once more.
            return Ok(());
        }
        if call.name.is_empty() {
            call.name = name.unwrap_or_default().to_owned();
        }
        call.arguments.push_str(&arguments);
        call.write(parts);
        Ok(())
    }

    /// The call that a piece continues, or none when it begins one.
    fn find(&self, index: Option<u64>, id: Option<&str>, name: Option<&str>, arguments: &str) -> Option<usize> {
        let last = || self.calls.len().checked_sub(1);
        let by_index = || self.calls.iter().rposition(|call| call.index == index);
        let by_id = || self.calls.iter().rposition(|call| call.given.as_deref() == id);
        let position = match (index, id) {
            // A piece with neither id nor name cannot begin a call, whatever its index.
            (Some(_), None) if name.is_none() => by_index().or_else(last)?,
            (Some(_), None) => by_index()?,
            // The server may have left out the index at first; with another index, the same id is another call's.
            (Some(_), Some(_)) => by_index()
                .or_else(|| by_id().filter(|at| self.calls.get(*at).is_some_and(|call| call.index.is_none())))?,
            (None, Some(_)) => by_id()?,
            (None, None) => last()?,
        };
        let call = self.calls.get(position)?;
        let another_id = call.given.is_some() && id.is_some() && call.given.as_deref() != id;
        let begins = match name {
            // Pieces without a name only ever continue, whatever their id.
            None => false,
            Some(_) if call.name.is_empty() => another_id,
            Some(_) if another_id => true,
            // The same id, or none: the name is repeated on every piece, or a call without an id follows one that is whole.
            Some(name) => {
                let same_id = id.is_some() && call.given.as_deref() == id;
                !same_id && (call.name != name || (!arguments.is_empty() && whole_object(&call.arguments).is_some()))
            }
        };
        (!begins).then_some(position)
    }

    fn open(&mut self, index: Option<u64>, id: Option<&str>) -> usize {
        let position = self.calls.len();
        let taken = |id: &str| self.calls.iter().any(|call| call.id == id);
        // Clients find a call by its id, so two calls must not share one.
        let own = id
            .filter(|id| !taken(id))
            .map_or_else(|| format!("{}call{}", self.prefix, position.saturating_add(1)), str::to_owned);
        self.calls.push(Call {
            index,
            given: id.map(str::to_owned),
            id: own,
            name: String::new(),
            arguments: String::new(),
            written: 0,
            started: false,
            closed: false,
        });
        position
    }
}

impl Call {
    /// Writes the start once the name is known, and the arguments that have not been written.
    fn write(&mut self, parts: &mut Parts) {
        if self.name.is_empty() {
            return;
        }
        if !std::mem::replace(&mut self.started, true) {
            let start = Chunk::new("tool-input-start");
            parts.other(start.with("toolCallId", self.id.clone()).with("toolName", self.name.clone()));
        }
        if let Some(fresh) = self.arguments.get(self.written..).filter(|fresh| !fresh.is_empty()) {
            let delta = Chunk::new("tool-input-delta");
            parts.other(delta.with("toolCallId", self.id.clone()).with("inputTextDelta", fresh));
            self.written = self.arguments.len();
        }
    }

    fn close(&mut self, input: Result<Value, String>, parts: &mut Parts, approvals: &Approvals) {
        self.closed = true;
        write_input(parts, input_chunk(&self.id, &self.name, input, &self.arguments), approvals);
    }
}

/// The arguments, when they are an object that has ended.
fn whole_object(arguments: &str) -> Option<Value> {
    if !arguments.trim_end().ends_with('}') {
        return None;
    }
    lenient_json::parse(arguments).ok().filter(Value::is_object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The calls that come out, as `id name input`, and the kinds of all chunks.
    fn run(deltas: &[Value]) -> (Vec<String>, Vec<String>) {
        let mut parts = Parts::new("");
        let mut calls = ToolCalls::new("x", Approvals::default());
        for delta in deltas {
            calls.read(delta, &mut parts).unwrap();
        }
        calls.close_all(&mut parts).unwrap();
        let chunks = parts.take();
        let done = chunks.iter().filter(|chunk| chunk.get("input").is_some()).map(|chunk| {
            format!(
                "{} {} {}",
                chunk.text("toolCallId").unwrap(),
                chunk.text("toolName").unwrap(),
                chunk.get("input").unwrap()
            )
        });
        (done.collect(), chunks.iter().map(|chunk| chunk.kind().to_owned()).collect())
    }

    fn calls(deltas: &[Value]) -> Vec<String> {
        run(deltas).0
    }

    fn one(index: Value, id: Value, name: Value, arguments: Value) -> Value {
        json!({"tool_calls": [{"index": index, "id": id, "function": {"name": name, "arguments": arguments}}]})
    }

    #[test]
    fn joins_pieces_and_keeps_calls_apart() {
        let null = || Value::Null;
        let pieces = [
            one(json!(0), json!("a"), json!("f"), json!("")),
            one(json!(0), null(), null(), json!("{\"x\"")),
            one(json!(1), json!("b"), json!("g"), json!("{}")),
            one(json!(0), null(), null(), json!(":1}")),
        ];
        assert_eq!(calls(&pieces), [r#"a f {"x":1}"#, "b g {}"]);
    }

    #[test]
    fn accepts_what_servers_do() {
        let null = || Value::Null;
        // Index 0 for every call, whole.
        let zeros =
            [one(json!(0), json!("a"), json!("f"), json!("{}")), one(json!(0), json!("b"), json!("f"), json!("{}"))];
        assert_eq!(calls(&zeros), ["a f {}", "b f {}"]);
        // A fresh id on every piece; the name on the first.
        let fresh = [one(json!(0), json!("a"), json!("f"), json!("{")), one(json!(0), json!("b"), null(), json!("}"))];
        assert_eq!(calls(&fresh), ["a f {}"]);
        // The name on every piece.
        let named =
            [one(json!(0), json!("a"), json!("f"), json!("{")), one(json!(0), json!("a"), json!("f"), json!("}"))];
        assert_eq!(calls(&named), ["a f {}"]);
        // No index and no id, two whole calls in one delta; arguments as an object.
        let bare = [json!({"tool_calls": [
            {"function": {"name": "f", "arguments": {"x": 1}}},
            {"function": {"name": "f", "arguments": {"x": 2}}},
        ]})];
        assert_eq!(calls(&bare), [r#"xcall1 f {"x":1}"#, r#"xcall2 f {"x":2}"#]);
        // The same id for two indexes.
        let twins =
            [one(json!(0), json!("a"), json!("f"), json!("{}")), one(json!(1), json!("a"), json!("g"), json!("{}"))];
        assert_eq!(calls(&twins), ["a f {}", "xcall2 g {}"]);
        // The index only on the first piece, only on later ones, or wrong on them.
        for (first, second) in [(json!(0), null()), (null(), json!(0)), (json!(0), json!(1))] {
            let pieces = [one(first, json!("a"), json!("f"), json!("{")), one(second, null(), null(), json!("}"))];
            assert_eq!(calls(&pieces), ["a f {}"]);
        }
        // The form before tools.
        let legacy =
            [json!({"function_call": {"name": "f", "arguments": "{"}}), json!({"function_call": {"arguments": "}"}})];
        assert_eq!(calls(&legacy), ["xcall1 f {}"]);
        // The name after the first arguments; no arguments at all; empty entries.
        let late = [one(json!(0), json!("a"), null(), json!("{")), one(json!(0), null(), json!("f"), json!("}"))];
        assert_eq!(calls(&late), ["a f {}"]);
        assert_eq!(calls(&[one(json!(0), json!("a"), json!("f"), null())]), ["a f {}"]);
        assert!(calls(&[json!({"tool_calls": [{}, null]}), json!({"tool_calls": null})]).is_empty());
        // The whole arguments once more, after the call was closed by the next.
        let again = [
            one(json!(0), json!("a"), json!("f"), json!("{}")),
            one(json!(1), json!("b"), json!("f"), json!("{}")),
            one(json!(0), null(), null(), json!("{}")),
        ];
        assert_eq!(calls(&again), ["a f {}", "b f {}"]);
    }

    #[test]
    fn arguments_that_are_not_json_are_an_input_error() {
        let (done, kinds) = run(&[one(json!(0), json!("a"), json!("f"), json!("{\"x\":"))]);
        assert_eq!(done, [r#"a f "{\"x\":""#]);
        assert_eq!(kinds, ["start-step", "tool-input-start", "tool-input-delta", "tool-input-error"]);
    }

    #[test]
    fn a_call_without_a_name_is_a_failure() {
        let mut calls = ToolCalls::new("", Approvals::default());
        let mut parts = Parts::new("");
        calls.read(&one(json!(0), json!("a"), Value::Null, json!("{}")), &mut parts).unwrap();
        assert!(parts.take().is_empty());
        assert_eq!(calls.close_all(&mut parts).unwrap_err().code, Code::ProviderStreamInvalid);
    }
}

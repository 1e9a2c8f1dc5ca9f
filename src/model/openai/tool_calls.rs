//! Tool calls, put together from their pieces.
//!
//! The API says: each delta names its call by `index`; `id` and `function.name` come with the first one. What servers do: no index
//! (Mistral once), index 0 for all calls (Gemini), no id, a fresh id on every piece, the name on every piece, the whole call in one piece,
//! arguments as an object, the whole arguments once more at the end, all of them so far in each piece. So a call is found by index, then id,
//! then by being the last one, and only what is new of its arguments counts.

use serde_json::Value;

use super::state::{self, State};
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
    /// Names the model in the metadata of what it wants back.
    origin: String,
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
    /// The last piece, where it may be all the arguments so far as well as a further piece of them: the next one tells. Nothing is written
    /// meanwhile.
    rival: Option<String>,
    state: State,
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
    pub fn new(prefix: impl Into<String>, approvals: Approvals, origin: impl Into<String>) -> Self {
        Self { prefix: prefix.into(), approvals, origin: origin.into(), calls: Vec::new() }
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

    /// Reads the calls of a delta, or of a message, which is a whole and may repeat what deltas have said. Writes what is new.
    ///
    /// # Errors
    /// `ProviderStreamInvalid` beyond the bounds.
    pub fn read(&mut self, said: &Value, is_whole: bool, parts: &mut Parts) -> Result<(), Failure> {
        for (place, piece) in list(said, "tool_calls").iter().enumerate() {
            let function = piece.get("function").unwrap_or(&Value::Null);
            let index = piece.get("index").and_then(Value::as_u64);
            let known =
                is_whole.then(|| self.find_whole(place, string(piece, "id"), string(function, "name"))).flatten();
            let at = self.piece(known, index, string(piece, "id"), function, parts)?;
            if let Some(call) = at.and_then(|at| self.calls.get_mut(at)) {
                call.state.read_call(piece, is_whole)?;
            }
        }
        // The API's form before it had tools: at most one call, never an id.
        if let Some(function) = said.get("function_call").filter(|call| call.is_object()) {
            let known = is_whole.then(|| self.find_whole(0, None, string(function, "name"))).flatten();
            self.piece(known, None, None, function, parts)?;
        }
        Ok(())
    }

    /// Writes the input of the calls whose arguments are whole. Called before another part opens and when the server names its finish
    /// reason; a call whose arguments still lack something stays open. The last of them keeps what the vendor wants back of the `step`.
    pub fn close_whole(&mut self, parts: &mut Parts, mut step: Option<&mut State>) {
        let is_whole = |call: &Call| !call.closed && call.started && call.whole().is_some();
        let last = self.calls.iter().rposition(is_whole);
        for (at, call) in self.calls.iter_mut().enumerate().filter(|(_, call)| !call.closed && call.started) {
            if let Some(input) = call.whole() {
                let step = step.as_deref_mut().filter(|_| last == Some(at)).and_then(State::take);
                call.close(Ok(input), step, &self.origin, parts, &self.approvals);
            }
        }
    }

    /// The step ends: writes the input of every call that is still open.
    ///
    /// # Errors
    /// `ProviderStreamInvalid` for a call that never got a name.
    pub fn close_all(&mut self, parts: &mut Parts, mut step: Option<&mut State>) -> Result<(), Failure> {
        self.close_whole(parts, step.as_deref_mut());
        for call in self.calls.iter_mut().filter(|call| !call.closed) {
            if call.name.is_empty() {
                // A server that fills its lists with empty calls says nothing by them.
                if call.given.is_none() && call.arguments.trim().is_empty() {
                    call.closed = true;
                    continue;
                }
                return Err(Failure::new(Code::ProviderStreamInvalid, "a tool call of the model has no name"));
            }
            let step = step.as_deref_mut().and_then(State::take);
            call.close(parse_arguments(&call.arguments), step, &self.origin, parts, &self.approvals);
        }
        Ok(())
    }

    /// What the vendor wants back of calls whose input was written before it said so: a list with one entry for each call.
    pub fn late(&mut self) -> Option<Value> {
        let late: Vec<Value> = self
            .calls
            .iter_mut()
            .filter(|call| call.started)
            .map(|call| call.state.take().unwrap_or_default())
            .collect();
        late.iter().any(|state| !state.is_null()).then(|| late.into())
    }

    /// Reads a piece of the call that is `known`, or of the one that it continues or begins; the answer is that call's place.
    fn piece(
        &mut self,
        known: Option<usize>,
        index: Option<u64>,
        id: Option<&str>,
        function: &Value,
        parts: &mut Parts,
    ) -> Result<Option<usize>, Failure> {
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
        let position = match known.or_else(|| self.find(index, id, name, &arguments)) {
            Some(position) => position,
            None => {
                self.close_whole(parts, None);
                self.open(index, id)
            }
        };
        let Some(call) = self.calls.get_mut(position) else { return Ok(None) };
        if call.closed {
            // Arguments after their end: white space, or the whole once more.
            return Ok(Some(position));
        }
        if call.name.is_empty() {
            call.name = name.unwrap_or_default().to_owned();
        }
        if known.is_some() {
            call.whole_arguments(arguments);
        } else {
            call.more_arguments(&arguments);
        }
        call.write(parts);
        Ok(Some(position))
    }

    /// The call that a whole message repeats: by its id, else by its place, if it may be that one.
    fn find_whole(&self, place: usize, id: Option<&str>, name: Option<&str>) -> Option<usize> {
        let id = id.filter(|id| !id.is_empty());
        let by_id = id.and_then(|id| self.calls.iter().position(|call| call.given.as_deref() == Some(id)));
        let name = name.filter(|name| !name.is_empty());
        by_id.or_else(|| {
            let call = self.calls.get(place)?;
            let is_other = call.given.is_some() && id.is_some() && call.given.as_deref() != id;
            let is_named = call.name.is_empty() || name.is_none_or(|name| call.name == name);
            (!is_other && is_named).then_some(place)
        })
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
            rival: None,
            state: State::default(),
            written: 0,
            started: false,
            closed: false,
        });
        position
    }
}

impl Call {
    /// Takes a piece of the arguments, or all of them so far. A piece that begins as all so far do is no piece if JSON could not go on
    /// with it: where no value may begin. Else the next piece, or the end, tells.
    fn more_arguments(&mut self, more: &str) {
        if more.is_empty() {
            return;
        }
        if let Some(rival) = self.rival.take() {
            if more.starts_with(&rival) {
                self.arguments.clear();
            }
        } else if !self.arguments.is_empty() && whole_object(&self.arguments).is_some() {
            // Behind their end: white space, or the whole once more.
            return;
        } else if self.arguments.starts_with('{') && more.starts_with(&self.arguments) {
            if !may_begin_value(&self.arguments) {
                self.arguments.clear();
            } else {
                self.rival = Some(more.to_owned());
            }
        }
        self.arguments.push_str(more);
    }

    /// Takes the arguments of a whole message.
    fn whole_arguments(&mut self, whole: String) {
        let (old, new) = (whole_object(&self.arguments), whole_object(&whole));
        if whole.starts_with(&self.arguments) || (old.is_none() && new.is_some()) {
            self.rival = None;
            // What was written cannot be taken back; the input's own chunk has all.
            self.written = if whole.starts_with(&self.arguments) { self.written } else { whole.len() };
            self.arguments = whole;
        }
    }

    /// The arguments, when they are an object that has ended; of two readings the one that has.
    fn whole(&self) -> Option<Value> {
        whole_object(&self.arguments).or_else(|| whole_object(self.rival.as_deref()?))
    }

    /// Writes the start once the name is known, and the arguments that have not been written.
    fn write(&mut self, parts: &mut Parts) {
        if self.name.is_empty() {
            return;
        }
        if !std::mem::replace(&mut self.started, true) {
            let start = Chunk::new("tool-input-start");
            parts.other(start.with("toolCallId", self.id.clone()).with("toolName", self.name.clone()));
        }
        let fresh = self.arguments.get(self.written..).filter(|_| self.rival.is_none());
        if let Some(fresh) = fresh.filter(|fresh| !fresh.is_empty()) {
            let delta = Chunk::new("tool-input-delta");
            parts.other(delta.with("toolCallId", self.id.clone()).with("inputTextDelta", fresh));
            self.written = self.arguments.len();
        }
    }

    fn close(
        &mut self,
        input: Result<Value, String>,
        step: Option<Value>,
        origin: &str,
        parts: &mut Parts,
        approvals: &Approvals,
    ) {
        self.closed = true;
        let chunk = input_chunk(&self.id, &self.name, input, &self.arguments);
        let chunk = match state::metadata(origin, [("step", step), ("call", self.state.take())]) {
            Some(metadata) => chunk.with("providerMetadata", metadata),
            None => chunk,
        };
        write_input(parts, chunk, approvals);
    }
}

/// Whether a value may begin where this JSON was cut.
fn may_begin_value(json: &str) -> bool {
    let (mut in_text, mut is_escaped) = (false, false);
    for c in json.chars() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' if in_text => is_escaped = true,
            '"' => in_text = !in_text,
            _ => {}
        }
    }
    !in_text && json.trim_end().ends_with([':', '[', ','])
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
        let mut calls = ToolCalls::new("x", Approvals::default(), "");
        for delta in deltas {
            calls.read(delta, false, &mut parts).unwrap();
        }
        calls.close_all(&mut parts, None).unwrap();
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
        let mut calls = ToolCalls::new("", Approvals::default(), "");
        let mut parts = Parts::new("");
        calls.read(&one(json!(0), json!("a"), Value::Null, json!("{}")), false, &mut parts).unwrap();
        assert!(parts.take().is_empty());
        assert_eq!(calls.close_all(&mut parts, None).unwrap_err().code, Code::ProviderStreamInvalid);
    }
}

//! Tools: those that an agent's configuration declares, and the calls that a stored UI message holds.

use serde_json::{Map, Value, json};

use super::agents_error::AgentsError;
use super::fields::Fields;
use super::parts::Parts;
use super::values::string;
use crate::core::chunk::Chunk;
use crate::core::lenient_json;

/// One tool that the model may call; the client executes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// 1 to 64 letters, digits, `-` or `_`, as the APIs demand.
    pub name: String,
    /// For the model.
    pub description: Option<String>,
    /// `inputSchema` (or `parameters`): JSON schema of the arguments.
    pub input_schema: Value,
    /// Whether the API shall enforce the schema.
    pub strict: Option<bool>,
    /// `approval`: whether the user is asked before the client executes a call. Default false.
    pub approval: bool,
}

impl Tool {
    /// Most characters of a name.
    pub const MAX_NAME: usize = 64;

    /// Reads one element of `tools`.
    ///
    /// # Errors
    /// [`AgentsError::Field`] for the first thing to change.
    pub fn parse(mut tool: Fields) -> Result<Self, AgentsError> {
        let name = tool.string("name")?.ok_or_else(|| tool.error("name", "is missing"))?;
        if name.len() > Self::MAX_NAME || !name.chars().all(is_name_char) {
            return Err(tool.error("name", "must have 1 to 64 letters, digits, - or _"));
        }
        let description = tool.string("description")?;
        let schema = tool.object("inputSchema")?;
        let parameters = tool.object("parameters")?;
        if schema.is_some() && parameters.is_some() {
            return Err(tool.error("parameters", "is another word for inputSchema; give one of them"));
        }
        let input_schema =
            schema.or(parameters).map_or_else(|| json!({"type": "object", "properties": {}}), Value::Object);
        let strict = tool.boolean("strict")?;
        let approval = tool.boolean("approval")?.unwrap_or(false);
        tool.end()?;
        Ok(Self { name, description, input_schema, strict, approval })
    }
}

/// Whether the APIs accept this character in a tool's name.
fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_')
}

/// The text in the alphabet of names and ids, at most `most` characters of it: a client may send any in its history, and an API refuses
/// the whole request for one outside its alphabet.
pub fn in_alphabet(text: &str, most: usize) -> String {
    text.chars().take(most).map(|c| if is_name_char(c) { c } else { '_' }).collect()
}

/// A tool call of a stored reply.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// As the client knows it; made from the part's place when it has none.
    pub id: String,
    /// A name that the APIs accept.
    pub name: String,
    /// Always an object: servers and models expect one.
    pub input: Value,
    /// What came of it.
    pub result: CallResult,
}

/// The answer to a call. Whatever has not happened is an error, because the APIs want an answer to every call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallResult {
    /// The output as text: a string as it is, anything else as JSON; or what went wrong.
    pub text: String,
    /// Whether the call failed, was denied or was abandoned.
    pub is_error: bool,
}

impl Call {
    /// Reads the part at this place of a message. `None` when it is not a tool part.
    pub fn of_part(part: &Value, index: usize) -> Option<Self> {
        let name = match string(part, "type")? {
            "dynamic-tool" => string(part, "toolName").unwrap_or_default(),
            kind => kind.strip_prefix("tool-")?,
        };
        let name = in_alphabet(name, Tool::MAX_NAME);
        let id = string(part, "toolCallId").filter(|id| !id.is_empty());
        Some(Self {
            id: id.map_or_else(|| format!("call{index}"), str::to_owned),
            name: if name.is_empty() { "unknown".to_owned() } else { name },
            input: input(part),
            result: result(part),
        })
    }
}

fn input(part: &Value) -> Value {
    match part.get("input").filter(|input| !input.is_null()).or_else(|| part.get("rawInput")) {
        Some(input @ Value::Object(_)) => input.clone(),
        None | Some(Value::Null) => json!({}),
        // The model's arguments were not JSON, or not an object; it may see what it wrote.
        Some(other) => json!({"invalid": other}),
    }
}

fn result(part: &Value) -> CallResult {
    let approval = part.get("approval").unwrap_or(&Value::Null);
    let denied = || match string(approval, "reason") {
        Some(reason) => format!("the user denied this call: {reason}"),
        None => "the user denied this call".to_owned(),
    };
    let error = match string(part, "state").unwrap_or_default() {
        "output-available" => {
            let text = match part.get("output") {
                Some(Value::String(text)) => text.clone(),
                Some(output) => output.to_string(),
                None => "null".to_owned(),
            };
            return CallResult { text, is_error: false };
        }
        "output-error" => {
            string(part, "errorText").filter(|text| !text.trim().is_empty()).unwrap_or("the tool failed").to_owned()
        }
        "output-denied" => denied(),
        "approval-responded" if approval.get("approved") == Some(&Value::Bool(false)) => denied(),
        "approval-requested" => "the user has not approved this call".to_owned(),
        "approval-responded" => "the user approved this call, but it was not executed".to_owned(),
        _ => "the call was abandoned and has no result".to_owned(),
    };
    CallResult { text: error, is_error: true }
}

/// Tools whose calls the user approves first, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Approvals(Vec<String>);

impl Approvals {
    /// Those of these tools.
    pub fn of(tools: &[Tool]) -> Self {
        Self(tools.iter().filter(|tool| tool.approval).map(|tool| tool.name.clone()).collect())
    }

    /// The request for an approval that follows a call's input. Its id is the call's own here: the run's is not known (`approval_id` of
    /// [`crate::core::approval`] has both).
    pub fn request(&self, id: &str, name: &str) -> Option<Chunk> {
        let asks = self.0.iter().any(|own| own == name);
        asks.then(|| Chunk::new("tool-approval-request").with("approvalId", id).with("toolCallId", id))
    }
}

/// Writes the end of a call's input and, where the user is asked first, the request for the approval. Arguments that could not be read are
/// the call's failure, so nobody is asked about them.
pub fn write_input(parts: &mut Parts, input: Chunk, approvals: &Approvals) {
    let request = match (input.kind(), input.text("toolCallId"), input.text("toolName")) {
        ("tool-input-available", Some(id), Some(name)) => approvals.request(id, name),
        _ => None,
    };
    parts.other(input);
    if let Some(request) = request {
        parts.other(request);
    }
}

/// The chunk that ends a call's input: whole, or the arguments that could not be read and why.
pub fn input_chunk(id: &str, name: &str, input: Result<Value, String>, arguments: &str) -> Chunk {
    let (kind, input, error) = match input {
        Ok(input) => ("tool-input-available", input, None),
        Err(why) => ("tool-input-error", Value::String(arguments.to_owned()), Some(why)),
    };
    let chunk = Chunk::new(kind).with("toolCallId", id).with("toolName", name).with("input", input);
    match error {
        None => chunk,
        Some(why) => chunk.with("errorText", format!("The arguments of the tool call are not JSON: {why}")),
    }
}

/// The input of a call. A tool without parameters is called with no arguments at all by some models: that is the empty object.
///
/// # Errors
/// What is wrong with the JSON.
pub fn parse_arguments(arguments: &str) -> Result<Value, String> {
    if matches!(arguments.trim(), "" | "null") {
        return Ok(Value::Object(Map::new()));
    }
    lenient_json::parse(arguments).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_of_a_call_has_an_answer() {
        for (part, expected, is_error) in [
            (json!({"state": "input-streaming"}), "the call was abandoned and has no result", true),
            (json!({"state": "input-available", "input": {}}), "the call was abandoned and has no result", true),
            (json!({"state": "approval-requested"}), "the user has not approved this call", true),
            (
                json!({"state": "approval-responded", "approval": {"approved": false, "reason": "no"}}),
                "the user denied this call: no",
                true,
            ),
            (json!({"state": "output-denied", "approval": {"approved": false}}), "the user denied this call", true),
            (
                json!({"state": "approval-responded", "approval": {"approved": true}}),
                "the user approved this call, but it was not executed",
                true,
            ),
            (json!({"state": "output-error", "errorText": " "}), "the tool failed", true),
            (json!({"state": "output-available", "output": "text"}), "text", false),
            (json!({"state": "output-available", "output": null}), "null", false),
            (json!({"state": "output-available", "output": {"a": 1}}), "{\"a\":1}", false),
        ] {
            assert_eq!(result(&part), CallResult { text: expected.to_owned(), is_error }, "{part}");
        }
    }

    #[test]
    fn only_readable_calls_of_marked_tools_need_an_approval() {
        let tool = |name: &str, approval: Value| {
            Tool::parse(Fields::of("x", "", json!({"name": name, "approval": approval})).unwrap())
        };
        assert!(tool("f", json!("yes")).is_err());
        let tools = [tool("f", json!(true)).unwrap(), tool("g", json!(false)).unwrap()];
        let written = |name: &str, input| {
            let mut parts = Parts::new("");
            write_input(&mut parts, input_chunk("c", name, input, "{"), &Approvals::of(&tools));
            parts.take().iter().map(|chunk| chunk.kind().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(written("f", Ok(json!({}))), ["start-step", "tool-input-available", "tool-approval-request"]);
        assert_eq!(written("f", Err("cut".into())), ["start-step", "tool-input-error"]);
        assert_eq!(written("g", Ok(json!({}))), ["start-step", "tool-input-available"]);
        let request = Approvals::of(&tools).request("c", "f").unwrap();
        assert_eq!((request.text("approvalId"), request.text("toolCallId")), (Some("c"), Some("c")));
    }

    #[test]
    fn a_part_becomes_a_call_that_the_apis_accept() {
        let call = |part: Value| Call::of_part(&part, 3);
        assert_eq!(call(json!({"type": "text"})), None);
        let odd = call(json!({"type": "dynamic-tool", "toolName": "g h", "rawInput": "{"})).unwrap();
        assert_eq!((odd.id.as_str(), odd.name.as_str(), odd.input), ("call3", "g_h", json!({"invalid": "{"})));
        assert_eq!(call(json!({"type": "tool-"})).unwrap().name, "unknown");
    }
}

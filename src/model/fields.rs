//! Reads the fields of one JSON object of the configuration: each at most once, none left over, every complaint with agent and field.

use serde_json::{Map, Value};

use super::agents_error::AgentsError;

/// The fields that have not been read yet.
#[derive(Debug)]
pub struct Fields {
    agent: String,
    /// Where the object stands in its agent, such as `tools[0].`; empty at the top.
    path: String,
    rest: Map<String, Value>,
}

impl Fields {
    /// The fields of `value`, which is the agent itself or, with a path, an object inside it.
    ///
    /// # Errors
    /// [`AgentsError::Field`] when it is not an object.
    pub fn of(agent: &str, path: &str, value: Value) -> Result<Self, AgentsError> {
        match value {
            Value::Object(rest) => {
                let path = if path.is_empty() { String::new() } else { format!("{path}.") };
                Ok(Self { agent: agent.to_owned(), path, rest })
            }
            _ => Err(AgentsError::Field {
                agent: agent.to_owned(),
                field: if path.is_empty() { "(the agent)".to_owned() } else { path.to_owned() },
                problem: "must be an object".to_owned(),
            }),
        }
    }

    /// A complaint about one of these fields.
    pub fn error(&self, field: &str, problem: impl Into<String>) -> AgentsError {
        AgentsError::Field {
            agent: self.agent.clone(),
            field: format!("{}{field}", self.path),
            problem: problem.into(),
        }
    }

    /// The agent's name.
    pub fn agent(&self) -> &str {
        &self.agent
    }

    /// Any value. `null` is a value, and no field accepts it.
    pub fn take(&mut self, field: &str) -> Option<Value> {
        self.rest.shift_remove(field)
    }

    /// A string that is not empty.
    ///
    /// # Errors
    /// [`AgentsError::Field`] for anything else.
    pub fn string(&mut self, field: &str) -> Result<Option<String>, AgentsError> {
        match self.take(field) {
            None => Ok(None),
            Some(Value::String(text)) if !text.trim().is_empty() => Ok(Some(text)),
            Some(_) => Err(self.error(field, "must be a string that is not empty")),
        }
    }

    /// `true` or `false`.
    ///
    /// # Errors
    /// [`AgentsError::Field`] for anything else.
    pub fn boolean(&mut self, field: &str) -> Result<Option<bool>, AgentsError> {
        match self.take(field) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(value)),
            Some(_) => Err(self.error(field, "must be true or false")),
        }
    }

    /// A whole number from `least` to `most`.
    ///
    /// # Errors
    /// [`AgentsError::Field`] for anything else.
    pub fn whole(&mut self, field: &str, least: u32, most: u32) -> Result<Option<u32>, AgentsError> {
        let Some(value) = self.take(field) else { return Ok(None) };
        match value.as_u64().and_then(|value| u32::try_from(value).ok()) {
            Some(value) if (least..=most).contains(&value) => Ok(Some(value)),
            _ => Err(self.error(field, format!("must be a whole number from {least} to {most}"))),
        }
    }

    /// A list.
    ///
    /// # Errors
    /// [`AgentsError::Field`] for anything else.
    pub fn list(&mut self, field: &str) -> Result<Vec<Value>, AgentsError> {
        match self.take(field) {
            None => Ok(Vec::new()),
            Some(Value::Array(list)) => Ok(list),
            Some(_) => Err(self.error(field, "must be a list")),
        }
    }

    /// An object.
    ///
    /// # Errors
    /// [`AgentsError::Field`] for anything else.
    pub fn object(&mut self, field: &str) -> Result<Option<Map<String, Value>>, AgentsError> {
        match self.take(field) {
            None => Ok(None),
            Some(Value::Object(map)) => Ok(Some(map)),
            Some(_) => Err(self.error(field, "must be an object")),
        }
    }

    /// Refuses fields that nobody has read: a typo must not pass in silence.
    ///
    /// # Errors
    /// [`AgentsError::Field`] for the first of them.
    pub fn end(self) -> Result<(), AgentsError> {
        match self.rest.keys().next() {
            None => Ok(()),
            Some(field) => Err(self.error(field, "is not known")),
        }
    }
}

//! What is wrong with the `AGENTS` configuration.

use thiserror::Error;

use crate::core::error::{Code, Failure};

/// Why the configuration cannot be used. The words are for the operator and never quote a value: it might be a key.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum AgentsError {
    /// Not JSON.
    #[error("AGENTS is not JSON: {0}")]
    Json(String),
    /// JSON, but not an object with an agent in it.
    #[error("AGENTS must be a JSON object with at least one agent: {{\"default\":{{\"producer\":\"demo\"}}}}")]
    Empty,
    /// A field that is missing, unknown or of the wrong kind.
    #[error("AGENTS: agent \"{agent}\": {field} {problem}")]
    Field {
        /// The agent's name.
        agent: String,
        /// The field, with its path inside the agent.
        field: String,
        /// What to change.
        problem: String,
    },
}

impl AgentsError {
    /// The failure of a request that needs the configuration.
    pub fn failure(&self) -> Failure {
        Failure::new(Code::ConfigurationInvalid, self.to_string())
    }
}

//! Finished answers, as values.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::core::error::Code;

/// Headers of an answer, their names in lower case.
pub type AnswerHeaders = Vec<(&'static str, Cow<'static, str>)>;

/// A whole answer: it is fixed when it is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The headers.
    pub headers: AnswerHeaders,
    /// The body; empty for an answer that has none.
    pub body: Vec<u8>,
}

impl Answer {
    /// A JSON answer, which no cache may keep.
    pub fn json(status: u16, body: &Value) -> Self {
        let headers = vec![("content-type", "application/json".into()), ("cache-control", "no-store".into())];
        Self { status, headers, body: body.to_string().into_bytes() }
    }

    /// An answer without a body.
    pub fn empty(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Vec::new() }
    }

    /// `{error, code, retryable}` with the code's status and words.
    pub fn error(code: Code) -> Self {
        Self::explained(code, code.message(), Map::new())
    }

    /// A typed error with words of its own, and the facts that the client needs to act on it. Facts win over what the code says.
    pub fn explained(code: Code, words: &str, facts: Map<String, Value>) -> Self {
        let mut body = Map::new();
        body.insert("error".into(), words.into());
        body.insert("code".into(), code.as_str().into());
        if code.retryable() {
            body.insert("retryable".into(), true.into());
        }
        body.extend(facts);
        Self::json(code.status(), &Value::Object(body))
    }

    /// The same with another status.
    #[must_use]
    pub fn with_status(self, status: u16) -> Self {
        Self { status, ..self }
    }

    /// The same with one more header.
    #[must_use]
    pub fn with_header(mut self, name: &'static str, value: impl Into<Cow<'static, str>>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_error_says_code_words_and_facts() {
        let facts = json!({ "runId": "r", "retryable": false });
        let Value::Object(facts) = facts else { panic!("an object") };
        let answer = Answer::explained(Code::StateAlreadyRunning, "busy", facts);
        assert_eq!(answer.status, Code::StateAlreadyRunning.status());
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(body, json!({ "error": "busy", "code": "state_already_running", "retryable": false, "runId": "r" }));
        assert_eq!(Answer::empty(204).with_header("retry-after", "1").headers, [("retry-after", "1".into())]);
    }
}

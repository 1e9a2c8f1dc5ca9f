//! The JSON body of an append: an array of chunks, or an object that says what else happens in the same transaction.
//!
//! ```text
//! [chunk, …]
//! {"chunks": [chunk, …], "commit": {…} | "end": {…} | "fail": {…} | "pause": {…}}
//! ```

use serde_json::Value;

use super::body::{CommitBody, json};
use super::ending::{EndDeed, Ending};
use super::refusal::Refusal;
use crate::core::run::Vocabulary;

/// What follows the chunks; takes the number behind theirs.
#[derive(Clone, Debug, PartialEq)]
pub enum Then {
    /// A commit. One that is refused leaves the chunks stored.
    Commit(CommitBody),
    /// The run's ending, stored with the chunks or not at all.
    Ending(Ending),
}

/// What may be said behind the chunks: a commit, or an ending.
const THEN: [(&str, Option<EndDeed>); 4] =
    [("commit", None), ("end", Some(EndDeed::End)), ("fail", Some(EndDeed::Fail)), ("pause", Some(EndDeed::Pause))];

/// An append.
#[derive(Clone, Debug, PartialEq)]
pub struct Append {
    /// The chunks, as they were pushed.
    pub chunks: Vec<Value>,
    /// What happens behind them.
    pub then: Option<Then>,
}

impl Append {
    /// Reads a body.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn parse(body: &[u8], vocabulary: Vocabulary) -> Result<Self, Refusal> {
        let mut keys = match json(body)? {
            Value::Array(chunks) => return Ok(Self { chunks, then: None }),
            Value::Object(keys) => keys,
            _ => return Err(Refusal::NotA("an array of chunks, or an object with chunks")),
        };
        let chunks = match keys.remove("chunks") {
            Some(Value::Array(chunks)) => chunks,
            _ => return Err(Refusal::WrongType { key: "chunks", expected: "an array" }),
        };
        let mut then: Option<(&'static str, Then)> = None;
        for (name, deed) in THEN {
            let said = match keys.get(name) {
                None | Some(Value::Null) => continue,
                Some(Value::Object(said)) => said,
                Some(_) => return Err(Refusal::WrongType { key: name, expected: "an object" }),
            };
            if let Some((other, _)) = then {
                return Err(Refusal::Both(other, name));
            }
            let next = match deed {
                None => Then::Commit(CommitBody::read(said, vocabulary)?),
                Some(deed) => Then::Ending(deed.read(said)?),
            };
            then = Some((name, next));
        }
        Ok(Self { chunks, then: then.map(|(_, next)| next) })
    }

    /// Numbers that the request takes.
    pub fn count(&self) -> usize {
        self.chunks.len().saturating_add(usize::from(self.then.is_some()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::push::body::{EndBody, EndStatus};
    use serde_json::json;

    fn parse(body: &Value) -> Result<Append, Refusal> {
        Append::parse(body.to_string().as_bytes(), Vocabulary::Ui)
    }

    #[test]
    fn chunks_stand_alone_or_before_a_commit_or_an_ending() {
        assert_eq!(parse(&json!([1, {"type": "x"}])).unwrap().count(), 2);
        let append = parse(&json!({"chunks": [1], "end": {"status": "completed"}, "fail": null})).unwrap();
        assert_eq!(append.count(), 2);
        assert_eq!(
            append.then,
            Some(Then::Ending(Ending::End(EndBody { status: EndStatus::Completed, output: None, usage: None })))
        );
        assert_eq!(
            parse(&json!({"chunks": [], "commit": {}})).unwrap().then,
            Some(Then::Commit(CommitBody::default()))
        );
    }

    #[test]
    fn all_else_is_told() {
        for (body, words) in [
            (json!("x"), "the body must be an array of chunks, or an object with chunks"),
            (json!({"end": {"status": "completed"}}), "chunks must be an array"),
            (json!({"chunks": [], "end": {}}), "status must be completed or interrupted"),
            (json!({"chunks": [], "end": true}), "end must be an object"),
            (json!({"chunks": [], "commit": {}, "pause": {}}), "commit and pause cannot be said at once"),
        ] {
            assert_eq!(parse(&body).unwrap_err().to_string(), words);
        }
        assert_eq!(Append::parse(b"[1", Vocabulary::Ui), Err(Refusal::NotJson));
    }
}

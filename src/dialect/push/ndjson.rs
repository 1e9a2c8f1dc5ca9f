//! A body of one JSON value per line, from bytes cut anywhere.
//!
//! Blank lines are skipped and take no number; a carriage return before the line feed is no part of the line. A body that ends without a
//! line feed ends its last line all the same ([`Lines::finish`]); one that breaks off does not: what stands in its last line is unknown.

use serde_json::Value;
use thiserror::Error;

use crate::core::lenient_json;

/// Whether a body of this type is one of lines; what stands behind the type itself does not count.
pub fn is_lines(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().to_ascii_lowercase();
    essence.contains("ndjson") || essence.contains("jsonl")
}

/// Why a line was refused. Nothing behind it is read.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum BadLine {
    /// The line is longer than one may be.
    #[error("line {index} is longer than {limit} bytes")]
    TooLong {
        /// Its place among the lines that are not blank, from 0.
        index: u64,
        /// The most bytes of a line.
        limit: usize,
    },
    /// The line is not UTF-8.
    #[error("line {index} is not UTF-8")]
    NotUtf8 {
        /// Its place, as above.
        index: u64,
    },
    /// The line is not one JSON value, or is nested deeper than 128 levels.
    #[error("line {index} must be one JSON value")]
    NotJson {
        /// Its place, as above.
        index: u64,
    },
}

impl BadLine {
    /// The line's place among those that are not blank, from 0.
    pub fn index(self) -> u64 {
        match self {
            Self::TooLong { index, .. } | Self::NotUtf8 { index } | Self::NotJson { index } => index,
        }
    }
}

/// What a piece of the body has brought: values to store first, then what ended the reading.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Taken {
    /// The values of the lines that are complete.
    pub values: Vec<Value>,
    /// The line behind them that was refused.
    pub bad: Option<BadLine>,
}

/// The lines of one body.
#[derive(Debug)]
pub struct Lines {
    limit: usize,
    /// The line that has begun.
    begun: Vec<u8>,
    /// Lines so far that were not blank.
    index: u64,
    bad: Option<BadLine>,
}

impl Lines {
    /// The lines of a body; `limit` is the most bytes of one.
    pub fn new(limit: usize) -> Self {
        Self { limit, begun: Vec::new(), index: 0, bad: None }
    }

    /// Takes the next piece of the body.
    pub fn push(&mut self, bytes: &[u8]) -> Taken {
        let mut values = Vec::new();
        let mut rest = bytes;
        while self.bad.is_none() {
            let Some((line, after)) = memchr::memchr(b'\n', rest).and_then(|at| rest.split_at_checked(at)) else {
                self.keep(rest);
                break;
            };
            rest = after.get(1..).unwrap_or_default();
            if self.begun.is_empty() {
                values.extend(self.value(line));
            } else {
                self.keep(line);
                let line = std::mem::take(&mut self.begun);
                values.extend(self.value(&line));
            }
        }
        Taken { values, bad: self.bad }
    }

    /// The body has ended in good order.
    pub fn finish(&mut self) -> Taken {
        let line = std::mem::take(&mut self.begun);
        let values = self.value(&line).into_iter().collect();
        Taken { values, bad: self.bad }
    }

    fn keep(&mut self, bytes: &[u8]) {
        // One byte more for the carriage return.
        if self.begun.len().saturating_add(bytes.len()) > self.limit.saturating_add(1) {
            self.bad = Some(BadLine::TooLong { index: self.index, limit: self.limit });
            self.begun = Vec::new();
        } else {
            self.begun.extend_from_slice(bytes);
        }
    }

    fn value(&mut self, line: &[u8]) -> Option<Value> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let line = if self.index == 0 { line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line) } else { line };
        if self.bad.is_some() || line.trim_ascii().is_empty() {
            return None;
        }
        let index = self.index;
        let read = if line.len() > self.limit {
            Err(BadLine::TooLong { index, limit: self.limit })
        } else {
            let text = std::str::from_utf8(line).map_err(|_| BadLine::NotUtf8 { index });
            text.and_then(|text| lenient_json::parse(text).map_err(|_| BadLine::NotJson { index }))
        };
        self.index = self.index.saturating_add(1);
        read.map_err(|bad| self.bad = Some(bad)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn read(limit: usize, pieces: &[&[u8]]) -> (Vec<Value>, Option<BadLine>) {
        let mut lines = Lines::new(limit);
        let mut values = Vec::new();
        for piece in pieces {
            values.extend(lines.push(piece).values);
        }
        let last = lines.finish();
        values.extend(last.values);
        (values, last.bad)
    }

    #[test]
    fn types_of_lines() {
        for text in
            ["application/x-ndjson", "application/NDJSON; charset=utf-8", "application/jsonl", "application/jsonlines"]
        {
            assert!(is_lines(text), "{text}");
        }
        for text in ["", "application/json", "text/plain; x=ndjson", "application/json;jsonl"] {
            assert!(!is_lines(text), "{text}");
        }
    }

    #[test]
    fn lines_end_with_either_break_or_the_body() {
        let body = "\u{feff}{\"a\":1}\r\n\n  \r\n[2]\n\"drei ü\"";
        assert_eq!(read(100, &[body.as_bytes()]), (vec![json!({"a": 1}), json!([2]), json!("drei ü")], None));
        assert_eq!(read(100, &[b""]), (vec![], None));
        assert_eq!(read(100, &[b"\"\\ud83d\"\n"]).0, [json!("\u{fffd}")]);
    }

    #[test]
    fn a_bad_line_is_told_by_its_place_and_ends_the_reading() {
        for (body, bad) in [
            (&b"1\n\n{\n2\n"[..], BadLine::NotJson { index: 1 }),
            (b"1\n\"\xff\"\n2\n", BadLine::NotUtf8 { index: 1 }),
            (b"1\n\"0123456789\"\n2", BadLine::TooLong { index: 1, limit: 10 }),
            (b"1\n2 3\n", BadLine::NotJson { index: 1 }),
        ] {
            assert_eq!(read(10, &[body]), (vec![json!(1)], Some(bad)));
            let bytes: Vec<&[u8]> = body.chunks(1).collect();
            assert_eq!(read(10, &bytes), (vec![json!(1)], Some(bad)));
        }
    }

    #[test]
    fn a_line_of_the_limit_fits_and_one_without_end_is_stopped_early() {
        assert_eq!(read(4, &[b"\"ab\"\r\n"]), (vec![json!("ab")], None));
        assert_eq!(read(4, &[b"\"a", b"b\"\r", b"\n"]), (vec![json!("ab")], None));
        let mut lines = Lines::new(4);
        assert_eq!(lines.push(b"\"abcd").bad, None);
        assert_eq!(lines.push(b"e").bad, Some(BadLine::TooLong { index: 0, limit: 4 }));
        assert!(lines.begun.is_empty());
    }

    proptest! {
        #[test]
        fn cuts_change_nothing(
            values in prop::collection::vec(".{0,6}", 0..6), cuts in prop::collection::vec(0..60_usize, 0..8), tail in any::<bool>()
        ) {
            let mut body = values.iter().map(|text| json!({"t": text}).to_string()).collect::<Vec<_>>().join("\r\n\n");
            if tail {
                body.push('\n');
            }
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(body.len())).collect();
            cuts.sort_unstable();
            let (mut pieces, mut from) = (Vec::new(), 0);
            for cut in cuts {
                pieces.push(&body.as_bytes()[from..cut]);
                from = cut;
            }
            pieces.push(&body.as_bytes()[from..]);
            let expected: Vec<Value> = values.iter().map(|text| json!({"t": text})).collect();
            prop_assert_eq!(read(1_000, &pieces), (expected, None));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(20, &[&bytes]);
        }
    }
}

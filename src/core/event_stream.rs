//! Server-sent events as model APIs and this service's own kind send them: bytes cut anywhere in, whole events out.
//!
//! Follows the event-stream format of the HTML standard (line ends, byte order mark, comments, `data` over several lines), with two
//! differences that suit machines: bytes that are not UTF-8 are a failure instead of replacement characters, and an event has a largest size.
//! The field `error`, which the standard does not have, is data of an event named `error`: llama.cpp reports its failures so.

use serde::de::IgnoredAny;
use thiserror::Error;

/// One event: its name, if it has one, and its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The `event` field; `None` stands for the standard's `message`.
    pub name: Option<String>,
    /// The `data` lines, joined with line feeds.
    pub data: String,
}

/// Why the bytes are not an event stream that this service reads.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum EventStreamError {
    /// An event, or a single line, is larger than the limit.
    #[error("an event of the stream is larger than {limit} bytes")]
    TooLarge {
        /// The limit, in bytes.
        limit: usize,
    },
    /// A line of a field that is used is not UTF-8.
    #[error("the event stream is not UTF-8")]
    NotUtf8,
}

/// Incremental decoder. After an error it yields nothing more.
#[derive(Clone, Debug)]
pub struct EventStream {
    limit: usize,
    /// The line that has not ended yet.
    line: Vec<u8>,
    name: Option<String>,
    /// The event's data so far, each line with its line feed.
    data: String,
    after_carriage_return: bool,
    /// The byte order mark counts on the first line only.
    on_first_line: bool,
    failed: Option<EventStreamError>,
}

impl Default for EventStream {
    fn default() -> Self {
        Self::new(Self::MAX_EVENT_BYTES)
    }
}

impl EventStream {
    /// Default bound on one event: 16 MiB, room for a picture in base64, and small beside an isolate's 128 MB.
    pub const MAX_EVENT_BYTES: usize = 16 << 20;

    /// A decoder that refuses events of more than `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            line: Vec::new(),
            name: None,
            data: String::new(),
            after_carriage_return: false,
            on_first_line: true,
            failed: None,
        }
    }

    /// Reads the next bytes and appends every event that they complete to `events`. Events that were complete before an error are
    /// appended too, which is why they are not part of the result.
    ///
    /// # Errors
    /// [`EventStreamError`]; every later call answers the same.
    pub fn push(&mut self, bytes: &[u8], events: &mut Vec<Event>) -> Result<(), EventStreamError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let read = self.read(bytes, events);
        self.failed = read.err();
        read
    }

    /// The body has ended. The standard drops a last event that lacks its blank line, because it may be cut. Here it is returned when
    /// its data is a whole JSON object or array: those show their own end, some servers do leave the last line end out, and the event
    /// so lost would be the one with the finish reason.
    pub fn finish(&mut self) -> Option<Event> {
        if self.failed.is_some() {
            return None;
        }
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            self.end_line(&line, &mut Vec::new()).ok()?;
        }
        let event = self.take_event()?;
        let delimited = event.data.trim_start().starts_with(['{', '[']);
        (delimited && serde_json::from_str::<IgnoredAny>(&event.data).is_ok()).then_some(event)
    }

    fn read(&mut self, bytes: &[u8], events: &mut Vec<Event>) -> Result<(), EventStreamError> {
        if bytes.is_empty() {
            return Ok(());
        }
        let mut rest = bytes;
        if std::mem::take(&mut self.after_carriage_return) {
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
        }
        while let Some(end) = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n')) {
            let (line, tail) = rest.split_at(end);
            let (after, carriage_return) = match tail {
                [b'\r', b'\n', after @ ..] => (after, false),
                [b'\r'] => (&[][..], true),
                [_, after @ ..] => (after, false),
                [] => (tail, false),
            };
            if self.line.is_empty() {
                self.end_line(line, events)?;
            } else {
                self.hold(line)?;
                let line = std::mem::take(&mut self.line);
                self.end_line(&line, events)?;
                // The allocation serves the next cut line as well.
                self.line = line;
                self.line.clear();
            }
            self.after_carriage_return = carriage_return;
            rest = after;
        }
        self.hold(rest)
    }

    /// Keeps bytes of a line that has not ended.
    fn hold(&mut self, bytes: &[u8]) -> Result<(), EventStreamError> {
        self.check_room(self.line.len().saturating_add(bytes.len()))?;
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn end_line(&mut self, line: &[u8], events: &mut Vec<Event>) -> Result<(), EventStreamError> {
        let first = std::mem::take(&mut self.on_first_line);
        let line = if first { line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line) } else { line };
        if line.is_empty() {
            events.extend(self.take_event());
            return Ok(());
        }
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let (field, value) = line.split_at(colon);
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" | b"error" => {
                self.check_room(value.len())?;
                self.data.push_str(utf8(value)?);
                self.data.push('\n');
                if field == b"error" {
                    self.name = Some("error".to_owned());
                }
            }
            b"event" => self.name = Some(utf8(value)?.to_owned()).filter(|name| !name.is_empty()),
            // Comments, `id` and `retry`: a model API's stream cannot be resumed, and a chunk's own frame says its sequence.
            _ => {}
        }
        Ok(())
    }

    fn take_event(&mut self) -> Option<Event> {
        let name = self.name.take();
        let mut data = std::mem::take(&mut self.data);
        data.pop()?;
        Some(Event { name, data })
    }

    fn check_room(&self, more: usize) -> Result<(), EventStreamError> {
        if self.data.len().saturating_add(more) > self.limit {
            return Err(EventStreamError::TooLarge { limit: self.limit });
        }
        Ok(())
    }
}

fn utf8(bytes: &[u8]) -> Result<&str, EventStreamError> {
    std::str::from_utf8(bytes).map_err(|_| EventStreamError::NotUtf8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode(pieces: &[&[u8]]) -> (Vec<Event>, Result<(), EventStreamError>) {
        let mut stream = EventStream::default();
        let mut events = Vec::new();
        for piece in pieces {
            if let Err(error) = stream.push(piece, &mut events) {
                return (events, Err(error));
            }
        }
        events.extend(stream.finish());
        (events, Ok(()))
    }

    fn data(pieces: &[&[u8]]) -> Vec<String> {
        let (events, result) = decode(pieces);
        result.unwrap();
        events.into_iter().map(|event| event.data).collect()
    }

    #[test]
    fn reads_every_line_end() {
        for text in [
            "data: a\n\ndata:b\n\n",
            "data: a\r\n\r\ndata:b\r\n\r\n",
            "data: a\r\rdata:b\r\r",
            "data: a\r\n\ndata:b\n\r\n",
        ] {
            assert_eq!(data(&[text.as_bytes()]), ["a", "b"], "{text:?}");
            let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
            assert_eq!(data(&bytes), ["a", "b"], "{text:?} bytewise");
        }
    }

    #[test]
    fn an_empty_write_between_cr_and_lf_changes_nothing() {
        assert_eq!(data(&[b"data: a\r", b"", b"\ndata: b\n\n"]), ["a\nb"]);
    }

    #[test]
    fn reads_names_comments_marks_and_several_lines() {
        let (events, _) =
            decode(&[b"\xEF\xBB\xBFevent: error\ndata: {\ndata:  }\n: note\nid: 3\nretry: 1\n\nevent: x\n\ndata\n\n"]);
        let [first, second] = events.as_slice() else { panic!("{events:?}") };
        assert_eq!((first.name.as_deref(), first.data.as_str()), (Some("error"), "{\n }"));
        assert_eq!((second.name.as_deref(), second.data.as_str()), (None, ""));
    }

    #[test]
    fn the_field_error_is_an_event_of_that_name() {
        let (events, _) = decode(&[b"error: {\"code\":500}\n\ndata: a\n\n"]);
        let [first, second] = events.as_slice() else { panic!("{events:?}") };
        assert_eq!((first.name.as_deref(), first.data.as_str()), (Some("error"), "{\"code\":500}"));
        assert_eq!((second.name.as_deref(), second.data.as_str()), (None, "a"));
    }

    #[test]
    fn keeps_a_last_event_only_when_it_is_whole_json() {
        assert_eq!(data(&[b"data: {\"a\":1}"]), ["{\"a\":1}"]);
        assert_eq!(data(&[b"data: {\"a\":1}\n"]), ["{\"a\":1}"]);
        assert!(data(&[b"data: {\"a\":1"]).is_empty());
        assert!(data(&[b"data: 12"]).is_empty());
    }

    #[test]
    fn bounds_one_event_and_keeps_the_earlier_ones() {
        let mut stream = EventStream::new(8);
        let mut events = Vec::new();
        let error = stream.push(b"data: a\n\ndata: 12345\ndata: 6789\n\n", &mut events);
        assert_eq!(error, Err(EventStreamError::TooLarge { limit: 8 }));
        assert_eq!(events.len(), 1);
        assert_eq!(stream.push(b"data: b\n\n", &mut events), error);
        assert_eq!(EventStream::new(8).push(b"aaaaaaaaaaaa", &mut events), error);
    }

    #[test]
    fn refuses_what_is_not_utf8() {
        let (events, result) = decode(&[b"data: a\n\ndata: \xFF\n\n"]);
        assert_eq!((events.len(), result), (1, Err(EventStreamError::NotUtf8)));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&[&bytes]);
        }

        #[test]
        fn cuts_change_nothing(text in "(data: [a-zäß🐙]{0,4}|event: x|:c|\r\n|\n|\r|\r\n\r\n|\n\n){0,20}", cuts in prop::collection::vec(0..200usize, 0..8)) {
            let bytes = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| *cut <= bytes.len()).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(decode(&pieces), decode(&[bytes]));
        }
    }
}

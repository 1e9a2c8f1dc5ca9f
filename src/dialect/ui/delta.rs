//! Text and reasoning deltas, cut out of their stored frames unread.
//!
//! Nearly all of a reply is such deltas, and nothing in them depends on the client's version. All bookkeeping stands last in a stored
//! chunk and begins with the run (`core::frame`), so what a chat client gets is the chunk's own bytes up to there.

/// The parts of a stored frame that holds `{type, id, delta}` and nothing else besides the stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Delta<'a> {
    /// The sequence, in digits.
    pub sequence: &'a [u8],
    /// The chunk's JSON without the stamp and without the closing brace.
    pub chunk: &'a [u8],
    /// The attempt that wrote it.
    pub attempt: Option<&'a str>,
}

/// `None` for every other frame; those are decoded.
pub(super) fn of_frame(frame: &[u8]) -> Option<Delta<'_>> {
    let rest = frame.strip_prefix(b"event: chunk\nid: ")?;
    let (sequence, rest) = rest.split_at_checked(memchr::memchr(b'\n', rest)?)?;
    let rest = rest.strip_prefix(b"\ndata: {\"sequence\":")?.strip_prefix(sequence)?;
    let chunk = rest.strip_prefix(b",\"chunk\":")?;
    let after = [&b"{\"type\":\"text-delta\",\"id\":\""[..], b"{\"type\":\"reasoning-delta\",\"id\":\""]
        .into_iter()
        .find_map(|head| chunk.strip_prefix(head))?;
    let after = after_string(after)?.strip_prefix(b",\"delta\":\"")?;
    let stamp = after_string(after)?;
    let after_run = after_string(stamp.strip_prefix(b",\"runId\":\"")?)?;
    let attempt = match after_run.strip_prefix(b",\"attemptId\":\"") {
        None => None,
        Some(id) => {
            let id = id.get(..memchr::memchr(b'"', id)?)?;
            // An id with an escape in it is left to the decoder.
            Some(std::str::from_utf8(id).ok().filter(|id| !id.contains('\\'))?)
        }
    };
    Some(Delta { sequence, chunk: chunk.get(..chunk.len().checked_sub(stamp.len())?)?, attempt })
}

/// What follows a JSON string, of which the opening quote has been read.
fn after_string(bytes: &[u8]) -> Option<&[u8]> {
    let mut rest = bytes;
    loop {
        let at = memchr::memchr2(b'"', b'\\', rest)?;
        let escapes = rest.get(at) == Some(&b'\\');
        rest = rest.get(at.checked_add(if escapes { 2 } else { 1 })?..)?;
        if !escapes {
            return Some(rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::chunk::{Chunk, Stamp};
    use crate::core::frame;
    use crate::core::ids::{AttemptId, Cursor, RunId, Sequence};
    use crate::dialect::ui::attempts::Attempts;
    use crate::dialect::ui::lens::Lens;
    use crate::dialect::ui::response::{project, project_stored};
    use crate::dialect::ui::vocabulary::Floor;
    use proptest::prelude::*;
    use serde_json::json;

    fn stored(chunks: &[Chunk]) -> Vec<u8> {
        let stamp = Stamp { run: RunId::new("run_1"), attempt: Some((AttemptId::new("run_1-1-1"), 1)) };
        let mut bytes = Vec::new();
        for (at, chunk) in chunks.iter().enumerate() {
            frame::encode(Sequence::new(at as u64 + 7).unwrap(), chunk, &stamp, &mut bytes);
        }
        bytes
    }

    fn decoded(bytes: &[u8], lens: &Lens) -> Vec<u8> {
        let mut out = Vec::new();
        let frames = frame::decode(bytes).unwrap().into_iter().map(|stored| (stored.sequence, stored.chunk));
        project(frames, Floor::default(), lens, &mut out);
        out
    }

    #[test]
    fn only_plain_deltas_are_cut_out() {
        let delta = Chunk::new("text-delta").with("id", "t").with("delta", "\",\"runId\":\"forged \\");
        let plain = stored(std::slice::from_ref(&delta));
        let cut = of_frame(&plain).unwrap();
        assert_eq!((cut.sequence, cut.attempt), (&b"7"[..], Some("run_1-1-1")));
        assert!(cut.chunk.ends_with(br#""delta":"\",\"runId\":\"forged \\""#));
        for other in [
            delta.clone().with("providerMetadata", json!({"p": {"k": 1}})),
            Chunk::new("text-delta").with("id", "t").with("delta", "x").with("more", 1),
            Chunk::new("text-delta").with("delta", "x").with("id", "t"),
            Chunk::new("text-end").with("id", "t"),
            Chunk::new("text-delta").with("id", "t").with("delta", 1),
        ] {
            assert_eq!(of_frame(&stored(&[other])), None);
        }
    }

    #[test]
    fn bookkeeping_never_reaches_the_piece_that_is_cut_out() {
        for attempt in [None, Some((AttemptId::new("a\"1"), 1)), Some((AttemptId::new("a1"), 1))] {
            let stamp = Stamp { run: RunId::new("r\"1"), attempt: attempt.clone() };
            let marked = Chunk::new("text-delta").with("continues", "tool").with("id", "t").with("delta", "x");
            let mut bytes = Vec::new();
            frame::encode(Sequence::new(7).unwrap(), &marked, &stamp, &mut bytes);
            let cut = of_frame(&bytes);
            assert_eq!(cut.is_none(), attempt.is_some_and(|(id, _)| id.as_str().contains('"')));
            let mut out = Vec::new();
            project_stored(&bytes, Floor::default(), &Lens::default(), &mut out).unwrap();
            assert_eq!(out, b"id: 7\ndata: {\"type\":\"text-delta\",\"id\":\"t\",\"delta\":\"x\"}\n\n");
        }
    }

    proptest! {
        #[test]
        fn cutting_gives_what_decoding_gives(
            texts in prop::collection::vec((any::<bool>(), ".*", ".*", prop::option::of("[ab\"]")), 0..8),
        ) {
            let mut bytes = Vec::new();
            for (at, (text, id, delta, attempt)) in texts.into_iter().enumerate() {
                let chunk = Chunk::new(if text { "text-delta" } else { "reasoning-delta" }).with("id", id).with("delta", delta);
                let stamp = Stamp { run: RunId::new("r"), attempt: attempt.map(|id| (AttemptId::new(id), 1)) };
                frame::encode(Sequence::new(at as u64 + 7).unwrap(), &chunk, &stamp, &mut bytes);
            }
            let mut lens = Lens::default();
            for superseded in ["a", "\""] {
                let mut out = Vec::new();
                project_stored(&bytes, Floor::default(), &lens, &mut out).unwrap();
                prop_assert_eq!(String::from_utf8(out).unwrap(), String::from_utf8(decoded(&bytes, &lens)).unwrap());
                lens.superseded.insert(superseded);
            }
            let stored = frame::decode(&bytes).unwrap();
            let attempts = Attempts::of(stored.iter().map(|stored| (stored.sequence, &stored.chunk)));
            let mut cut = Attempts::default();
            cut.see_stored(&bytes).unwrap();
            for (cursor, attempt) in (6..16).flat_map(|cursor| ["a", "b", "\""].map(|attempt| (cursor, attempt))) {
                let cursor = Cursor::new(cursor).unwrap();
                prop_assert_eq!(cut.was_sent(attempt, cursor), attempts.was_sent(attempt, cursor));
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = of_frame(&bytes);
            let _ = project_stored(&bytes, Floor::default(), &Lens::default(), &mut Vec::new());
        }
    }
}

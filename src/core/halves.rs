//! Characters that a producer cut in two: half of a surrogate pair at the end of one delta, the other half at the start of the next.
//!
//! A Rust text cannot hold half a character, so [`mark`] writes it as three noncharacters of Unicode, which no text is meant to hold, and a
//! [`Joiner`] puts the halves of neighbouring deltas together again. What stays alone becomes U+FFFD, as in a browser.

use serde_json::Value;

use super::chunk::Chunk;

/// The first of the 32 noncharacters of which a mark is made.
const DIGITS: u32 = 0xFDD0;

/// Number of characters of a mark: 15 bits, for a unit's lower 11.
const LENGTH: usize = 3;

/// Each of them takes three bytes in UTF-8.
const MARK_BYTES: usize = LENGTH * 3;

/// The lower bits of a surrogate, of which there are 0x800.
const SURROGATES: u16 = 0xD800;

/// Half a surrogate pair as text: the UTF-16 unit, 0xD800 to 0xDFFF.
pub fn mark(unit: u16) -> String {
    let value = u32::from(unit.wrapping_sub(SURROGATES) & 0x7FF);
    [value >> 10, value >> 5, value]
        .iter()
        .filter_map(|digit| char::from_u32(DIGITS.saturating_add(digit & 0x1F)))
        .collect()
}

/// The unit that a mark at the beginning of the text stands for.
fn unmark(text: &str) -> Option<u16> {
    let mut value = 0_u16;
    let mut chars = text.chars();
    for _ in 0..LENGTH {
        let digit = u32::from(chars.next()?).checked_sub(DIGITS).filter(|digit| *digit < 0x20)?;
        value = value << 5 | u16::try_from(digit).ok()?;
    }
    (value < 0x800).then_some(SURROGATES | value)
}

fn is_first(unit: u16) -> bool {
    (0xD800..0xDC00).contains(&unit)
}

/// The text with the character that two neighbouring marks make, and U+FFFD for each mark that has no neighbour to make one with. `None`
/// when it has no mark.
pub fn settle(text: &str) -> Option<String> {
    let begins_mark = |c: char| (DIGITS..DIGITS.saturating_add(0x20)).contains(&u32::from(c));
    text.find(begins_mark)?;
    let mut settled = String::with_capacity(text.len());
    let mut rest = text;
    let mut found = false;
    while let Some(start) = rest.find(begins_mark) {
        let (before, marked) = rest.split_at(start);
        settled.push_str(before);
        let Some(unit) = unmark(marked) else {
            let (other, after) = marked.split_at_checked(3)?;
            settled.push_str(other);
            rest = after;
            continue;
        };
        found = true;
        let after = marked.get(MARK_BYTES..).unwrap_or_default();
        match unmark(after).filter(|second| is_first(unit) && !is_first(*second)) {
            Some(second) => {
                settled.extend(char::decode_utf16([unit, second]).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)));
                rest = after.get(MARK_BYTES..).unwrap_or_default();
            }
            None => {
                settled.push(char::REPLACEMENT_CHARACTER);
                rest = after;
            }
        }
    }
    settled.push_str(rest);
    found.then_some(settled)
}

/// Adds a delta to a text of which nothing is shown any more: the halves at the seam become their character.
pub fn append(text: &mut String, delta: &str) {
    let seam = text.len().saturating_sub(MARK_BYTES);
    let first = text.get(seam..).and_then(unmark).filter(|unit| is_first(*unit));
    let second = unmark(delta).filter(|unit| !is_first(*unit));
    match first.zip(second).and_then(|(first, second)| char::decode_utf16([first, second]).next()?.ok()) {
        Some(whole) => {
            text.truncate(seam);
            text.push(whole);
            text.push_str(delta.get(MARK_BYTES..).unwrap_or_default());
        }
        None => text.push_str(delta),
    }
}

/// Joins the halves in the deltas of one reply. It does nothing before it is [`Joiner::wake`]d.
#[derive(Clone, Debug, Default)]
pub struct Joiner {
    awake: bool,
    /// First halves that wait for the next delta of their part: the kind of the delta, the part's id, the mark.
    waiting: Vec<(String, String, String)>,
}

impl Joiner {
    /// An event with halves has come.
    pub fn wake(&mut self) {
        self.awake = true;
    }

    /// The chunks with whole characters, in order. A half at the end of a delta is held back until the part's next delta, or its end.
    pub fn join(&mut self, chunks: Vec<Chunk>) -> Vec<Chunk> {
        if !self.awake {
            return chunks;
        }
        let mut joined = Vec::with_capacity(chunks.len());
        for chunk in chunks {
            match delta_keys(chunk.kind()) {
                Some((id, text)) => joined.extend(self.delta(chunk, id, text)),
                None => {
                    self.release(&chunk, &mut joined);
                    joined.push(settled(chunk));
                }
            }
        }
        joined
    }

    fn delta(&mut self, chunk: Chunk, id: &str, key: &str) -> Option<Chunk> {
        let kind = chunk.kind().to_owned();
        let part = chunk.text(id).unwrap_or_default().to_owned();
        let Some(said) = chunk.text(key).map(str::to_owned) else { return Some(chunk) };
        let mut text = match self.waiting.iter().position(|(own, other, _)| *own == kind && *other == part) {
            Some(at) => self.waiting.swap_remove(at).2,
            None => String::new(),
        };
        let begun = !text.is_empty();
        let silent = said.is_empty();
        text.push_str(&said);
        let end = text.len().saturating_sub(MARK_BYTES);
        let is_half = text.get(end..).and_then(unmark).is_some_and(is_first);
        if is_half {
            let half = text.split_off(end);
            self.waiting.push((kind, part, half));
        }
        if text.is_empty() && (begun || !silent) {
            return None;
        }
        Some(chunk.with(key, settle(&text).unwrap_or(text)))
    }

    /// What ends a part, or the step with all its parts, ends the wait for a second half.
    fn release(&mut self, chunk: &Chunk, joined: &mut Vec<Chunk>) {
        let ends = |kind: &str, part: &str| match chunk.kind() {
            "finish-step" | "finish" => true,
            "text-end" => kind == "text-delta" && chunk.text("id") == Some(part),
            "reasoning-end" => kind == "reasoning-delta" && chunk.text("id") == Some(part),
            "tool-input-available" | "tool-input-error" => {
                kind == "tool-input-delta" && chunk.text("toolCallId") == Some(part)
            }
            _ => false,
        };
        let (over, waiting) =
            std::mem::take(&mut self.waiting).into_iter().partition(|(kind, part, _)| ends(kind, part));
        self.waiting = waiting;
        let over: Vec<(String, String, String)> = over;
        for (kind, part, _) in over {
            if let Some((id, text)) = delta_keys(&kind) {
                joined.push(Chunk::new(&kind).with(id, part).with(text, char::REPLACEMENT_CHARACTER.to_string()));
            }
        }
    }
}

/// The keys of a delta's part and of its text.
fn delta_keys(kind: &str) -> Option<(&'static str, &'static str)> {
    match kind {
        "text-delta" | "reasoning-delta" => Some(("id", "delta")),
        "tool-input-delta" => Some(("toolCallId", "inputTextDelta")),
        _ => None,
    }
}

fn settled(chunk: Chunk) -> Chunk {
    let mut values = Value::Object(chunk.into_map());
    settle_all(&mut values);
    Chunk::parse(values).unwrap_or_else(|_| Chunk::new(""))
}

/// The nesting is that of parsed JSON, which the parser has bounded.
fn settle_all(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Some(settled) = settle(text) {
                *text = settled;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(settle_all),
        Value::Object(map) => {
            if map.keys().any(|key| settle(key).is_some()) {
                let entries = std::mem::take(map);
                map.extend(entries.into_iter().map(|(key, value)| (settle(&key).unwrap_or(key), value)));
            }
            map.values_mut().for_each(settle_all);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::lenient_json::parse_keeping_halves;
    use proptest::prelude::*;
    use serde_json::json;

    fn escaped(units: &[u16]) -> String {
        let text: String = units.iter().map(|unit| format!("\\u{unit:04x}")).collect();
        format!("\"{text}\"")
    }

    /// The deltas as a producer writes them, through the parser and a joiner, with the part's end behind them.
    fn said(kind: &str, pieces: &[&[u16]]) -> Vec<Chunk> {
        let (id, key) = delta_keys(kind).unwrap();
        let mut joiner = Joiner::default();
        let mut out = Vec::new();
        for piece in pieces {
            let (text, has_halves) = parse_keeping_halves(&escaped(piece)).unwrap();
            if has_halves {
                joiner.wake();
            }
            let other = Chunk::new("text-delta").with("id", "other").with("delta", "x");
            out.extend(joiner.join(vec![Chunk::new(kind).with(id, "p").with(key, text), other]));
        }
        let end = if kind == "text-delta" {
            "text-end"
        } else if kind == "reasoning-delta" {
            "reasoning-end"
        } else {
            "tool-input-available"
        };
        out.extend(joiner.join(vec![Chunk::new(end).with(id, "p")]));
        out
    }

    fn text_of(chunks: &[Chunk], kind: &str) -> String {
        let (id, key) = delta_keys(kind).unwrap();
        chunks
            .iter()
            .filter(|chunk| chunk.kind() == kind && chunk.text(id) == Some("p"))
            .filter_map(|chunk| chunk.text(key))
            .collect()
    }

    #[test]
    fn a_mark_is_read_back_and_nothing_else_is() {
        for unit in 0xD800..=0xDFFF {
            assert_eq!(unmark(&mark(unit)), Some(unit));
        }
        assert_eq!(unmark("abc"), None);
        assert_eq!(settle("a\u{fdd0}\u{fdd0}"), None);
        assert_eq!(settle("plain"), None);
    }

    #[test]
    fn an_input_is_whole_in_its_chunk_too() {
        let input = json!({"text": format!("{}{}", mark(0xD83D), mark(0xDE00)), mark(0xD83D): [mark(0xDE00)]});
        let mut joiner = Joiner::default();
        joiner.wake();
        let chunks = joiner.join(vec![Chunk::new("tool-input-available").with("toolCallId", "c").with("input", input)]);
        assert_eq!(chunks[0].get("input"), Some(&json!({"text": "😀", "\u{fffd}": ["\u{fffd}"]})));
    }

    #[test]
    fn a_half_waits_for_its_part_alone_and_never_for_ever() {
        let mut joiner = Joiner::default();
        joiner.wake();
        let delta = |id: &str, text: String| Chunk::new("text-delta").with("id", id).with("delta", text);
        assert!(joiner.join(vec![delta("a", mark(0xD83D)), delta("b", mark(0xD83D))]).is_empty());
        let rest = joiner.join(vec![
            delta("a", mark(0xDE00)),
            Chunk::new("text-end").with("id", "a"),
            Chunk::new("finish-step"),
        ]);
        assert_eq!(rest[0].text("delta"), Some("😀"));
        assert_eq!(rest[2], delta("b", "\u{fffd}".into()));
        assert_eq!(rest.len(), 4);
    }

    proptest! {
        /// However a text is cut into UTF-16 pieces, its deltas say what JavaScript would show.
        #[test]
        fn cuts_between_units_change_nothing(
            units in prop::collection::vec(prop_oneof![0xD7FEu16..0xE002, 0u16..0x100], 0..14),
            cuts in prop::collection::vec(0..15usize, 0..6),
            kind in prop::sample::select(vec!["text-delta", "reasoning-delta", "tool-input-delta"]),
        ) {
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| *cut <= units.len()).collect();
            cuts.extend([0, units.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u16]> = cuts.windows(2).map(|pair| &units[pair[0]..pair[1]]).collect();
            prop_assert_eq!(text_of(&said(kind, &pieces), kind), String::from_utf16_lossy(&units));
        }
    }
}

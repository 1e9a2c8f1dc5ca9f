//! How much of what an event says is new.
//!
//! The APIs say their words in pieces. Some servers say the whole so far instead: in each event, in a last event, in a `message` beside or behind the
//! deltas. Which it is cannot be known from one event alone: "ha" behind "ha" may be either. So what might be both is held back until the
//! next event tells, which is only ever the case for the first few characters of an answer.

use crate::core::halves;

/// A delta that begins with all that was said before repeats it if that was so many characters. Below, a model may well say the same twice.
const SURE: usize = 8;

/// The same for an answer that has come in pieces: two pieces at least, and so many characters.
const SURE_AFTER_PIECES: usize = 32;

/// Most deltas that are held back.
const MOST_HELD: usize = 8;

/// The words of one kind in one answer.
#[derive(Clone, Debug, Default)]
pub struct Words {
    /// All that was passed on.
    said: String,
    /// Deltas that may repeat what was said, in order.
    held: Vec<String>,
    form: Form,
    pieces: u32,
    /// Whether no delta has said anything, only whole messages.
    by_messages: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Form {
    #[default]
    Unknown,
    Pieces,
    Sums,
}

impl Words {
    /// What is new in a delta. `is_last`: its event names the finish reason.
    pub fn delta(&mut self, delta: &str, is_last: bool) -> String {
        if delta.is_empty() {
            return String::new();
        }
        self.by_messages = false;
        self.pieces = self.pieces.saturating_add(1);
        if self.pieces == 1 && self.said.is_empty() {
            return self.pass(delta);
        }
        match self.form {
            Form::Unknown => self.undecided(delta, is_last),
            Form::Pieces => {
                let is_long = || self.said.chars().take(SURE_AFTER_PIECES).count() >= SURE_AFTER_PIECES;
                let repeats = |_: &&str| self.pieces > 2 && !self.said.is_empty() && (is_last || is_long());
                match delta.strip_prefix(self.said.as_str()).filter(repeats) {
                    Some(fresh) => self.pass(fresh),
                    None => self.pass(delta),
                }
            }
            Form::Sums => match delta.strip_prefix(self.said.as_str()) {
                Some(fresh) => self.pass(fresh),
                None if self.said.starts_with(delta) => String::new(),
                None => {
                    self.form = Form::Pieces;
                    self.pass(delta)
                }
            },
        }
    }

    /// What is new in a message, which is a whole by its nature. `is_alone`: its event has no delta.
    pub fn message(&mut self, whole: &str, is_alone: bool) -> String {
        if whole.is_empty() {
            return String::new();
        }
        if self.said.is_empty() {
            self.by_messages = true;
            return self.pass(whole);
        }
        let is_sum = self.held.last().is_some_and(|last| whole.starts_with(last.as_str()))
            && !whole.starts_with(&[self.said.as_str(), &self.held.concat()].concat());
        let mut fresh = if is_sum { String::new() } else { self.rest() };
        self.held.clear();
        match whole.strip_prefix(self.said.as_str()) {
            Some(new) => fresh.push_str(&self.pass(new)),
            // Pieces in messages, from a server that has no deltas.
            None if self.by_messages && is_alone && !self.said.starts_with(whole) => fresh.push_str(&self.pass(whole)),
            None => {}
        }
        fresh
    }

    /// Something else is said now, or nothing more: what was held back was pieces.
    pub fn rest(&mut self) -> String {
        if self.held.is_empty() {
            return String::new();
        }
        self.form = Form::Pieces;
        let held = std::mem::take(&mut self.held).concat();
        self.pass(&held)
    }

    /// The first deltas: each may begin with the one before because it is the sum of all.
    fn undecided(&mut self, delta: &str, is_last: bool) -> String {
        let before = self.held.last().unwrap_or(&self.said);
        let Some(more) = delta.strip_prefix(before.as_str()) else {
            let mut fresh = self.rest();
            self.form = Form::Pieces;
            fresh.push_str(&self.pass(delta));
            return fresh;
        };
        // The same once more says nothing new if it is a sum, so it proves nothing before the end.
        if before.chars().count() >= SURE && (is_last || !more.is_empty()) {
            self.held.clear();
            self.form = Form::Sums;
            let fresh = delta.strip_prefix(self.said.as_str()).unwrap_or_default().to_owned();
            return self.pass(&fresh);
        }
        self.held.push(delta.to_owned());
        if self.held.len() >= MOST_HELD { self.rest() } else { String::new() }
    }

    fn pass(&mut self, fresh: &str) -> String {
        halves::append(&mut self.said, fresh);
        fresh.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn said(deltas: &[&str]) -> String {
        let mut words = Words::default();
        let count = deltas.len();
        let mut text: String =
            deltas.iter().enumerate().map(|(at, delta)| words.delta(delta, at + 1 == count)).collect();
        text.push_str(&words.rest());
        text
    }

    #[test]
    fn sums_count_once() {
        for (deltas, expected) in [
            // Each event says the whole so far.
            (vec!["Hello ", "Hello wor", "Hello world", "Hello world"], "Hello world"),
            (vec!["H", "He", "Hel", "Hello, you", "Hello, you there", "Hello, you there."], "Hello, you there."),
            // The last event says it once more.
            (vec!["Hello ", "world", "Hello world"], "Hello world"),
            (vec!["Hello world", "Hello world"], "Hello world"),
            (vec!["Hello ", "world", "Hello world!"], "Hello world!"),
            // So does one in the middle.
            (
                vec!["The first sentence of it ", "is not short.", "The first sentence of it is not short.", " But"],
                "The first sentence of it is not short. But",
            ),
        ] {
            assert_eq!(said(&deltas), expected, "{deltas:?}");
        }
    }

    #[test]
    fn pieces_that_repeat_each_other_are_pieces() {
        for deltas in [
            vec!["ha", "ha", "ha", "!"],
            vec!["1", "10", " apples"],
            vec!["\n", "\n\n", "Hello"],
            vec!["#", "## Title", "\n"],
            vec!["A rose is a rose. ", "A rose is a rose. ", "So it is."],
            vec!["-", "--", "---", "----", "-----"],
            vec!["ha"; 30],
        ] {
            assert_eq!(said(&deltas), deltas.concat(), "{deltas:?}");
        }
    }

    #[test]
    fn a_message_is_the_whole_and_only_adds() {
        let mut words = Words::default();
        assert_eq!([words.delta("Hello ", false), words.delta("world", false)].concat(), "Hello world");
        assert_eq!(words.message("Hello world", true), "");
        assert_eq!(words.message("Hello world!", true), "!");
        assert_eq!(words.message("Hello", true), "");
        assert_eq!(words.message("Something else", true), "");
        let mut held = Words::default();
        assert_eq!([held.delta("ha", false), held.delta("ha", false)].concat(), "ha");
        assert_eq!(held.message("haha!", true), "ha!");
        let mut summed = Words::default();
        assert_eq!([summed.delta("ha", false), summed.delta("hat", false)].concat(), "ha");
        assert_eq!(summed.message("hats", true), "ts");
        let mut pieces = Words::default();
        assert_eq!([pieces.message("Hel", true), pieces.message("lo", true)].concat(), "Hello");
    }

    proptest! {
        /// Whatever is said in tokens is said whole, but for a last one that says all once more.
        #[test]
        fn tokens_are_said_whole(tokens in prop::collection::vec("[a-c \n]{1,7}", 1..30)) {
            let (last, before) = tokens.split_last().unwrap();
            prop_assume!(before.len() < 2 || !last.starts_with(&before.concat()));
            let deltas: Vec<&str> = tokens.iter().map(String::as_str).collect();
            prop_assert_eq!(said(&deltas), deltas.concat());
        }

        /// Whatever is said in sums is said once.
        #[test]
        fn sums_are_said_once(tokens in prop::collection::vec("[a-zß🐙 ]{1,7}", 3..30)) {
            let sums: Vec<String> = (1..=tokens.len()).map(|count| tokens[..count].concat()).collect();
            prop_assume!(sums[sums.len() - 2].chars().count() >= SURE);
            let deltas: Vec<&str> = sums.iter().map(String::as_str).collect();
            prop_assert_eq!(said(&deltas), tokens.concat());
        }

        /// So is the whole at the end of pieces.
        #[test]
        fn a_whole_at_the_end_says_nothing_new(tokens in prop::collection::vec("[a-z ]{3,7}", 3..30), by_message in any::<bool>()) {
            let mut words = Words::default();
            let mut text: String = tokens.iter().map(|token| words.delta(token, false)).collect();
            let whole = tokens.concat();
            text += &if by_message { words.message(&whole, true) } else { words.delta(&whole, true) };
            text += &words.rest();
            prop_assert_eq!(text, whole);
        }
    }
}

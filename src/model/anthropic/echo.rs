//! Words that are said twice: at once where a content block begins, and again in its deltas. Some gateways do that.

/// What was said at once, and how much of it the deltas have said again.
#[derive(Clone, Debug)]
pub struct Echo {
    said: String,
    heard: usize,
}

impl Echo {
    /// This was said at once. `None` when that is nothing.
    pub fn of(said: &str) -> Option<Self> {
        (!said.is_empty()).then(|| Self { said: said.to_owned(), heard: 0 })
    }

    /// What is new in the next delta. While the deltas repeat what was said, that is nothing; once they differ from it, all that they have
    /// said is new, because they then go on behind it.
    pub fn new_in(slot: &mut Option<Self>, delta: &str) -> String {
        let Some(echo) = slot else { return delta.to_owned() };
        let rest = echo.said.get(echo.heard..).unwrap_or_default();
        if rest.len() > delta.len() && rest.starts_with(delta) {
            echo.heard = echo.heard.saturating_add(delta.len());
            return String::new();
        }
        let new = match delta.strip_prefix(rest) {
            Some(new) => new.to_owned(),
            None => format!("{}{delta}", echo.said.get(..echo.heard).unwrap_or_default()),
        };
        *slot = None;
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn heard(said: &str, deltas: &[&str]) -> String {
        let mut echo = Echo::of(said);
        deltas.iter().fold(said.to_owned(), |text, delta| text + &Echo::new_in(&mut echo, delta))
    }

    #[test]
    fn only_what_is_new_counts() {
        for (said, deltas, expected) in [
            ("", &["a", "a"][..], "aa"),
            ("Hello world", &["Hello ", "world"], "Hello world"),
            ("Hello world", &["Hello ", "world!", " Yes"], "Hello world! Yes"),
            ("Hello", &[" world"], "Hello world"),
            ("Hello", &["He", " is here"], "HelloHe is here"),
            ("Hello", &["", "Hello", "Hello"], "HelloHello"),
        ] {
            assert_eq!(heard(said, deltas), expected, "{said:?} {deltas:?}");
        }
    }

    proptest! {
        #[test]
        fn a_text_said_twice_is_heard_once(said in "[ab ]{0,12}", more in "[ab ]{0,6}", cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6)) {
            let text = format!("{said}{more}");
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let deltas: Vec<&str> = cuts.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect();
            prop_assert_eq!(heard(&said, &deltas), text);
        }
    }
}

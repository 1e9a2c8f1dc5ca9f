//! Whose list of messages says which ones stay.

/// Who knows which messages of a conversation stay (`history` of an agent, `X-Rejoin-History` of a request).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Truth {
    /// The stored conversation; what a client holds before its last message is not used.
    #[default]
    Server,
    /// The list that the client sends: a stored message behind the last one that it holds goes.
    Client,
}

impl Truth {
    /// The words of a setting or a header.
    pub const WORDS: &str = "client or server";

    /// Reads a word; `None` when it is not one of [`Truth::WORDS`].
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "server" => Some(Self::Server),
            "client" => Some(Self::Client),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_words_and_no_other() {
        assert_eq!(Truth::parse("client"), Some(Truth::Client));
        assert_eq!(Truth::parse("server"), Some(Truth::Server));
        for other in ["", "Client", "both", " client"] {
            assert_eq!(Truth::parse(other), None, "{other}");
        }
    }
}

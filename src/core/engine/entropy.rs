//! Randomness that an engine is given, so that a simulation can choose it.

/// A source of random words.
pub trait Entropy {
    /// 64 random bits.
    fn word(&mut self) -> u64;

    /// Random text of 16 hexadecimal digits per word.
    fn text(&mut self, words: usize) -> String {
        (0..words).map(|_| format!("{:016x}", self.word())).collect()
    }
}

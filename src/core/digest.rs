//! Digests: names that log lines may carry in place of what users call their conversations.

use sha2::{Digest, Sha256};

/// SHA-256 in hexadecimal digits.
pub fn full(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The first 16 digits of [`full`].
pub fn short(text: &str) -> String {
    full(text).chars().take(16).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_sha_256() {
        assert_eq!(full("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(short("abc"), "ba7816bf8f01cfea");
    }
}

//! The toy's two languages: frames of text lines, and binary frames.

use super::rows::Row;

/// How a response speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Frames {
    /// `<seq> <d or e> <hexadecimal digits>` and a line feed.
    Text,
    /// 8 bytes of sequence, one of kind, 4 of length, and the text.
    Binary,
}

/// One entry as a client reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its place.
    pub seq: u64,
    /// Whether it is the last one.
    pub is_end: bool,
    /// What it says.
    pub text: Vec<u8>,
}

const HEAD: usize = 13;

impl Frames {
    /// The bytes of these rows.
    pub fn write(self, rows: &[Row]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for row in rows {
            match self {
                Self::Text => {
                    let hex: String = row.text.iter().map(|byte| format!("{byte:02x}")).collect();
                    let kind = if row.is_end { 'e' } else { 'd' };
                    bytes.extend_from_slice(format!("{} {kind} {hex}\n", row.seq).as_bytes());
                }
                Self::Binary => {
                    bytes.extend_from_slice(&row.seq.to_be_bytes());
                    bytes.push(u8::from(row.is_end));
                    bytes.extend_from_slice(&(row.text.len() as u32).to_be_bytes());
                    bytes.extend_from_slice(&row.text);
                }
            }
        }
        bytes
    }

    /// Takes the first whole frame off these bytes; `None` while it is not whole.
    pub fn read(self, bytes: &mut Vec<u8>) -> Option<Seen> {
        match self {
            Self::Text => {
                let end = bytes.iter().position(|byte| *byte == b'\n')?;
                let line: Vec<u8> = bytes.drain(..=end).collect();
                let mut words = std::str::from_utf8(&line[..end]).unwrap().split(' ');
                let seq = words.next().unwrap().parse().unwrap();
                let is_end = words.next() == Some("e");
                let hex = words.next().unwrap().as_bytes();
                let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
                Some(Seen { seq, is_end, text: hex.chunks(2).map(byte).collect() })
            }
            Self::Binary => {
                let length = u32::from_be_bytes(bytes.get(9..HEAD)?.try_into().unwrap()) as usize;
                if bytes.len() < HEAD + length {
                    return None;
                }
                let frame: Vec<u8> = bytes.drain(..HEAD + length).collect();
                let seq = u64::from_be_bytes(frame[..8].try_into().unwrap());
                Some(Seen { seq, is_end: frame[8] == 1, text: frame[HEAD..].to_vec() })
            }
        }
    }
}

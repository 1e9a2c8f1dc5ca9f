//! Where frames go in storage: a flush appends to the open block until that has 16 KiB, then opens the next (DESIGN.md section 5).

use super::ids::{AttemptId, RunId, Sequence};
use super::storage::keys::{COLUMN_LIMIT, key_of};
use super::storage::{BlockRow, Write};

/// A block takes no more appends from this size on, in bytes.
pub const OPEN_LIMIT: usize = 16 * 1024;

/// The block that the next flush may extend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenBlock {
    /// Key of its only row.
    pub key: u64,
    /// Its last chunk.
    pub last: Sequence,
    /// The run that wrote it.
    pub run: RunId,
    /// The attempt that wrote it.
    pub attempt: Option<AttemptId>,
    /// Its size in bytes.
    pub len: usize,
}

/// A finished frame, ready to be stored.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Its place in the log.
    pub sequence: Sequence,
    /// The attempt that wrote it.
    pub attempt: Option<AttemptId>,
    /// The finished frame.
    pub bytes: Vec<u8>,
}

/// Lays the frames of one flush into rows: as few as possible, none over [`COLUMN_LIMIT`], none that mixes attempts.
/// Returns the writes and the block that is open afterwards.
pub fn lay(open: Option<OpenBlock>, run: &RunId, frames: Vec<Frame>) -> (Vec<Write>, Option<OpenBlock>) {
    let mut writes = Vec::new();
    let mut open = open;
    let mut frames = frames.into_iter().peekable();
    while let Some(first) = frames.next() {
        let mut bytes = first.bytes;
        let mut last = first.sequence;
        if bytes.len() > COLUMN_LIMIT {
            writes.extend(split(first.sequence, run, first.attempt, bytes));
            open = None;
            continue;
        }
        let extends = open.take().filter(|block| {
            block.run == *run
                && block.attempt == first.attempt
                && block.len < OPEN_LIMIT
                && block.len.saturating_add(bytes.len()) <= COLUMN_LIMIT
        });
        let room = COLUMN_LIMIT.saturating_sub(extends.as_ref().map_or(0, |block| block.len));
        while let Some(next) =
            frames.next_if(|f| f.attempt == first.attempt && bytes.len().saturating_add(f.bytes.len()) <= room)
        {
            bytes.extend_from_slice(&next.bytes);
            last = next.sequence;
        }
        let len = bytes.len();
        open = Some(match extends {
            Some(block) => {
                writes.push(Write::ExtendBlock { key: block.key, last, bytes });
                OpenBlock { last, len: block.len.saturating_add(len), ..block }
            }
            None => {
                let key = key_of(first.sequence, 0);
                let attempt = first.attempt;
                writes.push(Write::OpenBlock(BlockRow {
                    key,
                    last,
                    run: run.clone(),
                    attempt: attempt.clone(),
                    bytes,
                }));
                OpenBlock { key, last, run: run.clone(), attempt, len }
            }
        });
    }
    (writes, open)
}

fn split(sequence: Sequence, run: &RunId, attempt: Option<AttemptId>, bytes: Vec<u8>) -> Vec<Write> {
    (0_u64..)
        .zip(bytes.chunks(COLUMN_LIMIT))
        .map(|(part, bytes)| {
            Write::OpenBlock(BlockRow {
                key: key_of(sequence, part),
                last: sequence,
                run: run.clone(),
                attempt: attempt.clone(),
                bytes: bytes.to_vec(),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(sequence: u64, attempt: u8, len: usize) -> Frame {
        Frame {
            sequence: Sequence::new(sequence).unwrap(),
            attempt: (attempt > 0).then(|| AttemptId::new(attempt.to_string())),
            bytes: vec![b'a' + (sequence % 26) as u8; len],
        }
    }

    #[test]
    fn one_row_per_flush_until_the_block_is_full() {
        let run = RunId::new("r");
        let (writes, open) = lay(None, &run, vec![frame(1, 1, 100), frame(2, 1, OPEN_LIMIT)]);
        assert!(matches!(&writes[..], [Write::OpenBlock(row)] if row.key == 1024 && row.last.get() == 2));
        let (writes, open) = lay(open, &run, vec![frame(3, 1, 10)]);
        assert!(matches!(&writes[..], [Write::OpenBlock(row)] if row.key == 3 * 1024));
        let (writes, _) = lay(open, &run, vec![frame(4, 1, 10), frame(5, 1, 10)]);
        assert!(matches!(&writes[..], [Write::ExtendBlock { key: 3072, last, .. }] if last.get() == 5));
    }

    #[test]
    fn a_large_chunk_is_split_into_parts_of_its_own() {
        let (writes, open) = lay(None, &RunId::new("r"), vec![frame(1, 1, 2 * COLUMN_LIMIT + 1), frame(2, 1, 5)]);
        let keys: Vec<_> = writes.iter().map(|w| if let Write::OpenBlock(row) = w { row.key } else { 0 }).collect();
        assert_eq!(keys, [1024, 1025, 1026, 2048]);
        assert_eq!(open.unwrap().key, 2048);
    }

    proptest! {
        // The largest rows make a case slow in an unoptimised build.
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn no_row_is_too_large_or_mixes_attempts(flushes in prop::collection::vec(
            prop::collection::vec((0_u8..3, prop_oneof![1_usize..300, 10_000_usize..20_000, Just(COLUMN_LIMIT), Just(COLUMN_LIMIT + 7)]), 1..5), 1..6)) {
            let run = RunId::new("r");
            let (mut open, mut next) = (None, 1);
            let mut rows: std::collections::BTreeMap<u64, BlockRow> = Default::default();
            let mut sent: Vec<u8> = Vec::new();
            for flush in flushes {
                let frames: Vec<_> = flush.into_iter().map(|(attempt, len)| { next += 1; frame(next - 1, attempt, len) }).collect();
                frames.iter().for_each(|f| sent.extend_from_slice(&f.bytes));
                let (writes, after) = lay(open, &run, frames);
                for write in writes {
                    match write {
                        Write::OpenBlock(row) => prop_assert!(rows.insert(row.key, row).is_none()),
                        Write::ExtendBlock { key, last, bytes } => {
                            let row = rows.get_mut(&key).unwrap();
                            prop_assert!(row.bytes.len() < OPEN_LIMIT);
                            row.bytes.extend(bytes);
                            row.last = last;
                        }
                        other => prop_assert!(false, "{other:?}"),
                    }
                }
                if let Some(block) = &after {
                    prop_assert_eq!(rows[&block.key].bytes.len(), block.len);
                    prop_assert_eq!(&rows[&block.key].attempt, &block.attempt);
                }
                open = after;
            }
            prop_assert!(rows.values().all(|row| row.bytes.len() <= COLUMN_LIMIT));
            prop_assert!(rows.into_values().map(|row| row.bytes).collect::<Vec<_>>().concat() == sent);
        }
    }
}

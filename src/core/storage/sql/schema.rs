//! The tables of a session (DESIGN.md section 5).

/// The calls in stored messages, for sessions that have no table of calls. A message over the limit of a column is not looked into: its
/// parts put together may be more than the engine takes.
macro_rules! calls_in_messages {
    ($head:literal) => {
        concat!(
            $head,
            "SELECT json_extract(part.value, '$.toolCallId'), NULL, coalesce((SELECT turn FROM run WHERE run.id = message.run), 0) \
             FROM message, json_each(CASE WHEN json_valid(message.json) THEN message.json ELSE '{}' END, '$.parts') AS part \
             WHERE message.key % 1024 = 0 AND CASE WHEN part.type = 'object' \
             THEN json_type(part.value, '$.toolCallId') = 'text' AND length(json_extract(part.value, '$.toolCallId')) <= 256 \
             ELSE 0 END AND message.role = 'assistant' ORDER BY message.key, part.key"
        )
    };
}

/// The first version with the table `call`.
pub(super) const CALLS_SINCE: usize = 4;

/// The first version with the table `queued`.
pub(super) const QUEUE_SINCE: usize = 7;

/// As [`super::SqlStorage::calls`] reads them.
pub(super) const CALLS_IN_MESSAGES: &str = calls_in_messages!("");

/// Numbered migrations: the first accepted write runs those that a session lacks.
pub(super) const MIGRATIONS: [&[&str]; 7] = [
    &[
        "CREATE TABLE session (one INTEGER PRIMARY KEY CHECK (one = 1), version INTEGER NOT NULL, owner TEXT, salt TEXT NOT NULL, \
     created INTEGER NOT NULL, floor INTEGER NOT NULL, run TEXT, status TEXT NOT NULL) STRICT",
        "CREATE TABLE run (turn INTEGER PRIMARY KEY, id TEXT NOT NULL, status TEXT NOT NULL, entry TEXT NOT NULL, request_key TEXT, \
     input_hash TEXT, start INTEGER NOT NULL, end_ INTEGER, message_index INTEGER NOT NULL, message_id TEXT NOT NULL, \
     lease_until INTEGER NOT NULL, epoch INTEGER NOT NULL, attempts INTEGER NOT NULL, vocabulary TEXT NOT NULL, agent TEXT NOT NULL, \
     started INTEGER NOT NULL, ended INTEGER, error TEXT, retry_after_ms INTEGER) STRICT",
        "CREATE TABLE chunk_block (key INTEGER PRIMARY KEY, last INTEGER NOT NULL, run TEXT NOT NULL, attempt TEXT, bytes BLOB NOT NULL) STRICT",
        "CREATE TABLE message (key INTEGER PRIMARY KEY, id TEXT NOT NULL, role TEXT NOT NULL, run TEXT, json TEXT NOT NULL) STRICT",
        "CREATE TABLE checkpoint (key INTEGER PRIMARY KEY, id TEXT NOT NULL, kind TEXT NOT NULL, message_count INTEGER NOT NULL, \
     sequence INTEGER NOT NULL, step_count INTEGER NOT NULL, run TEXT NOT NULL, state TEXT) STRICT",
    ],
    &["ALTER TABLE run ADD COLUMN push TEXT"],
    &["ALTER TABLE run ADD COLUMN error_text TEXT"],
    &[
        "CREATE TABLE call (key INTEGER PRIMARY KEY, id TEXT NOT NULL, own TEXT, turn INTEGER NOT NULL) STRICT",
        calls_in_messages!("INSERT INTO call (id, own, turn) "),
    ],
    &["CREATE TABLE held_answer (key INTEGER PRIMARY KEY, json TEXT NOT NULL) STRICT"],
    &[
        "ALTER TABLE run ADD COLUMN deaths INTEGER",
        "ALTER TABLE run ADD COLUMN again_at INTEGER",
        "ALTER TABLE run ADD COLUMN unfollowed INTEGER",
    ],
    &[
        "CREATE TABLE queued (key INTEGER PRIMARY KEY, message TEXT NOT NULL, run TEXT NOT NULL, agent TEXT NOT NULL, request_key TEXT, \
     input_hash TEXT NOT NULL, origin TEXT, queued INTEGER NOT NULL, json TEXT NOT NULL) STRICT",
    ],
];

/// The version that brought the table of held answers.
pub(super) const HOLDS_ANSWERS: usize = 5;

/// Each table: the version that brought it, and the statements that count and remove it.
pub(super) const TABLES: [(&str, usize, &str, &str); 8] = [
    ("session", 1, "SELECT count(*) FROM session", "DROP TABLE session"),
    ("run", 1, "SELECT count(*) FROM run", "DROP TABLE run"),
    ("chunk_block", 1, "SELECT count(*) FROM chunk_block", "DROP TABLE chunk_block"),
    ("message", 1, "SELECT count(*) FROM message", "DROP TABLE message"),
    ("checkpoint", 1, "SELECT count(*) FROM checkpoint", "DROP TABLE checkpoint"),
    ("call", CALLS_SINCE, "SELECT count(*) FROM call", "DROP TABLE call"),
    ("held_answer", HOLDS_ANSWERS, "SELECT count(*) FROM held_answer", "DROP TABLE held_answer"),
    ("queued", QUEUE_SINCE, "SELECT count(*) FROM queued", "DROP TABLE queued"),
];

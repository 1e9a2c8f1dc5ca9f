//! The tables of a session (DESIGN.md section 5).

/// Numbered migrations: the first accepted write runs those that a session lacks.
pub(super) const MIGRATIONS: [&[&str]; 3] = [
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
];

/// Each table with the statements that count and remove it.
pub(super) const TABLES: [(&str, &str, &str); 5] = [
    ("session", "SELECT count(*) FROM session", "DROP TABLE session"),
    ("run", "SELECT count(*) FROM run", "DROP TABLE run"),
    ("chunk_block", "SELECT count(*) FROM chunk_block", "DROP TABLE chunk_block"),
    ("message", "SELECT count(*) FROM message", "DROP TABLE message"),
    ("checkpoint", "SELECT count(*) FROM checkpoint", "DROP TABLE checkpoint"),
];

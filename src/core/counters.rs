//! What one object has done since it was loaded, for `/info`.

use serde::Serialize;

use super::reader::Eviction;

/// Open responses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Gauge {
    /// Open now.
    pub now: u64,
    /// Open at most at the same time.
    pub most: u64,
}

impl Gauge {
    /// So many are open.
    pub fn set(&mut self, now: usize) {
        self.now = u64::try_from(now).unwrap_or(u64::MAX);
        self.most = self.most.max(self.now);
    }
}

/// Responses that the service ended on purpose, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Evicted {
    slow_consumer: u64,
    stale: u64,
    connection_cap: u64,
    server_error: u64,
}

impl Evicted {
    /// One more.
    pub fn add(&mut self, reason: Eviction) {
        let count = match reason {
            Eviction::SlowConsumer => &mut self.slow_consumer,
            Eviction::Stale => &mut self.stale,
            Eviction::ConnectionCap => &mut self.connection_cap,
            Eviction::ServerError => &mut self.server_error,
        };
        add(count, 1);
    }
}

/// The counters of one object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Counters {
    /// Open responses.
    pub readers: Gauge,
    /// Responses opened.
    pub opened: u64,
    /// Of these, the ones that came with a cursor.
    pub resumed: u64,
    /// Responses ended on purpose.
    pub evicted: Evicted,
    /// Readers told that their cursor lies below the floor.
    pub truncated: u64,
    /// Chunks handed to responses.
    pub chunks_sent: u64,
    /// Bytes handed to responses, heartbeats and terminals left out.
    pub bytes_sent: u64,
    /// Transactions that stored something.
    pub flushes: u64,
    /// Rows written, as the storage counts and bills them.
    pub rows_written: u64,
    /// Chunks stored.
    pub appended: u64,
    /// Runs settled because their producer was gone.
    pub reaped: u64,
}

/// Adds to a counter, which never overflows.
pub fn add(count: &mut u64, more: u64) {
    *count = count.saturating_add(more);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_are_pinned() {
        let mut counters = Counters::default();
        counters.readers.set(3);
        counters.readers.set(1);
        Eviction::ALL.into_iter().for_each(|reason| counters.evicted.add(reason));
        add(&mut counters.chunks_sent, 5);
        assert_eq!(
            serde_json::to_value(counters).unwrap(),
            json!({
                "readers": {"now": 1, "most": 3}, "opened": 0, "resumed": 0,
                "evicted": {"slow_consumer": 1, "stale": 1, "connection_cap": 1, "server_error": 1},
                "truncated": 0, "chunksSent": 5, "bytesSent": 0, "flushes": 0, "rowsWritten": 0, "appended": 0, "reaped": 0,
            })
        );
    }
}

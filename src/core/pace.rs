//! How well a response keeps up, and when the service ends it on purpose (`spec/helix.md` 4.5).
//!
//! A reader is a cursor, so a slow one costs no memory; what it costs is its place. Only a wire reader that had caught up is held to the
//! log's pace: one that reads history, and one of a dialect whose clients cannot be told, may take its time.

use super::config::Settings;
use super::reader::Eviction;
use super::time::{Millis, UnixMillis};
use super::view::View;

/// How much patience there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Bytes that a live wire reader may fall behind.
    pub lag_bytes: u64,
    /// How long a reader may take nothing while there is something to take.
    pub stale: Millis,
    /// How long a response may live.
    pub max_age: Millis,
}

impl Patience {
    /// The deployment's.
    pub fn of(settings: &Settings) -> Self {
        Self { lag_bytes: settings.reader_lag_bytes, stale: settings.reader_stale, max_age: settings.reader_max_age }
    }

    /// The shortest time in which a verdict can fall due that is not due yet.
    pub fn shortest(&self) -> Millis {
        self.stale.min(self.max_age)
    }
}

/// One response's pace.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    opened: UnixMillis,
    /// Where it stands, counted in the log's durable bytes; of use once it has caught up.
    position: u64,
    /// Since when there is something that it does not take.
    waiting: Option<UnixMillis>,
}

impl Pace {
    /// A response that opens now: its history ends at the durable head.
    pub fn new(now: UnixMillis, view: &View) -> Self {
        Self { opened: now, position: view.durable_bytes(), waiting: None }
    }

    /// When the response was opened.
    pub fn opened(&self) -> UnixMillis {
        self.opened
    }

    /// The response took so many bytes of the log; `live` once history is behind it.
    pub fn took(&mut self, bytes: usize, live: bool) {
        self.waiting = None;
        if live {
            self.position = self.position.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
        }
    }

    /// There is something to take, and the response has no room.
    pub fn waits(&mut self, now: UnixMillis) {
        self.waiting.get_or_insert(now);
    }

    /// Bytes that a live reader is behind the durable head. A log that was read again from its rows counts from zero, so that until it
    /// has grown as far again only staleness and age end a slow reader.
    pub fn lag(&self, view: &View) -> u64 {
        view.durable_bytes().saturating_sub(self.position)
    }

    /// Whether the response must end. `held_to_log`: it speaks the wire and has caught up.
    pub fn verdict(&self, now: UnixMillis, view: &View, held_to_log: bool, patience: &Patience) -> Option<Eviction> {
        let late = self.waiting.is_some() && held_to_log && self.lag(view) > patience.lag_bytes;
        let stale = self.waiting.is_some_and(|since| now.since(since) >= patience.stale);
        let old = now.since(self.opened) >= patience.max_age;
        match (late, stale || old) {
            (true, _) => Some(Eviction::SlowConsumer),
            (false, true) => Some(Eviction::Stale),
            (false, false) => None,
        }
    }

    /// When time alone will change the verdict.
    pub fn deadline(&self, patience: &Patience) -> UnixMillis {
        let old = self.opened.after(patience.max_age);
        self.waiting.map_or(old, |since| old.min(since.after(patience.stale)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::ids::{Cursor, MessageId, RunId};
    use crate::core::run::StreamStatus;
    use crate::core::run::{EntryKind, RunStatus};
    use crate::core::view::RunView;

    const PATIENCE: Patience = Patience { lag_bytes: 100, stale: Millis::new(50), max_age: Millis::new(1_000) };

    fn view(bytes: u64) -> View {
        let run = RunView {
            id: RunId::new("r"),
            status: RunStatus::Running,
            entry: EntryKind::Send,
            message_id: MessageId::new("m"),
            message_index: 1,
            vocabulary: crate::core::run::Vocabulary::Ui,
            start: Cursor::START,
            end: None,
            fault: None,
            last: None,
            paused: false,
        };
        let mut view = View::default();
        view.advance(Cursor::START, bytes, StreamStatus::Active, [run]);
        view
    }

    fn at(ms: u64) -> UnixMillis {
        UnixMillis::new(ms)
    }

    #[test]
    fn only_a_live_wire_reader_is_held_to_the_logs_pace() {
        let mut pace = Pace::new(at(0), &view(1_000));
        pace.waits(at(1));
        for (bytes, held, verdict) in
            [(1_100, true, None), (1_101, true, Some(Eviction::SlowConsumer)), (9_999, false, None)]
        {
            assert_eq!(pace.verdict(at(2), &view(bytes), held, &PATIENCE), verdict, "{bytes} {held}");
        }
        pace.took(60, true);
        assert_eq!(pace.verdict(at(2), &view(1_170), true, &PATIENCE), None, "it takes: it is only behind");
        pace.waits(at(3));
        assert_eq!((pace.lag(&view(1_160)), pace.verdict(at(3), &view(1_160), true, &PATIENCE)), (100, None));
        assert_eq!(pace.verdict(at(3), &view(1_161), true, &PATIENCE), Some(Eviction::SlowConsumer));
        assert_eq!(pace.lag(&view(7)), 0, "the log was read again");
    }

    #[test]
    fn history_does_not_count() {
        let mut pace = Pace::new(at(0), &view(1_000));
        pace.took(1_000, false);
        assert_eq!(pace.lag(&view(1_000)), 0);
    }

    #[test]
    fn a_reader_that_takes_nothing_is_stale_and_one_that_takes_is_not() {
        let mut pace = Pace::new(at(0), &view(0));
        assert_eq!((pace.verdict(at(999), &view(0), true, &PATIENCE), pace.deadline(&PATIENCE)), (None, at(1_000)));
        pace.waits(at(10));
        pace.waits(at(40));
        assert_eq!(pace.deadline(&PATIENCE), at(60));
        assert_eq!(pace.verdict(at(59), &view(0), false, &PATIENCE), None);
        assert_eq!(pace.verdict(at(60), &view(0), false, &PATIENCE), Some(Eviction::Stale));
        pace.took(1, true);
        assert_eq!(pace.verdict(at(60), &view(0), false, &PATIENCE), None);
    }

    #[test]
    fn every_response_has_its_day() {
        let pace = Pace::new(at(5), &view(0));
        assert_eq!(pace.verdict(at(1_004), &view(0), false, &PATIENCE), None);
        assert_eq!(pace.verdict(at(1_005), &view(0), false, &PATIENCE), Some(Eviction::Stale));
    }
}

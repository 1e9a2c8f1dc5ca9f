//! What holds after every step, compared with the model and with the session that the rows would give.

use super::model::{Facts, Run};
use super::world::{POLICY, World, checkpoint_id, fence_of, place};
use crate::core::caller::Caller;
use crate::core::command::Due;
use crate::core::frame;
use crate::core::ids::{Cursor, RequestKey};
use crate::core::log::Ticket;
use crate::core::run::RunStatus;
use crate::core::run::StreamStatus;
use crate::core::session::Session;
use crate::core::snapshot::{self, Reconnect};
use crate::core::storage::{CheckpointKind, RunRow, Storage};
use crate::core::view::RunView;

/// The status table of `spec/helix.md` 6.2.
fn status(run: &Run, stream: StreamStatus) -> &'static str {
    let suspended = run.status.is_suspended();
    if run.status.is_live() {
        return if suspended || stream == StreamStatus::Paused { "paused" } else { "active" };
    }
    if run.status == RunStatus::Failed || stream == StreamStatus::Failed { "failed" } else { "ended" }
}

impl World {
    pub fn check(&self) {
        let facts = self.model.latest();
        assert!(place(self.session.view().durable()) <= self.model.durable().chunks.len(), "past what was synced");
        assert_eq!(place(self.session.log().head()), facts.chunks.len());
        let due = match self.holder() {
            Some(fence) if self.orphaned => Some(Due::Orphaned(fence)),
            Some(fence) if self.now >= self.lease_until => Some(Due::Lapsed(fence)),
            _ => None,
        };
        assert_eq!(self.session.due(self.now), due);
        self.check_runs(facts);
        self.check_points(facts);
        self.check_conversation(facts);
        self.check_reload(facts);
        self.check_reconnects(facts);
        self.check_producers_outside(facts);
        self.check_queue();
        self.check_what_is_shown();
        self.check_what_is_kept(facts);
    }

    fn check_runs(&self, facts: &Facts) {
        let rows = self.storage.runs();
        assert_eq!(rows.len(), facts.runs.len());
        for (at, (row, run)) in rows.iter().zip(&facts.runs).enumerate() {
            assert_eq!((row.turn as usize, row.fence(), row.entry), (at + 1, fence_of(run), run.kind));
            assert_eq!((row.status, row.error, row.attempts), (run.status, run.error, run.attempts));
            assert_eq!((place(row.start), row.end.map(place)), (run.start, run.end));
            assert_eq!((row.started, row.ended, row.lease_until), (run.started, run.ended, run.lease));
            assert_eq!((row.message_index as usize, row.message_id.as_str()), (run.reply, &*run.message));
            assert_eq!(row.request_key.clone().zip(row.input_hash.clone()), run.key);
            assert!(!row.status.is_live() || at + 1 == rows.len(), "one live run at most");
        }
        let lease =
            if self.holder().is_some() { Some(self.lease_until) } else { rows.last().map(|row| row.lease_until) };
        assert_eq!(self.session.run().map(|run| run.lease_until), lease);
        self.same_run(&self.session);
    }

    /// Renewals are in memory only.
    fn same_run(&self, session: &Session) {
        let row = self.storage.runs().pop();
        let lease_until = row.as_ref().map(|row| row.lease_until);
        let held = session.run().zip(lease_until).map(|(run, lease_until)| RunRow { lease_until, ..run.clone() });
        assert_eq!(held, row);
    }

    fn check_points(&self, facts: &Facts) {
        let rows = self.storage.checkpoints();
        assert_eq!(rows.len(), facts.points.len());
        for (at, (row, point)) in rows.iter().zip(&facts.points).enumerate() {
            assert_eq!((row.ordinal as usize, &row.id, row.kind), (at + 1, &checkpoint_id(at + 1), point.kind));
            assert_eq!((row.message_count as usize, place(row.sequence)), (point.births.len(), point.cursor));
            assert_eq!(row.state, point.state);
        }
        assert!(rows.is_sorted_by_key(|row| row.sequence), "no cursor goes back");
        assert_eq!(self.session.checkpoint(), rows.last());
        assert_eq!(self.session.truncated(), facts.truncated().map(checkpoint_id).as_ref());
    }

    fn check_conversation(&self, facts: &Facts) {
        assert!(self.session.authorise(&Caller::Anonymous).is_err());
        let count = self.session.message_count();
        assert_eq!(count as usize, facts.messages.len());
        let kept = self.storage.counts().unwrap().into_iter().find(|(table, _)| table == "message");
        assert_eq!(kept.map_or(0, |(_, rows)| rows), u64::from(count), "no row beyond the conversation");
        let rows = self.storage.messages(count).unwrap();
        for (at, (row, message)) in rows.iter().zip(&facts.messages).enumerate() {
            assert_eq!((row.index as usize, row.id.as_str(), row.role.as_str()), (at, &*message.id, message.role));
            assert!(row.json == message.json && row.run.as_ref() == Some(&message.run), "the committed messages");
        }
        let Ok(snapshot) = snapshot::read(&self.session, &self.caller, "s") else {
            assert!(!facts.exists);
            return;
        };
        let run = facts.runs.last().unwrap();
        let checkpoint = self.session.checkpoint().unwrap();
        if checkpoint.kind == CheckpointKind::Step && run.push.is_none() {
            // Once without the model: the committed message is what the stored chunks up to its cursor say.
            let blocks = self.storage.blocks(Cursor::START, usize::MAX).unwrap();
            let text: String = blocks
                .iter()
                .filter(|block| block.run == checkpoint.run)
                .flat_map(|block| frame::decode(&block.bytes).unwrap())
                .filter(|frame| !checkpoint.sequence.lacks(frame.sequence))
                .map(|frame| frame.chunk.text("delta").unwrap().to_owned())
                .collect();
            assert_eq!(rows.last().unwrap().json, format!("\"{}{text}\"", run.base));
        }
        let body = snapshot.with_messages(&rows, false).unwrap();
        assert_eq!(body["streamSequence"], facts.cursor(), "the cursor covers exactly what the rows contain");
        let status = status(run, facts.stream.unwrap());
        assert_eq!(body["status"], status);
        assert_eq!(body["latestTruncateCheckpointId"], serde_json::to_value(self.session.truncated()).unwrap());
        let resumed = body.get("resumeMessageId").map(|id| id.as_str().unwrap().to_owned());
        assert_eq!(resumed, run.status.is_live().then(|| run.message.clone()));
        assert_eq!(body.get("errorDetail").is_some(), status == "failed");
    }

    /// A page that reconnects with the cursor of any snapshot that it may hold lacks nothing afterwards, and is told nothing that it has.
    fn check_reconnects(&self, facts: &Facts) {
        let asked = |since: usize| {
            let since = Cursor::new(since as u64).unwrap();
            snapshot::reconnect(&self.session, &self.caller, Some(since))
        };
        assert_eq!(
            snapshot::reconnect(&self.session, &Caller::Anonymous, Some(Cursor::START)),
            Reconnect::Nothing,
            "to others the session is not there"
        );
        let Some(run) = facts.runs.last() else { return assert_eq!(asked(0), Reconnect::Nothing) };
        let head = facts.chunks.len();
        let is_whole = |told: &Reconnect| matches!(told, Reconnect::Whole(row) if row.id == run.id);
        match run.status {
            RunStatus::Running => assert!(is_whole(&asked(facts.cursor())), "what it says next is told"),
            status if status.is_suspended() => {
                let lacks = facts.cursor() < head || run.start == head;
                assert_eq!(is_whole(&asked(facts.cursor())), lacks, "what it waits with is told once");
            }
            _ => assert_eq!(asked(facts.cursor()), Reconnect::Nothing, "a snapshot at rest lacks nothing"),
        }
        if run.status.is_live() {
            assert!(is_whole(&asked(run.start)), "a seed is completed by the run from its start");
        }
        assert_eq!(asked(head + 1), Reconnect::Beyond(Cursor::new(head as u64).unwrap()));
        for since in facts.points.iter().map(|point| point.cursor) {
            let told = asked(since);
            let left = facts.messages.get(run.reply).is_some();
            match told {
                Reconnect::Nothing => assert!(since == head, "there is more"),
                Reconnect::Whole(_) => assert!(is_whole(&told) && since >= run.start, "more than one reply came since"),
                Reconnect::Stale if since < run.start => {}
                told => assert!(told == Reconnect::Stale && run.start < facts.floor && !left, "{told:?} of {since}"),
            }
        }
    }

    /// The rows give the same session at any time.
    fn check_reload(&self, facts: &Facts) {
        let (session, again) =
            (&self.session, Session::load(self.storage.load().unwrap(), POLICY, true, Ticket::FIRST));
        self.same_run(&again);
        assert_eq!(again.checkpoint(), session.checkpoint());
        assert_eq!((again.truncated(), again.queue()), (session.truncated(), session.queue()));
        assert_eq!(again.authorise(&self.caller), session.authorise(&self.caller));
        assert_eq!((again.log().head(), again.log().floor()), (session.log().head(), session.log().floor()));
        assert_eq!(again.view().status(), facts.stream);
        assert_eq!(
            again.view().run(),
            self.storage.runs().last().map(|run| RunView::ended_at(run, self.storage.checkpoints().last())).as_ref()
        );
    }

    /// A run's end shows together with the run that came after it.
    fn check_what_is_shown(&self) {
        let view = self.session.view();
        let shown: Vec<_> = self.model.durable().runs.iter().filter_map(|run| view.find(&run.id)).collect();
        assert_eq!(shown.last().copied(), view.run());
        assert!(view.run().is_none_or(|run| run.status != RunStatus::Superseded), "no end without its successor");
        for pair in shown.windows(2) {
            assert!(!pair[0].status.is_live(), "one live run at most");
            assert_eq!((view.successor(&pair[0].id), pair[0].end), (Some(pair[1]), Some(pair[1].start)));
        }
    }

    /// What storage finds by ids and keys.
    pub(super) fn check_look_ups(&self) {
        let facts = self.model.latest();
        for run in &facts.runs {
            assert_eq!(self.storage.run(&run.id).unwrap().unwrap().fence(), fence_of(run));
        }
        for key in ["k0", "k1", "k2"] {
            let run = facts.runs.iter().rfind(|run| run.key.as_ref().is_some_and(|(given, _)| given == key));
            let found = self.storage.run_of_key(&RequestKey::parse(key).unwrap()).unwrap();
            assert_eq!(found.map(|row| row.id), run.map(|run| run.id.clone()));
        }
        for ordinal in 1..=facts.points.len() {
            let found = self.storage.rewind_point(&checkpoint_id(ordinal)).unwrap();
            assert_eq!(found.is_some(), facts.is_reachable(ordinal), "{ordinal}");
        }
    }
}

//! Responses that follow what is there: resume by cursor or behind a replayed prefix, the stock reconnect, and a run from its start.

use std::rc::Rc;

use futures::FutureExt;
use futures::future::select;
use serde_json::Value;
use web_sys::Request;

use super::refusals::{Refusal, history_unread};
use super::{Answer, cursor_of};
use crate::core::caller::Caller;
use crate::core::chunk::Chunk;
use crate::core::command::NotFound;
use crate::core::error::Code;
use crate::core::frame::Stored;
use crate::core::ids::{Cursor, MessageId, Sequence};
use crate::core::reader::{Reader, Scope};
use crate::core::run::{EntryKind, RunStatus, Vocabulary};
use crate::core::snapshot::{self, Reconnect};
use crate::core::storage::{CheckpointKind, RunRow, Storage};
use crate::dialect::helix::projector::Projector;
use crate::dialect::route::query_value;
use crate::dialect::ui::copy::{Shown, shown};
use crate::dialect::ui::fold::Fold;
use crate::dialect::ui::lens::{Lens, begun};
use crate::dialect::ui::reopen::reopen;
use crate::dialect::ui::replay::{owned_calls, prefix};
use crate::dialect::ui::response::{OPENING, OPENING_CHUNKS, synthesise};
use crate::model::agent::Agent;
use crate::session::response::{Dialect, Opening};
use crate::shell::answer;
use crate::shell::clock::{now, sleep};
use crate::shell::host::{Host, HostError};
use crate::shell::request::{Leaving, header, is_aware};

/// A chat response, once it is known where it begins and what it says first.
struct Begin {
    run: RunRow,
    cursor: Cursor,
    /// Synthesised chunks.
    opening: Vec<Chunk>,
    lens: Lens,
    /// Whether the opening holds content.
    content: bool,
    /// Whether the opening has told all of a run that is over, so that nothing of it is left open.
    whole: bool,
}

impl Host {
    /// `GET /api/chat/:s`: the current or last run, from the client's cursor or its start, never an older turn.
    pub(super) async fn attach(self: &Rc<Self>, caller: &Caller, request: &Request) -> Answer {
        let asked = cursor_of(cursor_text(request))?;
        let own_id = header(request, "x-existing-message-id").filter(|id| !id.is_empty());
        let replays = header(request, "x-helix-replay-prefix").is_some_and(|flag| flag == "1");
        self.wait_for_first_chunk(caller, request).await?;
        let found = self.session(|session| {
            session.authorise(caller)?;
            Ok::<_, NotFound>((session.run().cloned(), session.log().head(), session.view().floor()))
        });
        let (run, head, floor) = found??;
        let Some(run) = run else { return Err(Refusal::Coded(Code::StateSessionNotFound)) };
        if asked.is_some_and(|asked| asked > head) {
            return Err(Refusal::Beyond(head));
        }
        if run.status == RunStatus::Failed {
            return Err(Refusal::StreamFailed(Box::new(run.clone())));
        }
        if let (true, Some(id)) = (replays, &own_id) {
            return self.behind_prefix(request, run, id).await;
        }
        let from = asked.unwrap_or(run.start).max(run.start);
        if asked.is_some() && from < floor {
            return Err(self.below_floor(floor));
        }
        if asked.is_none_or(|asked| asked <= run.start) && own_id.is_none() {
            return self.whole_run(request, &run);
        }
        if from < floor {
            return Err(self.below_floor(floor));
        }
        self.settled_writes().await?;
        let begin = self.at_cursor(request, run, from, own_id.as_deref())?;
        self.respond(request, begin)
    }

    /// The reconnect of a page that holds a snapshot, or of a stock client, which does not say what it holds.
    pub(super) async fn reconnect(self: &Rc<Self>, caller: &Caller, request: &Request, query: &str) -> Answer {
        let since = cursor_of(query_value(query, "since"))?;
        self.wait_for_first_chunk(caller, request).await?;
        let told = self.session(|session| snapshot::reconnect(session, caller, since));
        match told? {
            Reconnect::Nothing => Ok(answer::nothing()),
            Reconnect::Whole(run) => self.whole_run(request, &run),
            Reconnect::Stale => Err(Refusal::Stale),
            Reconnect::Beyond(head) => Err(Refusal::Beyond(head)),
        }
    }

    /// A run's whole response: what it continues, then all that it has written and writes.
    pub(super) fn whole_run(self: &Rc<Self>, request: &Request, run: &RunRow) -> Answer {
        let place = self.session(|session| (session.log().head(), session.view().floor()));
        let (head, floor) = place?;
        let is_answered = run.status.is_live() && run.end.is_some_and(|end| end < head);
        let is_cut = run.start < floor;
        if run.entry != EntryKind::ToolResult && !is_answered && !is_cut {
            return self.first_response(request, run, None);
        }
        // Its message was begun by an earlier run, whose chunks may be gone, or its own are, or has answers that stand behind the run's
        // end: the committed parts are told, not replayed.
        let begin = self.behind_commit(request, run.clone(), false)?;
        match begin {
            Some(begin) => self.respond(request, begin),
            None if is_cut => Err(self.below_floor(floor)),
            // It continues a run that had stored nothing.
            None => self.first_response(request, run, None),
        }
    }

    /// A run from its first chunk, if that is still there, for a client that holds the message that it continues, if it does.
    pub(super) fn from_start(self: &Rc<Self>, request: &Request, run: &RunRow, held: Option<&Value>) -> Answer {
        let floor = self.session(|session| session.view().floor())?;
        if run.start < floor {
            return Err(self.below_floor(floor));
        }
        self.first_response(request, run, held)
    }

    /// A run from its first chunk, for the client that started it; it holds the message that the run continues, if there is one.
    pub(super) fn first_response(self: &Rc<Self>, request: &Request, run: &RunRow, held: Option<&Value>) -> Answer {
        let mut lens = self.lens(request, run)?;
        lens.owned = held.map(owned_calls).unwrap_or_default();
        let begin =
            Begin { run: run.clone(), cursor: run.start, opening: Vec::new(), lens, content: false, whole: false };
        self.respond(request, begin)
    }

    /// A run that continues a message, for a client that holds the message under another id than the stored one.
    pub(super) fn under_held_id(self: &Rc<Self>, request: &Request, run: &RunRow, id: &str, held: &Value) -> Answer {
        let mut lens = self.lens(request, run)?;
        lens.owned = owned_calls(held);
        let opening = vec![Chunk::new("start").with("messageId", id)];
        let (run, cursor) = (run.clone(), behind_opening(run));
        self.respond(request, Begin { run, cursor, opening, lens, content: false, whole: false })
    }

    /// The committed parts of the message that the client has put away, then the tail behind that commit (C-1, `spec/helix.md` 5.5).
    async fn behind_prefix(self: &Rc<Self>, request: &Request, run: RunRow, id: &str) -> Answer {
        self.settled_writes().await.map_err(history_unread)?;
        if run.message_id.as_str() != id {
            return Err(Refusal::RESUME_UNKNOWN);
        }
        let is_live = run.status.is_live();
        match self.behind_commit(request, run.clone(), true).map_err(history_unread)? {
            Some(begin) => self.respond(request, begin),
            // Nothing of it is committed yet.
            None if is_live => {
                let message = serde_json::json!({ "id": id, "role": "assistant", "parts": [] });
                let cursor = behind_opening(&run);
                let lens = self.lens(request, &run).map_err(history_unread)?;
                self.respond(
                    request,
                    Begin { run, cursor, opening: prefix(&message, true), lens, content: false, whole: false },
                )
            }
            None => Err(Refusal::RESUME_UNKNOWN),
        }
    }

    /// The committed parts of a run's message and the tail behind them; `None` when nothing of it is committed.
    fn behind_commit(&self, request: &Request, run: RunRow, marked: bool) -> Result<Option<Begin>, HostError> {
        let place = self.session(|session| session.checkpoint().map(|last| (last.message_count, last.sequence)))?;
        let Some((_, sequence)) = place.filter(|(count, _)| run.message_index < *count) else { return Ok(None) };
        let message = self.stored_message(run.message_index)?;
        let mut opening = prefix(&message, marked);
        let cursor = sequence.max(behind_opening(&run));
        if let Some(finish) = self.finish_before(&run, cursor)? {
            opening.push(finish);
        }
        let mut lens = self.lens(request, &run)?;
        lens.owned = owned_calls(&message);
        let whole = run.end.is_some_and(|end| cursor >= end);
        Ok(Some(Begin { run, cursor, opening, lens, content: true, whole }))
    }

    /// The rest of a live run, for a client that holds all of its message that is committed.
    pub(super) fn behind_held(self: &Rc<Self>, request: &Request, run: RunRow, held: &Value) -> Answer {
        let begin = self.behind_commit(request, run, false)?;
        let Some(mut begin) = begin else { return Err(Refusal::RESUME_UNKNOWN) };
        begin.opening.truncate(1);
        begin.lens.owned.extend(owned_calls(held));
        self.respond(request, begin)
    }

    /// The rest of a live run, for a client that puts it behind its own copy of the message, and shows its calls as answered. `None` when
    /// the copy lacks what is committed.
    pub(super) fn behind_copy(
        self: &Rc<Self>,
        request: &Request,
        run: &RunRow,
        sent: &Value,
    ) -> Result<Option<Answer>, HostError> {
        let committed = self.session(|session| {
            let last = session.checkpoint().filter(|last| last.run == run.id && last.kind == CheckpointKind::Step);
            last.map(|last| last.sequence)
        })?;
        let continues = committed.is_some() || run.entry == EntryKind::ToolResult;
        let base = if continues { self.message_of(run)? } else { None };
        let base = base.map_or_else(|| Fold::new(&run.message_id), Fold::continuing);
        let from = committed.unwrap_or(run.start);
        let attempts = self.attempts(run)?;
        let mut projector = self.projector(run, from)?;
        let mut chunks: Vec<(Sequence, Chunk)> = Vec::new();
        let mut see = |sequence, chunk: Chunk| {
            if !attempts.superseded().leaves_out(&chunk) {
                chunks.push((sequence, chunk));
            }
        };
        self.each_stored(from, None, &mut |stored| match &mut projector {
            None => see(stored.sequence, stored.chunk),
            Some(projector) => {
                projector.project(&stored.chunk).into_iter().for_each(|chunk| see(stored.sequence, chunk));
            }
        })?;
        let Some(Shown { cursor, fold }) = shown(sent, &base, from, &chunks) else { return Ok(None) };
        let mut opening = reopen(&fold);
        // Its calls are there, with their answers.
        opening.retain(|chunk| !matches!(chunk.kind(), "tool-input-available" | "tool-approval-request"));
        let cursor = cursor.max(behind_opening(run));
        let mut lens = self.lens_at(request, run, cursor)?;
        lens.owned = owned_calls(sent);
        lens.owned.extend(begun(&opening));
        let begin = Begin { run: run.clone(), cursor, opening, lens, content: true, whole: false };
        Ok(Some(self.respond(request, begin)))
    }

    /// The `finish` of a run, when it stands before the cursor.
    fn finish_before(&self, run: &RunRow, cursor: Cursor) -> Result<Option<Chunk>, HostError> {
        let Some(end) = run.end.filter(|end| cursor >= *end) else { return Ok(None) };
        let floor = self.session(|session| session.view().floor())?;
        let from = Cursor::new(end.get().saturating_sub(1)).unwrap_or(end);
        if from < floor {
            return Ok(None);
        }
        let last = self.stored_chunks(from, end)?.pop();
        Ok(last.map(|stored| stored.chunk).filter(|chunk| chunk.kind() == "finish"))
    }

    /// The rest of a run behind a cursor, with the parts that are open there opened again.
    fn at_cursor(
        &self,
        request: &Request,
        run: RunRow,
        from: Cursor,
        own_id: Option<&str>,
    ) -> Result<Begin, HostError> {
        let head = self.session(|session| session.log().head())?;
        let through = from.max(behind_opening(&run)).min(head);
        let attempts = self.attempts(&run)?;
        let mut fold = Fold::new(&own_id.map_or_else(|| run.message_id.clone(), MessageId::new));
        // Only one `start` counts, and this response brings its own: it begins behind the stored one.
        let mut cursor = from;
        let mut finish = None;
        let mut projector = self.projector(&run, run.start)?;
        let mut seen = |stored: Stored| match stored.chunk.kind() {
            _ if attempts.superseded().leaves_out(&stored.chunk) => {}
            "start" => cursor = cursor.max(stored.sequence.cursor()),
            kind => {
                let is_finish = kind == "finish";
                // A chunk that does not fold is not on the chat surface either.
                let _ = fold.apply(&stored.chunk);
                if is_finish {
                    finish = Some(stored.chunk);
                }
            }
        };
        self.each_stored(run.start, Some(through), &mut |stored| match &mut projector {
            None => seen(stored),
            Some(projector) => {
                for chunk in projector.project(&stored.chunk) {
                    seen(Stored { sequence: stored.sequence, chunk });
                }
            }
        })?;
        let mut opening = reopen(&fold);
        let mut lens = self.lens_at(request, &run, from)?;
        lens.owned = begun(&opening);
        if let Some(id) = own_id {
            lens.owned.extend(self.calls_of(id)?);
        }
        opening.extend(finish);
        Ok(Begin { run, cursor, opening, lens, content: true, whole: false })
    }

    /// What a run of Helix chunks has said up to a cursor; `None` for a run in another language.
    fn projector(&self, run: &RunRow, cursor: Cursor) -> Result<Option<Box<Projector>>, HostError> {
        if run.vocabulary != Vocabulary::Helix {
            return Ok(None);
        }
        let continued = if run.entry == EntryKind::ToolResult { self.message_of(run)? } else { None };
        let mut projector = match continued {
            Some(message) => Projector::continuing(run.id.clone(), &Fold::continuing(message)),
            None => Projector::new(run.id.clone(), run.message_id.clone()),
        };
        if cursor > run.start {
            self.each_stored(run.start, Some(cursor), &mut |stored| drop(projector.project(&stored.chunk)))?;
        }
        Ok(Some(Box::new(projector)))
    }

    /// The calls of a committed message.
    fn calls_of(&self, id: &str) -> Result<std::collections::BTreeSet<String>, HostError> {
        let count = self.session(|session| session.message_count())?;
        let Some(row) = self.storage.message(id, count)? else { return Ok(Default::default()) };
        Ok(owned_calls(&self.stored_message(row.index)?))
    }

    /// What a response shows of a run whose client has nothing of it.
    fn lens(&self, request: &Request, run: &RunRow) -> Result<Lens, HostError> {
        self.lens_at(request, run, Cursor::START)
    }

    fn lens_at(&self, request: &Request, run: &RunRow, cursor: Cursor) -> Result<Lens, HostError> {
        let mut lens = Lens { aware: is_aware(request), ..Lens::default() };
        lens.follow(&*self.attempts(run)?, cursor);
        Ok(lens)
    }

    fn respond(self: &Rc<Self>, request: &Request, begin: Begin) -> Answer {
        let Begin { run, cursor, opening, lens, content, whole } = begin;
        let projector = self.projector(&run, cursor)?.filter(|_| !whole);
        let reader = self.session(|session| Reader::open(Scope::Run(run.id.clone()), cursor, session.view()));
        let reader = reader?;
        let holds_lead = opening.is_empty()
            && !lens.aware
            && run.entry != EntryKind::ToolResult
            && self.opens_late(Some(&run.agent));
        let mut first = OPENING.to_vec();
        let finish_sent = opening.last().is_some_and(|chunk| chunk.kind() == "finish");
        for chunk in opening {
            synthesise(chunk, self.config.floor, &mut first);
        }
        let opening = Opening {
            dialect: Dialect::Chat,
            reader,
            lens,
            projector,
            prefix: first,
            finish_sent,
            content_sent: content,
            holds_lead,
            held: true,
        };
        Ok(self.open_reader(request, opening)?)
    }

    /// Whether a stock client sees nothing of a reply before its first part: behind a chat route, as when it calls the route itself. A
    /// run that continues a message has one that is shown already.
    pub(super) fn opens_late(&self, agent: Option<&str>) -> bool {
        matches!(self.config.agents.choose(agent), Ok((_, Agent::Ui(_))))
    }

    /// The run-start window (`spec/helix.md` 1.5): a run that is committed and has no chunk yet is waited for, on the log's own wake-ups.
    async fn wait_for_first_chunk(self: &Rc<Self>, caller: &Caller, request: &Request) -> Result<(), Refusal> {
        let deadline = now().after(self.config.settings.live_wait);
        let mut leaving = None;
        loop {
            let waits = self.session(|session| {
                session.authorise(caller).is_ok()
                    && session
                        .run()
                        .is_some_and(|run| run.status == RunStatus::Running && session.log().head() <= run.start)
            });
            if !waits? {
                return Ok(());
            }
            let left = deadline.since(now());
            if left.get() == 0 {
                return Err(Refusal::NotLive);
            }
            let leaving = leaving.get_or_insert_with(|| Leaving::of(request));
            let moved = self.moved().map(|_| ());
            let timer = sleep(left);
            let left = Box::pin(leaving.left());
            if let futures::future::Either::Right(_) = select(select(moved, timer).map(|_| ()), left).await {
                return Err(Refusal::Gone);
            }
        }
    }
}

/// Where the client says that it stands.
fn cursor_text(request: &Request) -> Option<String> {
    header(request, "x-resume-from-sequence").or_else(|| header(request, "last-event-id"))
}

/// Whether the client says where it stands.
pub(super) fn has_cursor(request: &Request) -> bool {
    cursor_text(request).is_some()
}

/// Behind the chunks that every run is opened with.
fn behind_opening(run: &RunRow) -> Cursor {
    Cursor::new(run.start.get().saturating_add(OPENING_CHUNKS)).unwrap_or(run.start)
}

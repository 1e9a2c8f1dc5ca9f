//! Responses that follow what is there: resume by cursor, and the stock reconnect.

use std::rc::Rc;

use web_sys::Request;

use super::refusals::{absent, unopened, unreadable};
use super::{Answer, cursor_of};
use crate::core::caller::Caller;
use crate::core::error::Code;
use crate::core::ids::{Cursor, MessageId, RunId};
use crate::core::reader::{Reader, Scope};
use crate::core::run::RunStatus;
use crate::dialect::ui::fold::Fold;
use crate::dialect::ui::reopen::reopen;
use crate::dialect::ui::response::{OPENING, synthesise};
use crate::shell::answer;
use crate::shell::host::Host;
use crate::shell::readers::Dialect;
use crate::shell::request::header;

/// Chunks that a run is opened with: `run_started` and `start`.
const OPENING_CHUNKS: u64 = 2;

impl Host {
    /// Resume by cursor: the current or last run, from the client's cursor or its start, never an older turn.
    pub(super) async fn attach(self: &Rc<Self>, caller: &Caller, request: &Request) -> Answer {
        let asked = cursor_of(header(request, "x-resume-from-sequence").or_else(|| header(request, "last-event-id")))?;
        let found = self.session(|session| {
            session.authorise(caller)?;
            Ok((session.run().cloned(), session.log().head(), session.view().floor()))
        });
        let (run, head, floor) = found.map_err(|error| unreadable(&error))?.map_err(absent)?;
        let Some(run) = run else { return Err(answer::error(Code::StateSessionNotFound)) };
        if asked.is_some_and(|asked| asked > head) {
            return Err(self.beyond(head));
        }
        if run.status == RunStatus::Failed {
            return Err(self.stream_failed(&run));
        }
        if asked.unwrap_or(run.start).max(run.start) < floor {
            return Err(self.below_floor(floor));
        }
        let from = asked.unwrap_or(run.start).max(run.start);
        let own_id = header(request, "x-existing-message-id").filter(|id| !id.is_empty()).map(MessageId::new);
        if from == run.start && own_id.is_none() {
            return self.chat_reader(request, run.id, from, OPENING, false);
        }
        self.settled_writes().await.map_err(|error| unreadable(&error))?;
        let opened = Cursor::new(run.start.get().saturating_add(OPENING_CHUNKS)).unwrap_or(from);
        let through = from.max(opened).min(head);
        let mut fold = Fold::new(&own_id.unwrap_or(run.message_id));
        // Only one `start` counts, and this response brings its own: it begins behind the stored one.
        let mut begin = from;
        let mut finish = None;
        let read = self.each_stored(run.start, Some(through), &mut |stored| match stored.chunk.kind() {
            "start" => begin = begin.max(stored.sequence.cursor()),
            kind => {
                let is_finish = kind == "finish";
                // A chunk that does not fold is not on the chat surface either.
                let _ = fold.apply(&stored.chunk);
                if is_finish {
                    finish = Some(stored.chunk);
                }
            }
        });
        read.map_err(|error| unreadable(&error))?;
        let mut prefix = OPENING.to_vec();
        let finished = finish.is_some();
        for chunk in reopen(&fold).into_iter().chain(finish) {
            synthesise(chunk, self.config.floor, &mut prefix);
        }
        self.chat_reader(request, run.id, begin, &prefix, finished)
    }

    /// The stock reconnect: the live run's whole response, or 204.
    pub(super) fn reconnect(self: &Rc<Self>, caller: &Caller, request: &Request) -> Answer {
        let live = self.session(|session| {
            session.authorise(caller).ok()?;
            session.run().filter(|run| run.status.is_live()).map(|run| (run.id.clone(), run.start))
        });
        match live.map_err(|error| unreadable(&error))? {
            Some((run, start)) => self.chat_reader(request, run, start, OPENING, false),
            None => Ok(answer::nothing()),
        }
    }

    /// Opens a chat response; `finished` when its prefix has carried the run's `finish` already.
    pub(super) fn chat_reader(
        self: &Rc<Self>,
        request: &Request,
        run: RunId,
        cursor: Cursor,
        prefix: &[u8],
        finished: bool,
    ) -> Answer {
        let reader = self.session(|session| Reader::open(Scope::Run(run), cursor, session.view()));
        let reader = reader.map_err(|error| unreadable(&error))?;
        let dialect = Dialect::Chat;
        let stream = self.open_reader(request.signal().into(), dialect, reader, prefix, finished);
        Ok(answer::events(stream.map_err(|error| unopened(&error))?, true))
    }
}

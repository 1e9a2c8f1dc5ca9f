//! The wire.

use std::rc::Rc;

use web_sys::Request;
use worker::Response;

use super::refusals::Refusal;
use super::{Answer, cursor_of};
use crate::core::caller::Caller;
use crate::core::counters::add;
use crate::core::ids::{Cursor, RunId};
use crate::core::reader::{Reader, Scope};
use crate::core::storage::Storage;
use crate::dialect::route::query_value;
use crate::dialect::ui::lens::Lens;
use crate::dialect::ui::response::OPENING;
use crate::dialect::wire;
use crate::session::response::{Dialect, Opening};
use crate::shell::answer;
use crate::shell::host::Host;
use crate::shell::request::header;

impl Host {
    pub(super) fn sse(self: &Rc<Self>, caller: &Caller, request: &Request, query: &str) -> Answer {
        let asked = query_value(query, "fromSequence").or_else(|| header(request, "last-event-id"));
        let asked = cursor_of(asked)?.unwrap_or(Cursor::START);
        let waits = query_value(query, "waitForLive").is_some_and(|value| value == "1");
        let run = query_value(query, "runId").filter(|run| !run.is_empty());
        // A session that nobody has begun yet is waited for. Whoever has been in one of this name asks for something that is gone.
        let begins = waits && asked == Cursor::START && run.is_none();
        let place = self.session(|session| {
            let place = (session.log().head(), session.view().floor());
            let absent = session.view().status().is_none();
            session
                .authorise(caller)
                .map(|_| place)
                .or_else(|refused| if absent && begins { Ok(place) } else { Err(refused) })
        });
        let (head, floor) = place?.map_err(|_| Refusal::StreamAbsent)?;
        if let Some(run) = run
            && self.storage.run(&RunId::new(run))?.is_none()
        {
            // The cursor is one of another log, whose session had the same id.
            return Ok(self.truncated(floor));
        }
        if asked > head {
            return Err(Refusal::Beyond(head));
        }
        let reader = self.session(|session| {
            let reader = Reader::open(Scope::Stream, asked, session.view());
            if waits { reader.waiting_for_live(session.view()) } else { reader }
        });
        let reader = reader?;
        let opening = Opening {
            dialect: Dialect::Wire,
            reader,
            lens: Lens::default(),
            projector: None,
            prefix: OPENING.to_vec(),
            finish_sent: false,
            content_sent: false,
            holds_lead: false,
            held: true,
        };
        Ok(self.open_reader(request, opening)?)
    }

    /// A response that says only that what the cursor asks for is gone.
    fn truncated(&self, floor: Cursor) -> Response {
        self.count(|counters| add(&mut counters.truncated, 1));
        answer::events_of(&wire::truncated(floor), Dialect::Wire)
    }
}

//! `/sse`: a response that follows the whole stream, run after run, in stream wire v2 (`spec/helix.md` section 4).

use super::call::SessionCall;
use super::door::Owned;
use super::engine::SessionEngine;
use super::refuse::Refusal;
use super::response::{Dialect, Opening};
use super::turn::SessionTurn;
use crate::core::counters::add;
use crate::core::engine::action::Head;
use crate::core::engine::answer::Answer;
use crate::core::engine::event::Ask;
use crate::core::engine::ids::Exchange;
use crate::core::ids::{Cursor, RunId};
use crate::core::reader::{Reader, Scope};
use crate::dialect::ui::lens::Lens;
use crate::dialect::ui::response::OPENING;
use crate::dialect::wire;

impl SessionEngine {
    /// Opens the response; what is said instead when it is over at once.
    pub(super) fn sse(
        &mut self,
        exchange: Exchange,
        ask: &Ask<SessionCall>,
        turn: &mut SessionTurn<'_>,
    ) -> Result<Option<Answer>, Refusal> {
        let Ask { call, caller, headers } = ask;
        let asked = match call.value("fromSequence") {
            Some(_) => call.cursor("fromSequence")?,
            None => headers.get("last-event-id").map(SessionCall::cursor_of).transpose()?,
        };
        let asked = asked.unwrap_or(Cursor::START);
        let waits = call.is_set("waitForLive");
        let run = call.value("runId").filter(|run| !run.is_empty());
        // A session that nobody has begun yet is waited for. Whoever has been in one of this name asks for something that is gone.
        let begins = waits && asked == Cursor::START && run.is_none();
        let session = self.session(turn.now, turn.storage)?;
        let absent = session.view().status().is_none();
        if Owned::enter(session, caller).is_err() && !(absent && begins) {
            return Err(Refusal::StreamAbsent);
        }
        let (head, floor) = (session.log().head(), session.view().floor());
        if let Some(run) = run
            && turn.storage.run(&RunId::new(run))?.is_none()
        {
            // The cursor is one of another log, whose session had the same id.
            add(&mut self.counters.truncated, 1);
            let Head { status, headers } = Dialect::Wire.head();
            return Ok(Some(Answer { status, headers, body: wire::truncated(floor) }));
        }
        if asked > head {
            return Err(Refusal::Beyond(head));
        }
        let reader = Reader::open(Scope::Stream, asked, session.view());
        let opening = Opening {
            dialect: Dialect::Wire,
            reader: if waits { reader.waiting_for_live(session.view()) } else { reader },
            lens: Lens::default(),
            projector: None,
            prefix: OPENING.to_vec(),
            finish_sent: false,
            content_sent: false,
            holds_lead: false,
            held: false,
        };
        self.open_reader(exchange, opening, turn)?;
        Ok(None)
    }
}

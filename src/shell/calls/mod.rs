//! What the object does for each call: read the request, run one command, answer.
//!
//! * [`send`]: a chat POST; [`busy`]: one that finds a reply under way. [`results`]: answers to a suspended run's calls. [`resume`]: responses that follow what is there.
//! * [`control`]: stop, retry and delete.
//! * [`runs`], [`runs_append`] and [`runs_end`]: what producers outside ask.
//! * [`refusals`]: why a call is refused.

mod busy;
mod control;
mod refusals;
mod results;
mod resume;
mod runs;
mod runs_append;
mod runs_end;
mod send;

use std::rc::Rc;

use web_sys::Request;
use worker::Response;

use super::answer;
use super::host::Host;
use super::request::header;
use crate::core::caller::Caller;
use crate::core::engine::event::{Ask, Headers};
use crate::core::error::Code;
use crate::core::ids::{Cursor, RunId};
use crate::dialect::push::ending::EndDeed;
use crate::dialect::route::{Call, Deed};
use crate::session::call::SessionCall;
use crate::session::door::Owned;
use refusals::Refusal;
pub use refusals::failed;

/// An answer, or the answer that says why not.
type Answer = Result<Response, Refusal>;

impl Host {
    /// Answers one call.
    pub async fn answer(self: &Rc<Self>, call: Call, request: &Request, query: &str) -> Response {
        // Everybody is one anonymous caller until the deployment authenticates.
        let caller = Caller::Anonymous;
        let asks_anyway = matches!(call, Call::Delete | Call::Seam);
        let resumable = call.is_chat();
        // A session whose rows cannot be read must still be deletable, and a test may mend what it broke.
        let settled = match self.expire().await {
            Ok(()) if self.hears(&call, request) => Ok(()),
            Ok(()) => self.settle_or_hear().await.and_then(|()| self.answer_queued()),
            failed => failed,
        };
        self.watch_lease();
        let settled = settled.and_then(|()| self.note_followers());
        if let Err(error) = settled
            && !asks_anyway
        {
            return self.refused(&error.into());
        }
        let begins = matches!(call, Call::Send | Call::OpenRun);
        let admitted = if begins { self.may_begin(&caller) } else { Ok(()) };
        if let Err(refusal) = admitted {
            return self.refused(&refusal);
        }
        let answered = match call {
            Call::Send => self.send(&caller, request, query).await,
            Call::Attach => self.attach(&caller, request).await,
            Call::Reconnect => self.reconnect(&caller, request, query).await,
            Call::ChatSnapshot | Call::WireSnapshot | Call::Info | Call::Chunks | Call::Sse => {
                let call = SessionCall { call, query: query.to_owned() };
                let named = |name: &str| Some((name.to_owned(), header(request, name)?));
                let headers = Headers::new(named("last-event-id").into_iter().collect());
                Ok(self.heart.ask(request, Ask { call, caller, headers }).await)
            }
            Call::Stop => self.stop(&caller, request).await,
            Call::ToolResult => self.tool_result(&caller, request).await,
            Call::Retry => self.retry(&caller, request, query).await,
            Call::Delete => self.delete(&caller).await,
            Call::OpenRun => self.open_run(&caller, request).await,
            Call::Run(run, deed) => self.run_deed(&caller, request, query, &run, deed).await,
            Call::Seam => self.seam(request, query).await,
        };
        let response = self.sent(request, answered.map_err(|refusal| self.refused(&refusal))).await;
        if resumable {
            answer::name_stream(&response, &self.name);
        }
        response
    }

    /// Whoever may begin a session is let in before anything of theirs is read.
    fn may_begin(&self, caller: &Caller) -> Result<(), Refusal> {
        Ok(self.session(|session| Owned::or_begins(session, caller).map(drop))??)
    }

    /// Whether the request may be the word of the running run's producer: then it is heard before the settling that its silence would
    /// bring. A claim tells its run in its body.
    fn hears(&self, call: &Call, request: &Request) -> bool {
        match call {
            Call::OpenRun => true,
            Call::Run(_, Deed::Control) => false,
            Call::Run(run, _) => runs::fence(request, run)
                .is_ok_and(|fence| self.session(|session| session.hears(&fence)).unwrap_or(false)),
            _ => false,
        }
    }

    async fn run_deed(
        self: &Rc<Self>,
        caller: &Caller,
        request: &Request,
        query: &str,
        run: &RunId,
        deed: Deed,
    ) -> Answer {
        let known = self.session(|session| session.authorise(caller).map(|_| ()))?;
        known?;
        match deed {
            Deed::Chunks => self.append_chunks(request, run).await,
            Deed::Commit => self.commit_run(request, run).await,
            Deed::Renew => self.renew_run(request, run).await,
            Deed::End => self.end_run(request, run, EndDeed::End).await,
            Deed::Fail => self.end_run(request, run, EndDeed::Fail).await,
            Deed::Pause => self.end_run(request, run, EndDeed::Pause).await,
            Deed::Control => self.control_run(caller, request, query, run).await,
        }
    }

    /// Routes that only tests need; without `TEST_SEAMS=1` they do not exist.
    async fn seam(self: &Rc<Self>, request: &Request, query: &str) -> Answer {
        if !self.config.settings.test_seams {
            return Err(Refusal::Coded(Code::ValidationNotFound));
        }
        Ok(crate::shell::seams::perform(self, request, query).await.unwrap_or_else(|refused| refused))
    }
}

fn cursor_of(text: Option<String>) -> Result<Option<Cursor>, Refusal> {
    text.map(|text| SessionCall::cursor_of(&text)).transpose()
}

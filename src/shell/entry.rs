//! What a chat request decides before its run starts: who answers, and what of the request is handed on.

use serde_json::{Map, Value};
use web_sys::Request;

use super::host::Host;
use super::producers;
use super::request::header;
use crate::core::error::{Code, Failure};
use crate::core::run::Vocabulary;
use crate::core::time::Millis;
use crate::core::truth::Truth;
use crate::dialect::address::own_address;
use crate::dialect::route::query_value;
use crate::dialect::ui::request::{ChatBody, truth};
use crate::model::agent::{Agent, NoSuchAgent};
use crate::model::ui_route::request::{Forwarded, headers};
use crate::session::refuse::Refusal;

/// A chat request that may start a run.
pub struct Entry<'a> {
    pub request: &'a Request,
    /// An error matters only to a request that does start a run.
    agent: Result<(&'a str, &'a Agent), NoSuchAgent>,
    keys: Map<String, Value>,
    /// The messages that the client holds, where its list says which ones stay.
    pub list: Option<Vec<String>>,
    /// Ids of the messages that the client sent before the last one.
    pub held: Vec<String>,
}

/// Who answers, and how.
pub struct Entered<'a> {
    pub name: &'a str,
    /// What the request hands on to a chat route.
    pub forwarded: Option<Forwarded>,
    /// When its producer is outside.
    pub outside: Option<Outside>,
}

/// A producer outside that is told of its run.
pub struct Outside {
    pub vocabulary: Vocabulary,
    /// How long it may be silent.
    pub lease: Millis,
    /// The address at which it reaches the service.
    pub own: String,
}

impl Entry<'_> {
    /// The agent that shall answer, when there is one.
    pub fn agent_name(&self) -> Option<&str> {
        self.agent.as_ref().ok().map(|(name, _)| *name)
    }
}

impl Host {
    /// Chooses the agent by `?agent=`, else by the body's `agent`, else as the last run. The query wins, because the body belongs to the app:
    /// a wrapped route may have an `agent` of its own.
    pub fn entry<'a>(&'a self, request: &'a Request, query: &str, body: ChatBody) -> Result<Entry<'a>, Refusal> {
        let named = query_value(query, "agent").filter(|name| !name.is_empty()).or_else(|| body.agent.clone());
        let last = self.session(|session| session.run().map(|run| run.agent.clone())).ok().flatten();
        let agent = self.config.agents.of_request(named.as_deref(), last.as_deref());
        if let Err(error @ NoSuchAgent::Unknown) = &agent {
            return Err(refused(&error.failure()));
        }
        let terms = agent.as_ref().map(|(name, _)| self.config.agents.terms(name)).unwrap_or_default();
        let truth = truth(header(request, "x-rejoin-history").as_deref(), terms.history)
            .map_err(|refusal| Refusal::Rejected(refusal.code(), refusal.to_string()))?;
        let list = if truth == Truth::Client { body.listed() } else { None };
        let before = body.messages.split_last().map_or(&[][..], |(_, before)| before);
        let ids = before.iter().filter_map(|message| message.get("id")?.as_str());
        let held = ids.map(str::to_owned).collect();
        Ok(Entry { request, agent, keys: body.keys, list, held })
    }

    /// A request that goes on with the last run, or runs it again, and brings nothing for its agent.
    pub fn entry_of_last_run<'a>(&'a self, request: &'a Request) -> Result<Entry<'a>, Refusal> {
        self.entry(request, "", ChatBody::default())
    }

    /// The same request, for the agent of this run.
    pub fn for_run<'a>(&'a self, entry: Entry<'a>, agent: &str) -> Entry<'a> {
        Entry { agent: self.config.agents.choose(Some(agent)), ..entry }
    }

    /// The agent that shall start a run, once the deployment has what it needs, and what the request hands on to it.
    pub fn enter<'a>(&self, entry: Entry<'a>) -> Result<Entered<'a>, Refusal> {
        let Entry { request, agent, keys, .. } = entry;
        let (name, agent) = agent.map_err(|error| refused(&error.failure()))?;
        producers::check(self, name, agent).map_err(Refusal::Misconfigured)?;
        let forwarded = match agent {
            Agent::Ui(settings) => Some(Forwarded { headers: headers(settings, |name| header(request, name)), keys }),
            Agent::Demo(_) | Agent::OpenAi(_) | Agent::Anthropic(_) | Agent::Push(_) => None,
        };
        let outside = match agent {
            Agent::Push(_) => {
                let url = request.url();
                let own = own_address(self.config.settings.public_url.as_deref(), &url);
                let Some(own) = own else { return Err(Refusal::Misconfigured(unverified())) };
                self.outside(agent, own.to_owned())
            }
            _ => None,
        };
        Ok(Entered { name, forwarded, outside })
    }

    /// What is known of an agent's producer that is outside, and reaches the service at this address.
    pub fn outside(&self, agent: &Agent, own: String) -> Option<Outside> {
        let Agent::Push(settings) = agent else { return None };
        let lease = settings.lease_ms.map_or(self.config.settings.lease, |ms| Millis::new(u64::from(ms)));
        Some(Outside { vocabulary: settings.vocabulary, lease, own })
    }
}

/// The producer would be told to write to a host that anybody may have named.
fn unverified() -> Failure {
    let words = "PUBLIC_URL is not set, and the host of this request is not known to be the service's own";
    Failure::new(Code::ConfigurationInvalid, words)
}

fn refused(failure: &Failure) -> Refusal {
    Refusal::Rejected(failure.code, failure.internal.clone())
}

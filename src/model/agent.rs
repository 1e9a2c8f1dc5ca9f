//! The `AGENTS` configuration: names of agents, and what produces each one's replies.

use serde_json::Value;
use thiserror::Error;

use super::agents_error::AgentsError;
use super::anthropic::settings::AnthropicSettings;
use super::demo::DemoSettings;
use super::fields::Fields;
use super::openai::settings::OpenAiSettings;
use super::push_agent::PushSettings;
use super::ui_route::settings::UiRouteSettings;
use crate::core::approval::Executor;
use crate::core::busy::{NotAWay, OnBusy, Ways};
use crate::core::error::{Code, Failure};
use crate::core::truth::Truth;

/// Who answers in a session.
#[derive(Clone, Debug, PartialEq)]
pub enum Agent {
    /// The reply that needs no model and no key.
    Demo(DemoSettings),
    /// A model behind a chat-completions API.
    OpenAi(Box<OpenAiSettings>),
    /// A model behind Anthropic's Messages API.
    Anthropic(Box<AnthropicSettings>),
    /// Somebody's own chat route.
    Ui(Box<UiRouteSettings>),
    /// A producer outside, which appends its chunks over HTTP.
    Push(Box<PushSettings>),
}

/// What an agent's configuration names and the deployment must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reference<'a> {
    /// `apiKey`: a secret.
    Secret(&'a str),
    /// `binding`: a service binding.
    Binding(&'a str),
}

impl Reference<'_> {
    /// The complaint about an agent whose reference leads nowhere. The name is not quoted: it might be the key itself.
    pub fn missing(self, agent: &str) -> AgentsError {
        let (field, problem) = match self {
            Self::Secret(_) => ("apiKey", "names a secret that is not set"),
            Self::Binding(_) => ("binding", "names a service binding that the deployment does not have"),
        };
        AgentsError::Field { agent: agent.to_owned(), field: field.to_owned(), problem: problem.to_owned() }
    }
}

/// What holds for an agent's chat requests, whoever answers them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// `history`: whose list says which messages stay. Default `server`.
    pub history: Truth,
    /// `onBusy`: what a send may do that finds a reply under way. Default: what the deployment says.
    pub on_busy: Option<Ways>,
}

#[derive(Clone, Debug, PartialEq)]
struct Named {
    name: String,
    terms: Terms,
    agent: Agent,
}

/// All agents of a deployment, in the order of the configuration. There is at least one.
#[derive(Clone, Debug, PartialEq)]
pub struct Agents(Vec<Named>);

/// Why no agent answers a request.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum NoSuchAgent {
    /// The request names an agent that is not configured.
    #[error("agent is unknown: no agent of that name is configured")]
    Unknown,
    /// The request names none, and the configuration has several without a `default`.
    #[error("the request names no agent, and no agent is called \"default\"")]
    Unnamed,
}

impl NoSuchAgent {
    /// The failure of the request.
    pub fn failure(&self) -> Failure {
        Failure::new(Code::ValidationError, self.to_string())
    }
}

impl Agents {
    /// The agent of a request that names none.
    pub const DEFAULT: &str = "default";

    /// Reads the `AGENTS` variable.
    ///
    /// # Errors
    /// [`AgentsError`] for the first thing to change.
    pub fn parse(text: &str) -> Result<Self, AgentsError> {
        let value: Value = serde_json::from_str(text).map_err(|error| AgentsError::Json(error.to_string()))?;
        let Value::Object(map) = value else { return Err(AgentsError::Empty) };
        let agents: Result<Vec<_>, _> = map.into_iter().map(|(name, value)| Named::parse(name, value)).collect();
        Some(agents?).filter(|agents| !agents.is_empty()).map(Self).ok_or(AgentsError::Empty)
    }

    /// The agent of this name; without a name the one called `default`, or the only one.
    ///
    /// # Errors
    /// [`NoSuchAgent`] otherwise.
    pub fn choose(&self, name: Option<&str>) -> Result<(&str, &Agent), NoSuchAgent> {
        let wanted = name.unwrap_or(Self::DEFAULT);
        if let Some(found) = self.iter().find(|(name, _)| *name == wanted) {
            return Ok(found);
        }
        match (name, self.0.as_slice()) {
            (None, [only]) => Ok((&only.name, &only.agent)),
            (None, _) => Err(NoSuchAgent::Unnamed),
            (Some(_), _) => Err(NoSuchAgent::Unknown),
        }
    }

    /// The agent that answers a request: the one that it names, else the one that answered last in the session, if it is still configured,
    /// else as [`Agents::choose`] without a name. An empty name names none.
    ///
    /// # Errors
    /// [`NoSuchAgent`]: only the request's own name is refused, never a remembered one.
    pub fn of_request(&self, named: Option<&str>, last: Option<&str>) -> Result<(&str, &Agent), NoSuchAgent> {
        match named.filter(|name| !name.is_empty()) {
            Some(name) => self.choose(Some(name)),
            None => last.and_then(|last| self.choose(Some(last)).ok()).map_or_else(|| self.choose(None), Ok),
        }
    }

    /// All agents with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Agent)> {
        self.0.iter().map(|named| (named.name.as_str(), &named.agent))
    }

    /// The terms of the agent of this name; the defaults when there is none.
    pub fn terms(&self, name: &str) -> Terms {
        self.0.iter().find(|named| named.name == name).map(|named| named.terms.clone()).unwrap_or_default()
    }
}

impl Named {
    fn parse(name: String, value: Value) -> Result<Self, AgentsError> {
        let mut fields = Fields::of(&name, "", value)?;
        let producer = fields.string("producer")?;
        let terms = Terms::parse(&mut fields)?;
        let agent = Agent::parse(producer.as_deref(), fields)?;
        Ok(Self { name, terms, agent })
    }
}

impl Terms {
    fn parse(fields: &mut Fields) -> Result<Self, AgentsError> {
        let history = match fields.string("history")? {
            None => Truth::default(),
            Some(word) => {
                Truth::parse(&word).ok_or_else(|| fields.error("history", format!("must be {}", Truth::WORDS)))?
            }
        };
        let on_busy = fields.take("onBusy").map(|said| ways_of(&said).map_err(|_| fields.error("onBusy", WAYS)));
        Ok(Self { history, on_busy: on_busy.transpose()? })
    }
}

const WAYS: &str = "must be refuse, interrupt or queue, or a list of them";

/// `onBusy`: a word, or a list of words of which the first is the default.
fn ways_of(value: &Value) -> Result<Ways, NotAWay> {
    let word = |value: &Value| value.as_str().ok_or(NotAWay).and_then(OnBusy::parse);
    match value {
        Value::Array(words) if !words.is_empty() => Ways::of(words.iter().map(word)),
        one => Ways::of(std::iter::once(word(one))),
    }
}

impl Agent {
    /// The field that names something which the deployment must have, and that name.
    pub fn reference(&self) -> Option<Reference<'_>> {
        match self {
            Self::Demo(_) => None,
            Self::OpenAi(settings) => settings.api_key.as_deref().map(Reference::Secret),
            Self::Anthropic(settings) => settings.api_key.as_deref().map(Reference::Secret),
            Self::Ui(settings) => settings.target.binding().map(Reference::Binding),
            Self::Push(settings) => settings.target.binding().map(Reference::Binding),
        }
    }

    /// Who executes a call that the user has approved: a model cannot, somebody's route may, and the demo does.
    pub fn executor(&self) -> Executor {
        match self {
            Self::OpenAi(_) | Self::Anthropic(_) => Executor::Client,
            Self::Demo(_) | Self::Ui(_) | Self::Push(_) => Executor::Producer,
        }
    }

    fn parse(producer: Option<&str>, fields: Fields) -> Result<Self, AgentsError> {
        match producer {
            Some("demo") => DemoSettings::parse(fields).map(Self::Demo),
            Some("anthropic") => AnthropicSettings::parse(fields).map(Box::new).map(Self::Anthropic),
            Some("openai") => OpenAiSettings::parse(fields).map(Box::new).map(Self::OpenAi),
            Some("ui") => UiRouteSettings::parse(fields).map(Box::new).map(Self::Ui),
            Some("push") => PushSettings::parse(fields).map(Box::new).map(Self::Push),
            Some(_) => Err(fields.error("producer", "is not known (available: demo, openai, anthropic, ui, push)")),
            None => Err(fields.error("producer", "is missing (available: demo, openai, anthropic, ui, push)")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn complaint(text: &str) -> String {
        Agents::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn chooses_by_name_then_default_then_the_only_one() {
        let both = Agents::parse(r#"{"a":{"producer":"demo"},"default":{"producer":"demo","paceMs":1}}"#).unwrap();
        assert_eq!(both.choose(Some("a")).unwrap().0, "a");
        assert_eq!(both.choose(None).unwrap().0, "default");
        assert_eq!(both.choose(Some("b")), Err(NoSuchAgent::Unknown));
        let only = Agents::parse(r#"{"a":{"producer":"demo"}}"#).unwrap();
        assert_eq!(only.choose(None).unwrap().0, "a");
        assert_eq!(only.choose(Some("default")), Err(NoSuchAgent::Unknown));
        let two = Agents::parse(r#"{"a":{"producer":"demo"},"b":{"producer":"demo"}}"#).unwrap();
        assert_eq!(two.choose(None), Err(NoSuchAgent::Unnamed));
    }

    #[test]
    fn a_request_names_its_agent_or_keeps_the_last_one() {
        let agents = Agents::parse(r#"{"a":{"producer":"demo"},"default":{"producer":"demo"}}"#).unwrap();
        let name = |named, last| agents.of_request(named, last).map(|(name, _)| name);
        assert_eq!(name(Some("a"), None), Ok("a"));
        assert_eq!(name(Some("default"), Some("a")), Ok("default"));
        assert_eq!(name(None, Some("a")), Ok("a"));
        assert_eq!(name(Some(""), Some("a")), Ok("a"));
        assert_eq!(name(None, Some("gone")), Ok("default"));
        assert_eq!(name(None, None), Ok("default"));
        assert_eq!(name(Some("gone"), Some("a")), Err(NoSuchAgent::Unknown));
        let two = Agents::parse(r#"{"a":{"producer":"demo"},"b":{"producer":"demo"}}"#).unwrap();
        assert_eq!(two.of_request(None, Some("b")).unwrap().0, "b");
        assert_eq!(two.of_request(None, Some("gone")), Err(NoSuchAgent::Unnamed));
    }

    #[test]
    fn says_what_a_send_may_do_that_finds_a_reply_under_way() {
        let text = r#"{"a":{"producer":"demo"},"b":{"producer":"demo","onBusy":"queue"},
            "c":{"producer":"openai","model":"m","onBusy":["interrupt","refuse"]}}"#;
        let agents = Agents::parse(text).unwrap();
        let allowed = |name| agents.terms(name).on_busy.map(|ways| ways.allowed());
        assert_eq!(allowed("a"), None);
        assert_eq!(allowed("b"), Some(vec![OnBusy::Queue]));
        assert_eq!(allowed("c"), Some(vec![OnBusy::Interrupt, OnBusy::Refuse]));
    }

    #[test]
    fn names_what_the_deployment_must_have() {
        let text = r#"{"a":{"producer":"demo"},"b":{"producer":"openai","model":"m","apiKey":"KEY"},
            "c":{"producer":"ui","binding":"CHAT"},"d":{"producer":"ui","url":"https://a.test"}}"#;
        let agents = Agents::parse(text).unwrap();
        let references: Vec<_> = agents.iter().map(|(_, agent)| agent.reference()).collect();
        assert_eq!(references, [None, Some(Reference::Secret("KEY")), Some(Reference::Binding("CHAT")), None]);
        let complaint = Reference::Secret("AIzaKEY").missing("b").to_string();
        assert_eq!(complaint, r#"AGENTS: agent "b": apiKey names a secret that is not set"#);
    }

    #[test]
    fn every_agent_says_whose_history_counts() {
        let agents = Agents::parse(
            r#"{"a":{"producer":"demo","history":"client"},"b":{"producer":"openai","model":"m","history":"server"},"c":{"producer":"demo"}}"#,
        )
        .unwrap();
        let history = |name| agents.terms(name).history;
        assert_eq!(["a", "b", "c", "none"].map(history), [Truth::Client, Truth::Server, Truth::Server, Truth::Server]);
        for producer in ["demo", "openai", "anthropic", "ui", "push"] {
            let text =
                format!(r#"{{"x":{{"producer":"{producer}","model":"m","url":"https://a.test","history":"client"}}}}"#);
            let refused = Agents::parse(&text).err().map(|error| error.to_string());
            assert!(refused.is_none_or(|words| !words.contains("history")), "{producer}");
        }
    }

    #[test]
    fn complains_with_agent_and_field() {
        for (text, expected) in [
            ("{}", "AGENTS must be a JSON object with at least one agent: {\"default\":{\"producer\":\"demo\"}}"),
            ("[]", "AGENTS must be a JSON object with at least one agent: {\"default\":{\"producer\":\"demo\"}}"),
            (r#"{"x":1}"#, r#"AGENTS: agent "x": (the agent) must be an object"#),
            (r#"{"x":{}}"#, r#"AGENTS: agent "x": producer is missing (available: demo, openai, anthropic, ui, push)"#),
            (
                r#"{"x":{"producer":"dmeo"}}"#,
                r#"AGENTS: agent "x": producer is not known (available: demo, openai, anthropic, ui, push)"#,
            ),
            (r#"{"x":{"producer":"demo","pace":1}}"#, r#"AGENTS: agent "x": pace is not known"#),
            (r#"{"x":{"producer":"demo","history":"mine"}}"#, r#"AGENTS: agent "x": history must be client or server"#),
            (
                r#"{"x":{"producer":"demo","history":1}}"#,
                r#"AGENTS: agent "x": history must be a string that is not empty"#,
            ),
            (
                r#"{"x":{"producer":"demo","paceMs":-1}}"#,
                r#"AGENTS: agent "x": paceMs must be a whole number from 0 to 60000"#,
            ),
            (
                r#"{"x":{"producer":"demo","onBusy":["queue","wait"]}}"#,
                r#"AGENTS: agent "x": onBusy must be refuse, interrupt or queue, or a list of them"#,
            ),
            (
                r#"{"x":{"producer":"demo","onBusy":[]}}"#,
                r#"AGENTS: agent "x": onBusy must be refuse, interrupt or queue, or a list of them"#,
            ),
            (r#"{"x":{"producer":"openai"}}"#, r#"AGENTS: agent "x": model is missing"#),
            (r#"{"x":{"producer":"anthropic"}}"#, r#"AGENTS: agent "x": model is missing"#),
            (
                r#"{"x":{"producer":"openai","model":"m","tools":[{"name":"a b"}]}}"#,
                r#"AGENTS: agent "x": tools[0].name must have 1 to 64 letters, digits, - or _"#,
            ),
        ] {
            assert_eq!(complaint(text), expected);
        }
        assert!(complaint("{").starts_with("AGENTS is not JSON: "));
    }

    #[test]
    fn never_quotes_a_key_that_stands_where_a_name_belongs() {
        let complaint = complaint(r#"{"x":{"producer":"openai","model":"m","apiKey":"sk-proj-123"}}"#);
        assert!(complaint.contains("apiKey must be the name of a secret"), "{complaint}");
        assert!(!complaint.contains("sk-proj"));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,100}") {
            let _ = Agents::parse(&text);
        }
    }
}

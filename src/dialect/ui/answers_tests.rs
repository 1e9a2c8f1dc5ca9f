//! Each answer lands on exactly the call that it names, or is refused: random turns of a producer that numbers its calls anew, with retries,
//! edits, reloads and answers by nothing but an id.

use proptest::prelude::*;
use serde_json::json;

use super::own_ids::with_own_ids;
use super::tool_result::{Answer, abandon, apply, chunks, has_call, waits};
use super::tool_submit::parse_tool_result;
use super::writer::RunWriter;
use crate::core::approval::Executor;
use crate::core::caller::Caller;
use crate::core::chunk::Chunk;
use crate::core::command::{Abandoned, Entry, Input, RewindCause, Start};
use crate::core::ids::{MessageId, RunId};
use crate::core::log::Ticket;
use crate::core::record::{Commit, Record};
use crate::core::retention::{Kept, Policy};
use crate::core::run::{Outcome, RunStatus, Vocabulary};
use crate::core::session::Session;
use crate::core::storage::Storage;
use crate::core::storage::double::Double;
use crate::core::time::{Millis, UnixMillis};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

const NOW: UnixMillis = UnixMillis::new(1_000);
const LEASE: Millis = Millis::new(30_000);
const POLICY: Policy = Policy { lease: LEASE, retention: LEASE, ttl: None, max_bytes: u64::MAX, detached: None };

#[derive(Clone, Debug)]
enum Deed {
    /// A turn whose producer makes calls of these ids.
    Send(Vec<&'static str>),
    /// The last turn once more.
    Retry(Vec<&'static str>),
    /// The first message again, in other words.
    Edit(Vec<&'static str>),
    /// A result for the n-th call of all that were ever shown. What the run goes on with, should it be the last answer.
    Answer(prop::sample::Index, Vec<&'static str>),
    Reload,
}

/// A call as its client knows it.
#[derive(Clone, Debug, PartialEq)]
struct Shown {
    own: &'static str,
    turn: u32,
    message: MessageId,
    output: Option<Value>,
}

struct World {
    storage: Double,
    session: Session,
    shown: BTreeMap<String, Shown>,
    count: u32,
}

impl World {
    fn new() -> Self {
        Self {
            storage: Double::new(),
            session: Session::load(None, POLICY, false, Ticket::FIRST),
            shown: BTreeMap::new(),
            count: 0,
        }
    }

    fn message(&self, index: u32) -> Option<Value> {
        let count = self.session.message_count();
        let row = self.storage.message_at(index).unwrap().filter(|row| row.index < count)?;
        Some(serde_json::from_str(&row.json).unwrap())
    }

    /// The suspended run's message.
    fn waiting(&self) -> Option<Value> {
        let run = self.session.run().filter(|run| run.status == RunStatus::SuspendedClientTool)?;
        self.message(run.message_index)
    }

    fn input(&mut self) -> Input {
        self.count += 1;
        let json =
            json!({"id": format!("u{}", self.count), "role": "user", "parts": [{"type": "text", "text": "go on"}]});
        Input { id: MessageId::new(format!("u{}", self.count)), json: json.to_string() }
    }

    fn send(&mut self, owns: &[&'static str]) {
        let abandoned = self.waiting().map(|message| abandon(message).to_string());
        let input = self.input();
        let abandoned = abandoned.map(|message| Abandoned { message: Some(message) });
        self.run(Entry::Send { input, abandoned }, None, owns);
    }

    fn rewind(&mut self, to_first: bool, owns: &[&'static str]) {
        let users: Vec<u32> = (0..self.session.message_count())
            .filter(|index| self.message(*index).is_some_and(|message| message["role"] == "user"))
            .collect();
        let (Some(first), Some(last)) = (users.first(), users.last()) else { return };
        let (keep, input) = if to_first { (*first, Some(self.input())) } else { (last + 1, None) };
        let cause = if to_first { RewindCause::Rollback } else { RewindCause::Retry };
        self.run(Entry::Rewind { keep, input, cause }, None, owns);
    }

    /// A run that makes one step with these calls.
    fn run(&mut self, entry: Entry, continued: Option<(Value, Vec<Chunk>)>, owns: &[&'static str]) {
        self.count += 1;
        let plan = self.session.plan(Start {
            now: NOW,
            caller: &Caller::Anonymous,
            run: RunId::new(format!("r{}", self.count)),
            salt: "salt",
            agent: "default",
            vocabulary: Vocabulary::Ui,
            lease: LEASE,
            key: None,
            entry,
            push: None,
            state: None,
        });
        let plan = plan.unwrap();
        let opening = plan.opening();
        let writer = match &continued {
            Some((message, _)) => RunWriter::continuing(opening.run.clone(), message.clone()),
            None => RunWriter::new(opening.run.clone(), opening.message_id.clone()),
        };
        let mut writer = writer.among(opening.calls.clone());
        let mut records = writer.open();
        for answer in continued.iter().flat_map(|(_, answers)| answers) {
            records.extend(writer.inherit(answer.clone()));
        }
        let started = self.session.start(plan, &records);
        let started = started.unwrap();
        self.storage.apply(&started.effects.writes).unwrap();
        let mut records = writer.write(Chunk::new("start-step"));
        let turn = self.session.run().unwrap().turn;
        let met: BTreeSet<&'static str> = owns.iter().copied().collect();
        for own in met.iter().copied() {
            let call =
                Chunk::new("tool-input-available").with("toolCallId", own).with("toolName", "f").with("input", turn);
            let said = writer.write(call);
            let named = said.iter().find_map(|record| match record {
                Record::Chunk { chunk, .. } => chunk.text("toolCallId"),
                _ => None,
            });
            let shown = Shown { own, turn, message: started.message_id.clone(), output: None };
            let before = self.shown.insert(named.unwrap().to_owned(), shown);
            assert_eq!(before, None, "an id is shown for one call only");
            records.extend(said);
        }
        records.extend(writer.complete());
        let outcome = if met.is_empty() { Outcome::Completed } else { Outcome::Suspended };
        let finished = self.session.finish(NOW, &started.fence, outcome, &records).unwrap();
        self.storage.apply(&finished.writes).unwrap();
    }

    /// A result for a call, named by its id alone. Whether it is taken.
    fn answer(&mut self, id: &str, output: u32, owns: &[&'static str]) -> bool {
        let Some(stored) = self.waiting().filter(|stored| has_call(stored, id)) else { return false };
        let body = json!({"toolCallId": id, "output": output}).to_string();
        let submitted = parse_tool_result(body.as_bytes()).unwrap();
        let Ok(Some(answer)) = submitted.admit(&stored, Executor::Client) else { return false };
        self.take(stored, answer, owns);
        true
    }

    fn take(&mut self, stored: Value, answer: Answer, owns: &[&'static str]) {
        let answers = [answer];
        let told = chunks(&answers, &stored, Executor::Client);
        let message = apply(stored, &answers);
        if !waits(&message, &answers, Executor::Client) {
            return self.run(Entry::Results { message: Some(message.to_string()) }, Some((message, told)), owns);
        }
        let mut records: Vec<Record> = told.into_iter().map(|chunk| Record::Chunk { chunk, attempt: None }).collect();
        records.push(Record::Commit(Commit { message, step_count: 1, state: None }));
        let fence = self.session.run().unwrap().fence();
        let effects = self.session.answer(&fence, &records).unwrap();
        self.storage.apply(&effects.writes).unwrap();
    }

    fn check(&self) {
        let ids = self.session.calls();
        for (id, call) in &self.shown {
            assert_eq!((ids.turn_of(id), ids.own_of(id)), (Some(call.turn), call.own), "{id}");
        }
        for index in 0..self.session.message_count() {
            let message = self.message(index).unwrap();
            let told = with_own_ids(message.clone(), ids);
            let calls = |message: &Value| -> Vec<Value> {
                let parts = message["parts"].as_array().unwrap().iter();
                parts.filter(|part| part.get("toolCallId").is_some()).cloned().collect()
            };
            for (part, told) in calls(&message).into_iter().zip(calls(&told)) {
                let call = &self.shown[part["toolCallId"].as_str().unwrap()];
                assert_eq!((&message["id"], &told["toolCallId"]), (&json!(call.message.as_str()), &json!(call.own)));
                assert_eq!(part["input"], call.turn, "the call that was shown under its id");
                assert_eq!(part.get("output"), call.output.as_ref(), "{part}");
            }
        }
    }
}

fn deeds() -> impl Strategy<Value = Deed> {
    let owns = || prop::collection::vec(prop::sample::select(vec!["f:0", "f:1", "f:0_2"]), 0..4);
    prop_oneof![
        3 => owns().prop_map(Deed::Send),
        2 => owns().prop_map(Deed::Retry),
        1 => owns().prop_map(Deed::Edit),
        8 => (any::<prop::sample::Index>(), owns()).prop_map(|(call, owns)| Deed::Answer(call, owns)),
        2 => Just(Deed::Reload),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn each_answer_lands_on_the_call_that_it_names_or_is_refused(deeds in prop::collection::vec(deeds(), 1..30)) {
        let mut world = World::new();
        for (at, deed) in deeds.into_iter().enumerate() {
            match deed {
                Deed::Send(owns) => world.send(&owns),
                Deed::Retry(owns) => world.rewind(false, &owns),
                Deed::Edit(owns) => world.rewind(true, &owns),
                Deed::Reload => {
                    let stored = world.storage.load().unwrap();
                    world.session = Session::load(stored, POLICY, false, Ticket::FIRST);
                    // From here on it knows how large it is.
                    world.session.retain(NOW, &Kept { bytes: 0, runs: Vec::new() }, 0);
                }
                Deed::Answer(_, _) if world.shown.is_empty() => {}
                Deed::Answer(call, owns) => {
                    let ids: Vec<String> = world.shown.keys().cloned().collect();
                    let id = call.get(&ids);
                    let run = world.session.run().cloned().unwrap();
                    let call = world.shown[id].clone();
                    let expected = run.status == RunStatus::SuspendedClientTool
                        && run.message_id == call.message
                        && call.output.is_none();
                    prop_assert_eq!(world.answer(id, at as u32, &owns), expected);
                    if expected {
                        world.shown.get_mut(id).unwrap().output = Some(json!(at));
                    }
                }
            }
            world.check();
        }
    }
}

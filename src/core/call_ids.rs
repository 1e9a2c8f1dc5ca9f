//! The ids of a session's tool calls: each names one call for ever, whatever its producer calls it.
//!
//! A producer numbers its calls as it likes, and many begin anew in each turn. So the first use of an id keeps it, also when its message is
//! cut or its run is superseded, and a repeat is named `<id>_<n>`. Clients know the name, the producer its own id: whoever speaks to the
//! producer translates back ([`CallIds::own_of`]), whoever listens to it translates forth ([`CallIds::uses`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::storage::CallRow;

/// Longest id, in bytes, that is kept track of. No answer can name a longer one (`ui::tool_result` takes 256 characters).
const MAX_BYTES: usize = 1024;

/// A call that has got its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallName {
    /// Its name in the session.
    pub id: String,
    /// Its producer's own id, when that is another.
    pub own: Option<String>,
}

/// The calls of some runs.
#[derive(Clone, Debug, Default)]
struct Names {
    /// By name: the turn of the run that began the call, and the producer's own id, when it is another.
    calls: BTreeMap<String, (u32, Option<String>)>,
    /// By the producer's own id: the names, oldest first.
    uses: BTreeMap<String, Vec<String>>,
}

impl Names {
    fn take(&mut self, turn: u32, name: CallName) {
        let CallName { id, own } = name;
        self.uses.entry(own.clone().unwrap_or_else(|| id.clone())).or_default().push(id.clone());
        self.calls.insert(id, (turn, own));
    }

    fn uses_of(&self, own: &str) -> &[String] {
        self.uses.get(own).map(Vec::as_slice).unwrap_or_default()
    }
}

/// The ids that a session's calls have taken. A clone shares what earlier runs took.
#[derive(Clone, Debug, Default)]
pub struct CallIds {
    before: Arc<Names>,
    /// Those of the run of `turn`.
    here: Names,
    turn: u32,
}

impl CallIds {
    /// From the session's rows; `turn` is that of its last run.
    pub fn of_rows(rows: Vec<CallRow>, turn: u32) -> Self {
        let (mut before, mut here) = (Names::default(), Names::default());
        for CallRow { id, own, turn: at } in rows {
            let names = if at == turn { &mut here } else { &mut before };
            names.take(at, CallName { id, own });
        }
        Self { before: Arc::new(before), here, turn }
    }

    /// The run of this turn begins: the last one's calls are earlier ones from now on.
    pub fn begin_run(&mut self, turn: u32) {
        let Names { calls, uses } = std::mem::take(&mut self.here);
        if !calls.is_empty() {
            let before = Arc::make_mut(&mut self.before);
            before.calls.extend(calls);
            for (own, names) in uses {
                before.uses.entry(own).or_default().extend(names);
            }
        }
        self.turn = turn;
    }

    /// Names a new call of the run, whose producer calls it `own`. `None` for an id that no answer can name: it stays as it is.
    pub fn name(&mut self, own: &str) -> Option<CallName> {
        let name = self.next_name(own, |_| false)?;
        self.take(name.clone());
        Some(name)
    }

    /// The name that [`CallIds::name`] would give, where some more are in use.
    pub fn next_name(&self, own: &str, in_use: impl Fn(&str) -> bool) -> Option<CallName> {
        if own.is_empty() || own.len() > MAX_BYTES {
            return None;
        }
        let mut id = own.to_owned();
        let mut count = 1_usize;
        let is_taken = |id: &str| self.is_taken(id) || in_use(id);
        // The n-th use is named so, unless that is another call's own id.
        if is_taken(own) {
            count = self.uses(own).count().max(1);
        }
        while is_taken(&id) {
            count = count.saturating_add(1);
            id = format!("{own}_{count}");
        }
        Some(CallName { own: (id != own).then(|| own.to_owned()), id })
    }

    /// Takes note of a call of the run that has its name.
    pub fn take(&mut self, name: CallName) {
        if !self.is_taken(&name.id) {
            self.here.take(self.turn, name);
        }
    }

    /// Whether a call of the session has this name.
    pub fn is_taken(&self, id: &str) -> bool {
        self.turn_of(id).is_some()
    }

    /// The turn of the run that began the call of this name.
    pub fn turn_of(&self, id: &str) -> Option<u32> {
        self.call(id).map(|(turn, _)| *turn)
    }

    /// Whether the run itself began the call of this name.
    pub fn is_own_run(&self, id: &str) -> bool {
        self.here.calls.contains_key(id)
    }

    /// What the producer calls the call of this name.
    pub fn own_of<'a>(&'a self, id: &'a str) -> &'a str {
        self.call(id).and_then(|(_, own)| own.as_deref()).unwrap_or(id)
    }

    /// The names of the calls to which producers gave this id, oldest first.
    pub fn uses(&self, own: &str) -> impl DoubleEndedIterator<Item = &str> {
        self.before.uses_of(own).iter().chain(self.here.uses_of(own)).map(String::as_str)
    }

    fn call(&self, id: &str) -> Option<&(u32, Option<String>)> {
        self.here.calls.get(id).or_else(|| self.before.calls.get(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn named(ids: &mut CallIds, own: &str) -> String {
        ids.name(own).unwrap().id
    }

    #[test]
    fn the_first_use_keeps_its_id_and_a_repeat_is_numbered() {
        let mut ids = CallIds::default();
        ids.begin_run(1);
        assert_eq!(["c", "c", "d", "c_2"].map(|own| named(&mut ids, own)), ["c", "c_2", "d", "c_2_2"]);
        ids.begin_run(2);
        assert_eq!(["c", "c_2"].map(|own| named(&mut ids, own)), ["c_3", "c_2_3"]);
        assert_eq!(ids.uses("c").collect::<Vec<_>>(), ["c", "c_2", "c_3"]);
        assert_eq!(["c", "c_2", "c_2_2", "c_3"].map(|id| ids.own_of(id)), ["c", "c", "c_2", "c"]);
        assert_eq!(["c", "c_2_2", "c_3", "unknown"].map(|id| ids.turn_of(id)), [Some(1), Some(1), Some(2), None]);
        assert_eq!([ids.is_own_run("c"), ids.is_own_run("c_3")], [false, true]);
    }

    #[test]
    fn an_id_that_no_answer_can_name_is_left_alone() {
        let mut ids = CallIds::default();
        assert_eq!((ids.name(""), ids.name(&"x".repeat(MAX_BYTES + 1))), (None, None));
    }

    proptest! {
        #[test]
        fn a_name_is_given_once_and_leads_back(owns in prop::collection::vec(("[ab](_[23])?", any::<bool>()), 0..40)) {
            let mut ids = CallIds::default();
            let (mut turn, mut rows) = (1, Vec::new());
            ids.begin_run(turn);
            for (own, begins) in owns {
                if begins {
                    turn += 1;
                    ids.begin_run(turn);
                }
                prop_assert!(rows.iter().any(|row: &CallRow| row.id == own) == ids.is_taken(&own));
                let CallName { id, own: kept } = ids.name(&own).unwrap();
                prop_assert!(rows.iter().all(|row| row.id != id), "{id} twice");
                prop_assert_eq!(ids.own_of(&id), &own);
                prop_assert_eq!(ids.uses(&own).next_back(), Some(id.as_str()));
                rows.push(CallRow { id, own: kept, turn });
            }
            let again = CallIds::of_rows(rows.clone(), turn);
            for row in rows {
                prop_assert_eq!((again.turn_of(&row.id), again.own_of(&row.id)), (Some(row.turn), ids.own_of(&row.id)));
                prop_assert_eq!(again.is_own_run(&row.id), ids.is_own_run(&row.id));
                let own = ids.own_of(&row.id);
                prop_assert_eq!(again.uses(own).collect::<Vec<_>>(), ids.uses(own).collect::<Vec<_>>());
            }
        }
    }
}

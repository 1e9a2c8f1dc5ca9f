//! Rows written are money (DESIGN.md section 9): counted on native SQLite, where the object counts the same rows.

use super::examples::{NOW, POLICY, chunk, chunk_of, commit, start};
use crate::core::command::Effects;
use crate::core::log::Ticket;
use crate::core::run::Outcome;
use crate::core::session::Session;
use crate::core::storage::Storage;
use crate::core::storage::native::Native;

const STEPS: u32 = 3;
const FLUSHES: u32 = 50;

#[test]
fn a_run_of_three_steps_and_fifty_flushes() {
    let (storage, mut session) = (Native::open(), Session::load(None, POLICY, false, Ticket::FIRST));
    // The schema is written once in a session's life: the second run is counted.
    for (run, budget) in [("r1", None), ("r2", Some(u64::from(FLUSHES) + 12 + u64::from(FLUSHES) / 50))] {
        let mut rows = 0;
        let mut flush = |session: &mut Session, effects: Effects| {
            rows += storage.apply(&effects.writes).unwrap();
            session.confirmed(effects.ticket);
        };
        let started = start(&mut session, run, &[chunk("run_started"), chunk("start")]).unwrap();
        flush(&mut session, started.effects);
        // The opening and the end are flushes too.
        for at in 1..FLUSHES - 1 {
            let step = at * STEPS / FLUSHES + 1;
            let last = (at + 1) * STEPS / FLUSHES + 1 > step;
            let mut records = vec![chunk_of(step, &"word ".repeat(12)); 3];
            if last {
                records.push(commit(&format!("\"step {step}\""), step));
            }
            let effects = session.append(&started.fence, &records).unwrap();
            flush(&mut session, effects);
        }
        let end = [chunk_of(STEPS, "finish"), commit("\"all\"", STEPS)];
        let effects = session.finish(NOW, &started.fence, Outcome::Completed, &end).unwrap();
        flush(&mut session, effects);
        if let Some(budget) = budget {
            assert!(rows <= budget, "{rows} rows, at most {budget}");
            assert_eq!(rows, 62);
            let kept = storage.kept(session.log().floor()).unwrap();
            let cut = session.retain(NOW.after(POLICY.retention), &kept, 0).unwrap();
            let blocks = storage.counts().unwrap().iter().find(|(table, _)| table == "chunk_block").unwrap().1;
            assert_eq!((storage.apply(&cut.writes), blocks), (Ok(blocks + 1), 8), "a row a block, and the session's");
        }
    }
}

//! Many schedules, on two threads: the first seed that fails is told with its trace.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::subject::{Subject, Verdict, Violation};
use crate::trace::Trace;
use crate::world::{Tally, World};

const THREADS: u64 = 2;

/// What a campaign came to.
#[derive(Debug)]
pub struct Outcome {
    /// Schedules that ran.
    pub schedules: u64,
    /// What they met.
    pub tally: Tally,
    /// How long it took.
    pub took: Duration,
    /// The first seed that fails, and how.
    pub found: Option<(u64, Violation)>,
}

/// Runs the schedules of `count` seeds from `seed` on, at most to the first that fails.
#[allow(clippy::disallowed_methods, reason = "the campaign is measured; the worlds in it know no clock")]
pub fn run<S: Subject + Sync>(subject: &S, seed: u64, count: u64) -> Outcome {
    let began = Instant::now();
    let (next, limit) = (AtomicU64::new(0), AtomicU64::new(count));
    let shared = Mutex::new((0_u64, Tally::default(), None::<(u64, Violation)>));
    let work = |is_first: bool| {
        let mut told = began;
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            if place >= limit.load(Ordering::Relaxed) {
                return;
            }
            let (verdict, tally) = schedule(subject, seed + place, Trace::default());
            let mut shared = shared.lock().unwrap();
            shared.0 += 1;
            shared.1.add(tally);
            if let Err(violation) = verdict
                && shared.2.as_ref().is_none_or(|(first, _)| seed + place < *first)
            {
                limit.fetch_min(place, Ordering::Relaxed);
                shared.2 = Some((seed + place, violation));
            }
            if is_first && told.elapsed() >= Duration::from_secs(5) {
                told = Instant::now();
                eprintln!("· {}: {} of {count} schedules in {} s", S::NAME, shared.0, began.elapsed().as_secs());
            }
        }
    };
    std::thread::scope(|scope| {
        let work = &work;
        (0..THREADS).for_each(|thread| drop(scope.spawn(move || work(thread == 0))));
    });
    let (schedules, tally, found) = shared.into_inner().unwrap();
    Outcome { schedules, tally, took: began.elapsed(), found }
}

/// One schedule. A panic of the world itself is a finding as well.
pub fn schedule<S: Subject>(subject: &S, seed: u64, trace: Trace) -> (Verdict, Tally) {
    let (verdict, tally, _) = traced(subject, seed, trace);
    (verdict, tally)
}

/// The readable trace of one schedule.
pub fn trace_of<S: Subject>(subject: &S, seed: u64) -> String {
    let (verdict, _, trace) = traced(subject, seed, Trace::written());
    match verdict {
        Ok(()) => format!("{}\n\nseed {seed} of {}: nothing found", trace.text(), S::NAME),
        Err(violation) => format!("{}\n\nseed {seed} of {}: {violation}", trace.text(), S::NAME),
    }
}

fn traced<S: Subject>(subject: &S, seed: u64, trace: Trace) -> (Verdict, Tally, Trace) {
    let mut world = World::new(subject, seed, trace);
    let verdict = catch_unwind(AssertUnwindSafe(|| world.run()));
    let verdict = verdict.unwrap_or_else(|_| Err("the world itself has panicked".into()));
    (verdict, world.tally, world.trace)
}

/// The campaign of `make test` and `make sim`: `COUNT` schedules from `SEED` on. One schedule alone is always told.
///
/// # Panics
/// When something is found, with the trace.
pub fn must_hold<S: Subject + Sync>(subject: &S) {
    let (count, seed) = (number("COUNT").unwrap_or(10_000), number("SEED").unwrap_or(1));
    let outcome = run(subject, seed, count);
    let Outcome { schedules, tally, took, found } = &outcome;
    eprintln!(
        "· {}: {schedules} schedules from seed {seed} in {:.1} s; each {} steps, {} of calm, {} turns; {} crashes, {} panics, \
         {} failed syncs",
        S::NAME,
        took.as_secs_f64(),
        tally.steps / schedules.max(&1),
        tally.calm / schedules.max(&1),
        tally.turns / schedules.max(&1),
        tally.crashes,
        tally.panics,
        tally.unconfirmed,
    );
    if let Some((seed, violation)) = found {
        eprintln!("{}", trace_of(subject, *seed));
        panic!("seed {seed} of {0}: {violation}\nagain: make sim COUNT=1 SEED={seed} SUBJECT={0}", S::NAME);
    }
    if count == 1 {
        eprintln!("{}", trace_of(subject, seed));
    }
}

/// The campaign of a planted fault: the first schedule that shows it is among these.
///
/// # Panics
/// When none shows it.
pub fn must_find<S: Subject + Sync>(subject: &S, plant: &str, within: u64) {
    match run(subject, 1, within).found {
        Some((seed, violation)) => {
            let short: String = violation.chars().take(120).collect();
            eprintln!("· {} with {plant}: seed {seed}: {short}", S::NAME);
        }
        None => panic!("{plant} of {} was not found in {within} schedules", S::NAME),
    }
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.steps += other.steps;
        self.calm += other.calm;
        self.turns += other.turns;
        self.crashes += other.crashes;
        self.panics += other.panics;
        self.unconfirmed += other.unconfirmed;
    }
}

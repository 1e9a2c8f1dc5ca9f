//! What happens next: at random while the schedule lasts, and then, in the calm, whatever can.

use rejoin::core::engine::event::Event;
use rejoin::core::engine::ids::Exchange;
use rejoin::core::time::UnixMillis;

use crate::disk::Mishap;
use crate::network::Line;
use crate::subject::{Subject, Verdict, Violation};
use crate::world::World;

/// How often something else is tried until something happens.
const TRIES: u32 = 6;

/// More steps than any calm takes: what needs them never ends.
const CALM_STEPS: u64 = 20_000;

impl<S: Subject> World<S> {
    /// The whole schedule.
    ///
    /// # Errors
    /// What was found.
    pub fn run(&mut self) -> Verdict {
        for _ in 0..60 + self.rng.below(180) {
            self.tally.steps += 1;
            // What cannot happen at this moment is no step.
            for _ in 0..TRIES {
                if self.step()? {
                    break;
                }
            }
        }
        self.calm_down()
    }

    /// Something at random; `false` when it could not happen.
    fn step(&mut self) -> Result<bool, Violation> {
        if self.cycle.has_news() && !self.rng.one_in(3) {
            return self.turn().map(|()| true);
        }
        Ok(match self.rng.below(100) {
            0..6 => self.time_passes(),
            6..11 => self.alarm_may_ring(),
            11..15 => self.timer_may_fire(),
            15..27 => {
                let fails = self.fails_once_in(15);
                self.sync_ends(fails)
            }
            27..30 => self.fails_once_in(1) && self.disk_will_fail(),
            30 => self.fails_once_in(2) && self.crash(),
            31..34 => self.left_may_be_told(),
            34..42 => {
                let breaks = self.fails_once_in(15);
                self.call_goes_on(breaks)
            }
            42..50 => {
                let wanted = self.lines_that(Line::is_wanted);
                let breaks = self.fails_once_in(30);
                self.rng.pick(&wanted).is_some_and(|exchange| self.upload(exchange, breaks))
            }
            50..52 => return self.network_fails(),
            52..72 => {
                let place = self.rng.below(self.clients.len());
                self.client_acts(place)
            }
            _ => {
                let arrived = self.something_arrives()?;
                // Most of what is on the way arrives together.
                while arrived && !self.rng.one_in(3) && self.something_arrives()? {}
                arrived
            }
        })
    }

    /// Nothing fails any more: everybody must come to an end, within bounds.
    fn calm_down(&mut self) -> Verdict {
        self.trace.note(self.now, || "CALM".into());
        self.is_calm = true;
        self.disk.plan(None);
        let until = UnixMillis::new(self.now.get() + S::PATIENCE);
        self.lines.values_mut().for_each(|line| line.stalled = UnixMillis::default());
        while self.now <= until && self.tally.calm < CALM_STEPS {
            self.tally.calm += 1;
            if !self.goes_on()? {
                let is_done = self.clients.iter().flatten().all(|client| client.is_done());
                if is_done && self.lines.is_empty() {
                    return self.check_end();
                }
                if !self.clock_goes_on() {
                    break;
                }
            }
        }
        Err(format!("they wait for ever: {}", self.who_waits()))
    }

    /// One thing that can happen without time passing, if there is one.
    fn goes_on(&mut self) -> Result<bool, Violation> {
        if self.cycle.has_news() {
            self.turn()?;
        } else if self.sync.is_some() && self.rng.one_in(2) {
            self.sync_ends(false);
        } else if self.something_arrives()? || self.call_goes_on(false) || self.all_upload() {
        } else if let Some(left) = self.leaving.iter().position(|(at, _)| *at <= self.now) {
            self.tell_left(left);
        } else if self.sync.is_some() {
            self.sync_ends(false);
        } else if self.timer.is_some_and(|at| at <= self.now) {
            self.timer_may_fire();
        } else if self.alarm().is_some_and(|at| at <= self.now) {
            self.ring();
        } else {
            let first = self.rng.below(self.clients.len());
            let count = self.clients.len();
            return Ok((0..count).any(|place| self.client_acts((place + first) % count)));
        }
        Ok(true)
    }

    /// Time passes until the next thing that is due; `false` when there is none.
    fn clock_goes_on(&mut self) -> bool {
        let leaving = self.leaving.iter().map(|(at, _)| *at).min();
        let wakes = self.clients.iter().flatten().filter_map(|client| client.wakes_at()).min();
        let due = [self.timer, self.alarm(), leaving, wakes].into_iter().flatten().min();
        self.now = self.now.max(due.unwrap_or_default());
        self.trace.note(self.now, || "time passes".into());
        due.is_some()
    }

    fn disk_will_fail(&mut self) -> bool {
        let mishap = self.rng.pick(&[Mishap::Before, Mishap::After, Mishap::After, Mishap::Read, Mishap::Panic]);
        self.trace.note(self.now, || format!("the disk plans {mishap:?}"));
        self.disk.plan(mishap);
        false
    }

    fn time_passes(&mut self) -> bool {
        let (now, rng) = (self.now.get(), &mut self.rng);
        let later = match rng.below(40) {
            0 => now + rng.below(20_000) as u64,
            1 => now.saturating_sub(rng.below(1_000) as u64),
            2..20 => now + rng.below(20) as u64,
            _ => now + rng.below(300) as u64,
        };
        self.now = UnixMillis::new(later);
        true
    }

    fn alarm_may_ring(&mut self) -> bool {
        let rings = self.alarm().is_some_and(|at| at <= self.now);
        if rings {
            self.ring();
            // It comes at least once.
            if self.rng.one_in(8) {
                self.tell(Event::Rang);
            }
        }
        rings
    }

    fn timer_may_fire(&mut self) -> bool {
        let fired = self.timer.take_if(|at| *at <= self.now).is_some();
        if fired {
            self.tell(Event::Timer);
        }
        fired
    }

    fn left_may_be_told(&mut self) -> bool {
        let due: Vec<usize> = (0..self.leaving.len()).filter(|place| self.leaving[*place].0 <= self.now).collect();
        let place = self.rng.pick(&due);
        place.into_iter().for_each(|place| self.tell_left(place));
        place.is_some()
    }

    fn call_goes_on(&mut self, breaks: bool) -> bool {
        let next = self.calls.next(breaks, &mut self.rng);
        let came = next.is_some();
        next.into_iter().for_each(|(fetch, news)| self.tell(Event::Fetched { fetch, news }));
        came
    }

    fn all_upload(&mut self) -> bool {
        let wanted = self.lines_that(Line::is_wanted);
        wanted.into_iter().any(|exchange| self.upload(exchange, false))
    }

    fn something_arrives(&mut self) -> Result<bool, Violation> {
        let now = self.now;
        let ready = self.lines_that(|line| line.can_deliver(now));
        let Some(exchange) = self.rng.pick(&ready) else { return Ok(false) };
        self.deliver(exchange)?;
        Ok(true)
    }

    fn network_fails(&mut self) -> Result<bool, Violation> {
        let heard = self.lines_that(|line| line.is_heard);
        let Some(exchange) = self.rng.pick(&heard) else { return Ok(false) };
        if self.fails_once_in(2) {
            return self.cut(exchange).map(|()| true);
        }
        let until = UnixMillis::new(self.now.get() + self.rng.below(2_000) as u64);
        self.trace.note(self.now, || format!("  #{} stalls", exchange.get()));
        self.lines.get_mut(&exchange).into_iter().for_each(|line| line.stalled = until);
        Ok(true)
    }

    fn lines_that(&self, is_so: impl Fn(&Line) -> bool) -> Vec<Exchange> {
        self.lines.iter().filter(|(_, line)| is_so(line)).map(|(exchange, _)| *exchange).collect()
    }
}

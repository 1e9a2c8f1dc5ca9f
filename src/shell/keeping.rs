//! What the object does so that nothing is kept for longer than it should be: retention, the size limit, the end of an idle session.

use std::rc::Rc;

use super::clock::now;
use super::host::{Host, HostError};
use crate::core::command::{Effects, WriteRefused};
use crate::core::run::Outcome;
use crate::core::session::Session;
use crate::core::storage::{RunRow, Storage};

impl Host {
    /// Cuts the log where retention says so, and until `wanted` bytes more fit.
    fn make_room_for(self: &Rc<Self>, wanted: u64) -> Result<(), HostError> {
        let floor = self.session(|session| session.log().floor())?;
        let kept = self.storage.kept(floor)?;
        match self.session(|session| session.retain(now(), &kept, wanted))? {
            Some(effects) => self.persist(effects),
            None => Ok(()),
        }
    }

    /// Cuts the log if it is time.
    pub fn retain(self: &Rc<Self>) -> Result<(), HostError> {
        if self.session(|session| session.retains(now()))? { self.make_room_for(0) } else { Ok(()) }
    }

    /// A write for which room is made once, if that is all it lacks.
    pub fn write_with_room(
        self: &Rc<Self>,
        mut write: impl FnMut(&mut Session) -> Result<Effects, WriteRefused>,
    ) -> Result<Result<Effects, WriteRefused>, HostError> {
        match self.session(&mut write)? {
            Err(WriteRefused::NoRoom { wanted }) => self.make_room_for(wanted)?,
            answered => return Ok(answered),
        }
        self.session(write)
    }

    /// Deletes a session that was idle for too long; asked before anything else is answered.
    pub async fn expire(self: &Rc<Self>) -> Result<(), HostError> {
        let Some(writes) = self.session(|session| session.expire(now()))? else { return Ok(()) };
        self.storage.apply(&writes)?;
        self.part_with_session().await
    }

    /// Forgets a session whose rows are gone, with its producer, its readers and its file.
    pub async fn part_with_session(self: &Rc<Self>) -> Result<(), HostError> {
        self.abandon();
        self.forget_handed_on();
        self.throw_away();
        self.part_with_readers();
        self.erase().await
    }

    /// Arms the alarm, and the watch over the run's lease, for whatever comes next.
    pub fn arm_next(self: &Rc<Self>) {
        self.watch_lease();
        if let Ok(next) = self.session(|session| session.alarm(now())) {
            self.arm(next);
        }
    }

    /// Takes note of whether somebody follows the run.
    pub fn note_followers(self: &Rc<Self>) -> Result<(), HostError> {
        let followed = self.is_followed();
        match self.session(|session| session.followed(now(), followed))? {
            Some(effects) => {
                self.persist(effects)?;
                self.arm_next();
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Stops a run that nobody has followed for too long.
    pub fn stop_detached(self: &Rc<Self>) -> Result<(), HostError> {
        let over = self.session(|session| {
            let until = session.detached_until()?;
            session.run().filter(|_| now() >= until).map(RunRow::fence)
        });
        match over? {
            Some(fence) => self.conclude(&fence, Outcome::Interrupted),
            None => Ok(()),
        }
    }
}

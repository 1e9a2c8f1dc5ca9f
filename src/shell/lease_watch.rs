//! The watch over the lease of whoever writes the run: one timer while a run is running.

use std::rc::Rc;

use futures::future::{AbortHandle, Abortable};

use super::clock::{now, sleep};
use super::host::Host;
use crate::core::run::{Fence, RunStatus};
use crate::core::time::Millis;

/// Pause before a session that could not be looked at is looked at again.
const AGAIN: Millis = Millis::new(100);

/// A watch that runs, and whom it watches. Dropping it ends it, so that no timer keeps the object in memory.
pub struct LeaseWatch {
    fence: Fence,
    lease: Millis,
    task: AbortHandle,
}

impl Drop for LeaseWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Host {
    /// Begins or ends the watch, as the run needs it.
    pub fn watch_lease(self: &Rc<Self>) {
        let lease = self.config.settings.lease;
        let watched = self.session(|session| {
            let run = session.run().filter(|run| run.status == RunStatus::Running)?;
            Some((run.fence(), run.push.as_ref().map_or(lease, |push| push.lease)))
        });
        let (Ok(watched), Ok(mut slot)) = (watched, self.lease_watch.try_borrow_mut()) else { return };
        let same = |watch: &LeaseWatch| watched.as_ref().is_some_and(|(fence, lease)| watch.is_over(fence, *lease));
        if slot.as_ref().is_some_and(same) {
            return;
        }
        *slot = watched.map(|(fence, lease)| {
            let (task, aborted) = AbortHandle::new_pair();
            let (host, ends) = (Rc::clone(self), Ends(task.clone()));
            self.spawn(async move {
                let _ends = ends;
                let _ = Abortable::new(host.look_after_lease(), aborted).await;
            });
            LeaseWatch { fence, lease, task }
        });
    }

    async fn look_after_lease(self: Rc<Self>) {
        loop {
            let pause = match self.session(|session| session.next_look(now())) {
                Ok(None) => return,
                Ok(Some(pause)) => pause,
                Err(_) => AGAIN,
            };
            sleep(pause).await;
            if self.settle_or_hear().await.is_err() {
                sleep(AGAIN).await;
            }
        }
    }
}

impl LeaseWatch {
    fn is_over(&self, fence: &Fence, lease: Millis) -> bool {
        self.fence == *fence && self.lease == lease && !self.task.is_aborted()
    }
}

/// A watch that has ended, a panic included, is begun again by whoever comes next.
struct Ends(AbortHandle);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.abort();
    }
}

//! The drive of a core that lies: a wrapper around a replica, and frames that are changed for some receivers.
//! Compiled only for such cores.

use quorate_pbft::Now;
use quorate_pbft::step::Lsn;
use quorate_service::Service;
use quorate_wire::Principal;

use super::Drive;
use crate::core::Core;
use crate::directory::Place;
use crate::journal::Journal;
use crate::meter::Meter;

impl<S: Service, M: Meter, J: Journal, C: Core> Drive<S, M, J, C> {
    /// Wraps the replica, or replaces the present wrapper.
    pub fn with_core<D: Core>(self, put: impl FnOnce(C) -> D) -> Drive<S, M, J, D> {
        Drive {
            id: self.id,
            door: self.door,
            core: put(self.core),
            executor: self.executor,
            directory: self.directory,
            peers: self.peers,
            deadlines: self.deadlines,
            outbox: self.outbox,
            counters: self.counters,
            meter: self.meter,
            journal: self.journal,
            recorder: self.recorder,
            fetched: self.fetched,
            saving: self.saving,
            stored: self.stored,
            queue: self.queue,
            admission: self.admission,
            tick_at: self.tick_at,
            sayings: self.sayings,
            transfer_meter: self.transfer_meter,
            actions: self.actions,
            steps: self.steps,
            replies: self.replies,
            result: self.result,
            frame: self.frame,
            body: self.body,
            clients: self.clients,
        }
    }

    /// Returns the wrapper, or the replica.
    pub fn core(&self) -> &C {
        &self.core
    }

    /// Lets the core send the messages that it had delayed.
    #[cold]
    pub(super) fn wake(&mut self, now: Now) {
        let mut actions = core::mem::take(&mut self.actions);
        self.core.wake(now, &mut actions);
        self.perform(&actions);
        actions.clear();
        self.actions = actions;
        self.run_tasks(now);
    }

    /// Puts a frame into the outbox, as the core changes it for each receiver.
    #[cold]
    pub(super) fn post_tampered(&mut self, whom: Option<Principal>, frame: &[u8], after: Lsn) {
        let places: Vec<Place> = match whom {
            Some(whom) => self.directory.find(whom).into_iter().collect(),
            None => self.directory.replicas().filter(|place| place.index() != self.id.index()).collect(),
        };
        self.counters.nowhere += u64::from(places.is_empty());
        for place in places {
            let mut changed = frame.to_vec();
            if self.core.tamper(place, &mut changed) {
                self.outbox.post(std::iter::once(place), &changed, after);
            }
        }
    }
}

//! The parts of a drive other than messages: its recording, its session keys, its shutdown, and access to its state.

use quorate_pbft::recording::Recorder;
use quorate_pbft::step::Lsn;
use quorate_pbft::{Now, Replica};
use quorate_service::{Executor, Service};

use super::{Counters, Drive};
use crate::core::Core;
use crate::journal::Journal;
use crate::meter::Meter;
use crate::storage::Paged;

impl<S: Service, M: Meter, J: Journal, C: Core> Drive<S, M, J, C> {
    /// Records every input from now on. Call it before [`Self::start`].
    pub fn record(&mut self, recorder: Recorder) {
        self.recorder = Some(recorder);
    }

    /// Returns the recording so far.
    pub fn recording(&self) -> Option<&[u8]> {
        self.recorder.as_ref().map(Recorder::bytes)
    }

    /// Begins a new generation of session keys (KX-2). `entropy` is fresh and secret.
    pub fn refresh_keys(&mut self, now: Now, entropy: [u8; 32]) {
        self.door.refresh(entropy, now.wall_ns.max(self.door.key_time().saturating_add(1)));
        self.send_keys();
    }

    /// Returns the time of the newest NEW-KEY: that of the next start must be later (KX-1).
    pub fn key_time(&self) -> u64 {
        self.door.key_time()
    }

    /// Hands over the view, if this is its primary: the process is about to end. Returns whether it is.
    pub fn shut_down(&mut self, now: Now) -> bool {
        let was_primary = self.core.replica().is_primary();
        let mut actions = core::mem::take(&mut self.actions);
        self.core.shut_down(now, &mut actions);
        self.perform(&actions);
        actions.clear();
        self.actions = actions;
        self.run_tasks(now);
        was_primary
    }

    /// Returns the journal.
    pub fn journal(&self) -> &J {
        &self.journal
    }

    /// Ends the drive and returns its journal.
    pub fn into_journal(self) -> J {
        self.journal
    }

    /// Returns the replica.
    pub fn replica(&self) -> &Replica {
        self.core.replica()
    }

    /// Returns the service's state.
    pub fn executor(&self) -> &Executor<S, Paged> {
        &self.executor
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the meter.
    pub fn meter(&mut self) -> &mut M {
        &mut self.meter
    }

    /// Sends the pending NEW-KEYs of the authenticator.
    pub(super) fn send_keys(&mut self) {
        while let Some((to, frame)) = self.door.take_outgoing() {
            self.outbox.post(self.directory.find(to).into_iter(), &frame, Lsn(0));
        }
    }
}

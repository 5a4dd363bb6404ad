//! A replica's statements about itself for clients that ask (PROBE, STATEMENT), for users and monitoring. It only
//! reads the core, and no part of the protocol depends on it.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use quorate_pbft::Now;
use quorate_pbft::step::{Form, Lsn, Recipient};
use quorate_service::Service;
use quorate_wire::codec::Writer;
use quorate_wire::message::{Probe, REASON_BYTES_MAX, STATED_REASONS_MAX, Statement};
use quorate_wire::{ClientId, Kind};

use super::Process;
use crate::core::Core;
use crate::observer::Observer;
use crate::statement::{Surroundings, bounded};
use crate::storage::queue::DiskQueue;
use crate::storage::store::Store;

impl<S: Service, P: Store, D: DiskQueue, C: Core> Process<S, P, D, C> {
    /// Lets statements include the process's memory and disk.
    pub fn set_surroundings(&mut self, surroundings: Box<dyn Surroundings>) {
        self.statements.set_surroundings(surroundings);
    }

    /// Lets statements include the digests of the settings that all replicas must have alike: at most 64.
    pub fn set_settings(&mut self, settings: Vec<u16>) {
        self.statements.set_settings(settings);
    }

    /// Answers a client's status request. A client that asks too often gets no answer.
    #[cold]
    pub(super) fn on_probe(
        &mut self,
        now: Now,
        client: ClientId,
        probe: Probe,
        watch: &mut impl Observer<S, P>,
    ) {
        if !self.statements.may_answer(client, now.mono_ns) {
            *self.counters.rejected.entry("too-soon").or_default() += 1;
            return;
        }
        let statement = self.statement(now, probe.nonce);
        let mut body = core::mem::take(&mut self.body);
        body.clear();
        statement.encode(&mut Writer::new(&mut body));
        self.send(Recipient::Client(client), Kind::Statement, Form::Body, &body, Lsn(0), watch);
        self.body = body;
    }

    /// Returns this replica's statement.
    pub fn statement(&mut self, now: Now, nonce: u64) -> Statement {
        let (state, page_bytes) = (self.core.replica().state(), self.statements.page_bytes());
        let progress = self.executor.progress();
        let transfer = progress.map_or((0, 0), |progress| {
            (progress.fetched.saturating_mul(page_bytes), progress.total.saturating_mul(page_bytes))
        });
        Statement {
            view: state.view,
            executed: state.executed,
            committed: self.statements.committed().max(state.executed),
            low: state.low,
            high: state.high,
            in_view_change: !state.normal,
            transferring: state.transferring,
            rejoining: state.recovering,
            disk_full: self.disk.is_full(),
            transfer,
            moved: self.transfer_meter.says(now.mono_ns, page_bytes, progress),
            workers: self.ahead.as_ref().map(|ahead| ahead.says(&self.counters.runs)),
            view_changes: self.counters.view_changes,
            requests: self.counters.requests,
            fsync_p99_us: self.disk.write_p99_us(),
            key_age_ms: now.wall_ns.saturating_sub(self.endpoint.door().key_time()) / 1_000_000,
            rejected: self.reasons(),
            lanes: self.executor.lanes(),
            ..self.statements.statement(now, nonce)
        }
    }

    /// Returns the counts of rejected messages by reason, in the authenticator and the protocol.
    fn reasons(&self) -> Vec<(String, u64)> {
        let mut sums: BTreeMap<String, u64> = BTreeMap::new();
        for (reason, count) in self.counters.refused.iter().chain(&self.counters.rejected) {
            *sums.entry(bounded(reason, REASON_BYTES_MAX)).or_default() += count;
        }
        sums.into_iter().take(usize::from(STATED_REASONS_MAX)).collect()
    }
}

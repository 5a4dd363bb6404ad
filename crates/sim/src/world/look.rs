//! The observable state of a world.

use quorate_pbft::recording::Recorder;
use quorate_service::{View, registry};
use quorate_wire::ReplicaId;
use quorate_wire::sign::Signer;

use super::World;
use super::build::double;
use crate::app::App;
use crate::checker::facts::Facts;
use crate::checker::linearizable::Call;
use crate::checker::order::{self, Seen};
use crate::checker::{Verdict, Violation};
use crate::host::Host;
use crate::summary::Counters;
use crate::trace::{Line, Trace};

impl<A: App> World<A> {
    /// Returns the highest number that is final anywhere.
    pub fn committed(&self) -> u64 {
        self.checkers.committed().0
    }

    /// Returns the first rule that was broken.
    pub fn violation(&self) -> Option<&Violation> {
        self.checkers.violation()
    }

    /// Returns world time, in nanoseconds.
    pub fn time(&self) -> u64 {
        self.at
    }

    /// Returns how many events have happened.
    pub fn step_count(&self) -> u64 {
        self.step
    }

    /// Returns how many nodes there are, hosts of clients among them.
    pub fn nodes(&self) -> usize {
        self.hosts.len() + self.clients.len()
    }

    /// Returns what is known of the correct replicas.
    pub fn core_facts(&self) -> impl Iterator<Item = &Facts> + Clone {
        let hosts = self.hosts.iter().filter(|host| host.correct);
        hosts.map(|host| self.checkers.facts(host.id))
    }

    /// Checks that what the clients have seen is linearizable, key by key, and follows from the one order as a whole
    /// (I14).
    pub fn check_history(&self) -> Verdict {
        // What the registry has answered, the service has not seen.
        let is_of_registry = |bytes: &[u8]| bytes.starts_with(&registry::MAGIC);
        let has_met_registry = |call: &&Call<Vec<u8>, Vec<u8>>| {
            let refused = call.returned.as_ref().is_some_and(|(_, result)| is_of_registry(result));
            refused || is_of_registry(&call.operation)
        };
        let linearizable = if self.seen.history.iter().any(|call| has_met_registry(&call)) {
            let others = self.seen.history.iter().filter(|call| !has_met_registry(call));
            self.app.check(&others.cloned().collect())
        } else {
            self.app.check(&self.seen.history)
        };
        linearizable.map_err(|(_, text)| Violation::new("linearizable (I14)", text, &[]))?;
        let mut calls = Vec::new();
        for (call, answer) in self.seen.history.iter().zip(&self.seen.answers) {
            if let (Some((returned, result)), Some((client, timestamp, ordered))) = (&call.returned, *answer)
            {
                let (invoked, returned) = (call.invoked, *returned);
                let (operation, result) = (&call.operation, result);
                calls.push(Seen { client, timestamp, invoked, returned, operation, result, ordered });
            }
        }
        order::check(
            self.checkers.effects(),
            double(&self.app, self.founders.as_ref(), self.config.cluster.n()),
            &calls,
        )
    }

    /// Returns the hash over every input and action of correct replicas.
    pub fn finish_hash(&mut self) -> [u8; 32] {
        self.hash.finish()
    }

    /// Takes the lines of the trace.
    pub fn take_lines(&mut self) -> Vec<Line> {
        self.trace.as_mut().map(Trace::take).unwrap_or_default()
    }

    /// Keeps a trace of the last `max` lines, or of all for 0.
    pub fn watch(&mut self, max: usize) {
        self.trace = Some(Trace::last(max));
    }

    /// Returns the lines of the trace.
    pub fn lines(&self) -> impl Iterator<Item = &Line> {
        self.trace.iter().flat_map(Trace::lines)
    }

    /// Returns the state of the service at each host that is up, as far as it is committed.
    pub fn service_states(&self) -> impl Iterator<Item = (&str, View<'_>)> {
        self.hosts.iter().filter_map(|host| Some((&*host.name, host.process.as_ref()?.executor().view())))
    }

    /// Looks whether the state of each correct replica is in order, as the service sees it.
    pub(crate) fn audit(&self) -> Verdict {
        for host in self.hosts.iter().filter(|host| host.correct) {
            let Some(process) = &host.process else { continue };
            // What was damaged behind its back, and was not repaired yet, is no fault of the service's.
            if self.checkers.facts(host.id).damaged || host.disk.is_rotten() {
                continue;
            }
            let audited = self.app.audit(process.executor().view());
            audited.map_err(|text| Violation::new("state in order", text, &[host.id]))?;
        }
        Ok(())
    }

    /// Returns how each host stands, in one line each.
    pub fn cards(&self) -> Vec<String> {
        let card = |host: &Host<A::Service>| match &host.process {
            Some(process) => process.core().0.card(),
            None => "down".to_owned(),
        };
        self.hosts.iter().map(|host| format!("{:<3} {}", host.name, card(host))).collect()
    }

    /// Returns the signing key of replica `id`, for stepping through its recording.
    pub fn signer(&self, id: ReplicaId) -> Signer {
        self.keys.signer(id.into())
    }

    /// Returns the recording of replica `id` since it last started, if it was asked for in the setup.
    pub fn recording(&self, id: ReplicaId) -> Option<&[u8]> {
        let host = self.hosts.get(self.host_of(id)).filter(|host| host.is_up())?;
        host.life_of.recorder.as_ref().filter(|recorder| recorder.is_whole()).map(Recorder::bytes)
    }

    /// Returns how each host stands, in many lines each.
    pub fn states(&self) -> Vec<String> {
        let state = |host: &Host<A::Service>| match &host.process {
            Some(process) => process.core().0.state_text(),
            None => "down".to_owned(),
        };
        self.hosts.iter().map(|host| format!("{} {}", host.name, state(host))).collect()
    }

    /// Returns the names of all nodes as they stand in traces: clients' lanes first, then hosts.
    pub fn names(&self) -> Vec<String> {
        let lanes = self.clients.iter().flat_map(|client| &client.lanes).map(|lane| lane.id.to_string());
        lanes.chain(self.hosts.iter().map(|host| host.name.clone())).collect()
    }

    /// Returns the counts so far.
    pub fn counters(&self) -> Counters {
        let lies = self
            .hosts
            .iter()
            .filter_map(|host| host.process.as_ref())
            .map(|p| p.core().0.lies())
            .sum::<u64>();
        let mut counters = self.counters.clone();
        counters.lies += lies;
        counters.batches = self.committed();
        counters.commands = self.checkers.commands();
        counters.frames = self.network.traffic.sent;
        counters
    }

    /// Returns the clients that the state of host `h` knows, by their index.
    pub fn guests_of(&self, h: usize) -> Vec<u64> {
        let mut known = Vec::new();
        if let Some(process) = &self.hosts[h].process {
            process.executor().registered(&mut |principal, _| known.push(principal - 1));
        }
        known.sort_unstable();
        known
    }
}

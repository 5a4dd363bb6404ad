//! Four replicas and a client in one process, with real authenticators, session keys and executors, and queues in memory
//! instead of a network.

use std::collections::VecDeque;
use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use quorate_node::memory::in_memory;
use quorate_node::{
    ClientProcess, Directory, Event, MemoryProcess, Meter, Metered, Place, TestKeys, Transport,
};
use quorate_pbft::{Config, Now};
use quorate_service::null::Null;
use quorate_wire::{ClientId, Cluster, Principal, Source, Timestamp};

use crate::allocations;

/// How far the clocks advance with each operation, in nanoseconds. It is fixed, so every run does the same work.
const OPERATION_NS: u64 = 10_000;

/// Datagrams in flight, in order.
#[derive(Debug, Default)]
struct Queue {
    datagrams: VecDeque<(Place, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
}

impl Transport for Queue {
    fn send(&mut self, to: Place, datagram: &[u8]) {
        let mut copy = self.spare.pop().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(datagram);
        self.datagrams.push_back((to, copy));
    }
}

/// A whole cluster with one client. See the module.
#[derive(Debug)]
pub(crate) struct Group<M: Meter> {
    replicas: Vec<(MemoryProcess<Null>, Metered<M>)>,
    client: ClientProcess<M>,
    queue: Queue,
    now: Now,
}

impl<M: Meter> Group<M> {
    /// Returns a group that has started and exchanged its keys.
    pub(crate) fn start(
        cluster: Cluster,
        set: impl FnOnce(&mut Config),
        mut meter: impl FnMut() -> M,
    ) -> Result<Self> {
        let keys = TestKeys::new(1, cluster, 1);
        let mut config = Config::new(cluster, keys.cluster_id());
        config.durability = quorate_pbft::config::Durability::Memory;
        set(&mut config);
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        let mut directory = Directory::new(&vec![nowhere; cluster.n()]);
        let principal = Principal::Client(ClientId::new(1, 0));
        directory.add_client(principal, nowhere);
        let now = Now { mono_ns: 1, wall_ns: 1 << 60 };
        let mut replicas = Vec::new();
        for id in cluster.replicas() {
            let own = Principal::Replica(id);
            let (signer, door) = (keys.signer(own), keys.door(own, now.wall_ns));
            let directory = directory.clone();
            let process = in_memory(id, &config, signer, door, directory, Null, 1 << 20)?;
            replicas.push((process, Metered::new(meter())));
        }
        let door = keys.door(principal, now.wall_ns);
        let client = ClientProcess::new(&config, door, 1, directory, Timestamp(1), meter());
        let mut group = Self { replicas, client, queue: Queue::default(), now };
        for (replica, meter) in &mut group.replicas {
            replica.step(now, Event::Start, meter);
        }
        group.settle()?;
        Ok(group)
    }

    /// Exchanges keys, until no node has anything to send.
    fn settle(&mut self) -> Result<()> {
        self.pump();
        ensure!(self.queue.datagrams.is_empty());
        Ok(())
    }

    /// Invokes an operation, and delivers datagrams until none is in flight. Returns the length of the result.
    pub(crate) fn invoke(&mut self, operation: &[u8], read_only: bool) -> Result<usize> {
        self.now.mono_ns += OPERATION_NS;
        self.now.wall_ns += OPERATION_NS;
        self.client.invoke(self.now, 0, operation, read_only);
        self.pump();
        let done = self.client.done().first().context("the operation is not done")?;
        let len = self.client.result(done).len();
        self.client.clear_done();
        Ok(len)
    }

    /// Delivers datagrams in order until none is in flight.
    fn pump(&mut self) {
        let now = self.now;
        for (account, (replica, meter)) in self.replicas.iter_mut().enumerate() {
            if replica.due() <= now.mono_ns {
                allocations::charge(Some(account));
                replica.step(now, Event::Clock, meter);
            }
            replica.flush(now, &mut self.queue, meter);
        }
        allocations::charge(None);
        if self.client.due() <= now.mono_ns {
            self.client.expire(now);
        }
        self.client.flush(&mut self.queue);
        while let Some((to, datagram)) = self.queue.datagrams.pop_front() {
            if let Some((replica, meter)) = self.replicas.get_mut(to.index()) {
                allocations::charge(Some(to.index()));
                let event = Event::Datagram { source: Source::UNKNOWN, bytes: &datagram };
                replica.step(now, event, meter);
                replica.flush(now, &mut self.queue, meter);
                allocations::charge(None);
            } else {
                self.client.receive(now, &datagram);
                self.client.flush(&mut self.queue);
            }
            self.queue.spare.push(datagram);
        }
    }

    /// Returns how many frames the authenticators have received.
    pub(crate) fn received(&self) -> u64 {
        let replicas: u64 = self.replicas.iter().map(|(replica, _)| replica.counters().received).sum();
        replicas + self.client.counters().received
    }

    /// Returns how many frames the authenticators rejected, and how many requests were retransmitted.
    pub(crate) fn errors(&self) -> u64 {
        let client = self.client.counters();
        let replicas = self.replicas.iter().flat_map(|(replica, _)| replica.counters().refused.values());
        replicas.chain(client.refused.values()).sum::<u64>() + client.retransmitted
    }

    /// Returns the meters: of the replicas in order, then the client's.
    pub(crate) fn meters(&mut self) -> impl Iterator<Item = &mut M> {
        self.replicas.iter_mut().map(|(_, meter)| meter.meter()).chain([self.client.meter()])
    }
}

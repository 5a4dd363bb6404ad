//! Replicas that move to other addresses, and the orders that tell it (ADR 23).

use std::net::SocketAddr;

use quorate_pbft::config::MS;
use quorate_service::registry::{RegistryOp, Setting};
use quorate_wire::ReplicaId;

use super::budget::has_budget;
use crate::app::{App, Ask};
use crate::orders::address;
use crate::rng::{Concern, Rng};
use crate::world::World;

/// The number of the first address that a replica moves to. Those before it are not.
const FIRST: usize = 1000;
/// The number of an address at which nobody listens.
const NOBODY: usize = 999;

/// Says whether replicas move in the run with this seed.
pub(super) fn are_drawn(seed: u64) -> bool {
    Rng::new(seed, Concern::Moves).one_in(8)
}

/// Lets replicas move.
#[derive(Debug)]
pub(super) struct Moves {
    rng: Rng,
    next_at: u64,
    count: usize,
}

impl Moves {
    /// Returns the moves of a seed.
    pub(super) fn new(seed: u64) -> Self {
        Self { rng: Rng::nth(seed, Concern::Moves, 0), next_at: 0, count: 0 }
    }

    /// Lets a replica move, if the last one that did is reached again: by all correct replicas. Where one has executed the
    /// order and lost its state then, the others may not execute it, and a second replica would be away.
    pub(super) fn tick<A: App>(&mut self, world: &mut World<A>) {
        let is_idle = world.has_ordered();
        let hosts = world.hosts.iter().filter(|host| host.correct);
        let books: Vec<Vec<SocketAddr>> = hosts.map(|host| host.book.clone()).collect();
        for host in &mut world.hosts {
            let is_reached = books.iter().all(|book| host.listens.contains(&book[host.id.index()]));
            host.is_astray &= !(is_idle && is_reached);
        }
        let h = self.rng.index(world.hosts.len());
        let runs_once = world.addresses[world.hosts[h].id.index()].len() == 1;
        if world.time() < self.next_at || !is_idle || !runs_once || !has_budget(world, h) {
            return;
        }
        self.next_at = world.time() + self.rng.between(50, 3_000) * MS;
        self.count += 1;
        let (replica, number) = (world.hosts[h].id, FIRST + self.count);
        world.hosts[h].is_astray = true;
        world.move_host(h, number);
        if self.rng.one_in(3) {
            world.order(ask(RegistryOp::Move(replica, Some(address(NOBODY)))));
        }
        world.order(ask(RegistryOp::Move(replica, Some(address(number)))));
        if self.rng.one_in(4) {
            let lanes = self.rng.pick(&[2, 4, 256]).unwrap_or(4);
            world.order(ask(RegistryOp::Set(Setting::ClientLanesMax, lanes)));
        }
    }

    /// Lets each replica listen where the cluster and the clients send, and where an order under way will say that it is:
    /// a client that has not read the last address may have no quorum to read it from. And where it was at first: a replica
    /// that has lost its state knows no other addresses.
    pub(super) fn end<A: App>(world: &mut World<A>) {
        let table = world.checkers.table();
        let under_way = world.drop_orders();
        for host in &mut world.hosts {
            let at = table.replicas.get(&host.id).copied().unwrap_or_else(|| address(host.id.index()));
            host.listens.extend([at, address(host.id.index())]);
            host.listens.extend(world.clients.iter().map(|client| client.book[host.id.index()]));
            host.listens.extend(under_way.as_ref().and_then(|ask| target(&ask.operation, host.id)));
            host.is_astray = false;
        }
    }
}

/// Returns where an order says that a replica is.
fn target(operation: &[u8], replica: ReplicaId) -> Option<SocketAddr> {
    match RegistryOp::decode(operation)? {
        Ok(RegistryOp::Move(of, at)) if of == replica => at,
        _ => None,
    }
}

fn ask(order: RegistryOp) -> Ask {
    let mut operation = Vec::new();
    order.encode(&mut operation);
    Ask { operation, read_only: false }
}

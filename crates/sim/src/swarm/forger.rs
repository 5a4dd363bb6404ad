//! A Byzantine client among the others (C1-C6). It has keys like any client, but no lanes: no checker waits for its
//! requests.

use quorate_wire::ReplicaId;

use crate::adversary::client::Forgery;
use crate::app::App;
use crate::rng::{Concern, Rng};
use crate::world::World;

/// The lanes that it pretends to have: there has to be room for the others.
const LANES: u64 = 3;
/// Requests of one flood.
const FLOOD: u64 = 40;

/// Sends forged requests from the place of the last client.
#[derive(Debug)]
pub struct Forger {
    client: usize,
    timestamp: u64,
    rng: Rng,
}

impl Forger {
    /// Turns the last client of a world into a liar.
    pub fn new<A: App>(world: &mut World<A>) -> Option<Self> {
        let client = world.clients.len().checked_sub(1)?;
        world.clients[client].lanes.clear();
        Some(Self { client, timestamp: 1, rng: Rng::nth(world.seed, Concern::Adversary, usize::MAX - 1) })
    }

    /// Sends a forged message of a random kind.
    pub fn lie<A: App>(&mut self, world: &mut World<A>) {
        let replicas: Vec<ReplicaId> = world.config.cluster.replicas().collect();
        self.timestamp += 1;
        let honest = self.forgery(world);
        match self.rng.below(9) {
            // C1: right for some, wrong for the others; with or without a signature.
            0 | 1 => {
                let spoiled: Vec<ReplicaId> =
                    replicas.iter().copied().filter(|_| self.rng.one_in(2)).collect();
                let forged = honest.spoiled(&spoiled);
                let forged = if self.rng.one_in(3) { forged.signed(self.rng.one_in(2)) } else { forged };
                self.send_all(world, &forged);
            }
            // C2: far ahead, again, back.
            2 => {
                for timestamp in [self.timestamp, self.timestamp, 1, self.timestamp + 1000] {
                    let forged = Forgery { timestamp, ..honest.clone() };
                    self.send_all(world, &forged);
                }
                self.timestamp += 1000;
            }
            // C3: a different request to everyone, under one number.
            3 => {
                for to in replicas {
                    let other = self.forgery(world);
                    let frame =
                        world.forge(self.client, &Forgery { timestamp: self.timestamp, lane: 0, ..other });
                    world.post(self.client, to, &frame);
                }
            }
            // C4: to any one replica only.
            4 => {
                let frame = world.forge(self.client, &honest);
                if let Some(to) = self.rng.pick(&replicas) {
                    world.post(self.client, to, &frame);
                }
            }
            // C5: a write that says it is a read.
            5 => self.send_all(world, &honest.read_only()),
            // A signature that is wrong, under right MACs.
            6 => self.send_all(world, &honest.signed(false)),
            // C1: a datagram with a request for each replica that only this one cannot check (L128).
            7 => {
                let mut datagram = Vec::new();
                for (spoiled, lane) in replicas.iter().zip(0..) {
                    let request = self.forgery(world).lane(lane).spoiled(&[*spoiled]);
                    datagram.extend_from_slice(&world.forge(self.client, &request));
                }
                let datagram = datagram.into();
                if let Some(to) = self.rng.pick(&replicas) {
                    world.post(self.client, to, &datagram);
                }
                world.counters.fault("each spoiled for another replica");
            }
            // C6: a flood, each with its own number.
            _ => {
                for _ in 0..FLOOD {
                    self.timestamp += 1;
                    let next = self.forgery(world);
                    self.send_all(world, &next);
                }
            }
        }
        world.counters.fault("false client");
    }

    /// Returns a valid request, on keys that no other client uses.
    fn forgery<A: App>(&mut self, world: &World<A>) -> Forgery {
        let operation = world.app.draw_apart(&mut self.rng, self.timestamp);
        let lane = u16::try_from(self.rng.below(LANES)).unwrap_or(0);
        Forgery::new(self.timestamp, &operation).lane(lane)
    }

    fn send_all<A: App>(&self, world: &mut World<A>, forgery: &Forgery) {
        let frame = world.forge(self.client, forgery);
        world.post_all(self.client, &frame);
    }
}

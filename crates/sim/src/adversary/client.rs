//! A Byzantine client: it holds only its own keys, and sends messages with them that no correct client would send.
//!
//! It has no lanes of its own and accepts no reply, so checkers of results ignore its requests. It uses keys of the
//! store that no other client uses.

use quorate_wire::frame::{ENTRY_BYTES, SIGNATURE_BYTES};
use quorate_wire::message::{RequestBody, RequestFlags};
use quorate_wire::{ClientId, ReplicaId, Timestamp};

use crate::app::App;
use crate::network::Frame;
use crate::world::World;

/// A request as a lying client makes it.
#[derive(Clone, Debug)]
pub struct Forgery {
    /// The lane that it pretends to be, rightly.
    pub lane: u16,
    /// Its number.
    pub timestamp: u64,
    /// The operation.
    pub operation: Vec<u8>,
    /// It says that it is read-only.
    pub read_only: bool,
    /// It carries a signature.
    pub signed: bool,
    /// The signature is wrong, under right MACs.
    pub bad_signature: bool,
    /// Replicas whose entry of the authenticator is wrong.
    pub spoiled: Vec<ReplicaId>,
}

impl Forgery {
    /// Returns an honest request of lane 0.
    pub fn new(timestamp: u64, operation: &[u8]) -> Self {
        let operation = operation.to_vec();
        let (read_only, signed, bad_signature, spoiled) = (false, false, false, Vec::new());
        Self { lane: 0, timestamp, operation, read_only, signed, bad_signature, spoiled }
    }

    /// Makes it one of another lane.
    #[must_use]
    pub fn lane(self, lane: u16) -> Self {
        Self { lane, ..self }
    }

    /// Claims that it is read-only.
    #[must_use]
    pub fn read_only(self) -> Self {
        Self { read_only: true, ..self }
    }

    /// Signs it, rightly or wrongly.
    #[must_use]
    pub fn signed(self, rightly: bool) -> Self {
        Self { signed: true, bad_signature: !rightly, ..self }
    }

    /// Makes its MAC wrong for these replicas.
    #[must_use]
    pub fn spoiled(self, spoiled: &[ReplicaId]) -> Self {
        Self { spoiled: spoiled.to_vec(), ..self }
    }
}

impl<A: App> World<A> {
    /// Seals a request with the keys of client `c`, and spoils it.
    pub fn forge(&mut self, c: usize, forgery: &Forgery) -> Frame {
        let n = self.config.cluster.n();
        let door = &mut self.clients[c].door;
        let client = ClientId::new(door.own().as_client().principal(), forgery.lane);
        let body = RequestBody {
            timestamp: Timestamp(forgery.timestamp),
            flags: RequestFlags { read_only: forgery.read_only, signed: forgery.signed },
            replier: None,
            operation: &forgery.operation,
        };
        let mut frame = Vec::new();
        if forgery.bad_signature {
            door.seal_request_with(&body, client, Some(&[7; SIGNATURE_BYTES]), &mut frame);
        } else {
            door.seal_request(&body, client, forgery.signed, &mut frame);
        }
        // The entries are the end of the frame, one for each replica in order.
        let entries = frame.len() - n * ENTRY_BYTES;
        for replica in &forgery.spoiled {
            frame[entries + replica.index() * ENTRY_BYTES + ENTRY_BYTES - 1] ^= 1;
        }
        frame.into()
    }

    /// Sends a frame from the place of client `c` to replica `to`.
    pub fn post(&mut self, c: usize, to: ReplicaId, frame: &Frame) {
        let from = self.clients[c].node;
        for i in 0..self.addresses[to.index()].len() {
            let to = self.addresses[to.index()][i];
            self.transmit(from, to, frame);
        }
    }

    /// Sends a frame from the place of client `c` to every replica.
    pub fn post_all(&mut self, c: usize, frame: &Frame) {
        for to in self.config.cluster.replicas() {
            self.post(c, to, frame);
        }
    }
}

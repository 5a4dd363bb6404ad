//! A store of MINIMAL, and who hears that a server has it.

use quorate_wire::Principal;

use crate::message::{Body, Op, Proof};
use crate::step::Out;
use crate::thresholds::ServerId;
use crate::version::{ObjectId, Value, Version};

/// A store, from wherever it came.
pub(super) struct Store<'a> {
    pub(super) object: ObjectId,
    pub(super) version: Version,
    pub(super) value: &'a Value,
    pub(super) proof: &'a Proof,
}

/// Whom a store is acknowledged to.
#[derive(Clone, Copy)]
pub(super) enum Sender {
    Client(Principal, Op),
    Peer(ServerId),
    /// Several peers, or a list of one: nobody waits for it.
    Peers,
}

/// Tells the sender that a version is stored, or that a larger one is.
pub(super) fn acknowledge(sender: Sender, object: ObjectId, version: Version, facks: bool, out: &mut Out) {
    match sender {
        Sender::Client(from, op) => out.send(from, object, Body::Ack { op, version }),
        Sender::Peer(peer) if facks => out.send(peer, object, Body::Fack { version }),
        Sender::Peer(_) | Sender::Peers => {}
    }
}

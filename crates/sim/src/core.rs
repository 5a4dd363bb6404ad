//! What a host runs: a replica, or a liar in front of one.

use std::fmt::Debug;

use quorate_pbft::Replica;
use quorate_pbft::step::{Actions, Input, Now};
use quorate_wire::Kind;

use crate::network::NodeId;

/// The core of a host. A replica is one; so is a liar that wraps a replica.
pub trait Core: Debug {
    /// Takes one input and adds what is to be done about it to `out`.
    fn step(&mut self, now: Now, input: Input<'_>, out: &mut Actions);

    /// Describes its state in one line.
    fn card(&self) -> String;

    /// Describes its state in many lines.
    fn state_text(&self) -> String {
        self.card()
    }

    /// A message of the state transfer's is about to be sealed, which the host makes by itself. A liar
    /// may change it. Returns whether it is sent at all.
    fn answer(&mut self, _kind: Kind, _body: &mut Vec<u8>) -> bool {
        true
    }

    /// A sealed frame is about to leave for one node. A liar may damage it. Returns whether it is sent at
    /// all.
    fn tamper(&mut self, _to: NodeId, _frame: &mut Vec<u8>) -> bool {
        true
    }

    /// Returns whether [`Self::tamper`] does anything: if not, receivers share one frame.
    fn tampers(&self) -> bool {
        false
    }

    /// A frame has come in. A correct replica is only told once the authenticator has admitted it.
    fn overhear(&mut self, _frame: &[u8]) {}

    /// Returns whether the replica is to be told that its burst has ended.
    fn owes_proposal(&self) -> bool;

    /// Returns the replica alone: the liar in front of it is gone.
    fn into_replica(self: Box<Self>) -> Replica;

    /// Returns how many lies it has told.
    fn lies(&self) -> u64 {
        0
    }

    /// Returns when [`Self::wake`] is due, on the monotonic clock.
    fn due(&self) -> Option<u64> {
        None
    }

    /// Sends its delayed messages.
    fn wake(&mut self, _now: Now, _out: &mut Actions) {}
}

impl Core for Replica {
    fn step(&mut self, now: Now, input: Input<'_>, out: &mut Actions) {
        Self::step(self, now, input, out);
    }

    fn card(&self) -> String {
        self.state().to_string()
    }

    fn state_text(&self) -> String {
        format!("{:#?}", self.state())
    }

    fn owes_proposal(&self) -> bool {
        Self::owes_proposal(self)
    }

    fn into_replica(self: Box<Self>) -> Replica {
        *self
    }
}

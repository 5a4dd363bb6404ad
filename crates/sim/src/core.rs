//! What a host runs: a replica, or a liar in front of one.

use std::fmt::Debug;

use quorate_pbft::Replica;
use quorate_pbft::step::{Actions, Input, Now};
use quorate_process::{Core, Place};
use quorate_wire::Kind;

/// The core of a host. A replica is one; so is a liar that wraps a replica.
pub trait HostCore: Core + Debug {
    /// Describes its state in one line.
    fn card(&self) -> String;

    /// Describes its state in many lines.
    fn state_text(&self) -> String {
        self.card()
    }

    /// Returns the replica alone: the liar in front of it is gone.
    fn into_replica(self: Box<Self>) -> Replica;

    /// Returns how many lies it has told.
    fn lies(&self) -> u64 {
        0
    }
}

impl HostCore for Replica {
    fn card(&self) -> String {
        self.state().to_string()
    }

    fn state_text(&self) -> String {
        format!("{:#?}", self.state())
    }

    fn into_replica(self: Box<Self>) -> Replica {
        *self
    }
}

/// A core of either kind.
#[derive(Debug)]
pub struct AnyCore(pub Box<dyn HostCore>);

impl Core for AnyCore {
    fn step(&mut self, now: Now, input: Input<'_>, out: &mut Actions) {
        self.0.step(now, input, out);
    }

    fn replica(&self) -> &Replica {
        self.0.replica()
    }

    fn shut_down(&mut self, now: Now, out: &mut Actions) {
        self.0.shut_down(now, out);
    }

    fn is_byzantine(&self) -> bool {
        self.0.is_byzantine()
    }

    fn overhear(&mut self, frame: &[u8]) {
        self.0.overhear(frame);
    }

    fn answer(&mut self, kind: Kind, body: &mut Vec<u8>) -> bool {
        self.0.answer(kind, body)
    }

    fn tampers(&self) -> bool {
        self.0.tampers()
    }

    fn tamper(&mut self, to: Place, frame: &mut Vec<u8>) -> bool {
        self.0.tamper(to, frame)
    }

    fn due(&self) -> u64 {
        self.0.due()
    }

    fn wake(&mut self, now: Now, out: &mut Actions) {
        self.0.wake(now, out);
    }
}

//! The core that a process drives: a replica, or a wrapper around one.
//!
//! This crate has only replicas. A process that lies wraps its replica with [`crate::Drive::with_core`]. For a replica all
//! these methods are resolved at compile time, so the drive of a correct one is the same code as without wrappers.

use quorate_pbft::Replica;
use quorate_pbft::step::{Actions, Input, Now};
use quorate_wire::Kind;

use crate::directory::Place;

/// A replica, or a wrapper around one. The default methods are those of a correct replica.
pub trait Core {
    /// Whether it may change its replica's messages. If so it is asked before each one is sent.
    const LIES: bool = false;

    /// Takes one input, and adds the resulting actions to `out`.
    fn step(&mut self, now: Now, input: Input<'_>, out: &mut Actions);

    /// Returns the replica.
    fn replica(&self) -> &Replica;

    /// The process is about to end: hands over the view.
    fn shut_down(&mut self, now: Now, out: &mut Actions);

    /// A frame has arrived, authentic or not.
    fn overhear(&mut self, _frame: &[u8]) {}

    /// A message of a state transfer is about to be sealed. Returns whether it is sent.
    fn answer(&mut self, _kind: Kind, _body: &mut Vec<u8>) -> bool {
        true
    }

    /// A sealed frame is about to be sent to one place. Returns whether it is sent.
    fn tamper(&mut self, _to: Place, _frame: &mut Vec<u8>) -> bool {
        true
    }

    /// Returns when [`Self::wake`] is due, on the monotonic clock.
    fn due(&self) -> u64 {
        u64::MAX
    }

    /// Sends the messages that it had delayed.
    fn wake(&mut self, _now: Now, _out: &mut Actions) {}
}

impl Core for Replica {
    #[inline]
    fn step(&mut self, now: Now, input: Input<'_>, out: &mut Actions) {
        Self::step(self, now, input, out);
    }

    #[inline]
    fn replica(&self) -> &Replica {
        self
    }

    fn shut_down(&mut self, now: Now, out: &mut Actions) {
        Self::shut_down(self, now, out);
    }
}

//! The core of a process: a replica, or a Byzantine wrapper around one.
//!
//! For a replica all these methods are resolved at compile time, so the process of a correct replica has no cost from
//! them.

use alloc::vec::Vec;

use quorate_pbft::Replica;
use quorate_pbft::step::{Actions, Input, Now};
use quorate_wire::Kind;

use crate::endpoint::Place;

/// A replica, or a wrapper around one. The default methods are those of a correct replica.
pub trait Core {
    /// Takes one input, and adds the resulting actions to `out`.
    fn step(&mut self, now: Now, input: Input<'_>, out: &mut Actions);

    /// Returns the replica.
    fn replica(&self) -> &Replica;

    /// The process is about to end: hands over the view.
    fn shut_down(&mut self, now: Now, out: &mut Actions);

    /// Returns whether it may change messages. If not, [`Self::answer`] is not called.
    #[inline]
    fn is_byzantine(&self) -> bool {
        false
    }

    /// A frame has arrived, authentic or not. Empty if it is malformed.
    #[inline]
    fn overhear(&mut self, _frame: &[u8]) {}

    /// A message of a state transfer is about to be sealed. Returns whether it is sent.
    fn answer(&mut self, _kind: Kind, _body: &mut Vec<u8>) -> bool {
        true
    }

    /// Returns whether [`Self::tamper`] may do something: if not, receivers share one frame.
    #[inline]
    fn tampers(&self) -> bool {
        false
    }

    /// A sealed frame is about to be sent to one place. Returns whether it is sent.
    fn tamper(&mut self, _to: Place, _frame: &mut Vec<u8>) -> bool {
        true
    }

    /// Returns when [`Self::wake`] is due, on the monotonic clock.
    #[inline]
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

//! What a process drives: a replica, or something in front of one.
//!
//! This room knows replicas only. Whoever wants a process that lies puts a core of its own in front of the
//! replica, with [`crate::Drive::with_core`]. For a replica every question here is answered while compiling:
//! the drive of a correct one is the same code as if there were no others.

use quorate_pbft::Replica;
use quorate_pbft::step::{Actions, Input, Now};
use quorate_wire::Kind;

use crate::directory::Place;

/// A replica, or what stands in front of one. The defaults are what a correct one does.
pub trait Core {
    /// What it says is not always what its replica says: it is asked before anything leaves.
    const LIES: bool = false;

    /// Takes one input and adds what is to be done about it to `out`.
    fn step(&mut self, now: Now, input: Input<'_>, out: &mut Actions);

    /// Returns the replica.
    fn replica(&self) -> &Replica;

    /// The process is about to end: hands the view over.
    fn shut_down(&mut self, now: Now, out: &mut Actions);

    /// A frame has come in, whoever sent it and whatever the door thinks of it.
    fn overhear(&mut self, _frame: &[u8]) {}

    /// A message of the state transfer's is about to be sealed. Says whether it is sent.
    fn answer(&mut self, _kind: Kind, _body: &mut Vec<u8>) -> bool {
        true
    }

    /// A sealed frame is about to leave for one place. Says whether it is sent.
    fn tamper(&mut self, _to: Place, _frame: &mut Vec<u8>) -> bool {
        true
    }

    /// Returns when [`Self::wake`] is due, on the monotonic clock.
    fn due(&self) -> u64 {
        u64::MAX
    }

    /// Says what it had put off.
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

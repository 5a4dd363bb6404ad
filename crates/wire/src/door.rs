//! The door: bytes in, [`Verified`] messages out (ADR 3).
use crate::id::Principal;

/// A message whose sender has been authenticated.
///
/// Only the door makes one. What the message *means* is checked by the protocol: a faulty replica
/// authenticates its lies correctly.
#[derive(Clone, Debug)]
pub struct Verified<M> {
    sender: Principal,
    message: M,
}

impl<M> Verified<M> {
    /// Returns who sent it.
    pub fn sender(&self) -> Principal {
        self.sender
    }

    /// Returns the message.
    pub fn message(&self) -> &M {
        &self.message
    }
}

/// The door.
#[derive(Debug)]
pub struct Door;

/// Why bytes were turned away at the door.
#[derive(Debug)]
pub enum DoorError {}

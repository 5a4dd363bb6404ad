//! What the envelope knows of the kinds of message of a protocol: a number for each, how it is authenticated, and between
//! whom it travels. NEW-KEY alone, which brings session keys, is the envelope's: it has the same number in every protocol.

use core::fmt::Debug;

use crate::envelope::codec::Decoded;

/// How a kind of message is authenticated on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seal {
    /// One MAC: for one receiver.
    Mac,
    /// An authenticator: a MAC for every replica but the sender.
    Authenticator,
    /// A signature. The signer makes the frame, and others forward it unchanged.
    Signature,
}

/// Between whom a kind of message travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// From a replica to a replica.
    Among,
    /// From anyone to a replica: a replica may act as a client.
    ToReplica,
    /// From a replica to anyone.
    FromReplica,
    /// From a client to a replica.
    Asks,
    /// From a replica to a client.
    Tells,
    /// Between a replica and anyone, in either direction.
    WithReplica,
    /// Nowhere: a number that this protocol does not use.
    Nowhere,
}

impl Route {
    /// Returns whether a frame may come from such a sender to such a receiver.
    #[inline]
    pub fn may(self, replica_sends: bool, replica_receives: bool) -> bool {
        match self {
            Self::Among => replica_sends && replica_receives,
            Self::ToReplica => replica_receives,
            Self::FromReplica => replica_sends,
            Self::Asks => !replica_sends && replica_receives,
            Self::Tells => replica_sends && !replica_receives,
            Self::WithReplica => replica_sends || replica_receives,
            Self::Nowhere => false,
        }
    }
}

/// The number of NEW-KEY.
pub const NEW_KEY: u8 = 11;

/// The kinds of message of a protocol.
pub trait Kinds: Copy + Debug + Eq {
    /// Returns the kind with this number on the wire.
    ///
    /// # Errors
    ///
    /// The protocol has no such kind: what follows in the datagram cannot be read either.
    fn of_number(number: u8) -> Decoded<Self>;

    /// Returns the number on the wire.
    fn number(self) -> u8;

    /// Returns the name for errors.
    fn name(self) -> &'static str;

    /// Returns how the kind is authenticated (spec §2.1).
    fn seal(self) -> Seal;

    /// Returns between whom the kind travels.
    fn route(self) -> Route;

    /// Returns whether a signature may be in the place of MACs that are its seal, or beside them.
    fn may_be_signed(self) -> bool {
        false
    }

    /// Returns whether it is evidence that others keep, so that a node's own may come back to it.
    fn comes_back(self) -> bool {
        false
    }
}

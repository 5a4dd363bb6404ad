//! The kinds of message: one row a kind. Also the flags of a request, which every seal of one covers.

use crate::envelope::codec::{DecodeError, Decoded};
use crate::envelope::seal::{Kinds, Route, Seal};

/// Passes the rows of all kinds to the macro `$with`.
///
/// A row has the kind, its number on the wire (the original library's where it has one), its name as the papers print
/// it, its [`Seal`], and its [`Route`]. What follows the arrow is how its body is read, and its type:
///
/// | Word | The body |
/// |---|---|
/// | `plain` | is the message |
/// | `boxed` | is the message, which is large and rare |
/// | `signed` | is evidence: it is kept with the frame that proves it |
/// | `own` | is read in a way of its own |
///
/// A kind without an arrow stays in the authenticator. A file that uses this macro needs `protocol::message` in scope.
macro_rules! kinds {
    ($with:ident) => {
        $with! {
            /// A client's request [OSDI99 §4.1].
            Request = 1, "REQUEST", Authenticator, ToReplica => own message::Request<'a>;
            /// A replica's reply to a client [OSDI99 §4.1].
            Reply = 2, "REPLY", Mac, FromReplica => own message::Reply<'a>;
            /// The primary's proposal [OSDI99 §4.2].
            PrePrepare = 3, "PRE-PREPARE", Authenticator, Among => own message::PrePrepare<'a>;
            /// A backup's agreement to the proposal [OSDI99 §4.2].
            Prepare = 4, "PREPARE", Authenticator, Among => plain message::Prepare<'a>;
            /// The statement that a batch prepared [OSDI99 §4.2].
            Commit = 5, "COMMIT", Authenticator, Among => plain message::Commit;
            /// The digest of the state after a batch [OSDI99 §4.3].
            Checkpoint = 6, "CHECKPOINT", Authenticator, Among => plain message::Checkpoint;
            /// What a replica has and lacks (spec §10).
            Status = 7, "STATUS", Authenticator, Among => plain message::Status<'a>;
            /// What a replica takes into the next view [OSDI99 §4.4].
            ViewChange = 8, "VIEW-CHANGE", Signature, Among => signed message::ViewChange;
            /// The new primary's decision [OSDI99 §4.4].
            NewView = 9, "NEW-VIEW", Signature, Among => signed message::NewView;
            /// A signed share of a session key (spec §2.4).
            NewKey = 11, "NEW-KEY", Signature, WithReplica;
            /// The children of a node of the state's tree (spec §9).
            MetaData = 12, "META-DATA", Mac, Among => plain message::MetaData<'a>;
            /// A page of the state (spec §9).
            Data = 14, "DATA", Mac, Among => plain message::Data<'a>;
            /// Asks for a node or page of the state (spec §9).
            Fetch = 15, "FETCH", Authenticator, Among => plain message::Fetch;
            /// Asks for bounds on the log (spec RC-4).
            QueryStable = 16, "QUERY-STABLE", Authenticator, Among => plain message::QueryStable;
            /// Answers QUERY-STABLE (spec RC-4).
            ReplyStable = 17, "REPLY-STABLE", Mac, Among => plain message::ReplyStable;
            /// The signed wish to leave a view (spec §11.2).
            Suspect = 18, "SUSPECT", Signature, Among => own message::Suspect;
            /// Asks for requests or batches by digest (spec SR-2).
            BodyFetch = 19, "BODY-FETCH", Mac, Among => plain message::BodyFetch<'a>;
            /// A request or batch that was asked for (spec SR-2).
            Body = 20, "BODY", Mac, Among => own message::BodyMessage<'a>;
            /// The statement that a batch committed (spec ST-5).
            Committed = 21, "COMMITTED", Mac, Among => plain message::Committed;
            /// The statement that a batch was pre-prepared (spec DP-4).
            Proof = 22, "PROOF", Signature, Among => signed message::ProofMessage;
            /// The statement that a client's request is authentic (spec TM-2).
            ReqAck = 25, "REQ-ACK", Authenticator, Among => plain message::ReqAck;
            /// Asks for VIEW-CHANGEs that a NEW-VIEW names (spec VV-2).
            VcFetch = 28, "VC-FETCH", Mac, Among => plain message::VcFetch;
            /// The statement that a client's request is not authentic here (spec AU-5).
            ReqReject = 29, "REQ-REJECT", Mac, Among => plain message::ReqReject;
            /// Sealed REPLYs of one replica to the requests of a batch, for the replica that collects them (spec RP-6).
            Collect = 30, "COLLECT", Mac, Among => plain message::Collect<'a>;
            /// A client asks what a replica has to say of itself (for people and monitoring).
            Probe = 60, "PROBE", Authenticator, Asks => plain message::Probe;
            /// A replica's answer to PROBE.
            Statement = 61, "STATEMENT", Mac, Tells => boxed message::Statement;
        }
    };
}
pub(crate) use kinds;

macro_rules! declare {
    ($($(#[$doc:meta])* $kind:ident = $number:literal, $name:literal, $seal:ident, $route:ident
        $(=> $way:ident $body:ty)?;)*) => {
        /// The kinds of message with their number on the wire.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Kind { $($(#[$doc])* $kind = $number,)* }

        impl Kind {
            /// Every kind that this version sends.
            pub const ALL: [Self; [$($number),*].len()] = [$(Self::$kind),*];

            /// Returns the kind with this number on the wire.
            pub fn from_wire(number: u8) -> Decoded<Self> {
                Ok(match number {
                    $($number => Self::$kind,)*
                    _ => return Err(DecodeError::UnknownKind(number)),
                })
            }

            /// Returns how the kind is authenticated (spec §2.1).
            pub fn seal(self) -> Seal {
                match self { $(Self::$kind => Seal::$seal,)* }
            }

            /// Returns between whom the kind travels.
            pub fn route(self) -> Route {
                match self { $(Self::$kind => Route::$route,)* }
            }

            /// Returns the name as the papers print it.
            pub fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }
        }
    };
}

kinds!(declare);

impl Kind {
    /// The kinds that are the node's own: they tell people how a replica is, and agreement never sees them.
    pub const OF_THE_NODE: [Self; 2] = [Self::Probe, Self::Statement];

    /// Returns the number on the wire.
    pub fn to_wire(self) -> u8 {
        self as u8
    }
}

impl Kinds for Kind {
    #[inline]
    fn of_number(number: u8) -> Decoded<Self> {
        Self::from_wire(number)
    }

    #[inline]
    fn number(self) -> u8 {
        self.to_wire()
    }

    fn name(self) -> &'static str {
        self.name()
    }

    #[inline]
    fn seal(self) -> Seal {
        self.seal()
    }

    #[inline]
    fn route(self) -> Route {
        self.route()
    }

    /// A client on probation signs as well, a replica that acts as a client always (AU-1, AU-5).
    #[inline]
    fn may_be_signed(self) -> bool {
        self == Self::Request
    }

    /// A replica that has lost its memory may need its own VIEW-CHANGE or PROOF to check the NEW-VIEW that rests on it.
    #[inline]
    fn comes_back(self) -> bool {
        matches!(self, Self::ViewChange | Self::Proof)
    }
}

/// The flags of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestFlags {
    /// The client wishes the read-only path; the service decides (RO-1).
    pub read_only: bool,
    /// The frame carries a signature of (client, timestamp, digest).
    pub signed: bool,
}

impl RequestFlags {
    /// Returns the byte on the wire.
    pub fn to_wire(self) -> u8 {
        u8::from(self.read_only) | (u8::from(self.signed) << 1)
    }

    pub(crate) fn from_wire(byte: u8) -> Decoded<Self> {
        if byte > 3 {
            return Err(DecodeError::NotCanonical);
        }
        Ok(Self { read_only: byte & 1 != 0, signed: byte & 2 != 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::keys::HASHED;
    use crate::envelope::seal::NEW_KEY;

    /// No message that is covered as it is can stand for the hash of another.
    #[test]
    fn no_kind_has_the_number_that_stands_before_a_hash() {
        assert!(Kind::ALL.iter().all(|kind| kind.to_wire() != HASHED));
    }

    /// NEW-KEY is the envelope's.
    #[test]
    fn new_key_has_the_number_that_the_envelope_knows() {
        assert_eq!(Kind::NewKey.to_wire(), NEW_KEY);
    }
}

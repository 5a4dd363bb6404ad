//! Why bytes are rejected by the authenticator.

use crate::envelope::codec::DecodeError;
use crate::envelope::exchange::Mismatch;
use crate::envelope::id::{ClientId, Principal, ReplicaId};

/// Why bytes were rejected by the authenticator. Never a reason to panic: anyone can send bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AuthError {
    /// The bytes are not the encoding of a message (B36, N9).
    Malformed(DecodeError),
    /// The frame is of another version of the format: its sender runs another version of the program.
    OtherVersion(u8),
    /// The frame is of another epoch of the configuration (K16).
    WrongEpoch {
        /// The frame's.
        epoch: u32,
        /// This node's.
        own: u32,
    },
    /// The sender is neither a member of the cluster nor a known client.
    UnknownSender(Principal),
    /// The sender claims to be this node itself (CR-4): a reflected message (K17), or a lie.
    OwnIdentity,
    /// The sender may not send this kind of message to this node.
    WrongRole {
        /// The kind's name.
        kind: &'static str,
        /// The claimed sender.
        sender: Principal,
    },
    /// The message is authenticated in a way that its kind does not have, or for another number of
    /// receivers.
    WrongSeal(&'static str),
    /// One of the generations of session keys that the MAC names is not known here, or its time is
    /// over. A NEW-KEY goes out.
    NoKey(Principal),
    /// The MAC or signature is not that of the claimed sender.
    NotAuthentic(Principal),
    /// A digest in the message is not that of its payload (B35).
    WrongDigest(&'static str),
    /// A NEW-KEY that is not newer than one seen, a replay, or of a time far ahead (KX-1).
    StaleKey(Principal),
    /// A REPLY for another client (K11).
    OtherClient(ClientId),
    /// The allowance that would pay for a look at this signature is used up (A5). It is in this sender's
    /// name.
    TooManySignatures(Principal),
    /// It was signed for a view that is over here.
    OldView(&'static str),
    /// A SUSPECT in a VIEW-CHANGE's `LeaveCert` is not its replica's (LV-2).
    BadLeaveCert(ReplicaId),
}

impl AuthError {
    /// Returns the error of an entry that proves nothing.
    pub(super) fn of(mismatch: Mismatch, sender: Principal) -> Self {
        match mismatch {
            Mismatch::NoKey => Self::NoKey(sender),
            Mismatch::WrongTag => Self::NotAuthentic(sender),
        }
    }

    /// Returns the name used in traces, metrics and scenarios.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "malformed",
            Self::OtherVersion(_) => "other-version",
            Self::WrongEpoch { .. } => "wrong-epoch",
            Self::UnknownSender(_) => "unknown-sender",
            Self::OwnIdentity => "own-identity",
            Self::WrongRole { .. } => "wrong-role",
            Self::WrongSeal(_) => "wrong-seal",
            Self::NoKey(_) => "no-key",
            Self::NotAuthentic(_) => "not-authentic",
            Self::WrongDigest(_) => "wrong-digest",
            Self::StaleKey(_) => "stale-key",
            Self::OtherClient(_) => "other-client",
            Self::TooManySignatures(_) => "too-many-signatures",
            Self::OldView(_) => "old-view",
            Self::BadLeaveCert(_) => "bad-leave-cert",
        }
    }

    /// The name of every reason.
    pub const NAMES: [&'static str; 15] = [
        "malformed",
        "other-version",
        "wrong-epoch",
        "unknown-sender",
        "own-identity",
        "wrong-role",
        "wrong-seal",
        "no-key",
        "not-authentic",
        "wrong-digest",
        "stale-key",
        "other-client",
        "too-many-signatures",
        "old-view",
        "bad-leave-cert",
    ];
}

impl core::fmt::Display for AuthError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Malformed(error) => write!(f, "malformed: {error}"),
            Self::OtherVersion(version) => write!(f, "a frame of version {version} of the format"),
            Self::WrongEpoch { epoch, own } => write!(f, "of epoch {epoch}, this one is {own}"),
            Self::UnknownSender(sender) => write!(f, "{sender} is neither a member nor a known client"),
            Self::OwnIdentity => f.write_str("claims to come from this node itself"),
            Self::WrongRole { kind, sender } => write!(f, "{sender} may not send {kind} here"),
            Self::WrongSeal(kind) => write!(f, "{kind} is not authenticated in this way"),
            Self::NoKey(sender) => {
                write!(f, "no session key for these generations of {sender} and this node")
            }
            Self::NotAuthentic(sender) => write!(f, "the MAC or signature is not {sender}'s"),
            Self::WrongDigest(kind) => write!(f, "a digest in this {kind} is not its payload's"),
            Self::StaleKey(sender) => {
                write!(f, "a NEW-KEY of {sender} that is not newer than one seen, or of a time far ahead")
            }
            Self::OtherClient(client) => write!(f, "a REPLY for {client}"),
            Self::TooManySignatures(sender) => {
                write!(f, "a signature in the name of {sender} that was not looked at: there are too many")
            }
            Self::OldView(kind) => write!(f, "a {kind} for a view that is over"),
            Self::BadLeaveCert(replica) => write!(f, "the LeaveCert's SUSPECT is not {replica}'s"),
        }
    }
}

impl core::error::Error for AuthError {}

impl From<DecodeError> for AuthError {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::OtherVersion(version) => Self::OtherVersion(version),
            DecodeError::Truncated
            | DecodeError::Trailing
            | DecodeError::TooMany { .. }
            | DecodeError::NotCanonical
            | DecodeError::UnknownKind(_) => Self::Malformed(error),
        }
    }
}

//! Servers that lie on purpose, for tests and demonstrations: a correct server whose messages are falsified. It signs with
//! its own key only, and counts as one of the f faulty servers.

use std::sync::Arc;

use quorate_quorum::message::Proof;
use quorate_quorum::version::value_digest;
use quorate_quorum::{Body, Message, Value};
use quorate_wire::Principal;

/// A way of lying.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// Answers readers with a made-up value under a version above the true one.
    FakeValue,
    /// Acknowledges stores and forgets them.
    Forget,
    /// Answers writers and no reader.
    Silent,
    /// Names the largest counter that there is.
    Inflate,
    /// Answers half of the clients with made-up values.
    Equivocate,
}

impl Lie {
    /// Every way, with its name and what it does.
    pub const ALL: &[(Self, &str, &str)] = &[
        (Self::FakeValue, "fake-value", "answers readers with a made-up value"),
        (Self::Forget, "forget", "acknowledges writes and forgets them"),
        (Self::Silent, "silent", "answers writers, and no reader"),
        (Self::Inflate, "inflate", "names the largest possible version"),
        (Self::Equivocate, "equivocate", "answers half of the clients with made-up values"),
    ];

    /// Returns the way with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, other, _)| *other == name).map(|(lie, ..)| *lie)
    }

    /// Says whether the server shall see this message; one that forgets answers in its place.
    pub(crate) fn incoming(self, from: Principal, message: &Message) -> Seen {
        match (self, &message.body) {
            (Self::Forget, Body::Store { op, version, .. }) if matches!(from, Principal::Client(_)) => {
                Seen::Answered(Body::Ack { op: *op, version: *version })
            }
            (Self::Forget, Body::Fstore { version, .. }) => Seen::Answered(Body::Fack { version: *version }),
            (Self::Forget, Body::Write { op, pcert, .. }) => {
                Seen::Answered(Body::Ack { op: *op, version: pcert.version })
            }
            _ => Seen::Yes,
        }
    }

    /// Falsifies a message. False: it is not sent. `told` counts the lies.
    #[allow(clippy::wildcard_enum_match_arm, reason = "what is not falsified is honest, whatever it is")]
    pub(crate) fn outgoing(self, to: Principal, message: &mut Message, told: &mut u64) -> bool {
        let answers = matches!(
            message.body,
            Body::Val { .. } | Body::RdVal { .. } | Body::BcReadReply { .. } | Body::ReadTsReply { .. }
        );
        let half = (to.key_holder() / 0x1_0000).is_multiple_of(2);
        match self {
            Self::Silent if answers => {
                *told += 1;
                return false;
            }
            Self::FakeValue => fake(&mut message.body, told),
            Self::Equivocate if half => fake(&mut message.body, told),
            Self::Inflate => inflate(&mut message.body, told),
            Self::Forget | Self::Silent | Self::Equivocate => {}
        }
        true
    }
}

/// What becomes of a message that comes in.
#[allow(clippy::large_enum_variant, reason = "it lives for one call of a liar")]
#[derive(Debug)]
pub(crate) enum Seen {
    Yes,
    /// The liar answers at once.
    Answered(Body),
}

/// Puts a made-up value under a version of its own.
#[allow(clippy::wildcard_enum_match_arm, reason = "what is not falsified is honest, whatever it is")]
fn fake(body: &mut Body, told: &mut u64) {
    *told += 1;
    let made_up: Value = Arc::from(format!("a lie, number {told}").into_bytes());
    match body {
        Body::Val { version, value, .. } => {
            (version.val, version.digest) = (version.val.saturating_add(1), value_digest(&made_up));
            *value = made_up;
        }
        Body::RdVal { version, value, proof, .. } => {
            (version.val, version.digest) = (version.val.saturating_add(1), value_digest(&made_up));
            (*value, *proof) = (made_up, Proof { signature: Some([7; 64]), evidence: None });
        }
        Body::BcReadReply { value, .. } => *value = made_up,
        _ => *told -= 1,
    }
}

#[allow(clippy::wildcard_enum_match_arm, reason = "what is not falsified is honest, whatever it is")]
fn inflate(body: &mut Body, told: &mut u64) {
    *told += 1;
    match body {
        Body::Tsr { version, .. } | Body::Val { version, .. } | Body::RdVal { version, .. } => {
            version.val = u64::MAX;
        }
        Body::ReadTsReply { pcert, .. }
        | Body::ReadTsPrepReply { pcert, .. }
        | Body::BcReadReply { pcert, .. } => {
            pcert.version.val = u64::MAX;
        }
        _ => *told -= 1,
    }
}

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
    /// Answers readers with a made-up value under the true counter.
    FakeSame,
    /// Leaves half of its messages out.
    Omit,
    /// Takes its time for every message.
    Slow,
    /// Signatures that are not valid.
    BadCrypto,
    /// BFT-BC, optimized: approves another version than the next.
    Mispredict,
}

/// What a slow server takes for each message.
const SLOW: std::time::Duration = std::time::Duration::from_millis(5);

impl Lie {
    /// Every way, with its name and what it does.
    pub const ALL: &[(Self, &str, &str)] = &[
        (Self::FakeValue, "fake-value", "answers readers with a made-up value"),
        (Self::Forget, "forget", "acknowledges writes and forgets them"),
        (Self::Silent, "silent", "answers writers, and no reader"),
        (Self::Inflate, "inflate", "names the largest possible version"),
        (Self::Equivocate, "equivocate", "answers half of the clients with made-up values"),
        (Self::FakeSame, "fake-same", "answers readers with a made-up value that has the current counter"),
        (Self::Omit, "omit", "omits half of its messages"),
        (Self::Slow, "slow", "takes 5 ms for each message"),
        (Self::BadCrypto, "bad-crypto", "sends invalid signatures and certificates"),
        (
            Self::Mispredict,
            "mispredict",
            "approves a version that no client asked for (bft-bc, optimized variants)",
        ),
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
            Self::FakeValue => fake(&mut message.body, 1, told),
            Self::FakeSame => fake(&mut message.body, 0, told),
            Self::Equivocate if half => fake(&mut message.body, 1, told),
            Self::Inflate => inflate(&mut message.body, told),
            Self::Omit => {
                *told += 1;
                return told.is_multiple_of(2);
            }
            Self::Slow => {
                *told += 1;
                std::thread::sleep(SLOW);
            }
            Self::BadCrypto => spoil(&mut message.body, told),
            Self::Mispredict => {
                if let Body::ReadTsPrepReply { opt: Some((version, _)), .. } = &mut message.body {
                    *told += 1;
                    version.val = version.val.saturating_add(1);
                }
            }
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

/// Puts a made-up value under a version of its own, whose counter is this much ahead.
#[allow(clippy::wildcard_enum_match_arm, reason = "what is not falsified is honest, whatever it is")]
fn fake(body: &mut Body, ahead: u64, told: &mut u64) {
    *told += 1;
    let made_up: Value = Arc::from(format!("a lie, number {told}").into_bytes());
    match body {
        Body::Val { version, value, .. } => {
            (version.val, version.digest) = (version.val.saturating_add(ahead), value_digest(&made_up));
            *value = made_up;
        }
        Body::RdVal { version, value, proof, .. } => {
            (version.val, version.digest) = (version.val.saturating_add(ahead), value_digest(&made_up));
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

/// Spoils signatures and certificates.
#[allow(clippy::wildcard_enum_match_arm, reason = "what is not falsified is honest, whatever it is")]
fn spoil(body: &mut Body, told: &mut u64) {
    *told += 1;
    match body {
        Body::Tsr { signature: Some(signature), .. }
        | Body::PrepareReply { signature, .. }
        | Body::WriteReply { signature, .. }
        | Body::ReadTsPrepReply { opt: Some((_, signature)), .. }
        | Body::Val { signature: Some(signature), .. }
        | Body::RdVal { proof: Proof { signature: Some(signature), .. }, .. }
        | Body::Fstore { proof: Proof { signature: Some(signature), .. }, .. } => signature[0] ^= 1,
        Body::ReadTsReply { pcert, .. } | Body::BcReadReply { pcert, .. } => {
            pcert.version.val = pcert.version.val.saturating_add(1);
        }
        _ => *told -= 1,
    }
}

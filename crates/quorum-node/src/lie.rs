//! Servers that lie on purpose, for tests and demonstrations: a correct server whose messages are falsified. It signs with
//! its own key only, and counts as one of the f faulty servers.

use std::sync::Arc;

use quorate_quorum::crypto::{Crypto, Statement};
use quorate_quorum::message::Proof;
use quorate_quorum::version::value_digest;
use quorate_quorum::{Body, Message, Value};
use quorate_wire::{Digest, Principal};

use crate::crypto::Secrets;

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
    /// Tells every client that it has no right to what it asks for.
    Refuse,
    /// PHALANX, MINIMAL-F: signs versions as if it were a writer, which is evidence against it.
    Impostor,
    /// Signatures that are not valid.
    BadCrypto,
    /// BFT-BC, optimized: approves another version than the next.
    Mispredict,
}

/// What a slow server takes for each message.
pub(crate) const SLOW: std::time::Duration = std::time::Duration::from_millis(5);

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
        (Self::Refuse, "refuse", "tells every client that it has no right"),
        (Self::Impostor, "impostor", "signs versions as if it were a writer (phalanx, minimal-f)"),
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
}

/// A server's lie at work, with the server's own key.
#[derive(Debug)]
pub(crate) struct Falsifier {
    lie: Lie,
    /// The lies that were told.
    told: u64,
    own: Principal,
    crypto: Secrets,
    /// BFT-BC: the lock of the request that is being answered.
    lock: Option<Digest>,
}

impl Falsifier {
    pub(crate) fn new(lie: Lie, own: Principal, crypto: Secrets) -> Self {
        Self { lie, told: 0, own, crypto, lock: None }
    }

    /// Returns how many lies were told.
    pub(crate) fn told(&self) -> u64 {
        self.told
    }

    /// Says whether the server shall see this message; one that forgets answers in its place.
    pub(crate) fn incoming(&mut self, from: Principal, message: &Message) -> Seen {
        let answer = match (self.lie, &message.body) {
            (Lie::Refuse, _) => {
                let Some(op) = message.body.request() else { return Seen::Yes };
                Body::Refused { op }
            }
            (Lie::Forget, Body::Store { op, version, .. }) if matches!(from, Principal::Client(_)) => {
                Body::Ack { op: *op, version: *version }
            }
            (Lie::Forget, Body::Fstore { version, .. }) => Body::Fack { version: *version },
            (Lie::Forget, Body::Write { op, pcert, .. }) => Body::Ack { op: *op, version: pcert.version },
            (Lie::Mispredict, Body::ReadTsPrep { request, .. }) => {
                self.lock = Some(request.lock);
                return Seen::Yes;
            }
            _ => return Seen::Yes,
        };
        self.told += 1;
        Seen::Answered(answer)
    }

    /// Falsifies a message. False: it is not sent.
    #[allow(clippy::wildcard_enum_match_arm, reason = "what is not falsified is honest, whatever it is")]
    pub(crate) fn outgoing(&mut self, to: Principal, message: &mut Message) -> bool {
        let answers = matches!(
            message.body,
            Body::Val { .. } | Body::RdVal { .. } | Body::BcReadReply { .. } | Body::ReadTsReply { .. }
        );
        let half = (to.key_holder() / 0x1_0000).is_multiple_of(2);
        let told = &mut self.told;
        match self.lie {
            Lie::Silent if answers => {
                *told += 1;
                return false;
            }
            Lie::FakeValue => fake(&mut message.body, 1, told),
            Lie::FakeSame => fake(&mut message.body, 0, told),
            Lie::Equivocate if half => fake(&mut message.body, 1, told),
            Lie::Inflate => inflate(&mut message.body, told),
            Lie::Omit => {
                *told += 1;
                return told.is_multiple_of(2);
            }
            Lie::Slow => {
                *told += 1;
                std::thread::sleep(SLOW);
            }
            Lie::BadCrypto => spoil(&mut message.body, told),
            Lie::Mispredict => self.mispredict(message),
            Lie::Impostor => self.pose(message),
            Lie::Forget | Lie::Silent | Lie::Equivocate | Lie::Refuse => {}
        }
        true
    }

    /// Names a later version as its own, with a valid signature.
    #[allow(clippy::wildcard_enum_match_arm, reason = "everything else names no version of a writer")]
    fn pose(&mut self, message: &mut Message) {
        let (version, signature) = match &mut message.body {
            Body::Tsr { version, signature, .. } => (version, signature),
            Body::RdVal { version, proof, .. } => (version, &mut proof.signature),
            _ => return,
        };
        self.told += 1;
        (version.val, version.client) = (version.val.saturating_add(1), self.own.as_client());
        *signature = Some(self.crypto.sign(&message.object, &Statement::Written(*version)));
    }

    /// Approves another version than the next, with a valid signature.
    fn mispredict(&mut self, message: &mut Message) {
        if let Body::ReadTsPrepReply { opt: Some((version, signature)), .. } = &mut message.body {
            self.told += 1;
            version.val = version.val.saturating_add(1);
            *signature = self.crypto.sign(&message.object, &Statement::Prepared(*version, self.lock));
        }
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

//! The profiles of faulty clients by their names (§10), for cells and for the swarm, which also draws faults of
//! [`crate::rogue`] itself.

use std::sync::Arc;

use quorate_quorum::bftbc::{optimistic_digest, prepare_digest};
use quorate_quorum::crypto::Statement;
use quorate_quorum::message::{Op, OptimisticRequest, PrepareRequest, Rid};
use quorate_quorum::settings::Protocol;
use quorate_quorum::version::{ObjectId, value_digest};
use quorate_quorum::{Body, Message};
use quorate_wire::Principal;

use crate::profile::{Behaviour, Scene};
use crate::rogue::{Actor, Fault, Faulty, Hoarder, Scheme};

/// Acts of a client with a script: more than any cell lasts.
const ACTS: u32 = 1_000_000;
/// Messages that a replayer keeps.
const KEPT: usize = 16;

/// A profile of a faulty client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientProfile {
    /// Stops in the middle of a write.
    CrashMidWrite,
    /// Sends the last phase of a write to two servers.
    PartialWrite,
    /// Different values under one counter.
    Poison,
    /// A counter far ahead.
    TsExhaust,
    /// Prepares, and is stopped.
    LurkThenStop,
    /// Leaves signed requests with a colluder.
    PreSign,
    /// Never says that a read is complete.
    ListenerLeak,
    /// Many reads that it never completes.
    ReadFlood,
    /// Old requests again.
    ReplayOld,
    /// Forged certificates.
    CertForge,
}

/// What takes the place of a correct client.
pub enum Part {
    /// A correct client behind a fault. `true`: it writes, and otherwise reads.
    Behind(Box<dyn Behaviour>, bool),
    /// A client with a script of its own. `true`: it is stopped after a while.
    Script(Box<dyn Actor>, bool),
}

impl core::fmt::Debug for Part {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(if matches!(self, Self::Behind(..)) { "Behind" } else { "Script" })
    }
}

impl ClientProfile {
    /// Every profile, with its name and what it does.
    pub const ALL: &[(Self, &str, &str)] = &[
        (Self::CrashMidWrite, "crash-mid-write", "stops after it has sent a value to two servers"),
        (Self::PartialWrite, "partial-write", "writes to two servers only"),
        (Self::Poison, "poison", "writes a different value to each server under one counter"),
        (Self::TsExhaust, "ts-exhaust", "writes under the largest counter but one"),
        (
            Self::LurkThenStop,
            "lurk-then-stop",
            "prepares all it can, is stopped, and its writes appear later",
        ),
        (Self::PreSign, "pre-sign", "leaves signed requests for others to send after its stop"),
        (Self::ListenerLeak, "listener-leak", "never reports that a read is complete"),
        (Self::ReadFlood, "read-flood", "begins reads without an end"),
        (Self::ReplayOld, "replay-old", "repeats its old messages"),
        (Self::CertForge, "cert-forge", "forges certificates"),
    ];

    /// Returns its name.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(profile, ..)| *profile == self).map_or("", |(_, name, _)| name)
    }

    /// Returns the profile with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, other, _)| *other == name).map(|(profile, ..)| *profile)
    }

    /// Says whether it does anything in a protocol.
    pub fn fits(self, protocol: Protocol) -> bool {
        let certificates = matches!(protocol, Protocol::BftBc(_));
        match self {
            Self::LurkThenStop | Self::PreSign | Self::CertForge => certificates,
            Self::ListenerLeak => matches!(protocol, Protocol::MinimalC | Protocol::MinimalF),
            _ => true,
        }
    }

    /// Says whether a protocol tolerates it (§8), and it does something there. `evidence`: the setting of MINIMAL-F.
    pub fn is_tolerated(self, protocol: Protocol, evidence: bool) -> bool {
        let half = matches!(self, Self::CrashMidWrite | Self::PartialWrite);
        let within = match protocol {
            Protocol::Phalanx => !matches!(self, Self::Poison | Self::TsExhaust),
            Protocol::MinimalC => !half && !matches!(self, Self::Poison | Self::TsExhaust),
            Protocol::MinimalF => self != Self::TsExhaust || evidence,
            Protocol::BftBc(_) => true,
        };
        within && self.fits(protocol)
    }

    /// Returns what such a client does with an object.
    pub fn part(self, protocol: Protocol, object: ObjectId) -> Part {
        let hoarder = |scheme, stopped| {
            let mut other = object;
            other.0[0] ^= 1;
            Part::Script(Box::new(Hoarder::new(object, other, ACTS).out_for(scheme)), stopped)
        };
        let behind = |fault| Part::Behind(Box::new(Faulty::new(fault)), true);
        match self {
            Self::CrashMidWrite => behind(Fault::CrashMidWrite(2)),
            Self::PartialWrite => behind(Fault::Partial(3)),
            Self::Poison if matches!(protocol, Protocol::BftBc(_)) => Part::Behind(Box::new(TwoFaced), true),
            Self::Poison => behind(Fault::Poison),
            Self::TsExhaust if matches!(protocol, Protocol::BftBc(_)) => hoarder(Scheme::Exhaust, false),
            Self::TsExhaust => Part::Behind(Box::new(Exhauster), true),
            Self::LurkThenStop => hoarder(Scheme::Lurk, true),
            Self::PreSign => hoarder(Scheme::PreSign, true),
            Self::ListenerLeak => Part::Behind(Box::new(Faulty::new(Fault::ListenerLeak)), false),
            Self::ReadFlood => Part::Script(Box::new(Flooder { protocol, object, number: 0 }), false),
            Self::ReplayOld => Part::Behind(Box::new(Replayer { kept: Vec::new() }), true),
            Self::CertForge => hoarder(Scheme::Forge, false),
        }
    }
}

/// Writes under the largest counter but one.
struct Exhauster;

impl Behaviour for Exhauster {
    fn outgoing(&mut self, to: Principal, mut message: Message, scene: &mut Scene<'_>) {
        if let Body::Store { version, proof, .. } = &mut message.body {
            version.val = u64::MAX - 1;
            if proof.signature.is_some() {
                proof.signature = Some(scene.sign(&message.object, &Statement::Written(*version)));
            }
        }
        scene.sends.push((0, to, message));
    }
}

/// BFT-BC: asks each server to approve a value of its own.
struct TwoFaced;

impl Behaviour for TwoFaced {
    #[allow(clippy::wildcard_enum_match_arm, reason = "what asks for no approval is honest")]
    fn outgoing(&mut self, to: Principal, mut message: Message, scene: &mut Scene<'_>) {
        let digest = value_digest(&to.to_wire().to_le_bytes());
        let object = message.object;
        match &mut message.body {
            Body::Prepare { op, request, auth } => {
                let mut other = PrepareRequest::clone(request);
                other.version.digest = digest;
                *auth = auth.map(|_| {
                    let statement = Statement::AskPrepare(other.client, prepare_digest(*op, &other));
                    scene.sign(&object, &statement)
                });
                *request = Arc::new(other);
            }
            Body::ReadTsPrep { op, request, auth, .. } => {
                let mut other = OptimisticRequest::clone(request);
                other.digest = digest;
                *auth = auth.map(|_| {
                    let statement = Statement::AskOptimistic(other.client, optimistic_digest(*op, &other));
                    scene.sign(&object, &statement)
                });
                *request = Arc::new(other);
            }
            _ => {}
        }
        scene.sends.push((0, to, message));
    }
}

/// Sends an old message with each new one.
struct Replayer {
    kept: Vec<Message>,
}

impl Behaviour for Replayer {
    fn outgoing(&mut self, to: Principal, message: Message, scene: &mut Scene<'_>) {
        if self.kept.len() < KEPT {
            self.kept.push(message.clone());
        } else {
            let place = scene.rng.index(KEPT * 8);
            if let Some(old) = self.kept.get_mut(place) {
                *old = message.clone();
            }
        }
        scene.sends.push((0, to, message));
        if let Some(old) = scene.rng.pick(&self.kept) {
            scene.sends.push((0, to, old));
        }
    }
}

/// Begins reads, and completes none.
struct Flooder {
    protocol: Protocol,
    object: ObjectId,
    number: u64,
}

impl Actor for Flooder {
    fn message(&mut self, _from: Principal, _message: &Message, _scene: &mut Scene<'_>) {}

    fn tick(&mut self, scene: &mut Scene<'_>) {
        self.number += 1;
        let op = Op { incarnation: 1, number: self.number, phase: 1 };
        let body = match self.protocol {
            Protocol::Phalanx => Body::Rd { op },
            Protocol::MinimalC | Protocol::MinimalF => {
                Body::Read { rid: Rid { incarnation: 1, counter: self.number }, attempt: 0 }
            }
            Protocol::BftBc(_) => Body::BcRead { op, nonce: self.number.into() },
        };
        for server in scene.settings.thresholds.servers() {
            scene.send(server, self.object, body.clone());
        }
        scene.tick = Some(100);
    }
}

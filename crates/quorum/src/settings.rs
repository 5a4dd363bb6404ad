//! What the processes of one cluster agree on.

use alloc::collections::BTreeSet;

use quorate_wire::ClientId;

use crate::access::Rules;
use crate::mutants::Mutant;
use crate::thresholds::Thresholds;

/// Which register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Signed values, readers write back (§3).
    Phalanx,
    /// Listeners, no signatures, correct clients (§4).
    MinimalC,
    /// Listeners, signed stores, servers relay (§5).
    MinimalF,
    /// Certificates, Byzantine clients (§6).
    BftBc(Variant),
}

/// The variants of BFT-BC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// Three phases (§6.1).
    Base,
    /// Two phases when undisturbed (§6.4).
    Optimized,
    /// A write builds on a completed one (§6.7).
    Strong,
    /// Both.
    StrongOptimized,
}

impl Variant {
    /// Says whether phase 1 may prepare (§6.4).
    pub fn is_optimized(self) -> bool {
        matches!(self, Self::Optimized | Self::StrongOptimized)
    }

    /// Says whether a predecessor must be completed (§6.7).
    pub fn is_strong(self) -> bool {
        matches!(self, Self::Strong | Self::StrongOptimized)
    }
}

impl Protocol {
    /// Every protocol with its name in commands.
    pub const ALL: &[(Self, &str)] = &[
        (Self::Phalanx, "phalanx"),
        (Self::MinimalC, "minimal-c"),
        (Self::MinimalF, "minimal-f"),
        (Self::BftBc(Variant::Base), "bft-bc-base"),
        (Self::BftBc(Variant::Optimized), "bft-bc-optimized"),
        (Self::BftBc(Variant::Strong), "bft-bc-strong"),
        (Self::BftBc(Variant::StrongOptimized), "bft-bc-strong-optimized"),
    ];

    /// Returns its name.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(protocol, _)| *protocol == self).map_or("", |(_, name)| name)
    }

    /// Says whether writers sign versions.
    pub fn writers_sign(self) -> bool {
        matches!(self, Self::Phalanx | Self::MinimalF)
    }
}

/// How a writer of MINIMAL learns the largest version (§4, exhaustion).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ts {
    /// QTS and q answers TSR. In MINIMAL-C one faulty server can then exhaust the counter.
    Query,
    /// A read: q equal answers.
    Read,
}

/// How clients of BFT-BC authenticate PREPARE (§6.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAuth {
    /// By the channel.
    Mac,
    /// By a signature over every field.
    Signature,
}

/// Time-outs, in microseconds. They drive retransmission and nothing else (§1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Before the first retransmission. It doubles, with jitter. 0: never, for reliable channels.
    pub first: u64,
    /// The longest wait between two retransmissions.
    pub longest: u64,
    /// How long a listener lives (§4, Bounds), doubled with each attempt of one read. 0: no lease.
    pub lease: u64,
    /// How often servers compare their access lists (§15). 0: never, for reliable channels.
    pub access: u64,
}

/// Bounds on what others can make a process keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Objects of a server.
    pub objects: usize,
    /// Clients that a server keeps state for, for each object.
    pub clients: usize,
    /// Versions in `seen` of an object (§5).
    pub seen: usize,
    /// Objects whose STORE some server has not acknowledged. Beyond them, a client forgets the oldest that a quorum has.
    pub unacknowledged: usize,
    /// The bytes of these STOREs, likewise.
    pub unacknowledged_bytes: usize,
    /// Bytes of a value.
    pub value: usize,
}

/// The settings of a cluster.
#[allow(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
#[derive(Clone, Debug)]
pub struct Settings {
    /// Quorum sizes.
    pub thresholds: Thresholds,
    /// The register.
    pub protocol: Protocol,
    /// How writers of MINIMAL learn a version.
    pub ts: Ts,
    /// MINIMAL-F: the predecessor of a write is proved (`ts_evidence`, §5).
    pub evidence: bool,
    /// MINIMAL-F: relay before the acknowledgement (`relay_order`, §5).
    pub relay_first: bool,
    /// MINIMAL-F: acknowledge and repeat FSTORE. Off in the paper's arms.
    pub fack: bool,
    /// The one key that all writers share (`writer_keys = shared`, §5).
    pub shared_writer: Option<ClientId>,
    /// How clients of BFT-BC authenticate.
    pub client_auth: ClientAuth,
    /// BFT-BC: tell the servers that a write has completed (COMPLETE, H7).
    pub complete: bool,
    /// BFT-BC: acknowledge WRITE at once, and send the signature afterwards (`wreply = mac_then_sig`, §6.4). Off in the
    /// paper's arms.
    pub late: bool,
    /// PHALANX: write back even where the answers are unanimous (§3).
    pub always_write_back: bool,
    /// Check every answer, not only the largest (`verify = eager`, §3).
    pub eager: bool,
    /// BFT-BC: do not verify again a certificate that is held already (§2.4).
    pub cache: bool,
    /// Time-outs.
    pub timing: Timing,
    /// Bounds.
    pub limits: Limits,
    /// Who may read and write which namespace (§15).
    pub rules: Rules,
    /// Principals that sign access lists.
    pub administrators: BTreeSet<u64>,
    #[cfg(feature = "mutants")]
    mutant: Option<Mutant>,
}

impl Settings {
    /// Returns the settings of a product with this register.
    pub fn new(thresholds: Thresholds, protocol: Protocol) -> Self {
        Self {
            thresholds,
            protocol,
            ts: if protocol == Protocol::MinimalC { Ts::Read } else { Ts::Query },
            evidence: false,
            relay_first: false,
            fack: true,
            shared_writer: None,
            client_auth: ClientAuth::Signature,
            complete: true,
            late: true,
            always_write_back: false,
            eager: false,
            cache: true,
            timing: Timing { first: 20_000, longest: 1_000_000, lease: 30_000_000, access: 5_000_000 },
            limits: Limits {
                objects: 1 << 20,
                clients: 1024,
                seen: 4096,
                unacknowledged: 4096,
                unacknowledged_bytes: 64 << 20,
                value: crate::version::VALUE_MAX,
            },
            rules: Rules::default(),
            administrators: BTreeSet::new(),
            #[cfg(feature = "mutants")]
            mutant: None,
        }
    }

    /// Returns these settings with a bug. None: the feature `mutants` is not compiled in.
    pub fn planted(self, mutant: Mutant) -> Option<Self> {
        #[cfg(feature = "mutants")]
        {
            Some(Self { mutant: Some(mutant), ..self })
        }
        #[cfg(not(feature = "mutants"))]
        {
            _ = mutant;
            None
        }
    }

    /// Says whether this bug is planted.
    #[inline]
    pub fn wrong(&self, mutant: Mutant) -> bool {
        #[cfg(feature = "mutants")]
        {
            self.mutant == Some(mutant)
        }
        #[cfg(not(feature = "mutants"))]
        {
            _ = mutant;
            false
        }
    }

    /// Says whether retransmission is on.
    pub fn retransmits(&self) -> bool {
        self.timing.first > 0
    }
}

//! The names of registers and their variants on the command line.

use clap::ValueEnum;
use quorate_quorum::Protocol;
use quorate_quorum::settings::Variant;

use crate::code::Code;
use crate::fail::Failure;

/// A register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Name {
    /// Tolerates clients that crash
    Phalanx,
    /// Tolerates no faulty clients; uses no signatures
    MinimalC,
    /// Tolerates Byzantine clients
    MinimalF,
    /// Tolerates Byzantine clients, and limits what they can do after they were stopped; slower
    BftBc,
}

/// A variant of bft-bc.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum VariantName {
    /// A write has three phases. After a Byzantine client has been stopped, at most one more write of it can appear
    Base,
    /// A write has two phases, or three if writes overlap. As base, but at most two more writes can appear
    #[default]
    Optimized,
    /// A write has three phases. As base, but no write can appear after other clients have completed two writes
    Strong,
    /// The phases of optimized, with the limit of strong
    StrongOptimized,
}

pub(super) fn protocol(name: Name, variant: Option<VariantName>) -> Result<Protocol, Failure> {
    if name != Name::BftBc && variant.is_some() {
        return Err(Failure::new(Code::Value, "only bft-bc has variants").at("--variant"));
    }
    Ok(match name {
        Name::Phalanx => Protocol::Phalanx,
        Name::MinimalC => Protocol::MinimalC,
        Name::MinimalF => Protocol::MinimalF,
        Name::BftBc => Protocol::BftBc(match variant.unwrap_or_default() {
            VariantName::Base => Variant::Base,
            VariantName::Optimized => Variant::Optimized,
            VariantName::Strong => Variant::Strong,
            VariantName::StrongOptimized => Variant::StrongOptimized,
        }),
    })
}

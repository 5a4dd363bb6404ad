//! The names of registers and their variants on the command line.

use clap::ValueEnum;
use quorate_quorum::Protocol;
use quorate_quorum::settings::Variant;

use crate::code::Code;
use crate::fail::Failure;

/// A register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Name {
    /// Tolerates clients that stop in the middle of a write
    Phalanx,
    /// Tolerates no faulty clients; needs no signatures
    MinimalC,
    /// Tolerates Byzantine clients
    MinimalF,
    /// Tolerates Byzantine clients, and limits the writes that they can prepare; slower
    BftBc,
}

/// A variant of bft-bc.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum VariantName {
    /// A write has three phases. After a client stops, one of its writes may still become visible
    Base,
    /// A write has two phases if no other write disturbs it. After a client stops, two of its writes may become visible
    #[default]
    Optimized,
    /// A write has three phases. After a client stops and others write twice, no more of its writes become visible
    Strong,
    /// The phases of optimized, and the guarantee of strong
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

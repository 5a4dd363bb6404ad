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
    /// Tolerates Byzantine clients. An administrator can stop a client, that is, take away its right to write. After
    /// that, only a few of the writes that it had begun can become visible. Writes are slower than with minimal-f
    BftBc,
}

/// A variant of bft-bc.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum VariantName {
    /// A write has three phases. After a Byzantine client has been stopped, at most one of its writes can become
    /// visible
    Base,
    /// A write has two phases, or three if writes overlap. At most two writes of a stopped client can become visible
    #[default]
    Optimized,
    /// A write has three phases. It has a fourth if the client cannot tell whether a quorum of servers already stores the
    /// current value. When correct clients have completed two writes after the stop, one after the other, no write of the
    /// stopped client can become visible any more
    Strong,
    /// A write has two phases, or more if writes overlap. As with strong, no write of a stopped client can become visible
    /// any more after two writes by correct clients
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

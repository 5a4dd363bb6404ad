//! The names of registers and their variants on the command line.

use clap::ValueEnum;
use quorate_quorum::Protocol;
use quorate_quorum::settings::Variant;

use crate::code::Code;
use crate::fail::Failure;

/// A register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Name {
    /// Signed values; readers write back; clients may stop half way, but must not lie
    Phalanx,
    /// No signatures; servers forward new values to waiting readers; clients must finish their writes
    MinimalC,
    /// Signed values; servers forward new values to waiting readers and to each other; clients may be Byzantine
    MinimalF,
    /// Certificates; clients may be Byzantine
    BftBc,
}

/// A variant of bft-bc.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum VariantName {
    /// Writes in three phases
    Base,
    /// Writes in two phases when undisturbed
    #[default]
    Optimized,
    /// Once a Byzantine client has stopped and correct clients have then written a key twice, no further write of the
    /// stopped client to that key becomes visible
    Strong,
    /// Optimized and strong
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

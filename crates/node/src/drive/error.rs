//! Why a drive cannot be created.

use quorate_pbft::ConfigError;
use quorate_pbft::config::Durability;

/// Why a replica cannot be driven.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DriveError {
    /// A setting breaks a rule.
    Config(ConfigError),
    /// Without a journal, only [`Durability::Memory`] is possible.
    Durability(Durability),
}

impl core::fmt::Display for DriveError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Durability(durability) => {
                write!(f, "durability = {durability:?}: there is no disk here, use Memory")
            }
        }
    }
}

impl std::error::Error for DriveError {}

//! How much is measured.

use serde::{Deserialize, Serialize};

use crate::cable::Cable;
use crate::signatures::Signatures;

/// How much is measured, least first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effort {
    /// Just enough to test that it runs: the figures mean nothing.
    Tiny,
    /// Within a minute.
    Quick,
    /// As in the papers, as far as it makes sense.
    #[default]
    Full,
}

impl Effort {
    /// Chooses one of three.
    pub fn of<T>(self, full: T, quick: T, tiny: T) -> T {
        match self {
            Self::Full => full,
            Self::Quick => quick,
            Self::Tiny => tiny,
        }
    }
}

/// The settings of an experiment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// How much is measured.
    pub effort: Effort,
    /// Experiments on registers: the signatures on sockets, if not the experiment's own.
    pub signatures: Option<Signatures>,
    /// Experiments on registers: the links of the machines that are emulated on sockets. None: loopback.
    pub cable: Option<Cable>,
}

//! The errors of procedures.

use quorate_service::Stop;
use quorate_service::space::StoreError;

use crate::nfs3::Stat;

/// Why a procedure fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The client's error, found before anything was changed.
    Stat(Stat),
    /// The execution stops. [`Stop::Refused`] undoes a change for which there was not enough space.
    Stop(Stop),
}

/// The result of a part of a procedure.
pub(crate) type Done<T> = Result<T, Trouble>;

impl From<Stop> for Trouble {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

impl From<Stat> for Trouble {
    fn from(stat: Stat) -> Self {
        Self::Stat(stat)
    }
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Full => Self::Stop(Stop::Refused),
            // Keys have a limit that every tree accepts.
            StoreError::KeyTooLong => Self::Stop(Stop::Corrupt),
            StoreError::Stop(stop) => Self::Stop(stop),
        }
    }
}

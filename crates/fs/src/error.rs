//! The errors of operations, in no protocol's format.

use quorate_service::Stop;
use quorate_service::space::StoreError;

/// Why an operation is refused: the usual reasons of file systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// The caller is not the owner, or not privileged.
    Perm,
    NoEnt,
    /// The mode denies it.
    Access,
    Exist,
    /// The two files are not in one export.
    XDev,
    NotDir,
    IsDir,
    Inval,
    FBig,
    NoSpc,
    /// The export is read-only.
    RoFs,
    MLink,
    NameTooLong,
    NotEmpty,
    DQuot,
    /// The handle's file is gone.
    Stale,
    BadHandle,
    /// The file has changed since the caller looked.
    NotSync,
    BadCookie,
    TooSmall,
    BadType,
}

/// Why an operation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpError {
    /// The client's error, found before anything was changed.
    Refused(Why),
    /// The execution stops. [`Stop::Refused`] undoes a change for which there was not enough space.
    Stop(Stop),
}

/// The result of a part of an operation.
pub(crate) type Done<T> = Result<T, OpError>;

impl From<Stop> for OpError {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

impl From<Why> for OpError {
    fn from(why: Why) -> Self {
        Self::Refused(why)
    }
}

impl From<StoreError> for OpError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Full => Self::Stop(Stop::Refused),
            // Keys have a limit that every tree accepts.
            StoreError::KeyTooLong => Self::Stop(Stop::Corrupt),
            StoreError::Stop(stop) => Self::Stop(stop),
        }
    }
}

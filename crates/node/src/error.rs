//! Errors of a node's files, ports and disk: what failed, where, and what to do next. The command line gives each
//! kind a stable code.

use std::fmt;
use std::io::ErrorKind;
use std::path::Path;

/// The kind of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeErrorKind {
    /// The value of a key is invalid.
    Value,
    /// An address is in use by another process.
    Taken,
    /// Settings break a rule, or conflict with each other.
    Rule,
    /// A key that does not exist.
    Setting,
    /// Other users can read a file with a secret.
    Exposed,
    /// A file of the node is missing, or cannot be read or parsed.
    Unreadable,
    /// A directory or file cannot be written.
    Unwritable,
    /// A key is damaged, or not the one in cluster.toml.
    WrongKey,
    /// Files of a version that this program cannot read.
    OtherFormat,
    /// A state that an earlier version has written in another form.
    OtherState,
    /// What a client has used of its timestamps cannot be told.
    Timestamps,
    /// There is something already where something new was to be made.
    Occupied,
    /// Another process uses the same directory.
    InUse,
    /// The disk has failed or is full while the node runs.
    Disk,
    /// The sockets have failed.
    Network,
}

/// An error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeError {
    /// Its kind.
    pub kind: NodeErrorKind,
    /// What failed: one sentence without a full stop.
    pub what: String,
    /// The file, line or address concerned.
    pub place: Option<String>,
    /// What to do next.
    pub next: Option<String>,
}

impl NodeError {
    /// Returns an error, described in one sentence.
    pub fn new(kind: NodeErrorKind, what: impl Into<String>) -> Self {
        Self { kind, what: what.into(), place: None, next: None }
    }

    /// Adds the place.
    #[must_use]
    pub fn at(self, place: impl Into<String>) -> Self {
        Self { place: Some(place.into()), ..self }
    }

    /// Adds the file or directory concerned.
    #[must_use]
    pub fn in_file(self, path: &Path) -> Self {
        self.at(path.display().to_string())
    }

    /// Adds what to do next.
    #[must_use]
    pub fn next(self, command: impl Into<String>) -> Self {
        Self { next: Some(command.into()), ..self }
    }

    /// Returns the error of a file that cannot be read.
    pub fn unreadable(path: &Path, error: &std::io::Error) -> Self {
        Self::new(NodeErrorKind::Unreadable, format!("cannot be read: {error}")).in_file(path)
    }

    /// Returns the error of a file or directory that cannot be written.
    pub fn unwritable(path: &Path, error: &std::io::Error) -> Self {
        let full = matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded);
        let (kind, next) = if full {
            (NodeErrorKind::Disk, "free some space there")
        } else {
            (NodeErrorKind::Unwritable, "make it writable for this user, or choose another directory")
        };
        Self::new(kind, format!("cannot be written: {error}")).in_file(path).next(next)
    }
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if let Some(place) = &self.place {
            write!(f, "\n  --> {place}")?;
        }
        if let Some(next) = &self.next {
            write!(f, "\n  do: {next}")?;
        }
        Ok(())
    }
}

impl std::error::Error for NodeError {}

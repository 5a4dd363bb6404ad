//! What goes wrong with a node's files, ports and disk, for whoever runs it: what, where, and what to do
//! next. The command line gives each kind a stable code.

use std::fmt;
use std::io::ErrorKind;
use std::path::Path;

/// What kind of thing went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The value of a key is not of its form.
    Value,
    /// An address is taken by another process.
    Taken,
    /// Settings break a rule or contradict one another.
    Rule,
    /// A key that does not exist.
    Setting,
    /// A file with a secret that others can read.
    Exposed,
    /// A file of the node is missing, or cannot be read or understood.
    Unreadable,
    /// A directory or file cannot be written.
    Unwritable,
    /// A key is damaged, or not the one that the cluster knows.
    WrongKey,
    /// Files of a version that this program does not read.
    OtherFormat,
    /// A state that an earlier version has written in another form.
    OtherState,
    /// What a client has used of its timestamps cannot be told.
    Timestamps,
    /// There is something already where something new was to be made.
    Occupied,
    /// Another process runs on the same directory.
    InUse,
    /// The disk has failed or is full while the node runs.
    Disk,
    /// The sockets cannot be used any more.
    Network,
}

/// Something that went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// What kind of thing.
    pub kind: Kind,
    /// One sentence without a full stop.
    pub what: String,
    /// The file, line or address that it is about.
    pub place: Option<String>,
    /// What to do next.
    pub next: Option<String>,
}

impl Trouble {
    /// Returns trouble of a kind, in one sentence.
    pub fn new(kind: Kind, what: impl Into<String>) -> Self {
        Self { kind, what: what.into(), place: None, next: None }
    }

    /// Says what it is about.
    #[must_use]
    pub fn at(self, place: impl Into<String>) -> Self {
        Self { place: Some(place.into()), ..self }
    }

    /// Says which file or directory it is about.
    #[must_use]
    pub fn in_file(self, path: &Path) -> Self {
        self.at(path.display().to_string())
    }

    /// Says what to do next.
    #[must_use]
    pub fn next(self, command: impl Into<String>) -> Self {
        Self { next: Some(command.into()), ..self }
    }

    /// Returns the trouble of a file that cannot be read.
    pub(crate) fn unreadable(path: &Path, error: &std::io::Error) -> Self {
        Self::new(Kind::Unreadable, format!("cannot be read: {error}")).in_file(path)
    }

    /// Returns the trouble of a file or directory that cannot be written.
    pub(crate) fn unwritable(path: &Path, error: &std::io::Error) -> Self {
        let full = matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded);
        let (kind, next) = if full {
            (Kind::Disk, "make room there")
        } else {
            (Kind::Unwritable, "see to it that it can be written, or choose another directory")
        };
        Self::new(kind, format!("cannot be written: {error}")).in_file(path).next(next)
    }
}

impl fmt::Display for Trouble {
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

impl std::error::Error for Trouble {}

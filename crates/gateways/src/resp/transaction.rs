//! A transaction of a connection: the commands between MULTI and EXEC, and the keys that WATCH names.

use std::ops::Range;

use quorate_service::kv::{All, CHECKS_MAX, Further, MARK_BYTES};

use super::encode::Version;
use super::reply::Form;

/// Maximum number of commands of a transaction.
const COMMANDS_MAX: usize = 1024;
/// Maximum bytes of the marks with their operations.
const WATCH_BYTES_MAX: usize = 64 << 10;

/// A command of a transaction.
#[derive(Clone, Debug)]
pub(super) enum Queued {
    /// Its reply is known.
    Known(Vec<u8>),
    /// The cluster executes it.
    Asked(Form),
}

/// A transaction that the cluster executes.
#[derive(Clone, Debug)]
pub(super) struct Exec {
    /// Its commands.
    pub(super) items: Vec<Queued>,
    pub(super) version: Version,
    /// The database before it, which is that after it if it is not executed.
    pub(super) database_before: u8,
}

/// The commands of a transaction so far.
#[derive(Debug, Default)]
pub(super) struct Queue {
    items: Vec<Queued>,
    /// The operations, and where each of them is.
    bytes: Vec<u8>,
    operations: Vec<Range<usize>>,
    /// A command was refused: EXEC does nothing.
    is_refused: bool,
    /// The database before the transaction.
    database_before: u8,
    known: usize,
}

/// The keys that are watched.
#[derive(Debug, Default)]
pub(super) struct Watched {
    /// The operations that mark them, with the marks.
    marks: Vec<([u8; MARK_BYTES], Vec<u8>)>,
    /// A WATCH was refused: EXEC does nothing.
    is_refused: bool,
}

impl Queue {
    pub(super) fn new(database: u8) -> Self {
        Self { database_before: database, ..Self::default() }
    }

    /// A command was refused: EXEC does nothing.
    pub(super) fn refuse(&mut self) {
        self.is_refused = true;
    }

    pub(super) fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// Returns the database before the transaction.
    pub(super) fn database_before(&self) -> u8 {
        self.database_before
    }

    /// Adds a command to a transaction of at most `bytes_max`. Returns false if there is no room: then the transaction
    /// is refused.
    pub(super) fn push(&mut self, item: Queued, operation: &[u8], bytes_max: usize) -> bool {
        if let Queued::Known(reply) = &item {
            self.known += reply.len();
        }
        let len = self.bytes.len() + operation.len() + 4 * (self.operations.len() + 1) + self.known;
        if self.items.len() >= COMMANDS_MAX || len + 16 > bytes_max {
            self.is_refused = true;
            return false;
        }
        if matches!(item, Queued::Asked(_)) {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(operation);
            self.operations.push(start..self.bytes.len());
        }
        self.items.push(item);
        true
    }

    /// Appends the operation, and returns the transaction.
    pub(super) fn finish(self, watched: &Watched, version: Version, operation: &mut Vec<u8>) -> Exec {
        let checks = watched.marks.iter().map(|(mark, operation)| (mark, operation.as_slice()));
        let operations = self.operations.iter().filter_map(|range| self.bytes.get(range.clone()));
        Further::All(All::new(checks, operations, &mut Vec::new())).encode(operation);
        Exec { items: self.items, version, database_before: self.database_before }
    }

    /// Returns the number of bytes it holds.
    pub(super) fn held(&self) -> usize {
        self.bytes.capacity() + self.known + self.items.capacity() * size_of::<Queued>()
    }
}

impl Watched {
    /// Returns whether marks of an operation of this length have room.
    pub(super) fn has_room(&self, len: usize) -> bool {
        self.held() + len + MARK_BYTES + 8 <= WATCH_BYTES_MAX && self.marks.len() < CHECKS_MAX
    }

    /// Adds a mark, which has room.
    pub(super) fn push(&mut self, mark: [u8; MARK_BYTES], operation: &[u8]) {
        self.marks.push((mark, operation.to_vec()));
    }

    /// A WATCH was refused: EXEC does nothing.
    pub(super) fn refuse(&mut self) {
        self.is_refused = true;
    }

    pub(super) fn is_refused(&self) -> bool {
        self.is_refused
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn held(&self) -> usize {
        self.marks.iter().map(|(_, operation)| operation.len() + MARK_BYTES + 8).sum()
    }
}

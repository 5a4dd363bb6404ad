//! Histories: what good clients asked for and what they were told (§14).

use std::collections::BTreeMap;

use quorate_quorum::version::{ObjectId, Version};
use quorate_wire::ClientId;

/// What was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationKind {
    /// A read.
    Read,
    /// A write.
    Write,
}

/// An operation of a good client. Times are numbers of events, so no two are equal.
#[derive(Clone, Debug)]
pub struct Operation {
    /// Who asked.
    pub client: ClientId,
    /// Of which object.
    pub object: ObjectId,
    /// What.
    pub kind: OperationKind,
    /// When.
    pub invoked: u64,
    /// When it ended, if it did.
    pub responded: Option<u64>,
    /// The value written, or read if it ended.
    pub value: Vec<u8>,
    /// The version written or read, if it ended.
    pub version: Option<Version>,
}

/// A client that is not good, with the time of its stop (§6.7).
#[derive(Clone, Copy, Debug)]
pub struct Rogue {
    /// Who.
    pub client: ClientId,
    /// When it was stopped: its key is revoked and the servers know.
    pub stopped: Option<u64>,
}

/// What happened in a run, as far as good clients can see.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// In the order of their invocation.
    pub operations: Vec<Operation>,
    /// The clients that are not good.
    pub rogues: Vec<Rogue>,
}

impl History {
    /// Returns the history of each object: linearizability is local.
    pub fn by_object(&self) -> BTreeMap<ObjectId, Vec<&Operation>> {
        let mut objects: BTreeMap<ObjectId, Vec<&Operation>> = BTreeMap::new();
        for operation in &self.operations {
            objects.entry(operation.object).or_default().push(operation);
        }
        objects
    }

    /// Says whether this client is not good.
    pub fn is_rogue(&self, client: ClientId) -> bool {
        self.rogues.iter().any(|rogue| rogue.client == client)
    }
}

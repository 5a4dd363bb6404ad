//! Objects that clients read and nobody has written: a server keeps their listeners.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use quorate_wire::ClientId;

use crate::version::ObjectId;

/// The most objects that the reads of one client, in all its lanes, bring to a server.
const CLIENT_OBJECTS_MAX: usize = 4096;

/// Which client's read brought each object. So a client that may only read leaves room for those who write.
#[derive(Debug, Default)]
pub(super) struct Unwritten {
    by: BTreeMap<ObjectId, ClientId>,
    /// By the holder of the client's keys.
    counts: BTreeMap<u64, usize>,
}

impl Unwritten {
    pub(super) fn len(&self) -> usize {
        self.by.len()
    }

    /// Adds a new object that `client` reads. Says whether the client may have it.
    pub(super) fn add(&mut self, object: ObjectId, client: ClientId) -> bool {
        let count = self.counts.entry(client.principal()).or_default();
        if *count >= CLIENT_OBJECTS_MAX {
            return false;
        }
        *count += 1;
        self.by.insert(object, client);
        true
    }

    /// The object is written, or forgotten. Says whether it was one of these.
    pub(super) fn remove(&mut self, object: ObjectId) -> bool {
        let Some(client) = self.by.remove(&object) else { return false };
        if let Some(count) = self.counts.get_mut(&client.principal()) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&client.principal());
            }
        }
        true
    }

    pub(super) fn list(&self) -> Vec<ObjectId> {
        self.by.keys().copied().collect()
    }
}

//! A replica of the file system that works on its calls for longer, as those of the paper do: it waits after a WRITE, or
//! writes each change to its store before it answers [CBASE04 §6.2].

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Result, anyhow};
use quorate_fs::{Fs, Operation};
use quorate_node::ReplicaNode;
use quorate_service::{Access, Context, Service, Stop, View};

use super::store::Store;
use crate::processes;

/// The role of such a process: see [`crate::child`].
pub(crate) const ROLE: &str = "files-replica";
/// The word for a replica without a store.
pub(crate) const NO_STORE: &str = "none";

/// The file system, with longer calls.
struct Longer {
    fs: Fs,
    /// How long a WRITE waits after it has changed the state.
    wait: Duration,
    /// Where changes are written before they are answered (PX-H). The record is the call itself, which has the data.
    store: Option<Store>,
}

/// Returns whether an operation is a call of WRITE: after its number and its kind, a call has the versions of RPC, the
/// program with its version, and the procedure [RFC 5531].
fn is_write(operation: &[u8]) -> bool {
    const NFS: u32 = 100_003;
    const WRITE: u32 = 7;
    let word = |at: usize| {
        let bytes = Operation::decode(operation)?.call.get(at..)?.first_chunk()?;
        Some(u32::from_be_bytes(*bytes))
    };
    (word(12), word(20)) == (Some(NFS), Some(WRITE))
}

impl Longer {
    fn is_stored(&self, operation: &[u8]) -> bool {
        self.store.is_some() && !self.fs.is_read_only(operation)
            || !self.wait.is_zero() && is_write(operation)
    }
}

impl Service for Longer {
    fn is_read_only(&self, operation: &[u8]) -> bool {
        self.fs.is_read_only(operation)
    }

    fn access(&self, operation: &[u8], keys: &mut Access) {
        self.fs.access(operation, keys);
        if self.is_stored(operation) {
            keys.stored();
        }
    }

    fn step(&self, cx: Context, step: u32, state: &mut View<'_>) -> Result<(), Stop> {
        self.fs.step(cx, step, state)
    }

    fn redo(&self, cx: Context, change: &[u8], state: &mut View<'_>) -> Result<bool, Stop> {
        self.fs.redo(cx, change, state)
    }

    fn cost(&self, operation: &[u8], page_bytes: usize) -> Option<u32> {
        self.fs.cost(operation, page_bytes)
    }

    fn room(&self, state: &View<'_>) -> Result<u32, Stop> {
        self.fs.room(state)
    }

    fn execute(
        &self,
        cx: Context,
        operation: &[u8],
        state: &mut View<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Stop> {
        self.fs.execute(cx, operation, state, out)
    }

    fn store(&self, _cx: Context, operation: &[u8]) {
        if self.is_stored(operation) {
            std::thread::sleep(self.wait);
            let is_kept = self.store.as_ref().is_none_or(|store| store.write(operation).is_ok());
            assert!(is_kept, "without its store, the replica is of no use to the experiment");
        }
    }
}

/// Runs the replica in `dir` until it is killed.
pub(crate) fn run(dir: &str, wait_us: &str, store: &str) -> Result<()> {
    processes::settle()?;
    let node = ReplicaNode::open(Path::new(dir)).map_err(|trouble| anyhow!("{trouble}"))?;
    let fs = Fs::new(node.settings().fs.clone()).map_err(|error| anyhow!("fs_{error}"))?;
    let store = if store == NO_STORE { None } else { Some(Store::new(store.parse()?)) };
    let service = Longer { fs, wait: Duration::from_micros(wait_us.parse()?), store };
    node.run_service(service, &AtomicBool::new(false)).map_err(|trouble| anyhow!("{trouble}"))
}

#[cfg(test)]
mod tests {
    use quorate_fs::nfs3::calls::Calls;
    use quorate_fs::nfs3::{Call, StableHow, WriteArgs};
    use quorate_fs::rpc::xdr::Opaque;

    use super::*;

    #[test]
    fn a_write_is_told_from_other_calls() {
        let mut calls = Calls::new("test", 0, 0, &[], 1);
        let args = WriteArgs {
            file: Opaque(b"file"),
            offset: 0,
            count: 4,
            stable: StableHow::FileSync,
            data: Opaque(b"data"),
        };
        for (call, expected) in [(Call::Write(args), true), (Call::GetAttr(Opaque(b"file")), false)] {
            let mut operation = Vec::new();
            Operation { address: [0; 16], call: &calls.nfs(&call) }.encode(&mut operation);
            assert_eq!(is_write(&operation), expected);
            assert!(!is_write(&operation[..20]), "it is too short");
        }
    }
}

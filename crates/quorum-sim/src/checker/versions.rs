//! The version checker (§14.1): it sees the version of each operation, and needs O(n log n).
//!
//! Versions are consistent if a read returns what was written, and an operation that begins after
//! another has ended has at least its version, a write a larger one. A good write has one version,
//! which every read of its value carries: without that, passing would not imply linearizability.

use std::collections::BTreeMap;

use quorate_quorum::version::{Version, value_digest};

use crate::history::{History, Operation, OperationKind};

/// Checks every object.
pub fn check(history: &History) -> Result<(), String> {
    history.by_object().values().try_for_each(|operations| check_object(history, operations))
}

fn check_object(history: &History, operations: &[&Operation]) -> Result<(), String> {
    let mut written: BTreeMap<&[u8], (&Operation, Option<Version>)> = BTreeMap::new();
    for operation in operations.iter().filter(|operation| operation.kind == OperationKind::Write) {
        if written.insert(&operation.value, (operation, operation.version)).is_some() {
            return Err("the workload wrote a value twice".to_string());
        }
    }
    for read in operations.iter().filter(|operation| operation.kind == OperationKind::Read) {
        let Some(version) = read.version else { continue };
        if value_digest(&read.value) != version.digest {
            return Err(format!(
                "a read by {} returned a value that is not that of {version:?}",
                read.client
            ));
        }
        if version.is_genesis() || history.is_rogue(version.client) {
            continue;
        }
        let Some((write, known)) = written.get_mut(read.value.as_slice()) else {
            return Err(format!("fabricated: {} read {version:?}, which nobody wrote", read.client));
        };
        if write.client != version.client {
            return Err(format!("{version:?} is a value of {}", write.client));
        }
        if *known.get_or_insert(version) != version {
            return Err(format!("one write is visible twice: as {known:?} and as {version:?}"));
        }
        if write.invoked > read.responded.unwrap_or(u64::MAX) {
            return Err(format!("{version:?} was read before it was written"));
        }
    }
    rising(operations)
}

/// A sweep over time with the largest version of the operations that have ended.
fn rising(operations: &[&Operation]) -> Result<(), String> {
    let mut events: Vec<(u64, bool, usize)> = Vec::with_capacity(operations.len() * 2);
    for (index, operation) in operations.iter().enumerate() {
        if let Some(responded) = operation.responded {
            events.push((operation.invoked, false, index));
            events.push((responded, true, index));
        }
    }
    events.sort_unstable();
    let mut floors: Vec<Option<(Version, usize)>> = vec![None; operations.len()];
    let mut largest: Option<(Version, usize)> = None;
    for (_, ended, index) in events {
        let operation = operations[index];
        if !ended {
            floors[index] = largest;
            continue;
        }
        let Some(version) = operation.version else { continue };
        if let Some((floor, before)) = floors[index] {
            let fine =
                if operation.kind == OperationKind::Write { version > floor } else { version >= floor };
            if !fine {
                let before = operations[before];
                return Err(format!(
                    "{:?} by {} at {} has {version:?}, after {:?} by {} had {floor:?}",
                    operation.kind, operation.client, operation.invoked, before.kind, before.client
                ));
            }
        }
        if largest.is_none_or(|(version_before, _)| version > version_before) {
            largest = Some((version, index));
        }
    }
    Ok(())
}

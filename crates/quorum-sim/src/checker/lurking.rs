//! BFT-linearizability (§14.4): what a client that was stopped can still make visible.

use std::collections::BTreeSet;

use quorate_quorum::settings::Variant;
use quorate_quorum::version::Version;
use quorate_wire::ClientId;

use crate::history::{History, Kind, Operation};

/// Returns how many versions of `client` became visible after its stop: a good operation that began
/// after the stop ended with a smaller version before a good read began that returned it.
pub fn lurking(history: &History, client: ClientId, stopped: u64) -> usize {
    let mut found = BTreeSet::new();
    for (object, operations) in history.by_object() {
        for (read, version) in reads_of(&operations, client) {
            let overtaken = operations.iter().any(|other| {
                other.invoked > stopped
                    && other.responded.is_some_and(|responded| responded < read.invoked)
                    && other.version.is_some_and(|smaller| smaller < version)
            });
            if overtaken {
                found.insert((object, version));
            }
        }
    }
    found.len()
}

fn reads_of<'a>(operations: &[&'a Operation], client: ClientId) -> Vec<(&'a Operation, Version)> {
    let reads = operations.iter().filter(|operation| operation.kind == Kind::Read);
    let reads = reads.filter_map(|read| Some((*read, read.version?)));
    reads.filter(|(_, version)| version.client == client).collect()
}

/// Checks the bound of this variant for every client that was stopped (§6.7): one version for base,
/// two for optimized, counted for each object; in the strong variants none after two good writes
/// that began after the stop.
pub fn check(history: &History, variant: Variant) -> Result<(), String> {
    for rogue in &history.rogues {
        let Some(stopped) = rogue.stopped else { continue };
        let objects = history.by_object();
        for operations in objects.values() {
            let only = History {
                operations: operations.iter().map(|operation| (*operation).clone()).collect(),
                rogues: Vec::new(),
            };
            let bound = if variant.is_optimized() { 2 } else { 1 };
            let count = lurking(&only, rogue.client, stopped);
            if count > bound {
                return Err(format!(
                    "{count} versions of {} became visible after its stop, at most {bound} may",
                    rogue.client
                ));
            }
            if variant.is_strong() {
                overwritten(operations, rogue.client, stopped)?;
            }
        }
    }
    Ok(())
}

fn overwritten(operations: &[&Operation], client: ClientId, stopped: u64) -> Result<(), String> {
    for (read, version) in reads_of(operations, client) {
        let writes = operations.iter().filter(|other| {
            other.kind == Kind::Write
                && other.invoked > stopped
                && other.responded.is_some_and(|responded| responded < read.invoked)
        });
        if writes.count() >= 2 {
            return Err(format!("{version:?} is visible after its client's stop and two good writes"));
        }
    }
    Ok(())
}

//! BFT-linearizability (§14.4): what a client that was stopped can still make visible.

use std::collections::BTreeSet;

use quorate_quorum::settings::Variant;
use quorate_quorum::version::Version;
use quorate_wire::ClientId;

use crate::history::{History, Operation, OperationKind};

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
    let reads = operations.iter().filter(|operation| operation.kind == OperationKind::Read);
    let reads = reads.filter_map(|read| Some((*read, read.version?)));
    reads.filter(|(_, version)| version.client == client).collect()
}

/// Checks the bound of this variant for every client that was stopped (§6.7): one version for base,
/// two for optimized, counted for each object; in the strong variants none after two good writes,
/// one after the other, that began after the stop.
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

/// Two writes that overlap may take versions with one counter, so that a version of the stopped client with the same
/// counter is above both. So the second has to begin after the first has ended.
fn overwritten(operations: &[&Operation], client: ClientId, stopped: u64) -> Result<(), String> {
    let writes =
        || operations.iter().filter(|other| other.kind == OperationKind::Write && other.invoked > stopped);
    let Some(first) = writes().filter_map(|write| write.responded).min() else { return Ok(()) };
    let second = writes().filter(|write| write.invoked > first).filter_map(|write| write.responded).min();
    let Some(second) = second else { return Ok(()) };
    match reads_of(operations, client).into_iter().find(|(read, _)| read.invoked > second) {
        Some((_, version)) => Err(format!(
            "{version:?} is visible after its client's stop and two good writes, one after the other"
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use quorate_quorum::version::ObjectId;

    use super::*;

    const STOPPED: ClientId = ClientId(9 << 16);
    const GOOD: ClientId = ClientId(1 << 16);

    fn operation(
        kind: OperationKind,
        (invoked, responded): (u64, u64),
        (counter, client): (u64, ClientId),
    ) -> Operation {
        let version = Version { val: counter, client, ..Version::GENESIS };
        let object = ObjectId([0; 32]);
        Operation {
            client: GOOD,
            object,
            kind,
            invoked,
            responded: Some(responded),
            value: Vec::new(),
            version: Some(version),
        }
    }

    /// Seed 1014066 of `bft-bc-strong`: two writes that overlap, below a version with the same counter.
    #[test]
    fn two_writes_count_only_one_after_the_other() {
        let judged = |second: (u64, u64)| {
            let operations = [
                operation(OperationKind::Write, (10, 20), (3, GOOD)),
                operation(OperationKind::Write, second, (3, GOOD)),
                operation(OperationKind::Read, (40, 50), (3, STOPPED)),
            ];
            overwritten(&operations.iter().collect::<Vec<_>>(), STOPPED, 5)
        };
        assert_eq!(judged((15, 30)), Ok(()), "they overlap");
        assert_eq!(judged((21, 45)), Ok(()), "the second ends after the read has begun");
        assert!(judged((21, 30)).is_err());
    }
}

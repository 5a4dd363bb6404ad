//! The file system as a service: any bytes as operations, some of which have been ordered by a client that
//! keeps to no rule, in a state that is soon full.
//!
//! Every operation is first tried as read-only and then ordered. None panics, and at the end the state is in
//! order and the counted usage matches what users own. An input is a byte that chooses the settings, and operations,
//! each after its length in two bytes.

use quorate_fs::rpc::ReplyHead;
use quorate_fs::rpc::xdr::{Reader, Xdr};
use quorate_fs::settings::{Export, Quota, Squash};
use quorate_fs::{Settings, fsck};

use crate::nfs::{Server, operations_through};
use crate::{Target, feature};

/// The target.
pub const TARGET: Target = Target {
    name: "fs",
    run,
    seeds,
    input_bytes_max: 16 << 10,
    memory_bytes_max: 32 << 20,
    millis_max: 2000,
};

/// The most operations of one execution.
const OPERATIONS_MAX: usize = 64;
/// Pages of the state, those of the clients' replies among them: there is room for 18 pages of data and trees.
const PAGES: u32 = 214;

/// Exports inside one another: all of it, what is in `d` to be read, and what is in there in `b` as nobody's. A user has
/// four pages and three inodes. Handles choose the export.
fn narrow() -> Settings {
    let exports = vec![
        Export { squash: Squash::Nobody, ..Export::of("/") },
        Export { read_only: true, ..Export::of("/d") },
        Export { squash: Squash::Everyone, ..Export::of("/d/b") },
    ];
    Settings { exports, quota: Quota { bytes_max: 4 * 4096, inodes_max: 3 }, ..Settings::default() }
}

fn run(input: &[u8]) -> u64 {
    let Some((first, mut rest)) = input.split_first() else { return 0 };
    let settings = if first % 2 == 0 { Settings::default() } else { narrow() };
    let Some(mut server) = Server::with(PAGES, settings) else { return 0 };
    let mut parts = vec![u64::from(first % 2)];
    for _ in 0..OPERATIONS_MAX {
        let Some((len, behind)) = rest.split_first_chunk::<2>() else { break };
        let len = usize::from(u16::from_be_bytes(*len)).min(behind.len());
        let (operation, behind) = behind.split_at(len);
        rest = behind;
        server.read(operation);
        let result = server.order(operation);
        let mut r = Reader::new(&result);
        let is_reply = ReplyHead::decode(&mut r).is_ok();
        assert!(is_reply || result.is_empty(), "a result is a reply or nothing");
        parts.extend(operation.get(40).map(|procedure| u64::from(*procedure)));
        parts.extend(r.rest().first_chunk().map(|stat| u64::from(u32::from_be_bytes(*stat))));
    }
    let report = fsck::check(server.settings(), server.view());
    assert!(report.as_ref().is_ok_and(fsck::Report::is_clean), "{report:?}");
    feature(&parts)
}

fn seeds() -> Vec<Vec<u8>> {
    let put = |out: &mut Vec<u8>, operation: &[u8]| {
        out.extend_from_slice(&u16::try_from(operation.len()).unwrap_or(0).to_be_bytes());
        out.extend_from_slice(operation);
    };
    let mut seeds: Vec<Vec<u8>> = Vec::new();
    for (first, export) in [(0, 0), (1, 0), (1, 1), (1, 2)] {
        for operations in operations_through(export).chunks(3) {
            let mut seed = vec![first];
            for operation in operations {
                put(&mut seed, operation);
            }
            seeds.push(seed);
        }
    }
    seeds
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn there_is_room_for_something() {
        // As the user of the seeds, everybody, a user who may only read, and nobody.
        for (settings, export, stat) in
            [(Settings::default(), 0, 0), (narrow(), 0, 0), (narrow(), 1, 30), (narrow(), 2, 0)]
        {
            let mut server = Server::with(PAGES, settings).unwrap();
            let result = server.order(&operations_through(export)[0]);
            assert_eq!(result[24..28], u32::to_be_bytes(stat), "export {export}: a file is made, or not");
        }
    }

    #[test]
    fn the_seeds_reach_what_they_are_for() {
        let features: BTreeSet<u64> = seeds().iter().map(|seed| run(seed)).collect();
        assert!(features.len() >= 40, "{}", features.len());
    }
}

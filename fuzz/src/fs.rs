//! The file system as a service: any bytes as operations, some of which have been ordered by a client that
//! keeps to no rule, in a state that is soon full.
//!
//! Every operation goes the short way and then is ordered. Whatever they are, none panics, and the state is in
//! order at the end. An input is operations, each behind its length in two bytes.

use quorate_fs::fsck;
use quorate_fs::rpc::ReplyHead;
use quorate_fs::xdr::{Reader, Xdr};

use crate::nfs::{Server, operations};
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
const PAGES: u32 = 150;

fn run(input: &[u8]) -> u64 {
    let Some(mut server) = Server::new(PAGES) else { return 0 };
    let (mut rest, mut parts) = (input, Vec::new());
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
    let all = operations();
    let mut seeds: Vec<Vec<u8>> = Vec::new();
    for operations in all.chunks(3) {
        let mut seed = Vec::new();
        for operation in operations {
            put(&mut seed, operation);
        }
        seeds.push(seed);
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
        let mut server = Server::new(PAGES).unwrap();
        let result = server.order(&operations()[0]);
        assert_eq!(result[24..28], [0; 4], "a file is made");
    }

    #[test]
    fn the_seeds_reach_what_they_are_for() {
        let features: BTreeSet<u64> = seeds().iter().map(|seed| run(seed)).collect();
        assert!(features.len() >= 10, "{}", features.len());
    }
}

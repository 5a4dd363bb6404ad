//! The value checker (§14.2), after [GK97, on registers]: it sees values only, and needs O(n log n).
//!
//! For each value a cluster: its write and all reads of it. With lo the first response and hi the
//! last invocation in the cluster, it is a forward zone [lo, hi] if lo < hi, and otherwise a backward
//! zone [hi, lo]. The history is linearizable if and only if no two forward zones overlap and no
//! backward zone lies inside a forward zone.

use std::collections::BTreeMap;

use crate::history::{History, Operation, OperationKind};

/// An operation as the checker needs it. Times are signed: the initial write is before all.
#[derive(Clone, Copy, Debug)]
struct Span {
    invoked: i128,
    responded: i128,
}

const BEFORE: i128 = i128::MIN;
const NEVER: i128 = i128::MAX;

/// Checks every object. With clients that are not good the id of a value is its version: they may
/// write one value under two versions.
pub fn check(history: &History) -> Result<(), String> {
    history.by_object().values().try_for_each(|operations| check_object(history, operations))
}

type Id = (Vec<u8>, Option<quorate_quorum::version::Version>);

fn check_object(history: &History, operations: &[&Operation]) -> Result<(), String> {
    let by_version = !history.rogues.is_empty();
    let mut clusters: BTreeMap<Id, (Option<Span>, Vec<Span>)> = BTreeMap::new();
    let initial = (Vec::new(), by_version.then_some(quorate_quorum::version::Version::GENESIS));
    let first = Span { invoked: BEFORE, responded: BEFORE + 1 };
    clusters.insert(initial, (Some(first), Vec::new()));
    for operation in operations {
        let span = Span {
            invoked: i128::from(operation.invoked),
            responded: operation.responded.map_or(NEVER, i128::from),
        };
        let id = (operation.value.clone(), operation.version.filter(|_| by_version));
        match operation.kind {
            OperationKind::Read if operation.responded.is_none() => {}
            OperationKind::Read => clusters.entry(id).or_default().1.push(span),
            OperationKind::Write if by_version && operation.version.is_none() => {}
            OperationKind::Write => clusters.entry(id).or_default().0 = Some(span),
        }
    }
    let (mut forward, mut backward) = (Vec::new(), Vec::new());
    for ((value, version), (write, reads)) in &clusters {
        let write = match (write, version) {
            (Some(write), _) => *write,
            // Of a client that is not good, or a good one whose write has not ended: at any time.
            (None, Some(version))
                if history.is_rogue(version.client) || pending(operations, value).is_some() =>
            {
                let invoked = pending(operations, value).map_or(BEFORE, |by| i128::from(by.invoked));
                Span { invoked, responded: NEVER }
            }
            (None, _) => return Err(format!("a read returned {version:?}, which nobody wrote")),
        };
        if write.responded == NEVER && reads.is_empty() {
            continue;
        }
        if reads.iter().any(|read| read.responded < write.invoked) {
            return Err(format!("{version:?} was read before it was written"));
        }
        let low = reads.iter().map(|read| read.responded).fold(write.responded, i128::min);
        let high = reads.iter().map(|read| read.invoked).fold(write.invoked, i128::max);
        if low < high {
            forward.push((low, high));
        } else {
            backward.push((high, low));
        }
    }
    forward.sort_unstable();
    for pair in forward.windows(2) {
        if pair[0].1 > pair[1].0 {
            return Err(format!("two values have forward zones that overlap: {pair:?}"));
        }
    }
    for (low, high) in backward {
        let at = forward.partition_point(|zone| zone.0 < low);
        if at > 0 && forward[at - 1].1 > high {
            return Err(format!("a backward zone ({low}, {high}) inside {:?}", forward[at - 1]));
        }
    }
    Ok(())
}

/// Returns the write of this value that has not ended.
fn pending<'a>(operations: &[&'a Operation], value: &[u8]) -> Option<&'a Operation> {
    operations
        .iter()
        .find(|operation| {
            operation.kind == OperationKind::Write
                && operation.responded.is_none()
                && operation.value == value
        })
        .copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::general;
    use crate::rng::Rng;
    use quorate_quorum::version::ObjectId;
    use quorate_wire::ClientId;

    /// §14.2: agrees with a search over all orders, on 60,000 random histories of up to 7 operations.
    #[test]
    fn it_agrees_with_the_general_checker() {
        let mut rng = Rng::new(1, 1);
        let (mut good, mut bad) = (0, 0);
        for _ in 0..60_000 {
            let history = random(&mut rng);
            let (fast, slow) = (check(&history).is_ok(), general::check(&history).is_ok());
            assert_eq!(fast, slow, "{history:#?}");
            if fast { good += 1 } else { bad += 1 }
        }
        assert!(good > 10_000 && bad > 10_000, "{good} good, {bad} bad");
    }

    fn random(rng: &mut Rng) -> History {
        let count = rng.between(1, 7);
        let mut times: Vec<u64> = (0..count * 2).collect();
        rng.shuffle(&mut times);
        let mut written = Vec::new();
        let mut operations = Vec::new();
        for number in 0..count {
            let at = usize::try_from(number * 2).unwrap();
            let (a, b) = (times[at].min(times[at + 1]), times[at].max(times[at + 1]));
            let write = rng.chance(45);
            let value = if write {
                written.push(number);
                vec![u8::try_from(number).unwrap() + 1]
            } else {
                Vec::new()
            };
            operations.push(Operation {
                client: ClientId::new(number + 1, 0),
                object: ObjectId([0; 32]),
                kind: if write { OperationKind::Write } else { OperationKind::Read },
                invoked: a,
                responded: (!rng.one_in(8)).then_some(b),
                value,
                version: None,
            });
        }
        for operation in &mut operations {
            if operation.kind == OperationKind::Read && operation.responded.is_some() && rng.chance(85) {
                operation.value = rng
                    .pick(&written)
                    .map_or_else(Vec::new, |number| vec![u8::try_from(number).unwrap() + 1]);
            }
        }
        History { operations, rogues: Vec::new() }
    }
}

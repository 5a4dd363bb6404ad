//! The general checker (§14.3), after Wing and Gong: looks for an order of the operations that a
//! register could have executed. Exponential, so for small histories: it is what the other checkers
//! are compared with. Values may repeat.

use std::collections::{BTreeMap, HashSet};

use crate::history::{History, Operation, OperationKind};

/// The most operations of one object.
pub const OPERATIONS_MAX: usize = 30;

/// Checks every object.
pub fn check(history: &History) -> Result<(), String> {
    history.by_object().values().try_for_each(|operations| check_object(operations))
}

fn check_object(operations: &[&Operation]) -> Result<(), String> {
    let operations: Vec<&&Operation> = operations
        .iter()
        .filter(|operation| operation.kind == OperationKind::Write || operation.responded.is_some())
        .collect();
    if operations.len() > OPERATIONS_MAX {
        return Err(format!("{} operations, at most {OPERATIONS_MAX}", operations.len()));
    }
    let mut ids: BTreeMap<&[u8], usize> = BTreeMap::from([(&[][..], 0)]);
    for operation in &operations {
        let next = ids.len();
        ids.entry(&operation.value).or_insert(next);
    }
    let search = Search { operations: &operations, ids: &ids };
    let mut failed = HashSet::new();
    if search.finish(0, 0, &mut failed) { Ok(()) } else { Err("no order explains this history".to_string()) }
}

struct Search<'a> {
    operations: &'a [&'a &'a Operation],
    ids: &'a BTreeMap<&'a [u8], usize>,
}

impl Search<'_> {
    /// Says whether what is not in `done` can follow, when the register holds `value`.
    fn finish(&self, done: u64, value: usize, failed: &mut HashSet<(u64, usize)>) -> bool {
        let left = || (0..self.operations.len()).filter(|index| done & (1 << index) == 0);
        if left().all(|index| self.operations[index].responded.is_none()) {
            return true;
        }
        if failed.contains(&(done, value)) {
            return false;
        }
        // The next one is invoked before any other that is left has responded.
        let first = left().filter_map(|index| self.operations[index].responded).min().unwrap_or(u64::MAX);
        for index in left() {
            let operation = self.operations[index];
            if operation.invoked > first {
                continue;
            }
            let id = self.ids.get(operation.value.as_slice()).copied().unwrap_or(usize::MAX);
            let next = match operation.kind {
                OperationKind::Write => id,
                OperationKind::Read if id == value => value,
                OperationKind::Read => continue,
            };
            if self.finish(done | (1 << index), next, failed) {
                return true;
            }
        }
        failed.insert((done, value));
        false
    }
}

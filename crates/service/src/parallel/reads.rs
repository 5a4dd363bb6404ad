//! Whether a read-only request may see the settled state while requests are unsettled (PX-8).
//!
//! A replica must show a read each request to which it has replied. Before a request settles, only an early reply to it can
//! have left (PX-C). While none has left, the settled state shows all that it must. Otherwise a read that depends on no
//! unsettled request may see the settled state: for such a read, that state equals any later one.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use quorate_wire::SeqNum;

use crate::parallel::groups;
use crate::parallel::rules::{Arguments, FUNCTIONS_MAX, Matrices};

/// The number of counts for keys. Two keys may have the same count: then a read waits in vain.
const COUNTS: usize = 1 << 16;

/// What unsettled batches use, and what was said of them.
#[derive(Debug)]
pub(super) struct Reads {
    matrices: Matrices,
    /// Mixed into keys: clients must not be able to choose which ones have the same count.
    secret: u64,
    /// The last batch of which a reply has left early, and its agreed time.
    replied: (SeqNum, u64),
    /// Of each row of the matrices, the number of requests.
    rows: [u32; FUNCTIONS_MAX + 1],
    /// Of the keys with each hash, the number of uses. Empty: no reply leaves early.
    keys: Vec<u32>,
    /// What was counted, in order: each request's row, and its keys.
    counted: VecDeque<Use>,
}

#[derive(Clone, Copy, Debug)]
enum Use {
    Row(usize),
    Key(u16),
}

impl Reads {
    /// Returns what no request has used yet. `early`: replies to certain requests leave early.
    pub(super) fn new(matrices: Matrices, secret: u64, early: bool) -> Self {
        let keys = alloc::vec![0; if early { COUNTS } else { 0 }];
        let (replied, rows, counted) = ((SeqNum(0), 0), [0; FUNCTIONS_MAX + 1], VecDeque::new());
        Self { matrices, secret, replied, rows, keys, counted }
    }

    /// Counts what a request uses, until its batch has settled.
    pub(super) fn insert(&mut self, arguments: &Arguments) {
        if self.keys.is_empty() {
            return;
        }
        let row = arguments.row(&self.matrices);
        self.rows[row] += 1;
        self.counted.push_back(Use::Row(row));
        for (key, _) in arguments.keys() {
            let hash = hash(self.secret, *key);
            self.keys[usize::from(hash)] += 1;
            self.counted.push_back(Use::Key(hash));
        }
    }

    /// The oldest batch, with this number of requests, is part of the settled state.
    pub(super) fn settled(&mut self, requests: u32) {
        let mut left = requests;
        while let Some(counted) = self.counted.front() {
            match *counted {
                Use::Row(_) if left == 0 => return,
                Use::Row(row) => (left, self.rows[row]) = (left - 1, self.rows[row] - 1),
                Use::Key(hash) => self.keys[usize::from(hash)] -= 1,
            }
            self.counted.pop_front();
        }
    }

    /// A reply to a request of this batch, whose agreed time is known, leaves before the request settles.
    pub(super) fn replied(&mut self, seq: SeqNum, time_ns: u64) {
        self.replied = self.replied.max((seq, time_ns));
    }

    /// Returns whether the state after this batch shows all requests to which a reply has left.
    pub(super) fn is_shown(&self, settled: SeqNum) -> bool {
        self.replied.0 <= settled
    }

    /// Returns the agreed time of the last batch of which a reply has left early.
    pub(super) fn time_ns(&self) -> u64 {
        self.replied.1
    }

    /// Returns whether a request with these arguments depends on one of an unsettled batch.
    pub(super) fn depends(&self, arguments: &Arguments) -> bool {
        let always = self.matrices.always(arguments.row(&self.matrices));
        self.rows.iter().enumerate().any(|(row, count)| *count > 0 && always >> row & 1 == 1)
            || arguments.keys().iter().any(|(key, _)| self.keys[usize::from(hash(self.secret, *key))] > 0)
    }

    /// Nothing is unsettled any more.
    pub(super) fn clear(&mut self) {
        self.settled(u32::MAX);
    }
}

fn hash(secret: u64, key: u64) -> u16 {
    let [.., high, low] = groups::hash(secret, key).to_be_bytes();
    u16::from_be_bytes([high, low])
}

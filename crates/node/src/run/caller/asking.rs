//! Asks the replicas for their status, in parallel with operations; and what is known of them.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use quorate_service::registry::Table;
use quorate_wire::ReplicaId;
use quorate_wire::message::Statement;

/// How long to wait for a replica's answer before asking it again, in nanoseconds.
const AGAIN_NS: u64 = 120_000_000;

/// A replica's statement, and when it arrived.
#[derive(Clone, Debug)]
pub struct Heard {
    /// The statement.
    pub statement: Statement,
    /// The digest of the shared settings that the replica stated with its session keys, if it did.
    pub settings: Option<u64>,
    /// The time of arrival.
    pub at: Instant,
}

/// One question at a time, with its answers: at most one of each replica.
#[derive(Debug, Default)]
pub(super) struct Asking {
    /// Held by the thread that asks.
    turn: Mutex<()>,
    /// The present question; 0: none.
    nonce: AtomicU64,
    answers: Mutex<Vec<Option<Heard>>>,
    answered: Condvar,
}

impl Asking {
    /// Asks, waits up to `within`, and returns the statements of `n` replicas.
    pub(super) fn ask(&self, n: usize, nonce: u64, within: Duration, wake: impl Fn()) -> Vec<Option<Heard>> {
        let _turn = lock(&self.turn);
        *lock(&self.answers) = vec![None; n];
        self.nonce.store(nonce, Ordering::SeqCst);
        wake();
        let waits = |answers: &mut Vec<Option<Heard>>| answers.iter().any(Option::is_none);
        let waited = self.answered.wait_timeout_while(lock(&self.answers), within, waits);
        let mut answers = waited.unwrap_or_else(PoisonError::into_inner).0;
        self.nonce.store(0, Ordering::SeqCst);
        std::mem::take(&mut *answers)
    }

    /// Returns the question to send now, if there is one: it is new, or some replicas have not answered.
    pub(super) fn due(&self, sent: &mut (u64, u64), now_ns: u64) -> Option<u64> {
        let nonce = self.nonce.load(Ordering::SeqCst);
        let (last, again_ns) = *sent;
        if nonce == 0 || (nonce == last && now_ns < again_ns) {
            return None;
        }
        *sent = (nonce, now_ns.saturating_add(AGAIN_NS));
        Some(nonce)
    }

    /// Returns whether a thread waits for answers.
    pub(super) fn is_open(&self) -> bool {
        self.nonce.load(Ordering::SeqCst) != 0
    }

    /// Takes an answer, if it is one to the present question.
    pub(super) fn answer(&self, from: ReplicaId, statement: Statement, settings: Option<u64>) {
        let mut answers = lock(&self.answers);
        if statement.nonce != self.nonce.load(Ordering::SeqCst) {
            return;
        }
        if let Some(place) = answers.get_mut(from.index()) {
            *place = Some(Heard { statement, settings, at: Instant::now() });
        }
        drop(answers);
        self.answered.notify_all();
    }
}

/// What a client knows of the replicas of its cluster.
#[derive(Debug)]
pub struct Known {
    table: Mutex<Option<Table>>,
    addresses: Mutex<Vec<SocketAddr>>,
    learnt: Condvar,
}

impl Known {
    /// Before a read, it knows the addresses in its own file.
    pub(super) fn new(addresses: Vec<SocketAddr>) -> Self {
        Self { table: Mutex::default(), addresses: Mutex::new(addresses), learnt: Condvar::new() }
    }

    /// Returns what the state says of replicas and settings, after waiting for up to `within` for the first read of it.
    pub fn table(&self, within: Duration) -> Option<Table> {
        let unread = |table: &mut Option<Table>| table.is_none();
        let waited = self.learnt.wait_timeout_while(lock(&self.table), within, unread);
        waited.unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// Returns the addresses of the replicas, in the order of their ids.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        lock(&self.addresses).clone()
    }

    /// Takes what a read has found.
    pub(super) fn learn(&self, table: Table, addresses: Vec<SocketAddr>) {
        *lock(&self.addresses) = addresses;
        *lock(&self.table) = Some(table);
        self.learnt.notify_all();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

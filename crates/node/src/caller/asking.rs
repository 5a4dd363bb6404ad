//! Asking the replicas how they are, beside the operations.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use quorate_wire::ReplicaId;
use quorate_wire::message::Statement;

/// Whoever has not answered is asked again after so long, in nanoseconds.
const AGAIN_NS: u64 = 120_000_000;

/// What a replica said, and when that was heard.
#[derive(Clone, Debug)]
pub struct Heard {
    /// What it said.
    pub statement: Statement,
    /// When.
    pub at: Instant,
}

/// A question at a time, and the answers to it: at most one of each replica.
#[derive(Debug, Default)]
pub(super) struct Asking {
    /// Held by whoever asks.
    turn: Mutex<()>,
    /// The question that is under way; 0: there is none.
    nonce: AtomicU64,
    answers: Mutex<Vec<Option<Heard>>>,
    answered: Condvar,
}

impl Asking {
    /// Asks, waits up to `within`, and returns what each of `n` replicas has said.
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

    /// Returns the question that is to be sent now, if one is: it is new, or some have not answered it.
    pub(super) fn due(&self, sent: &mut (u64, u64), now_ns: u64) -> Option<u64> {
        let nonce = self.nonce.load(Ordering::SeqCst);
        let (last, again_ns) = *sent;
        if nonce == 0 || (nonce == last && now_ns < again_ns) {
            return None;
        }
        *sent = (nonce, now_ns.saturating_add(AGAIN_NS));
        Some(nonce)
    }

    /// Says whether somebody waits for answers.
    pub(super) fn is_open(&self) -> bool {
        self.nonce.load(Ordering::SeqCst) != 0
    }

    /// Takes an answer, if it is one to the question under way.
    pub(super) fn answer(&self, from: ReplicaId, statement: Statement) {
        let mut answers = lock(&self.answers);
        if statement.nonce != self.nonce.load(Ordering::SeqCst) {
            return;
        }
        if let Some(place) = answers.get_mut(from.index()) {
            *place = Some(Heard { statement, at: Instant::now() });
        }
        drop(answers);
        self.answered.notify_all();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! An operation, from its invocation to its outcome.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{self, Poll};
use std::time::Duration;

use super::error::{CallError, RequestId};

type CallOutcome = Result<Vec<u8>, CallError>;

/// One operation, from its invocation to its outcome.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) id: RequestId,
    /// Whether it is an operation on the client registry, whose answer is passed on unchanged.
    pub(super) is_order: bool,
    state: Mutex<CallState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
pub(super) struct CallState {
    outcome: Option<CallOutcome>,
    /// The deadline has passed.
    pub(super) overdue: bool,
    /// It took effect, but its result was lost. It is sent again only to get the result.
    pub(super) took_effect: bool,
    task: Option<task::Waker>,
}

impl Call {
    pub(super) fn new(id: RequestId, is_order: bool) -> Self {
        Self { id, is_order, state: Mutex::default(), changed: Condvar::new() }
    }

    pub(super) fn set(&self, change: impl FnOnce(&mut CallState)) {
        let task = {
            let mut state = lock(&self.state);
            change(&mut state);
            state.task.take()
        };
        self.changed.notify_all();
        if let Some(task) = task {
            task.wake();
        }
    }

    pub(super) fn finish(&self, outcome: CallOutcome) {
        self.set(|state| {
            let is_refusal = outcome.as_ref().is_err_and(CallError::is_refused);
            let outcome = if is_refusal && state.took_effect { Err(CallError::ResultLost) } else { outcome };
            state.outcome.get_or_insert(outcome);
        });
    }

    /// Waits for the outcome for up to `within`, and takes it.
    pub(super) fn wait(&self, within: Duration) -> Option<CallOutcome> {
        let state = lock(&self.state);
        let waited = self.changed.wait_timeout_while(state, within, |state| state.outcome.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.outcome.take()
    }

    fn take(&self, state: &mut CallState) -> Option<CallOutcome> {
        match state.outcome.take() {
            None if state.overdue => Some(Err(CallError::Unknown { request: self.id })),
            outcome => outcome,
        }
    }
}

/// An operation in progress: a future, or an object to wait for. Dropping it does not cancel the operation.
#[derive(Debug)]
#[must_use = "without waiting, the outcome stays unknown"]
pub struct Pending {
    pub(super) call: Arc<Call>,
}

impl Pending {
    /// Waits for the outcome.
    ///
    /// # Errors
    ///
    /// There is no result: see [`CallError`].
    pub fn wait(self) -> Result<Vec<u8>, CallError> {
        let mut state = lock(&self.call.state);
        loop {
            if let Some(outcome) = self.call.take(&mut state) {
                return outcome;
            }
            state = self.call.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Future for Pending {
    type Output = Result<Vec<u8>, CallError>;

    fn poll(self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Self::Output> {
        let mut state = lock(&self.call.state);
        if let Some(outcome) = self.call.take(&mut state) {
            return Poll::Ready(outcome);
        }
        state.task = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// A thread that panicked with the lock held has left complete values: each is set in one step.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An operation that took effect, and is sent again for its result, does not end as if nothing was changed.
    #[test]
    fn an_operation_that_took_effect_is_not_refused() {
        let ended = |took_effect, outcome| {
            let call = Arc::new(Call::new(RequestId(1), false));
            call.set(|state| state.took_effect = took_effect);
            call.finish(outcome);
            Pending { call }.wait()
        };
        for refusal in [CallError::Busy, CallError::Closed, CallError::NoLane] {
            assert_eq!(ended(true, Err(refusal)), Err(CallError::ResultLost));
            assert_eq!(ended(false, Err(refusal)), Err(refusal));
        }
        assert_eq!(ended(true, Ok(vec![7])), Ok(vec![7]));
    }
}

//! Wakes a thread that sleeps on its sockets.

use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{NodeError, NodeErrorKind};

/// Wakes one thread. Costs one read of a flag while that thread is awake.
#[derive(Clone, Debug)]
pub struct Waker {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    sleeps: AtomicBool,
    near: UnixStream,
    far: UnixStream,
}

impl Waker {
    /// Returns a waker.
    ///
    /// # Errors
    ///
    /// There are too many open files.
    pub fn new() -> Result<Self, NodeError> {
        let pair = UnixStream::pair().and_then(|(near, far)| {
            near.set_nonblocking(true)?;
            far.set_nonblocking(true)?;
            Ok(Inner { sleeps: AtomicBool::new(false), near, far })
        });
        let inner =
            pair.map_err(|error| NodeError::new(NodeErrorKind::Network, format!("no pipe: {error}")))?;
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Wakes the thread, if it sleeps or is about to.
    pub fn wake(&self) {
        if self.inner.sleeps.swap(false, Ordering::SeqCst) {
            // A full pipe also wakes the thread.
            let _ = (&self.inner.far).write(&[1]);
        }
    }

    /// The thread is about to sleep: it checks for input once more after this.
    pub(crate) fn prepare(&self) {
        self.inner.sleeps.store(true, Ordering::SeqCst);
    }

    /// The thread is awake.
    pub(crate) fn awake(&self) {
        if !self.inner.sleeps.swap(false, Ordering::SeqCst) {
            let mut bytes = [0; 64];
            while (&self.inner.near).read(&mut bytes).is_ok_and(|len| len == bytes.len()) {}
        }
    }

    /// Returns a descriptor that becomes readable when the thread is woken.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.inner.near.as_fd()
    }
}

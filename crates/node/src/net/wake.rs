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
        self.inner.sleeps.store(false, Ordering::SeqCst);
        // Also if nobody has woken it this time: the byte of an earlier time may have come late (L103).
        let mut bytes = [0; 64];
        while (&self.inner.near).read(&mut bytes).is_ok_and(|len| len == bytes.len()) {}
    }

    /// Returns a descriptor that becomes readable when the thread is woken.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.inner.near.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;

    fn is_woken(waker: &Waker) -> bool {
        poll(&mut [PollFd::new(waker.fd(), PollFlags::POLLIN)], PollTimeout::ZERO).unwrap() > 0
    }

    /// L103: who wakes the thread may be interrupted before it writes. Its byte ends one later sleep early, and no more.
    #[test]
    fn l103_a_byte_that_comes_late_ends_one_sleep() {
        let waker = Waker::new().unwrap();
        waker.prepare();
        assert!(waker.inner.sleeps.swap(false, Ordering::SeqCst));
        // A datagram wakes the thread.
        waker.awake();
        (&waker.inner.far).write_all(&[1]).unwrap();
        for woken in [true, false, false] {
            waker.prepare();
            assert_eq!(is_woken(&waker), woken);
            waker.awake();
        }
        waker.prepare();
        waker.wake();
        assert!(is_woken(&waker));
    }
}

//! The connections of a gateway: their sockets, and their slots.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;

use super::conversation::{Conversation, Goes};

/// The slot of a connection, and its generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) slot: u32,
    pub(super) life: u32,
}

impl Key {
    pub(super) fn to_wire(self) -> u64 {
        u64::from(self.life) << 32 | u64::from(self.slot)
    }

    pub(super) fn from_wire(number: u64) -> Self {
        let part = |bits: u64| u32::try_from(bits & 0xffff_ffff).unwrap_or(0);
        Self { slot: part(number), life: part(number >> 32) }
    }
}

/// A connection.
#[derive(Debug)]
pub(super) struct Connection<T> {
    pub(super) stream: TcpStream,
    pub(super) conversation: T,
    /// When it was opened, in nanoseconds of the monotonic clock.
    opened_at: u64,
    /// When bytes were last transferred, in nanoseconds of the monotonic clock.
    moved_at: u64,
    /// Since when its next operation has waited for a lane; none: it is not in the queue.
    pub(super) waits_since: Option<u64>,
    /// The bytes that were counted for it.
    pub(super) counted: usize,
    /// The interests registered with the poller: reading, writing.
    pub(super) interest: (bool, bool),
}

/// A slot for a connection.
#[derive(Debug)]
pub(super) struct Slot<T> {
    pub(super) life: u32,
    pub(super) connection: Option<Box<Connection<T>>>,
}

impl<T: Conversation> Connection<T> {
    /// Returns one that is opened now.
    pub(super) fn open(stream: TcpStream, conversation: T, now_ns: u64) -> Self {
        Self {
            stream,
            conversation,
            opened_at: now_ns,
            moved_at: now_ns,
            waits_since: None,
            counted: 0,
            interest: (true, false),
        }
    }

    /// Returns when bytes were last transferred.
    pub(super) fn moved_at(&self) -> u64 {
        self.moved_at
    }

    /// Returns how readily it may be closed to make room for another one, and since when. None: not at all.
    pub(super) fn may_go(&self, now_ns: u64) -> Option<(Goes, u64)> {
        let goes = self.conversation.may_go(now_ns.saturating_sub(self.moved_at))?;
        Some((goes, if goes == Goes::First { self.opened_at } else { self.moved_at }))
    }

    /// Reads what is available, up to the size of `buffer`. Returns whether the connection is alive.
    pub(super) fn read(&mut self, protocol: &T::Protocol, buffer: &mut [u8], now_ns: u64) -> bool {
        match self.stream.read(buffer) {
            Ok(0) => self.conversation.hang_up(),
            Ok(len) => {
                self.conversation.receive(protocol, buffer.get(..len).unwrap_or(&[]));
                self.moved_at = now_ns;
            }
            Err(error) => {
                return matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted);
            }
        }
        true
    }

    /// Writes pending output, as far as possible. Returns whether the connection is alive.
    pub(super) fn write(&mut self, now_ns: u64) -> bool {
        while !self.conversation.output().is_empty() {
            match self.stream.write(self.conversation.output()) {
                Ok(0) => return false,
                Ok(len) => {
                    self.conversation.sent(len);
                    self.moved_at = now_ns;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        !self.has_ended()
    }

    /// Returns whether nothing is left to do or to send.
    pub(super) fn has_ended(&self) -> bool {
        self.conversation.has_ended() && self.conversation.output().is_empty()
    }
}

pub(super) fn find<T>(slots: &mut [Slot<T>], key: Key) -> Option<&mut Connection<T>> {
    let slot = slots.get_mut(to_usize(key.slot)).filter(|slot| slot.life == key.life)?;
    slot.connection.as_deref_mut()
}

pub(super) fn to_usize(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

//! One end of the wire: the authenticator, the places of the other nodes, and the outgoing frames.

use alloc::vec::Vec;

use quorate_pbft::step::{Lsn, Now};
use quorate_wire::frame::Frame;
use quorate_wire::{Admitted, Door, DoorError, Principal, ReplicaId, Source};

pub use self::directory::{Directory, Place};
pub use self::outbox::{HeldFrame, Transport};

mod directory;
mod outbox;

/// How often the authenticator gets the time, in nanoseconds.
const TICK_NS: u64 = 100_000_000;

/// An authenticator with its places and packs.
#[derive(Debug)]
pub struct Endpoint {
    door: Door,
    directory: Directory,
    outbox: outbox::Outbox,
    tick_at: u64,
}

impl Endpoint {
    /// Returns the end of the wire with this authenticator. Frames to one place share datagrams.
    pub fn new(door: Door, directory: Directory) -> Self {
        Self { door, directory, outbox: outbox::Outbox::default(), tick_at: 0 }
    }

    /// Sends each frame in a datagram of its own from now on.
    pub fn unpack(&mut self) {
        self.outbox.unpack();
    }

    /// Returns the authenticator.
    #[inline]
    pub fn door(&self) -> &Door {
        &self.door
    }

    /// Returns the authenticator.
    #[inline]
    pub fn door_mut(&mut self) -> &mut Door {
        &mut self.door
    }

    /// Returns the places.
    #[inline]
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Returns the authenticator and the places.
    pub fn parts_mut(&mut self) -> (&mut Door, &mut Directory) {
        (&mut self.door, &mut self.directory)
    }

    /// Authenticates a frame that came from `source`.
    ///
    /// # Errors
    ///
    /// The frame is not authentic, or not well-formed.
    #[inline]
    pub fn admit<'a>(
        &mut self,
        mono_ns: u64,
        source: Source,
        frame: &Frame<'a>,
    ) -> Result<Admitted<'a>, DoorError> {
        self.door.admit_from(mono_ns, source, frame)
    }

    /// Returns when [`Self::tick`] is due.
    #[inline]
    pub fn tick_at(&self) -> u64 {
        self.tick_at
    }

    /// Lets the first tick be due at this time.
    pub fn tick_from(&mut self, mono_ns: u64) {
        self.tick_at = mono_ns;
    }

    /// Tells the authenticator the time.
    pub fn tick(&mut self, now: Now) {
        self.tick_at = now.mono_ns.saturating_add(TICK_NS);
        self.door.tick(now.mono_ns, now.wall_ns);
    }

    /// Begins a new generation of session keys (KX-2). `entropy` is fresh and secret.
    pub fn renew_keys(&mut self, now: Now, entropy: [u8; 32]) {
        self.door.refresh(entropy, now.wall_ns.max(self.door.key_time().saturating_add(1)));
    }

    /// Returns the next pending NEW-KEY and its receiver.
    #[inline]
    pub fn take_keys(&mut self) -> Option<(Principal, Vec<u8>)> {
        self.door.take_outgoing()
    }

    /// Takes a frame for one principal that may leave. Returns whether it has a place.
    #[inline]
    pub fn post(&mut self, whom: Principal, frame: &[u8]) -> bool {
        let place = self.directory.find(whom);
        self.outbox.post(place.into_iter(), frame);
        place.is_some()
    }

    /// Takes a REPLY that may leave. Returns whether it has a place. It is dropped if there is no room for it (RP-4).
    #[inline]
    pub fn post_reply(&mut self, whom: Principal, frame: &[u8]) -> bool {
        let place = self.directory.find(whom);
        self.outbox.post_reply(whom, place, frame);
        place.is_some()
    }

    /// Takes a frame for one place that may leave.
    pub fn post_to(&mut self, place: Place, frame: &[u8]) {
        self.outbox.post(core::iter::once(place), frame);
    }

    /// Takes a frame for all replicas that may leave; `own` is the index of this one, if it is a replica.
    #[inline]
    pub fn post_all(&mut self, own: Option<usize>, frame: &[u8]) {
        let others = self.directory.replicas().filter(|place| Some(place.index()) != own);
        self.outbox.post(others, frame);
    }

    /// Takes a frame for these replicas that may leave.
    #[inline]
    pub fn post_replicas(&mut self, ids: impl Iterator<Item = ReplicaId>, frame: &[u8]) {
        let Self { directory, outbox, .. } = self;
        outbox.post(ids.filter_map(|id| directory.replica(id)), frame);
    }

    /// Takes a frame that is one of many for a principal. Returns whether it has a place.
    pub fn post_bulk(&mut self, whom: Principal, frame: &[u8]) -> bool {
        let place = self.directory.find(whom);
        if let Some(place) = place {
            self.outbox.post_bulk(place, frame);
        }
        place.is_some()
    }

    /// Returns whether a frame that depends on this record may leave.
    #[inline]
    pub fn is_durable(&self, after: Lsn) -> bool {
        self.outbox.is_durable(after)
    }

    /// Returns the last durable record.
    pub fn durable(&self) -> Lsn {
        self.outbox.durable()
    }

    /// Holds a frame until its record is durable.
    pub fn hold(&mut self, held: HeldFrame) {
        self.outbox.hold(held);
    }

    /// Drops every frame that is held, as if the network had lost it.
    pub fn drop_held(&mut self) {
        self.outbox.drop_held();
    }

    /// Everything up to `lsn` is durable. Returns whether that is news.
    pub fn note_durable(&mut self, lsn: Lsn) -> bool {
        self.outbox.note_durable(lsn)
    }

    /// Takes the held frames whose records are durable, in the order of the records.
    pub fn take_released(&mut self) -> Vec<HeldFrame> {
        self.outbox.take_released()
    }

    /// Sends everything that may leave.
    #[inline]
    pub fn flush(&mut self, transport: &mut impl Transport) {
        transport.look_up(&self.directory);
        transport.ask_sources(self.door.asks_sources());
        self.outbox.flush(transport);
    }
}

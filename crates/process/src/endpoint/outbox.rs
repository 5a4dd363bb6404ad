//! Outgoing sealed frames: held until the records they depend on are durable (spec §14.2, GC-1), then packed into as
//! few datagrams as possible.
//!
//! A datagram costs the kernel ten times what a frame costs here, so frames to one place share datagrams. They are
//! sent when the world flushes: once per burst, and before every wait. Without packing, each frame is a datagram, in the
//! order in which the frames were posted.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use quorate_pbft::step::{Lsn, Recipient};
use quorate_wire::frame::PACKED_BYTES_MAX;
use quorate_wire::{Kind, Principal};

use super::{Directory, Place};

/// Maximum number of sealed frames that wait for the disk. Beyond it the oldest is dropped, as if the network had
/// lost it: it will be retransmitted.
const WAITING_MAX: usize = 1 << 16;

/// REPLYs up to this length are as few as the requests that brought them.
const SHORT_REPLY: usize = 1024;
/// Maximum number of bytes in longer REPLYs to one principal.
const REPLY_BYTES_MAX: usize = 64 << 20;
/// Maximum number of bytes in longer REPLYs to all principals.
const ALL_REPLY_BYTES_MAX: usize = 256 << 20;

/// Bytes of pages that are sent to one place at a time over the side channel: many per system call, and few enough
/// for the socket buffer of a busy receiver.
const BULK_BYTES: usize = 256 << 10;

/// Sends datagrams: a socket, or a queue in memory.
pub trait Transport {
    /// The places may have other addresses than before.
    fn look_up(&mut self, _directory: &Directory) {}

    /// Whether it matters from now on where datagrams come from. Until it is told, it does.
    fn ask_sources(&mut self, _asks: bool) {}

    /// Sends one datagram to a place. It may be lost.
    fn send(&mut self, to: Place, datagram: &[u8]);

    /// Sends one datagram to several places.
    fn send_group(&mut self, to: &[Place], datagram: &[u8]) {
        for place in to {
            self.send(*place, datagram);
        }
    }

    /// Sends one frame that is longer than a datagram. It may be lost.
    fn send_long(&mut self, _to: Place, _frame: Vec<u8>) {}
}

/// A sealed frame that waits for the disk.
#[derive(Debug)]
pub struct HeldFrame {
    /// The record that it waits for.
    pub after: Lsn,
    /// The receivers.
    pub to: Recipient,
    /// The kind of its message.
    pub kind: Kind,
    /// The frame.
    pub frame: Vec<u8>,
}

impl HeldFrame {
    /// Returns the receiver of a REPLY.
    fn replies_to(&self) -> Option<Principal> {
        match self.to {
            Recipient::Client(client) | Recipient::Collected { client, .. } if self.kind == Kind::Reply => {
                Some(Principal::from(client))
            }
            Recipient::Client(_) | Recipient::Collected { .. } | Recipient::Replica(_) | Recipient::All => {
                None
            }
        }
    }
}

/// The bytes of long REPLYs, by principal.
#[derive(Debug, Default)]
struct ReplyBytes {
    of: BTreeMap<u64, usize>,
    all: usize,
}

impl ReplyBytes {
    /// Counts a REPLY. Returns whether there is room for it.
    #[inline]
    fn take(&mut self, whom: Principal, len: usize) -> bool {
        len <= SHORT_REPLY || self.take_long(whom, len)
    }

    #[cold]
    fn take_long(&mut self, whom: Principal, len: usize) -> bool {
        let bytes = self.of.entry(whom.key_holder()).or_default();
        let has_room = *bytes + len <= REPLY_BYTES_MAX && self.all + len <= ALL_REPLY_BYTES_MAX;
        if has_room {
            *bytes += len;
            self.all += len;
        }
        has_room
    }

    /// Nothing is here any more.
    #[inline]
    fn clear(&mut self) {
        if self.all > 0 {
            *self = Self::default();
        }
    }
}

/// Frames that are not packed, with their places.
#[derive(Debug, Default)]
struct Loose {
    bytes: Vec<u8>,
    places: Vec<Place>,
    /// For each frame, where its bytes and its places end.
    ends: Vec<(usize, usize)>,
}

impl Loose {
    fn post(&mut self, to: impl Iterator<Item = Place>, frame: &[u8]) {
        self.bytes.extend_from_slice(frame);
        self.places.extend(to);
        self.ends.push((self.bytes.len(), self.places.len()));
    }

    fn flush(&mut self, transport: &mut impl Transport) {
        let (mut byte, mut place) = (0, 0);
        for (byte_end, place_end) in self.ends.drain(..) {
            transport.send_group(&self.places[place..place_end], &self.bytes[byte..byte_end]);
            (byte, place) = (byte_end, place_end);
        }
        self.bytes.clear();
        self.places.clear();
    }
}

/// Outgoing frames. See the module.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// The next datagram for each place.
    packs: Vec<Vec<u8>>,
    /// The places with frames in their datagram, in order of their first frame.
    touched: Vec<Place>,
    /// Full datagrams, in order.
    full: Vec<(Place, Vec<u8>)>,
    /// Frames that are longer than a datagram, in order.
    long: Vec<(Place, Vec<u8>)>,
    /// Outgoing pages for each place.
    bulk: Vec<(Place, Vec<u8>)>,
    has_bulk: bool,
    /// None: frames are packed.
    loose: Option<Loose>,
    waiting: VecDeque<HeldFrame>,
    durable: Lsn,
    /// The REPLYs that may leave, and those that wait for the disk.
    replies: ReplyBytes,
    waiting_replies: ReplyBytes,
}

impl Outbox {
    /// Sends each frame in a datagram of its own from now on.
    pub(super) fn unpack(&mut self) {
        self.loose = Some(Loose::default());
    }

    /// Takes a frame that may leave.
    #[inline]
    pub(super) fn post(&mut self, mut to: impl Iterator<Item = Place>, frame: &[u8]) {
        match &mut self.loose {
            None => to.for_each(|place| self.pack(place, frame)),
            Some(loose) => loose.post(&mut to, frame),
        }
    }

    /// Takes a REPLY that may leave. A client for which there is no room asks again (RP-4). Returns whether there was.
    #[inline]
    pub(super) fn post_reply(&mut self, whom: Principal, to: Option<Place>, frame: &[u8]) -> bool {
        let has_room = self.replies.take(whom, frame.len());
        if has_room {
            self.post(to.into_iter(), frame);
        }
        has_room
    }

    /// Takes a sealed frame that is one of many for a place.
    pub(super) fn post_bulk(&mut self, to: Place, frame: &[u8]) {
        if let Some(loose) = &mut self.loose {
            return loose.post(core::iter::once(to), frame);
        }
        let known = self.bulk.iter().position(|(place, _)| *place == to);
        let at = known.unwrap_or_else(|| {
            self.bulk.push((to, Vec::new()));
            self.bulk.len() - 1
        });
        let pack = &mut self.bulk[at].1;
        if !pack.is_empty() && pack.len() + frame.len() > BULK_BYTES {
            self.long.push((to, core::mem::take(pack)));
        }
        pack.extend_from_slice(frame);
        self.has_bulk = true;
    }

    /// Returns whether a frame that depends on this record may leave.
    #[inline]
    pub(super) fn is_durable(&self, after: Lsn) -> bool {
        after <= self.durable
    }

    /// Returns the last durable record.
    pub(super) fn durable(&self) -> Lsn {
        self.durable
    }

    /// Holds a frame until its record is durable, unless it is a REPLY for which there is no room (RP-4).
    #[cold]
    pub(super) fn hold(&mut self, held: HeldFrame) {
        if let Some(whom) = held.replies_to()
            && !self.waiting_replies.take(whom, held.frame.len())
        {
            return;
        }
        if self.waiting.len() >= WAITING_MAX {
            self.waiting.pop_front();
        }
        self.waiting.push_back(held);
    }

    /// Drops every frame that is held, as if the network had lost it.
    #[cold]
    pub(super) fn drop_held(&mut self) {
        self.waiting.clear();
        self.waiting_replies.clear();
    }

    /// Everything up to `lsn` is durable. Returns whether that is news.
    pub(super) fn note_durable(&mut self, lsn: Lsn) -> bool {
        let is_news = lsn > self.durable;
        self.durable = self.durable.max(lsn);
        is_news
    }

    /// Takes the frames whose records are durable, in the order of the records.
    pub(super) fn take_released(&mut self) -> Vec<HeldFrame> {
        // Frames do not wait in order: one that depends on less overtakes the others.
        let (mut released, durable) = (Vec::new(), self.durable);
        self.waiting_replies.clear();
        for held in core::mem::take(&mut self.waiting) {
            if held.after <= durable {
                released.push(held);
            } else {
                if let Some(whom) = held.replies_to() {
                    self.waiting_replies.take(whom, held.frame.len());
                }
                self.waiting.push_back(held);
            }
        }
        released.sort_by_key(|held| held.after);
        released
    }

    /// Sends everything that may leave.
    #[inline]
    pub(super) fn flush(&mut self, transport: &mut impl Transport) {
        self.replies.clear();
        if let Some(loose) = &mut self.loose {
            return loose.flush(transport);
        }
        if !self.full.is_empty() || !self.long.is_empty() || self.has_bulk {
            self.flush_large(transport);
        }
        for place in self.touched.drain(..) {
            if let Some(pack) = self.packs.get_mut(place.index()) {
                transport.send(place, pack);
                pack.clear();
            }
        }
    }

    #[cold]
    fn flush_large(&mut self, transport: &mut impl Transport) {
        if core::mem::take(&mut self.has_bulk) {
            self.flush_bulk(transport);
        }
        for (place, datagram) in self.full.drain(..) {
            transport.send(place, &datagram);
        }
        for (place, frame) in self.long.drain(..) {
            transport.send_long(place, frame);
        }
    }

    fn flush_bulk(&mut self, transport: &mut impl Transport) {
        // `long` holds what was full before.
        for (place, frame) in self.long.drain(..) {
            transport.send_long(place, frame);
        }
        for (place, pack) in self.bulk.iter_mut().filter(|(_, pack)| !pack.is_empty()) {
            let place = *place;
            if pack.len() > PACKED_BYTES_MAX {
                transport.send_long(place, core::mem::take(pack));
            } else {
                transport.send(place, pack);
                pack.clear();
            }
        }
    }

    #[inline]
    fn pack(&mut self, place: Place, frame: &[u8]) {
        if frame.len() > PACKED_BYTES_MAX {
            return self.long.push((place, frame.to_vec()));
        }
        if self.packs.len() <= place.index() {
            self.packs.resize_with(place.index() + 1, Vec::new);
        }
        let pack = &mut self.packs[place.index()];
        if pack.is_empty() {
            self.touched.push(place);
        } else if pack.len() + frame.len() > PACKED_BYTES_MAX {
            self.full.push((place, core::mem::take(pack)));
        }
        pack.extend_from_slice(frame);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    use quorate_wire::ClientId;

    use super::super::Directory;

    #[derive(Default)]
    struct Taken(Vec<(usize, Vec<u8>)>, Vec<(usize, usize)>);

    impl Transport for Taken {
        fn send(&mut self, to: Place, datagram: &[u8]) {
            self.0.push((to.index(), datagram.to_vec()));
        }

        fn send_long(&mut self, to: Place, frame: Vec<u8>) {
            self.1.push((to.index(), frame.len()));
        }
    }

    fn places() -> Vec<Place> {
        let at = |port| core::net::SocketAddr::from(([127, 0, 0, 1], port));
        Directory::new(&[at(1), at(2), at(3)]).replicas().collect()
    }

    fn flushed(outbox: &mut Outbox) -> Vec<(usize, Vec<u8>)> {
        let mut taken = Taken::default();
        outbox.flush(&mut taken);
        taken.0
    }

    #[test]
    fn frames_to_one_place_share_a_datagram() {
        let (places, mut outbox) = (places(), Outbox::default());
        outbox.post(places[1..].iter().copied(), b"ab");
        outbox.post(places[2..].iter().copied(), b"cd");
        assert_eq!(flushed(&mut outbox), [(1, b"ab".to_vec()), (2, b"abcd".to_vec())]);
        assert!(flushed(&mut outbox).is_empty());
    }

    #[test]
    fn a_full_datagram_leaves_before_the_next_and_a_long_frame_by_itself() {
        let (places, mut outbox) = (places(), Outbox::default());
        let long = vec![7; PACKED_BYTES_MAX - 1];
        for frame in [&long[..], b"ab"] {
            outbox.post(places[..1].iter().copied(), frame);
        }
        assert_eq!(flushed(&mut outbox), [(0, long.clone()), (0, b"ab".to_vec())]);
        let longer = vec![7; PACKED_BYTES_MAX + 1];
        outbox.post(places[..2].iter().copied(), &longer);
        let mut taken = Taken::default();
        outbox.flush(&mut taken);
        assert_eq!((taken.0.len(), taken.1), (0, vec![(0, longer.len()), (1, longer.len())]));
        assert!(flushed(&mut outbox).is_empty());
    }

    /// Pages are grouped, within the length limit of a frame, and few of them as datagrams.
    #[test]
    fn many_pages_for_a_place_go_in_one_piece() {
        let (places, mut outbox) = (places(), Outbox::default());
        let page = vec![7; 4200];
        (0..100).for_each(|_| outbox.post_bulk(places[1], &page));
        (0..3).for_each(|_| outbox.post_bulk(places[2], &page));
        let mut taken = Taken::default();
        outbox.flush(&mut taken);
        assert_eq!(taken.0, [(2, vec![7; 3 * 4200])]);
        assert_eq!(taken.1, [(1, 62 * 4200), (1, 38 * 4200)]);
        assert!(flushed(&mut outbox).is_empty());
    }

    fn held(after: u64, frame: &[u8]) -> HeldFrame {
        HeldFrame { after: Lsn(after), to: Recipient::All, kind: Kind::Commit, frame: frame.to_vec() }
    }

    /// L46, RP-4: REPLYs of one client, and of all clients together, take a bounded number of bytes: those that may leave, and
    /// those that wait for the disk. Short ones leave all the same, and so do other messages.
    #[test]
    fn l46_long_replies_are_bounded() {
        let (place, mut outbox) = (places()[0], Outbox::default());
        let client = |principal| ClientId::new(principal, 0);
        let long = vec![7; 1 << 20];
        for _ in 0..2 {
            let mut taken = |principal, frame: &[u8]| {
                let post = |_: &u32| outbox.post_reply(client(principal).into(), Some(place), frame);
                (0..100).filter(post).count()
            };
            assert_eq!(taken(1, &long), 64);
            assert_eq!((2..=9).map(|principal| taken(principal, &long)).sum::<usize>(), 192);
            assert_eq!(taken(1, &long[..SHORT_REPLY]), 100);
            outbox.flush(&mut Taken::default());
        }
        for (to, kind) in (0..100).flat_map(|_| {
            let to = Recipient::Client(client(1));
            [(to, Kind::Reply), (to, Kind::Statement), (Recipient::All, Kind::Commit)]
        }) {
            outbox.hold(HeldFrame { after: Lsn(1), to, kind, frame: long.clone() });
        }
        assert_eq!(outbox.take_released().len(), 0);
        outbox.hold(HeldFrame {
            after: Lsn(1),
            to: Recipient::Client(client(1)),
            kind: Kind::Reply,
            frame: long,
        });
        outbox.note_durable(Lsn(1));
        assert_eq!(outbox.take_released().len(), 64 + 200);
    }

    /// I11: no message is sent before its record is durable; one without a dependency never waits.
    #[test]
    fn a_frame_waits_until_its_record_is_durable() {
        let mut outbox = Outbox::default();
        let released = |outbox: &mut Outbox| -> Vec<Vec<u8>> {
            outbox.take_released().into_iter().map(|held| held.frame).collect()
        };
        assert!(outbox.is_durable(Lsn(0)) && !outbox.is_durable(Lsn(1)));
        for (after, frame) in [(3, b"c"), (2, b"b"), (1, b"a"), (2, b"B")] {
            outbox.hold(held(after, frame));
        }
        assert_eq!(released(&mut outbox), Vec::<Vec<u8>>::new());
        assert!(outbox.note_durable(Lsn(2)) && !outbox.note_durable(Lsn(1)));
        assert_eq!(released(&mut outbox), [b"a".to_vec(), b"b".to_vec(), b"B".to_vec()]);
        assert!(outbox.is_durable(Lsn(2)) && !outbox.is_durable(Lsn(3)));
        assert!(outbox.note_durable(Lsn(3)));
        assert_eq!(released(&mut outbox), [b"c".to_vec()]);
        // RC-5: what a rejoin finds waiting never leaves.
        outbox.hold(held(4, b"d"));
        outbox.drop_held();
        assert!(outbox.note_durable(Lsn(4)));
        assert_eq!(released(&mut outbox), Vec::<Vec<u8>>::new());
    }

    /// Without packing, frames leave in the order in which they were posted, each by itself.
    #[test]
    fn without_packing_each_frame_is_a_datagram() {
        let (places, mut outbox) = (places(), Outbox::default());
        outbox.unpack();
        outbox.post(places[1..].iter().copied(), b"ab");
        outbox.post_bulk(places[2], b"cd");
        outbox.post(places[..2].iter().copied(), b"ef");
        let sent: Vec<(usize, &[u8])> = vec![(1, b"ab"), (2, b"ab"), (2, b"cd"), (0, b"ef"), (1, b"ef")];
        let flushed_once = flushed(&mut outbox);
        assert_eq!(flushed_once.iter().map(|(to, frame)| (*to, &frame[..])).collect::<Vec<_>>(), sent);
        assert!(flushed(&mut outbox).is_empty());
    }
}

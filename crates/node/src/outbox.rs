//! Outgoing sealed frames: held until the records they depend on are durable (spec §14.2, GC-1), then packed into as
//! few datagrams as possible.
//!
//! A datagram costs the kernel ten times what a frame costs here, so frames to one place share datagrams. They are
//! sent when the driver flushes: once per burst, and before every wait.

use std::collections::VecDeque;

use quorate_pbft::step::Lsn;
use quorate_wire::frame::{FRAME_BYTES_MAX, PACKED_BYTES_MAX};

use crate::directory::Place;

/// Maximum number of sealed frames that wait for the disk. Beyond it the oldest is dropped, as if the network had
/// lost it: it will be retransmitted.
const WAITING_MAX: usize = 1 << 16;

/// Bytes of pages that are sent to one place at a time over the side channel: many per system call, and few enough
/// for the socket buffer of a busy receiver.
const BULK_BYTES: usize = 256 << 10;

/// Sends datagrams: a socket, or a queue in memory.
pub trait Transport {
    /// Sends one datagram to a place. It may be lost.
    fn send(&mut self, to: Place, datagram: &[u8]);

    /// Sends one frame that is longer than a datagram. It may be lost.
    fn send_long(&mut self, _to: Place, _frame: Vec<u8>) {}
}

/// A sealed frame that waits for the disk.
#[derive(Debug)]
struct Parcel {
    after: Lsn,
    to: Vec<Place>,
    frame: Vec<u8>,
}

/// Outgoing frames. See the module.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
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
    waiting: VecDeque<Parcel>,
    durable: Lsn,
}

/// What happened to a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Posted {
    /// It leaves with the next flush.
    Packed,
    /// It waits for the disk.
    Held,
    /// It is longer than any frame may be.
    TooLong,
}

impl Outbox {
    /// Takes a sealed frame for one or more places. It is sent once everything up to `after` is durable.
    #[inline]
    pub(crate) fn post(&mut self, to: impl Iterator<Item = Place>, frame: &[u8], after: Lsn) -> Posted {
        if frame.len() > FRAME_BYTES_MAX {
            return Posted::TooLong;
        }
        if after > self.durable {
            self.hold(to.collect(), frame, after);
            return Posted::Held;
        }
        to.for_each(|place| self.pack(place, frame));
        Posted::Packed
    }

    /// Takes a sealed frame that is one of many for a place, and depends on no record.
    pub(crate) fn post_bulk(&mut self, to: Place, frame: &[u8]) {
        let known = self.bulk.iter().position(|(place, _)| *place == to);
        let at = known.unwrap_or_else(|| {
            self.bulk.push((to, Vec::new()));
            self.bulk.len() - 1
        });
        let pack = &mut self.bulk[at].1;
        if !pack.is_empty() && pack.len() + frame.len() > BULK_BYTES {
            self.long.push((to, std::mem::take(pack)));
        }
        pack.extend_from_slice(frame);
        self.has_bulk = true;
    }

    /// Everything up to `lsn` is durable: the frames that waited for it may be sent.
    pub(crate) fn release(&mut self, lsn: Lsn) {
        self.durable = self.durable.max(lsn);
        // Frames do not wait in order: one without a dependency overtakes the others.
        let waiting = std::mem::take(&mut self.waiting);
        for parcel in waiting {
            if parcel.after <= self.durable {
                parcel.to.iter().for_each(|place| self.pack(*place, &parcel.frame));
            } else {
                self.waiting.push_back(parcel);
            }
        }
    }

    /// Sends everything that may leave.
    #[inline]
    pub(crate) fn flush(&mut self, transport: &mut impl Transport) {
        if self.touched.is_empty() && self.full.is_empty() && self.long.is_empty() && !self.has_bulk {
            return;
        }
        if std::mem::take(&mut self.has_bulk) {
            self.flush_bulk(transport);
        }
        for (place, datagram) in self.full.drain(..) {
            transport.send(place, &datagram);
        }
        for (place, frame) in self.long.drain(..) {
            transport.send_long(place, frame);
        }
        for place in self.touched.drain(..) {
            if let Some(pack) = self.packs.get_mut(place.index()) {
                transport.send(place, pack);
                pack.clear();
            }
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
                transport.send_long(place, std::mem::take(pack));
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
            self.full.push((place, std::mem::take(pack)));
        }
        pack.extend_from_slice(frame);
    }

    #[cold]
    fn hold(&mut self, to: Vec<Place>, frame: &[u8], after: Lsn) {
        if self.waiting.len() >= WAITING_MAX {
            self.waiting.pop_front();
        }
        self.waiting.push_back(Parcel { after, to, frame: frame.to_vec() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::Directory;

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
        let at = |port| std::net::SocketAddr::from(([127, 0, 0, 1], port));
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
        outbox.post(places[1..].iter().copied(), b"ab", Lsn(0));
        outbox.post(places[2..].iter().copied(), b"cd", Lsn(0));
        assert_eq!(flushed(&mut outbox), [(1, b"ab".to_vec()), (2, b"abcd".to_vec())]);
        assert!(flushed(&mut outbox).is_empty());
    }

    #[test]
    fn a_full_datagram_leaves_before_the_next_and_a_long_frame_by_itself() {
        let (places, mut outbox) = (places(), Outbox::default());
        let long = vec![7; PACKED_BYTES_MAX - 1];
        for frame in [&long[..], b"ab"] {
            assert_eq!(outbox.post(places[..1].iter().copied(), frame, Lsn(0)), Posted::Packed);
        }
        assert_eq!(flushed(&mut outbox), [(0, long.clone()), (0, b"ab".to_vec())]);
        let (longer, too_long) = (vec![7; PACKED_BYTES_MAX + 1], vec![7; FRAME_BYTES_MAX + 1]);
        assert_eq!(outbox.post(places[..2].iter().copied(), &longer, Lsn(0)), Posted::Packed);
        assert_eq!(outbox.post(places[..1].iter().copied(), &too_long, Lsn(0)), Posted::TooLong);
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

    /// I11: no message is sent before its record is durable; one without a dependency never waits.
    #[test]
    fn a_frame_waits_until_its_record_is_durable() {
        let (places, mut outbox) = (places(), Outbox::default());
        let one = || places[..1].iter().copied();
        assert_eq!(outbox.post(one(), b"b", Lsn(2)), Posted::Held);
        assert_eq!(outbox.post(one(), b"a", Lsn(1)), Posted::Held);
        assert_eq!(outbox.post(one(), b"0", Lsn(0)), Posted::Packed);
        assert_eq!(flushed(&mut outbox), [(0, b"0".to_vec())]);
        outbox.release(Lsn(1));
        assert_eq!(flushed(&mut outbox), [(0, b"a".to_vec())]);
        outbox.release(Lsn(2));
        assert_eq!(flushed(&mut outbox), [(0, b"b".to_vec())]);
        assert_eq!(outbox.post(one(), b"c", Lsn(2)), Posted::Packed);
    }
}

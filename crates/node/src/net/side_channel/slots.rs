//! Which connections into the side channel are kept.
//!
//! Anyone can connect. A connection is a stranger's until a frame that it has brought is found authentic; of
//! strangers there are few at a time, each may bring one frame, and a new one takes the place of one that brings
//! nothing. Known connections have places that no stranger can take: some for each replica and each
//! client, with a bound on those of all clients.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::sync::Arc;

use quorate_wire::Principal;

/// The most connections of strangers.
pub(super) const STRANGERS_MAX: usize = 32;
/// The most connections of one replica or client: a new one, and one that it has not noticed to be gone.
pub(super) const PEER_MAX: usize = 2;
/// The most connections of all clients.
pub(super) const CLIENTS_MAX: usize = 64;

/// A connection in.
#[derive(Debug)]
struct Slot {
    host: IpAddr,
    stream: Arc<TcpStream>,
    /// Whose it is, as far as is known.
    of: Option<Principal>,
    /// When it last brought something, by the count of all such moments.
    moved: u64,
    /// Bytes of its frames that wait for the owner.
    waiting: usize,
    /// It has brought a whole frame, of which nobody knows yet whether it is authentic.
    is_judged_next: bool,
}

/// The connections in. See the module.
#[derive(Debug, Default)]
pub(super) struct Slots {
    held: BTreeMap<u64, Slot>,
    /// The key holders of clients that have enough with the owner.
    full: BTreeSet<u64>,
    last: u64,
    moments: u64,
}

impl Slots {
    /// Takes in a connection and returns its number. None: there is no place.
    pub(super) fn enter(&mut self, host: IpAddr, stream: Arc<TcpStream>) -> Option<u64> {
        let host = host.to_canonical();
        if self.held.values().filter(|slot| slot.of.is_none()).count() >= STRANGERS_MAX {
            let stale = self.stalest_stranger()?;
            self.close(stale);
        }
        self.last += 1;
        self.moments += 1;
        let slot = Slot { host, stream, of: None, moved: self.moments, waiting: 0, is_judged_next: false };
        self.held.insert(self.last, slot);
        Some(self.last)
    }

    /// Returns the stranger that has brought nothing for the longest time, of the host with the most of them. One
    /// that waits to be judged has its place.
    fn stalest_stranger(&self) -> Option<u64> {
        let mut hosts = BTreeMap::<IpAddr, usize>::new();
        let strangers = || self.held.iter().filter(|(_, slot)| slot.of.is_none());
        strangers().for_each(|(_, slot)| *hosts.entry(slot.host).or_default() += 1);
        let movable = strangers().filter(|(_, slot)| !slot.is_judged_next);
        let crowd = |slot: &Slot| hosts.get(&slot.host).copied().unwrap_or(0);
        let stalest = movable.min_by_key(|(_, slot)| (std::cmp::Reverse(crowd(slot)), slot.moved));
        stalest.map(|(id, _)| *id)
    }

    /// A connection has brought something.
    pub(super) fn moves(&mut self, id: u64) {
        self.moments += 1;
        if let Some(slot) = self.held.get_mut(&id) {
            slot.moved = self.moments;
        }
    }

    /// A connection has brought a whole frame, of `len` bytes. Says whether it is a stranger's, which may bring no other until
    /// this one is judged.
    pub(super) fn brings(&mut self, id: u64, len: usize) -> bool {
        self.moves(id);
        self.held.get_mut(&id).is_some_and(|slot| {
            slot.waiting += len;
            slot.is_judged_next = slot.of.is_none();
            slot.is_judged_next
        })
    }

    /// The owner takes a frame of `len` bytes that a connection has brought.
    pub(super) fn takes(&mut self, id: u64, len: usize) {
        if let Some(slot) = self.held.get_mut(&id) {
            slot.waiting = slot.waiting.saturating_sub(len);
        }
    }

    /// Returns the bytes of a connection's frames that wait for the owner.
    pub(super) fn waiting(&self, id: u64) -> usize {
        self.held.get(&id).map_or(0, |slot| slot.waiting)
    }

    /// A client has enough with the owner, or not any more.
    pub(super) fn hold(&mut self, client: Principal, holds: bool) {
        if holds {
            self.full.insert(client.key_holder());
        } else {
            self.full.remove(&client.key_holder());
        }
    }

    /// Says whether a connection is of a client that has enough with the owner.
    pub(super) fn is_held(&self, id: u64) -> bool {
        let of = self.held.get(&id).and_then(|slot| slot.of);
        of.is_some_and(|of| self.full.contains(&of.key_holder()))
    }

    /// Judges a connection by a frame of it: whose it was, if it was authentic.
    pub(super) fn judge(&mut self, id: u64, by: Option<Principal>) {
        let Some(slot) = self.held.get_mut(&id) else { return };
        slot.is_judged_next = false;
        match (slot.of, by) {
            (None, None) => self.close(id),
            // A replica passes on what clients have made.
            (Some(Principal::Replica(_)), _) | (Some(_), None | Some(Principal::Client(_))) => {}
            (None | Some(Principal::Client(_)), Some(of)) => {
                slot.of = Some(of);
                self.make_room_for(of);
            }
        }
    }

    /// Closes connections beyond the most of one peer, and of all clients: those that brought something longest ago.
    fn make_room_for(&mut self, of: Principal) {
        let holder = of.key_holder();
        self.keep(PEER_MAX, |slot| slot.of.is_some_and(|of| of.key_holder() == holder));
        self.keep(CLIENTS_MAX, |slot| matches!(slot.of, Some(Principal::Client(_))));
    }

    fn keep(&mut self, most: usize, which: impl Fn(&Slot) -> bool) {
        while self.held.values().filter(|slot| which(slot)).count() > most {
            let found = self.held.iter().filter(|(_, slot)| which(slot));
            let Some(stale) = found.min_by_key(|(_, slot)| slot.moved).map(|(id, _)| *id) else { return };
            self.close(stale);
        }
    }

    /// Says whether a connection still has its place.
    pub(super) fn has(&self, id: u64) -> bool {
        self.held.contains_key(&id)
    }

    /// Says whether a connection waits to be judged.
    pub(super) fn waits(&self, id: u64) -> bool {
        self.held.get(&id).is_some_and(|slot| slot.is_judged_next)
    }

    /// Says whether a connection is a replica's.
    pub(super) fn is_replicas(&self, id: u64) -> bool {
        self.held.get(&id).is_some_and(|slot| matches!(slot.of, Some(Principal::Replica(_))))
    }

    /// Takes a connection's place away. Its thread notices.
    pub(super) fn close(&mut self, id: u64) {
        if let Some(slot) = self.held.remove(&id) {
            let _ = slot.stream.shutdown(Shutdown::Both);
        }
    }

    /// Closes all of them.
    pub(super) fn close_all(&mut self) {
        while let Some((id, _)) = self.held.first_key_value() {
            self.close(*id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_wire::{ClientId, ReplicaId};
    use std::net::TcpListener;

    /// Connections from hosts that are told here: all are of one listener.
    struct Table {
        slots: Slots,
        listener: TcpListener,
        peers: Vec<TcpStream>,
    }

    impl Table {
        fn new() -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            Self { slots: Slots::default(), listener, peers: Vec::new() }
        }

        fn enter(&mut self, host: u8) -> Option<u64> {
            self.peers.push(TcpStream::connect(self.listener.local_addr().unwrap()).unwrap());
            let (stream, _) = self.listener.accept().unwrap();
            self.slots.enter(IpAddr::from([10, 0, 0, host]), Arc::new(stream))
        }

        fn known(&mut self, of: Principal) -> u64 {
            let id = self.enter(1).unwrap();
            assert!(self.slots.brings(id, 1));
            self.slots.judge(id, Some(of));
            id
        }
    }

    fn client(number: u64) -> Principal {
        Principal::Client(ClientId::new(number, 0))
    }

    /// H1: those that bring nothing go first, those of a crowded host before others, and never one that waits
    /// to be judged.
    #[test]
    fn h1_a_stranger_takes_the_place_of_one_that_brings_nothing() {
        let mut table = Table::new();
        let other_host = table.enter(2).unwrap();
        let ids: Vec<u64> = (1..STRANGERS_MAX).map(|_| table.enter(1).unwrap()).collect();
        table.slots.moves(ids[0]);
        assert!(table.slots.brings(ids[1], 1));
        let next = table.enter(1).unwrap();
        let gone: Vec<u64> = ids.iter().copied().filter(|id| !table.slots.has(*id)).collect();
        assert_eq!(gone, [ids[2]], "the first that has brought nothing since");
        assert!(table.slots.has(other_host) && table.slots.has(next));
        // Those that wait for a verdict have their places, and then there is none for others.
        (0..STRANGERS_MAX).for_each(|_| _ = table.enter(1));
        let all: Vec<u64> = table.slots.held.keys().copied().collect();
        assert_eq!(all.len(), STRANGERS_MAX);
        for id in &all {
            assert!(table.slots.brings(*id, 1));
        }
        assert_eq!(table.enter(3), None);
        // What is not authentic ends its connection.
        table.slots.judge(all[0], None);
        assert!(!table.slots.has(all[0]) && table.enter(3).is_some());
    }

    /// No stranger takes a known peer's place, and no peer takes more than its own.
    #[test]
    fn h1_a_known_peer_keeps_its_place() {
        let mut table = Table::new();
        let replica = table.known(ReplicaId(1).into());
        let clients: Vec<u64> = (0..3).map(|i| table.known(client(1 + i / 2))).collect();
        for _ in 0..2 * STRANGERS_MAX {
            assert!(table.enter(1).is_some());
        }
        assert!(table.slots.has(replica) && clients.iter().all(|id| table.slots.has(*id)));
        // A third of one client takes the place of its own first.
        table.known(client(1));
        assert_eq!(clients.iter().map(|id| table.slots.has(*id)).collect::<Vec<_>>(), [false, true, true]);
        // What a replica passes on does not make it a client's, nor does damage make it a stranger's.
        table.slots.judge(replica, Some(client(1)));
        table.slots.judge(replica, None);
        assert!(table.slots.is_replicas(replica));
        let more = u64::try_from(CLIENTS_MAX).unwrap();
        (10..10 + 2 * more).for_each(|number| _ = table.known(client(number)));
        let of_clients =
            table.slots.held.values().filter(|slot| matches!(slot.of, Some(Principal::Client(_))));
        assert_eq!(of_clients.count(), CLIENTS_MAX);
        assert!(table.slots.has(replica));
        table.slots.close_all();
        assert!(!table.slots.has(replica));
    }
}

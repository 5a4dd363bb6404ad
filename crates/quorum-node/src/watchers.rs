//! The watchers of a server: clients that want to be told of new versions of an object (§15). A table of its own beside
//! the listeners, so that a watch neither ends with the client's next read nor holds anything back.

use std::collections::{BTreeMap, BTreeSet};

use quorate_quorum::ObjectId;
use quorate_wire::Principal;

/// The most objects that a client watches.
pub(crate) const CLIENT_MAX: usize = 64;
/// The most watchers of an object.
pub(crate) const OBJECT_MAX: usize = 1024;
/// How long a watch lasts: the client asks again every 5 s.
const LEASE_NS: u64 = 20_000_000_000;

/// The table. Clients are members of the cluster, so it has at most [`CLIENT_MAX`] entries for each of them: one for each object,
/// of the lane that asked last. Clients are told apart by their keys, which all lanes share.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    by_object: BTreeMap<ObjectId, BTreeMap<u64, Watch>>,
    by_client: BTreeMap<u64, BTreeSet<ObjectId>>,
    count: u64,
}

/// Who is told, and until when.
#[derive(Debug)]
struct Watch {
    lane: Principal,
    until: u64,
}

impl Watchers {
    /// A client asks for news of an object, for the first time or again. False: a bound is reached.
    pub(crate) fn watch(&mut self, lane: Principal, object: ObjectId, now_ns: u64) -> bool {
        let client = lane.key_holder();
        let until = now_ns.saturating_add(LEASE_NS);
        let known = self.by_client.get(&client).is_some_and(|objects| objects.contains(&object));
        if !known {
            if self.by_client.get(&client).is_some_and(|objects| objects.len() >= CLIENT_MAX) {
                self.expire(client, now_ns);
            }
            let of_client = self.by_client.get(&client).map_or(0, BTreeSet::len);
            let of_object = self.by_object.get(&object).map_or(0, BTreeMap::len);
            if of_client >= CLIENT_MAX || of_object >= OBJECT_MAX {
                return false;
            }
            self.count += 1;
            self.by_client.entry(client).or_default().insert(object);
        }
        self.by_object.entry(object).or_default().insert(client, Watch { lane, until });
        true
    }

    /// A client wants no more news.
    pub(crate) fn unwatch(&mut self, client: Principal, object: ObjectId) {
        self.remove(client.key_holder(), object);
    }

    fn remove(&mut self, client: u64, object: ObjectId) {
        if let Some(objects) = self.by_client.get_mut(&client)
            && objects.remove(&object)
        {
            self.count -= 1;
            if objects.is_empty() {
                self.by_client.remove(&client);
            }
            if let Some(watchers) = self.by_object.get_mut(&object) {
                watchers.remove(&client);
                if watchers.is_empty() {
                    self.by_object.remove(&object);
                }
            }
        }
    }

    /// Drops what a client has not asked for again.
    fn expire(&mut self, client: u64, now_ns: u64) {
        let objects = self.by_client.get(&client).cloned().unwrap_or_default();
        for object in objects {
            let watch = self.by_object.get(&object).and_then(|watchers| watchers.get(&client));
            if watch.is_none_or(|watch| watch.until <= now_ns) {
                self.remove(client, object);
            }
        }
    }

    /// Returns those who want news of an object, and drops those whose time is over.
    pub(crate) fn of(&mut self, object: ObjectId, now_ns: u64) -> Vec<Principal> {
        let Some(watchers) = self.by_object.get(&object) else { return Vec::new() };
        let (present, over): (Vec<_>, Vec<_>) = watchers.iter().partition(|(_, watch)| watch.until > now_ns);
        let present = present.into_iter().map(|(_, watch)| watch.lane).collect();
        let over: Vec<u64> = over.into_iter().map(|(client, _)| *client).collect();
        for client in over {
            self.remove(client, object);
        }
        present
    }

    /// Returns how many watches there are.
    pub(crate) fn len(&self) -> u64 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_wire::ClientId;

    fn object(number: usize) -> ObjectId {
        let mut name = [0; 32];
        name[..8].copy_from_slice(&number.to_le_bytes());
        ObjectId(name)
    }

    fn client(number: usize) -> Principal {
        Principal::Client(ClientId::new(u64::try_from(number).unwrap() + 1, 0))
    }

    /// A client fills its part of the table and no more, and all clients together that of an object.
    #[test]
    fn the_table_is_bounded() {
        let mut watchers = Watchers::default();
        let granted = (0..1000).filter(|number| watchers.watch(client(0), object(*number), 0)).count();
        assert_eq!(granted, CLIENT_MAX);
        assert!(watchers.watch(client(0), object(3), 0), "again");
        let granted = (1..3000).filter(|number| watchers.watch(client(*number), object(0), 0)).count();
        assert_eq!(granted, OBJECT_MAX - 1);
        assert_eq!(watchers.len(), u64::try_from(CLIENT_MAX + OBJECT_MAX - 1).unwrap());
        // What was not asked for again makes room.
        assert!(watchers.watch(client(0), object(5000), LEASE_NS));
        assert_eq!(watchers.of(object(0), LEASE_NS), []);
        assert_eq!(watchers.len(), 1);
        watchers.unwatch(client(0), object(5000));
        watchers.unwatch(client(9), object(5000));
        assert!(watchers.by_client.is_empty() && watchers.by_object.is_empty());
    }

    /// Q16: the lanes of a client have one place together, which is that of the last one that asked.
    #[test]
    fn q16_the_lanes_of_a_client_share_its_places() {
        let mut watchers = Watchers::default();
        let lane = |lane| Principal::Client(ClientId::new(1, lane));
        for number in 0..2000 {
            assert!(watchers.watch(lane(number), object(0), 0));
        }
        assert!(watchers.watch(client(1), object(0), 0), "there is room for others");
        assert_eq!(watchers.of(object(0), 1), [lane(1999), client(1)]);
        let granted = (1..1000).filter(|number| watchers.watch(lane(7), object(*number), 0)).count();
        assert_eq!(granted, CLIENT_MAX - 1);
        assert!(!watchers.watch(lane(8), object(2000), 0));
        watchers.unwatch(lane(9), object(0));
        assert_eq!(watchers.of(object(0), 1), [client(1)]);
    }

    #[test]
    fn news_goes_to_who_asked_for_it_lately() {
        let mut watchers = Watchers::default();
        watchers.watch(client(1), object(1), 0);
        watchers.watch(client(2), object(1), 10);
        watchers.watch(client(3), object(2), 10);
        assert_eq!(watchers.of(object(1), 20), [client(1), client(2)]);
        assert_eq!(watchers.of(object(1), LEASE_NS + 5), [client(2)]);
        assert_eq!(watchers.len(), 2);
    }
}

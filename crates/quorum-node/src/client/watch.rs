//! Watching a key: its values in rising order of their versions, possibly without some in between (§15).
//!
//! Every value is the result of a read. What servers say only makes the client read: MINIMAL-C and MINIMAL-F push, the
//! others are asked in a rhythm. A server that promises versions that no read finds is not heard until the next rhythm.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use quorate_quorum::step::Outcome;
use quorate_quorum::{ObjectId, ServerId, Version};

use super::ask::{CallError, Shared, Slot, VersionedValue};

/// The most objects that a client watches: a server takes no more of one.
pub(super) const WATCHES_MAX: usize = 64;
/// How often the client reads in any case, where servers push: it covers lost messages, restarts and dropped watchers.
const PUSHED_NS: u64 = 5_000_000_000;
/// How often it reads where they do not.
const POLLED_NS: u64 = 200_000_000;
/// How often a server may make the client read in vain, in the time of one rhythm.
const IN_VAIN_MAX: u8 = 8;

/// A watch. It ends when it is dropped.
#[derive(Debug)]
pub struct Watch {
    /// Keeps the client's thread.
    _client: Arc<Shared>,
    slot: Arc<Slot>,
}

impl Watch {
    pub(super) fn new(client: Arc<Shared>, slot: Arc<Slot>) -> Self {
        Self { _client: client, slot }
    }

    /// Returns the next value: the present one first, then newer ones. None: nothing new has come for `wait`. What was
    /// overwritten before it was taken here may be left out.
    ///
    /// # Errors
    ///
    /// The client watches too much, has lost the right to read the key, or is closed.
    pub fn next(&self, wait: Duration) -> Result<Option<VersionedValue>, CallError> {
        self.slot.next(wait)
    }
}

/// What the client's thread knows of a watched object.
#[derive(Debug)]
pub(super) struct Watched {
    slots: Vec<Arc<Slot>>,
    last: Option<VersionedValue>,
    /// What each server has told of, and whether that was after the last read had begun.
    told: BTreeMap<ServerId, (Version, bool)>,
    in_vain: BTreeMap<ServerId, u8>,
    reading: bool,
    read_at: u64,
    every: u64,
}

impl Watched {
    pub(super) fn new(pushes: bool) -> Self {
        let every = if pushes { PUSHED_NS } else { POLLED_NS };
        Self {
            slots: Vec::new(),
            last: None,
            told: BTreeMap::new(),
            in_vain: BTreeMap::new(),
            reading: false,
            read_at: 0,
            every,
        }
    }

    /// Adds a watcher, who gets the newest known value at once.
    pub(super) fn add(&mut self, slot: Arc<Slot>) {
        if let Some(entry) = &self.last {
            slot.deliver(entry.clone());
        }
        self.slots.push(slot);
    }

    /// Drops watchers that are gone, and says whether there are any.
    pub(super) fn is_wanted(&mut self) -> bool {
        self.slots.retain(|slot| Arc::strong_count(slot) > 1);
        !self.slots.is_empty()
    }

    /// A server tells of a version.
    pub(super) fn told(&mut self, server: ServerId, version: Version) {
        let known = self.last.as_ref().is_some_and(|entry| entry.version >= version);
        let heard = self.in_vain.get(&server).copied().unwrap_or(0) < IN_VAIN_MAX;
        if !known && heard {
            self.told.insert(server, (version, true));
        }
    }

    /// Returns when it is to be read next.
    pub(super) fn due(&self) -> u64 {
        match (self.reading, self.told.is_empty()) {
            (true, _) => u64::MAX,
            (false, false) => 0,
            (false, true) => self.read_at,
        }
    }

    /// A read begins. Returns whether that is the rhythm's, with which servers are asked again for news.
    pub(super) fn begins(&mut self, now_ns: u64) -> bool {
        self.reading = true;
        self.told.values_mut().for_each(|(_, later)| *later = false);
        let rhythm = self.read_at <= now_ns;
        if rhythm {
            self.read_at = now_ns.saturating_add(self.every);
            self.in_vain.clear();
        }
        rhythm
    }

    /// A read has ended.
    pub(super) fn ends(&mut self, result: Result<&Outcome, CallError>) {
        self.reading = false;
        let Ok(outcome) = result else { return };
        let in_vain = &mut self.in_vain;
        self.told.retain(|server, (version, later)| {
            let missed = *version > outcome.version;
            if missed && !*later {
                let count = in_vain.entry(*server).or_default();
                *count = count.saturating_add(1);
            }
            missed && *later
        });
        self.see(outcome);
    }

    /// An operation of this client has returned this.
    pub(super) fn see(&mut self, outcome: &Outcome) {
        let newer = self.last.as_ref().is_none_or(|entry| outcome.version > entry.version);
        if !newer || outcome.version.is_genesis() {
            return;
        }
        let Outcome { version, value, path, .. } = outcome;
        let entry = VersionedValue { value: Arc::clone(value), version: *version, path: *path };
        self.slots.iter().for_each(|slot| slot.deliver(entry.clone()));
        self.told.retain(|_, (told, _)| *told > *version);
        self.last = Some(entry);
    }

    pub(super) fn close(&self, why: CallError) {
        self.slots.iter().for_each(|slot| slot.close(why));
    }
}

/// The watched objects of a client.
pub(super) type Watches = BTreeMap<ObjectId, Watched>;

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_quorum::step::Path;
    use quorate_quorum::version::value_digest;
    use quorate_wire::{ClientId, ReplicaId};

    fn outcome(val: u64) -> Outcome {
        let value: Arc<[u8]> = Arc::from(&val.to_le_bytes()[..]);
        let version = Version { val, client: ClientId::new(1, 0), digest: value_digest(&value) };
        Outcome { version, value, path: Path::Fast, phases: 1, candidates: 1 }
    }

    /// Values come in rising order, the newest only, and never on a server's word.
    #[test]
    fn values_rise_and_each_was_read() {
        let slot = Arc::new(Slot::default());
        let mut watched = Watched::new(true);
        watched.add(Arc::clone(&slot));
        assert!(watched.is_wanted() && watched.due() == 0);
        assert!(watched.begins(0));
        watched.ends(Ok(&outcome(2)));
        watched.told(ReplicaId(3), outcome(9).version);
        assert_eq!(slot.next(Duration::ZERO).map(|entry| entry.map(|entry| entry.version.val)), Ok(Some(2)));
        assert_eq!(slot.next(Duration::ZERO), Ok(None), "what a server says is no value");
        assert_eq!(watched.due(), 0, "but a reason to read");
        assert!(!watched.begins(1));
        assert_eq!(watched.due(), u64::MAX);
        watched.ends(Ok(&outcome(4)));
        watched.see(&outcome(3));
        watched.see(&outcome(6));
        assert_eq!(slot.next(Duration::ZERO).map(|entry| entry.map(|entry| entry.version.val)), Ok(Some(6)));
        // Word that comes during a read is a reason for another one, whatever a liar said before it.
        watched.told(ReplicaId(3), outcome(99).version);
        watched.begins(2);
        watched.told(ReplicaId(1), outcome(8).version);
        watched.ends(Ok(&outcome(7)));
        assert_eq!(watched.due(), 0);
        watched.begins(3);
        watched.ends(Ok(&outcome(8)));
        assert!(watched.due() > 3);
        drop(slot);
        assert!(!watched.is_wanted());
    }

    /// A server that promises what is not there makes the client read a few times, until the next rhythm.
    #[test]
    fn a_liar_makes_the_client_read_in_vain_a_few_times() {
        let mut watched = Watched::new(true);
        watched.begins(0);
        watched.ends(Ok(&outcome(1)));
        let mut reads = 0;
        for val in 10..100 {
            watched.told(ReplicaId(2), outcome(val).version);
            if watched.due() == 0 {
                watched.begins(1);
                watched.ends(Ok(&outcome(1)));
                reads += 1;
            }
        }
        assert_eq!(reads, IN_VAIN_MAX);
        watched.told(ReplicaId(1), outcome(2).version);
        assert_eq!(watched.due(), 0, "others are heard");
        assert!(watched.begins(PUSHED_NS));
        watched.ends(Ok(&outcome(2)));
        watched.told(ReplicaId(2), outcome(100).version);
        assert_eq!(watched.due(), 0, "a new rhythm");
    }
}

//! Values that a reader was told of by their versions: a store above 9 KiB is forwarded without its value, and the reader
//! fetches that once, from a server that answered with the version, and checks its digest (ADR 14).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use quorate_quorum::message::Rid;
use quorate_quorum::version::value_digest;
use quorate_quorum::{Body, Message, ObjectId, ServerId, Value, Version};

use crate::link::Link;
use crate::note::Note;

/// How long a server may take before the next one is asked; doubled each time.
const WAIT_NS: u64 = 5_000_000;

/// A version without its value.
#[derive(Debug)]
struct Wanted {
    /// Who answered with it, and to which READ.
    holders: Vec<(ServerId, Rid)>,
    asked: usize,
    next_ns: u64,
}

/// What is to be fetched. For each object that is read, each server has at most one version here: its largest.
#[derive(Debug, Default)]
pub(super) struct Fetches {
    wanted: BTreeMap<(ObjectId, Version), Wanted>,
    /// Answers that have their values now.
    ready: VecDeque<(ServerId, Message)>,
    /// The last value that was fetched.
    last: Option<(ObjectId, Version, Value)>,
}

impl Fetches {
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.wanted.len() + self.ready.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.wanted.is_empty()
    }

    /// Returns when the next server is asked.
    pub(super) fn due(&self) -> u64 {
        self.wanted.values().map(|wanted| wanted.next_ns).min().unwrap_or(u64::MAX)
    }

    /// A server forwards a store without its value.
    pub(super) fn forwarded(
        &mut self,
        now_ns: u64,
        from: ServerId,
        (object, rid, version): (ObjectId, Rid, Version),
        link: &mut Link,
    ) {
        if let Some((about, known, value)) = &self.last
            && (*about, *known) == (object, version)
        {
            let value = Arc::clone(value);
            return self.ready.push_back((from, answer(object, rid, version, value)));
        }
        let of_server = |wanted: &Wanted| wanted.holders.iter().any(|(holder, _)| *holder == from);
        let least = (object, Version::GENESIS);
        let mut before = self.wanted.range(least..).take_while(|((about, _), _)| *about == object);
        let before = before.find(|(_, wanted)| of_server(wanted)).map(|((_, version), _)| *version);
        match before {
            Some(larger) if larger > version => return,
            Some(smaller) if smaller < version => self.leave((object, smaller), from),
            _ => {}
        }
        let fresh = Wanted { holders: Vec::new(), asked: 0, next_ns: now_ns.saturating_add(WAIT_NS) };
        let wanted = self.wanted.entry((object, version)).or_insert(fresh);
        if wanted.holders.is_empty() {
            link.note(from.into(), &Note::Fetch(object, version));
        }
        wanted.holders.retain(|(holder, _)| *holder != from);
        wanted.holders.push((from, rid));
    }

    fn leave(&mut self, what: (ObjectId, Version), server: ServerId) {
        if let Some(wanted) = self.wanted.get_mut(&what) {
            wanted.holders.retain(|(holder, _)| *holder != server);
            if wanted.holders.is_empty() {
                self.wanted.remove(&what);
            }
        }
    }

    /// A value has come, whichever server sent it. What does not hash to the version is nobody's.
    pub(super) fn fetched(&mut self, object: ObjectId, version: Version, value: &Value) {
        if !self.wanted.contains_key(&(object, version)) || value_digest(value) != version.digest {
            return;
        }
        let Some(wanted) = self.wanted.remove(&(object, version)) else { return };
        for (server, rid) in wanted.holders {
            self.ready.push_back((server, answer(object, rid, version, Arc::clone(value))));
        }
        self.last = Some((object, version, Arc::clone(value)));
    }

    /// Asks the next holder of what has not come in time.
    pub(super) fn again(&mut self, now_ns: u64, link: &mut Link) {
        for ((object, version), wanted) in &mut self.wanted {
            if wanted.next_ns <= now_ns {
                wanted.asked += 1;
                let wait = WAIT_NS << wanted.asked.min(6);
                wanted.next_ns = now_ns.saturating_add(wait);
                if let Some((holder, _)) = wanted.holders.get(wanted.asked % wanted.holders.len().max(1)) {
                    link.note((*holder).into(), &Note::Fetch(*object, *version));
                }
            }
        }
    }

    /// Returns an answer that has its value now.
    pub(super) fn take(&mut self) -> Option<(ServerId, Message)> {
        self.ready.pop_front()
    }

    /// Nobody reads this object any more.
    pub(super) fn forget(&mut self, object: ObjectId) {
        self.wanted.retain(|(about, _), _| *about != object);
    }
}

fn answer(object: ObjectId, rid: Rid, version: Version, value: Value) -> Message {
    Message { object, body: Body::Val { rid, version, value, forwarded: true, signature: None } }
}

//! Repair (§15): a server that starts pulls every object from its peers. It accepts only what proves
//! itself, or in MINIMAL-C what f + 1 peers answer alike; that is the business of each protocol.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::access::ACCESS;
use crate::message::encoding::COPIES_MAX;
use crate::message::{Body, Copy};
use crate::settings::Settings;
use crate::step::{Out, Timer, peers};
use crate::thresholds::{ServerId, ServerSet};
use crate::version::ObjectId;

/// The most bytes of values in one COPIES, unless a single value is longer.
const COPIES_BYTES: usize = 256 << 10;

/// How far a server has pulled.
///
/// *When a server that lost its disk is repaired.* Let v be a version that it once promised to hold. q servers promised
/// that, so q - 1 others did, of which at most f - 1 lie: the server itself is the f-th fault (§15). At least q - f
/// correct peers hold v or more, and of any h peers that were heard to the end at least h + q - f - (n - 1) are among
/// them: [`Self::promisers`]. One is enough where what they send proves itself.
#[derive(Debug)]
pub(crate) struct Repair {
    me: ServerId,
    settings: Arc<Settings>,
    /// Peers that have more, with the object that is asked for next and how many have come.
    asking: BTreeMap<ServerId, (ObjectId, usize)>,
    /// Peers that were heard to the end since it began.
    heard: ServerSet,
    /// It lost its disk and has not been repaired since.
    lost: bool,
    wait: u64,
}

impl Repair {
    pub(crate) fn new(me: ServerId, settings: Arc<Settings>, lost: bool) -> Self {
        Self { me, settings, asking: BTreeMap::new(), heard: ServerSet::default(), lost, wait: 0 }
    }

    /// Says whether the server still lacks what it promised.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost
    }

    /// Returns how many of the peers heard to the end are sure to hold what this server promised.
    pub(crate) fn promisers(&self) -> usize {
        let t = self.settings.thresholds;
        (self.heard.len() + t.q() + 1).saturating_sub(t.f() + t.n())
    }

    /// Notes that it is repaired if one answer that proves itself is enough.
    pub(crate) fn judge_proofs(&mut self) {
        if self.promisers() > 0 {
            self.repaired();
        }
    }

    /// Notes that it is repaired.
    pub(crate) fn repaired(&mut self) {
        self.lost = false;
    }

    /// Begins to pull from every peer.
    pub(crate) fn start(&mut self, out: &mut Out) {
        self.begin();
        self.wait = self.settings.timing.first;
        self.ask(out);
    }

    fn begin(&mut self) {
        let begin = ObjectId([0; 32]);
        self.heard = ServerSet::default();
        self.asking = peers(self.settings.thresholds, self.me).map(|peer| (peer, (begin, 0))).collect();
    }

    /// Asks those again that have not answered; everybody from the beginning where all have and that was not enough.
    pub(crate) fn again(&mut self, out: &mut Out) {
        if self.lost && self.asking.is_empty() {
            self.begin();
        }
        self.wait = self.wait.saturating_mul(2).min(self.settings.timing.longest);
        self.ask(out);
    }

    fn ask(&self, out: &mut Out) {
        if (self.asking.is_empty() && !self.lost) || !self.settings.retransmits() {
            return;
        }
        for (peer, (next, _)) in &self.asking {
            out.send(*peer, *next, Body::Pull);
        }
        out.timer(Timer::Repair, self.wait);
    }

    /// Takes a part of a peer's list that was asked for, and asks for the next one.
    pub(crate) fn arrived(
        &mut self,
        peer: ServerId,
        from: ObjectId,
        items: &[Copy],
        more: bool,
        out: &mut Out,
    ) -> Vec<Copy> {
        let Some((next, count)) = self.asking.get_mut(&peer) else { return Vec::new() };
        if *next != from {
            return Vec::new();
        }
        *count += items.len();
        let rest = items.last().and_then(|last| after(last.object)).filter(|_| more);
        // A peer that lists more objects than a server can have is not heard to the end.
        let is_endless = *count > self.settings.limits.objects;
        if let Some(object) = rest.filter(|_| !is_endless) {
            *next = object;
            out.send(peer, object, Body::Pull);
        } else {
            self.asking.remove(&peer);
            if !is_endless {
                self.heard.insert(peer);
            }
        }
        items.iter().filter(|item| item.object != ACCESS).cloned().collect()
    }

    /// Says whether every answer of a round has come.
    pub(crate) fn round_is_over(&self) -> bool {
        self.asking.is_empty()
    }

    pub(crate) fn crash(&mut self) {
        self.asking.clear();
    }
}

/// Returns the answer to PULL: the first of these objects.
pub(crate) fn copies(list: impl Iterator<Item = Copy>) -> Body {
    let (mut items, mut bytes, mut more) = (Vec::new(), 0, false);
    for item in list {
        bytes += item.value.len();
        if items.len() >= usize::from(COPIES_MAX) || (bytes > COPIES_BYTES && !items.is_empty()) {
            more = true;
            break;
        }
        items.push(item);
    }
    Body::Copies { items: items.into(), more }
}

/// Returns the next object, in the order of the list.
fn after(object: ObjectId) -> Option<ObjectId> {
    let mut bytes = object.0;
    for byte in bytes.iter_mut().rev() {
        let (next, overflow) = byte.overflowing_add(1);
        *byte = next;
        if !overflow {
            return Some(ObjectId(bytes));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_follow_each_other() {
        let mut object = [0; 32];
        object[31] = 0xff;
        let mut next = [0; 32];
        next[30] = 1;
        assert_eq!(after(ObjectId(object)), Some(ObjectId(next)));
        assert_eq!(after(ObjectId([0xff; 32])), None);
    }
}

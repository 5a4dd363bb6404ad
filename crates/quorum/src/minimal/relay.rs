//! Relays between the servers of MINIMAL-F (§5): every store that a server accepts for the first
//! time goes to all other servers, again and again until each has acknowledged it.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;

use crate::message::{Body, Proof};
use crate::mutants::Mutant;
use crate::settings::Settings;
use crate::step::{Out, Timer, peers};
use crate::thresholds::ServerId;
use crate::version::{ObjectId, Value, Version};

/// The most FSTOREs in one repetition.
const REPEATS_MAX: usize = 256;

/// A store that a peer has not acknowledged.
#[derive(Clone, Debug)]
struct Unacknowledged {
    version: Version,
    value: Value,
    proof: Proof,
}

/// What a server still has to relay: for each object and peer the largest unacknowledged version,
/// so at most n - 1 for each object.
#[derive(Debug)]
pub(crate) struct Relay {
    me: ServerId,
    settings: Arc<Settings>,
    pending: BTreeMap<(ObjectId, ServerId), Unacknowledged>,
    /// Where the last repetition ended.
    position: Option<(ObjectId, ServerId)>,
    wait: u64,
}

impl Relay {
    pub(crate) fn new(me: ServerId, settings: Arc<Settings>) -> Self {
        Self { me, settings, pending: BTreeMap::new(), position: None, wait: 0 }
    }

    /// Sends a store to all other servers.
    pub(crate) fn broadcast(
        &mut self,
        object: ObjectId,
        version: Version,
        value: &Value,
        proof: &Proof,
        out: &mut Out,
    ) {
        if self.settings.wrong(Mutant::NoRelay) {
            return;
        }
        let body = Body::Fstore { version, value: Arc::clone(value), proof: proof.clone() };
        out.broadcast(peers(self.settings.thresholds, self.me), object, &body);
        if !self.settings.fack || !self.settings.retransmits() || self.settings.wrong(Mutant::RelayOnce) {
            return;
        }
        let is_first = self.pending.is_empty();
        for peer in peers(self.settings.thresholds, self.me) {
            let larger = self.pending.get(&(object, peer)).is_some_and(|other| other.version > version);
            if !larger {
                let entry = Unacknowledged { version, value: Arc::clone(value), proof: proof.clone() };
                self.pending.insert((object, peer), entry);
            }
        }
        // Otherwise the timer runs: to set it again for each store would repeat nothing as long as stores come (Q12).
        if is_first {
            self.wait = self.settings.timing.first;
            out.timer(Timer::Relays, self.wait);
        }
    }

    /// A peer has this version.
    pub(crate) fn acknowledged(&mut self, object: ObjectId, peer: ServerId, version: Version) {
        if self.pending.get(&(object, peer)).is_some_and(|entry| entry.version == version) {
            self.pending.remove(&(object, peer));
        }
    }

    /// Sends again what is not acknowledged, some of it at a time.
    pub(crate) fn again(&mut self, out: &mut Out) {
        if self.pending.is_empty() {
            return;
        }
        let begin = self.position.map_or(core::ops::Bound::Unbounded, core::ops::Bound::Excluded);
        let later = self.pending.range((begin, core::ops::Bound::Unbounded));
        let mut last = None;
        for ((object, peer), entry) in later.take(REPEATS_MAX) {
            let Unacknowledged { version, value, proof } = entry.clone();
            out.send(*peer, *object, Body::Fstore { version, value, proof });
            last = Some((*object, *peer));
        }
        self.position = last;
        // From the beginning again; only a whole round without an end makes the wait longer.
        if last.is_none() || self.pending.len() <= REPEATS_MAX {
            self.position = None;
            self.wait = self.wait.saturating_mul(2).min(self.settings.timing.longest);
        }
        out.timer(Timer::Relays, self.wait);
    }

    pub(crate) fn crash(&mut self) {
        self.pending.clear();
        self.position = None;
    }
}

#[cfg(test)]
mod tests {
    use quorate_wire::ClientId;

    use super::*;
    use crate::settings::Protocol;
    use crate::step::Action;
    use crate::thresholds::Thresholds;
    use crate::version::value_digest;

    /// Q12: a timer that each store sets again would repeat no relay as long as stores come.
    #[test]
    fn q12_relays_are_repeated_under_load() {
        let settings = Settings::new(Thresholds::tolerating(1).unwrap(), Protocol::MinimalF);
        let mut relay = Relay::new(ServerId::at(0), Arc::new(settings));
        let timers =
            |out: &Out| out.actions.iter().filter(|action| matches!(action, Action::SetTimer { .. })).count();
        for number in 1..20_u8 {
            let value: Value = [number].as_slice().into();
            let digest = value_digest(&value);
            let version = Version { val: number.into(), client: ClientId::new(1, 0), digest };
            let mut out = Out::default();
            relay.broadcast(ObjectId([number; 32]), version, &value, &Proof::default(), &mut out);
            assert_eq!(timers(&out), usize::from(number == 1), "{number}");
        }
        let mut out = Out::default();
        relay.again(&mut out);
        assert_eq!(timers(&out), 1);
        let first =
            |action: &Action| matches!(action, Action::Send { message, .. } if message.object.0[0] == 1);
        assert!(out.actions.iter().any(first));
    }
}

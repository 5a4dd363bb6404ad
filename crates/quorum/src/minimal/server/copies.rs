//! Repair (§15): what peers hold, taken as a STORE.

use alloc::collections::BTreeMap;

use super::Server;
use crate::crypto::Crypto;
use crate::message::Copy;
use crate::minimal::store::{Sender, Store};
use crate::step::Out;
use crate::thresholds::{ServerId, ServerSet};
use crate::version::{ObjectId, Version};

impl Server {
    /// MINIMAL-F takes what is signed; MINIMAL-C what f + 1 peers answer alike. Both treat it as a
    /// STORE, forwarding included (§15).
    pub(super) fn copies(
        &mut self,
        peer: ServerId,
        from: ObjectId,
        items: &[Copy],
        more: bool,
        crypto: &mut dyn Crypto,
        out: &mut Out,
    ) {
        for item in self.repair.arrived(peer, from, items, more, out) {
            let key = (item.object, item.version);
            if !self.is_f() {
                let most = self.settings.limits.objects.saturating_mul(self.settings.thresholds.n());
                if self.answers.len() >= most && !self.answers.contains_key(&key) {
                    continue;
                }
                let answer = self.answers.entry(key).or_default();
                answer.insert(peer);
                if answer.len() < self.settings.thresholds.weak() {
                    continue;
                }
            }
            let Copy { object, version, value, proof, .. } = &item;
            let store = Store { object: *object, version: *version, value, proof };
            self.store(Sender::Peers, &store, crypto, out);
        }
        if self.is_f() {
            self.repair.judge_proofs();
        } else if !more && self.repair.is_lost() && self.holds_what_it_promised() {
            // Judged at the end of each peer's list only: the judgement looks at every answer.
            self.repair.repaired();
        }
        if self.repair.round_is_over() {
            self.answers.clear();
        }
    }

    /// MINIMAL-C: of the peers heard so far, this many are sure to hold what this server promised. Where fewer of all say
    /// that they hold more than this server does, it holds that as well. What f + 1 do not answer alike while writes go on comes
    /// by its own STORE, which is repeated (§2.3).
    fn holds_what_it_promised(&self) -> bool {
        let sure = self.repair.promisers();
        if sure == 0 {
            return false;
        }
        let mut larger: BTreeMap<ObjectId, ServerSet> = BTreeMap::new();
        for ((object, version), peers) in &self.answers {
            if self.objects.get(object).map_or(Version::GENESIS, |held| held.version) < *version {
                let set = larger.entry(*object).or_default();
                self.settings
                    .thresholds
                    .servers()
                    .filter(|peer| peers.contains(*peer))
                    .for_each(|peer| _ = set.insert(peer));
            }
        }
        larger.values().all(|peers| peers.len() < sure)
    }
}

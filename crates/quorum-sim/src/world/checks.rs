//! What holds in every run, whatever its history: access lists reach all correct servers and never go back, and no correct
//! process is accused (§15).

use std::collections::BTreeMap;

use quorate_quorum::Message;
use quorate_quorum::accusation::{Accusation, Signed, offence_of};
use quorate_quorum::version::ObjectId;
use quorate_wire::{ClientId, Principal};

use super::{Part, World};
use crate::history::{Operation, OperationKind};
use crate::rogue::Check;

impl World {
    /// Says whether all correct servers have the newest access list (§15).
    pub(super) fn lists_are_spread(&self) -> bool {
        let newest = self.group.lists.last().map_or(0, |(signed, _)| signed.list.number);
        let servers = self.settings.thresholds.servers().filter(|server| !self.group.liars.contains(server));
        newest == 0 || servers.into_iter().all(|server| self.lists.get(server.index()) == Some(&newest))
    }

    /// A server has taken a step: its access list may be another one, and never an older one (§15). Who may not write any
    /// more by the list of every correct server is stopped.
    pub(super) fn note_list(&mut self, host: usize, time: u64) {
        let Part::Process { process, .. } = &self.hosts[host].part else { return };
        let number = process.access_number();
        self.lists.resize(self.settings.thresholds.n(), 0);
        let Some(before) = self.lists.get_mut(host).filter(|before| **before != number) else { return };
        if number < *before {
            self.wrong = Some(format!("server {host} went back to an access list: {before} to {number}"));
        }
        *before = number;
        if self.lists_are_spread() {
            let losers: Vec<ClientId> = self.group.lists.iter().map(|(_, loser)| *loser).collect();
            for rogue in self.history.rogues.iter_mut().filter(|rogue| losers.contains(&rogue.client)) {
                rogue.stopped.get_or_insert(time);
            }
        }
    }

    /// Servers may refuse writes of this good client.
    pub(crate) fn may_lack_right(&mut self, client: ClientId) {
        self.unsure.push(client);
    }

    /// Says whether servers may refuse an operation: a write of a client that has no right, or loses it.
    pub(super) fn may_be_refused(&self, operation: usize) -> bool {
        let Operation { client, kind, .. } = &self.history.operations[operation];
        *kind == OperationKind::Write && self.unsure.contains(client)
    }

    /// Evidence is against faulty processes only, and stands on its own (§15).
    pub(super) fn judge(&mut self, accusation: &Accusation) {
        let mut bytes = Vec::new();
        accusation.encode(&mut bytes);
        let holds = Accusation::decode(&bytes).is_ok_and(|again| {
            again == *accusation && again.holds(&self.settings, &mut Check::new(&self.keys))
        });
        self.counts.accusations += 1;
        if !holds || self.is_good(accusation.accused) {
            self.wrong = Some(format!("{} is accused of {:?}", accusation.accused, accusation.offence));
        }
    }

    /// Says which correct process somebody can accuse who has every signature of this run.
    pub(crate) fn falsely_accused(&self) -> Option<String> {
        let mut by: BTreeMap<(u64, ObjectId), Vec<Signed>> = BTreeMap::new();
        for (signer, object, signed) in self.keys.signed().filter(|(signer, ..)| self.is_good(*signer)) {
            let others = by.entry((signer.to_wire(), object)).or_default();
            let both = |other: &Signed| offence_of(signer, object, *other, signed);
            if let Some(accusation) = others.iter().find_map(both) {
                return Some(format!("{signer} can be accused of {:?}", accusation.offence));
            }
            others.push(signed);
        }
        None
    }

    /// Says whether this process never signs as a liar or a faulty client.
    pub(crate) fn is_good(&self, principal: Principal) -> bool {
        match principal {
            Principal::Replica(server) => !self.group.liars.contains(&server),
            Principal::Client(client) => !self.history.is_rogue(client),
        }
    }

    /// Says whether a message is what its encoding says.
    pub(super) fn encodes(counter: u64, message: &Message) -> bool {
        let mut bytes = Vec::new();
        message.encode(counter, &mut bytes);
        let Ok((read, decoded)) = Message::decode(message.body.kind(), &bytes) else { return false };
        read == counter && decoded == *message
    }
}

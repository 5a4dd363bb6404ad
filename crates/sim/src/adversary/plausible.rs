//! Liars that say nothing which could not be true: only the time, or the listener, is wrong. A checker of forms
//! passes them all; what stops them is that f of them are too few.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use quorate_pbft::step::Recipient;
use quorate_wire::message::{Checkpoint, Commit, Prepare, ProofMessage, Reply};
use quorate_wire::{ClientId, Digest, Kind, Message, Principal, ReplicaId, SeqNum, Timestamp, ViewNum};

use super::primary::EquivocateToHalves;
use super::{Fate, Liar, Lie, Said};

/// How many reads, operations and answers a [`StaleReader`] remembers.
const REMEMBERED_MAX: usize = 64;
/// How many answers of one operation are kept: the oldest of them is given.
const AGE_MAX: usize = 4;

/// K11: answers reads as they were answered a while ago, under a valid MAC and with the right digest of that: what a
/// replica would say that had lost its last batches.
#[derive(Debug, Default)]
pub struct StaleReader {
    asked: VecDeque<(ClientId, Timestamp, Vec<u8>)>,
    /// What each operation gave, the oldest first.
    given: BTreeMap<Vec<u8>, VecDeque<Vec<u8>>>,
}

impl Liar for StaleReader {
    fn hear(&mut self, _lie: &mut Lie<'_>, _from: Principal, message: &Message<'_>) -> bool {
        if let Message::Request(request) = message
            && request.flags.read_only
        {
            if self.asked.len() == REMEMBERED_MAX {
                self.asked.pop_front();
            }
            self.asked.push_back((request.client, request.timestamp, request.operation.to_vec()));
        }
        true
    }

    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        let (Kind::Reply, Ok(m)) = (said.kind, Reply::decode(said.body)) else { return Fate::Keep };
        let read = self.asked.iter().find(|(client, t, _)| (*client, *t) == (m.client, m.timestamp));
        let Some((_, _, operation)) = read else { return Fate::Keep };
        if self.given.len() == REMEMBERED_MAX && !self.given.contains_key(operation) {
            self.given.pop_first();
        }
        let given = self.given.entry(operation.clone()).or_default();
        if let Some(result) = m.result.filter(|result| given.back().is_none_or(|last| last != result)) {
            if given.len() == AGE_MAX {
                given.pop_front();
            }
            given.push_back(result.to_vec());
        }
        let Some(old) = given.front() else { return Fate::Keep };
        let digest = lie.domains().result(m.client.0, m.timestamp.0, old).answering_like(&m.digest);
        if digest == m.digest {
            return Fate::Keep;
        }
        let stale = Reply { digest, result: m.result.map(|_| old.as_slice()), ..m };
        lie.say_with(said.to, Kind::Reply, |w| stale.encode(w));
        Fate::Drop
    }
}

/// K9: says of each checkpoint that it is stable as soon as it has it: the digest is right, and it would be true a
/// moment later, if the others were there.
#[derive(Debug, Default)]
pub struct EagerProof;

impl Liar for EagerProof {
    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        let (Kind::Checkpoint, Ok(m)) = (said.kind, Checkpoint::decode(said.body)) else { return Fate::Keep };
        if m.stable {
            return Fate::Keep;
        }
        lie.say_with(said.to, Kind::Checkpoint, |w| Checkpoint { stable: true, ..m }.encode(w));
        Fate::Drop
    }
}

/// The most answers that [`TwoFaced`] remembers.
const TOLD_MAX: usize = 4096;

/// K1: agrees with everyone: to each replica it votes for what that replica holds. As the primary it proposes one
/// batch to one half and another to the rest.
#[derive(Debug, Default)]
pub struct TwoFaced {
    primary: EquivocateToHalves,
    /// What it has answered: two of them would otherwise answer each other without end.
    told: BTreeSet<(SeqNum, ViewNum, ReplicaId, Digest, Kind)>,
}

impl Liar for TwoFaced {
    fn hear(&mut self, lie: &mut Lie<'_>, from: Principal, message: &Message<'_>) -> bool {
        let Principal::Replica(from) = from else { return true };
        let to = Recipient::Replica(from);
        let (view, seq, digest) = match message {
            Message::Prepare(m) => (m.view, m.seq, m.digest),
            Message::Commit(m) => (m.view, m.seq, m.digest),
            _ => return true,
        };
        if !self.told.insert((seq, view, from, digest, message.kind())) {
            return true;
        }
        if self.told.len() > TOLD_MAX {
            self.told.pop_first();
        }
        if !lie.is_primary() && matches!(message, Message::Prepare(_)) {
            lie.say_with(to, Kind::Prepare, |w| Prepare::encode(view, seq, &digest, &[], w));
        }
        lie.say_with(to, Kind::Commit, |w| Commit { view, seq, digest }.encode(w));
        true
    }

    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        if matches!(said.kind, Kind::Prepare | Kind::Commit) && said.own {
            // The primary of the view sends no PREPARE that could be answered: it hears what it has proposed.
            let primary = lie.config().cluster.primary(lie.view);
            if primary != lie.id {
                lie.say(Recipient::Replica(primary), said.kind, said.body);
            }
            lie.count();
            return Fate::Drop;
        }
        self.primary.speak(lie, said)
    }
}

/// K8: supports what others claim to have prepared, by PROOFs that it gives to the new primary alone, and gives no
/// VIEW-CHANGE of its own. The backups that check the NEW-VIEW have not got them.
#[derive(Debug, Default)]
pub struct PrivateProof {
    /// What others claim to have prepared, in VIEW-CHANGEs for this view.
    claimed: (ViewNum, BTreeSet<(SeqNum, Digest, ViewNum)>),
}

impl Liar for PrivateProof {
    fn hear(&mut self, lie: &mut Lie<'_>, from: Principal, message: &Message<'_>) -> bool {
        // What the new primary lacks, whatever it is, and what others claim to have prepared. All of it again with each
        // VIEW-CHANGE: the primary takes no proof before it knows that it wants it.
        let (view, claims) = match message {
            Message::Status(m) => {
                (m.view, m.wants.iter().map(|want| (want.seq, want.digest, want.view)).collect::<Vec<_>>())
            }
            Message::ViewChange(m) => {
                let m = m.body();
                if m.view > self.claimed.0 {
                    self.claimed = (m.view, BTreeSet::new());
                }
                if m.view == self.claimed.0 && self.claimed.1.len() < REMEMBERED_MAX {
                    self.claimed.1.extend(m.prepared.iter().map(|p| (p.seq, p.digest, p.view)));
                }
                (m.view, self.claimed.1.iter().copied().collect())
            }
            _ => return true,
        };
        let primary = lie.config().cluster.primary(view);
        if matches!(message, Message::Status(_)) && from != Principal::Replica(primary) {
            return true;
        }
        for (seq, digest, view) in claims {
            let proof = ProofMessage { seq, digest, view };
            lie.say_with(Recipient::Replica(primary), Kind::Proof, |w| proof.encode(w));
        }
        true
    }

    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        let withheld = said.kind == Kind::Proof || said.kind == Kind::ViewChange && said.own;
        if withheld {
            lie.count();
            return Fate::Drop;
        }
        Fate::Keep
    }
}

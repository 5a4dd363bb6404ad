//! Liars whose messages all have the right form, and whose lies agree with each other: each is seen only by who knows what
//! should have been said.

use std::collections::BTreeMap;

use quorate_pbft::choice;
use quorate_pbft::step::Recipient;
use quorate_wire::codec::Writer;
use quorate_wire::digest::Domains;
use quorate_wire::message::{Data, MetaData, Suspect, SuspectReason};
use quorate_wire::{Digest, Kind, Message, Principal, SeqNum};

use super::primary::Censor;
use super::{Answered, Fate, Liar, Lie, Said};
use crate::rng::Rng;

/// P13: the time that it chooses swings, within what backups accept: every second batch is to be executed before the one
/// in front of it. They are in progress together, so no backup knows yet what was agreed last.
#[derive(Debug, Default)]
pub struct SwingingChoice;

impl SwingingChoice {
    const AHEAD_NS: u64 = 400_000_000;
}

impl Liar for SwingingChoice {
    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        if said.kind != Kind::PrePrepare {
            return Fate::Keep;
        }
        let Some((view, seq, mut batch)) = lie.batch(said.body) else { return Fate::Keep };
        let Some(time) = choice::decode(batch.choice()).filter(|_| seq.0.is_multiple_of(2)) else {
            return Fate::Keep;
        };
        batch.seal(lie.domains(), &time.saturating_add(Self::AHEAD_NS).to_le_bytes());
        let body = lie.propose(view, seq, &batch);
        lie.say(said.to, Kind::PrePrepare, &body);
        Fate::Drop
    }
}

/// P7: ignores a client, and says once how far it is and never again: who goes by that takes it for one that is at the end
/// of its window.
#[derive(Debug)]
pub struct OldStatus {
    censor: Censor,
    told: bool,
}

impl Default for OldStatus {
    fn default() -> Self {
        Self { censor: Censor { upto: 1 }, told: false }
    }
}

impl Liar for OldStatus {
    fn hear(&mut self, lie: &mut Lie<'_>, from: Principal, message: &Message<'_>) -> bool {
        self.censor.hear(lie, from, message)
    }

    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        if said.kind != Kind::Status || said.to != Recipient::All {
            return Fate::Keep;
        }
        if std::mem::replace(&mut self.told, true) {
            lie.count();
            return Fate::Drop;
        }
        Fate::Keep
    }
}

/// K17: signs requests of its own, and says that they are read-only. The signature does not cover that, so anyone on the
/// way can do the same to the recovery request of a correct replica.
#[derive(Debug, Default)]
pub struct ReadOfItsOwn {
    asked: u64,
}

impl ReadOfItsOwn {
    const EVERY_NS: u64 = 50_000_000;
}

impl Liar for ReadOfItsOwn {
    fn idle(&mut self, lie: &mut Lie<'_>) {
        let turn = lie.now.mono_ns / Self::EVERY_NS;
        if turn > self.asked {
            self.asked = turn;
            lie.ask(b"a read", true);
        }
    }
}

/// K7: hands each view of its own over to those who come to it, and takes no other part in a view change.
#[derive(Debug)]
pub struct HandsOver;

impl Liar for HandsOver {
    fn hear(&mut self, lie: &mut Lie<'_>, from: Principal, message: &Message<'_>) -> bool {
        if let (Principal::Replica(to), Message::ViewChange(m)) = (from, message)
            && lie.config().cluster.primary(m.body().view) == lie.id
        {
            let (view, reason) = (m.body().view, SuspectReason::SelfHandoff);
            let suspect = Suspect { view, reason, signature: [0; 64] };
            lie.say_with(Recipient::Replica(to), Kind::Suspect, |w| suspect.encode(w));
        }
        true
    }

    fn speak(&mut self, _lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        let silent = [Kind::ViewChange, Kind::NewView, Kind::Suspect].contains(&said.kind);
        if silent { Fate::Drop } else { Fate::Keep }
    }
}

/// K13: gives made-up pages to a replica that fetches state, and nodes of the tree that have the digests of those.
/// Each page fits the node above it; only the node does not fit what is above that.
#[derive(Debug)]
pub struct ForgedTree {
    domains: Domains,
    /// How long a page is: known when it has given one.
    page_bytes: usize,
    /// The pages whose digests it has given.
    forged: BTreeMap<u64, SeqNum>,
}

impl ForgedTree {
    /// Bytes of a META-DATA before its first child, and of a child: its number, and its digest.
    const CHILDREN_AT: usize = 34;
    const CHILD_BYTES: usize = 40;
    const NUMBER_BYTES: usize = 8;
    /// How many children a node has.
    const BRANCHING: u64 = 64;
    const PAGES_MAX: usize = 1024;

    /// Returns a liar in a cluster with these digests.
    pub fn new(domains: Domains) -> Self {
        Self { domains, page_bytes: 0, forged: BTreeMap::new() }
    }

    fn page(&self) -> Vec<u8> {
        vec![0xee; self.page_bytes]
    }

    /// Puts the digest of a page that it makes up in the place of that of the node's last page.
    fn forge(&mut self, body: &mut [u8]) -> Option<()> {
        let node = MetaData::decode(body).ok().filter(|node| node.level == 1 && self.page_bytes > 0)?;
        let children: Vec<(SeqNum, Digest)> = node.children().collect();
        let at = children.iter().rposition(|(_, digest)| *digest != Digest::ZERO)?;
        let (modified, index) = (children[at].0, node.index * Self::BRANCHING + u64::try_from(at).ok()?);
        let covered = [&index.to_le_bytes()[..], &modified.0.to_le_bytes(), &self.page()].concat();
        let from = Self::CHILDREN_AT + at * Self::CHILD_BYTES + Self::NUMBER_BYTES;
        body.get_mut(from..from + 32)?.copy_from_slice(&self.domains.leaf(&covered).0);
        if self.forged.len() == Self::PAGES_MAX {
            self.forged.pop_first();
        }
        self.forged.insert(index, modified);
        Some(())
    }
}

impl Liar for ForgedTree {
    fn answer(&mut self, _rng: &mut Rng, kind: Kind, body: &mut Vec<u8>) -> Answered {
        if kind == Kind::MetaData && self.forge(body).is_some() {
            return Answered::Lie;
        }
        let Some((rid, index, len)) = (kind == Kind::Data)
            .then(|| Data::decode(body).ok().map(|data| (data.rid, data.index, data.page.len())))
            .flatten()
        else {
            return Answered::Truth;
        };
        self.page_bytes = self.page_bytes.max(len);
        let Some(modified) = self.forged.get(&index).copied() else { return Answered::Truth };
        let mut forged = Vec::new();
        let page = self.page();
        Data { rid, index, modified, page: &page }.encode(&mut Writer::new(&mut forged));
        *body = forged;
        Answered::Lie
    }
}

//! An administrator in the swarm (§15): it takes the right to write from one client after another, and tells few servers.

use std::collections::BTreeSet;
use std::sync::Arc;

use quorate_quorum::access::{ACCESS, AccessList, SignedList, Who};
use quorate_quorum::version::Namespace;
use quorate_quorum::{Body, Message, ServerId};
use quorate_wire::{ClientId, Principal};

use crate::profile::Scene;
use crate::rogue::Actor;

/// How long until a list is sent again to those that have not answered.
const AGAIN: u64 = 3_000;

/// How often it acts: a server that lies or is down may never answer.
const ACTS: u32 = 100;

/// Publishes lists, by which fewer and fewer clients may write.
#[derive(Debug)]
pub(crate) struct Administrator {
    space: Vec<Namespace>,
    writers: BTreeSet<u64>,
    /// Who loses the right and when, the first one last.
    losers: Vec<(u64, ClientId)>,
    /// The servers that it tells: f + 1, so that one is correct.
    told: Vec<ServerId>,
    newest: Option<Arc<SignedList>>,
    acknowledged: BTreeSet<u16>,
    left: u32,
}

impl Administrator {
    pub(crate) fn new(
        space: Vec<Namespace>,
        writers: &[ClientId],
        mut losers: Vec<(u64, ClientId)>,
        told: Vec<ServerId>,
    ) -> Self {
        losers.sort_unstable_by(|a, b| b.cmp(a));
        let writers = writers.iter().map(|client| client.principal()).collect();
        Self { space, writers, losers, told, newest: None, acknowledged: BTreeSet::new(), left: ACTS }
    }

    fn number(&self) -> u64 {
        self.newest.as_ref().map_or(0, |signed| signed.list.number)
    }

    fn publish(&mut self, loser: ClientId, scene: &mut Scene<'_>) {
        let Principal::Client(administrator) = scene.me else { return };
        self.writers.remove(&loser.principal());
        let rights = (Who::All, Who::These(self.writers.clone()));
        let by = self.space.iter().map(|space| (*space, rights.clone())).collect();
        let list = AccessList { number: self.number() + 1, by };
        let signature = scene.sign(&ACCESS, &list.statement());
        let signed = Arc::new(SignedList { list, administrator, signature });
        scene.group.lists.push((Arc::clone(&signed), loser));
        (self.newest, self.acknowledged) = (Some(signed), BTreeSet::new());
    }
}

impl Actor for Administrator {
    fn message(&mut self, from: Principal, message: &Message, _scene: &mut Scene<'_>) {
        if let (Principal::Replica(server), Body::AccessRank { number, .. }) = (from, &message.body)
            && *number >= self.number()
        {
            self.acknowledged.insert(server.0);
        }
    }

    fn tick(&mut self, scene: &mut Scene<'_>) {
        let Some(left) = self.left.checked_sub(1) else { return };
        self.left = left;
        while let Some((_, loser)) = self.losers.pop_if(|(at, _)| *at <= scene.now) {
            self.publish(loser, scene);
        }
        if let Some(signed) = &self.newest {
            for server in self.told.iter().filter(|server| !self.acknowledged.contains(&server.0)) {
                scene.send(*server, ACCESS, Body::Access { signed: Arc::clone(signed) });
            }
        }
        scene.tick =
            Some(self.losers.last().map_or(AGAIN, |(at, _)| at.saturating_sub(scene.now).clamp(1, AGAIN)));
    }
}

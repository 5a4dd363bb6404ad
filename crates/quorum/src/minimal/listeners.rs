//! The listeners of an object: readers that a server forwards stores to until their read is complete
//! (§4). One for each client, so a client that never sends RC costs one entry; a lease ends it.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use quorate_wire::{ClientId, Principal};

use crate::message::Rid;
use crate::mutants::Mutant;
use crate::settings::Settings;
use crate::step::Reject;
use crate::version::Version;

/// A reader that stores are forwarded to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listener {
    pub(crate) rid: Rid,
    /// The version that the server held when the listener registered.
    pub(crate) start: Version,
    /// When the lease ends.
    expires: u64,
}

/// The listeners of one object, and the highest rid of each client. Volatile (§2.5).
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    active: BTreeMap<ClientId, Listener>,
    /// Not evicted while the client is known: a READ that was overtaken by a newer one must not register again (§4).
    max_rid: BTreeMap<ClientId, Rid>,
}

impl Listeners {
    /// READ: registers the client, unless its rid is old.
    pub(crate) fn register(
        &mut self,
        from: Principal,
        rid: Rid,
        start: Version,
        expires: u64,
        settings: &Settings,
    ) -> Result<(), Reject> {
        let Principal::Client(client) = from else { return Err(Reject::NotExpected) };
        match self.max_rid.get(&client).copied() {
            Some(highest) if rid <= highest && !settings.wrong(Mutant::OldRead) => {
                return Err(Reject::Stale);
            }
            None if !self.makes_room(client, settings) => return Err(Reject::Full),
            _ => {}
        }
        self.max_rid.insert(client, rid);
        self.active.insert(client, Listener { rid, start, expires });
        Ok(())
    }

    /// RC: the read is complete.
    pub(crate) fn complete(&mut self, from: Principal, rid: Rid, settings: &Settings) -> Result<(), Reject> {
        let Principal::Client(client) = from else { return Err(Reject::NotExpected) };
        if !self.max_rid.contains_key(&client) && !self.makes_room(client, settings) {
            return Err(Reject::Full);
        }
        let highest = self.max_rid.entry(client).or_insert(rid);
        *highest = (*highest).max(rid);
        if self.active.get(&client).is_some_and(|listener| listener.rid <= rid) {
            self.active.remove(&client);
        }
        Ok(())
    }

    /// Says whether there is room for another client. One holder of keys has a sixteenth of the table for all its lanes: beyond
    /// that, one of its own entries goes (Q10).
    fn makes_room(&mut self, client: ClientId, settings: &Settings) -> bool {
        let lane = |lane| ClientId::new(client.principal(), lane);
        let own = || self.max_rid.range(lane(0)..=lane(u16::MAX)).map(|(own, _)| *own);
        if own().count() >= (settings.limits.clients / 16).max(1) {
            let Some(idle) = own().find(|own| !self.active.contains_key(own)) else { return false };
            self.max_rid.remove(&idle);
        }
        self.max_rid.len() < settings.limits.clients
    }

    /// Returns those that a store of `version` is forwarded to: the ones that registered when the
    /// server held less, whether or not the store is newer than what it holds now (§4). `newer` is
    /// for a mutant.
    pub(crate) fn receivers(
        &self,
        version: Version,
        newer: bool,
        settings: &Settings,
    ) -> Vec<(ClientId, Rid)> {
        let all = settings.wrong(Mutant::ForwardAll);
        let only_newer = settings.wrong(Mutant::ForwardNewer);
        let wanted = |listener: &Listener| {
            if only_newer { newer && version > listener.start } else { all || version > listener.start }
        };
        let wanted = self.active.iter().filter(|(_, listener)| wanted(listener));
        wanted.map(|(client, listener)| (*client, listener.rid)).collect()
    }

    /// Returns the smallest version at which a listener registered.
    pub(crate) fn low(&self) -> Option<Version> {
        self.active.values().map(|listener| listener.start).min()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.active.is_empty()
    }

    /// Drops the listener with the smallest start, which keeps `seen` long (§5).
    pub(crate) fn drop_oldest(&mut self) -> Option<(ClientId, Rid)> {
        let oldest = self.active.iter().min_by_key(|(_, listener)| listener.start);
        let (client, rid) = oldest.map(|(client, listener)| (*client, listener.rid))?;
        self.active.remove(&client);
        Some((client, rid))
    }

    /// Drops the listeners whose lease has ended.
    pub(crate) fn expire(&mut self, now: u64) -> Vec<(ClientId, Rid)> {
        let ended: Vec<(ClientId, Rid)> = self
            .active
            .iter()
            .filter(|(_, listener)| listener.expires <= now)
            .map(|(client, listener)| (*client, listener.rid))
            .collect();
        for (client, _) in &ended {
            self.active.remove(client);
        }
        ended
    }
}

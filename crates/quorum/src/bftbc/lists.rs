//! The lists of an object and the rules of PREPARE (§6.1 a to e, §6.4, H2).
//!
//! At most one prepare of a client is approved and not known completed: a NORMAL one in `plist`, an
//! OPT one in `optlist`. What leaves a list, because a larger write completed, is remembered in
//! `evicted`, and the client's next request has to cover it with a write certificate (H2).

use alloc::collections::BTreeMap;

use quorate_wire::codec::{DecodeError, Decoded, Reader, Writer};
use quorate_wire::{ClientId, Digest};

use crate::mutants::Mutant;
use crate::settings::Settings;
use crate::step::Reject;
use crate::version::Version;

/// What a server remembers of one client.
#[derive(Clone, Copy, Debug, Default)]
struct Slots {
    plist: Option<Version>,
    optlist: Option<Version>,
    evicted: Option<Version>,
    evicted_opt: Option<Version>,
}

/// The lists of one object: at most `limits.clients` entries, in which each lane of a client has one. If there is no room, the
/// client with the most lanes gives up its lowest one, and never gets back one below those that it has (Q15).
#[derive(Clone, Debug)]
pub(crate) struct Lists {
    /// The largest version known to be completed, from a valid write certificate.
    write_ver: Version,
    clients: BTreeMap<ClientId, Slots>,
}

impl Default for Lists {
    fn default() -> Self {
        Self { write_ver: Version::GENESIS, clients: BTreeMap::new() }
    }
}

impl Lists {
    /// Appends `write_ver`, and the slots of each client that has some: `count u32` of (client u64, plist?, optlist?,
    /// `evicted`?, `evicted_opt`?) in rising order.
    pub(crate) fn encode(&self, w: &mut Writer<'_>) {
        self.write_ver.encode(w);
        w.u32(u32::try_from(self.clients.len()).unwrap_or(u32::MAX));
        for (client, slots) in &self.clients {
            w.u64(client.0);
            for slot in [slots.plist, slots.optlist, slots.evicted, slots.evicted_opt] {
                w.u8(u8::from(slot.is_some()));
                if let Some(version) = slot {
                    version.encode(w);
                }
            }
        }
    }

    pub(crate) fn decode(r: &mut Reader<'_>, clients_max: usize) -> Decoded<Self> {
        let mut lists = Self { write_ver: Version::decode(r)?, clients: BTreeMap::new() };
        for _ in 0..r.count32(clients_max)? {
            let client = ClientId(r.u64()?);
            let mut slot = || if r.bool()? { Version::decode(r).map(Some) } else { Ok(None) };
            let slots = Slots { plist: slot()?, optlist: slot()?, evicted: slot()?, evicted_opt: slot()? };
            if lists.clients.last_key_value().is_some_and(|(before, _)| *before >= client) {
                return Err(DecodeError::NotCanonical);
            }
            lists.clients.insert(client, slots);
        }
        Ok(lists)
    }

    /// Returns the largest version known to be completed.
    pub(crate) fn write_ver(&self) -> Version {
        self.write_ver
    }

    /// Rule b: a write completed. Entries at or below it leave the lists and are remembered.
    pub(crate) fn complete(&mut self, version: Version) {
        if version <= self.write_ver {
            return;
        }
        self.write_ver = version;
        self.clear(version);
    }

    fn clear(&mut self, version: Version) {
        for slots in self.clients.values_mut() {
            if let Some(entry) = slots.plist.filter(|entry| *entry <= version) {
                slots.plist = None;
                slots.evicted = slots.evicted.max(Some(entry));
            }
            if let Some(entry) = slots.optlist.filter(|entry| *entry <= version) {
                slots.optlist = None;
                slots.evicted_opt = slots.evicted_opt.max(Some(entry));
            }
        }
    }

    /// For a mutant: prepare certificates clear the lists.
    pub(crate) fn clear_on_prepare(&mut self, version: Version) {
        self.clear(version);
    }

    fn slots(&mut self, client: ClientId, settings: &Settings) -> Result<&mut Slots, Reject> {
        if !self.clients.contains_key(&client) && !self.makes_room(client, settings) {
            return Err(Reject::Full);
        }
        Ok(self.clients.entry(client).or_default())
    }

    /// Says whether there is room for a lane that has none. A client that starts again takes a higher lane (H6), so its lowest one
    /// is in use no more. What was approved for a lane that gave its place up is forgotten, so such a lane is refused: this
    /// server would sign a second version with one counter (rule d).
    fn makes_room(&mut self, client: ClientId, settings: &Settings) -> bool {
        let lanes = |of: u64| self.clients.range(ClientId::new(of, 0)..=ClientId::new(of, u16::MAX));
        let own = client.principal();
        if lanes(own).next().is_some_and(|(lowest, _)| client < *lowest) {
            return false;
        }
        if self.clients.len() < settings.limits.clients {
            return true;
        }
        let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
        for other in self.clients.keys() {
            *counts.entry(other.principal()).or_default() += 1;
        }
        let has = counts.get(&own).copied().unwrap_or(0);
        let most = counts.into_iter().max_by_key(|(_, count)| *count);
        let giver = most.filter(|(_, count)| *count > has + 1).map_or(own, |(most, _)| most);
        let Some(lowest) = lanes(giver).next().map(|(lowest, _)| *lowest) else { return false };
        self.clients.remove(&lowest);
        true
    }

    /// Rules c and d of PREPARE: approves `version` for its client. `covered` is the largest write
    /// certificate inside the request. The approval uses up the client's slot also where the version
    /// is at or below `write_ver`.
    pub(crate) fn prepare(
        &mut self,
        version: Version,
        covered: Version,
        settings: &Settings,
    ) -> Result<(), Reject> {
        let write_ver = self.write_ver;
        let slots = self.slots(version.client, settings)?;
        let same = |a: Version, b: Version| a == b || (settings.wrong(Mutant::NoDigest) && a.val == b.val);
        let occupied = slots.plist.is_some_and(|entry| !same(entry, version));
        if occupied && !settings.wrong(Mutant::NoPlist) {
            return Err(Reject::Occupied);
        }
        let above = version > write_ver;
        let known = if above {
            slots.plist.is_some_and(|entry| same(entry, version)) && !settings.wrong(Mutant::NoPlist)
        } else {
            slots.plist == Some(version) || slots.evicted == Some(version) || settings.wrong(Mutant::SignOld)
        };
        if known {
            return Ok(());
        }
        let covers = slots.evicted.is_none_or(|evicted| covered >= evicted);
        if !covers && !settings.wrong(Mutant::NoH2) {
            return Err(Reject::NotCovered);
        }
        if !rises(slots.evicted, version, settings) {
            return Err(Reject::Occupied);
        }
        if above {
            slots.plist = Some(version);
        } else {
            slots.evicted = slots.evicted.max(Some(version));
        }
        Ok(())
    }

    /// Phase 1 of an optimized write (§6.4): approves the version that the server predicts, the
    /// successor of `base`, or nothing.
    pub(crate) fn prepare_optimistically(
        &mut self,
        client: ClientId,
        digest: Digest,
        base: Version,
        covered: Version,
        settings: &Settings,
    ) -> Option<Version> {
        let predicted = base.next(client, digest)?;
        let slots = self.slots(client, settings).ok()?;
        if slots.optlist.is_some_and(|entry| entry != predicted) {
            return None;
        }
        let covers = slots.evicted_opt.is_none_or(|evicted| covered >= evicted);
        if !rises(slots.evicted_opt, predicted, settings) || (!covers && !settings.wrong(Mutant::NoH2)) {
            return None;
        }
        slots.optlist = Some(predicted);
        Some(predicted)
    }
}

/// Rule d: says whether the counter is above those that were approved before. So this server never signs two versions of a
/// client with one counter and of one kind: two such signatures prove that it lies (§15).
fn rises(evicted: Option<Version>, version: Version, settings: &Settings) -> bool {
    settings.wrong(Mutant::SameCounter) || evicted.is_none_or(|evicted| version.val > evicted.val)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Protocol, Variant};
    use crate::thresholds::Thresholds;

    const C: ClientId = ClientId(1 << 16);

    fn version(val: u64, digest: u8) -> Version {
        Version { val, client: C, digest: Digest([digest; 32]) }
    }

    fn settings() -> Settings {
        Settings::new(Thresholds::tolerating(1).unwrap(), Protocol::BftBc(Variant::Optimized))
    }

    #[test]
    fn one_prepare_of_a_client_at_a_time() {
        let (mut lists, settings) = (Lists::default(), settings());
        assert_eq!(lists.prepare(version(1, 1), Version::GENESIS, &settings), Ok(()));
        assert_eq!(lists.prepare(version(1, 1), Version::GENESIS, &settings), Ok(()), "idempotent");
        let second = lists.prepare(version(1, 2), Version::GENESIS, &settings);
        assert_eq!(second, Err(Reject::Occupied), "rule c");
    }

    /// H2: what was evicted has to be covered by the request's own certificate.
    #[test]
    fn a_request_covers_what_was_evicted() {
        let (mut lists, settings) = (Lists::default(), settings());
        lists.prepare(version(1, 1), Version::GENESIS, &settings).unwrap();
        lists.complete(version(2, 9));
        let again = lists.prepare(version(3, 1), Version::GENESIS, &settings);
        assert_eq!(again, Err(Reject::NotCovered));
        assert_eq!(lists.prepare(version(1, 1), Version::GENESIS, &settings), Ok(()), "the same again");
        assert_eq!(lists.prepare(version(3, 1), version(1, 1), &settings), Ok(()));
    }

    /// Rule d: a second version with the counter of one that was evicted is refused, even if a certificate covers it.
    #[test]
    fn a_counter_is_approved_for_one_version() {
        let (mut lists, settings) = (Lists::default(), settings());
        lists.prepare(version(1, 1), Version::GENESIS, &settings).unwrap();
        lists.complete(version(1, 1));
        assert_eq!(lists.prepare(version(1, 2), version(1, 1), &settings), Err(Reject::Occupied));
        assert_eq!(lists.prepare(version(1, 1), version(1, 1), &settings), Ok(()), "the same again");
        assert_eq!(lists.prepare(version(2, 1), version(1, 1), &settings), Ok(()));
        let base = Version::GENESIS;
        let granted = |lists: &mut Lists, digest| {
            lists.prepare_optimistically(C, Digest([digest; 32]), base, version(9, 9), &settings)
        };
        assert_eq!(granted(&mut lists, 1), Some(version(1, 1)));
        lists.complete(version(5, 9));
        assert_eq!(granted(&mut lists, 2), None, "the strong variant predicts from what is held");
    }

    /// Rule d: an approval at or below `write_ver` uses up the slot as well.
    #[test]
    fn an_old_version_uses_up_the_slot() {
        let (mut lists, settings) = (Lists::default(), settings());
        lists.complete(version(5, 9));
        assert_eq!(lists.prepare(version(1, 1), Version::GENESIS, &settings), Ok(()));
        assert_eq!(lists.prepare(version(1, 1), Version::GENESIS, &settings), Ok(()));
        let second = lists.prepare(version(1, 2), Version::GENESIS, &settings);
        assert_eq!(second, Err(Reject::NotCovered));
    }

    /// H5: clients beyond the limit get nothing.
    #[test]
    fn the_lists_are_bounded() {
        let (mut lists, mut settings) = (Lists::default(), settings());
        settings.limits.clients = 2;
        for client in 1..=3 {
            let client = ClientId(client << 16);
            let version = Version { val: 1, client, digest: Digest::ZERO };
            let expected = if client.principal() <= 2 { Ok(()) } else { Err(Reject::Full) };
            assert_eq!(lists.prepare(version, Version::GENESIS, &settings), expected);
        }
        let third = ClientId(3 << 16);
        let base = Version::GENESIS;
        assert_eq!(lists.prepare_optimistically(third, Digest::ZERO, base, base, &settings), None);
        assert_eq!(lists.clients.len(), 2);
    }

    /// Q15: a client that starts again and again, or pretends to, leaves room for others, and nothing is approved for a lane
    /// that gave its place up.
    #[test]
    fn q15_one_client_leaves_room_for_others() {
        let (mut lists, mut settings) = (Lists::default(), settings());
        settings.limits.clients = 8;
        let mut prepare = |principal, lane, digest| {
            let client = ClientId::new(principal, lane);
            let version = Version { val: 1, client, digest: Digest([digest; 32]) };
            let result = lists.prepare(version, Version::GENESIS, &settings);
            assert!(lists.clients.len() <= 8);
            result
        };
        for lane in 10..100 {
            assert_eq!(prepare(1, lane, 1), Ok(()), "lane {lane}");
        }
        for lane in [0, 9, 10, 91] {
            assert_eq!(prepare(1, lane, 2), Err(Reject::Full), "lane {lane}");
        }
        assert_eq!(prepare(1, 92, 2), Err(Reject::Occupied), "it has kept its place");
        for principal in 2..=8 {
            assert_eq!(prepare(principal, 1, 1), Ok(()), "client {principal}");
        }
        assert_eq!(prepare(1, 98, 2), Err(Reject::Full));
        assert_eq!(prepare(1, 99, 2), Err(Reject::Occupied), "its last lane stays");
        assert_eq!(prepare(2, 2, 1), Ok(()), "its next start");
        assert_eq!(prepare(2, 1, 2), Err(Reject::Full));
        assert_eq!(prepare(9, 1, 1), Err(Reject::Full), "each client has one");
    }

    #[test]
    fn the_optimistic_list_is_its_own() {
        let (mut lists, settings) = (Lists::default(), settings());
        let base = Version::GENESIS;
        let granted = lists.prepare_optimistically(C, Digest([1; 32]), base, base, &settings);
        assert_eq!(granted, Some(version(1, 1)));
        assert_eq!(lists.prepare_optimistically(C, Digest([2; 32]), base, base, &settings), None);
        assert_eq!(lists.prepare(version(2, 2), base, &settings), Ok(()), "never blocks PREPARE");
    }
}

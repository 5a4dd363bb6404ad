//! Whom a server lets read and write (§15): by the rules, by its access list, and by whom it has revoked. A list reaches all
//! servers if it reaches a correct one.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use quorate_wire::codec::{DecodeError, Decoded, Reader, Writer};
use quorate_wire::{ClientId, Digest, Principal};

use crate::access::{ACCESS, SignedList};
use crate::crypto::Crypto;
use crate::message::Body;
use crate::mutants::Mutant;
use crate::settings::Settings;
use crate::step::{Out, Reject, Timer, peers};
use crate::thresholds::ServerId;
use crate::version::ObjectId;

/// The most clients that a server can revoke.
const REVOKED_MAX: usize = 65_536;

/// What a server knows of who may do what. Only an administrator can make it grow.
#[derive(Debug)]
pub(crate) struct Access {
    me: ServerId,
    settings: Arc<Settings>,
    revoked: BTreeSet<ClientId>,
    list: Option<Arc<SignedList>>,
}

impl Access {
    pub(crate) fn new(me: ServerId, settings: Arc<Settings>) -> Self {
        Self { me, settings, revoked: BTreeSet::new(), list: None }
    }

    pub(crate) fn set(&mut self, client: ClientId, allowed: bool) {
        if allowed {
            self.revoked.remove(&client);
        } else if self.revoked.len() < REVOKED_MAX {
            self.revoked.insert(client);
        }
    }

    pub(crate) fn may_write(&self, client: ClientId, object: &ObjectId) -> bool {
        let listed =
            |signed: &Arc<SignedList>| signed.list.allows(object, |(_, writers)| writers.has(client));
        !self.revoked.contains(&client)
            && self.settings.rules.may_write(client, object)
            && self.list.as_ref().is_none_or(listed)
    }

    pub(crate) fn may_read(&self, from: Principal, object: &ObjectId) -> bool {
        let Principal::Client(client) = from else { return true };
        let listed = |signed: &Arc<SignedList>| {
            signed.list.allows(object, |(readers, writers)| readers.has(client) || writers.has(client))
        };
        self.settings.rules.may_read(from, object) && self.list.as_ref().is_none_or(listed)
    }

    pub(crate) fn number(&self) -> u64 {
        self.list.as_ref().map_or(0, |signed| signed.list.number)
    }

    fn rank(&self) -> Option<(u64, Digest)> {
        self.list.as_ref().map(|signed| signed.list.rank())
    }

    fn rank_body(&self) -> Body {
        let (number, digest) = self.rank().unwrap_or((0, Digest::ZERO));
        Body::AccessRank { number, digest }
    }

    /// Takes a message about the list. None: it is none, and about no object that a client can have.
    pub(crate) fn message(
        &mut self,
        from: Principal,
        (object, body): (ObjectId, &Body),
        crypto: &mut dyn Crypto,
        out: &mut Out,
    ) -> Option<Result<(), Reject>> {
        match body {
            Body::Access { signed } => Some(self.offered(from, signed, crypto, out)),
            Body::AccessRank { number, digest } => {
                self.asked(from, (*number, *digest), out);
                Some(Ok(()))
            }
            // In these the object is where a list of objects begins.
            Body::Pull | Body::Copies { .. } => None,
            _ => (object == ACCESS).then_some(Err(Reject::NotExpected)),
        }
    }

    /// Keeps a list that is newer than its own, and passes it on: so it is enough that one correct server gets it.
    fn offered(
        &mut self,
        from: Principal,
        signed: &Arc<SignedList>,
        crypto: &mut dyn Crypto,
        out: &mut Out,
    ) -> Result<(), Reject> {
        let newer = Some(signed.list.rank()) > self.rank();
        if newer || (self.settings.wrong(Mutant::StaleList) && self.list.as_ref() != Some(signed)) {
            let valid = signed.is_valid(&self.settings.administrators, crypto);
            if !valid && !self.settings.wrong(Mutant::UnsignedList) {
                return Err(Reject::BadProof);
            }
            self.list = Some(Arc::clone(signed));
            out.persist(ACCESS);
            if !self.settings.wrong(Mutant::ListKept) {
                let body = Body::Access { signed: Arc::clone(signed) };
                out.broadcast(peers(self.settings.thresholds, self.me), ACCESS, &body);
            }
        }
        match from {
            // What it keeps now, which is durable when this is sent.
            Principal::Client(_) => out.send(from, ACCESS, self.rank_body()),
            Principal::Replica(_) if !newer => self.asked(from, signed.list.rank(), out),
            Principal::Replica(_) => {}
        }
        Ok(())
    }

    /// Somebody says which list it has: it gets a newer one, or is asked for its own.
    fn asked(&self, from: Principal, theirs: (u64, Digest), out: &mut Out) {
        let mine = self.rank().unwrap_or((0, Digest::ZERO));
        if let Some(signed) = self.list.as_ref().filter(|_| mine > theirs) {
            out.send(from, ACCESS, Body::Access { signed: Arc::clone(signed) });
        } else if mine < theirs || matches!(from, Principal::Client(_)) {
            out.send(from, ACCESS, self.rank_body());
        }
    }

    /// Says which list it has, now and from time to time: it may have been down when a list was spread.
    pub(crate) fn compare(&self, out: &mut Out) {
        let Settings { administrators, timing, .. } = &*self.settings;
        if !administrators.is_empty() && timing.access > 0 && !self.settings.wrong(Mutant::ListKept) {
            out.broadcast(peers(self.settings.thresholds, self.me), ACCESS, &self.rank_body());
            out.timer(Timer::Access, timing.access);
        }
    }

    /// Drops the list: the disk has it.
    pub(crate) fn crash(&mut self) {
        self.list = None;
    }

    /// Appends what is kept on the disk: a byte 2, then the list with its signature.
    pub(crate) fn save(&self, out: &mut Vec<u8>) -> bool {
        let Some(signed) = &self.list else { return false };
        let mut w = Writer::new(out);
        w.u8(SAVED);
        signed.encode(&mut w);
        true
    }

    pub(crate) fn load(&mut self, saved: &[u8]) -> Decoded<()> {
        let mut r = Reader::new(saved);
        if r.u8()? != SAVED {
            return Err(DecodeError::NotCanonical);
        }
        self.list = Some(Arc::new(SignedList::decode(&mut r)?));
        r.end()
    }
}

/// The form of an access list on a disk.
const SAVED: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{AccessList, Who};
    use crate::crypto::Keys;
    use crate::settings::Protocol;
    use crate::thresholds::Thresholds;
    use crate::version::Namespace;
    use quorate_wire::sign::{Signer, Verifier};
    use quorate_wire::{ClusterId, ReplicaId};

    #[test]
    fn the_list_is_bounded_and_can_be_undone() {
        let settings = Settings::new(Thresholds::tolerating(1).unwrap(), Protocol::Phalanx);
        let mut access = Access::new(ReplicaId(0), Arc::new(settings));
        let object = ObjectId::new(b"", b"a");
        let clients: Vec<ClientId> = (1..=70_000).map(|principal| ClientId::new(principal, 0)).collect();
        for client in &clients {
            access.set(*client, false);
        }
        assert_eq!(access.revoked.len(), REVOKED_MAX);
        assert!(!access.may_write(clients[5], &object));
        access.set(clients[5], true);
        assert!(access.may_write(clients[5], &object));
    }

    /// What a server keeps is the newest list that it got, whatever comes later.
    #[test]
    fn an_old_list_never_replaces_a_newer_one() {
        let mut settings = Settings::new(Thresholds::tolerating(1).unwrap(), Protocol::Phalanx);
        settings.administrators = [4].into();
        let (admin, bob) = (ClientId::new(4, 0), ClientId::new(2, 0));
        let keys = |signer: &Signer| {
            let mut verifier = Verifier::default();
            verifier.insert(admin.into(), &Signer::ed25519([4; 32]).public());
            Keys::new(ClusterId([1; 32]), 1, signer.clone(), verifier, || 0)
        };
        let mut own = keys(&Signer::ed25519([4; 32]));
        let space = Namespace::new(b"");
        let object = ObjectId::new(b"", b"a");
        let mut signed = |number, writers| {
            let list = AccessList { number, by: [(space, (Who::All, Who::These(writers)))].into() };
            let signature = own.sign(&ACCESS, &list.statement());
            Arc::new(SignedList { list, administrator: admin, signature })
        };
        let (first, second) = (signed(1, [2].into()), signed(2, BTreeSet::new()));
        let mut access = Access::new(ReplicaId(0), Arc::new(settings));
        let mut crypto = keys(&Signer::ed25519([9; 32]));
        let mut offer = |access: &mut Access, signed: &Arc<SignedList>| {
            let (mut out, body) = (Out::default(), Body::Access { signed: Arc::clone(signed) });
            let result = access.message(ReplicaId(3).into(), (ACCESS, &body), &mut crypto, &mut out);
            (result.unwrap(), out.actions.len())
        };
        assert!(access.may_write(bob, &object), "without a list the rules decide");
        let mut forged = SignedList::clone(&second);
        forged.list.number = 9;
        assert_eq!(offer(&mut access, &Arc::new(forged)).0, Err(Reject::BadProof));
        assert_eq!(offer(&mut access, &second), (Ok(()), 4), "persisted, and passed on to three");
        assert_eq!((access.number(), access.may_write(bob, &object)), (2, false));
        assert_eq!(offer(&mut access, &first), (Ok(()), 1), "its sender gets the newer one");
        assert_eq!((access.number(), access.may_write(bob, &object)), (2, false));
        let mut saved = Vec::new();
        assert!(access.save(&mut saved));
        let mut again = Access::new(ReplicaId(0), Arc::clone(&access.settings));
        again.load(&saved).unwrap();
        assert_eq!(again.list, access.list);
        assert!(again.may_read(bob.into(), &object), "it may read");
    }
}

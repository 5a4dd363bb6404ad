//! MINIMAL-C: write-backs of clients that may not write (§4).
//!
//! Nothing is signed, so nothing shows that such a client did not make the version up. The server asks its peers: if
//! f + 1 of them hold the version, a correct server does, and so a client that may write has written it.

use alloc::collections::VecDeque;
use alloc::sync::Arc;

use quorate_wire::Principal;

use crate::message::{Body, Op};
use crate::settings::Settings;
use crate::step::{Out, Reject, peers};
use crate::thresholds::{ServerId, ServerSet};
use crate::version::{ObjectId, VALUE_MAX, Value, Version};

/// The most claims.
const CLAIMS_MAX: usize = 256;
/// The most claims of one client, in all its lanes: its oldest one makes room.
const EACH_MAX: usize = 8;
/// The most bytes of values.
const BYTES_MAX: usize = 32 * VALUE_MAX;

/// A version that a client claims some server holds.
#[derive(Clone, Debug)]
struct Claim {
    number: u64,
    from: Principal,
    object: ObjectId,
    version: Version,
    value: Value,
    /// Peers that hold it.
    hold: ServerSet,
    /// Peers that have answered.
    answered: ServerSet,
}

/// The claims that a server has asked its peers about, oldest first.
#[derive(Debug)]
pub(crate) struct Claims {
    me: ServerId,
    settings: Arc<Settings>,
    list: VecDeque<Claim>,
    bytes: usize,
    number: u64,
}

impl Claims {
    pub(crate) fn new(me: ServerId, settings: Arc<Settings>) -> Self {
        Self { me, settings, list: VecDeque::new(), bytes: 0, number: 0 }
    }

    /// Asks the peers about a version whose value hashes to it. A client repeats what got lost.
    pub(crate) fn ask(
        &mut self,
        from: Principal,
        (object, version): (ObjectId, Version),
        value: &Value,
        out: &mut Out,
    ) -> Result<(), Reject> {
        let holder = from.key_holder();
        let of_client = self.list.iter().enumerate().filter(|(_, claim)| claim.from.key_holder() == holder);
        let same = of_client.clone().find(|(_, claim)| (claim.object, claim.version) == (object, version));
        if let Some((_, claim)) = same {
            // The answers that have come stay.
            let op = Op { incarnation: 0, number: claim.number, phase: 1 };
            out.broadcast(peers(self.settings.thresholds, self.me), object, &Body::Qts { op });
            return Ok(());
        }
        let oldest = of_client.clone().next().filter(|_| of_client.clone().count() >= EACH_MAX);
        if let Some((index, _)) = oldest {
            self.remove(index);
        }
        // The oldest goes: its answers may have been lost, and its client may have given up.
        while self.list.len() >= CLAIMS_MAX || self.bytes + value.len() > BYTES_MAX {
            if self.remove(0).is_none() {
                return Err(Reject::Full);
            }
        }
        self.number += 1;
        let number = self.number;
        self.bytes += value.len();
        let (hold, answered) = (ServerSet::default(), ServerSet::default());
        self.list.push_back(Claim {
            number,
            from,
            object,
            version,
            value: Arc::clone(value),
            hold,
            answered,
        });
        let op = Op { incarnation: 0, number, phase: 1 };
        out.broadcast(peers(self.settings.thresholds, self.me), object, &Body::Qts { op });
        Ok(())
    }

    /// Takes a peer's answer. Returns what f + 1 peers hold.
    pub(crate) fn answered(
        &mut self,
        peer: ServerId,
        object: ObjectId,
        (op, version): (Op, Version),
    ) -> Option<(Version, Value)> {
        let index = self
            .list
            .iter()
            .position(|claim| (claim.number, claim.object, op.incarnation) == (op.number, object, 0))?;
        let t = self.settings.thresholds;
        let claim = self.list.get_mut(index)?;
        claim.answered.insert(peer);
        if claim.version == version {
            claim.hold.insert(peer);
        }
        let (hold, silent) = (claim.hold.len(), (t.n() - 1).saturating_sub(claim.answered.len()));
        if hold >= t.weak() {
            return self.remove(index).map(|claim| (claim.version, claim.value));
        }
        if hold + silent < t.weak() {
            // No answer that is missing can make it true.
            self.remove(index);
        }
        None
    }

    fn remove(&mut self, index: usize) -> Option<Claim> {
        let claim = self.list.remove(index)?;
        self.bytes -= claim.value.len();
        Some(claim)
    }

    pub(crate) fn crash(&mut self) {
        self.list.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use quorate_wire::{ClientId, ReplicaId};

    use crate::settings::Protocol;
    use crate::step::Action;
    use crate::thresholds::Thresholds;
    use crate::version::value_digest;

    const OBJECT: ObjectId = ObjectId([1; 32]);

    fn claims() -> Claims {
        let settings = Settings::new(Thresholds::tolerating(1).unwrap(), Protocol::MinimalC);
        Claims::new(ReplicaId(3), Arc::new(settings))
    }

    fn reader(number: u64) -> Principal {
        ClientId::new(number, 0).into()
    }

    fn version(val: u64, value: &Value) -> Version {
        Version { val, client: ClientId::new(1, 0), digest: value_digest(value) }
    }

    /// Asks, and returns the op of the questions.
    fn ask(claims: &mut Claims, from: Principal, val: u64, value: &Value) -> Result<Op, Reject> {
        let mut out = Out::default();
        claims.ask(from, (OBJECT, version(val, value)), value, &mut out)?;
        let ops: Vec<Op> = out
            .actions
            .iter()
            .filter_map(|action| match action {
                Action::Send { message, .. } => match message.body {
                    Body::Qts { op } => Some(op),
                    _ => None,
                },
                _ => None,
            })
            .collect();
        assert_eq!(ops, vec![ops[0]; 3], "each peer once");
        Ok(ops[0])
    }

    #[test]
    fn f_and_one_peers_make_it_true() {
        let (mut claims, value): (_, Value) = (claims(), [7; 9].into());
        let version = version(4, &value);
        let op = ask(&mut claims, reader(2), 4, &value).unwrap();
        let mut says = |peer, version| claims.answered(ReplicaId(peer), OBJECT, (op, version));
        assert_eq!(says(0, version), None);
        assert_eq!(says(0, version), None, "one server counts once");
        assert_eq!(says(1, Version::GENESIS), None);
        assert_eq!(says(2, version), Some((version, value)));
        assert_eq!(says(2, version), None, "it is over");
        assert_eq!((claims.list.len(), claims.bytes), (0, 0));
    }

    #[test]
    fn a_repeat_keeps_the_answers_that_have_come() {
        let (mut claims, value): (_, Value) = (claims(), [7; 9].into());
        let version = version(4, &value);
        let op = ask(&mut claims, reader(2), 4, &value).unwrap();
        assert_eq!(claims.answered(ReplicaId(0), OBJECT, (op, version)), None);
        assert_eq!(ask(&mut claims, reader(2), 4, &value), Ok(op));
        assert_eq!(claims.answered(ReplicaId(1), OBJECT, (op, version)), Some((version, value)));
    }

    #[test]
    fn what_cannot_come_true_goes_at_once() {
        let (mut claims, value): (_, Value) = (claims(), [7; 9].into());
        let op = ask(&mut claims, reader(2), 4, &value).unwrap();
        for peer in 0..2 {
            assert_eq!(claims.answered(ReplicaId(peer), OBJECT, (op, Version::GENESIS)), None);
        }
        assert_eq!((claims.list.len(), claims.bytes), (0, 0));
    }

    #[test]
    fn a_client_fills_its_own_part_only() {
        let (mut claims, value): (_, Value) = (claims(), [7; 9].into());
        let other = ask(&mut claims, reader(3), 4, &value).unwrap();
        for val in 0..300 {
            let lane = u16::try_from(val).unwrap();
            ask(&mut claims, ClientId::new(2, lane).into(), val, &value).unwrap();
        }
        assert_eq!(claims.list.len(), 1 + EACH_MAX);
        for peer in 0..2 {
            let said = claims.answered(ReplicaId(peer), OBJECT, (other, version(4, &value)));
            assert_eq!(said.is_some(), peer == 1, "the other client's is there");
        }
        for client in 10..1000 {
            let _ = ask(&mut claims, reader(client), 1, &value);
        }
        assert_eq!(claims.list.len(), CLAIMS_MAX);
        assert!(ask(&mut claims, reader(5000), 1, &value).is_ok(), "the oldest goes");
        assert_eq!(claims.list.len(), CLAIMS_MAX);
        let (mut claims, long): (_, Value) = (self::claims(), vec![0; VALUE_MAX].into());
        (1..=100).for_each(|client| _ = ask(&mut claims, reader(client), 1, &long));
        assert_eq!(claims.bytes, BYTES_MAX);
    }
}

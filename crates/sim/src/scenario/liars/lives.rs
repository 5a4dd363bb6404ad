//! A Byzantine replica that keeps messages that others have signed (RC-11).

use std::collections::BTreeMap;

use quorate_pbft::config::MS;
use quorate_pbft::step::Recipient;
use quorate_wire::life::Life;
use quorate_wire::message::ViewChange;
use quorate_wire::{Kind, Message, Principal, ReplicaId, Timestamp, ViewNum};

use crate::adversary::{Fate, Liar, Lie, Said};

/// The most VIEW-CHANGEs that it keeps.
const KEPT_MAX: usize = 64;
/// How often it sends them all.
const EVERY_NS: u64 = 50 * MS;

/// H6: keeps the VIEW-CHANGEs of all others and sends them again and again, whatever has become of their senders since.
/// Beside its own it says one of a life that it will never have.
#[derive(Default)]
pub struct Keeper {
    kept: BTreeMap<(ReplicaId, ViewNum), Vec<u8>>,
    next_at: u64,
}

impl std::fmt::Debug for Keeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keeper of {}", self.kept.len())
    }
}

impl Liar for Keeper {
    fn hear(&mut self, lie: &mut Lie<'_>, _from: Principal, message: &Message<'_>) -> bool {
        if let Message::ViewChange(m) = message
            && m.sender() != lie.id
            && self.kept.len() < KEPT_MAX
        {
            self.kept.entry((m.sender(), m.body().view)).or_insert_with(|| m.frame().to_vec());
        }
        true
    }

    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        if said.kind == Kind::ViewChange
            && said.own
            && let Ok(own) = ViewChange::decode(said.body)
        {
            let never = Life { timestamp: Timestamp(u64::MAX), bits: 1 };
            lie.say_with(said.to, said.kind, |w| ViewChange { life: never, ..own.clone() }.encode(w));
        }
        Fate::Keep
    }

    fn idle(&mut self, lie: &mut Lie<'_>) {
        if lie.now.mono_ns < self.next_at {
            return;
        }
        self.next_at = lie.now.mono_ns + EVERY_NS;
        for frame in self.kept.values() {
            lie.pass_on(Recipient::All, Kind::ViewChange, frame);
        }
    }
}

//! Byzantine behaviours for one scenario each. Those that a swarm may draw are in [`crate::adversary`].

pub mod backups;
pub mod keys;
pub mod lives;

use quorate_pbft::step::Recipient;
use quorate_process::Place;
use quorate_wire::frame::FRAME_BYTES_MAX;
use quorate_wire::message::PrePrepareHead;
use quorate_wire::{Kind, Message, Principal, SeqNum};

use crate::adversary::{Answered, Fate, Liar, Lie, Said};
use crate::rng::Rng;

/// Lies as `L` does, and sends no proposal a second time: what a backup has missed or not believed, it does
/// not get from this primary, which would otherwise tell the truth when asked.
#[derive(Debug)]
pub struct Stubborn<L>(pub L);

impl<L: Liar> Liar for Stubborn<L> {
    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        if said.kind == Kind::PrePrepare && said.to != Recipient::All {
            lie.count();
            return Fate::Drop;
        }
        self.0.speak(lie, said)
    }

    fn hear(&mut self, lie: &mut Lie<'_>, from: Principal, message: &Message<'_>) -> bool {
        self.0.hear(lie, from, message)
    }

    fn idle(&mut self, lie: &mut Lie<'_>) {
        self.0.idle(lie);
    }
}

/// P6 and K5: hides its proposals from the last `f` replicas, and once it has proposed up to a number it
/// says nothing any more.
#[derive(Debug)]
pub struct WithholdThenFallSilent {
    last: SeqNum,
    silent: bool,
}

impl WithholdThenFallSilent {
    /// Returns a liar that falls silent after proposing `last`.
    pub fn after(last: u64) -> Self {
        Self { last: SeqNum(last), silent: false }
    }
}

impl Liar for WithholdThenFallSilent {
    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        if self.silent {
            lie.count();
            return Fate::Drop;
        }
        if said.kind != Kind::PrePrepare {
            return Fate::Keep;
        }
        let Ok(head) = PrePrepareHead::decode(said.body) else { return Fate::Keep };
        if head.seq > self.last {
            self.silent = true;
            return Fate::Drop;
        }
        let others = lie.others();
        let told = others.len() - lie.config().cluster.f();
        let told = &others[..told];
        match said.to {
            Recipient::Replica(to) if told.contains(&to) => return Fate::Keep,
            Recipient::All => {
                for to in told {
                    lie.say(Recipient::Replica(*to), said.kind, said.body);
                }
            }
            Recipient::Replica(_) | Recipient::Client(_) | Recipient::Collected { .. } => {}
        }
        Fate::Drop
    }

    fn answer(&mut self, _rng: &mut Rng, _kind: Kind, _body: &mut Vec<u8>) -> Answered {
        if self.silent { Answered::Silence } else { Answered::Truth }
    }
}

/// P10: proposes nothing, again and again, in place of what clients ask for.
#[derive(Debug)]
pub struct NothingInstead;

impl Liar for NothingInstead {
    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        if said.kind == Kind::PrePrepare
            && let Some((view, seq, mut batch)) = lie.batch(said.body)
        {
            batch.clear();
            batch.seal(lie.domains(), &[]);
            let nothing = lie.propose(view, seq, &batch);
            lie.say(said.to, said.kind, &nothing);
            return Fate::Drop;
        }
        Fate::Keep
    }
}

/// P17: its proposals are longer than the longest frame, or say that they are.
#[derive(Debug, Default)]
pub struct HugeFrames {
    turn: u32,
}

impl Liar for HugeFrames {
    fn tamper(&mut self, _rng: &mut Rng, _to: Place, frame: &mut Vec<u8>) -> Answered {
        /// The offset of the body's length in a frame.
        const LENGTH_AT: std::ops::Range<usize> = 16..20;
        if frame.get(3).copied() != Some(Kind::PrePrepare.to_wire()) {
            return Answered::Truth;
        }
        self.turn += 1;
        let len = match self.turn % 4 {
            0 => 0,
            1 => u32::MAX,
            2 => u32::MAX >> 1,
            _ => {
                frame.resize(FRAME_BYTES_MAX + 1, 7);
                return Answered::Lie;
            }
        };
        if let Some(room) = frame.get_mut(LENGTH_AT) {
            room.copy_from_slice(&len.to_le_bytes());
        }
        Answered::Lie
    }

    fn tampers(&self) -> bool {
        true
    }
}

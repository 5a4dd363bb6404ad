//! The liars of [`super::found`].

use quorate_pbft::step::Recipient;
use quorate_wire::message::{
    PrePrepareHead, PrePrepared, Prepared, Start, Status, Suspect, SuspectReason, ViewChange,
};
use quorate_wire::{Digest, Kind, Message, Principal, ReplicaId, SeqNum, ViewNum};

use crate::adversary::{Answered, Fate, Liar, Lie, Said};
use crate::rng::Rng;

/// The primary of view 1. It hands that view over while all others are in view 0, but to r0 only when that is in view 1;
/// and takes part in no view change.
#[derive(Debug, Default)]
pub(super) struct EarlyHandOver {
    early: bool,
}

impl EarlyHandOver {
    fn hand_over(lie: &mut Lie<'_>, to: ReplicaId) {
        let suspect = Suspect { view: ViewNum(1), reason: SuspectReason::SelfHandoff, signature: [0; 64] };
        lie.say_with(Recipient::Replica(to), Kind::Suspect, |w| suspect.encode(w));
    }
}

impl Liar for EarlyHandOver {
    fn idle(&mut self, lie: &mut Lie<'_>) {
        if !core::mem::replace(&mut self.early, true) {
            for to in lie.others().into_iter().filter(|to| *to != ReplicaId(0)) {
                Self::hand_over(lie, to);
            }
        }
    }

    fn hear(&mut self, lie: &mut Lie<'_>, from: Principal, message: &Message<'_>) -> bool {
        if from == Principal::Replica(ReplicaId(0))
            && matches!(message, Message::ViewChange(m) if m.body().view == ViewNum(1))
        {
            Self::hand_over(lie, ReplicaId(0));
        }
        true
    }

    fn speak(&mut self, _lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        let silent = [Kind::ViewChange, Kind::NewView, Kind::Suspect].contains(&said.kind);
        if silent { Fate::Drop } else { Fate::Keep }
    }
}

/// The primary of view 1. It leaves view 0 with one replica, hands view 1 over to this one alone, and is silent from then on.
#[derive(Debug)]
pub(super) struct HandsOverToOne {
    to: ReplicaId,
    is_silent: bool,
}

impl HandsOverToOne {
    pub(super) fn to(to: ReplicaId) -> Self {
        Self { to, is_silent: false }
    }
}

impl Liar for HandsOverToOne {
    fn hear(&mut self, lie: &mut Lie<'_>, from: Principal, message: &Message<'_>) -> bool {
        let heard = from == Principal::Replica(self.to) && !self.is_silent;
        let suspected = if let Message::Suspect(m) = message { Some(m.view) } else { None };
        let left = if let Message::ViewChange(m) = message { Some(m.body().view) } else { None };
        if let Some(view) = suspected.or(left).filter(|_| heard) {
            let suspect = Suspect { view, reason: SuspectReason::SelfHandoff, signature: [0; 64] };
            lie.say_with(Recipient::Replica(self.to), Kind::Suspect, |w| suspect.encode(w));
            self.is_silent = view == ViewNum(1);
        }
        true
    }

    fn speak(&mut self, _lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        let silent = self.is_silent || [Kind::ViewChange, Kind::NewView, Kind::Suspect].contains(&said.kind);
        if silent { Fate::Drop } else { Fate::Keep }
    }
}

/// From a number on it proposes to one backup alone, and says ever after that this has prepared.
#[derive(Debug)]
pub(super) struct ClaimsWhatOneHolds {
    from: SeqNum,
    hidden: Option<(SeqNum, Digest)>,
}

impl ClaimsWhatOneHolds {
    /// Returns one that proposes as it should below `from`.
    pub(super) fn from(from: u64) -> Self {
        Self { from: SeqNum(from), hidden: None }
    }
}

impl Liar for ClaimsWhatOneHolds {
    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        if said.kind == Kind::PrePrepare && said.own {
            let Ok(head) = PrePrepareHead::decode(said.body) else { return Fate::Keep };
            if head.view > ViewNum(0) || head.seq < self.from {
                return Fate::Keep;
            }
            if head.seq == self.from {
                self.hidden = Some((head.seq, head.digest));
                lie.say(Recipient::Replica(ReplicaId(5)), Kind::PrePrepare, said.body);
            }
            return Fate::Drop;
        }
        if said.kind == Kind::ViewChange
            && said.own
            && let (Some((seq, digest)), Ok(mut m)) = (self.hidden, ViewChange::decode(said.body))
            && m.stable < seq
        {
            let view = ViewNum(0);
            m.prepared.retain(|p| p.seq != seq);
            m.pre_prepared.retain(|q| q.seq != seq);
            m.prepared.push(Prepared { seq, digest, view });
            m.pre_prepared.push(PrePrepared { seq, claims: vec![(digest, view)] });
            m.prepared.sort_by_key(|p| p.seq);
            m.pre_prepared.sort_by_key(|q| q.seq);
            lie.say_with(said.to, said.kind, |w| m.encode(w));
            return Fate::Drop;
        }
        Fate::Keep
    }
}

/// As the primary it proposes, once, at the end of the window to one backup alone.
#[derive(Debug)]
pub(super) struct FarAheadToOne {
    to: ReplicaId,
    at: SeqNum,
}

impl FarAheadToOne {
    /// Returns one that does so to `to`, when it proposes number `at`.
    pub(super) fn new(to: ReplicaId, at: u64) -> Self {
        Self { to, at: SeqNum(at) }
    }
}

impl Liar for FarAheadToOne {
    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        if said.kind == Kind::PrePrepare
            && said.own
            && let Some((view, seq, batch)) = lie.batch(said.body)
            && seq == self.at
        {
            let config = lie.config();
            let last = SeqNum(seq.0 - seq.0 % config.checkpoint_interval).plus(config.window);
            let body = lie.propose(view, last, &batch);
            lie.say(Recipient::Replica(self.to), Kind::PrePrepare, &body);
        }
        Fate::Keep
    }
}

/// Its questions for state have numbers near the largest one.
#[derive(Debug, Default)]
pub(super) struct FarQuestions {
    asked: u64,
}

impl Liar for FarQuestions {
    fn answer(&mut self, _rng: &mut Rng, kind: Kind, body: &mut Vec<u8>) -> Answered {
        let Some(number) = body.first_chunk_mut::<8>().filter(|_| kind == Kind::Fetch) else {
            return Answered::Truth;
        };
        self.asked += 1;
        *number = (u64::MAX - 10_000 + self.asked.min(9_000)).to_le_bytes();
        Answered::Lie
    }
}

/// Says that it has started as often as can be said.
#[derive(Debug)]
pub(super) struct FarIncarnation;

impl Liar for FarIncarnation {
    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        let (Kind::Status, Ok(m)) = (said.kind, Status::decode(said.body)) else { return Fate::Keep };
        let far = Status { start: Start { incarnation: u64::MAX - 1, ..m.start }, ..m };
        lie.say_with(said.to, said.kind, |w| far.encode(w));
        Fate::Drop
    }
}

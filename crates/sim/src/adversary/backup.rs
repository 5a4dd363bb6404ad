//! Byzantine behaviours of any replica, primary or not (K1-K17).

use std::collections::VecDeque;

use quorate_pbft::step::Recipient;
use quorate_process::Place;
use quorate_wire::codec::Writer;
use quorate_wire::frame::{ENTRY_BYTES, Frame, HEADER_BYTES};
use quorate_wire::message::{Checkpoint, Commit, Committed, Prepare, Reply, ViewChange};
use quorate_wire::{ClientId, Digest, Kind, Message, Principal, SeqNum, Timestamp, ViewNum};

use super::{Answered, Fate, Liar, Lie, Said};
use crate::rng::Rng;

/// K1: votes twice, for two digests.
#[derive(Debug, Default)]
pub struct VoteTwice;

impl Liar for VoteTwice {
    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        let other = Digest(lie.rng.bytes());
        if let (Kind::Prepare, Ok(m)) = (said.kind, Prepare::decode(said.body)) {
            lie.say_with(said.to, Kind::Prepare, |w| Prepare::encode(m.view, m.seq, &other, &[], w));
        }
        if let (Kind::Commit, Ok(m)) = (said.kind, Commit::decode(said.body)) {
            lie.say_with(said.to, Kind::Commit, |w| Commit { digest: other, ..m }.encode(w));
        }
        Fate::Keep
    }
}

/// K2, K3, K4: votes for what it has not seen: for the next numbers, for older and later views.
#[derive(Debug, Default)]
pub struct VoteUnseen {
    last: SeqNum,
}

impl Liar for VoteUnseen {
    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        let (Kind::Prepare, Ok(m)) = (said.kind, Prepare::decode(said.body)) else { return Fate::Keep };
        self.last = self.last.max(m.seq);
        let views = [m.view, ViewNum(m.view.0.saturating_sub(1)), m.view.next(), ViewNum(m.view.0 + 1000)];
        for view in views {
            let seq = self.last.plus(lie.rng.between(1, 4));
            let digest = if lie.rng.one_in(2) { m.digest } else { Digest(lie.rng.bytes()) };
            lie.say_with(Recipient::All, Kind::Prepare, |w| Prepare::encode(view, seq, &digest, &[], w));
            let commit = Commit { view, seq, digest };
            lie.say_with(Recipient::All, Kind::Commit, |w| commit.encode(w));
            let committed = Committed { view, seq, digest };
            for to in lie.others() {
                lie.say_with(Recipient::Replica(to), Kind::Committed, |w| committed.encode(w));
            }
        }
        Fate::Keep
    }
}

/// K5: says nothing at all, or answers only some.
#[derive(Debug)]
pub struct Mute {
    /// Those with a lower number are answered.
    pub answers_below: u16,
}

impl Liar for Mute {
    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        lie.count();
        let only = self.answers_below;
        match said.to {
            Recipient::Replica(to) if to.0 < only => return Fate::Keep,
            Recipient::All if said.own => {
                for to in lie.others().into_iter().filter(|to| to.0 < only) {
                    lie.say(Recipient::Replica(to), said.kind, said.body);
                }
            }
            _ => {}
        }
        Fate::Drop
    }

    fn answer(&mut self, _rng: &mut Rng, _kind: Kind, _body: &mut Vec<u8>) -> Answered {
        Answered::Silence
    }
}

/// How a VIEW-CHANGE is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadViewChange {
    /// K6: claims that something prepared that never did.
    Forged,
    /// K6: claims that what prepared did so in a later view.
    Later,
    /// K8: hides what prepared.
    Hidden,
    /// K8: hides everything, and says that an old checkpoint is its stable one.
    Stale,
    /// Claims a checkpoint of a higher number, or of a wrong digest.
    Checkpoint,
    /// A20: only the new primary and one other get it.
    ToFew,
    /// VC-6: two different ones.
    Two,
}

impl BadViewChange {
    /// Every way.
    pub const ALL: [Self; 7] =
        [Self::Forged, Self::Later, Self::Hidden, Self::Stale, Self::Checkpoint, Self::ToFew, Self::Two];
}

/// K6, K8: its VIEW-CHANGE is wrong.
#[derive(Debug)]
pub struct LyingViewChange(pub BadViewChange);

impl Liar for LyingViewChange {
    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        if said.kind != Kind::ViewChange || !said.own {
            return Fate::Keep;
        }
        let Ok(mut wrong) = ViewChange::decode(said.body) else { return Fate::Keep };
        let interval = lie.config().checkpoint_interval;
        let before = ViewNum(wrong.view.0.saturating_sub(1));
        match self.0 {
            BadViewChange::Forged => {
                let digest = Digest([6; 32]);
                for p in &mut wrong.prepared {
                    p.digest = digest;
                }
                for q in &mut wrong.pre_prepared {
                    q.claims = vec![(digest, before)];
                }
            }
            BadViewChange::Later => {
                for p in &mut wrong.prepared {
                    p.view = before;
                }
                for q in &mut wrong.pre_prepared {
                    q.claims.iter_mut().take(1).for_each(|claim| claim.1 = before);
                }
            }
            BadViewChange::Hidden => {
                wrong.prepared.clear();
                wrong.pre_prepared.clear();
            }
            BadViewChange::Stale => {
                wrong.prepared.clear();
                wrong.pre_prepared.clear();
                wrong.stable = SeqNum(wrong.stable.0.saturating_sub(interval));
                wrong.checkpoints.insert(0, (wrong.stable, Digest([5; 32])));
                wrong.checkpoints.dedup_by_key(|(seq, _)| *seq);
            }
            BadViewChange::Checkpoint => {
                let last = wrong.checkpoints.last().map_or(wrong.stable, |(seq, _)| *seq);
                wrong.checkpoints.push((last.plus(interval), Digest([4; 32])));
            }
            BadViewChange::ToFew => {
                let primary = lie.config().cluster.primary(wrong.view);
                let friend = lie.others().into_iter().find(|id| *id != primary);
                for to in [Some(primary), friend].into_iter().flatten() {
                    lie.say(Recipient::Replica(to), said.kind, said.body);
                }
                return Fate::Drop;
            }
            BadViewChange::Two => {
                let (some, rest) = lie.halves();
                for to in some {
                    lie.say(Recipient::Replica(to), said.kind, said.body);
                }
                wrong.prepared.clear();
                for to in rest {
                    lie.say_with(Recipient::Replica(to), said.kind, |w| wrong.encode(w));
                }
                return Fate::Drop;
            }
        }
        lie.say_with(said.to, said.kind, |w| wrong.encode(w));
        Fate::Drop
    }
}

/// K9, K10: lies about checkpoints: wrong digests, future numbers, stable ones that are not.
#[derive(Debug, Default)]
pub struct LyingCheckpoint {
    /// Adds checkpoints of numbers to come.
    pub future: bool,
}

impl Liar for LyingCheckpoint {
    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        let (Kind::Checkpoint, Ok(m)) = (said.kind, Checkpoint::decode(said.body)) else { return Fate::Keep };
        if self.future {
            for far in [1, 2, 100, 1 << 40] {
                let seq = m.seq.plus(far * lie.config().checkpoint_interval);
                let future = Checkpoint { seq, digest: Digest([3; 32]), stable: true };
                lie.say_with(said.to, said.kind, |w| future.encode(w));
            }
            let odd = Checkpoint { seq: m.seq.next(), ..m };
            lie.say_with(said.to, said.kind, |w| odd.encode(w));
            return Fate::Keep;
        }
        let wrong = Checkpoint { digest: Digest(lie.rng.bytes()), stable: true, ..m };
        lie.say_with(said.to, said.kind, |w| wrong.encode(w));
        Fate::Drop
    }
}

/// K11, K12: lies to clients: wrong results, of another client or request, or not those of the digest.
#[derive(Debug, Default)]
pub struct LyingReplies;

impl Liar for LyingReplies {
    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        let (Kind::Reply, Ok(m)) = (said.kind, Reply::decode(said.body)) else { return Fate::Keep };
        let result = b"a lie".as_slice();
        let digest = |client: ClientId, timestamp: Timestamp, lie: &Lie<'_>| {
            lie.domains().result(client.0, timestamp.0, result).answering_like(&m.digest)
        };
        let wrong = match lie.rng.below(5) {
            // A consistent lie.
            0 => Reply {
                digest: digest(m.client, m.timestamp, lie),
                result: Some(result),
                tentative: false,
                ..m
            },
            // K12: the right digest, another result.
            1 => Reply { result: Some(result), ..m },
            // For another request, another lane, another view.
            2 => Reply { timestamp: Timestamp(m.timestamp.0 + 1), result: None, ..m },
            3 => Reply { client: ClientId(m.client.0 ^ 1), result: None, ..m },
            _ => Reply {
                view: ViewNum(m.view.0 + 7),
                digest: digest(m.client, m.timestamp, lie),
                result: None,
                ..m
            },
        };
        lie.say_with(said.to, said.kind, |w| wrong.encode(w));
        Fate::Drop
    }
}

/// K13: lies to replicas that fetch state: wrong pages and nodes, or none, or only some.
#[derive(Debug, Default)]
pub struct LyingState {
    given: u64,
}

impl Liar for LyingState {
    fn answer(&mut self, rng: &mut Rng, kind: Kind, body: &mut Vec<u8>) -> Answered {
        if !matches!(kind, Kind::MetaData | Kind::Data) {
            return Answered::Truth;
        }
        self.given += 1;
        match rng.below(4) {
            0 => Answered::Silence,
            1 if self.given < 3 => Answered::Truth,
            _ => {
                // Behind the number of the question, so that it counts as an answer.
                let at = 9 + rng.index(body.len().saturating_sub(9));
                if let Some(byte) = body.get_mut(at) {
                    *byte ^= 1;
                }
                if rng.one_in(3) {
                    body.extend_from_slice(&[0; 40]);
                }
                Answered::Lie
            }
        }
    }
}

/// K15: its authenticators are right for some receivers only.
#[derive(Debug)]
pub struct PartialAuthenticators {
    /// Which entries are wrong, counted from the last.
    pub wrong: u64,
}

impl Liar for PartialAuthenticators {
    fn tamper(&mut self, _rng: &mut Rng, _to: Place, frame: &mut Vec<u8>) -> Answered {
        if !matches!(frame.get(3).copied().map(Kind::from_wire), Some(Ok(kind)) if is_vote(kind)) {
            return Answered::Truth;
        }
        let len = frame.len();
        for entry in (0..3).filter(|entry| self.wrong >> entry & 1 == 1) {
            let at = len.saturating_sub(1 + entry * ENTRY_BYTES);
            if let Some(byte) = frame.get_mut(at) {
                *byte ^= 1;
            }
        }
        Answered::Lie
    }

    fn tampers(&self) -> bool {
        true
    }
}

fn is_vote(kind: Kind) -> bool {
    matches!(kind, Kind::PrePrepare | Kind::Prepare | Kind::Commit | Kind::Checkpoint)
}

/// K16: replays what it and others have said, and takes no part in new keys.
#[derive(Debug, Default)]
pub struct Replay {
    old: VecDeque<Vec<u8>>,
    next_at: u64,
}

impl Liar for Replay {
    fn overhear(&mut self, rng: &mut Rng, frame: &[u8]) {
        if rng.one_in(4) {
            if self.old.len() == 256 {
                self.old.pop_front();
            }
            self.old.push_back(frame.to_vec());
        }
    }

    fn idle(&mut self, lie: &mut Lie<'_>) {
        if lie.now.mono_ns < self.next_at {
            return;
        }
        self.next_at = lie.now.mono_ns + 1_000_000;
        let index = lie.rng.index(self.old.len());
        let Some(frame) = self.old.get(index) else { return };
        if let Ok(decoded) = Frame::decode(frame) {
            lie.pass_on(Recipient::All, decoded.kind, frame);
        }
    }

    fn tamper(&mut self, rng: &mut Rng, _to: Place, frame: &mut Vec<u8>) -> Answered {
        let keys = frame.get(3).copied() == Some(Kind::NewKey.to_wire());
        if keys && rng.one_in(2) { Answered::Silence } else { Answered::Truth }
    }

    fn tampers(&self) -> bool {
        true
    }
}

/// K17: sends everyone's messages back to them, and passes off messages as others of another kind.
#[derive(Debug, Default)]
pub struct Reflect {
    heard: VecDeque<Vec<u8>>,
}

impl Liar for Reflect {
    fn overhear(&mut self, _rng: &mut Rng, frame: &[u8]) {
        if self.heard.len() < 16 {
            self.heard.push_back(frame.to_vec());
        }
    }

    fn idle(&mut self, lie: &mut Lie<'_>) {
        for frame in std::mem::take(&mut self.heard) {
            let Ok(decoded) = Frame::decode(&frame) else { continue };
            if let Principal::Replica(from) = decoded.sender
                && lie.rng.one_in(4)
            {
                lie.pass_on(Recipient::Replica(from), decoded.kind, &frame);
            }
        }
    }

    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        // PREPARE and COMMIT are alike but for the piggybacked list.
        if said.kind == Kind::Prepare && said.own {
            let body = said.body.get(..48).unwrap_or(said.body).to_vec();
            lie.say(said.to, Kind::Commit, &body);
            lie.say(said.to, Kind::Checkpoint, &body);
        }
        Fate::Keep
    }

    fn tamper(&mut self, rng: &mut Rng, _to: Place, frame: &mut Vec<u8>) -> Answered {
        if frame.len() > HEADER_BYTES && rng.one_in(16) {
            frame[3] = rng.pick(&Kind::ALL).map_or(0, Kind::to_wire);
            return Answered::Lie;
        }
        Answered::Truth
    }

    fn tampers(&self) -> bool {
        true
    }
}

/// Votes as it should, and vouches for no client's request: neither bodies nor acknowledgements.
#[derive(Debug, Default)]
pub struct Unhelpful;

impl Liar for Unhelpful {
    fn hear(&mut self, lie: &mut Lie<'_>, _from: Principal, message: &Message<'_>) -> bool {
        if matches!(message, Message::BodyFetch(_) | Message::Status(_) | Message::VcFetch(_)) {
            lie.count();
            return false;
        }
        true
    }

    fn answer(&mut self, _rng: &mut Rng, kind: Kind, _body: &mut Vec<u8>) -> Answered {
        if kind == Kind::Fetch { Answered::Truth } else { Answered::Silence }
    }
}

/// Writes a body, for tests and scenarios that need one.
pub fn body(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut Writer::new(&mut bytes));
    bytes
}

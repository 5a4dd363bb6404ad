//! Byzantine behaviours for use on real processes, each with a name and a one-line description. They are those of the
//! [`roster`](super::roster), and a few that are easier to observe; the swarm draws only from the roster.

use quorate_wire::message::{Checkpoint, Commit, Prepare, Reply};
use quorate_wire::{Digest, Kind};

use super::backup::{
    LyingCheckpoint, LyingReplies, LyingState, Mute, PartialAuthenticators, Replay, VoteUnseen,
};
use super::mutate::Mutate;
use super::noise::ViewStorm;
use super::primary::{Censor, EquivocateToHalves};
use super::{Fate, Liar, Lie, Said};
use crate::adversary::maker::LiarMaker;

/// Answers clients with wrong results, consistently: the digest is that of the wrong result.
#[derive(Debug, Default)]
pub struct WrongReplies;

impl Liar for WrongReplies {
    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        let (Kind::Reply, Ok(m)) = (said.kind, Reply::decode(said.body)) else { return Fate::Keep };
        // One character of a value is another: it could be true.
        let mut result = m.result.unwrap_or(b"a lie").to_vec();
        match result.last_mut() {
            Some(byte) => *byte ^= 1,
            None => result.push(b'!'),
        }
        let digest = lie.domains().result(m.client.0, m.timestamp.0, &result).answering_like(&m.digest);
        let wrong = Reply { digest, result: m.result.map(|_| result.as_slice()), ..m };
        lie.say_with(said.to, Kind::Reply, |w| wrong.encode(w));
        Fate::Drop
    }
}

/// Votes, and announces checkpoints, for digests that are not those of what was proposed or executed.
#[derive(Debug, Default)]
pub struct WrongDigests;

impl Liar for WrongDigests {
    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        let digest = Digest(lie.rng.bytes());
        if let (Kind::Prepare, Ok(m)) = (said.kind, Prepare::decode(said.body)) {
            lie.say_with(said.to, said.kind, |w| Prepare::encode(m.view, m.seq, &digest, &[], w));
        } else if let (Kind::Commit, Ok(m)) = (said.kind, Commit::decode(said.body)) {
            lie.say_with(said.to, said.kind, |w| Commit { digest, ..m }.encode(w));
        } else if let (Kind::Checkpoint, Ok(m)) = (said.kind, Checkpoint::decode(said.body)) {
            lie.say_with(said.to, said.kind, |w| Checkpoint { digest, ..m }.encode(w));
        } else {
            return Fate::Keep;
        }
        Fate::Drop
    }
}

/// Sends every message late, but correct.
#[derive(Debug)]
pub struct Slow {
    /// The delay, in nanoseconds.
    pub by_ns: u64,
}

impl Liar for Slow {
    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        if !said.own {
            return Fate::Keep;
        }
        lie.say_later(self.by_ns, said.to, said.kind, said.body);
        Fate::Drop
    }
}

/// A liar with a name for the command line.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    /// The name.
    pub name: &'static str,
    /// A description in one line without a full stop.
    pub says: &'static str,
    make: fn() -> LiarMaker,
}

impl Named {
    /// Returns a new liar of this name.
    pub fn make(&self) -> Box<dyn Liar> {
        (self.make)().make()
    }
}

macro_rules! named {
    ($($name:literal: $says:literal, $make:expr;)*) => {
        /// Liars to try, the plainest first.
        pub const NAMED: &[Named] =
            &[$(Named { name: $name, says: $says, make: || LiarMaker::new(|| $make) },)*];
    };
}

named! {
    "wrong-reply": "answers clients with wrong values, under valid MACs", WrongReplies;
    "replies": "answers clients wrongly in five ways: other results, requests, clients, views", LyingReplies;
    "mute": "sends nothing to anyone", Mute { answers_below: 0 };
    "selective": "talks to replicas 0 and 1 only, and to no client", Mute { answers_below: 2 };
    "slow": "sends every message 50 ms late", Slow { by_ns: 50_000_000 };
    "equivocate": "as primary, proposes one batch to some replicas and another to the rest", EquivocateToHalves;
    "wrong-digest": "votes for digests that were never proposed, and reports wrong checkpoints", WrongDigests;
    "stale-view": "votes in older and later views, and for proposals that it has not seen", VoteUnseen::default();
    "checkpoint": "announces wrong digests of its state as stable checkpoints", LyingCheckpoint { future: false };
    "replay": "repeats old messages of itself and others", Replay::default();
    "state": "gives wrong pages to replicas that fetch state", LyingState::default();
    "partial": "sends MACs that are valid for some receivers only", PartialAuthenticators { wrong: 1 };
    "censor": "as primary, ignores the requests of some clients", Censor { upto: 1 };
    "view-storm": "demands a new view all the time", ViewStorm::default();
    "mutate": "changes a number or digest in one of four messages", Mutate::new(4);
}

/// Returns a new liar of this name, of these or of the roster.
pub fn make(name: &str) -> Option<Box<dyn Liar>> {
    let named = NAMED.iter().find(|named| named.name == name).map(Named::make);
    named.or_else(|| super::roster::find(name).map(|entry| entry.maker().make()))
}

/// Returns all names, each once.
pub fn names() -> impl Iterator<Item = &'static str> {
    let named = NAMED.iter().map(|named| named.name);
    let is_new = |name: &&str| NAMED.iter().all(|named| named.name != *name);
    named.chain(super::roster::ROSTER.iter().map(|entry| entry.name).filter(is_new))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_makes_a_liar_and_none_is_there_twice() {
        let mut all: Vec<&str> = names().collect();
        assert!(all.len() > NAMED.len() && all.iter().all(|name| make(name).is_some()));
        all.sort_unstable();
        assert!(all.windows(2).all(|pair| pair[0] != pair[1]), "{all:?}");
        assert!(make("nobody").is_none());
        assert!(NAMED.iter().all(|named| !named.says.ends_with('.') && named.says.len() < 80));
    }
}

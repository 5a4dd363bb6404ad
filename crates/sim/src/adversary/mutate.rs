//! Small changes to messages, of the size that implementations get wrong: one more or one less, an earlier digest,
//! another sender, a set with one member fewer (spec §19.3).

use quorate_wire::codec::Writer;
use quorate_wire::message::{NewView, ViewChange};
use quorate_wire::{Digest, Kind, SeqNum, ViewNum};

use super::{Answered, Fate, Liar, Lie, Said};
use crate::rng::Rng;

/// Changes one thing in some of its messages, of every kind.
pub struct Mutate {
    /// One message in this many.
    pub one_in: u64,
    /// Digests of a moment ago.
    old: Vec<Digest>,
}

impl std::fmt::Debug for Mutate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mutate one in {}", self.one_in)
    }
}

impl Mutate {
    /// Returns a liar that changes one message in `one_in`.
    pub fn new(one_in: u64) -> Self {
        Self { one_in, old: Vec::new() }
    }
}

/// Where the numbers and digests of a kind's body are: offsets of 8-byte numbers, and of digests.
#[allow(clippy::wildcard_enum_match_arm, reason = "another kind has a payload, or changes of its own")]
fn fields(kind: Kind) -> (&'static [usize], &'static [usize]) {
    match kind {
        Kind::PrePrepare | Kind::Prepare | Kind::Commit | Kind::Committed | Kind::ReqAck => (&[0, 8], &[16]),
        Kind::Checkpoint => (&[0], &[8]),
        Kind::Status => (&[0, 8, 16, 24, 32], &[]),
        Kind::Reply => (&[0, 8, 16], &[25]),
        Kind::Suspect | Kind::QueryStable | Kind::Probe => (&[0], &[]),
        Kind::Statement => (&[0, 8, 16, 24, 32], &[40]),
        Kind::ReplyStable | Kind::Data => (&[0, 8, 16], &[]),
        Kind::Proof => (&[0, 40], &[8]),
        Kind::ReqReject => (&[0, 8, 16, 24], &[32]),
        Kind::VcFetch => (&[0, 8], &[]),
        Kind::BodyFetch => (&[], &[2]),
        Kind::Fetch => (&[0, 9, 17], &[]),
        Kind::MetaData => (&[0, 9, 17, 25, 34], &[42]),
        Kind::NewKey => (&[0], &[12]),
        _ => (&[], &[]),
    }
}

impl Liar for Mutate {
    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        if !said.own || !lie.rng.one_in(self.one_in) {
            return Fate::Keep;
        }
        let changed = match said.kind {
            Kind::ViewChange => change_view_change(lie.rng, said.body),
            Kind::NewView => change_new_view(lie.rng, said.body),
            kind => Some(self.change(lie.rng, kind, said.body)),
        };
        let Some(changed) = changed else { return Fate::Keep };
        if said.kind == Kind::Request {
            return Fate::Keep;
        }
        lie.say(said.to, said.kind, &changed);
        // Now and then both go out.
        if lie.rng.one_in(4) { Fate::Keep } else { Fate::Drop }
    }

    fn answer(&mut self, rng: &mut Rng, kind: Kind, body: &mut Vec<u8>) -> Answered {
        if !rng.one_in(self.one_in) {
            return Answered::Truth;
        }
        *body = self.change(rng, kind, body);
        Answered::Lie
    }
}

impl Mutate {
    /// Returns the body with one field changed.
    fn change(&mut self, rng: &mut Rng, kind: Kind, body: &[u8]) -> Vec<u8> {
        let mut bytes = body.to_vec();
        let (numbers, digests) = fields(kind);
        if let Some(room) = digests.first().and_then(|at| bytes.get_mut(*at..at + 32))
            && let Ok(digest) = <[u8; 32]>::try_from(&*room)
        {
            if self.old.len() == 32 {
                self.old.remove(0);
            }
            self.old.push(Digest(digest));
            if rng.one_in(3) {
                let stale = rng.index(self.old.len());
                room.copy_from_slice(&self.old[stale].0);
                return bytes;
            }
        }
        match rng.pick(numbers) {
            Some(at) if !rng.one_in(8) => {
                if let Some(room) = bytes.get_mut(at..at + 8)
                    && let Ok(number) = <[u8; 8]>::try_from(&*room)
                {
                    room.copy_from_slice(&nudge(rng, u64::from_le_bytes(number)).to_le_bytes());
                }
            }
            _ => {
                // A flag, a count, the end.
                let at = rng.index(bytes.len());
                match (rng.below(3), bytes.get_mut(at)) {
                    (0, Some(byte)) => *byte = byte.wrapping_add(1),
                    (1, Some(byte)) => *byte = byte.wrapping_sub(1),
                    _ => bytes.truncate(at),
                }
            }
        }
        bytes
    }
}

/// A little more or less; now and then an extreme.
fn nudge(rng: &mut Rng, number: u64) -> u64 {
    match rng.below(8) {
        0..=2 => number.wrapping_add(1),
        3..=5 => number.saturating_sub(1),
        6 => 0,
        _ => u64::MAX - rng.below(2),
    }
}

fn nudge_seq(rng: &mut Rng, seq: &mut SeqNum) {
    seq.0 = nudge(rng, seq.0);
}

fn change_view_change(rng: &mut Rng, body: &[u8]) -> Option<Vec<u8>> {
    let mut m = ViewChange::decode(body).ok()?;
    match rng.below(10) {
        0 => m.view = ViewNum(nudge(rng, m.view.0).max(1)),
        1 => nudge_seq(rng, &mut m.stable),
        2 => drop(m.checkpoints.pop()),
        3 => m.checkpoints.iter_mut().take(1).for_each(|c| c.1 = Digest(rng.bytes())),
        4 => drop(m.prepared.pop()),
        5 => m.prepared.iter_mut().take(1).for_each(|p| p.view = ViewNum(nudge(rng, p.view.0))),
        6 => m.prepared.iter_mut().take(1).for_each(|p| p.digest = Digest(rng.bytes())),
        7 => drop(m.pre_prepared.pop()),
        8 => m.pre_prepared.iter_mut().take(1).for_each(|q| q.claims.truncate(1)),
        _ => drop(m.leave.suspects.pop()),
    }
    Some(super::backup::body(|w: &mut Writer<'_>| m.encode(w)))
}

fn change_new_view(rng: &mut Rng, body: &[u8]) -> Option<Vec<u8>> {
    let mut m = NewView::decode(body).ok()?;
    match rng.below(7) {
        0 => m.view = ViewNum(nudge(rng, m.view.0)),
        1 => drop(m.view_changes.pop()),
        2 => m.view_changes.iter_mut().take(1).for_each(|v| v.1 = Digest(rng.bytes())),
        3 => nudge_seq(rng, &mut m.checkpoint.0),
        4 => m.checkpoint.1 = Digest(rng.bytes()),
        5 => drop(m.chosen.pop()),
        _ => m.chosen.iter_mut().take(1).for_each(|d| *d = Digest(rng.bytes())),
    }
    Some(super::backup::body(|w: &mut Writer<'_>| m.encode(w)))
}

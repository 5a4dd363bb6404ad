//! Byzantine behaviours of a primary (P1-P17).

mod new_view;

use quorate_pbft::step::Recipient;
use quorate_wire::codec::Writer;
use quorate_wire::frame::Frame;
use quorate_wire::message::{PrePrepareHead, Request, encode_pre_prepare};
use quorate_wire::{Batch, ClientId, Digest, Kind, Message, Principal, ReplicaId, SeqNum};

pub use self::new_view::{BadNewView, LyingNewView};
use super::{Fate, Liar, Lie, Said};

/// Returns whether this is a proposal of the liar's own to everyone.
fn is_proposal(said: &Said<'_>) -> bool {
    said.kind == Kind::PrePrepare && said.to == Recipient::All
}

/// P1: half of the backups are proposed another batch.
#[derive(Debug, Default)]
pub struct EquivocateToHalves;

impl Liar for EquivocateToHalves {
    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        if !is_proposal(said) {
            return Fate::Keep;
        }
        let Some(other) = lie.another_batch(said.body, 1) else { return Fate::Keep };
        let (some, rest) = lie.halves();
        for to in some {
            lie.say(Recipient::Replica(to), Kind::PrePrepare, said.body);
        }
        for to in rest {
            lie.say(Recipient::Replica(to), Kind::PrePrepare, &other);
        }
        Fate::Drop
    }
}

/// P2: proposes a different batch to every backup.
#[derive(Debug, Default)]
pub struct EquivocateToEach;

impl Liar for EquivocateToEach {
    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        if !is_proposal(said) || lie.another_batch(said.body, 1).is_none() {
            return Fate::Keep;
        }
        for (to, later) in lie.others().into_iter().zip(1..) {
            if let Some(body) = lie.another_batch(said.body, later) {
                lie.say(Recipient::Replica(to), Kind::PrePrepare, &body);
            }
        }
        Fate::Drop
    }
}

/// P3: the same requests are proposed at two numbers.
#[derive(Debug, Default)]
pub struct ProposeTwice;

impl Liar for ProposeTwice {
    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        if is_proposal(said)
            && let Some((view, seq, batch)) = lie.batch(said.body)
            && !batch.is_empty()
        {
            let again = lie.propose(view, seq.next(), &batch);
            lie.say(Recipient::All, Kind::PrePrepare, &again);
        }
        Fate::Keep
    }
}

/// P4: leaves holes: every proposal is for a number further on.
#[derive(Debug, Default)]
pub struct LeaveHoles;

impl Liar for LeaveHoles {
    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        if is_proposal(said)
            && let Some((view, seq, batch)) = lie.batch(said.body)
        {
            let further = lie.propose(view, seq.plus(1 + seq.0 % 2), &batch);
            lie.say(Recipient::All, Kind::PrePrepare, &further);
            return Fate::Drop;
        }
        Fate::Keep
    }
}

/// P5: proposes at the high water mark, above it, and at huge numbers.
#[derive(Debug, Default)]
pub struct ExhaustNumbers;

impl Liar for ExhaustNumbers {
    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        if is_proposal(said)
            && let Some((view, seq, batch)) = lie.batch(said.body)
        {
            let window = lie.config().window;
            let low = SeqNum(seq.0 - seq.0 % lie.config().checkpoint_interval);
            for seq in [low.plus(window), low.plus(window + 1), low.plus(2 * window), SeqNum(u64::MAX)] {
                let body = lie.propose(view, seq, &batch);
                lie.say(Recipient::All, Kind::PrePrepare, &body);
            }
        }
        Fate::Keep
    }
}

/// P6: proposes to a quorum only; the last `f` never hear of it.
#[derive(Debug, Default)]
pub struct WithholdFromSome;

impl Liar for WithholdFromSome {
    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        if !is_proposal(said) {
            return Fate::Keep;
        }
        let others = lie.others();
        let told = others.len() - lie.config().cluster.f();
        for to in others.into_iter().take(told) {
            lie.say(Recipient::Replica(to), Kind::PrePrepare, said.body);
        }
        Fate::Drop
    }
}

/// P7: never hears the requests of some clients, nor that others vouch for them.
#[derive(Debug)]
pub struct Censor {
    /// Clients whose principal is at most this are censored.
    pub upto: u64,
}

impl Liar for Censor {
    fn hear(&mut self, lie: &mut Lie<'_>, _from: Principal, message: &Message<'_>) -> bool {
        let censored = |client: ClientId| (1..=self.upto).contains(&client.principal());
        let is_heard = !client_of(message).is_some_and(censored);
        if !is_heard {
            lie.count();
        }
        is_heard
    }
}

/// Returns whose request this is, or says that others have.
#[allow(clippy::wildcard_enum_match_arm, reason = "the others name no request")]
fn client_of(message: &Message<'_>) -> Option<ClientId> {
    match message {
        Message::Request(request) => Some(request.client),
        Message::ReqAck(ack) => Some(ack.client),
        _ => None,
    }
}

/// P8: proposes when nine tenths of the time-out are over.
#[derive(Debug, Default)]
pub struct DelayProposals;

impl Liar for DelayProposals {
    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        if !is_proposal(said) {
            return Fate::Keep;
        }
        let delay = lie.config().request_timeout_min_ns * 9 / 10;
        lie.say_later(delay, Recipient::All, Kind::PrePrepare, said.body);
        Fate::Drop
    }
}

/// P9: holds one client's requests back for as long as it dares.
#[derive(Debug, Default)]
pub struct Unfair {
    since: Option<u64>,
}

impl Liar for Unfair {
    fn hear(&mut self, lie: &mut Lie<'_>, _from: Principal, message: &Message<'_>) -> bool {
        let Message::Request(request) = message else { return true };
        if request.client.principal() != 1 || !lie.is_primary() {
            return true;
        }
        let since = *self.since.get_or_insert(lie.now.mono_ns);
        if lie.now.mono_ns.saturating_sub(since) > lie.config().request_timeout_min_ns / 2 {
            self.since = None;
            return true;
        }
        lie.count();
        false
    }
}

/// Rebuilds a batch from its inlined requests' frames.
fn rebuild(lie: &Lie<'_>, frames: &[Vec<u8>], choice: &[u8]) -> Option<Batch> {
    let mut batch = Batch::default();
    for frame in frames {
        batch.push_inlined(&Request::decode(&Frame::decode(frame).ok()?, lie.domains()).ok()?);
    }
    batch.seal(lie.domains(), choice);
    Some(batch)
}

/// P10: puts forged requests and duplicates into its batches, in turn.
#[derive(Debug, Default)]
pub struct StuffBatches {
    duplicates: bool,
}

impl Liar for StuffBatches {
    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        if !is_proposal(said) {
            return Fate::Keep;
        }
        let Some((view, seq, batch)) = lie.batch(said.body) else { return Fate::Keep };
        let mut frames: Vec<Vec<u8>> = batch.inlined().iter().map(|r| batch.frame(r).to_vec()).collect();
        let Some(first) = frames.first().cloned() else { return Fate::Keep };
        self.duplicates = !self.duplicates;
        if self.duplicates {
            frames.push(first);
        } else if let Some(byte) = frames[0].get_mut(quorate_wire::frame::HEADER_BYTES + 12) {
            *byte ^= 1; // another operation, under the client's authenticator
        }
        let Some(forged) = rebuild(lie, &frames, batch.choice()) else { return Fate::Keep };
        let body = lie.propose(view, seq, &forged);
        lie.say(Recipient::All, Kind::PrePrepare, &body);
        Fate::Drop
    }
}

/// P10: has reads ordered that their clients wanted served without.
#[derive(Debug, Default)]
pub struct OrderReads {
    /// The last read that it has heard.
    read: Option<Vec<u8>>,
}

impl Liar for OrderReads {
    fn hear(&mut self, _lie: &mut Lie<'_>, _from: Principal, message: &Message<'_>) -> bool {
        if let Message::Request(request) = message
            && request.flags.read_only
        {
            self.read = Some(request.frame.to_vec());
        }
        true
    }

    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        if !is_proposal(said) {
            return Fate::Keep;
        }
        let (Some(read), Some((view, seq, batch))) = (self.read.take(), lie.batch(said.body)) else {
            return Fate::Keep;
        };
        let mut frames: Vec<Vec<u8>> = batch.inlined().iter().map(|r| batch.frame(r).to_vec()).collect();
        frames.push(read);
        let Some(stuffed) = rebuild(lie, &frames, batch.choice()) else { return Fate::Keep };
        let body = lie.propose(view, seq, &stuffed);
        lie.say(Recipient::All, Kind::PrePrepare, &body);
        Fate::Drop
    }
}

/// P11: proposes an old batch again.
#[derive(Debug, Default)]
pub struct ReplayBatch {
    old: Option<Batch>,
}

impl Liar for ReplayBatch {
    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        if !is_proposal(said) {
            return Fate::Keep;
        }
        let Some((view, seq, batch)) = lie.batch(said.body) else { return Fate::Keep };
        match &self.old {
            Some(old) if seq.0 % 3 == 0 => {
                let body = lie.propose(view, seq, old);
                lie.say(Recipient::All, Kind::PrePrepare, &body);
                Fate::Drop
            }
            _ => {
                self.old = Some(batch);
                Fate::Keep
            }
        }
    }
}

/// P12: proposes digests that are not the batch's, and batches with requests that no replica has, in turn.
#[derive(Debug, Default)]
pub struct PhantomBodies {
    wrong: bool,
}

impl Liar for PhantomBodies {
    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        if !is_proposal(said) {
            return Fate::Keep;
        }
        self.wrong = !self.wrong;
        if self.wrong {
            let mut body = said.body.to_vec();
            if let Some(byte) = body.get_mut(20) {
                *byte ^= 0xff;
            }
            lie.say(Recipient::All, Kind::PrePrepare, &body);
            return Fate::Drop;
        }
        let Some((view, seq, mut batch)) = lie.batch(said.body) else { return Fate::Keep };
        let choice = batch.choice().to_vec();
        batch.push_separate(Digest(lie.rng.bytes()), None);
        batch.seal(lie.domains(), &choice);
        let body = lie.propose(view, seq, &batch);
        lie.say(Recipient::All, Kind::PrePrepare, &body);
        Fate::Drop
    }
}

/// P13: chooses times of day far ahead, far back, and malformed ones.
#[derive(Debug, Default)]
pub struct BadChoice;

impl Liar for BadChoice {
    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        const HOUR_NS: u64 = 3_600_000_000_000;
        if !is_proposal(said) {
            return Fate::Keep;
        }
        let Some((view, seq, mut batch)) = lie.batch(said.body) else { return Fate::Keep };
        let Some(time) = quorate_pbft::choice::decode(batch.choice()) else { return Fate::Keep };
        let choice = match lie.rng.below(4) {
            0 => (time + HOUR_NS).to_le_bytes().to_vec(),
            1 => (time - HOUR_NS).to_le_bytes().to_vec(),
            2 => u64::MAX.to_le_bytes().to_vec(),
            _ => vec![7; 3],
        };
        batch.seal(lie.domains(), &choice);
        let body = lie.propose(view, seq, &batch);
        lie.say(Recipient::All, Kind::PrePrepare, &body);
        Fate::Drop
    }
}

/// P17: proposes the largest batches that fit a frame, padded with requests that it makes up.
#[derive(Debug, Default)]
pub struct Oversize;

impl Liar for Oversize {
    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        if !is_proposal(said) || !lie.rng.one_in(4) {
            return Fate::Keep;
        }
        let Ok(head) = PrePrepareHead::decode(said.body) else { return Fate::Keep };
        let mut batch = Batch::default();
        for _ in 0..lie.rng.between(1000, 1024) {
            batch.push_separate(Digest(lie.rng.bytes()), None);
        }
        batch.seal(lie.domains(), head.choice);
        let mut body = Vec::new();
        encode_pre_prepare(head.view, head.seq, &batch, &[], &mut Writer::new(&mut body));
        lie.say(Recipient::All, Kind::PrePrepare, &body);
        Fate::Drop
    }
}

/// Sends nothing as the primary, and everything as a backup.
#[derive(Debug, Default)]
pub struct SilentPrimary;

impl Liar for SilentPrimary {
    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        let silent = lie.is_primary() && matches!(said.kind, Kind::PrePrepare | Kind::NewView);
        if silent {
            lie.count();
            return Fate::Drop;
        }
        Fate::Keep
    }
}

/// Proposes to one replica only, in turn: the batch prepares nowhere.
#[derive(Debug, Default)]
pub struct ProposeToOne {
    turn: usize,
}

impl Liar for ProposeToOne {
    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        if !is_proposal(said) {
            return Fate::Keep;
        }
        let others: Vec<ReplicaId> = lie.others();
        self.turn += 1;
        if let Some(to) = others.get(self.turn % others.len().max(1)) {
            lie.say(Recipient::Replica(*to), Kind::PrePrepare, said.body);
        }
        Fate::Drop
    }
}

/// P7: proposes each request of one client to one backup after the other, each time for a number that another batch gets,
/// and to nobody else. Each of them has seen it proposed. It begins when the request comes again: then the backups know it.
#[derive(Debug, Default)]
pub struct ProposeInVain {
    /// Frames that wait, with the number of backups that have seen them; none: they have come once.
    waiting: Vec<(Vec<u8>, Option<usize>)>,
}

impl ProposeInVain {
    /// The client's principal.
    const VICTIM: u64 = 1;
    const WAITING_MAX: usize = 64;
}

impl Liar for ProposeInVain {
    fn hear(&mut self, lie: &mut Lie<'_>, _from: Principal, message: &Message<'_>) -> bool {
        let Message::Request(request) = message else {
            return client_of(message).is_none_or(|client| client.principal() != Self::VICTIM);
        };
        if request.client.principal() != Self::VICTIM || request.flags.read_only {
            return true;
        }
        let same = |frame: &[u8]| {
            Frame::decode(frame)
                .and_then(|frame| Request::decode(&frame, lie.domains()))
                .is_ok_and(|other| other.digest == request.digest)
        };
        if let Some(at) = self.waiting.iter().position(|(frame, _)| same(frame)) {
            self.waiting[at].1.get_or_insert(0);
        } else {
            if self.waiting.len() == Self::WAITING_MAX {
                self.waiting.remove(0);
            }
            self.waiting.push((request.frame.to_vec(), None));
        }
        lie.count();
        false
    }

    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        if !is_proposal(said) {
            return Fate::Keep;
        }
        let others = lie.others();
        let next = self.waiting.iter_mut().find_map(|(frame, seen)| {
            let seen = seen.as_mut().filter(|seen| **seen < others.len())?;
            Some((frame, seen))
        });
        let (Some((frame, seen)), Some((view, seq, batch))) = (next, lie.batch(said.body)) else {
            return Fate::Keep;
        };
        let Some(vain) = rebuild(lie, std::slice::from_ref(frame), batch.choice()) else { return Fate::Keep };
        let vain = lie.propose(view, seq, &vain);
        for (at, to) in others.into_iter().enumerate() {
            let body = if at == *seen { &vain[..] } else { said.body };
            lie.say(Recipient::Replica(to), Kind::PrePrepare, body);
        }
        *seen += 1;
        Fate::Drop
    }
}

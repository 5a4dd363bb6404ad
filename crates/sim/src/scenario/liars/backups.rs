//! Byzantine backups, for one scenario each: votes, view changes, state and replies.

use quorate_pbft::step::Recipient;
use quorate_wire::life::Life;
use quorate_wire::message::{
    BodyFetch, BodyKind, Checkpoint, Commit, Committed, LeaveCert, PrePrepared, Prepare, QueryStable, Reply,
    ReqAck, Suspect, SuspectReason, VcFetch, ViewChange,
};
use quorate_wire::{ClientId, Digest, Kind, Message, Principal, SeqNum, Timestamp, ViewNum};

use crate::adversary::{Answered, Fate, Liar, Lie, Said};
use crate::rng::Rng;

/// The false statement that all liars of one kind agree on.
const AGREED: Digest = Digest([0xa6; 32]);

/// K1: votes for the proposal to half of the others, and for something else, on which all liars agree, to
/// the rest.
#[derive(Debug, Default)]
pub struct VoteSplit;

impl Liar for VoteSplit {
    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        if said.to != Recipient::All || !matches!(said.kind, Kind::Prepare | Kind::Commit) {
            return Fate::Keep;
        }
        let (some, rest) = lie.halves();
        for to in some {
            lie.say(Recipient::Replica(to), said.kind, said.body);
        }
        for to in rest {
            let to = Recipient::Replica(to);
            if let (Kind::Prepare, Ok(m)) = (said.kind, Prepare::decode(said.body)) {
                lie.say_with(to, said.kind, |w| Prepare::encode(m.view, m.seq, &AGREED, &[], w));
            } else if let Ok(m) = Commit::decode(said.body) {
                lie.say_with(to, said.kind, |w| Commit { digest: AGREED, ..m }.encode(w));
            }
        }
        Fate::Drop
    }
}

/// K2, K3: votes for the numbers to come before anything is proposed there: PREPAREs, or COMMITs and
/// statements that it has committed.
#[derive(Debug)]
pub struct VoteAhead {
    commits: bool,
    last: SeqNum,
}

impl VoteAhead {
    /// Sends PREPAREs without a pre-prepare.
    pub fn prepares() -> Self {
        Self { commits: false, last: SeqNum(0) }
    }

    /// Sends COMMITs and COMMITTEDs of what has not prepared.
    pub fn commits() -> Self {
        Self { commits: true, last: SeqNum(0) }
    }
}

impl Liar for VoteAhead {
    fn hear(&mut self, lie: &mut Lie<'_>, _from: Principal, message: &Message<'_>) -> bool {
        let Message::PrePrepare(m) = message else { return true };
        if m.seq < self.last {
            return true;
        }
        self.last = m.seq.plus(3);
        for seq in (1..=3).map(|k| m.seq.plus(k)) {
            let view = m.view;
            if !self.commits {
                lie.say_with(Recipient::All, Kind::Prepare, |w| Prepare::encode(view, seq, &AGREED, &[], w));
                continue;
            }
            lie.say_with(Recipient::All, Kind::Commit, |w| Commit { view, seq, digest: AGREED }.encode(w));
            for to in lie.others() {
                let committed = Committed { view, seq, digest: AGREED };
                lie.say_with(Recipient::Replica(to), Kind::Committed, |w| committed.encode(w));
            }
        }
        true
    }
}

/// K6, A17: its VIEW-CHANGE names a number twice in Q, so that it would count for many.
#[derive(Debug, Default)]
pub struct TwiceInViewChange;

impl Liar for TwiceInViewChange {
    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        if said.kind != Kind::ViewChange || !said.own {
            return Fate::Keep;
        }
        let Ok(mut m) = ViewChange::decode(said.body) else { return Fate::Keep };
        let first = m.stable.next();
        if m.pre_prepared.is_empty() {
            m.pre_prepared.push(PrePrepared { seq: first, claims: vec![(AGREED, ViewNum(0))] });
        }
        let mut twice = m.pre_prepared.clone();
        twice.append(&mut m.pre_prepared);
        m.pre_prepared = twice;
        lie.say_with(said.to, said.kind, |w| m.encode(w));
        Fate::Drop
    }
}

/// A18: says in its VIEW-CHANGE that it has nothing above a checkpoint.
#[derive(Debug)]
pub struct ForgetsSince {
    checkpoint: SeqNum,
    digest: Digest,
}

impl ForgetsSince {
    /// Returns a liar that ignores everything above this checkpoint.
    pub fn checkpoint(checkpoint: u64) -> Self {
        Self { checkpoint: SeqNum(checkpoint), digest: AGREED }
    }
}

impl Liar for ForgetsSince {
    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        if let (Kind::Checkpoint, Ok(m)) = (said.kind, Checkpoint::decode(said.body))
            && m.seq == self.checkpoint
        {
            self.digest = m.digest;
        }
        if said.kind != Kind::ViewChange || !said.own {
            return Fate::Keep;
        }
        let Ok(mut m) = ViewChange::decode(said.body) else { return Fate::Keep };
        m.stable = self.checkpoint;
        m.checkpoints = vec![(self.checkpoint, self.digest)];
        m.prepared.clear();
        m.pre_prepared.clear();
        lie.say_with(said.to, said.kind, |w| m.encode(w));
        Fate::Drop
    }
}

/// K7: hands over every later view that it would be the primary of, hundreds of them, and leaves for each the
/// view after it with its own hand-over as the reason.
#[derive(Debug, Default)]
pub struct HandOverStorm {
    next_at: u64,
    turn: u64,
}

impl Liar for HandOverStorm {
    fn idle(&mut self, lie: &mut Lie<'_>) {
        if lie.now.mono_ns < self.next_at {
            return;
        }
        self.next_at = lie.now.mono_ns + 10_000_000;
        for _ in 0..4 {
            self.turn = self.turn % 250 + 1;
            let n = u64::try_from(lie.config().cluster.n()).unwrap_or(1);
            let own = lie.view.0 - lie.view.0 % n + u64::from(lie.id.0) + self.turn * n;
            let (view, reason) = (ViewNum(own), SuspectReason::SelfHandoff);
            let suspect = lie.sign_suspect(Suspect { view, reason, signature: [0; 64] });
            lie.say_with(Recipient::All, Kind::Suspect, |w| suspect.encode(w));
            let leaves = ViewChange {
                view: ViewNum(own + 1),
                stable: SeqNum(0),
                life: Life::default(),
                checkpoints: vec![(SeqNum(0), AGREED)],
                prepared: Vec::new(),
                pre_prepared: Vec::new(),
                leave: LeaveCert { suspects: vec![(lie.id, suspect)] },
            };
            lie.say_with(Recipient::All, Kind::ViewChange, |w| leaves.encode(w));
        }
    }
}

/// K9: says of every checkpoint that it has another digest, on which all liars agree, and that it is stable.
#[derive(Debug, Default)]
pub struct AnotherCheckpoint;

impl Liar for AnotherCheckpoint {
    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        let (Kind::Checkpoint, Ok(m)) = (said.kind, Checkpoint::decode(said.body)) else { return Fate::Keep };
        let wrong = Checkpoint { digest: AGREED, stable: true, ..m };
        lie.say_with(said.to, said.kind, |w| wrong.encode(w));
        Fate::Drop
    }
}

/// How a liar answers when asked for state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateLie {
    /// With bytes changed.
    Garbage,
    /// Not at all, after the first few times.
    StopsMidway,
    /// With the node or page of another checkpoint.
    Stale,
    /// With more children or bytes than there are.
    More,
}

/// K13: lies to replicas that fetch state.
#[derive(Debug)]
pub struct LyingSource {
    how: StateLie,
    answers: u64,
}

impl LyingSource {
    /// Returns a liar that answers so.
    pub fn new(how: StateLie) -> Self {
        Self { how, answers: 0 }
    }
}

impl Liar for LyingSource {
    fn answer(&mut self, rng: &mut Rng, kind: Kind, body: &mut Vec<u8>) -> Answered {
        /// The offset of the number of the checkpoint, or for a page that of its last change.
        const NUMBER_AT: usize = 17;
        if !matches!(kind, Kind::MetaData | Kind::Data) {
            return Answered::Truth;
        }
        self.answers += 1;
        match self.how {
            StateLie::StopsMidway if self.answers <= 2 => return Answered::Truth,
            StateLie::StopsMidway => return Answered::Silence,
            StateLie::Garbage => {
                let at = body.len().saturating_sub(1 + rng.index(32));
                if let Some(byte) = body.get_mut(at) {
                    *byte ^= 1;
                }
            }
            StateLie::Stale => {
                if let Some(byte) = body.get_mut(NUMBER_AT) {
                    *byte = byte.wrapping_sub(8);
                }
            }
            StateLie::More => body.extend_from_slice(&[7; 80]),
        }
        Answered::Lie
    }
}

/// K14: requests everything that can be requested, all the time, and acknowledges what was not requested.
#[derive(Debug, Default)]
pub struct AskFlood {
    next_at: u64,
    /// Digests to ask for, at most 32.
    seen: Vec<Digest>,
}

impl Liar for AskFlood {
    fn hear(&mut self, _lie: &mut Lie<'_>, _from: Principal, message: &Message<'_>) -> bool {
        if let Message::PrePrepare(m) = message {
            self.seen.push(m.batch.digest());
            self.seen.extend(m.batch.requests().map(|request| request.digest));
            let old = self.seen.len().saturating_sub(32);
            self.seen.drain(..old);
        }
        true
    }

    fn idle(&mut self, lie: &mut Lie<'_>) {
        if lie.now.mono_ns < self.next_at {
            return;
        }
        self.next_at = lie.now.mono_ns + 500_000;
        let nonce = lie.rng.bits();
        lie.say_with(Recipient::All, Kind::QueryStable, |w| QueryStable { nonce }.encode(w));
        let client = ClientId::new(1 + nonce % 3, 0);
        let ack = ReqAck { client, timestamp: Timestamp(nonce >> 1), digest: Digest(lie.rng.bytes()) };
        lie.say_with(Recipient::All, Kind::ReqAck, |w| ack.encode(w));
        for to in lie.others() {
            let to = Recipient::Replica(to);
            for kind in [BodyKind::Request, BodyKind::Batch] {
                lie.say_with(to, Kind::BodyFetch, |w| BodyFetch::encode(kind, &self.seen, w));
            }
            lie.say_with(to, Kind::VcFetch, |w| VcFetch { view: ViewNum(0), set: u64::MAX }.encode(w));
        }
    }
}

/// K12: sends the right digest with another result.
#[derive(Debug, Default)]
pub struct LiesAboutResults;

impl Liar for LiesAboutResults {
    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        let (Kind::Reply, Ok(m)) = (said.kind, Reply::decode(said.body)) else { return Fate::Keep };
        let wrong = Reply { result: Some(b"a lie"), ..m };
        lie.say_with(said.to, said.kind, |w| wrong.encode(w));
        Fate::Drop
    }
}

/// K11, A12: answers every read as it answered the first one.
#[derive(Debug, Default)]
pub struct StaleReads {
    asked: Option<(ClientId, Timestamp)>,
    old: Option<Vec<u8>>,
}

impl Liar for StaleReads {
    fn hear(&mut self, _lie: &mut Lie<'_>, _from: Principal, message: &Message<'_>) -> bool {
        if let Message::Request(request) = message
            && request.flags.read_only
        {
            self.asked = Some((request.client, request.timestamp));
        }
        true
    }

    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        let (Kind::Reply, Ok(m)) = (said.kind, Reply::decode(said.body)) else { return Fate::Keep };
        if self.asked != Some((m.client, m.timestamp)) || m.tentative {
            return Fate::Keep;
        }
        let Some(old) = &self.old else {
            self.old = m.result.map(<[u8]>::to_vec);
            return Fate::Keep;
        };
        let digest = lie.domains().result(m.client.0, m.timestamp.0, old).answering_like(&m.digest);
        let stale = Reply { digest, result: Some(old), ..m };
        lie.say_with(said.to, said.kind, |w| stale.encode(w));
        Fate::Drop
    }
}

/// Answers reads with the first result that it has given to one, whatever has been written since.
#[derive(Debug, Default)]
pub struct RepeatReads {
    first: Option<Vec<u8>>,
    asked: Vec<(ClientId, Timestamp, Digest)>,
}

impl Liar for RepeatReads {
    fn hear(&mut self, _lie: &mut Lie<'_>, _from: Principal, message: &Message<'_>) -> bool {
        if let Message::Request(m) = message
            && m.flags.read_only
        {
            self.asked.push((m.client, m.timestamp, m.digest));
        }
        true
    }

    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        let (Kind::Reply, Ok(m)) = (said.kind, Reply::decode(said.body)) else { return Fate::Keep };
        let asked =
            self.asked.iter().find(|(client, timestamp, _)| (*client, *timestamp) == (m.client, m.timestamp));
        let Some(request) = asked.map(|(.., request)| *request) else { return Fate::Keep };
        let Some(result) = m.result else { return Fate::Keep };
        let first = self.first.get_or_insert_with(|| result.to_vec()).clone();
        let digest = lie.domains().reply(m.client.0, m.timestamp.0, &request, &first);
        let stale = Reply { digest, result: Some(&first), ..m };
        lie.say_with(said.to, Kind::Reply, |w| stale.encode(w));
        Fate::Drop
    }
}

/// K9: says that it holds a proof for each checkpoint, as soon as it has that state.
#[derive(Debug)]
pub struct EagerProof;

impl Liar for EagerProof {
    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        let (Kind::Checkpoint, Ok(m)) = (said.kind, Checkpoint::decode(said.body)) else { return Fate::Keep };
        lie.say_with(said.to, said.kind, |w| Checkpoint { stable: true, ..m }.encode(w));
        Fate::Drop
    }
}

//! Byzantine replicas that send too much: complaints, view changes, queries, and messages that only others may send
//! (K1, K4, K7, K14).

use quorate_pbft::step::Recipient;
use quorate_wire::life::{Life, Recovered, Recovery};
use quorate_wire::message::{
    Bitmap, Echoes, LeaveCert, NewView, PrePrepareHead, Prepare, QueryStable, ReqReject, Start, Status,
    Suspect, SuspectReason, ViewChange,
};
use quorate_wire::{ClientId, Digest, Kind, Message, Principal, SeqNum, Timestamp, ViewNum};

use super::{Fate, Liar, Lie, Said};

/// K1: cannot take any request, it says, and to everyone: f replicas alone cost no client its standing and
/// no primary its view (AU-5).
#[derive(Debug, Default)]
pub struct Complain;

impl Complain {
    fn complain(lie: &mut Lie<'_>, reject: &ReqReject) {
        for to in lie.others() {
            lie.say_with(Recipient::Replica(to), Kind::ReqReject, |w| reject.encode(w));
        }
    }
}

impl Liar for Complain {
    fn hear(&mut self, lie: &mut Lie<'_>, _from: Principal, message: &Message<'_>) -> bool {
        if let Message::PrePrepare(m) = message
            && let Some(request) = m.batch.requests().next()
        {
            let (client, timestamp, digest) = (request.client, request.timestamp, request.digest);
            Self::complain(lie, &ReqReject { view: m.view, seq: m.seq, client, timestamp, digest });
        }
        true
    }

    /// As a primary, it complains about its own proposals.
    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        if let (Kind::PrePrepare, Ok(m)) = (said.kind, PrePrepareHead::decode(said.body)) {
            let (client, timestamp, digest) = (ClientId(0), Timestamp(0), m.digest);
            Self::complain(lie, &ReqReject { view: m.view, seq: m.seq, client, timestamp, digest });
        }
        Fate::Keep
    }
}

/// K7: a storm of VIEW-CHANGEs and SUSPECTs for the next thousand views.
#[derive(Debug, Default)]
pub struct ViewStorm {
    next_at: u64,
    jump: u64,
}

impl Liar for ViewStorm {
    fn idle(&mut self, lie: &mut Lie<'_>) {
        if lie.now.mono_ns < self.next_at {
            return;
        }
        self.next_at = lie.now.mono_ns + 20_000_000;
        for _ in 0..8 {
            self.jump = self.jump % 1000 + 1;
            let view = ViewNum(lie.view.0 + self.jump);
            let empty = ViewChange {
                view,
                stable: SeqNum(0),
                life: Life::default(),
                checkpoints: Vec::new(),
                prepared: Vec::new(),
                pre_prepared: Vec::new(),
                leave: LeaveCert::default(),
            };
            lie.say_with(Recipient::All, Kind::ViewChange, |w| empty.encode(w));
            let reason = if lie.rng.one_in(2) { SuspectReason::Timeout } else { SuspectReason::SelfHandoff };
            let suspect = Suspect { view, reason, signature: [0; 64] };
            lie.say_with(Recipient::All, Kind::Suspect, |w| suspect.encode(w));
        }
        // The current one as well, all the time: one replica alone must not end a view.
        let suspect = Suspect { view: lie.view, reason: SuspectReason::Timeout, signature: [0; 64] };
        lie.say_with(Recipient::All, Kind::Suspect, |w| suspect.encode(w));
    }
}

/// K14: asks for endless retransmission: statuses that lack everything.
#[derive(Debug, Default)]
pub struct StatusFlood {
    next_at: u64,
}

impl Liar for StatusFlood {
    fn idle(&mut self, lie: &mut Lie<'_>) {
        if lie.now.mono_ns < self.next_at {
            return;
        }
        self.next_at = lie.now.mono_ns + 2_000_000;
        let status = Status {
            counter: lie.now.wall_ns,
            view: lie.view,
            stable: SeqNum(0),
            executed: SeqNum(0),
            start: Start { incarnation: 1 << 20, token: 0 },
            settings: lie.config().shared_settings(),
            echoes: Echoes::default(),
            normal: lie.rng.one_in(2),
            has_new_view: false,
            prepared: Bitmap::default(),
            committed: Bitmap::default(),
            have: 0,
            wants: Vec::new(),
        };
        lie.say_with(Recipient::All, Kind::Status, |w| status.encode(w));
    }
}

/// K4: sends messages that only another replica may send, or none at that time: proposals as a backup, prepares as
/// the primary and proposals for what its NEW-VIEW has fixed, VIEW-CHANGEs for which nobody but itself sees a
/// reason, and questions of one that rejoins.
#[derive(Debug, Default)]
pub struct OutOfRole {
    next_at: u64,
    /// The first number that its last NEW-VIEW fixed, if it fixed any.
    fixed: Option<SeqNum>,
}

impl Liar for OutOfRole {
    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        if let (Kind::NewView, true, Ok(m)) = (said.kind, said.own, NewView::decode(said.body)) {
            self.fixed = (!m.chosen.is_empty()).then(|| m.checkpoint.0.next());
        }
        if let (Kind::PrePrepare, Ok(m)) = (said.kind, PrePrepareHead::decode(said.body)) {
            lie.say_with(said.to, Kind::Prepare, |w| Prepare::encode(m.view, m.seq, &m.digest, &[], w));
            if let (Some(fixed), Some((view, _, batch))) = (self.fixed, lie.batch(said.body)) {
                lie.say(said.to, Kind::PrePrepare, &lie.propose(view, fixed, &batch));
            }
        }
        Fate::Keep
    }

    fn hear(&mut self, lie: &mut Lie<'_>, _from: Principal, message: &Message<'_>) -> bool {
        if let Message::PrePrepare(m) = message {
            let body = lie.propose(m.view, m.seq.next(), &m.batch);
            lie.say(Recipient::All, Kind::PrePrepare, &body);
        }
        true
    }

    fn idle(&mut self, lie: &mut Lie<'_>) {
        if lie.now.mono_ns < self.next_at {
            return;
        }
        self.next_at = lie.now.mono_ns + 50_000_000;
        let query = QueryStable { nonce: lie.rng.bits() };
        lie.say_with(Recipient::All, Kind::QueryStable, |w| query.encode(w));
        // As the primary it could hand its view over.
        if !lie.is_primary() {
            let suspect = Suspect { view: lie.view, reason: SuspectReason::Timeout, signature: [0; 64] };
            let suspects = vec![(lie.id, lie.sign_suspect(suspect))];
            let alone = ViewChange {
                view: lie.view.next(),
                stable: SeqNum(0),
                life: Life::default(),
                checkpoints: vec![(SeqNum(0), Digest(lie.rng.bytes()))],
                prepared: Vec::new(),
                pre_prepared: Vec::new(),
                leave: LeaveCert { suspects },
            };
            lie.say_with(Recipient::All, Kind::ViewChange, |w| alone.encode(w));
        }
    }
}

/// K14: has lost nothing, and begins a new life all the time: views that rest on what it said before are left (RC-11a).
#[derive(Debug, Default)]
pub struct Reborn {
    next_at: u64,
    /// Its present one.
    life: Life,
}

impl Liar for Reborn {
    fn hear(&mut self, _lie: &mut Lie<'_>, _from: Principal, message: &Message<'_>) -> bool {
        if let Message::Reply(reply) = message
            && let Some(recovered) = reply.result.and_then(Recovered::decode)
            && recovered.life > self.life
        {
            self.life = recovered.life;
        }
        true
    }

    fn idle(&mut self, lie: &mut Lie<'_>) {
        if lie.now.mono_ns < self.next_at {
            return;
        }
        self.next_at = lie.now.mono_ns + 100_000_000;
        let mut operation = Vec::new();
        let (bits, before) = (lie.rng.bits(), self.life);
        Recovery { bound: SeqNum(0), bits, floor: ViewNum(0), before }.encode(&mut operation);
        lie.ask(&operation, false);
    }
}

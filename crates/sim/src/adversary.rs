//! Byzantine replicas: wrappers around a correct replica that hold only its keys.
//!
//! A wrapper sees the inputs and outputs of its replica, and may drop, change, add, delay or replay them, and send
//! different messages to different receivers. The replica inside stays correct, so a wrapper is as well informed as
//! possible, and each behaviour takes a few lines. Twins need no wrapper: they are one identity that runs twice.

#![allow(clippy::wildcard_enum_match_arm, reason = "a liar looks for some of many kinds")]

use std::fmt::Debug;

use quorate_pbft::step::{Action, Actions, Form, Input, Lsn, Now, Recipient};
use quorate_pbft::{Config, Replica};
use quorate_process::{Core, Place};
use quorate_wire::codec::Writer;
use quorate_wire::digest::Domains;
use quorate_wire::frame::{Frame, begin, end_signed};
use quorate_wire::message::{
    PrePrepareHead, Request, RequestBody, RequestFlags, Seal, Suspect, encode_pre_prepare,
};
use quorate_wire::sign::{Signer, request_digest};
use quorate_wire::{Batch, Kind, Message, Principal, ReplicaId, SeqNum, Timestamp, ViewNum};

use crate::core::HostCore;
use crate::rng::Rng;

pub mod backup;
pub mod client;
pub mod collector;
pub mod collusion;
pub mod maker;
pub mod mutate;
pub mod named;
pub mod noise;
pub mod plausible;
pub mod primary;
pub mod roster;
pub mod sly;

/// A message that its replica sends.
#[derive(Clone, Copy, Debug)]
pub struct Said<'a> {
    /// For whom.
    pub to: Recipient,
    /// The kind.
    pub kind: Kind,
    /// The body, also of a complete frame.
    pub body: &'a [u8],
    /// Whether it is the replica's own message, not a forwarded one.
    pub own: bool,
}

/// The fate of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It goes out as it is.
    Keep,
    /// It does not go out. What goes out instead has been said already.
    Drop,
}

/// A behaviour. Everything has a default: what a correct replica does.
pub trait Liar: Debug {
    /// The replica wants to send something.
    fn speak(&mut self, _lie: &mut Lie<'_>, _said: &Said<'_>) -> Fate {
        Fate::Keep
    }

    /// The replica is about to be given a message. Returns whether it is.
    fn hear(&mut self, _lie: &mut Lie<'_>, _from: Principal, _message: &Message<'_>) -> bool {
        true
    }

    /// A frame has arrived, authentic or not.
    fn overhear(&mut self, _rng: &mut Rng, _frame: &[u8]) {}

    /// Something has happened; a Byzantine replica may send unrequested messages here.
    fn idle(&mut self, _lie: &mut Lie<'_>) {}

    /// A message of the state transfer's is about to leave. Returns whether it does.
    fn answer(&mut self, _rng: &mut Rng, _kind: Kind, _body: &mut Vec<u8>) -> Answered {
        Answered::Truth
    }

    /// A sealed frame is about to leave for one node.
    fn tamper(&mut self, _rng: &mut Rng, _to: Place, _frame: &mut Vec<u8>) -> Answered {
        Answered::Truth
    }

    /// Returns whether [`Self::tamper`] does anything.
    fn tampers(&self) -> bool {
        false
    }
}

/// What a liar has done to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// Nothing.
    Truth,
    /// It has changed it.
    Lie,
    /// It keeps it.
    Silence,
}

/// The means of a liar while it acts.
#[derive(Debug)]
pub struct Lie<'a> {
    /// The replica that this liar speaks for.
    pub id: ReplicaId,
    /// The time at its host.
    pub now: Now,
    /// The view of its replica.
    pub view: ViewNum,
    /// Chance.
    pub rng: &'a mut Rng,
    config: &'a Config,
    domains: &'a Domains,
    signer: &'a Signer,
    out: &'a mut Actions,
    later: &'a mut Vec<Later>,
    told: &'a mut u64,
}

/// Something to be said at a later time.
#[derive(Debug)]
struct Later {
    at: u64,
    to: Recipient,
    kind: Kind,
    body: Vec<u8>,
}

impl Lie<'_> {
    /// Counts a lie that consists of saying nothing, or the truth at the wrong time.
    pub fn count(&mut self) {
        *self.told += 1;
    }

    /// Sends a message that a correct replica would not send here, sealed with its own keys.
    pub fn say(&mut self, to: Recipient, kind: Kind, body: &[u8]) {
        *self.told += 1;
        push(self.out, self.signer, self.domains, (self.id, to, kind), body);
    }

    /// Sends a message, made by `write`.
    pub fn say_with(&mut self, to: Recipient, kind: Kind, write: impl FnOnce(&mut Writer<'_>)) {
        let mut body = Vec::new();
        write(&mut Writer::new(&mut body));
        self.say(to, kind, &body);
    }

    /// Passes on a whole frame.
    pub fn pass_on(&mut self, to: Recipient, kind: Kind, frame: &[u8]) {
        *self.told += 1;
        self.out.forward(to, kind, Lsn(0), frame);
    }

    /// Returns `suspect` with its signature, as a LeaveCert needs it.
    pub fn sign_suspect(&self, suspect: Suspect) -> Suspect {
        let digest = suspect.signed_digest(self.domains, 0, self.id);
        Suspect { signature: self.signer.sign(&digest), ..suspect }
    }

    /// Sends a signed request of its own to all, perhaps with the flag read-only.
    pub fn ask(&mut self, operation: &[u8], read_only: bool) {
        let (sender, timestamp) = (Principal::Replica(self.id), Timestamp(self.now.wall_ns));
        let flags = RequestFlags { read_only, signed: true };
        let (mut body, mut frame) = (Vec::new(), Vec::new());
        RequestBody { timestamp, flags, replier: None, operation }.encode(&mut Writer::new(&mut body));
        let digest = self.domains.request(sender.to_wire(), timestamp.0, operation);
        let signature = self.signer.sign(&request_digest(self.domains, 0, sender, &digest));
        begin(Kind::Request, 0, sender, &body, &mut frame);
        end_signed(&signature, &mut frame);
        self.pass_on(Recipient::All, Kind::Request, &frame);
    }

    /// Sends a message `ns` nanoseconds from now. At most 4096 messages wait; more are sent immediately.
    pub fn say_later(&mut self, ns: u64, to: Recipient, kind: Kind, body: &[u8]) {
        if self.later.len() >= 4096 {
            return self.say(to, kind, body);
        }
        *self.told += 1;
        self.later.push(Later { at: self.now.mono_ns + ns, to, kind, body: body.to_vec() });
    }

    /// Returns the settings of the cluster.
    pub fn config(&self) -> &Config {
        self.config
    }

    /// Returns the digests' domains.
    pub fn domains(&self) -> &Domains {
        self.domains
    }

    /// Returns the other replicas.
    pub fn others(&self) -> Vec<ReplicaId> {
        self.config.cluster.replicas().filter(|id| *id != self.id).collect()
    }

    /// Returns whether it is the primary of its replica's view.
    pub fn is_primary(&self) -> bool {
        self.config.cluster.primary(self.view) == self.id
    }

    /// Returns the other replicas in two halves, the same ones each time.
    pub fn halves(&self) -> (Vec<ReplicaId>, Vec<ReplicaId>) {
        let others = self.others();
        let (a, b) = others.split_at(others.len() / 2);
        (a.to_vec(), b.to_vec())
    }

    /// Returns the batch of a PRE-PREPARE, its requests as the clients sent them.
    pub fn batch(&self, pre_prepare: &[u8]) -> Option<(ViewNum, SeqNum, Batch)> {
        let head = PrePrepareHead::decode(pre_prepare).ok()?;
        let mut batch = Batch::default();
        let mut payload = quorate_wire::codec::Reader::new(head.payload);
        batch
            .decode_payload(&mut payload, head.counts, head.choice, self.domains, |bytes| {
                Request::decode(&Frame::decode(bytes)?, self.domains)
            })
            .ok()?;
        Some((head.view, head.seq, batch))
    }

    /// Returns the body of a PRE-PREPARE for a batch.
    pub fn propose(&self, view: ViewNum, seq: SeqNum, batch: &Batch) -> Vec<u8> {
        let mut body = Vec::new();
        encode_pre_prepare(view, seq, batch, &[], &mut Writer::new(&mut body));
        body
    }

    /// Returns a PRE-PREPARE for the same number and requests, but another batch: its choice is
    /// `later_ns` later.
    pub fn another_batch(&self, pre_prepare: &[u8], later_ns: u64) -> Option<Vec<u8>> {
        let (view, seq, mut batch) = self.batch(pre_prepare)?;
        let chosen = quorate_pbft::choice::decode(batch.choice())?;
        batch.seal(self.domains, &chosen.saturating_add(later_ns).to_le_bytes());
        Some(self.propose(view, seq, &batch))
    }
}

/// Puts a message among the actions: signed here, or to be sealed at the authenticator.
pub(crate) fn push(
    out: &mut Actions,
    signer: &Signer,
    domains: &Domains,
    (id, to, kind): (ReplicaId, Recipient, Kind),
    body: &[u8],
) {
    if kind.seal() == Seal::Signature {
        let mut frame = Vec::new();
        signer.seal(domains, kind, 0, id.into(), body, &mut frame);
        out.forward(to, kind, Lsn(0), &frame);
    } else {
        out.send(to, kind, Lsn(0), |w| w.bytes(body));
    }
}

/// A liar in front of its replica.
#[derive(Debug)]
pub struct Lying {
    replica: Replica,
    liar: Box<dyn Liar>,
    signer: Signer,
    config: Config,
    domains: Domains,
    rng: Rng,
    later: Vec<Later>,
    told: u64,
    truth: Actions,
    /// Its lies have led its own replica into a state that no correct one can be in: it has stopped.
    dead: bool,
}

impl Lying {
    /// Puts `liar` in front of `replica`.
    pub fn new(replica: Replica, liar: Box<dyn Liar>, signer: Signer, config: Config, rng: Rng) -> Self {
        let domains = config.domains();
        Self {
            replica,
            liar,
            signer,
            config,
            domains,
            rng,
            later: Vec::new(),
            told: 0,
            truth: Actions::new(),
            dead: false,
        }
    }

    /// Returns whether its lies have made its own replica stop.
    pub fn is_dead(&self) -> bool {
        self.dead
    }

    /// Lets the liar act, with its means.
    fn with<T>(
        &mut self,
        now: Now,
        out: &mut Actions,
        act: impl FnOnce(&mut dyn Liar, &mut Lie<'_>) -> T,
    ) -> T {
        let mut lie = Lie {
            id: self.replica.id(),
            now,
            view: self.replica.view(),
            rng: &mut self.rng,
            config: &self.config,
            domains: &self.domains,
            signer: &self.signer,
            out,
            later: &mut self.later,
            told: &mut self.told,
        };
        act(self.liar.as_mut(), &mut lie)
    }

    /// Sends the delayed messages that are due.
    fn flush(&mut self, now: Now, out: &mut Actions) {
        let mut i = 0;
        while i < self.later.len() {
            if self.later[i].at <= now.mono_ns {
                let Later { to, kind, body, .. } = self.later.swap_remove(i);
                push(out, &self.signer, &self.domains, (self.replica.id(), to, kind), &body);
            } else {
                i += 1;
            }
        }
    }
}

impl Core for Lying {
    fn step(&mut self, now: Now, input: Input<'_>, out: &mut Actions) {
        if self.dead {
            return;
        }
        self.flush(now, out);
        if let Input::Message(verified) = input
            && !self.with(now, out, |liar, lie| liar.hear(lie, verified.sender(), verified.message()))
        {
            return;
        }
        let mut truth = std::mem::take(&mut self.truth);
        // Others may have committed what this primary proposed behind its replica's back. That replica is
        // right to stop: it would be a failure only if a correct one did.
        let replica = &mut self.replica;
        let stepped = crate::panics::catch(|| replica.step(now, input, &mut truth));
        if stepped.is_err() {
            self.dead = true;
            return;
        }
        let own = Principal::Replica(self.replica.id());
        for action in truth.list() {
            let Action::Send { to, kind, form, bytes, after } = action else {
                carry_over(action, &truth, out);
                continue;
            };
            let bytes = truth.bytes(*bytes);
            let (body, is_own) = match (form, Frame::decode(bytes)) {
                (Form::Body, _) => (bytes, true),
                (Form::Frame, Ok(frame)) => (frame.body, frame.sender == own),
                (Form::Frame, Err(_)) => continue,
            };
            let said = Said { to: *to, kind: *kind, body, own: is_own };
            if self.with(now, out, |liar, lie| liar.speak(lie, &said)) == Fate::Keep {
                match form {
                    Form::Body => out.send(*to, *kind, *after, |w| w.bytes(bytes)),
                    Form::Frame => out.forward(*to, *kind, *after, bytes),
                }
            }
        }
        truth.clear();
        self.truth = truth;
        self.with(now, out, |liar, lie| liar.idle(lie));
    }

    fn replica(&self) -> &Replica {
        &self.replica
    }

    /// Its process is about to end: its replica really hands the view over.
    fn shut_down(&mut self, now: Now, out: &mut Actions) {
        if !self.dead {
            self.replica.shut_down(now, out);
        }
    }

    fn is_byzantine(&self) -> bool {
        true
    }

    fn answer(&mut self, kind: Kind, body: &mut Vec<u8>) -> bool {
        let answered = self.liar.answer(&mut self.rng, kind, body);
        self.told += u64::from(answered != Answered::Truth);
        answered != Answered::Silence
    }

    fn tamper(&mut self, to: Place, frame: &mut Vec<u8>) -> bool {
        let answered = self.liar.tamper(&mut self.rng, to, frame);
        self.told += u64::from(answered != Answered::Truth);
        answered != Answered::Silence
    }

    fn tampers(&self) -> bool {
        self.liar.tampers()
    }

    fn overhear(&mut self, frame: &[u8]) {
        self.liar.overhear(&mut self.rng, frame);
    }

    fn due(&self) -> u64 {
        self.later.iter().map(|later| later.at).min().unwrap_or(u64::MAX)
    }

    fn wake(&mut self, now: Now, out: &mut Actions) {
        self.flush(now, out);
    }
}

impl HostCore for Lying {
    fn card(&self) -> String {
        let dead = if self.dead { ", has stopped" } else { "" };
        format!("{} (lies: {:?}{dead})", self.replica.state(), self.liar)
    }

    fn into_replica(self: Box<Self>) -> Replica {
        self.replica
    }

    fn lies(&self) -> u64 {
        self.told
    }
}

/// Copies an action that is no message, with the bytes that it refers to.
fn carry_over(action: &Action, from: &Actions, out: &mut Actions) {
    if let Action::Persist { lsn, bytes } = action {
        let bytes = from.bytes(*bytes);
        let copied = out.write(|w| w.bytes(bytes));
        out.push(Action::Persist { lsn: *lsn, bytes: copied });
    } else {
        out.push(action.clone());
    }
}

//! A client of MINIMAL (§4, §5).
//!
//! READ is never repeated under its rid: when its timer fires, the read starts again at all servers
//! with a new rid and empty state. STORE is repeated until each server has acknowledged it, after
//! completion too (§2.3).

use alloc::collections::BTreeMap;
use alloc::sync::Arc;

use quorate_wire::Principal;

use super::read::{Collect, Decided, Said};
use crate::crypto::{Signature, Statement};
use crate::engine::{Answers, Context, Machine, Round};
use crate::message::{Body, Op, Proof, Rid};
use crate::mutants::Mutant;
use crate::phalanx::judge;
use crate::settings::{Protocol, Ts};
use crate::step::{Call, Failure, Outcome, Path, Reject, Timer};
use crate::thresholds::{ServerId, ServerSet};
use crate::version::{Value, Version};

/// How many attempts of one operation a server can end.
const GONE_MAX: u8 = 8;

/// A client's side of one object.
#[derive(Debug, Default)]
pub(crate) struct Register {
    number: u64,
    reads: u64,
    /// How often each server has ended an attempt of this operation.
    gone: BTreeMap<ServerId, u8>,
    /// The largest version that this client wrote.
    own: Option<Version>,
    state: State,
    /// The last STORE, until all servers have acknowledged it.
    store: Option<Unacknowledged>,
}

#[allow(clippy::large_enum_variant, reason = "there is one for each object in use")]
#[derive(Debug, Default)]
enum State {
    #[default]
    Idle,
    /// Write, phase 1: TSR of q servers.
    Ask { round: Round, answers: Answers<Option<Signature>>, value: Value },
    /// A read, or phase 1 of a write that reads.
    Read { collect: Collect, attempt: u8, wait: u64, write: Option<Value> },
    /// Write, phase 2: ACK of q servers to `store`.
    Store { candidates: u8 },
}

/// A STORE with those that have acknowledged it.
#[derive(Debug)]
struct Unacknowledged {
    op: Op,
    version: Version,
    value: Value,
    proof: Proof,
    acks: ServerSet,
    wait: u64,
}

impl Unacknowledged {
    fn body(&self) -> Body {
        Body::Store {
            op: self.op,
            version: self.version,
            value: Arc::clone(&self.value),
            proof: self.proof.clone(),
            write_back: false,
        }
    }
}

impl Machine for Register {
    fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle)
    }

    fn backlog(&self) -> Option<usize> {
        self.store.as_ref().map(|store| store.value.len())
    }

    fn forget_store(&mut self) -> bool {
        !matches!(self.state, State::Store { .. }) && self.store.take().is_some()
    }

    fn request(&self) -> Option<Op> {
        match &self.state {
            State::Idle => None,
            State::Ask { round, .. } => Some(round.op()),
            State::Read { collect, .. } => Some(collect.rid().as_op()),
            State::Store { .. } => self.store.as_ref().map(|store| store.op),
        }
    }

    fn give_up(&mut self, cx: &mut Context<'_>) {
        match &self.state {
            State::Read { collect, .. } => cx.broadcast(&Body::Rc { rid: collect.rid() }),
            State::Store { .. } => self.store = None,
            State::Idle | State::Ask { .. } => {}
        }
        self.state = State::Idle;
    }

    fn invoke(&mut self, call: Call, cx: &mut Context<'_>) {
        self.number += 1;
        self.gone.clear();
        let settings = cx.settings;
        match call {
            Call::Read => self.start_read(None, 0, settings.timing.first, cx),
            Call::Write(value) if settings.ts == Ts::Read || settings.evidence => {
                self.start_read(Some(value), 0, settings.timing.first, cx);
            }
            Call::Write(value) => {
                let op = Op { incarnation: cx.incarnation, number: self.number, phase: 1 };
                let round = Round::start(op, Body::Qts { op }, ServerSet::default(), cx);
                self.state = State::Ask { round, answers: Answers::default(), value };
            }
        }
    }

    fn message(&mut self, from: ServerId, body: &Body, cx: &mut Context<'_>) {
        match (&mut self.state, body) {
            (_, Body::Ack { op, version }) => self.acknowledged(from, *op, *version, cx),
            (State::Ask { round, answers, .. }, Body::Tsr { op, version, signature })
                if *op == round.op() =>
            {
                if round.answered(from) {
                    answers.add(from, *version, *signature);
                    self.choose_version(cx);
                }
            }
            (State::Read { collect, .. }, Body::Val { rid, version, value, forwarded, signature })
                if *rid == collect.rid() =>
            {
                let said = Said {
                    version: *version,
                    value: Arc::clone(value),
                    forwarded: *forwarded,
                    signature: *signature,
                };
                self.said(from, &said, cx);
            }
            (State::Read { collect, .. }, Body::Gone { rid }) if *rid == collect.rid() => {
                // A server dropped this listener and may have missed a forward. A liar could say so
                // without end, so each server ends a few attempts at most; then the timer does.
                let ended = self.gone.entry(from).or_default();
                if *ended < GONE_MAX {
                    *ended += 1;
                    self.read_again(cx);
                }
            }
            _ => cx.out.reject(Principal::Replica(from), Reject::Stale),
        }
    }

    fn again(&mut self, cx: &mut Context<'_>) {
        match &mut self.state {
            State::Ask { round, .. } => round.again(cx),
            State::Read { .. } => self.read_again(cx),
            State::Idle | State::Store { .. } => {}
        }
    }

    fn store_again(&mut self, cx: &mut Context<'_>) {
        let Some(store) = &mut self.store else { return };
        let dropped = cx.settings.wrong(Mutant::StoreDropped) && store.acks.len() >= cx.q();
        if dropped {
            self.store = None;
            return;
        }
        let body = store.body();
        let (acks, refused) = (store.acks, cx.is_refused());
        let servers = cx.settings.thresholds.servers().filter(|server| refused || !acks.contains(*server));
        cx.out.broadcast(servers, cx.object, &body);
        store.wait = cx.longer(store.wait);
        let wait = store.wait;
        cx.set_timer(Timer::Stores(cx.object), wait);
    }
}

impl Register {
    /// READ to all n, under a new rid.
    fn start_read(&mut self, write: Option<Value>, attempt: u8, wait: u64, cx: &mut Context<'_>) {
        self.reads += 1;
        let rid = Rid { incarnation: cx.incarnation, counter: self.reads };
        cx.broadcast(&Body::Read { rid, attempt });
        cx.set_timer(Timer::Operation(cx.object), wait);
        let collect = Collect::new(rid, cx.settings);
        self.state = State::Read { collect, attempt, wait, write };
    }

    /// The timer of a read: MINIMAL-C writes the largest vouched version back, since its writer may
    /// have ended after q acknowledgements; then the read starts again.
    fn read_again(&mut self, cx: &mut Context<'_>) {
        let State::Read { collect, attempt, wait, write, .. } = &mut self.state else { return };
        let attempt = attempt.saturating_add(1);
        let wait = cx.longer(*wait);
        if cx.settings.wrong(Mutant::RepeatRead) {
            let body = Body::Read { rid: collect.rid(), attempt };
            cx.broadcast(&body);
            return cx.set_timer(Timer::Operation(cx.object), wait);
        }
        let silent = [Mutant::NoReaderWriteBack, Mutant::StoreDropped, Mutant::StoreToQuorum];
        let silent = silent.iter().any(|mutant| cx.settings.wrong(*mutant));
        if cx.settings.protocol == Protocol::MinimalC
            && !silent
            && let Some((version, value)) = collect.vouched(cx.settings)
            && !version.is_genesis()
        {
            let op = Op { incarnation: cx.incarnation, number: self.number, phase: 9 };
            let proof = Proof::default();
            cx.broadcast(&Body::Store { op, version, value, proof, write_back: true });
        }
        let write = write.take();
        self.start_read(write, attempt, wait, cx);
    }

    fn said(&mut self, from: ServerId, said: &Said, cx: &mut Context<'_>) {
        let State::Read { collect, write, .. } = &mut self.state else { return };
        let mut valid = cx.crypto.digest(&said.value) == said.version.digest;
        if valid && cx.settings.evidence && write.is_some() && !said.version.is_genesis() {
            // The answers become the evidence of the write.
            valid = said.signature.is_some_and(|signature| {
                let statement = Statement::Answered(said.version);
                cx.crypto.verify(from.into(), &cx.object, &statement, &signature)
            });
        }
        if !valid {
            return cx.out.reject(from.into(), Reject::BadProof);
        }
        if cx.settings.wrong(Mutant::EvidenceMaximum) && write.is_some() {
            return self.said_under_maximum(from, said, cx);
        }
        let Some(decided) = collect.take(from, said, cx.settings) else { return };
        let rid = collect.rid();
        let write = write.take();
        cx.broadcast(&Body::Rc { rid });
        match write {
            None => {
                let Decided { version, value, forwarded, most, .. } = decided;
                let path = if forwarded { Path::ListenerNeeded } else { Path::Fast };
                self.state = State::Idle;
                cx.done(Ok(Outcome { version, value, path, phases: 1, candidates: most }));
            }
            Some(value) => {
                let evidence = cx.settings.evidence.then_some(decided.evidence);
                let before = decided.version.max(self.own.unwrap_or(Version::GENESIS));
                // With evidence the successor is that of the version proved.
                let before = if evidence.is_some() { decided.version } else { before };
                self.send_store(before, value, evidence, decided.most, cx);
            }
        }
    }

    /// The mutant takes q signed answers, whatever they say, and builds on the largest.
    fn said_under_maximum(&mut self, from: ServerId, said: &Said, cx: &mut Context<'_>) {
        let State::Read { collect, write, .. } = &mut self.state else { return };
        _ = collect.take(from, said, cx.settings);
        let Some(evidence) = collect.any_answers(cx.q()) else { return };
        let before = evidence.answers.iter().map(|(_, version, _)| *version).max();
        let rid = collect.rid();
        let (Some(before), Some(value)) = (before, write.take()) else { return };
        cx.broadcast(&Body::Rc { rid });
        self.send_store(before, value, Some(evidence), 0, cx);
    }

    /// With q answers TSR, the successor of the largest valid one (§5: lazily verified, as in §3).
    fn choose_version(&mut self, cx: &mut Context<'_>) {
        let State::Ask { answers, value, .. } = &mut self.state else { return };
        let own = self.own.unwrap_or(Version::GENESIS);
        let signed =
            cx.settings.protocol == Protocol::MinimalF && !cx.settings.wrong(Mutant::UnsignedTimestamp);
        let chosen = answers.choose(cx.q(), |from, version, signature| {
            let judged = if !signed || version <= own {
                Ok(())
            } else {
                judge(cx.settings, cx.crypto, &cx.object, version, signature.as_ref())
            };
            cx.judged(from, judged)
        });
        let Some(chosen) = chosen else { return };
        let value = Arc::clone(value);
        self.send_store(chosen.version.max(own), value, None, 0, cx);
    }

    /// Phase 2: STORE to all n.
    fn send_store(
        &mut self,
        before: Version,
        value: Value,
        evidence: Option<crate::cert::Evidence>,
        candidates: u8,
        cx: &mut Context<'_>,
    ) {
        let digest = cx.crypto.digest(&value);
        let Some(version) = before.next(cx.me, digest) else {
            self.state = State::Idle;
            return cx.done(Err(Failure::TimestampExhausted));
        };
        if self.own.is_some_and(|own| version.val <= own.val && version != own) {
            // With evidence, what was written last is not what this follows: that write was refused.
            self.state = State::Idle;
            return cx.done(Err(Failure::Unfinished));
        }
        let signed = cx.settings.protocol == Protocol::MinimalF;
        let signature = signed.then(|| cx.crypto.sign(&cx.object, &Statement::Written(version)));
        let op = Op { incarnation: cx.incarnation, number: self.number, phase: 2 };
        let store = Unacknowledged {
            op,
            version,
            value,
            proof: Proof { signature, evidence },
            acks: ServerSet::default(),
            wait: cx.settings.timing.first,
        };
        let body = store.body();
        let few = cx.settings.wrong(Mutant::StoreToQuorum);
        let receivers = if few { cx.q() } else { cx.settings.thresholds.n() };
        cx.out.broadcast(cx.settings.thresholds.servers().take(receivers), cx.object, &body);
        cx.set_timer(Timer::Stores(cx.object), store.wait);
        self.own = Some(version);
        // Of two unacknowledged versions only the larger one is kept for each server (§2.3).
        self.store = Some(store);
        self.state = State::Store { candidates };
    }

    fn acknowledged(&mut self, from: ServerId, op: Op, version: Version, cx: &mut Context<'_>) {
        let Some(store) = &mut self.store else { return };
        if store.version != version || store.op != op {
            return;
        }
        store.acks.insert(from);
        let enough = store.acks.len() >= cx.q();
        let (value, all) = (Arc::clone(&store.value), store.acks.len() >= cx.settings.thresholds.n());
        let few = cx.settings.wrong(Mutant::StoreToQuorum) && enough;
        if all || few {
            self.store = None;
        }
        if let State::Store { candidates } = self.state
            && enough
        {
            self.state = State::Idle;
            cx.done(Ok(Outcome { version, value, path: Path::Fast, phases: 2, candidates }));
        }
    }
}

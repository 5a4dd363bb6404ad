//! A client of PHALANX: writes in four steps, reads in two, or four with a write-back (§3).

use quorate_wire::Principal;

use super::judge;
use crate::crypto::{Signature, Statement};
use crate::engine::{Answers, Context, Machine, Round, outcome};
use crate::message::{Body, Op, Proof};
use crate::mutants::Mutant;
use crate::step::{Call, Failure, Path, Reject};
use crate::thresholds::{ServerId, ServerSet};
use crate::version::{Value, Version};

/// A client's side of one object.
#[derive(Debug, Default)]
pub(crate) struct Register {
    number: u64,
    /// The largest version that this client wrote.
    own: Option<Version>,
    state: State,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Idle,
    /// Write, phase 1: TSR of q servers.
    Ask { round: Round, answers: Answers<Option<Signature>>, value: Value },
    /// Write, phase 2: WACK of q servers.
    Store { round: Round, version: Version, value: Value, acks: ServerSet },
    /// Read, phase 1: VAL of q servers.
    Read { round: Round, answers: Answers<(Value, Proof)> },
    /// Read, phase 2: q servers are known to hold the version.
    WriteBack { round: Round, first: Op, version: Version, value: Value, holders: ServerSet },
}

impl Machine for Register {
    fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle)
    }

    fn request(&self) -> Option<Op> {
        match &self.state {
            State::Idle => None,
            State::Ask { round, .. }
            | State::Store { round, .. }
            | State::Read { round, .. }
            | State::WriteBack { round, .. } => Some(round.op()),
        }
    }

    fn give_up(&mut self, _cx: &mut Context<'_>) {
        self.state = State::Idle;
    }

    fn invoke(&mut self, call: Call, cx: &mut Context<'_>) {
        self.number += 1;
        let op = Op { incarnation: cx.incarnation, number: self.number, phase: 1 };
        let none = ServerSet::default();
        self.state = match call {
            Call::Write(value) => {
                let round = Round::start(op, Body::Qts { op }, none, cx);
                State::Ask { round, answers: Answers::default(), value }
            }
            Call::Read => {
                let round = Round::start(op, Body::Rd { op }, none, cx);
                State::Read { round, answers: Answers::default() }
            }
        };
    }

    fn message(&mut self, from: ServerId, body: &Body, cx: &mut Context<'_>) {
        match (&mut self.state, body) {
            (State::Ask { round, answers, .. }, Body::Tsr { op, version, signature })
                if *op == round.op() =>
            {
                if round.answered(from) {
                    answers.add(from, *version, *signature);
                    self.choose_version(cx);
                }
            }
            (State::Store { round, version, value, acks }, Body::Ack { op, version: acked })
                if *op == round.op() && acked == version =>
            {
                round.answered(from);
                acks.insert(from);
                if acks.len() >= cx.q() {
                    let result = outcome(*version, value.clone(), Path::Fast, 2);
                    self.state = State::Idle;
                    cx.done(Ok(result));
                }
            }
            (State::Read { round, answers }, Body::RdVal { op, version, value, proof })
                if *op == round.op() =>
            {
                if round.answered(from) {
                    // A value that is not its version's costs a hash, and its server is not counted.
                    let hashes = cx.crypto.digest(value) == version.digest;
                    if cx.valid(from, hashes) || cx.settings.wrong(Mutant::VerifyNothing) {
                        answers.add(from, *version, (value.clone(), proof.clone()));
                    }
                    self.choose_value(cx);
                }
            }
            (State::WriteBack { round, version, holders, .. }, Body::Ack { op, version: acked })
                if *op == round.op() && acked == version =>
            {
                round.answered(from);
                holders.insert(from);
                self.finish_write_back(cx);
            }
            // A late answer of phase 1 shows one more holder.
            (State::WriteBack { first, version, holders, .. }, Body::RdVal { op, version: held, .. })
                if op == first && held == version =>
            {
                holders.insert(from);
                self.finish_write_back(cx);
            }
            _ => cx.out.reject(Principal::Replica(from), Reject::Stale),
        }
    }

    fn again(&mut self, cx: &mut Context<'_>) {
        match &mut self.state {
            State::Idle => {}
            State::Ask { round, .. }
            | State::Store { round, .. }
            | State::Read { round, .. }
            | State::WriteBack { round, .. } => round.again(cx),
        }
    }
}

impl Register {
    /// With q answers, picks the successor of the largest valid version and sends WR.
    fn choose_version(&mut self, cx: &mut Context<'_>) {
        let State::Ask { answers, round, value } = &mut self.state else { return };
        let own = self.own.unwrap_or(Version::GENESIS);
        // No verification where the largest is the writer's own last version or below it.
        let chosen = answers.choose(cx.q(), |from, version, signature| {
            let judged = if version <= own {
                Ok(())
            } else {
                judge(cx.settings, cx.crypto, &cx.object, version, signature.as_ref())
            };
            cx.judged(from, judged)
        });
        let Some(chosen) = chosen else { return };
        let digest = cx.crypto.digest(value);
        let Some(version) = chosen.version.max(own).next(cx.me, digest) else {
            self.state = State::Idle;
            return cx.done(Err(Failure::TimestampExhausted));
        };
        let signature = Some(cx.crypto.sign(&cx.object, &Statement::Written(version)));
        let op = Op { phase: 2, ..round.op() };
        let value = value.clone();
        let proof = Proof { signature, evidence: None };
        let body = Body::Store { op, version, value: value.clone(), proof, write_back: false };
        let round = Round::start(op, body, ServerSet::default(), cx);
        self.own = Some(version);
        self.state = State::Store { round, version, value, acks: ServerSet::default() };
    }

    /// With q answers, returns the largest valid one if they are unanimous; otherwise writes it back.
    fn choose_value(&mut self, cx: &mut Context<'_>) {
        let State::Read { answers, round } = &mut self.state else { return };
        let chosen = answers.choose(cx.q(), |from, version, (_, proof)| {
            let judged = judge(cx.settings, cx.crypto, &cx.object, version, proof.signature.as_ref());
            cx.judged(from, judged)
        });
        let Some(chosen) = chosen else { return };
        let (version, (value, proof)) = (chosen.version, chosen.item);
        let back = !chosen.unanimous || cx.settings.always_write_back;
        if !back || cx.settings.wrong(Mutant::NoWriteBack) {
            self.state = State::Idle;
            return cx.done(Ok(outcome(version, value, Path::Fast, 1)));
        }
        let mut holders = ServerSet::default();
        for (server, held, _) in answers.all() {
            if *held == version {
                holders.insert(*server);
            }
        }
        let first = round.op();
        let op = Op { phase: 2, ..first };
        // The write-back carries the signature of the writer: servers verify it (§3).
        let body = Body::Store { op, version, value: value.clone(), proof, write_back: true };
        let round = Round::start(op, body, ServerSet::default(), cx);
        self.state = State::WriteBack { round, first, version, value, holders };
        self.finish_write_back(cx);
    }

    fn finish_write_back(&mut self, cx: &mut Context<'_>) {
        let State::WriteBack { version, value, holders, .. } = &self.state else { return };
        if holders.len() >= cx.q() || cx.settings.wrong(Mutant::WriteBackUnawaited) {
            let result = outcome(*version, value.clone(), Path::WriteBack, 2);
            self.state = State::Idle;
            cx.done(Ok(result));
        }
    }
}

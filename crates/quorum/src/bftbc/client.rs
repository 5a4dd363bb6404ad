//! A client's side of one object of BFT-BC (§6): the states of an operation and who handles what.

use alloc::sync::Arc;
use alloc::vec::Vec;

use quorate_wire::Principal;

use crate::cert::{PrepareCert, WriteCert};
use crate::crypto::{Key, Signature, Statement};
use crate::engine::{Answers, Context, Machine, Round};
use crate::message::{Body, Op};
use crate::settings::{Protocol, Variant};
use crate::step::{Call, Reject};
use crate::thresholds::{ServerId, ServerSet};
use crate::version::{Value, Version};

/// A client's side of one object.
#[derive(Debug, Default)]
pub(crate) struct Register {
    pub(super) number: u64,
    /// The certificate of this client's last write.
    pub(super) own: Option<WriteCert>,
    /// The largest write certificate that it knows (§6.7).
    pub(super) known: Option<WriteCert>,
    /// The last write, as long as its certificate is coming.
    pub(super) certifying: Option<Certifying>,
    /// The largest version that it asked to prepare in a write that was refused (§15).
    unfinished: Option<Version>,
    pub(super) phases: u8,
    /// What is being written, if the operation is a write.
    pub(super) value: Option<Value>,
    pub(super) state: State,
}

/// An answer to READ.
#[derive(Clone, Debug)]
pub(super) struct Read {
    pub(super) value: Value,
    pub(super) pcert: PrepareCert,
    pub(super) wsig: Option<Signature>,
    pub(super) wcert: Option<WriteCert>,
}

/// Signatures of distinct servers on one statement.
#[derive(Clone, Debug, Default)]
pub(super) struct Gathered {
    servers: ServerSet,
    list: Vec<(ServerId, Signature)>,
}

impl Gathered {
    /// Adds a signature if it is the server's on this statement.
    pub(super) fn add(
        &mut self,
        server: ServerId,
        statement: &Statement,
        signature: &Signature,
        cx: &mut Context<'_>,
    ) -> bool {
        if self.servers.contains(server) {
            return true;
        }
        let valid = cx.crypto.verify(server.into(), &cx.object, statement, signature);
        if valid {
            self.servers.insert(server);
            self.list.push((server, *signature));
        }
        cx.valid(server, valid)
    }

    /// Says whether this server's signature is there.
    pub(super) fn has(&self, server: ServerId) -> bool {
        self.servers.contains(server)
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns q of them, in the order of the servers.
    pub(super) fn quorum(&self, q: usize) -> Arc<[(ServerId, Signature)]> {
        let mut list = self.list.clone();
        list.truncate(q);
        list.sort_unstable_by_key(|(server, _)| *server);
        list.into()
    }
}

/// A write that has completed and whose certificate is still coming.
#[derive(Debug)]
pub(super) struct Certifying {
    /// The phase of its WRITE.
    pub(super) op: Op,
    pub(super) version: Version,
    /// WRITE, which asks again.
    pub(super) body: Body,
    pub(super) signed: Gathered,
    pub(super) wait: u64,
}

/// Where an operation is.
#[allow(clippy::large_enum_variant, reason = "there is one for each object in use")]
#[derive(Debug, Default)]
pub(super) enum State {
    #[default]
    Idle,
    /// Phase 1 of a write: READ-TS (§6.1).
    Ask { round: Round, nonce: u128, answers: Answers<PrepareCert> },
    /// Phase 1 of an optimized write: READ-TS-PREP (§6.4).
    AskOptimistically {
        round: Round,
        nonce: u128,
        key: Key,
        answers: Answers<(PrepareCert, Option<(Version, Signature)>)>,
        /// The version that the first approval is of, and the approvals of this version.
        approved: Option<Version>,
        signed: Gathered,
    },
    /// A read, or phase 1 of a strong write (§6.2, §6.7).
    Read { round: Round, nonce: u128, answers: Answers<Read> },
    /// The write-back of either.
    WriteBack { round: Round, first: Op, read: Read, holders: ServerSet, signed: Gathered },
    /// Phase 2 of a write.
    Prepare { round: Round, version: Version, signed: Gathered },
    /// The last phase of a write.
    Write { round: Round, version: Version, optimistic: bool, holders: ServerSet, signed: Gathered },
    /// A write that waits for the certificate of the one before, which it has to show (§6.1).
    Certify,
}

impl Register {
    pub(super) fn op(&self, phase: u8, cx: &Context<'_>) -> Op {
        Op { incarnation: cx.incarnation, number: self.number, phase }
    }

    /// Counts a phase and returns its operation id.
    pub(super) fn next_phase(&mut self, cx: &Context<'_>) -> Op {
        self.phases = self.phases.saturating_add(1);
        self.op(self.phases, cx)
    }

    /// Phase 1 of a write.
    pub(super) fn start_write(&mut self, cx: &mut Context<'_>) {
        let variant = Self::variant(cx);
        if variant.is_optimized() {
            self.ask_optimistically(cx);
        } else if variant.is_strong() {
            self.start_read(cx);
        } else {
            self.ask(cx);
        }
    }

    /// Says whether it can ask to prepare this without contradicting what it signed before.
    pub(super) fn may_sign(&self, version: Version) -> bool {
        self.unfinished.is_none_or(|other| version.val > other.val || version == other)
    }

    pub(super) fn variant(cx: &Context<'_>) -> Variant {
        match cx.settings.protocol {
            Protocol::BftBc(variant) => variant,
            Protocol::Phalanx | Protocol::MinimalC | Protocol::MinimalF => Variant::Base,
        }
    }
}

impl Machine for Register {
    fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle)
    }

    fn backlog(&self) -> Option<usize> {
        // Its certificate is needed, so this is not forgotten.
        self.certifying.as_ref().map(|_| 0)
    }

    fn request(&self) -> Option<Op> {
        match &self.state {
            State::Idle | State::Certify => None,
            State::Ask { round, .. }
            | State::AskOptimistically { round, .. }
            | State::Read { round, .. }
            | State::WriteBack { round, .. }
            | State::Prepare { round, .. }
            | State::Write { round, .. } => Some(round.op()),
        }
    }

    fn give_up(&mut self, _cx: &mut Context<'_>) {
        if let State::Prepare { version, .. } = &self.state {
            self.unfinished = self.unfinished.max(Some(*version));
        }
        self.state = State::Idle;
    }

    fn invoke(&mut self, call: Call, cx: &mut Context<'_>) {
        self.number += 1;
        self.phases = 0;
        match call {
            Call::Read => {
                self.value = None;
                self.start_read(cx);
            }
            Call::Write(value) => {
                self.value = Some(value);
                if self.certifying.is_some() {
                    self.state = State::Certify;
                } else {
                    self.start_write(cx);
                }
            }
        }
    }

    fn message(&mut self, from: ServerId, body: &Body, cx: &mut Context<'_>) {
        let taken = match body {
            Body::ReadTsReply { op, nonce, pcert } => self.asked(from, *op, *nonce, pcert, cx),
            Body::ReadTsPrepReply { op, nonce, pcert, opt } => {
                self.asked_optimistically(from, *op, *nonce, (pcert.clone(), *opt), cx)
            }
            Body::BcReadReply { op, nonce, value, pcert, wsig, wcert } => {
                let read = Read {
                    value: Arc::clone(value),
                    pcert: pcert.clone(),
                    wsig: *wsig,
                    wcert: wcert.clone(),
                };
                self.read(from, *op, *nonce, read, cx)
            }
            Body::PrepareReply { op, version, signature } => {
                self.prepared(from, *op, *version, signature, cx)
            }
            Body::WriteReply { op, version, signature } => self.stored(from, *op, *version, signature, cx),
            Body::Ack { op, version } => self.acknowledged(from, *op, *version, cx),
            _ => false,
        };
        if !taken {
            cx.out.reject(Principal::Replica(from), Reject::Stale);
        }
    }

    fn again(&mut self, cx: &mut Context<'_>) {
        match &mut self.state {
            State::Idle | State::Certify => {}
            State::Ask { round, .. }
            | State::AskOptimistically { round, .. }
            | State::Read { round, .. }
            | State::WriteBack { round, .. }
            | State::Prepare { round, .. }
            | State::Write { round, .. } => round.again(cx),
        }
    }

    fn store_again(&mut self, cx: &mut Context<'_>) {
        self.ask_for_signatures(cx);
    }
}

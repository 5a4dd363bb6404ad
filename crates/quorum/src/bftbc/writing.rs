//! Writes of BFT-BC: three phases (§6.1), or two when undisturbed (§6.4).

use alloc::sync::Arc;

use super::client::{Certifying, Gathered, Register, State};
use super::{optimistic_digest, prepare_digest};
use crate::cert::{PrepareCert, WriteCert, lock_under};
use crate::crypto::{Signature, Statement, lock_of};
use crate::engine::{Answers, Context, Round, outcome};
use crate::message::{Body, Op, OptimisticRequest, Predecessor, PrepareRequest};
use crate::settings::ClientAuth;
use crate::step::{Failure, Path, Timer};
use crate::thresholds::{ServerId, ServerSet};
use crate::version::Version;

/// The answer to READ-TS-PREP: the certificate, and an optimistic approval.
type Optimistic = (PrepareCert, Option<(Version, Signature)>);

impl Register {
    /// Phase 1: READ-TS.
    pub(super) fn ask(&mut self, cx: &mut Context<'_>) {
        let op = self.next_phase(cx);
        let nonce = cx.crypto.random();
        let round = Round::start(op, Body::ReadTs { op, nonce }, ServerSet::default(), cx);
        self.state = State::Ask { round, nonce, answers: Answers::default() };
    }

    /// READ-TS-REPLY: with q of them, the largest valid certificate is the predecessor.
    pub(super) fn asked(
        &mut self,
        from: ServerId,
        op: Op,
        nonce: u128,
        pcert: &PrepareCert,
        cx: &mut Context<'_>,
    ) -> bool {
        let State::Ask { round, nonce: mine, answers } = &mut self.state else { return false };
        if op != round.op() || nonce != *mine {
            return false;
        }
        if round.answered(from) {
            answers.add(from, pcert.version, pcert.clone());
            let chosen = answers.choose(cx.q(), |from, _, pcert: &PrepareCert| {
                let valid = pcert.is_valid(cx.settings, cx.crypto, &cx.object);
                cx.valid(from, valid)
            });
            if let Some(chosen) = chosen {
                self.prepare(Predecessor::Prepared(chosen.item), chosen.version, cx);
            }
        }
        true
    }

    /// Phase 1 of an optimized write: READ-TS-PREP, under a lock whose key is fresh.
    pub(super) fn ask_optimistically(&mut self, cx: &mut Context<'_>) {
        let Some(value) = &self.value else { return };
        let digest = cx.crypto.digest(value);
        let key = cx.crypto.random().to_le_bytes();
        let nonce = cx.crypto.random();
        let strong = Self::variant(cx).is_strong();
        let request = OptimisticRequest {
            client: cx.me,
            digest,
            lock: lock_of(&key),
            own: self.own.clone(),
            predecessor: self.known.clone().filter(|_| strong),
        };
        let op = self.next_phase(cx);
        let signs = cx.settings.client_auth == ClientAuth::Signature;
        let statement = Statement::AskOptimistic(cx.me, optimistic_digest(op, &request));
        let auth = signs.then(|| cx.crypto.sign(&cx.object, &statement));
        let body = Body::ReadTsPrep { op, nonce, request: Arc::new(request), auth };
        let round = Round::start(op, body, ServerSet::default(), cx);
        let (answers, signed) = (Answers::default(), Gathered::default());
        self.state = State::AskOptimistically { round, nonce, key, answers, approved: None, signed };
    }

    /// READ-TS-PREP-REPLY: q approvals of one version make a certificate; otherwise phase 2 follows
    /// at once, on the largest certificate.
    pub(super) fn asked_optimistically(
        &mut self,
        from: ServerId,
        op: Op,
        nonce: u128,
        answer: Optimistic,
        cx: &mut Context<'_>,
    ) -> bool {
        let Some(value) = &self.value else { return false };
        let digest = cx.crypto.digest(value);
        let State::AskOptimistically { round, nonce: asked, key, answers, approved, signed } =
            &mut self.state
        else {
            return false;
        };
        if op != round.op() || nonce != *asked {
            return false;
        }
        if !round.answered(from) {
            return true;
        }
        let opt = answer.1;
        answers.add(from, answer.0.version, answer);
        // An approval is checked when it arrives, while the other servers are still at work. One of another version than
        // the first is of no use: a certificate is of one version.
        let mine = opt.filter(|(version, _)| version.client == cx.me && version.digest == digest);
        if let Some((version, signature)) = mine
            && *approved.get_or_insert(version) == version
        {
            let lock = lock_under(cx.settings, key);
            signed.add(from, &Statement::Prepared(version, Some(lock)), &signature, cx);
        }
        if answers.counted(cx.q()).is_none() {
            return true;
        }
        if let Some(version) = *approved
            && signed.len() >= cx.q()
        {
            let pcert = PrepareCert { version, key: Some(*key), signatures: signed.quorum(cx.q()) };
            self.write(pcert, true, cx);
            return true;
        }
        if Self::variant(cx).is_strong() {
            // Fall back to step 1 of the strong write (§6.7).
            self.start_read(cx);
            return true;
        }
        let chosen = answers.choose(cx.q(), |from, _, (pcert, _): &Optimistic| {
            let valid = pcert.is_valid(cx.settings, cx.crypto, &cx.object);
            cx.valid(from, valid)
        });
        if let Some(chosen) = chosen {
            self.prepare(Predecessor::Prepared(chosen.item.0), chosen.version, cx);
        }
        true
    }

    /// Phase 2: PREPARE the successor of `before`.
    pub(super) fn prepare(&mut self, predecessor: Predecessor, before: Version, cx: &mut Context<'_>) {
        let Some(value) = &self.value else { return };
        let digest = cx.crypto.digest(value);
        let Some(version) = before.next(cx.me, digest) else {
            self.state = State::Idle;
            return cx.done(Err(Failure::TimestampExhausted));
        };
        if !self.may_sign(version) {
            self.state = State::Idle;
            return cx.done(Err(Failure::Unfinished));
        }
        let op = self.next_phase(cx);
        let request = PrepareRequest { client: cx.me, predecessor, version, own: self.own.clone() };
        let signs = cx.settings.client_auth == ClientAuth::Signature;
        let statement = Statement::AskPrepare(cx.me, prepare_digest(op, &request));
        let auth = signs.then(|| cx.crypto.sign(&cx.object, &statement));
        let body = Body::Prepare { op, request: Arc::new(request), auth };
        let round = Round::start(op, body, ServerSet::default(), cx);
        self.state = State::Prepare { round, version, signed: Gathered::default() };
    }

    /// PREPARE-REPLY: with q of them, the value can be written.
    pub(super) fn prepared(
        &mut self,
        from: ServerId,
        op: Op,
        version: Version,
        signature: &Signature,
        cx: &mut Context<'_>,
    ) -> bool {
        let State::Prepare { round, version: mine, signed } = &mut self.state else { return false };
        if op != round.op() || version != *mine {
            return false;
        }
        if signed.add(from, &Statement::Prepared(version, None), signature, cx) {
            round.answered(from);
            if signed.len() >= cx.q() {
                let signatures = signed.quorum(cx.q());
                self.write(PrepareCert { version, key: None, signatures }, false, cx);
            }
        }
        true
    }

    /// The last phase: WRITE. An optimistic certificate reveals its key here and only here (§6.4).
    fn write(&mut self, pcert: PrepareCert, optimistic: bool, cx: &mut Context<'_>) {
        let Some(value) = self.value.clone() else { return };
        let op = self.next_phase(cx);
        let version = pcert.version;
        let round = Round::start(op, Body::Write { op, value, pcert }, ServerSet::default(), cx);
        let (holders, signed) = (ServerSet::default(), Gathered::default());
        self.state = State::Write { round, version, optimistic, holders, signed };
    }

    /// WRITE-REPLY: this server holds the version, and its signature is for the certificate.
    pub(super) fn stored(
        &mut self,
        from: ServerId,
        op: Op,
        version: Version,
        signature: &Signature,
        cx: &mut Context<'_>,
    ) -> bool {
        if self.signed_late(from, op, version, signature, cx).is_some() {
            return true;
        }
        let State::Write { round, version: mine, holders, signed, .. } = &mut self.state else {
            return self.written_back(from, op, version, signature, cx);
        };
        if op != round.op() || version != *mine {
            return false;
        }
        if signed.add(from, &Statement::Stored(version), signature, cx) {
            round.answered(from);
            holders.insert(from);
            self.finish_write(cx);
        }
        true
    }

    /// With q servers that hold it the write has completed. Its certificate may come later.
    pub(super) fn finish_write(&mut self, cx: &mut Context<'_>) {
        let State::Write { holders, .. } = &self.state else { return };
        if holders.len() < cx.q() {
            return;
        }
        let State::Write { round, version, optimistic, signed, .. } = core::mem::take(&mut self.state) else {
            return;
        };
        let path = if optimistic { Path::TwoPhase } else { Path::ThreePhase };
        if signed.len() >= cx.q() {
            self.certified(WriteCert { version, signatures: signed.quorum(cx.q()) }, cx);
        } else {
            let wait = cx.settings.timing.first;
            let (op, body) = round.into_request();
            self.certifying = Some(Certifying { op, version, body, signed, wait });
            cx.set_timer(Timer::Stores(cx.object), wait);
        }
        let value = self.value.take().unwrap_or_else(|| Arc::from([]));
        cx.done(Ok(outcome(version, value, path, self.phases)));
    }

    /// The certificate of this client's last write is there.
    pub(super) fn certified(&mut self, wcert: WriteCert, cx: &mut Context<'_>) {
        self.own = Some(wcert.clone());
        self.known = Some(wcert.clone());
        if cx.settings.complete {
            cx.broadcast(&Body::Complete { wcert });
        }
    }
}

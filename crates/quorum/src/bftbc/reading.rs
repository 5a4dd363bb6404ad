//! Reads of BFT-BC (§6.2), and phase 1 of the strong variant, which is a read that ends with a write
//! certificate for the version read (§6.7).

use alloc::sync::Arc;

use super::client::{Gathered, Read, Register, State};
use crate::cert::WriteCert;
use crate::crypto::{Signature, Statement};
use crate::engine::{Answers, Context, Round, outcome};
use crate::message::{Body, Op, Predecessor};
use crate::mutants::Mutant;
use crate::step::Path;
use crate::thresholds::{ServerId, ServerSet};
use crate::version::Version;
use alloc::vec::Vec;

impl Register {
    /// READ to all.
    pub(super) fn start_read(&mut self, cx: &mut Context<'_>) {
        let op = self.next_phase(cx);
        let nonce = cx.crypto.random();
        let round = Round::start(op, Body::BcRead { op, nonce }, ServerSet::default(), cx);
        self.state = State::Read { round, nonce, answers: Answers::default() };
    }

    /// An answer to READ. One that comes after the choice shows one more holder.
    pub(super) fn read(
        &mut self,
        from: ServerId,
        op: Op,
        nonce: u128,
        read: Read,
        cx: &mut Context<'_>,
    ) -> bool {
        match &mut self.state {
            State::Read { round, nonce: mine, answers } if op == round.op() && nonce == *mine => {
                if round.answered(from) {
                    // The value has to come with its certificate: a liar could name a version that
                    // nobody holds, and it could not be written back (§6.7).
                    let withheld = self.value.is_some() && cx.settings.wrong(Mutant::ValueWithheld);
                    let version = read.pcert.version;
                    let hashes = cx.crypto.digest(&read.value) == version.digest;
                    if cx.valid(from, hashes) || withheld {
                        answers.add(from, version, read);
                    }
                    self.choose_read(cx);
                }
                true
            }
            State::WriteBack { first, read: chosen, holders, .. }
                if op == *first && read.pcert.version == chosen.pcert.version =>
            {
                holders.insert(from);
                self.finish_write_back(cx);
                true
            }
            _ => false,
        }
    }

    /// With q answers: the largest valid one.
    fn choose_read(&mut self, cx: &mut Context<'_>) {
        let writes = self.value.is_some();
        let State::Read { answers, round, .. } = &mut self.state else { return };
        let chosen = answers.choose(cx.q(), |from, _, read: &Read| {
            let valid = read.pcert.is_valid(cx.settings, cx.crypto, &cx.object);
            cx.valid(from, valid)
        });
        let Some(chosen) = chosen else { return };
        let (version, first) = (chosen.version, round.op());
        let mut holders = ServerSet::default();
        let mut certified = None;
        let mut signatures: Vec<(ServerId, Signature)> = Vec::new();
        for (server, held, read) in answers.all() {
            if *held == version {
                holders.insert(*server);
                signatures.extend(read.wsig.map(|wsig| (*server, wsig)));
            }
            let wcert = read.wcert.as_ref().filter(|wcert| wcert.version == version);
            if certified.is_none() && writes {
                certified = wcert.filter(|wcert| wcert.is_valid(cx.settings, cx.crypto, &cx.object)).cloned();
            }
        }
        if !writes {
            if chosen.unanimous {
                let phases = self.phases;
                self.state = State::Idle;
                return cx.done(Ok(outcome(version, chosen.item.value, Path::Fast, phases)));
            }
            return self.write_back(first, chosen.item, holders, Gathered::default(), cx);
        }
        if version.is_genesis() {
            certified = Some(WriteCert { version, signatures: Arc::new([]) });
        }
        if cx.settings.wrong(Mutant::PreparedPredecessor) {
            return self.prepare(Predecessor::Prepared(chosen.item.pcert), version, cx);
        }
        let mut signed = Gathered::default();
        if certified.is_none() {
            for (server, wsig) in &signatures {
                signed.add(*server, &Statement::Stored(version), wsig, cx);
            }
            if signed.len() >= cx.q() {
                certified = Some(WriteCert { version, signatures: signed.quorum(cx.q()) });
            }
        }
        match certified {
            Some(wcert) => self.prepare_after(wcert, cx),
            // Complete it first: its writer may never do so.
            None => self.write_back(first, chosen.item, ServerSet::default(), signed, cx),
        }
    }

    /// WRITE to the servers that are not known to hold it.
    fn write_back(
        &mut self,
        first: Op,
        read: Read,
        holders: ServerSet,
        signed: Gathered,
        cx: &mut Context<'_>,
    ) {
        let op = self.next_phase(cx);
        let body = Body::Write { op, value: Arc::clone(&read.value), pcert: read.pcert.clone() };
        let round = Round::start(op, body, holders, cx);
        self.state = State::WriteBack { round, first, read, holders, signed };
        self.finish_write_back(cx);
    }

    /// WRITE-REPLY to a write-back.
    pub(super) fn written_back(
        &mut self,
        from: ServerId,
        op: Op,
        version: Version,
        signature: &Signature,
        cx: &mut Context<'_>,
    ) -> bool {
        let State::WriteBack { round, read, holders, signed, .. } = &mut self.state else { return false };
        if op != round.op() || version != read.pcert.version {
            return false;
        }
        if signed.add(from, &Statement::Stored(version), signature, cx) {
            round.answered(from);
            holders.insert(from);
            self.finish_write_back(cx);
        }
        true
    }

    pub(super) fn finish_write_back(&mut self, cx: &mut Context<'_>) {
        let State::WriteBack { read, holders, signed, .. } = &self.state else { return };
        let version = read.pcert.version;
        if self.value.is_some() {
            if signed.len() >= cx.q() {
                let wcert = WriteCert { version, signatures: signed.quorum(cx.q()) };
                self.prepare_after(wcert, cx);
            }
        } else if holders.len() >= cx.q() {
            let result = outcome(version, Arc::clone(&read.value), Path::WriteBack, self.phases);
            self.state = State::Idle;
            cx.done(Ok(result));
        }
    }

    fn prepare_after(&mut self, wcert: WriteCert, cx: &mut Context<'_>) {
        let before = wcert.version;
        self.known = Some(wcert.clone());
        self.prepare(Predecessor::Completed(wcert), before, cx);
    }
}

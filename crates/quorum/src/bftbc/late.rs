//! Signatures that come after the acknowledgement (`late`, §6.4).
//!
//! A write has completed when q servers hold it, and the MAC of a server's ACK says that as well as its signature does: the
//! client is the only one who has to know. The signature is for others, in the write certificate, which the client
//! needs for its next write. So a server that has installed a value sends ACK, and signs once the ACK has left.
//!
//! No certificate exists earlier than without this, so nothing that rests on certificates is weaker: the lists, H2, and
//! the bounds on lurking writes (§6.7).

use alloc::collections::VecDeque;

use quorate_wire::Principal;

use super::client::{Register, State};
use crate::cert::WriteCert;
use crate::crypto::{Signature, Statement};
use crate::engine::Context;
use crate::message::Op;
use crate::mutants::Mutant;
use crate::step::Timer;
use crate::thresholds::ServerId;
use crate::version::{ObjectId, Version};

/// Signatures that a server owes. Beyond them it signs at once.
const OWED_MAX: usize = 256;

/// A signature that a server owes: who asked for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owed {
    pub(super) to: Principal,
    pub(super) object: ObjectId,
    pub(super) op: Op,
    pub(super) version: Version,
}

/// What a server has acknowledged and not yet signed. Volatile: a client that lacks a signature asks again.
#[derive(Debug, Default)]
pub(super) struct Debts {
    list: VecDeque<Owed>,
}

impl Debts {
    /// Notes a signature. False: there are too many.
    pub(super) fn add(&mut self, owed: Owed) -> bool {
        if self.list.contains(&owed) {
            return true;
        }
        let room = self.list.len() < OWED_MAX;
        if room {
            self.list.push_back(owed);
        }
        room
    }

    pub(super) fn pop(&mut self) -> Option<Owed> {
        self.list.pop_front()
    }

    pub(super) fn clear(&mut self) {
        self.list.clear();
    }
}

impl Register {
    /// ACK: this server holds the version. False: it belongs to nothing.
    pub(super) fn acknowledged(
        &mut self,
        from: ServerId,
        op: Op,
        version: Version,
        cx: &mut Context<'_>,
    ) -> bool {
        if !cx.settings.late {
            return false;
        }
        match &mut self.state {
            State::Write { round, version: mine, holders, .. } if op == round.op() && version == *mine => {
                holders.insert(from);
                self.finish_write(cx);
                true
            }
            State::WriteBack { round, read, holders, .. }
                if op == round.op() && version == read.pcert.version =>
            {
                // The first phase of a strong write needs the signatures themselves.
                if self.value.is_none() {
                    round.answered(from);
                    holders.insert(from);
                    self.finish_write_back(cx);
                }
                true
            }
            _ => self.certifying.as_ref().is_some_and(|write| op == write.op && version == write.version),
        }
    }

    /// WRITE-REPLY for a write that has completed. None: it is not.
    pub(super) fn signed_late(
        &mut self,
        from: ServerId,
        op: Op,
        version: Version,
        signature: &Signature,
        cx: &mut Context<'_>,
    ) -> Option<()> {
        let write = self.certifying.as_mut().filter(|write| op == write.op && version == write.version)?;
        write.signed.add(from, &Statement::Stored(version), signature, cx);
        if write.signed.len() >= cx.q() {
            let signatures = write.signed.quorum(cx.q());
            self.certifying = None;
            self.certified(WriteCert { version, signatures }, cx);
            if matches!(self.state, State::Certify) {
                self.start_write(cx);
            }
        }
        Some(())
    }

    /// Asks those whose signature has not come again.
    pub(super) fn ask_for_signatures(&mut self, cx: &mut Context<'_>) {
        let Some(write) = &mut self.certifying else { return };
        if cx.settings.wrong(Mutant::LateOnce) {
            return;
        }
        let servers = cx.settings.thresholds.servers().filter(|server| !write.signed.has(*server));
        cx.out.broadcast(servers, cx.object, &write.body);
        write.wait = cx.longer(write.wait);
        cx.set_timer(Timer::Stores(cx.object), write.wait);
    }
}

//! Input of a process: through the authenticator, then to the part that it concerns.

use quorate_pbft::Now;
use quorate_pbft::step::Input;
use quorate_service::Service;
use quorate_wire::codec::Reader;
use quorate_wire::frame::Frame;
use quorate_wire::message::Message;
use quorate_wire::{Admitted, DoorError, Principal, Source, Verified};

use super::Process;
use crate::core::Core;
use crate::observer::{Observer, Part};
use crate::storage::queue::DiskQueue;
use crate::storage::store::Store;

impl<S: Service, P: Store, D: DiskQueue, C: Core> Process<S, P, D, C> {
    /// Takes one datagram, or what came as one, from `source`. Returns the sender of an authentic frame in it: a replica,
    /// if there is a frame of any.
    #[inline]
    pub(super) fn receive(
        &mut self,
        now: Now,
        source: Source,
        datagram: &[u8],
        watch: &mut impl Observer<S, P>,
    ) -> Option<Principal> {
        watch.start();
        let (mut reader, mut by, mut forged) = (Reader::new(datagram), None, 0);
        while !reader.is_empty() {
            self.counters.received += 1;
            // After a frame that cannot be parsed, the next one cannot be found.
            let frame = match Frame::take(&mut reader) {
                Ok(frame) => frame,
                Err(error) => {
                    self.core.overhear(&[]);
                    self.refuse(&DoorError::from(error), watch);
                    return by;
                }
            };
            let (sender, name) = (frame.sender, signed_in(&frame));
            if name & forged != 0 {
                self.refuse(&DoorError::TooManySignatures(sender), watch);
                continue;
            }
            match self.admit(now, source, &frame, watch) {
                Ok(()) if !matches!(by, Some(Principal::Replica(_))) => by = Some(sender),
                // A correct node passes on no wrong signature, and each look at one takes several hashes (A5). In other
                // names there may be frames that a correct node has passed on.
                Err(DoorError::NotAuthentic(_) | DoorError::TooManySignatures(_)) => forged |= name,
                _ => {}
            }
        }
        by
    }

    /// Takes a frame, if it is authentic.
    #[inline]
    fn admit(
        &mut self,
        now: Now,
        source: Source,
        frame: &Frame<'_>,
        watch: &mut impl Observer<S, P>,
    ) -> Result<(), DoorError> {
        self.core.overhear(frame.bytes);
        if !self.hears_old_views {
            self.endpoint.door_mut().enter_view(self.core.replica().view());
        }
        let admitted = self.endpoint.admit(now.mono_ns, source, frame);
        watch.lap(Part::Admit);
        // By reference: a message is large to move.
        match &admitted {
            Ok(Admitted::Message(message)) => {
                watch.admitted(now, message, frame.bytes);
                self.on_message(now, message, frame.bytes, watch);
            }
            Ok(Admitted::Keys) => {}
            Err(error) => {
                self.refuse(error, watch);
                return Err(*error);
            }
        }
        Ok(())
    }

    #[cold]
    fn refuse(&mut self, why: &DoorError, watch: &mut impl Observer<S, P>) {
        *self.counters.refused.entry(why.name()).or_default() += 1;
        watch.refused(why);
    }

    /// Hands a message to the replica, or to the part of the process whose own it is.
    #[inline]
    #[allow(clippy::wildcard_enum_match_arm, reason = "all others are the replica's")]
    fn on_message(
        &mut self,
        now: Now,
        verified: &Verified<Message<'_>>,
        frame: &[u8],
        watch: &mut impl Observer<S, P>,
    ) {
        match verified.message() {
            // It would lead to more records. It comes again.
            Message::PrePrepare(_) | Message::Committed(_) | Message::Body(_) | Message::NewView(_)
                if self.disk.is_behind() =>
            {
                *self.counters.rejected.entry("disk-behind").or_default() += 1;
            }
            Message::Fetch(_)
            | Message::MetaData(_)
            | Message::Data(_)
            | Message::Collect(_)
            | Message::Probe(_) => self.on_own_message(now, verified, frame, watch),
            _ => self.feed(now, Input::Message(verified), frame, watch),
        }
    }

    /// Hands a message to the state transfer, or to another part of the process.
    #[inline(never)]
    fn on_own_message(
        &mut self,
        now: Now,
        verified: &Verified<Message<'_>>,
        frame: &[u8],
        watch: &mut impl Observer<S, P>,
    ) {
        let at = now.mono_ns;
        match (verified.sender(), verified.message()) {
            (Principal::Replica(from), Message::Fetch(question)) => {
                self.transfer(now, watch, |executor, steps| executor.on_fetch(at, from, question, steps));
            }
            (Principal::Replica(from), Message::MetaData(answer)) => {
                self.transfer_meter.note(0, frame.len(), at);
                self.transfer(now, watch, |executor, steps| executor.on_meta_data(at, from, answer, steps));
            }
            (Principal::Replica(from), Message::Data(answer)) => {
                self.transfer_meter.note(1, frame.len(), at);
                self.transfer(now, watch, |executor, steps| executor.on_data(at, from, answer, steps));
            }
            (Principal::Replica(from), Message::Collect(collected)) => {
                let directory = self.endpoint.directory();
                let has_place = |client| directory.find(Principal::from(client)).is_some();
                self.collector.take_all(from, *collected, has_place);
            }
            (Principal::Client(client), Message::Probe(probe)) => self.on_probe(now, client, *probe, watch),
            _ => self.feed(now, Input::Message(verified), frame, watch),
        }
    }
}

/// Returns the bit of the replica in whose name a signed frame is; 0 if it is in no replica's, or not signed.
#[inline]
fn signed_in(frame: &Frame<'_>) -> u64 {
    match (frame.sender, frame.auth.signature()) {
        // Anybody can write a number that no replica has: its frames are refused by that alone.
        (Principal::Replica(id), Some(_)) => 1_u64.checked_shl(id.0.into()).unwrap_or(0),
        _ => 0,
    }
}

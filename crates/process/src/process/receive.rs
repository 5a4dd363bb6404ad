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
        let (mut reader, mut by) = (Reader::new(datagram), None);
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
            if self.admit(now, source, &frame, watch) && !matches!(by, Some(Principal::Replica(_))) {
                by = Some(frame.sender);
            }
        }
        by
    }

    /// Says whether a frame was authentic.
    #[inline]
    fn admit(
        &mut self,
        now: Now,
        source: Source,
        frame: &Frame<'_>,
        watch: &mut impl Observer<S, P>,
    ) -> bool {
        self.core.overhear(frame.bytes);
        if !self.hears_old_views {
            self.endpoint.door_mut().enter_view(self.core.replica().view());
        }
        let admitted = self.endpoint.admit(now.mono_ns, source, frame);
        watch.lap(Part::Admit);
        match &admitted {
            Ok(Admitted::Message(message)) => {
                watch.admitted(now, message, frame.bytes);
                self.on_message(now, message, frame.bytes, watch);
            }
            Ok(Admitted::Keys) => {}
            Err(error) => self.refuse(error, watch),
        }
        admitted.is_ok()
    }

    #[cold]
    fn refuse(&mut self, why: &DoorError, watch: &mut impl Observer<S, P>) {
        *self.counters.refused.entry(why.name()).or_default() += 1;
        watch.refused(why);
    }

    /// Hands a message to the replica, or to the state transfer, whose own it is.
    fn on_message(
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
            // It would lead to more records. It comes again.
            (_, Message::PrePrepare(_)) if self.disk.is_behind() => {
                *self.counters.rejected.entry("disk-behind").or_default() += 1;
            }
            (Principal::Client(client), Message::Probe(probe)) => self.on_probe(now, client, *probe, watch),
            _ => self.feed(now, Input::Message(verified), frame, watch),
        }
    }
}

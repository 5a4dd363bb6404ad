//! What comes to a drive: through the authenticator, then to the part that it concerns.

use quorate_pbft::Now;
use quorate_pbft::step::Input;
use quorate_service::Service;
use quorate_wire::codec::Reader;
use quorate_wire::frame::Frame;
use quorate_wire::message::Message;
use quorate_wire::{Admitted, DoorError, Principal, Source, Verified};

use super::Drive;
use crate::core::Core;
use crate::journal::Journal;
use crate::meter::{Meter, Part};

impl<S: Service, M: Meter, J: Journal, C: Core> Drive<S, M, J, C> {
    /// Takes one datagram, which may hold many frames.
    pub fn receive(&mut self, now: Now, datagram: &[u8]) {
        self.receive_from(now, Source::UNKNOWN, datagram);
    }

    /// Takes one datagram, or what came as one, from `source`. Returns who has made a frame in it that is
    /// authentic: a replica if there is one of any.
    #[inline]
    pub fn receive_from(&mut self, now: Now, source: Source, datagram: &[u8]) -> Option<Principal> {
        self.meter.start();
        let (mut reader, mut by) = (Reader::new(datagram), None);
        while !reader.is_empty() {
            self.counters.received += 1;
            // After a frame that cannot be parsed, the next one cannot be found.
            let frame = match Frame::take(&mut reader) {
                Ok(frame) => frame,
                Err(error) => {
                    self.refuse(DoorError::from(error).name());
                    return by;
                }
            };
            let sender = frame.sender;
            if self.admit(now, source, frame) && !matches!(by, Some(Principal::Replica(_))) {
                by = Some(sender);
            }
        }
        by
    }

    /// Says whether a frame was authentic.
    #[inline]
    fn admit(&mut self, now: Now, source: Source, frame: Frame<'_>) -> bool {
        self.core.overhear(frame.bytes);
        self.door.enter_view(self.core.replica().view());
        let admitted = self.door.admit_from(now.mono_ns, source, frame);
        self.meter.lap(Part::Admit);
        match &admitted {
            Ok(Admitted::Message(message)) => self.on_message(now, message, frame.bytes),
            Ok(Admitted::Keys) => self.send_keys(),
            Err(error) => {
                self.refuse(error.name());
                if matches!(error, DoorError::NoKey(_) | DoorError::NotAuthentic(_)) {
                    self.send_keys(); // it may have missed ours (KX-2)
                }
            }
        }
        admitted.is_ok()
    }

    /// Hands a message to the replica, or to the state transfer, whose own it is.
    fn on_message(&mut self, now: Now, verified: &Verified<Message<'_>>, frame: &[u8]) {
        let at = now.mono_ns;
        match (verified.sender(), verified.message()) {
            (Principal::Replica(from), Message::Fetch(question)) => {
                self.transfer(now, |executor, steps| executor.on_fetch(at, from, question, steps));
            }
            (Principal::Replica(from), Message::MetaData(answer)) => {
                self.transfer_meter.note(0, frame.len(), at);
                self.transfer(now, |executor, steps| executor.on_meta_data(at, from, answer, steps));
            }
            (Principal::Replica(from), Message::Data(answer)) => {
                self.transfer_meter.note(1, frame.len(), at);
                self.transfer(now, |executor, steps| executor.on_data(at, from, answer, steps));
            }
            (Principal::Client(client), Message::Probe(probe)) => self.on_probe(now, client, *probe),
            _ => self.feed(now, Input::Message(verified), frame),
        }
    }
}

//! The output of a drive: sealed once, and packed by place.

use quorate_pbft::step::{Form, Lsn, Recipient};
use quorate_service::Service;
use quorate_wire::message::{RequestBody, Seal};
use quorate_wire::{Kind, Principal};

use super::Drive;
use crate::core::Core;
use crate::journal::Journal;
use crate::meter::{Meter, Part};
use crate::outbox::Posted;

impl<S: Service, M: Meter, J: Journal, C: Core> Drive<S, M, J, C> {
    /// Seals a message and puts it into the outbox.
    #[inline]
    pub(super) fn send(&mut self, to: Recipient, kind: Kind, form: Form, bytes: &[u8], after: Lsn) {
        let whom = match to {
            Recipient::All => None,
            Recipient::Replica(id) => Some(Principal::Replica(id)),
            Recipient::Client(client) => Some(Principal::from(client)),
        };
        self.frame.clear();
        let frame = match form {
            Form::Frame if kind.seal() == Seal::Signature => {
                self.door.escort(None, bytes, &mut self.frame);
                &self.frame
            }
            Form::Frame => bytes,
            Form::Body if kind == Kind::Request => {
                let own = Principal::Replica(self.id).as_client();
                if let Ok(body) = RequestBody::decode(bytes) {
                    self.door.seal_request(&body, own, true, &mut self.frame);
                }
                &self.frame
            }
            Form::Body => {
                self.door.seal(kind, whom, bytes, &mut self.frame);
                &self.frame
            }
        };
        self.counters.sent += 1;
        if C::LIES {
            let frame = frame.to_vec();
            return self.post_tampered(whom, &frame, after);
        }
        let posted = if let Some(whom) = whom {
            let place = self.directory.find(whom);
            self.counters.nowhere += u64::from(place.is_none());
            if kind == Kind::Data
                && let Some(place) = place
            {
                self.outbox.post_bulk(place, frame);
                return self.meter.lap(Part::Seal);
            }
            self.outbox.post(place.into_iter(), frame, after)
        } else {
            let own = self.id.index();
            let others = self.directory.replicas().filter(|place| place.index() != own);
            self.outbox.post(others, frame, after)
        };
        self.counters.too_long += u64::from(posted == Posted::TooLong);
        self.meter.lap(Part::Seal);
    }
}

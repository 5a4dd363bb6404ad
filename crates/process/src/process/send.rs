//! Output of a process: sealed once, held until its record is durable, and packed by place.

use quorate_pbft::step::{Form, Lsn, Recipient};
use quorate_service::Service;
use quorate_wire::frame::FRAME_BYTES_MAX;
use quorate_wire::message::{RequestBody, Seal};
use quorate_wire::{Kind, Principal};

use super::Process;
use crate::core::Core;
use crate::endpoint::{HeldFrame, Place};
use crate::observer::{Observer, Part};
use crate::storage::queue::DiskQueue;
use crate::storage::store::Store;

impl<S: Service, P: Store, D: DiskQueue, C: Core> Process<S, P, D, C> {
    /// Seals a message, and lets it go or holds it (GC-1, I11).
    #[inline]
    pub(super) fn send(
        &mut self,
        to: Recipient,
        kind: Kind,
        form: Form,
        bytes: &[u8],
        after: Lsn,
        watch: &mut impl Observer<S, P>,
    ) {
        let mut buffer = core::mem::take(&mut self.frame);
        buffer.clear();
        let door = self.endpoint.door_mut();
        let frame = match form {
            Form::Frame if kind.seal() == Seal::Signature => {
                door.escort(None, bytes, &mut buffer);
                &buffer
            }
            Form::Frame => bytes,
            Form::Body if kind == Kind::Request => {
                let own = Principal::Replica(self.id).as_client();
                if let Ok(body) = RequestBody::decode(bytes) {
                    door.seal_request(&body, own, true, &mut buffer);
                }
                &buffer
            }
            Form::Body => {
                door.seal(kind, principal(to), bytes, &mut buffer);
                &buffer
            }
        };
        self.counters.sent += 1;
        watch.sealed(kind, frame);
        if self.endpoint.is_durable(after) {
            self.let_go(to, kind, frame, watch);
        } else {
            self.endpoint.hold(HeldFrame { after, to, kind, frame: frame.to_vec() });
        }
        self.frame = buffer;
        watch.lap(Part::Seal);
    }

    /// Puts a frame whose record is durable into the packs of its receivers.
    #[inline]
    pub(super) fn let_go(
        &mut self,
        to: Recipient,
        kind: Kind,
        frame: &[u8],
        watch: &mut impl Observer<S, P>,
    ) {
        if frame.len() > FRAME_BYTES_MAX {
            self.counters.too_long += 1;
            return;
        }
        watch.sent(to, kind, frame);
        if let Recipient::Collected { client, by } = to {
            return self.collector.take(client, by, frame);
        }
        if self.core.tampers() {
            return self.let_go_tampered(to, frame);
        }
        let has_place = match principal(to) {
            None => {
                self.endpoint.post_all(Some(self.id.index()), frame);
                true
            }
            Some(whom) if kind == Kind::Data => self.endpoint.post_bulk(whom, frame),
            Some(whom) if kind == Kind::Reply => self.endpoint.post_reply(whom, frame),
            Some(whom) => self.endpoint.post(whom, frame),
        };
        self.counters.nowhere += u64::from(!has_place);
    }

    /// The same, as the core changes the frame for each receiver.
    #[cold]
    fn let_go_tampered(&mut self, to: Recipient, frame: &[u8]) {
        let directory = self.endpoint.directory();
        let places: alloc::vec::Vec<Place> = match principal(to) {
            Some(whom) => directory.find(whom).into_iter().collect(),
            None => directory.replicas().filter(|place| place.index() != self.id.index()).collect(),
        };
        self.counters.nowhere += u64::from(places.is_empty());
        for place in places {
            let mut changed = frame.to_vec();
            if self.core.tamper(place, &mut changed) {
                self.endpoint.post_to(place, &changed);
            }
        }
    }

    /// Sends the pending NEW-KEYs of the authenticator. [`Self::step`] does so at its end.
    #[inline]
    pub fn send_keys(&mut self, watch: &mut impl Observer<S, P>) {
        while let Some((to, frame)) = self.endpoint.take_keys() {
            let to = match to {
                Principal::Replica(id) => Recipient::Replica(id),
                Principal::Client(client) => Recipient::Client(client),
            };
            self.let_go(to, Kind::NewKey, &frame, watch);
        }
    }
}

/// Returns the only receiver, if there is one.
#[inline]
fn principal(to: Recipient) -> Option<Principal> {
    match to {
        Recipient::All => None,
        Recipient::Replica(id) => Some(Principal::Replica(id)),
        Recipient::Client(client) | Recipient::Collected { client, .. } => Some(Principal::from(client)),
    }
}

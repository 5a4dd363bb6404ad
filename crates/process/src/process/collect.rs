//! REPLYs that go to the client by way of one replica (RP-6).

use alloc::vec::Vec;

use quorate_pbft::step::{Form, Lsn, Recipient};
use quorate_service::Service;
use quorate_wire::frame::PACKED_BYTES_MAX;
use quorate_wire::message::Collect;
use quorate_wire::{Kind, Principal, ReplicaId};

use super::Process;
use crate::core::Core;
use crate::observer::Observer;
use crate::storage::queue::DiskQueue;
use crate::storage::store::Store;

/// Maximum length of a COLLECT's body, in bytes: with its frame it fits a datagram.
const BODY_BYTES_MAX: usize = PACKED_BYTES_MAX - 256;

impl<S: Service, P: Store, D: DiskQueue, C: Core> Process<S, P, D, C> {
    /// Passes on to other collectors, and to clients, what has come together.
    #[inline]
    pub(super) fn send_collected(&mut self, watch: &mut impl Observer<S, P>) {
        if self.collector.has_passed() {
            self.pass(watch);
        }
        if self.collector.has_ready() {
            self.answer_clients();
        }
        if self.collector.has_deadlines() {
            self.collector.trim();
        }
    }

    fn pass(&mut self, watch: &mut impl Observer<S, P>) {
        let mut passed = self.collector.swap_passed(Vec::new());
        for (index, frames) in passed.iter_mut().enumerate() {
            let mut rest = frames.as_slice();
            while !rest.is_empty() {
                let (part, after) = rest.split_at(frames_within(rest, BODY_BYTES_MAX));
                self.say_collected(ReplicaId::at(index), part, watch);
                rest = after;
            }
            frames.clear();
        }
        self.collector.swap_passed(passed);
    }

    /// Sends a COLLECT, unless the core withholds or changes it.
    fn say_collected(&mut self, to: ReplicaId, body: &[u8], watch: &mut impl Observer<S, P>) {
        let kind = Kind::Collect;
        if !self.core.is_byzantine() {
            return self.send(Recipient::Replica(to), kind, Form::Body, body, Lsn(0), watch);
        }
        let mut changed = body.to_vec();
        if self.core.answer(kind, &mut changed) {
            self.send(Recipient::Replica(to), kind, Form::Body, &changed, Lsn(0), watch);
        }
    }

    fn answer_clients(&mut self) {
        let Self { collector, endpoint, core, counters, .. } = self;
        collector.take_ready(|client, frame| {
            let whom = Principal::from(client);
            let has_place = if core.tampers() {
                let place = endpoint.directory().find(whom);
                let mut changed = frame.to_vec();
                if let Some(place) = place.filter(|place| core.tamper(*place, &mut changed)) {
                    endpoint.post_to(place, &changed);
                }
                place.is_some()
            } else {
                endpoint.post_reply(whom, frame)
            };
            counters.nowhere += u64::from(!has_place);
        });
    }
}

/// Returns the length of the frames at the front that together have at most `max` bytes; of one frame at least.
fn frames_within(frames: &[u8], max: usize) -> usize {
    let mut len = 0;
    for (frame, _) in (Collect { frames }).iter() {
        if len > 0 && len + frame.bytes.len() > max {
            return len;
        }
        len += frame.bytes.len();
    }
    frames.len()
}

//! REPLYs that go to the client by way of one replica (RP-6).

use quorate_pbft::step::{Form, Lsn, Recipient};
use quorate_service::Service;
use quorate_wire::frame::{Frame, PACKED_BYTES_MAX};
use quorate_wire::message::{Collect, Reply};
use quorate_wire::{ClientId, Kind, Principal, ReplicaId};

use super::Process;
use crate::collector::{Answer, COLLECTED_BYTES_MAX};
use crate::core::Core;
use crate::observer::Observer;
use crate::storage::queue::DiskQueue;
use crate::storage::store::Store;

/// Maximum length of a COLLECT's body, in bytes: with its frame it fits a datagram.
const BODY_BYTES_MAX: usize = PACKED_BYTES_MAX - 256;

impl<S: Service, P: Store, D: DiskQueue, C: Core> Process<S, P, D, C> {
    /// Takes a sealed REPLY of this replica that may leave, for the replica that collects.
    pub(super) fn collect(&mut self, client: ClientId, by: ReplicaId, frame: &[u8]) {
        if by != self.id {
            if let Some(passed) = self.passed.get_mut(by.index()) {
                passed.extend_from_slice(frame);
            }
            return;
        }
        let decoded = Frame::decode(frame).and_then(|frame| Reply::decode(frame.body));
        if let Ok(reply) = decoded {
            self.collector.take_own(client, reply.timestamp, Answer::of(&reply), frame);
        }
    }

    /// Takes the REPLYs of another replica. What they contain only their clients can check.
    pub(super) fn on_collect(&mut self, from: ReplicaId, collected: Collect<'_>) {
        for (frame, reply) in collected.iter() {
            let is_its_own = frame.sender == Principal::Replica(from);
            let is_for_a_client = reply.client.replica().is_none();
            let has_place = || self.endpoint.directory().find(Principal::from(reply.client)).is_some();
            if is_its_own && is_for_a_client && frame.bytes.len() <= COLLECTED_BYTES_MAX && has_place() {
                let answer = Answer::of(&reply);
                self.collector.take_other(from, reply.client, reply.timestamp, answer, frame.bytes);
            }
        }
    }

    /// Passes on to other collectors, and to clients, what has come together.
    #[inline]
    pub(super) fn send_collected(&mut self, watch: &mut impl Observer<S, P>) {
        if self.passed.iter().any(|passed| !passed.is_empty()) {
            self.pass(watch);
        }
        if self.collector.has_ready() {
            self.answer_clients();
        }
        self.collector.trim();
    }

    fn pass(&mut self, watch: &mut impl Observer<S, P>) {
        for index in 0..self.passed.len() {
            let mut passed = core::mem::take(&mut self.passed[index]);
            let mut rest = passed.as_slice();
            while !rest.is_empty() {
                let (part, after) = rest.split_at(frames_within(rest, BODY_BYTES_MAX));
                self.say_collected(ReplicaId::at(index), part, watch);
                rest = after;
            }
            passed.clear();
            self.passed[index] = passed;
        }
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
                endpoint.post(whom, frame)
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

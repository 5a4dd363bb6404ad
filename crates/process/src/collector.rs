//! Collects the REPLYs of all replicas to one request, so that they reach the client in one datagram (RP-6).
//!
//! What it passes on it cannot check: each REPLY is sealed for its client, which judges every one by itself. So a
//! Byzantine collector can be silent or late and nothing else, and a frame that a Byzantine replica has spoiled fails
//! at the client.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use quorate_wire::frame::Frame;
use quorate_wire::message::{Collect, Reply};
use quorate_wire::{ClientId, Cluster, Digest, Principal, ReplicaId, Timestamp, ViewNum};

/// How long this replica's own REPLY waits for those of the others, in nanoseconds.
const OWN_NS: u64 = 1_000_000;
/// How long the REPLYs of others wait for this replica's own, in nanoseconds.
const EARLY_NS: u64 = 5_000_000;
/// Maximum number of REPLYs of one replica that wait for this replica's own.
const EARLY_MAX: usize = 4096;
/// Maximum number of lanes.
const LANES_MAX: usize = 1 << 16;
/// Maximum number of buffers that are kept for reuse.
const SPARE_MAX: usize = 4096;
/// Maximum length of a frame that is collected, in bytes: the REPLY has no result, or a short one.
const COLLECTED_BYTES_MAX: usize = 1 << 10;
/// Maximum length of the buffer of what is ready that is kept, in bytes.
const READY_BYTES_MAX: usize = 1 << 20;
/// Maximum length of a buffer that is kept for reuse, in bytes.
const SPARE_BYTES_MAX: usize = 8 << 10;

/// The content of a REPLY, without its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Answer {
    view: ViewNum,
    tentative: bool,
    digest: Digest,
}

impl Answer {
    fn of(reply: &Reply<'_>) -> Self {
        Self { view: reply.view, tentative: reply.tentative, digest: reply.digest }
    }
}

/// The frames of several replicas, one of each.
#[derive(Debug, Default)]
struct Frames {
    bytes: Vec<u8>,
    /// Each with the end of its bytes.
    list: Vec<(ReplicaId, Answer, usize)>,
}

impl Frames {
    fn clear(&mut self) {
        self.bytes.clear();
        self.list.clear();
    }

    fn has(&self, from: ReplicaId) -> bool {
        self.list.iter().any(|(other, ..)| *other == from)
    }

    fn push(&mut self, from: ReplicaId, answer: Answer, frame: &[u8]) {
        self.bytes.extend_from_slice(frame);
        self.list.push((from, answer, self.bytes.len()));
    }

    /// Returns the frames. One that was sent already is empty.
    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        self.list.iter().filter_map(move |(.., end)| {
            let frame = self.bytes.get(start..*end);
            start = *end;
            frame
        })
    }

    /// Returns whether the client will be certain: of the table of CL-6 to CL-8, the rows that need a quorum.
    fn are_enough(&self, cluster: Cluster, own: Answer) -> bool {
        let same = self.list.iter().filter(|(_, answer, _)| answer.digest == own.digest);
        let of_view = same.clone().filter(|(_, answer, _)| answer.view == own.view).count();
        let final_ones = same.filter(|(_, answer, _)| !answer.tentative).count();
        of_view.max(final_ones) >= cluster.quorum()
    }
}

/// How far the collection of a lane's request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It waits for REPLYs of others.
    Waits,
    /// It has waited long enough: what was here has been sent, and what comes goes on by itself.
    Sent,
    /// A quorum has been sent.
    Done,
}

/// The last request of a lane that this replica has a REPLY to.
#[derive(Debug)]
struct Lane {
    timestamp: Timestamp,
    own: Answer,
    stage: Stage,
    frames: Frames,
}

type Deadlines = VecDeque<(u64, ClientId, Timestamp)>;

/// Takes the first one if the condition holds.
fn pop_if(
    queue: &mut Deadlines,
    holds: impl Fn(u64, ClientId, Timestamp) -> bool,
) -> Option<(ClientId, Timestamp)> {
    let (at, client, timestamp) = *queue.front()?;
    if !holds(at, client, timestamp) {
        return None;
    }
    queue.pop_front();
    Some((client, timestamp))
}

/// The REPLYs that wait for others. See the module.
#[derive(Debug)]
pub(crate) struct Collector {
    id: ReplicaId,
    cluster: Cluster,
    now: u64,
    lanes: BTreeMap<ClientId, Lane>,
    /// The lanes in the order in which they came, for the bound.
    order: VecDeque<ClientId>,
    /// REPLYs of others to requests that this replica has not replied to.
    early: BTreeMap<(ClientId, Timestamp), Frames>,
    /// How many of them each replica has here.
    early_of: Vec<usize>,
    /// When lanes have waited long enough, and early REPLYs have.
    until: Deadlines,
    early_until: Deadlines,
    /// This replica's REPLYs for the collectors, by replica.
    passed: Vec<Vec<u8>>,
    /// Whether there are any.
    has_passed: bool,
    /// Buffers for reuse.
    spare: Vec<Frames>,
    /// What goes to clients: the bytes, and for each frame its receiver and end.
    bytes: Vec<u8>,
    ready: Vec<(ClientId, usize)>,
}

impl Collector {
    pub(crate) fn new(id: ReplicaId, cluster: Cluster) -> Self {
        Self {
            id,
            cluster,
            now: 0,
            lanes: BTreeMap::new(),
            order: VecDeque::new(),
            early: BTreeMap::new(),
            early_of: alloc::vec![0; cluster.n()],
            until: VecDeque::new(),
            early_until: VecDeque::new(),
            passed: alloc::vec![Vec::new(); cluster.n()],
            has_passed: false,
            spare: Vec::new(),
            bytes: Vec::new(),
            ready: Vec::new(),
        }
    }

    /// Tells it the time.
    #[inline]
    pub(crate) fn set_time(&mut self, mono_ns: u64) {
        self.now = mono_ns;
    }

    /// Takes a sealed REPLY of this replica that may leave, for the replica that collects.
    pub(crate) fn take(&mut self, client: ClientId, by: ReplicaId, frame: &[u8]) {
        if by != self.id {
            if let Some(passed) = self.passed.get_mut(by.index()) {
                passed.extend_from_slice(frame);
                self.has_passed = true;
            }
            return;
        }
        let decoded = Frame::decode(frame).and_then(|frame| Reply::decode(frame.body));
        if let Ok(reply) = decoded {
            self.take_own(client, reply.timestamp, Answer::of(&reply), frame);
        }
    }

    /// Takes the REPLYs of another replica. What they contain only their clients can check.
    pub(crate) fn take_all(
        &mut self,
        from: ReplicaId,
        collected: Collect<'_>,
        has_place: impl Fn(ClientId) -> bool,
    ) {
        for (frame, reply) in collected.iter() {
            let is_its_own = frame.sender == Principal::Replica(from);
            let is_for_a_client = reply.client.replica().is_none();
            let is_short = frame.bytes.len() <= COLLECTED_BYTES_MAX;
            if is_its_own && is_for_a_client && is_short && has_place(reply.client) {
                self.take_other(from, reply.client, reply.timestamp, Answer::of(&reply), frame.bytes);
            }
        }
    }

    /// Returns whether there are REPLYs of this replica for another collector.
    #[inline]
    pub(crate) fn has_passed(&self) -> bool {
        self.has_passed
    }

    /// Returns the REPLYs of this replica for the collectors, by replica, and keeps these buffers from then on.
    pub(crate) fn swap_passed(&mut self, buffers: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        self.has_passed = false;
        core::mem::replace(&mut self.passed, buffers)
    }

    /// Takes this replica's own REPLY.
    fn take_own(&mut self, client: ClientId, timestamp: Timestamp, own: Answer, frame: &[u8]) {
        let early = self.early.remove(&(client, timestamp));
        for (from, ..) in early.iter().flat_map(|frames| &frames.list) {
            self.early_of[from.index()] -= 1;
        }
        let mut frames = early.unwrap_or_else(|| self.spare.pop().unwrap_or_default());
        if frame.len() > COLLECTED_BYTES_MAX {
            // It needs a datagram of its own in any case. Nothing keeps its bytes.
            self.pass_on(client, frame);
            frames.push(self.id, own, &[]);
        } else {
            frames.push(self.id, own, frame);
        }
        let stage = Stage::Waits;
        if self.lanes.len() >= LANES_MAX && !self.lanes.contains_key(&client) {
            self.forget_oldest();
        }
        let before = self.lanes.insert(client, Lane { timestamp, own, stage, frames });
        match before {
            None => self.order.push_back(client),
            Some(lane) => {
                // The request was undone and has run again, in another view: the others' REPLYs still count.
                if lane.timestamp == timestamp && lane.stage == Stage::Waits {
                    self.merge(client, &lane.frames);
                }
                self.recycle(lane.frames);
            }
        }
        self.until.push_back((self.now.saturating_add(OWN_NS), client, timestamp));
        self.judge(client);
    }

    /// Takes the REPLY of another replica. It is from the one that its frame names.
    fn take_other(
        &mut self,
        from: ReplicaId,
        client: ClientId,
        timestamp: Timestamp,
        answer: Answer,
        frame: &[u8],
    ) {
        match self.lanes.get_mut(&client) {
            Some(lane) if timestamp < lane.timestamp => {} // nobody waits for it
            Some(lane) if timestamp == lane.timestamp => match lane.stage {
                Stage::Done if answer == lane.own => {}
                Stage::Waits if !lane.frames.has(from) => {
                    lane.frames.push(from, answer, frame);
                    self.judge(client);
                }
                Stage::Sent if !lane.frames.has(from) => {
                    lane.frames.push(from, answer, &[]);
                    if lane.frames.are_enough(self.cluster, lane.own) {
                        lane.stage = Stage::Done;
                    }
                    self.pass_on(client, frame);
                }
                Stage::Waits | Stage::Sent | Stage::Done => self.pass_on(client, frame),
            },
            _ => self.keep_early(from, client, timestamp, answer, frame),
        }
    }

    fn keep_early(
        &mut self,
        from: ReplicaId,
        client: ClientId,
        timestamp: Timestamp,
        answer: Answer,
        frame: &[u8],
    ) {
        let is_full = self.early_of[from.index()] >= EARLY_MAX;
        if is_full || self.early.get(&(client, timestamp)).is_some_and(|frames| frames.has(from)) {
            return self.pass_on(client, frame);
        }
        self.early_of[from.index()] += 1;
        let Self { early, spare, early_until, now, .. } = self;
        let frames = early.entry((client, timestamp)).or_insert_with(|| {
            early_until.push_back((now.saturating_add(EARLY_NS), client, timestamp));
            spare.pop().unwrap_or_default()
        });
        frames.push(from, answer, frame);
    }

    /// Adds to a lane what others have said of the same request before.
    fn merge(&mut self, client: ClientId, older: &Frames) {
        let Some(lane) = self.lanes.get_mut(&client) else { return };
        for ((from, answer, _), frame) in older.list.iter().zip(older.iter()) {
            if !lane.frames.has(*from) {
                lane.frames.push(*from, *answer, frame);
            }
        }
    }

    /// Sends what a lane has, once it is enough for the client.
    fn judge(&mut self, client: ClientId) {
        let Some(lane) = self.lanes.get_mut(&client) else { return };
        if lane.stage == Stage::Waits && lane.frames.are_enough(self.cluster, lane.own) {
            lane.stage = Stage::Done;
            let frames = core::mem::take(&mut lane.frames);
            frames.iter().for_each(|frame| self.pass_on(client, frame));
            self.recycle(frames);
        }
    }

    fn recycle(&mut self, mut frames: Frames) {
        if self.spare.len() < SPARE_MAX && frames.bytes.capacity() <= SPARE_BYTES_MAX {
            frames.clear();
            self.spare.push(frames);
        }
    }

    fn pass_on(&mut self, client: ClientId, frame: &[u8]) {
        if !frame.is_empty() {
            self.bytes.extend_from_slice(frame);
            self.ready.push((client, self.bytes.len()));
        }
    }

    fn forget_oldest(&mut self) {
        if let Some(client) = self.order.pop_front() {
            self.give_up(client);
            self.lanes.remove(&client);
        }
    }

    /// Sends what a lane has: it has waited long enough.
    fn give_up(&mut self, client: ClientId) {
        let Some(lane) = self.lanes.get_mut(&client).filter(|lane| lane.stage == Stage::Waits) else {
            return;
        };
        lane.stage = Stage::Sent;
        for frame in lane.frames.iter().filter(|frame| !frame.is_empty()) {
            self.bytes.extend_from_slice(frame);
            self.ready.push((client, self.bytes.len()));
        }
        // Its buffer may be there for as long as the lane.
        lane.frames.bytes = Vec::new();
    }

    /// Returns whether anything waits for long enough.
    #[inline]
    pub(crate) fn has_deadlines(&self) -> bool {
        !self.until.is_empty() || !self.early_until.is_empty()
    }

    /// Returns when [`Self::expire`] is due.
    #[inline]
    pub(crate) fn deadline(&self) -> u64 {
        let first = |queue: &Deadlines| queue.front().map_or(u64::MAX, |(at, ..)| *at);
        first(&self.until).min(first(&self.early_until))
    }

    /// Sends what has waited long enough.
    pub(crate) fn expire(&mut self) {
        let now = self.now;
        while let Some((client, timestamp)) = pop_if(&mut self.until, |at, _, _| at <= now) {
            if self.lanes.get(&client).is_some_and(|lane| lane.timestamp == timestamp) {
                self.give_up(client);
            }
        }
        while let Some((client, timestamp)) = pop_if(&mut self.early_until, |at, _, _| at <= now) {
            let Some(frames) = self.early.remove(&(client, timestamp)) else { continue };
            for ((from, ..), frame) in frames.list.iter().zip(frames.iter()) {
                self.early_of[from.index()] -= 1;
                self.bytes.extend_from_slice(frame);
                self.ready.push((client, self.bytes.len()));
            }
            self.recycle(frames);
        }
    }

    /// Drops what has been sent from the front of what waits, so that nobody wakes up for it.
    pub(crate) fn trim(&mut self) {
        let Self { lanes, until, early, early_until, .. } = self;
        let waits = |client: &ClientId, timestamp: Timestamp| {
            lanes.get(client).is_some_and(|lane| lane.stage == Stage::Waits && lane.timestamp == timestamp)
        };
        while pop_if(until, |_, client, timestamp| !waits(&client, timestamp)).is_some() {}
        while pop_if(early_until, |_, client, timestamp| !early.contains_key(&(client, timestamp))).is_some()
        {
        }
    }

    /// Returns whether there are frames for clients.
    #[inline]
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Passes the frames for clients to `send`, those of one client one after the other.
    pub(crate) fn take_ready(&mut self, mut send: impl FnMut(ClientId, &[u8])) {
        let mut start = 0;
        for (client, end) in self.ready.drain(..) {
            send(client, self.bytes.get(start..end).unwrap_or(&[]));
            start = end;
        }
        self.bytes.clear();
        self.bytes.shrink_to(READY_BYTES_MAX);
    }
}

#[cfg(test)]
mod tests;

//! The primary's queue of requests, and the numbers that it assigns ([OSDI99 §4.2] on buffering requests; spec §5.2).

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use quorate_wire::batch::Batch;
use quorate_wire::id::{ClientId, SeqNum};
use quorate_wire::pool::BatchPool;

use crate::io::config::MS;

/// A client counts as served for this time after its last request was proposed, in nanoseconds.
const SERVED_NS: u64 = 10 * MS;

/// After its pause, a long request waits for this time more until a quorum holds it, in nanoseconds.
const HELD_NS: u64 = 25 * MS;
/// The most lanes of a principal that are asked for one whose request a quorum holds.
const ASKED_MAX: usize = 8;

/// The lanes of a principal that wait. Those with requests longer than a datagram wait apart: they have pauses (PR-8).
#[derive(Debug, Default)]
struct Lanes {
    short: VecDeque<u16>,
    long: VecDeque<u16>,
    /// A bit for each lane that is in one of them.
    waiting: Vec<u64>,
    /// The last turn was one of the long ones.
    long_last: bool,
    /// While others are served, the next of the long ones has its turn at this time.
    pause_until: u64,
}

impl Lanes {
    fn is_empty(&self) -> bool {
        self.short.is_empty() && self.long.is_empty()
    }

    /// Notes whether a lane waits. Returns whether that is news.
    fn note(&mut self, lane: u16, waits: bool) -> bool {
        let (at, bit) = (usize::from(lane / 64), 1 << (lane % 64));
        if self.waiting.len() <= at {
            self.waiting.resize(at + 1, 0);
        }
        let before = self.waiting[at];
        self.waiting[at] = if waits { before | bit } else { before & !bit };
        before != self.waiting[at]
    }
}

/// The lanes whose request is not in a proposal yet, by principal. Principals take turns, and the lanes of one take
/// turns with its turns (PR-3): a principal with many lanes has no more of the primary than others. A lane is there once,
/// since it has one request outstanding (CL-1); so it is never longer than the table of lanes.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// Principals with lanes that wait, in the order of their turns.
    turns: VecDeque<u64>,
    /// Their lanes. What is empty stays, for the memory: one a principal.
    lanes: BTreeMap<u64, Lanes>,
    /// How many lanes wait, and how many of them with long requests.
    len: usize,
    long_len: usize,
    /// The principal that was served last, and the last one that was served before it, and when.
    served: [(u64, u64); 2],
}

impl Queue {
    fn push(&mut self, client: ClientId, long: bool) {
        let lanes = self.lanes.entry(client.principal()).or_default();
        if lanes.is_empty() {
            self.turns.push_back(client.principal());
        }
        if lanes.note(client.lane(), true) {
            if long { &mut lanes.long } else { &mut lanes.short }.push_back(client.lane());
            self.len += 1;
            self.long_len += usize::from(long);
        }
    }

    /// Returns the lane whose turn it is, and the place of its principal in the order of turns. `is_held` says whether a
    /// quorum holds the request of a lane.
    pub(crate) fn next(&self, now: u64, is_held: impl Fn(ClientId) -> bool) -> Option<(usize, ClientId)> {
        self.turns.iter().enumerate().find_map(|(place, principal)| {
            let lanes = self.lanes.get(principal)?;
            let long = self.next_long(*principal, lanes, now, &is_held);
            let short = lanes.short.front();
            let lane = if lanes.long_last { short.or(long) } else { long.or(short) };
            Some((place, ClientId::new(*principal, *lane?)))
        })
    }

    /// Returns the lane of a principal whose long request has the next turn: the first one, or, while others are served, one
    /// that a quorum holds. A proposal with a body that others lack would keep all that come after it waiting (SR-3).
    fn next_long<'a>(
        &self,
        principal: u64,
        lanes: &'a Lanes,
        now: u64,
        is_held: impl Fn(ClientId) -> bool,
    ) -> Option<&'a u16> {
        let first = lanes.long.front()?;
        let [held_at, at] = self.pauses_of(principal, lanes);
        if now >= at {
            return Some(first);
        }
        let mut asked = lanes.long.iter().take(if now >= held_at { ASKED_MAX } else { 0 });
        asked.find(|lane| is_held(ClientId::new(principal, **lane)))
    }

    /// Returns when a principal's long requests may have a turn, those that a quorum holds and others: after the pause, or
    /// when nobody else is served.
    fn pauses_of(&self, principal: u64, lanes: &Lanes) -> [u64; 2] {
        let [last, before] = self.served;
        let others_at = if last.0 == principal { before.1 } else { last.1 };
        [0, HELD_NS].map(|wait| (lanes.pause_until + wait).min(others_at + SERVED_NS))
    }

    /// Returns when the next lane has its turn, if all that wait have a pause.
    fn pause_until(&self, now: u64, is_held: impl Fn(ClientId) -> bool) -> Option<u64> {
        // Only long requests have pauses.
        if self.long_len == 0 || self.next(now, is_held).is_some() {
            return None;
        }
        let pauses = |principal: &u64| Some(self.pauses_of(*principal, self.lanes.get(principal)?));
        self.turns.iter().filter_map(pauses).flatten().filter(|at| *at > now).min()
    }

    /// Returns whether `count` lanes wait that have no pause.
    fn has(&self, count: usize, now: u64) -> bool {
        if self.len < count || self.long_len == 0 {
            return self.len >= count;
        }
        let long = self.lanes.iter().filter(|(_, lanes)| !lanes.long.is_empty());
        let paused = long.filter(|(principal, lanes)| now < self.pauses_of(**principal, lanes)[0]);
        self.len - paused.map(|(_, lanes)| lanes.long.len()).sum::<usize>() >= count
    }

    /// Takes the lane away that [`Self::next`] has returned. Its turn is not used: it has nothing to propose.
    pub(crate) fn skip(&mut self, (place, client): (usize, ClientId)) {
        if !self.take(client) {
            self.turns.remove(place);
        }
    }

    /// Takes the lane away that [`Self::next`] has returned, with a request of `bytes` and a pause of `pause_ns` after that.
    /// The turn goes on to the next principal.
    pub(crate) fn serve(&mut self, (place, client): (usize, ClientId), now: u64, pause_ns: u64) {
        let principal = client.principal();
        let more = self.take(client);
        self.turns.remove(place);
        if more {
            self.turns.push_back(principal);
        }
        if self.served[0].0 != principal {
            self.served[1] = self.served[0];
        }
        self.served[0] = (principal, now);
        if let Some(lanes) = self.lanes.get_mut(&principal).filter(|_| pause_ns > 0) {
            lanes.pause_until = now.saturating_add(pause_ns);
        }
    }

    /// Takes a lane away. Says whether its principal has more.
    fn take(&mut self, client: ClientId) -> bool {
        let Some(lanes) = self.lanes.get_mut(&client.principal()) else { return false };
        let long = lanes.long.iter().position(|lane| *lane == client.lane());
        lanes.long_last = long.is_some();
        let taken = if let Some(at) = long { lanes.long.remove(at) } else { lanes.short.pop_front() };
        self.len -= usize::from(taken.is_some_and(|lane| lanes.note(lane, false)));
        self.long_len -= usize::from(lanes.long_last);
        !lanes.is_empty()
    }
}

/// The queue, the memory of batches, and the last number assigned.
#[derive(Debug)]
pub(crate) struct Batcher {
    queue: Queue,
    pool: BatchPool,
    /// The last number assigned by this replica as primary, or fixed by the NEW-VIEW.
    assigned: SeqNum,
    /// The latest choice in a proposal of this view, whether of its NEW-VIEW or proposed here (ND-1).
    choice: u64,
    /// Waiting requests may be proposed once the burst has ended.
    owes: bool,
    /// The number of requests in the last batch.
    last_len: usize,
    /// When the timer for pauses runs out.
    wakes_at: u64,
}

impl Batcher {
    /// Returns an empty queue.
    pub(crate) fn new(window: u64) -> Self {
        let pooled = usize::try_from(window).unwrap_or(usize::MAX).saturating_mul(2);
        Self {
            queue: Queue::default(),
            pool: BatchPool::new(pooled),
            assigned: SeqNum(0),
            choice: 0,
            owes: false,
            last_len: 0,
            wakes_at: 0,
        }
    }

    /// Appends a lane whose request is new, unless it waits already.
    pub(crate) fn push(&mut self, client: ClientId, long: bool) {
        self.queue.push(client, long);
    }

    /// Returns when the next lane has its turn, if all that wait have a pause, and if that was not returned before.
    pub(crate) fn pause_until(&mut self, now: u64, is_held: impl Fn(ClientId) -> bool) -> Option<u64> {
        let until = self.queue.pause_until(now, is_held)?;
        (core::mem::replace(&mut self.wakes_at, until) != until).then_some(until)
    }

    /// Returns whether no lane waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.turns.is_empty()
    }

    /// Notes that waiting requests may be proposed, if any wait.
    pub(crate) fn owe(&mut self) {
        self.owes = !self.is_empty();
    }

    /// Returns whether that was noted.
    #[inline]
    pub(crate) fn owes(&self) -> bool {
        self.owes
    }

    /// The burst has ended.
    pub(crate) fn end_burst(&mut self) {
        self.owes = false;
    }

    /// Returns whether as many requests wait as the last batch had: enough for a batch beside one in progress.
    pub(crate) fn has_another(&self, now: u64) -> bool {
        self.queue.has(self.last_len, now)
    }

    /// Fills a batch from the queue. Returns none where `take` finds nothing to put into it.
    pub(crate) fn fill(
        &mut self,
        take: impl FnOnce(&mut Queue, &mut Batch) -> Result<(), ()>,
    ) -> Option<Arc<Batch>> {
        let Self { queue, pool, last_len, .. } = self;
        let batch = pool.fill(|batch| take(queue, batch)).ok()?;
        *last_len = batch.len();
        Some(batch)
    }

    /// Returns the last number assigned.
    pub(crate) fn assigned(&self) -> SeqNum {
        self.assigned
    }

    /// Returns the latest choice in a proposal of this view.
    pub(crate) fn choice(&self) -> u64 {
        self.choice
    }

    /// Assigns the next number, of a window that ends at `high`, to a batch with this choice.
    pub(crate) fn assign(&mut self, choice: u64, high: SeqNum) -> SeqNum {
        self.assigned = self.assigned.next();
        assert!(self.assigned <= high); // I8
        self.choice = self.choice.max(choice);
        self.assigned
    }

    /// Numbers up to `seq` are taken: another replica or another view assigned them.
    pub(crate) fn skip_to(&mut self, seq: SeqNum) {
        self.assigned = self.assigned.max(seq);
    }

    /// Begins a view in which numbers up to `last` are taken: the queue is empty.
    pub(crate) fn start_view(&mut self, last: SeqNum) {
        self.queue.turns.clear();
        self.queue.lanes.clear();
        (self.queue.len, self.queue.long_len, self.last_len, self.owes) = (0, 0, 0, false);
        self.assigned = last;
    }

    /// The batches that the view has taken over have no later choice than this.
    pub(crate) fn start_choice(&mut self, choice: u64) {
        self.choice = choice;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_assigned_without_a_gap() {
        let mut batcher = Batcher::new(8);
        assert_eq!([batcher.assign(5, SeqNum(8)), batcher.assign(3, SeqNum(8))], [SeqNum(1), SeqNum(2)]);
        assert_eq!(batcher.choice(), 5, "the latest");
        batcher.skip_to(SeqNum(1));
        assert_eq!(batcher.assign(0, SeqNum(8)), SeqNum(3));
        batcher.start_view(SeqNum(6));
        assert_eq!(batcher.assign(0, SeqNum(8)), SeqNum(7));
    }

    /// Serves the lane with the next turn, with a pause of 50 ms after a long request. Returns the lane.
    fn serve(queue: &mut Queue, ms: u64) -> Option<ClientId> {
        let turn = queue.next(ms * MS, |client| client.lane() == 2)?;
        let long = queue.lanes[&turn.1.principal()].long.contains(&turn.1.lane());
        queue.serve(turn, ms * MS, if long { 50 * MS } else { 0 });
        Some(turn.1)
    }

    /// CL-1: a lane waits once, and may wait again when it has had its turn.
    #[test]
    fn a_lane_waits_once() {
        let mut queue = Queue::default();
        let lanes = [0, 63, 64, u16::MAX].map(|lane| ClientId::new(1, lane));
        for ms in [1_000, 2_000] {
            for lane in lanes.into_iter().chain(lanes) {
                queue.push(lane, lane.lane() == 64);
            }
            assert_eq!(queue.len, lanes.len());
            assert!(lanes.map(|_| serve(&mut queue, ms)).iter().all(Option::is_some));
            assert_eq!((queue.len, queue.long_len, serve(&mut queue, ms)), (0, 0, None));
        }
    }

    /// PR-8: after a long request its client's other long ones have a pause, while others are served; its short ones do not.
    #[test]
    fn long_requests_have_pauses_while_others_are_served() {
        let [a, b] = [1, 2].map(|principal| move |lane| ClientId::new(principal, lane));
        let mut queue = Queue::default();
        (0..3).for_each(|lane| queue.push(a(lane), true));
        queue.push(a(3), false);
        (0..13).for_each(|lane| queue.push(b(lane), false));
        let mut at = |moments: &[u64]| -> Vec<_> {
            moments.iter().map(|ms| serve(&mut queue, *ms).unwrap()).collect()
        };
        assert_eq!(at(&[1_000; 6]), [a(0), b(0), a(3), b(1), b(2), b(3)]);
        assert_eq!(at(&[1_008, 1_016, 1_024, 1_032, 1_040, 1_048]), [4, 5, 6, 7, 8, 9].map(b));
        assert_eq!(at(&[1_050; 2]), [a(2), b(10)], "others hold it");
        assert!(queue.has(2, 1_050 * MS) && !queue.has(3, 1_050 * MS), "those of b");
        // Nobody else is served for 10 ms.
        (0..2).for_each(|_| _ = serve(&mut queue, 1_055));
        assert_eq!(queue.next(1_055 * MS, |_| true), None);
        assert_eq!(queue.pause_until(1_055 * MS, |_| true), Some(1_065 * MS));
        assert_eq!((serve(&mut queue, 1_065), queue.len), (Some(a(1)), 0));
    }

    /// I8.
    #[test]
    #[should_panic(expected = "assigned <= high")]
    fn i8_no_number_above_the_window() {
        Batcher::new(8).assign(0, SeqNum(0));
    }
}

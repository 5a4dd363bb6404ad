//! Tests of the collector.

use super::*;
use alloc::string::{String, ToString};

const T: Timestamp = Timestamp(9);

fn lane(principal: u64) -> ClientId {
    ClientId::new(principal, 0)
}

fn answer(fill: u8) -> Answer {
    Answer { view: ViewNum(2), tentative: true, digest: Digest([fill; 32]) }
}

/// r1's, of four.
fn collector() -> Collector {
    Collector::new(ReplicaId(1), Cluster::tolerating(1).unwrap())
}

impl Collector {
    fn own(&mut self, answer: Answer) {
        self.take_own(lane(1), T, answer, b"1");
    }

    fn other(&mut self, from: u16, answer: Answer) {
        self.take_other(ReplicaId(from), lane(1), T, answer, from.to_string().as_bytes());
    }

    /// What goes to clients, in order.
    fn sent(&mut self) -> String {
        let mut sent = String::new();
        self.take_ready(|client, frame| {
            assert_eq!(client, lane(1));
            sent += core::str::from_utf8(frame).unwrap();
        });
        self.trim();
        sent
    }
}

#[test]
fn a_quorum_of_equal_replies_goes_at_once_and_the_last_nowhere() {
    let mut c = collector();
    c.other(3, answer(7));
    c.own(answer(7));
    assert_eq!(c.sent(), "");
    c.other(0, answer(7));
    assert_eq!(c.sent(), "310");
    c.other(2, answer(7));
    assert_eq!((c.sent().as_str(), c.deadline()), ("", u64::MAX));
}

/// With a digest of its own, another view, or in place of one that has come already, a liar adds nothing.
#[test]
fn replies_that_do_not_agree_do_not_make_a_quorum() {
    let mut c = collector();
    c.own(answer(7));
    c.other(0, answer(8));
    c.other(2, Answer { view: ViewNum(3), ..answer(7) });
    c.other(3, answer(7));
    assert_eq!(c.sent(), "");
    c.other(3, answer(7));
    assert_eq!(c.sent(), "3", "a second one of a replica goes on by itself");
    c.set_time(OWN_NS);
    c.expire();
    assert_eq!(c.sent(), "1023");
    assert_eq!(c.deadline(), u64::MAX);
}

#[test]
fn final_replies_of_several_views_count_together() {
    let mut c = collector();
    let at = |view| Answer { view: ViewNum(view), tentative: false, ..answer(7) };
    c.own(at(2));
    c.other(0, at(3));
    c.other(3, at(4));
    assert_eq!(c.sent(), "103");
}

/// A silent replica costs a millisecond, and a late reply goes on alone: it may be the one that the client lacks.
#[test]
fn replies_that_come_too_late_go_on_alone() {
    let mut c = collector();
    c.own(answer(7));
    c.other(0, answer(7));
    assert_eq!(c.deadline(), OWN_NS);
    c.set_time(OWN_NS);
    c.expire();
    assert_eq!(c.sent(), "10");
    c.other(3, answer(7));
    assert_eq!(c.sent(), "3");
    c.other(2, answer(7));
    assert_eq!(c.sent(), "", "the client has its quorum");
}

/// A replica that is behind passes on what others say.
#[test]
fn without_a_reply_of_its_own_the_others_go_on() {
    let mut c = collector();
    c.other(0, answer(7));
    c.other(3, answer(7));
    c.set_time(EARLY_NS - 1);
    c.expire();
    assert_eq!(c.sent(), "");
    c.set_time(EARLY_NS);
    c.expire();
    assert_eq!((c.sent().as_str(), c.deadline()), ("03", u64::MAX));
    assert_eq!(c.early_of, [0; 4]);
}

/// A liar that is ahead of everybody does not put off what others say of the request in progress.
#[test]
fn replies_to_requests_of_the_future_displace_nothing() {
    let mut c = collector();
    c.take_other(ReplicaId(2), lane(1), Timestamp(u64::MAX), answer(9), b"lie");
    c.other(0, answer(7));
    c.own(answer(7));
    c.other(3, answer(7));
    assert_eq!(c.sent(), "013");
}

#[test]
fn replies_to_earlier_requests_are_dropped() {
    let mut c = collector();
    c.own(answer(7));
    c.take_other(ReplicaId(2), lane(1), Timestamp(T.0 - 1), answer(7), b"old");
    assert_eq!(c.sent(), "");
}

/// After a view change the request runs again; what others have said of it in the new view is not lost.
#[test]
fn a_request_that_runs_again_is_collected_again() {
    let mut c = collector();
    let again = Answer { view: ViewNum(3), ..answer(7) };
    c.own(answer(7));
    c.other(0, again);
    c.other(3, again);
    assert_eq!(c.sent(), "");
    c.own(again);
    assert_eq!(c.sent(), "103");
}

/// What one replica can make this one keep is bounded, and what is over the bound is not lost.
#[test]
fn a_flood_of_one_replica_is_bounded() {
    let mut c = collector();
    let flood = u64::try_from(EARLY_MAX).unwrap() + 100;
    (0..flood).for_each(|t| c.take_other(ReplicaId(2), lane(1), Timestamp(t + 100), answer(1), b"2"));
    assert_eq!(c.sent().len(), 100);
    assert_eq!((c.early.len(), c.early_of[2]), (EARLY_MAX, EARLY_MAX));
    c.other(0, answer(7));
    c.own(answer(7));
    c.other(3, answer(7));
    assert_eq!(c.sent(), "013", "and it takes nothing from the others");
    c.set_time(EARLY_NS);
    c.expire();
    assert_eq!((c.early.len(), c.early_of[2]), (0, 0));
    assert_eq!(c.sent().len(), EARLY_MAX);
}

#[test]
fn the_oldest_lane_makes_room_and_what_it_has_is_sent() {
    let mut c = collector();
    let lanes = u64::try_from(LANES_MAX).unwrap();
    (1..=lanes + 1).for_each(|client| c.take_own(lane(client), T, answer(7), b"1"));
    assert_eq!((c.lanes.len(), c.order.len()), (LANES_MAX, LANES_MAX));
    assert_eq!(c.sent(), "1", "of the first one");
}

/// L49: a long REPLY of this replica goes on at once, and nothing keeps its bytes. It counts for the quorum.
#[test]
fn l49_a_long_reply_is_not_kept() {
    let mut c = collector();
    let long = "1".repeat(1 << 20);
    for t in 1..=100 {
        c.take_own(lane(1), Timestamp(t), answer(7), long.as_bytes());
        assert_eq!(c.sent(), long);
        c.take_other(ReplicaId(0), lane(1), Timestamp(t), answer(7), b"0");
        if t % 2 == 0 {
            c.take_other(ReplicaId(3), lane(1), Timestamp(t), answer(7), b"3");
        } else {
            c.set_time(t * 2 * OWN_NS);
            c.expire();
        }
        assert_eq!(c.sent(), if t % 2 == 0 { "03" } else { "0" });
    }
    let kept = c.spare.iter().chain(c.lanes.values().map(|lane| &lane.frames)).map(|f| f.bytes.capacity());
    assert!(kept.sum::<usize>() + c.bytes.capacity() <= READY_BYTES_MAX + 4 * SPARE_BYTES_MAX);
}

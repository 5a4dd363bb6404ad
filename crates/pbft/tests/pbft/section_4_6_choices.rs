//! [OSDI99 §4.6] Non-determinism: the time that the primary chooses for a batch (spec §7).
#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a test may panic")]

use crate::desk::{Desk, MS, R0, R1, R2, R3, c, root};
use crate::durability::confirmed;
use quorate_pbft::Reject;
use quorate_pbft::config::Durability;
use quorate_wire::id::SeqNum;
use quorate_wire::message::{Kind, PrePrepareHead};

/// The time that the last PRE-PREPARE names.
fn proposed(desk: &Desk) -> u64 {
    let (_, body) = desk.last_sent(Kind::PrePrepare).unwrap();
    quorate_pbft::choice::decode(PrePrepareHead::decode(&body).unwrap().choice).unwrap()
}

/// r1 has restarted with this state, and leads view 1.
fn leads_after_a_restart(records: Vec<Vec<u8>>, time_ns: u64) -> Desk {
    let mut desk = Desk::recorded(R1, records, time_ns, |_| {});
    confirmed(&mut desk);
    desk.suspect(R2, 0);
    desk.suspect(R3, 0);
    let mut empty = desk.empty_view_change(1);
    let stable = desk.replica.state().stable;
    (empty.stable, empty.checkpoints) = (stable, vec![(stable, root(stable))]);
    for from in [R0, R3] {
        let frame = desk.view_change(from, &empty);
        desk.frame(&frame);
    }
    assert_eq!(desk.sent(Kind::NewView), 1);
    desk
}

/// ND-1, L133: the others have executed what the fetched state reflects. They refuse an earlier time, and a primary with
/// a clock that is behind would lose its view.
#[test]
fn l133_a_primary_that_fetched_a_state_proposes_no_earlier_time() {
    let mut desk = Desk::new(R0);
    desk.agreed_ns = desk.now.wall_ns + 50 * MS;
    for from in [R2, R3] {
        desk.checkpoint(from, 12, root(SeqNum(12)), false);
    }
    desk.fetched(12);
    desk.request(c(1), 1, b"y");
    assert_eq!(proposed(&desk), desk.agreed_ns);
}

/// ND-1, L133: nor does a primary whose image reflects a later time than its clock shows.
#[test]
fn l133_a_primary_that_restarted_proposes_no_earlier_time() {
    let agreed_ns = Desk::new(R0).now.wall_ns + 50 * MS;
    let mut desk = leads_after_a_restart(vec![], agreed_ns);
    desk.request(c(1), 1, b"y");
    assert_eq!(proposed(&desk), agreed_ns);
}

/// ND-1, L133: the time of batches that a restart executes from the log counts, too.
#[test]
fn l133_what_a_restart_executes_again_has_its_time() {
    let mut before = Desk::with(R1, 4, 1, |config| config.durability = Durability::Sync);
    before.now.wall_ns += 50 * MS;
    let agreed_ns = before.now.wall_ns;
    (1..=4).for_each(|seq| _ = before.order(seq, c(0), seq, b"x"));
    for from in [R2, R3] {
        before.checkpoint(from, 4, root(SeqNum(4)), false);
    }
    let mut desk = leads_after_a_restart(before.records, 0);
    assert_eq!(desk.replica.state().executed, SeqNum(4), "from the log");
    desk.request(c(1), 1, b"y");
    assert_eq!(proposed(&desk), agreed_ns);
}

/// ND-2, L133, H8: all clocks have been set back, so batches name the last time again, and each moves the agreed time by 1 ns.
/// A primary that has begun with such a state names its time. Later times are refused.
#[test]
fn l133_backups_take_the_time_of_the_state_where_clocks_have_been_set_back() {
    for (ahead_ns, voted) in [(0, 1), (2, 1), (3, 0)] {
        let mut desk = Desk::new(R1);
        let clock = desk.now.wall_ns;
        (1..=3).for_each(|seq| _ = desk.order(seq, c(0), seq, b"x"));
        desk.forget();
        desk.now.wall_ns = clock + ahead_ns;
        let batch = desk.batch(c(1), 1, b"y");
        desk.now.wall_ns = clock - 3_600_000 * MS;
        desk.pre_prepare(R0, 0, 4, &batch);
        assert_eq!(
            (desk.sent(Kind::Prepare), desk.rejected(Reject::BadChoice)),
            (voted, voted == 0),
            "{ahead_ns}"
        );
    }
}

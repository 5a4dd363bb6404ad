//! [OSDI99 §4.5.2] Liveness: how long a replica waits, and what becomes of a timer that runs out when
//! nobody waits for it any more.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a test may panic")]

use crate::desk::{Desk, MS, R0, R1, R2, R3, c, root};
use quorate_pbft::config::{ConfigError, RequestAuth};
use quorate_pbft::step::{Input, Timer};
use quorate_pbft::{Config, Milestone};
use quorate_wire::Replies;
use quorate_wire::codec::Writer;
use quorate_wire::frame::{ENTRY_BYTES, FRAME_BYTES_MAX, Frame, HEADER_BYTES, SIGNATURE_BYTES};
use quorate_wire::id::{ReplicaId, SeqNum, ViewNum};
use quorate_wire::life::Life;
use quorate_wire::message::{
    Kind, LeaveCert, NewView, PrePrepared, Prepared, Suspect, SuspectReason, ViewChange,
};
use quorate_wire::{Cluster, ClusterId, Digest};

fn suspected(desk: &Desk, view: u64) -> bool {
    desk.said(|m| matches!(m, Milestone::Suspected { view: of, .. } if of.0 == view))
}

/// Replica 2, a backup of view 0. All requests are signed, so it times each of them at once.
fn backup() -> Desk {
    Desk::with(R2, 4, 1, |config| config.request_auth = RequestAuth::SigMac)
}

/// Two replicas that are not the desk's own leave a view, and so does everyone.
fn fail_view(desk: &mut Desk, view: u64) {
    fail_view_with(desk, view, [R1, R3]);
}

fn fail_view_with(desk: &mut Desk, view: u64, by: [ReplicaId; 2]) {
    for from in by {
        desk.suspect(from, view);
    }
    assert_eq!(desk.replica.view(), ViewNum(view + 1));
}

/// The other replicas' VIEW-CHANGEs for `view`, with nothing in them.
fn view_changes(desk: &mut Desk, view: u64, from: &[ReplicaId]) -> Vec<Vec<u8>> {
    let empty = ViewChange { leave: desk.leave_cert(view - 1, &[R1, R3]), ..desk.empty_view_change(view) };
    from.iter().map(|from| desk.view_change(*from, &empty)).collect()
}

/// "this time it will wait 2T": but neither forever nor until the number overflows, however many views
/// have failed.
#[test]
fn b29_the_wait_doubles_up_to_its_bound() {
    let bound = 60_000;
    let mut desk = Desk::with(R2, 4, 1, |config| config.view_timeout_max_ns = bound * MS);
    for view in 0..100 {
        fail_view(&mut desk, view);
    }
    // View 100 is r0's. A quorum has left for it, so the wait begins.
    for frame in view_changes(&mut desk, 100, &[R1, R3]) {
        desk.frame(&frame);
    }
    desk.pass(bound - 1);
    assert!(!suspected(&desk, 100), "it waits as long as it may");
    desk.pass(2);
    assert!(suspected(&desk, 100), "and no longer");
}

/// L35, TM-3: what was ordered before is still being executed here, and so it may be at the next primary. A service that
/// hangs is no reason to wait.
#[test]
fn l35_who_still_executes_waits_for_a_new_view() {
    for executes in [true, false] {
        let mut desk = backup();
        desk.hold_executions();
        for seq in 1..=3 {
            desk.order(seq, c(0), seq, b"x");
        }
        fail_view(&mut desk, 0);
        for frame in view_changes(&mut desk, 1, &[R1, R3]) {
            desk.frame(&frame);
        }
        desk.pass(80);
        if executes {
            desk.input(Input::Executed { seq: SeqNum(1), replies: &Replies::new(), took_ns: 0 });
        }
        desk.pass(80);
        assert_eq!(suspected(&desk, 1), !executes, "the wait was 100 ms");
        desk.pass(80);
        assert!(suspected(&desk, 1), "the next batch took longer than the wait");
    }
}

/// Time-outs are bounded by the settings, so that no sum or product of them overflows.
#[test]
fn b29_time_outs_without_a_bound_are_refused() {
    let desk = Desk::new(R2);
    let config = Config { view_timeout_max_ns: u64::MAX, ..desk.config.clone() };
    let Err(ConfigError { key, .. }) = config.check() else { panic!("584 years are too long") };
    assert_eq!(key, "view_timeout_max_ns");
}

/// Byzantine primaries of several views can propose other batches at each number of the window. The VIEW-CHANGE that
/// reports them all (VC-4) fits a frame, whatever the number of replicas: the defaults ensure this, and a larger window
/// is refused.
#[test]
fn the_longest_view_change_fits_a_frame() {
    for f in [1, 3, 4, 9, 10, 21] {
        let cluster = Cluster::tolerating(f).unwrap();
        let config = Config::new(cluster, ClusterId([1; 32]));
        config.check().unwrap();
        let (k, window) = (config.checkpoint_interval, config.window);
        assert!(
            window == 2048 || Config { window: window + k, ..config.clone() }.check().is_err(),
            "{window}"
        );
        let digest = |claim| Digest([claim; 32]);
        let suspect = Suspect { view: ViewNum(98), reason: SuspectReason::Timeout, signature: [0; 64] };
        let longest = ViewChange {
            view: ViewNum(99),
            stable: SeqNum(0),
            life: Life::default(),
            checkpoints: (0..64).map(|seq| (SeqNum(seq), digest(0))).collect(),
            prepared: (1..=window)
                .map(|seq| Prepared { seq: SeqNum(seq), digest: digest(0), view: ViewNum(0) })
                .collect(),
            pre_prepared: (1..=window)
                .map(|seq| PrePrepared {
                    seq: SeqNum(seq),
                    claims: (0..u8::try_from(f).unwrap() + 2)
                        .map(|claim| (digest(claim), ViewNum(0)))
                        .collect(),
                })
                .collect(),
            leave: LeaveCert { suspects: (0..=f).map(|replica| (ReplicaId(replica), suspect)).collect() },
        };
        let mut body = Vec::new();
        longest.encode(&mut Writer::new(&mut body));
        assert_eq!(body.len() as u64, ViewChange::body_bytes_max(cluster, window));
        let entries = cluster.n() * ENTRY_BYTES;
        assert!(HEADER_BYTES + body.len() + 16 + SIGNATURE_BYTES + entries <= FRAME_BYTES_MAX, "f = {f}");
        assert_eq!(ViewChange::decode(&body), Ok(longest));
    }
}

/// A timer may run out in the moment in which its reason ends: it is on its way already and cannot be
/// called back. It then does nothing, and the next reason is timed all the same.
#[test]
fn b30_a_timer_that_nobody_waits_for_does_nothing_and_works_again() {
    for strays in [false, true] {
        let mut desk = backup();
        let first = desk.request_frame_with(c(0), 1, b"x", false, true);
        desk.frame(&first);
        desk.pass(99);
        let batch = desk.batch_of(&[first]);
        let digest = batch.digest();
        desk.pre_prepare(R0, 0, 1, &batch);
        for from in [R1, R3] {
            desk.prepare(from, 0, 1, digest);
            desk.commit(from, 0, 1, digest);
        }
        assert_eq!(desk.executed().len(), 1);
        // The timer of the first request runs out, and so may any other.
        desk.pass(5);
        run_out(&mut desk, strays);
        assert!(!suspected(&desk, 0));
        let second = desk.request_frame_with(c(0), 2, b"y", false, true);
        desk.frame(&second);
        desk.pass(98);
        run_out(&mut desk, strays);
        assert!(!suspected(&desk, 0), "whatever ran out had been set for the first request");
        desk.pass(5);
        assert!(suspected(&desk, 0), "the second request is timed as well");
    }
}

/// Every timer runs out once, set or not, if `strays`.
fn run_out(desk: &mut Desk, strays: bool) {
    for timer in Timer::ALL.into_iter().filter(|_| strays) {
        desk.input(Input::Timer(timer));
    }
}

/// The wait for a NEW-VIEW may end in the moment in which it comes, and a request timer of the old view
/// while the new one begins: neither is held against the new primary, which is given its own time.
#[test]
fn b30_timers_of_the_view_before_are_not_held_against_the_new_primary() {
    let mut desk = backup();
    let request = desk.request_frame_with(c(0), 1, b"x", false, true);
    desk.frame(&request);
    fail_view(&mut desk, 0);
    let (_, own) = desk.last_sent(Kind::ViewChange).unwrap();
    let others = view_changes(&mut desk, 1, &[R1, R3]);
    for frame in &others {
        desk.frame(frame);
    }
    desk.pass(99);
    let named = [(R1, &others[0]), (R2, &own), (R3, &others[1])];
    let new_view = NewView {
        life: Life::default(),
        view: ViewNum(1),
        view_changes: named.map(|(from, frame)| (from, desk.digest_of(frame))).to_vec(),
        checkpoint: (SeqNum(0), root(SeqNum(0))),
        chosen: vec![],
    };
    let frame = desk.new_view(R1, &new_view);
    desk.frame(&frame);
    assert!(desk.said(|m| matches!(m, Milestone::ViewEntered { view: ViewNum(1), .. })));
    for timer in [Timer::NewView, Timer::Request, Timer::NewView, Timer::Relay] {
        desk.input(Input::Timer(timer));
    }
    assert!(!suspected(&desk, 1));
    desk.pass(90);
    assert!(!suspected(&desk, 1), "the request waits since the view began");
    desk.pass(300);
    assert!(suspected(&desk, 1));
}

/// With n = 4, f + 1 = 2f: a primary that counted the VIEW-CHANGEs of others once for joining and once for
/// deciding sent its NEW-VIEW twice. Here it sends one, in whatever order and however often they come.
#[test]
fn b14_one_new_view_for_a_view() {
    let orders = [[R0, R2, R3], [R0, R3, R2], [R2, R0, R3], [R2, R3, R0], [R3, R0, R2], [R3, R2, R0]];
    for order in orders {
        for left_first in [true, false] {
            let mut desk = Desk::new(R1);
            if left_first {
                desk.suspect(R0, 0);
            }
            let empty = desk.empty_view_change(1);
            let frames = order.map(|from| desk.view_change(from, &empty));
            for frame in frames.iter().chain(&frames) {
                desk.frame(frame);
            }
            desk.pass(50);
            assert_eq!(desk.sent(Kind::NewView), 1, "{order:?}");
            let (_, frame) = desk.last_sent(Kind::NewView).unwrap();
            let new_view = NewView::decode(Frame::decode(&frame).unwrap().body).unwrap();
            assert_eq!(new_view.view_changes.len(), 3, "a quorum and no more");
            let entered = |m: &Milestone| matches!(m, Milestone::ViewEntered { .. });
            assert!(desk.said(entered));
        }
    }
}

/// L28, LV-2: a hand-over of a later view moves nobody, and is a duplicate when it comes again. So a replica looks at what it
/// has kept when a quorum has come to that view: the others may have left it, and wait for this one.
#[test]
fn l28_a_hand_over_counts_for_those_who_come_to_the_view_later() {
    // The primary's own SUSPECT.
    let mut desk = backup();
    desk.suspect(R1, 1);
    assert_eq!(desk.replica.view(), ViewNum(0), "nobody has left view 0");
    for frame in view_changes(&mut desk, 1, &[R0, R3]) {
        desk.frame(&frame);
    }
    assert_eq!(desk.replica.view(), ViewNum(2), "a quorum has come to view 1, and r1 hands it over");
    // The VIEW-CHANGE of one that the hand-over has moved.
    let mut desk = backup();
    let moved = ViewChange { leave: desk.leave_cert(1, &[R1]), ..desk.empty_view_change(2) };
    let frame = desk.view_change(R3, &moved);
    desk.frame(&frame);
    assert_eq!(desk.replica.view(), ViewNum(0), "nobody has left view 0");
    for frame in view_changes(&mut desk, 1, &[R0]) {
        desk.frame(&frame);
    }
    assert_eq!(desk.replica.view(), ViewNum(2), "r3 has left view 1");
    let last = desk.last_sent(Kind::ViewChange).map(|(_, frame)| frame).unwrap();
    let own = ViewChange::decode(Frame::decode(&last).unwrap().body).unwrap();
    assert_eq!((own.view, own.leave), (ViewNum(2), moved.leave), "and its reason is given on");
}

/// L41, TM-3: one replica is two views ahead by hand-overs. That is too few to follow, and no quorum comes to this view any
/// more, but a quorum has left all views before it: so nobody else can end the wait.
#[test]
fn l41_view_changes_for_later_views_start_the_timer() {
    for is_ahead in [true, false] {
        let mut desk = backup();
        fail_view(&mut desk, 0);
        let mut frames = view_changes(&mut desk, 1, &[R3]);
        let ahead = ViewChange { leave: desk.leave_cert(3, &[R3]), ..desk.empty_view_change(4) };
        frames.extend(is_ahead.then(|| desk.view_change(R0, &ahead)));
        for frame in &frames {
            desk.frame(frame);
        }
        desk.pass(80);
        assert!(!suspected(&desk, 1), "the wait is 100 ms");
        desk.pass(80);
        assert_eq!(suspected(&desk, 1), is_ahead, "two of four are no quorum");
        assert_eq!(desk.replica.view(), ViewNum(1), "one that is ahead moves nobody");
    }
}

/// L41, LV-2: a replica has said that it suspects a later view, and has fallen back by a crash: that it suspects this view
/// counts all the same. So does, later, what it said first.
#[test]
fn l41_a_suspect_counts_after_one_of_a_later_view() {
    let mut desk = backup();
    desk.suspect(R3, 2);
    desk.suspect(R3, 0);
    assert_eq!(desk.replica.view(), ViewNum(0));
    desk.suspect(R1, 0);
    assert_eq!(desk.replica.view(), ViewNum(1));
    desk.suspect(R0, 2);
    assert_eq!(desk.replica.view(), ViewNum(3), "two suspect view 2");
}

/// L51, LV-2: a replica that waits for a NEW-VIEW does not leave its view for a hand-over as long as others may still need
/// its VIEW-CHANGE, which carries the only LeaveCert of f + 1 replicas. When a quorum has come to its view, it does.
#[test]
fn l51_a_hand_over_moves_nobody_who_waits_alone() {
    let waiting = || {
        let mut desk = Desk::new(R3);
        fail_view_with(&mut desk, 0, [R1, R2]);
        desk
    };
    let own_view = |desk: &Desk| {
        let (_, frame) = desk.last_sent(Kind::ViewChange).unwrap();
        ViewChange::decode(Frame::decode(&frame).unwrap().body).unwrap().view
    };
    // The primary's own SUSPECT.
    let mut desk = waiting();
    desk.suspect(R1, 1);
    assert_eq!(desk.replica.view(), ViewNum(1), "nobody else has left view 0");
    desk.forget();
    for (from, view) in [(R1, 1), (R0, 2)] {
        for frame in view_changes(&mut desk, 1, &[from]) {
            desk.frame(&frame);
        }
        assert_eq!(desk.replica.view(), ViewNum(view), "a quorum has left view 0, or not");
    }
    assert_eq!(own_view(&desk), ViewNum(2));
    // The VIEW-CHANGE of one that the hand-over has moved.
    let mut desk = waiting();
    let moved = ViewChange { leave: desk.leave_cert(1, &[R1]), ..desk.empty_view_change(2) };
    let frame = desk.view_change(R2, &moved);
    desk.frame(&frame);
    assert_eq!(desk.replica.view(), ViewNum(1), "one other has left view 0");
    for frame in view_changes(&mut desk, 1, &[R0]) {
        desk.frame(&frame);
    }
    assert_eq!((desk.replica.view(), own_view(&desk)), (ViewNum(2), ViewNum(2)));
    // f + 1 replicas are a reason at any time.
    let mut desk = waiting();
    let failed = ViewChange { leave: desk.leave_cert(1, &[R1, R2]), ..desk.empty_view_change(2) };
    let frame = desk.view_change(R2, &failed);
    desk.frame(&frame);
    assert_eq!(desk.replica.view(), ViewNum(2));
}

//! [OSDI99 §4.5.2] Liveness: whom a wait is held against. The primary, unless it is proposed and waits its turn, or
//! unless the replica that waits is itself the reason (TM-1, TM-5).
#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a test may panic")]

use crate::desk::{Desk, MS, R0, R1, R2, R3, c, root};
use quorate_pbft::Milestone;
use quorate_pbft::config::{Config, ConfigError, Durability, HOUR_NS, RequestAuth};
use quorate_pbft::step::{Input, Timer};
use quorate_wire::Batch;
use quorate_wire::id::{ClientId, ReplicaId, SeqNum, ViewNum};
use quorate_wire::message::{Bitmap, BodyMessage, Echoes, Kind, Start, Status};

/// Replica 2, a backup of view 0. All requests are signed, so it times each of them at once.
fn backup() -> Desk {
    Desk::with(R2, 4, 1, |config| config.request_auth = RequestAuth::SigMac)
}

fn suspects(desk: &Desk) -> bool {
    desk.said(|m| matches!(m, Milestone::Suspected { .. }))
}

fn says_to_have_executed(desk: &mut Desk, from: ReplicaId, counter: u64, executed: u64) {
    desk.hear(from, Kind::Status, |w| {
        Status {
            counter,
            view: ViewNum(0),
            stable: SeqNum(0),
            executed: SeqNum(executed),
            start: Start { incarnation: 1 << 20, token: 0 },
            settings: 0,
            echoes: Echoes::new(&[]),
            normal: true,
            has_new_view: false,
            prepared: Bitmap::new(&[]),
            committed: Bitmap::new(&[]),
            have: 0,
            wants: vec![],
        }
        .encode(w);
    });
}

/// A23: what is proposed waits for its turn. As long as batches are executed, however slowly, nobody is suspected.
#[test]
fn a23_a_proposed_request_waits_for_its_turn() {
    let mut desk = backup();
    let frames: Vec<Vec<u8>> = (0..6)
        .map(|lane| desk.request_frame_with(ClientId::new(c(0).principal(), lane), 1, b"x", false, true))
        .collect();
    for frame in &frames {
        desk.frame(frame);
    }
    let digests: Vec<_> = (1..)
        .zip(&frames)
        .map(|(seq, frame)| {
            let batch = desk.batch_of(std::slice::from_ref(frame));
            desk.pre_prepare(R0, 0, seq, &batch);
            (seq, batch.digest())
        })
        .collect();
    for (seq, digest) in digests {
        desk.pass(80);
        for from in [R1, R3] {
            desk.prepare(from, 0, seq, digest);
            desk.commit(from, 0, seq, digest);
        }
        assert_eq!(u64::try_from(desk.executed().len()).unwrap(), seq);
        assert!(!suspects(&desk), "the last one has waited for {} ms by now", 80 * seq);
    }
}

/// TM-1: but where nothing is executed any more, the primary is suspected, proposed or not.
#[test]
fn what_is_proposed_and_goes_nowhere_is_held_against_the_primary() {
    let mut desk = backup();
    let frame = desk.request_frame_with(c(0), 1, b"x", false, true);
    desk.frame(&frame);
    let batch = desk.batch_of(&[frame]);
    desk.pre_prepare(R0, 0, 1, &batch);
    desk.pass(101);
    assert!(suspects(&desk));
}

/// A backup whose service hangs, with this number of workers. The primary has ordered `batches` batches, which have
/// committed, and leaves out a request.
fn left_out_while_the_service_hangs(workers: u64, batches: u64) -> Desk {
    let mut desk = Desk::with(R2, 4, 1, |config| {
        (config.request_auth, config.workers, config.tentative) = (RequestAuth::SigMac, workers, false);
    });
    desk.hold_executions();
    for seq in 1..=batches {
        let frame = desk.request_frame_with(c(0), seq, b"x", false, true);
        let batch = desk.batch_of(&[frame]);
        desk.pre_prepare(R0, 0, seq, &batch);
        for from in [R1, R3] {
            desk.prepare(from, 0, seq, batch.digest());
            desk.commit(from, 0, seq, batch.digest());
        }
    }
    let frame = desk.request_frame_with(c(1), 1, b"x", false, true);
    desk.frame(&frame);
    desk.pass(150);
    desk
}

/// TM-1: workers do not keep the primary from proposing, so a primary that leaves out a request is suspected, even if a
/// worker hangs here. Without workers, it may be waiting for its own service.
#[test]
fn a_service_that_hangs_is_an_excuse_without_workers_only() {
    assert!(!suspects(&left_out_while_the_service_hangs(1, 1)));
    assert!(suspects(&left_out_while_the_service_hangs(8, 1)));
}

/// TM-1: workers that hang at many replicas keep the next checkpoint from becoming stable. A primary that has proposed
/// up to the high water mark is not suspected for that.
#[test]
fn a_window_that_is_full_because_workers_hang_is_an_excuse() {
    let mut desk = left_out_while_the_service_hangs(8, 8);
    desk.pass(2_000);
    assert!(!suspects(&desk));
}

/// A primary orders another client's requests, so that its window is always full, and ignores one request. `batch` makes
/// the batch with the n-th of the others' requests.
fn is_suspected_for_a_full_window(batch: impl Fn(&mut Desk, u64) -> Batch) {
    let mut desk = Desk::with(R2, 4, 1, |config| {
        config.request_auth = RequestAuth::SigMac;
        (config.checkpoint_interval, config.window) = (128, 256);
    });
    let pipeline = desk.config.pipeline;
    let ignored = desk.request_frame_with(c(2), 1, b"me", false, true);
    desk.frame(&ignored);
    let mut waiting = std::collections::VecDeque::new();
    for seq in 1..=20 * pipeline {
        let batch = batch(&mut desk, seq);
        desk.pre_prepare(R0, 0, seq, &batch);
        waiting.push_back((seq, batch.digest()));
        if seq > pipeline {
            let (seq, digest) = waiting.pop_front().unwrap();
            for from in [R1, R3] {
                desk.prepare(from, 0, seq, digest);
                desk.commit(from, 0, seq, digest);
            }
        }
        desk.pass(10);
        if suspects(&desk) {
            assert!(seq > 2 * pipeline, "its turn had not come");
            return;
        }
    }
    panic!("nobody minds that a client is ignored");
}

/// B8: a primary whose window is always full of others' requests is suspected all the same.
#[test]
fn b8_a_full_window_is_no_excuse_for_ever() {
    is_suspected_for_a_full_window(|desk, seq| {
        let frame = desk.request_frame_with(c(0), seq, b"friend", false, true);
        desk.batch_of(&[frame])
    });
}

/// L29: the same where the others' requests are separate: their bodies come apart from the proposals that name them.
#[test]
fn l29_separate_requests_pass_over_as_others_do() {
    is_suspected_for_a_full_window(|desk, seq| {
        let frame = desk.request_frame_with(c(0), seq, &[0; 2000], false, true);
        desk.frame(&frame);
        desk.separate_batch_of(&[frame])
    });
}

/// L29, TM-5: the primary's last STATUS shows a window that has ended, and it proposes beyond that. It lacks no CHECKPOINTs.
#[test]
fn l29_a_primary_that_proposes_on_is_at_no_end() {
    let mut desk = backup();
    says_to_have_executed(&mut desk, R0, 1, 0);
    let ignored = desk.request_frame_with(c(2), 1, b"me", false, true);
    desk.frame(&ignored);
    let (window, interval) = (desk.config.window, desk.config.checkpoint_interval);
    for seq in 1..=8 * window {
        let frame = desk.request_frame_with(c(0), seq, b"friend", false, true);
        let batch = desk.batch_of(&[frame]);
        desk.pre_prepare(R0, 0, seq, &batch);
        for from in [R1, R3] {
            desk.prepare(from, 0, seq, batch.digest());
            desk.commit(from, 0, seq, batch.digest());
        }
        if seq % interval == 0 {
            for from in [R1, R3] {
                desk.checkpoint(from, seq, root(SeqNum(seq)), false);
            }
        }
        desk.pass(10);
        if suspects(&desk) {
            return;
        }
    }
    panic!("nobody minds that a client is ignored: {:?}", desk.replica.state());
}

/// L30: a request is proposed to this replica alone, and its number goes to another batch. It waits on.
#[test]
fn l30_what_lost_its_number_to_another_batch_is_not_proposed() {
    let mut desk = backup();
    let ignored = desk.request_frame_with(c(2), 1, b"me", false, true);
    desk.frame(&ignored);
    let batch = desk.batch_of(&[ignored]);
    desk.pre_prepare(R0, 0, 1, &batch);
    let friend = desk.request_frame_with(c(0), 1, b"friend", false, true);
    let other = desk.batch_of(&[friend]);
    for from in [R0, R1, R3] {
        desk.commit(from, 0, 1, other.digest());
    }
    desk.hear(R1, Kind::Body, |w| BodyMessage::encode_batch(&other, w));
    assert_eq!(desk.executed(), [(1, false)]);
    for seq in 2..=5 {
        desk.pass(30);
        assert_eq!(suspects(&desk), seq == 5, "{} ms have passed", 30 * (seq - 1));
        let frame = desk.request_frame_with(c(0), seq, b"friend", false, true);
        let batch = desk.batch_of(&[frame]);
        desk.pre_prepare(R0, 0, seq, &batch);
        for from in [R1, R3] {
            desk.prepare(from, 0, seq, batch.digest());
            desk.commit(from, 0, seq, batch.digest());
        }
    }
}

/// TM-1: a batch is executed, and the next proposal is on its way. Who executes for long looks at its timers right then.
#[test]
fn a_primary_that_may_not_propose_is_not_suspected_between_two_proposals() {
    let mut desk = Desk::with(R2, 4, 1, |config| {
        (config.request_auth, config.pipeline) = (RequestAuth::SigMac, 1);
    });
    let waits = desk.request_frame_with(c(2), 1, b"me", false, true);
    desk.frame(&waits);
    for seq in 1..=3 {
        let frame = desk.request_frame_with(c(0), seq, b"x", false, true);
        let batch = desk.batch_of(&[frame]);
        desk.pre_prepare(R0, 0, seq, &batch);
        desk.pass(60);
        for from in [R1, R3] {
            desk.prepare(from, 0, seq, batch.digest());
            desk.commit(from, 0, seq, batch.digest());
        }
        desk.pass(30);
        assert!(
            !suspects(&desk),
            "it may propose since 30 ms, and the request has waited for {} ms",
            90 * seq
        );
    }
    desk.pass(101);
    assert!(suspects(&desk), "now it has had its time");
}

/// TM-1, PR-3: where many lanes wait, each waits for its turn, however small the batches are; but for no more than that.
#[test]
fn b8_a_request_is_not_passed_over_until_its_turn_has_come() {
    let mut desk = Desk::with(R2, 4, 1, |config| {
        (config.request_auth, config.pipeline) = (RequestAuth::SigMac, 1);
        (config.checkpoint_interval, config.window) = (128, 256);
    });
    let lane = |lane| ClientId::new(c(0).principal(), lane);
    let ignored = desk.request_frame_with(lane(40), 1, b"me", false, true);
    desk.frame(&ignored);
    let mut seq = 0;
    for t in 1..=4 {
        for id in 0..40 {
            seq += 1;
            let frame = desk.request_frame_with(lane(id), t, b"other", false, true);
            let batch = desk.batch_of(&[frame]);
            desk.pre_prepare(R0, 0, seq, &batch);
            desk.pass(10);
            for from in [R1, R3] {
                desk.prepare(from, 0, seq, batch.digest());
                desk.commit(from, 0, seq, batch.digest());
            }
            if suspects(&desk) {
                assert!(t > 1, "its turn had not come at number {seq}");
                return;
            }
        }
    }
    panic!("the others had four turns");
}

/// A backup of a client with this number of lanes that have long requests, and of one more lane that waits.
fn backup_of_long_lanes(lanes: u16) -> (Desk, impl FnMut(&mut Desk, u64)) {
    let mut desk = Desk::with(R2, 4, 1, |config| {
        config.request_auth = RequestAuth::SigMac;
        (config.checkpoint_interval, config.window) = (128, 256);
    });
    let lane = |lane| ClientId::new(c(0).principal(), lane);
    let waits = desk.request_frame_with(lane(lanes), 1, &[0; 5000], false, true);
    desk.frame(&waits);
    // The primary orders a long request of another lane.
    let serve = move |desk: &mut Desk, seq: u64| {
        let id = lane(u16::try_from(seq % u64::from(lanes)).unwrap());
        let frame = desk.request_frame_with(id, seq, &[0; 5000], false, true);
        desk.frame(&frame);
        let batch = desk.separate_batch_of(&[frame]);
        desk.pre_prepare(R0, 0, seq, &batch);
        for from in [R1, R3] {
            desk.prepare(from, 0, seq, batch.digest());
            desk.commit(from, 0, seq, batch.digest());
        }
    };
    (desk, serve)
}

/// L37, TM-1: a long request waits for the others of its client, for which the primary may have no room at once. It is timed
/// from when its client was last served.
#[test]
fn l37_a_long_request_waits_while_its_client_is_served() {
    let (mut desk, mut serve) = backup_of_long_lanes(20);
    for seq in 1..=20 {
        desk.pass(80);
        serve(&mut desk, seq);
        assert!(!suspects(&desk), "its turn has not come after {} ms", 80 * seq);
    }
    desk.pass(101);
    assert!(suspects(&desk), "now its client is not served any more");
}

/// L37, TM-1: a primary that serves all lanes of a client but one is suspected, however long the requests are.
#[test]
fn l37_no_lane_waits_for_ever_for_the_others_of_its_client() {
    let (mut desk, mut serve) = backup_of_long_lanes(10);
    for seq in 1..=80 {
        desk.pass(20);
        serve(&mut desk, seq);
        if suspects(&desk) {
            assert!(seq > 20, "each other lane has had one turn or two");
            return;
        }
    }
    panic!("the others had eight turns");
}

/// TM-5: what f + 1 others have executed the primary has done its part for. So often only: f of them may lie.
#[test]
fn a_backup_that_is_behind_asks_before_it_suspects() {
    let mut desk = backup();
    let frame = desk.request_frame_with(c(0), 1, b"x", false, true);
    desk.frame(&frame);
    let batch = desk.batch_of(&[frame]);
    desk.pre_prepare(R0, 0, 1, &batch);
    for (counter, from) in [(1, R0), (2, R1)] {
        says_to_have_executed(&mut desk, from, counter, 1);
    }
    desk.forget();
    desk.pass(150);
    assert!(!suspects(&desk));
    assert!(desk.sent(Kind::Status) > 0);
    desk.pass(400);
    assert!(suspects(&desk), "not forever");
}

/// One that claims to be ahead is no reason to wait.
#[test]
fn one_that_is_ahead_is_no_excuse() {
    let mut desk = backup();
    let frame = desk.request_frame_with(c(0), 1, b"x", false, true);
    desk.frame(&frame);
    says_to_have_executed(&mut desk, R0, 1, 100);
    desk.pass(101);
    assert!(suspects(&desk));
}

/// TM-5, H2: a replica that stood still finds its timer overdue, and what came in that time not looked at.
#[test]
fn a_timer_that_comes_late_says_nothing_of_the_primary() {
    let mut desk = backup();
    let frame = desk.request_frame_with(c(0), 1, b"x", false, true);
    desk.frame(&frame);
    desk.now.mono_ns += 1_000 * MS;
    desk.input(Input::Timer(Timer::Request));
    assert!(!suspects(&desk));
    desk.pass(101);
    assert!(suspects(&desk), "it has had its time");
}

/// A backup whose records wait for the disk, and which has accepted a batch.
fn with_a_slow_disk() -> Desk {
    let mut desk = Desk::with(R2, 4, 1, |config| {
        (config.request_auth, config.durability) = (RequestAuth::SigMac, Durability::Sync);
    });
    desk.disk_is_fast = false;
    let frame = desk.request_frame_with(c(0), 1, b"x", false, true);
    desk.frame(&frame);
    let batch = desk.batch_of(&[frame]);
    desk.pre_prepare(R0, 0, 1, &batch);
    desk
}

/// TM-8, H11: while the own log is being synced, the votes that are missing may be this replica's own. But a disk that never
/// ends is no reason to wait for longer than after failed views.
#[test]
fn tm8_a_backup_whose_own_disk_is_at_work_waits_on() {
    let mut desk = with_a_slow_disk();
    let longest = desk.config.view_timeout_max_ns / MS;
    desk.pass(longest - 1);
    assert!(!suspects(&desk), "its record is not durable yet");
    desk.pass(2);
    assert!(suspects(&desk));
}

/// TM-8, H11: a sync of the own log took half a second, so others have time for sixteen such syncs.
#[test]
fn tm8_a_backup_gives_others_the_time_that_its_own_disk_takes() {
    let mut desk = with_a_slow_disk();
    desk.pass(500);
    desk.flush();
    desk.pass(7_499);
    assert!(!suspects(&desk));
    desk.pass(2);
    assert!(suspects(&desk));
}

/// TM-8: fast syncs make a slow one forgotten, and so does a minute without any.
#[test]
fn tm8_a_slow_sync_is_forgotten() {
    let timed = |syncs: u64, rest: u64, wait: u64| {
        let mut desk = with_a_slow_disk();
        desk.pass(500);
        desk.flush();
        for seq in 2..2 + syncs {
            desk.disk_is_fast = true;
            desk.order(seq, c(1), seq, b"x");
        }
        let frame = desk.request_frame_with(c(0), 1, b"x", false, true);
        let batch = desk.batch_of(&[frame]);
        for from in [R0, R1] {
            desk.prepare(from, 0, 1, batch.digest());
            desk.commit(from, 0, 1, batch.digest());
        }
        desk.flush();
        desk.pass(rest);
        assert!(!suspects(&desk));
        let frame = desk.request_frame_with(c(2), 1, b"y", false, true);
        desk.frame(&frame);
        desk.pass(wait);
        suspects(&desk)
    };
    assert!(!timed(0, 0, 5_000));
    assert!(timed(30, 0, 500));
    assert!(timed(0, 60_000, 500));
}

/// A24: a full window is said at once, and said again before anybody's patience ends.
#[test]
fn a24_a_full_window_is_said_again_and_again() {
    let mut desk = Desk::with(R2, 4, 1, |config| {
        (config.checkpoint_interval, config.window, config.pipeline) = (2, 4, 2);
    });
    for seq in 1..=4 {
        desk.order(seq, c(0), seq, b"x");
    }
    desk.forget();
    desk.pass(90);
    let said = desk.sent(Kind::Checkpoint);
    assert!((4..=10).contains(&said), "{said} CHECKPOINTs in 90 ms");
}

/// L32, TM-2: a request that is held with a MAC comes again with a signature, as from a client that has waited. It is timed
/// from then on: the others may not vouch for what they time already.
#[test]
fn l32_a_signed_copy_of_a_known_request_needs_no_vouchers() {
    let mut desk = Desk::new(R2);
    let frame = desk.request_frame(c(0), 1, b"x");
    desk.frame(&frame);
    desk.pass(400);
    assert!(!suspects(&desk), "nobody else vouches for it");
    // Another replica passes it on, sealed with keys that are not known here: its signature counts.
    let mut frame = desk.request_frame_with(c(0), 1, b"x", false, true);
    let entry_of_r2 = frame.len() - 20 - 1; // entries of r0, r1, r2, r3; each 20 bytes, tag last
    frame[entry_of_r2] ^= 1;
    desk.frame(&frame);
    desk.pass(101);
    assert!(suspects(&desk));
}

/// Every bound of the settings names its key, the value and the rule.
#[test]
fn time_settings_out_of_bounds_are_refused() {
    type Change = fn(&mut Config);
    let wrong: [(&str, Change); 8] = [
        ("status_ns", |c| c.status_ns = c.status_min_ns - 1),
        ("status_ns", |c| c.status_ns = HOUR_NS + 1),
        ("fetch_retry_ns", |c| c.fetch_retry_ns = 0),
        ("fetch_retry_ns", |c| c.fetch_retry_ns = c.request_timeout_max_ns + 1),
        ("null_batch_ns", |c| c.null_batch_ns = 0),
        ("null_batch_ns", |c| c.null_batch_ns = c.request_timeout_max_ns + 1),
        ("clock_skew_ns", |c| c.clock_skew_ns = 0),
        ("clock_skew_ns", |c| c.clock_skew_ns = u64::MAX),
    ];
    let good = Desk::new(R3).config;
    assert_eq!(good.check(), Ok(()));
    for (key, change) in wrong {
        let mut config = good.clone();
        change(&mut config);
        let Err(ConfigError { key: named, value, rule }) = config.check() else {
            panic!("{key} is not bounded")
        };
        assert_eq!(named, key);
        assert!(!value.is_empty() && !rule.is_empty());
    }
}

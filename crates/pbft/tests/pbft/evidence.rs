//! What a new view depends on in addition to VIEW-CHANGEs: available batches, and PROOFs that can be sent to any
//! replica.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a test may panic")]

use crate::desk::{Desk, Did, MS, R0, R1, R2, R3, c, root};
use quorate_pbft::Milestone;
use quorate_pbft::config::Durability;
use quorate_pbft::step::Recipient;
use quorate_wire::codec::Writer;
use quorate_wire::frame::Frame;
use quorate_wire::id::{ReplicaId, SeqNum, ViewNum};
use quorate_wire::life::Life;
use quorate_wire::message::{
    Bitmap, BodyFetch, BodyKind, BodyMessage, Echoes, Kind, NewView, PrePrepareHead, PrePrepared, Prepare,
    Prepared, Start, Status, ViewChange, Want,
};
use quorate_wire::{Batch, Digest};

/// A VIEW-CHANGE in which `digest` has prepared in view 0 at each of these numbers.
fn prepared_at(desk: &mut Desk, view: u64, digest: Digest, numbers: &[u64]) -> ViewChange {
    let mut m = desk.empty_view_change(view);
    for n in numbers {
        m.prepared.push(Prepared { seq: SeqNum(*n), digest, view: ViewNum(0) });
        m.pre_prepared.push(PrePrepared { seq: SeqNum(*n), claims: vec![(digest, ViewNum(0))] });
    }
    m
}

fn supply(desk: &mut Desk, from: ReplicaId, batch: &Batch) {
    let mut body = Vec::new();
    BodyMessage::encode_batch(batch, &mut Writer::new(&mut body));
    desk.hear(from, Kind::Body, |w| w.bytes(&body));
}

/// r1, the primary of view 1, holds the VIEW-CHANGEs of r0, r3 and itself; only r3's speaks of `batch`.
fn lacks_support(batch: &Batch, desk: &mut Desk) {
    desk.suspect(R2, 0);
    desk.suspect(R3, 0);
    let (empty, claims) = (desk.empty_view_change(1), prepared_at(desk, 1, batch.digest(), &[1]));
    for (from, m) in [(R0, empty), (R3, claims)] {
        let frame = desk.view_change(from, &m);
        desk.frame(&frame);
    }
}

/// DP-4, L2: what the new primary counts it shows to all, signed, so that nobody can convince it alone.
#[test]
fn l2_a_new_primary_shows_the_proofs_that_it_counts() {
    let mut desk = Desk::new(R1);
    let batch = desk.batch(c(0), 1, b"x");
    lacks_support(&batch, &mut desk);
    let proof = desk.proof(R2, 1, batch.digest(), 0);
    desk.frame(&proof);
    assert_eq!(desk.sent(Kind::NewView), 0, "the batch is not here yet (A3)");
    supply(&mut desk, R3, &batch);
    assert_eq!(desk.sent(Kind::NewView), 1);
    let (to, shown) = desk.last_sent(Kind::Proof).unwrap();
    assert_eq!((to, shown), (Recipient::All, proof), "as r2 signed it");
    // What it takes over it votes for at once: it can claim it in the next view change (DP-7).
    assert!(desk.said(|m| matches!(m, Milestone::PrePrepared { seq: SeqNum(1), .. })));
}

/// The NEW-VIEW of [`lacks_support`] as a backup gets it, with the VIEW-CHANGEs that it names.
fn new_view_of(desk: &mut Desk, digest: Digest) -> Vec<Vec<u8>> {
    let (empty, claims) = (desk.empty_view_change(1), prepared_at(desk, 1, digest, &[1]));
    let of = [(R0, &empty), (R1, &empty), (R3, &claims)];
    let frames: Vec<Vec<u8>> = of.map(|(from, m)| desk.view_change(from, m)).to_vec();
    let named = [R0, R1, R3].into_iter().zip(frames.iter().map(|frame| desk.digest_of(frame)));
    let new_view = NewView {
        view: ViewNum(1),
        life: Life::default(),
        view_changes: named.collect(),
        checkpoint: (SeqNum(0), root(SeqNum(0))),
        chosen: vec![digest],
    };
    let new_view = desk.new_view(R1, &new_view);
    frames.into_iter().chain([new_view]).collect()
}

fn wants(desk: &mut Desk, from: ReplicaId, want: Want) {
    let settings = desk.config.shared_settings();
    desk.hear(from, Kind::Status, |w| {
        Status {
            counter: 1,
            view: ViewNum(1),
            stable: SeqNum(0),
            executed: SeqNum(0),
            start: Start { incarnation: 1 << 20, token: 0 },
            settings,
            echoes: Echoes::default(),
            normal: false,
            has_new_view: false,
            prepared: Bitmap::default(),
            committed: Bitmap::default(),
            have: 0,
            wants: vec![want],
        }
        .encode(w);
    });
}

/// L2, L15: a backup enters on PROOFs that another replica sends, keeps them with the view, and sends them to late
/// replicas: the replica that made them may have discarded what it claimed.
#[test]
fn l15_proofs_are_kept_with_the_view_and_shown_to_who_comes_later() {
    let mut desk = Desk::new(R2);
    let digest = desk.batch(c(0), 1, b"x").digest();
    for frame in new_view_of(&mut desk, digest) {
        desk.frame(&frame);
    }
    let entered = |desk: &Desk| desk.said(|m| matches!(m, Milestone::ViewEntered { .. }));
    assert!(!entered(&desk), "r3 alone says so");
    let proof = desk.proof(R1, 1, digest, 0);
    desk.frame(&proof);
    assert!(entered(&desk));
    desk.forget();
    desk.pass(200);
    wants(&mut desk, R0, Want { seq: SeqNum(1), digest, view: ViewNum(0) });
    assert_eq!(desk.last_sent(Kind::Proof), Some((Recipient::Replica(R0), proof)));
}

/// A3, L9: what this replica claims to have pre-prepared it can supply, also when its view has ended and another batch
/// was taken over in its place: it may be the only correct one that has it.
#[test]
fn l9_the_batch_of_a_claim_outlives_its_view() {
    let mut desk = Desk::new(R2);
    let batch = desk.batch(c(0), 1, b"x");
    desk.pre_prepare(R0, 0, 1, &batch);
    assert_eq!(desk.sent(Kind::Prepare), 1);
    desk.suspect(R1, 0);
    desk.suspect(R3, 0);
    let empty = desk.empty_view_change(1);
    let frames: Vec<Vec<u8>> = [R0, R1, R3].map(|from| desk.view_change(from, &empty)).to_vec();
    let named = [R0, R1, R3].into_iter().zip(frames.iter().map(|frame| desk.digest_of(frame)));
    let checkpoint = (SeqNum(0), root(SeqNum(0)));
    let new_view = NewView {
        view: ViewNum(1),
        life: Life::default(),
        view_changes: named.collect(),
        checkpoint,
        chosen: vec![],
    };
    let new_view = desk.new_view(R1, &new_view);
    for frame in frames.iter().chain([&new_view]) {
        desk.frame(frame);
    }
    assert!(desk.said(|m| matches!(m, Milestone::ViewEntered { .. })));
    desk.forget();
    let digest = batch.digest();
    desk.hear(R3, Kind::BodyFetch, |w| BodyFetch::encode(BodyKind::Batch, &[digest], w));
    assert_eq!(desk.sent_to(R3, Kind::Body), 1);
}

/// DP-7, L14: a new primary whose only copy of a batch was a proposal of the view before can vote for it all the
/// same, and claims it in the next view change.
#[test]
fn l14_a_new_primary_claims_all_that_it_takes_over() {
    let mut desk = Desk::new(R1);
    let batch = desk.batch(c(0), 1, b"x");
    desk.pre_prepare(R0, 0, 1, &batch);
    lacks_support(&batch, &mut desk);
    assert_eq!(desk.sent(Kind::NewView), 1, "r3 and this replica itself have pre-prepared it");
    assert_eq!(desk.sent(Kind::BodyFetch), 0);
    desk.suspect(R2, 1);
    desk.suspect(R3, 1);
    let (_, frame) = desk.last_sent(Kind::ViewChange).unwrap();
    let own = ViewChange::decode(Frame::decode(&frame).unwrap().body).unwrap();
    assert_eq!((own.view, own.pre_prepared.len()), (ViewNum(2), 1));
    assert_eq!(own.pre_prepared[0].claims, [(batch.digest(), ViewNum(1))]);
}

/// ND-1, L3: the new primary's clock is 50 ms behind that of the one before. What it proposes must not be below what
/// it takes over, or the backups refuse it as soon as they have executed that.
#[test]
fn l3_a_new_primary_proposes_no_time_below_what_it_takes_over() {
    let mut desk = Desk::new(R1);
    desk.now.wall_ns += 50 * MS;
    let batch = desk.batch(c(0), 1, b"x");
    let taken_over = desk.now.wall_ns;
    desk.now.wall_ns -= 50 * MS;
    desk.pre_prepare(R0, 0, 1, &batch);
    lacks_support(&batch, &mut desk);
    assert_eq!(desk.sent(Kind::NewView), 1);
    desk.request(c(1), 1, b"y");
    let (_, body) = desk.last_sent(Kind::PrePrepare).unwrap();
    let proposed = PrePrepareHead::decode(&body).unwrap();
    assert_eq!(proposed.seq, SeqNum(2));
    assert_eq!(quorate_pbft::choice::decode(proposed.choice), Some(taken_over));
}

/// L7: a backup that had entered a view and not yet voted for what it takes over starts again. It fetches what it lacks
/// and votes; nobody would tell it otherwise, because a NEW-VIEW names digests only.
#[test]
fn l7_a_restarted_backup_votes_for_what_its_new_view_chose() {
    let sync = |config: &mut quorate_pbft::Config| config.durability = Durability::Sync;
    let mut before = Desk::with(R2, 4, 1, sync);
    let batch = before.batch(c(0), 1, b"x");
    let digest = batch.digest();
    for frame in new_view_of(&mut before, digest) {
        before.frame(&frame);
    }
    let proof = before.proof(R1, 1, digest, 0);
    before.frame(&proof);
    assert!(before.said(|m| matches!(m, Milestone::ViewEntered { .. })));
    assert_eq!(before.sent(Kind::Prepare), 0);
    let mut desk = Desk::restarted(&before, R2, sync);
    assert_eq!(desk.replica.view(), ViewNum(1));
    assert_eq!(desk.sent(Kind::BodyFetch), 1);
    supply(&mut desk, R3, &batch);
    assert_eq!(desk.sent(Kind::Prepare), 0, "the others have not confirmed its start");
    let echoes = desk.echoes(R2, 2 << 20);
    let settings = desk.config.shared_settings();
    for from in [R0, R1, R3] {
        desk.hear(from, Kind::Status, |w| {
            Status {
                counter: 1,
                view: ViewNum(1),
                stable: SeqNum(0),
                executed: SeqNum(0),
                start: Start { incarnation: 1 << 20, token: 0 },
                settings,
                echoes: Echoes::new(&echoes),
                normal: true,
                has_new_view: true,
                prepared: Bitmap::default(),
                committed: Bitmap::default(),
                have: 0,
                wants: vec![],
            }
            .encode(w);
        });
    }
    let to_all = |d: &&Did| matches!(d, Did::Sent { kind: Kind::Prepare, to: Recipient::All, .. });
    assert_eq!(desk.did.iter().filter(to_all).count(), 1);
    let (_, prepare) = desk.last_sent(Kind::Prepare).unwrap();
    assert_eq!(Prepare::decode(&prepare).unwrap().digest, digest);
}

/// L11: one batch may have been chosen at several numbers. Fetched once, it is there for all of them.
#[test]
fn l11_a_batch_is_fetched_for_every_number_that_needs_it() {
    let mut desk = Desk::new(R2);
    let batch = desk.batch(c(0), 1, b"x");
    let digest = batch.digest();
    let (empty, claims) = (desk.empty_view_change(1), prepared_at(&mut desk, 1, digest, &[1, 2]));
    let of = [(R0, &empty), (R1, &claims), (R3, &claims)];
    let frames: Vec<Vec<u8>> = of.map(|(from, m)| desk.view_change(from, m)).to_vec();
    let named = [R0, R1, R3].into_iter().zip(frames.iter().map(|frame| desk.digest_of(frame)));
    let new_view = NewView {
        view: ViewNum(1),
        life: Life::default(),
        view_changes: named.collect(),
        checkpoint: (SeqNum(0), root(SeqNum(0))),
        chosen: vec![digest, digest],
    };
    let new_view = desk.new_view(R1, &new_view);
    for frame in frames.iter().chain([&new_view]) {
        desk.frame(frame);
    }
    assert_eq!(desk.sent(Kind::BodyFetch), 1);
    supply(&mut desk, R3, &batch);
    assert_eq!(desk.sent(Kind::Prepare), 2);
}

/// Settings that all replicas must have alike are compared: a difference is told, once, and nobody is accused.
#[test]
fn other_settings_are_told_once() {
    let mut desk = Desk::new(R2);
    let told = |desk: &Desk| {
        let differ = |d: &&Did| matches!(d, Did::Said(Milestone::SettingsDiffer { of: R0 }));
        desk.did.iter().filter(differ).count()
    };
    let same = desk.config.shared_settings();
    for (counter, settings) in [(1, same), (2, same ^ 1), (3, same ^ 1), (4, same), (5, same ^ 1)] {
        desk.pass(1_100);
        desk.hear(R0, Kind::Status, |w| {
            Status {
                counter,
                view: ViewNum(0),
                stable: SeqNum(0),
                executed: SeqNum(0),
                start: Start { incarnation: 1 << 20, token: 0 },
                settings,
                echoes: Echoes::default(),
                normal: true,
                has_new_view: false,
                prepared: Bitmap::default(),
                committed: Bitmap::default(),
                have: 0,
                wants: vec![],
            }
            .encode(w);
        });
        assert_eq!(told(&desk), usize::from(counter >= 2) + usize::from(counter >= 5), "at {counter}");
    }
    assert!(!desk.said(|m| matches!(m, Milestone::Equivocation { .. })));
    let mut other = desk.config.clone();
    other.window *= 2;
    assert_ne!(other.shared_settings(), same);
}

/// PP-4, L138: a liar supplies the batch that a NEW-VIEW takes over with the flag *read-only*, which the digest does not cover.
/// Backups accept no read in a PRE-PREPARE, so the next primary does not propose it again.
#[test]
fn l138_a_fetched_read_is_not_proposed_again() {
    for (read_only, proposed) in [(false, 1), (true, 0)] {
        let mut desk = Desk::new(R2);
        let frame = desk.request_frame_with(c(0), 1, b"x", read_only, false);
        let batch = desk.batch_of(&[frame]);
        for frame in new_view_of(&mut desk, batch.digest()) {
            desk.frame(&frame);
        }
        let proof = desk.proof(R1, 1, batch.digest(), 0);
        desk.frame(&proof);
        supply(&mut desk, R3, &batch);
        assert!(desk.said(|m| matches!(m, Milestone::PrePrepared { .. })));
        desk.suspect(R0, 1);
        desk.suspect(R3, 1);
        let empty = desk.empty_view_change(2);
        for from in [R0, R3] {
            let frame = desk.view_change(from, &empty);
            desk.frame(&frame);
        }
        assert_eq!((desk.sent(Kind::NewView), desk.sent(Kind::PrePrepare)), (1, proposed));
    }
}

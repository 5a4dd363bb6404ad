//! One test for each clause of the decision procedure. Replicas, digests and views are as small as
//! they can be: `a` and `b` are batches, `q(1, &[(a, 0)])` is the claim "I pre-prepared a at 1 in view 0".

use alloc::vec;

use quorate_wire::life::Life;
use quorate_wire::message::{LeaveCert, PrePrepared, Prepared, Suspect, SuspectReason, ViewChange};
use quorate_wire::{ReplicaId, SeqNum};

use super::*;

mod form;

const K: u64 = 2;
const L: u64 = 4;
const NULL: Digest = Digest([0xff; 32]);
const A: Digest = Digest([0xa; 32]);
const B: Digest = Digest([0xb; 32]);
const C: Digest = Digest([0xc; 32]);

fn four() -> Cluster {
    Cluster::tolerating(1).unwrap()
}

fn seven() -> Cluster {
    Cluster::tolerating(2).unwrap()
}

/// The digest of the right state at checkpoint `n`.
fn state(n: u64) -> Digest {
    Digest([u8::try_from(n).unwrap() ^ 0x50; 32])
}

/// A VIEW-CHANGE for view 5 with low water mark `h`, built up by what follows.
fn vc(h: u64) -> ViewChange {
    let suspect = |i| (ReplicaId(i), suspect(4));
    ViewChange {
        view: ViewNum(5),
        stable: SeqNum(h),
        life: Life::default(),
        checkpoints: vec![(SeqNum(h), state(h))],
        prepared: vec![],
        pre_prepared: vec![],
        leave: LeaveCert { suspects: vec![suspect(1), suspect(2), suspect(3)] },
    }
}

fn suspect(view: u64) -> Suspect {
    Suspect { view: ViewNum(view), reason: SuspectReason::Timeout, signature: [0; 64] }
}

trait Build {
    fn c(self, n: u64, digest: Digest) -> Self;
    fn q(self, n: u64, claims: &[(Digest, u64)]) -> Self;
    /// A P entry and the claim in Q that goes with it.
    fn p(self, n: u64, digest: Digest, view: u64) -> Self;
}

impl Build for ViewChange {
    fn c(mut self, n: u64, digest: Digest) -> Self {
        self.checkpoints.push((SeqNum(n), digest));
        self
    }

    fn q(mut self, n: u64, claims: &[(Digest, u64)]) -> Self {
        let claims = claims.iter().map(|(digest, view)| (*digest, ViewNum(*view))).collect();
        self.pre_prepared.push(PrePrepared { seq: SeqNum(n), claims });
        self
    }

    fn p(mut self, n: u64, digest: Digest, view: u64) -> Self {
        self.prepared.push(Prepared { seq: SeqNum(n), digest, view: ViewNum(view) });
        self.q(n, &[(digest, view)])
    }
}

fn of(cluster: Cluster, messages: &[(u16, ViewChange)]) -> Vec<ViewChangeOf<'_>> {
    messages.iter().map(|(i, m)| ViewChangeOf::new(cluster, K, L, ReplicaId(*i), m).unwrap()).collect()
}

fn no_proofs(_: SeqNum, _: &Digest, _: ViewNum) -> u64 {
    0
}

fn decided(cluster: Cluster, s: &[(u16, ViewChange)]) -> Decision {
    decide(cluster, L, NULL, &of(cluster, s), no_proofs, |_| true)
}

/// What is chosen above the checkpoint, or nothing while waiting.
fn chosen(cluster: Cluster, s: &[(u16, ViewChange)]) -> Option<(u64, Vec<Digest>)> {
    match decided(cluster, s) {
        Decision::Complete { checkpoint, chosen } => Some((checkpoint.0.0, chosen)),
        Decision::Waiting { .. } => None,
    }
}

fn new_view(s: &[(u16, ViewChange)], checkpoint: (u64, Digest), chosen: &[Digest]) -> NewView {
    NewView {
        life: Life::default(),
        view: ViewNum(5),
        view_changes: s.iter().map(|(i, _)| (ReplicaId(*i), Digest::ZERO)).collect(),
        checkpoint: (SeqNum(checkpoint.0), checkpoint.1),
        chosen: chosen.to_vec(),
    }
}

fn verdict(cluster: Cluster, s: &[(u16, ViewChange)], checkpoint: (u64, Digest), x: &[Digest]) -> Verdict {
    check(cluster, K, L, NULL, &of(cluster, s), no_proofs, &new_view(s, checkpoint, x))
}

fn invalid(violation: Violation) -> Verdict {
    Verdict::Invalid(violation)
}

fn choice(n: u64) -> Violation {
    Violation::Choice(SeqNum(n))
}

/// [OSDI99 §4.4] "V is a set containing the valid view-change messages": 2f + 1 of them.
#[test]
fn fewer_than_a_quorum_decide_nothing() {
    let two = [(0, vc(0)), (1, vc(0))];
    let lack = |why| Decision::Waiting { why, batches: vec![], wants: vec![] };
    assert_eq!(decided(four(), &two), lack(Lack::ViewChanges));
    assert_eq!(verdict(four(), &two, (0, state(0)), &[]), invalid(Violation::ViewChanges));
}

/// B1, A17: one replica three times is one replica.
#[test]
fn b1_a_replica_is_counted_once() {
    let thrice = [(0, vc(0)), (0, vc(0)), (0, vc(0)), (1, vc(0))];
    assert_eq!(chosen(four(), &thrice), None);
    assert_eq!(verdict(four(), &thrice, (0, state(0)), &[]), invalid(Violation::ViewChanges));
}

/// [OSDI99 §4.4] "the highest view number in V": `a` prepared at one replica in view 0 and was
/// overruled by `b`, which prepared in view 1 and may have committed.
#[test]
fn the_highest_view_decides() {
    let old = vc(0).p(1, A, 0);
    let new = || vc(0).p(1, B, 1);
    for s in [
        [(0, old.clone()), (1, new()), (2, new())],
        [(0, new()), (1, old.clone()), (2, new())],
        [(0, new()), (1, new()), (2, old.clone())],
    ] {
        assert_eq!(chosen(four(), &s), Some((0, vec![B])));
        assert_eq!(verdict(four(), &s, (0, state(0)), &[A]), invalid(choice(1)));
    }
}

/// The same with enough support for the older batch: it may still not be taken.
#[test]
fn the_first_found_is_not_good_enough() {
    let s = [(0, vc(0).p(1, A, 0)), (1, vc(0).q(1, &[(B, 1), (A, 0)])), (2, vc(0).p(1, B, 1))];
    assert_eq!(chosen(four(), &s), Some((0, vec![B])));
    assert_eq!(verdict(four(), &s, (0, state(0)), &[A]), invalid(choice(1)));
}

/// A1: what a correct replica has prepared since may have committed, even while nothing supports it
/// here. Two liars' words for an older batch do not help.
#[test]
fn a1_a_quorum_may_not_contradict() {
    let s = [(0, vc(0).p(1, A, 0)), (1, vc(0).q(1, &[(A, 0)])), (2, vc(0).p(1, B, 1))];
    let want = Want { seq: SeqNum(1), digest: B, view: ViewNum(1) };
    let why = Lack::Choice(SeqNum(1));
    assert_eq!(decided(four(), &s), Decision::Waiting { why, batches: vec![], wants: vec![want] });
    assert_eq!(verdict(four(), &s, (0, state(0)), &[A]), invalid(choice(1)));
}

/// A1 in one view: two digests claimed as prepared in the same view exclude each other.
#[test]
fn a1_equal_views_exclude_each_other() {
    let s = [(0, vc(0).p(1, A, 1)), (1, vc(0).q(1, &[(A, 1)])), (2, vc(0).p(1, B, 1))];
    assert_eq!(chosen(four(), &s), None);
    assert_eq!(verdict(four(), &s, (0, state(0)), &[A]), invalid(choice(1)));
}

/// B9, A2: one replica's claim to have prepared something proves nothing, and does not hide what the
/// others say either: once a quorum has nothing, it is null.
#[test]
fn b9_one_claim_is_not_support() {
    let liar = (0, vc(0).p(1, A, 4));
    let s = [liar.clone(), (1, vc(0)), (2, vc(0))];
    assert_eq!(chosen(four(), &s), None);
    let want = Want { seq: SeqNum(1), digest: A, view: ViewNum(4) };
    assert_eq!(verdict(four(), &s, (0, state(0)), &[A]), Verdict::Missing { wants: vec![want] });
    let s = [liar, (1, vc(0)), (2, vc(0)), (3, vc(0))];
    // A quorum reports nothing above 0, so that there is nothing to decide at all.
    assert_eq!(chosen(four(), &s), Some((0, vec![])));
    assert_eq!(verdict(four(), &s, (0, state(0)), &[NULL]), Verdict::Valid);
}

/// A2: support in a view before the claimed one is support for something else.
#[test]
fn a2_older_claims_do_not_support() {
    let s = [(0, vc(0).p(1, A, 3)), (1, vc(0).q(1, &[(A, 2)])), (2, vc(0).q(1, &[(A, 2)]))];
    assert_eq!(chosen(four(), &s), None);
    let s = [(0, vc(0).p(1, A, 3)), (1, vc(0).q(1, &[(A, 4)])), (2, vc(0))];
    assert_eq!(chosen(four(), &s), Some((0, vec![A])), "later ones do");
}

/// DP-4: replicas outside of S that pre-prepared it say so, and each counts once.
#[test]
fn a2_is_supported_by_proofs() {
    let s = [(0, vc(0).p(1, A, 3)), (1, vc(0)), (2, vc(0).q(1, &[(B, 1)]))];
    let with = |set: u64| {
        let proofs = move |seq, digest: &Digest, view| {
            assert_eq!((seq, *digest, view), (SeqNum(1), A, ViewNum(3)));
            set
        };
        let s = of(four(), &s);
        let new_view = new_view(&[(0, vc(0)), (1, vc(0)), (2, vc(0))], (0, state(0)), &[A]);
        (decide(four(), L, NULL, &s, proofs, |_| true), check(four(), K, L, NULL, &s, proofs, &new_view))
    };
    let wants = vec![Want { seq: SeqNum(1), digest: A, view: ViewNum(3) }];
    let why = Lack::Choice(SeqNum(1));
    let waiting = Decision::Waiting { why, batches: vec![], wants: wants.clone() };
    assert_eq!(with(0b0000), (waiting.clone(), Verdict::Missing { wants: wants.clone() }));
    assert_eq!(with(0b0001), (waiting, Verdict::Missing { wants }), "its own claim again");
    let checkpoint = (SeqNum(0), state(0));
    assert_eq!(with(0b1000), (Decision::Complete { checkpoint, chosen: vec![A] }, Verdict::Valid));
}

/// A3: "the batch with digest d and all its bodies are present (else fetch, keep waiting)".
#[test]
fn a3_the_batch_must_be_here() {
    let s = [(0, vc(0).p(1, A, 0)), (1, vc(0).p(1, A, 0)), (2, vc(0).p(1, A, 0))];
    let waiting = decide(four(), L, NULL, &of(four(), &s), no_proofs, |digest| *digest != A);
    let why = Lack::Choice(SeqNum(1));
    assert_eq!(waiting, Decision::Waiting { why, batches: vec![A], wants: vec![] });
    // A backup does not need it to see that the choice is right.
    assert_eq!(verdict(four(), &s, (0, state(0)), &[A]), Verdict::Valid);
}

/// A null batch that prepared is taken over like any other; nobody needs to fetch it.
#[test]
fn a_null_batch_can_have_prepared() {
    let s = [(0, vc(0).p(1, NULL, 2)), (1, vc(0).p(1, NULL, 2)), (2, vc(0).p(1, NULL, 2))];
    let decision = decide(four(), L, NULL, &of(four(), &s), no_proofs, |_| false);
    let checkpoint = (SeqNum(0), state(0));
    assert_eq!(decision, Decision::Complete { checkpoint, chosen: vec![NULL] });
    assert_eq!(verdict(four(), &s, (0, state(0)), &[NULL]), Verdict::Valid);
}

/// [OSDI99 §4.4] "In the second case, it creates a new pre-prepare message [... for] a special null
/// request": B, where a quorum prepared nothing.
#[test]
fn b_a_gap_becomes_null() {
    let s = [(0, vc(0).p(2, A, 0)), (1, vc(0).p(2, A, 0)), (2, vc(0).q(1, &[(B, 0)]).p(2, A, 0))];
    assert_eq!(chosen(four(), &s), Some((0, vec![NULL, A])));
    assert_eq!(verdict(four(), &s, (0, state(0)), &[NULL, A]), Verdict::Valid);
    // What was only pre-prepared may not be chosen: nobody claims that it prepared.
    assert_eq!(verdict(four(), &s, (0, state(0)), &[B, A]), invalid(choice(1)));
}

/// B counts a quorum: two of three replicas with nothing could hide a third that committed.
#[test]
fn b_needs_a_quorum_without_an_entry() {
    let s = [(0, vc(0).p(1, A, 0)), (1, vc(0).q(1, &[(A, 0)])), (2, vc(0).q(1, &[(B, 0)]))];
    assert_eq!(chosen(four(), &s), Some((0, vec![A])));
    assert_eq!(verdict(four(), &s, (0, state(0)), &[NULL]), invalid(choice(1)));
}

/// DP-1: "Prefer A over B", though either would be safe.
#[test]
fn a_is_preferred_over_b() {
    let backup = || vc(0).q(1, &[(A, 0)]);
    let s = [(0, vc(0).p(1, A, 0)), (1, backup()), (2, backup()), (3, backup())];
    assert_eq!(chosen(four(), &s), Some((0, vec![A])));
    assert_eq!(verdict(four(), &s, (0, state(0)), &[NULL]), Verdict::Valid);
}

/// DP-2, A18 `null_vs_gc`: `a` committed at 1 at r0, r1 and r2, and r0 has discarded its entries since
/// its checkpoint 2 is stable. Were r0 counted as "nothing prepared", number 1 would become null.
#[test]
fn a_replica_that_collected_says_nothing_about_b() {
    let pre_prepared = || vc(0).q(1, &[(A, 0)]);
    let s = [
        (0, vc(2)),
        (1, vc(0).c(2, state(2)).p(1, A, 0)),
        (3, pre_prepared()),
        (4, pre_prepared()),
        (5, vc(0)),
        (6, vc(0)),
    ];
    assert_eq!(chosen(seven(), &s), Some((0, vec![A])), "number 2 is above what a quorum reports");
    assert_eq!(verdict(seven(), &s, (0, state(0)), &[NULL]), invalid(choice(1)));
}

/// DP-2 for A1: `b` committed at 1 in view 1 at r0, r1 and r2, of which r0 has collected. The liars r5
/// and r6, and r3 truly, support the older `a`.
#[test]
fn a_replica_that_collected_says_nothing_about_a1() {
    let s = [
        (0, vc(2)),
        (1, vc(0).c(2, state(2)).p(1, B, 1)),
        (3, vc(0).q(1, &[(A, 0)])),
        (4, vc(0)),
        (5, vc(0).p(1, A, 0)),
        (6, vc(0).p(1, A, 0)),
    ];
    assert_eq!(chosen(seven(), &s), None);
    assert_eq!(verdict(seven(), &s, (0, state(0)), &[A]), invalid(choice(1)));
}

/// B2, A19 `staggered_h_view_change`: low water marks differ, and only two replicas still have
/// checkpoint 2. Were its supporters alone to make the quorum, nobody could ever go on.
#[test]
fn b2_the_low_water_marks_are_counted_over_all_of_s() {
    let s = [(0, vc(0)), (1, vc(2)), (2, vc(2))];
    assert_eq!(chosen(four(), &s), Some((2, vec![])));
    assert_eq!(verdict(four(), &s, (2, state(2)), &[]), Verdict::Valid);
}

/// [OSDI99 §4.4] "whose checkpoint messages certified its correctness in V": one word is not enough.
#[test]
fn a_checkpoint_needs_the_word_of_a_correct_replica() {
    let s = [(0, vc(0)), (1, vc(0)), (2, vc(0).c(2, C))];
    assert_eq!(chosen(four(), &s), Some((0, vec![])));
    assert_eq!(verdict(four(), &s, (2, C), &[]), invalid(Violation::Checkpoint));
    // T8: nor are two words that differ.
    let s = [(0, vc(0)), (1, vc(0).c(2, state(2))), (2, vc(0).c(2, C))];
    assert_eq!(chosen(four(), &s), Some((0, vec![])));
}

/// A checkpoint that a quorum has gone past could miss what has committed above it.
#[test]
fn a_checkpoint_needs_a_quorum_that_still_reaches_it() {
    let s = [(0, vc(0)), (1, vc(0)), (2, vc(2))];
    let why = Lack::Checkpoint;
    assert_eq!(decided(four(), &s), Decision::Waiting { why, batches: vec![], wants: vec![] });
    assert_eq!(verdict(four(), &s, (0, state(0)), &[]), invalid(Violation::Checkpoint));
}

/// "take the largest n"; a backup also takes a lower one that is eligible (VV-3).
#[test]
fn the_latest_checkpoint_is_taken_and_a_lower_one_is_valid() {
    let both = || vc(0).c(2, state(2)).p(1, A, 0).p(2, B, 0);
    let s = [(0, both()), (1, both()), (2, both())];
    assert_eq!(chosen(four(), &s), Some((2, vec![])));
    assert_eq!(verdict(four(), &s, (2, state(2)), &[]), Verdict::Valid);
    assert_eq!(verdict(four(), &s, (0, state(0)), &[A, B]), Verdict::Valid);
    assert_eq!(verdict(four(), &s, (0, state(0)), &[A]), invalid(Violation::TooShort));
}

/// DP-3: X reaches as far as a quorum cannot exclude something, and null batches at its end stay: their
/// numbers are not used again.
#[test]
fn nulls_at_the_end_are_kept() {
    let s = [(0, vc(0).q(3, &[(A, 0)])), (1, vc(0).q(3, &[(A, 0)])), (2, vc(0))];
    assert_eq!(chosen(four(), &s), Some((0, vec![NULL, NULL, NULL])));
    assert_eq!(verdict(four(), &s, (0, state(0)), &[]), invalid(Violation::TooShort));
}

/// `max_x` counts Q as well as P, and what only f replicas report is free for new proposals.
#[test]
fn numbers_above_what_a_quorum_reports_are_free() {
    let s = [(0, vc(0).p(4, A, 0)), (1, vc(0).q(2, &[(B, 0)])), (2, vc(0)), (3, vc(0).q(2, &[(B, 0)]))];
    assert_eq!(chosen(four(), &s), Some((0, vec![NULL, NULL])));
    // A primary may fix more numbers than it must, up to the window.
    assert_eq!(verdict(four(), &s, (0, state(0)), &[NULL; 3]), Verdict::Valid);
    assert_eq!(verdict(four(), &s, (0, state(0)), &[NULL; 5]), invalid(Violation::TooLong));
}

/// DP-6: an entry above `n* + L` cannot have committed and is passed over.
#[test]
fn entries_far_above_the_checkpoint_are_passed_over() {
    let ahead = vc(2).p(6, A, 0);
    let s = [(0, vc(0)), (1, vc(0)), (2, ahead), (3, vc(0))];
    assert_eq!(chosen(four(), &s), Some((0, vec![])));
}

/// Two numbers at once: what commits at one says nothing about the other.
#[test]
fn two_numbers_are_decided_apart() {
    let s = [
        (0, vc(0).p(1, A, 0).q(2, &[(C, 1)])),
        (1, vc(0).p(1, A, 0).p(2, B, 2)),
        (3, vc(0).q(1, &[(B, 1)]).p(2, B, 2)),
    ];
    assert_eq!(chosen(four(), &s), Some((0, vec![A, B])));
    assert_eq!(verdict(four(), &s, (0, state(0)), &[A, B]), Verdict::Valid);
    assert_eq!(verdict(four(), &s, (0, state(0)), &[A, NULL]), invalid(choice(2)));
    assert_eq!(verdict(four(), &s, (0, state(0)), &[B, B]), invalid(choice(1)));
}

/// A number that waits does not keep the next one's wants from being asked for.
#[test]
fn all_that_is_missing_is_asked_for_at_once() {
    let s = [(0, vc(0).p(1, A, 0).p(2, B, 0)), (1, vc(0)), (2, vc(0).p(2, B, 0))];
    let waiting = decide(four(), L, NULL, &of(four(), &s), no_proofs, |_| false);
    let why = Lack::Choice(SeqNum(1));
    let want = Want { seq: SeqNum(1), digest: A, view: ViewNum(0) };
    assert_eq!(waiting, Decision::Waiting { why, batches: vec![B], wants: vec![want] });
}

/// What stood in the way of a number that is decided after all is not asked for: here a liar's `c`,
/// without support or with another liar's, but without a batch.
#[test]
fn what_a_decided_number_lacked_is_not_asked_for() {
    let ab = || vc(0).p(1, A, 0).p(2, B, 0);
    let s = [(0, vc(0).p(1, C, 4)), (1, ab()), (2, ab()), (3, vc(0).p(1, A, 0))];
    for liars in [0b0001, 0b0011] {
        let proofs = |_, digest: &Digest, _| if *digest == C { liars } else { 0 };
        let waiting = decide(four(), L, NULL, &of(four(), &s), proofs, |digest| *digest == A);
        let why = Lack::Choice(SeqNum(2));
        assert_eq!(waiting, Decision::Waiting { why, batches: vec![B], wants: vec![] });
    }
}

/// A1 as printed: "m.P[n] = (d, v')". The same batch in a later view is a claim of its own.
#[test]
fn a1_the_same_batch_in_a_later_view_is_another_claim() {
    let s = [(0, vc(0).p(1, A, 2)), (1, vc(0).p(1, A, 1)), (2, vc(0).p(1, A, 1))];
    let want = Want { seq: SeqNum(1), digest: A, view: ViewNum(2) };
    let why = Lack::Choice(SeqNum(1));
    assert_eq!(decided(four(), &s), Decision::Waiting { why, batches: vec![], wants: vec![want] });
    let s = [s[0].clone(), s[1].clone(), s[2].clone(), (3, vc(0))];
    assert_eq!(chosen(four(), &s), Some((0, vec![A])), "three replicas agree that it is the one of view 1");
}

/// VV-1: V must be of this view.
#[test]
fn a_new_view_stands_on_view_changes_for_its_own_view() {
    let mut other = vc(0);
    other.view = ViewNum(9);
    other.leave.suspects = vec![(ReplicaId(0), suspect(8))]; // the primary of view 8 hands over
    let s = [(0, vc(0)), (1, vc(0)), (2, other)];
    assert_eq!(verdict(four(), &s, (0, state(0)), &[]), invalid(Violation::OtherView));
}

/// The largest report there can be: 13 replicas, L = 256, f + 2 claims and a different batch prepared
/// at each. It takes a fraction of a millisecond.
#[test]
fn the_largest_view_changes_are_decided() {
    let cluster = Cluster::tolerating(4).unwrap();
    let one = |i: u8| {
        let mut m = ViewChange { checkpoints: vec![(SeqNum(0), state(0))], ..vc(0) };
        m.leave.suspects = vec![(cluster.primary(ViewNum(4)), suspect(4))];
        for n in 1..=256 {
            let claims =
                (0..6).map(|k| (Digest([if k == 0 { i } else { k * 16 }; 32]), ViewNum(3))).collect();
            m.pre_prepared.push(PrePrepared { seq: SeqNum(n), claims });
            m.prepared.push(Prepared {
                seq: SeqNum(n),
                digest: Digest([i; 32]),
                view: ViewNum(u64::from(i % 4)),
            });
        }
        m
    };
    let all: Vec<_> = (0..13).map(|i| (ReplicaId(u16::from(i)), one(i))).collect();
    let of = all.iter().map(|(i, m)| ViewChangeOf::new(cluster, 128, 256, *i, m).unwrap());
    let s: Vec<_> = of.collect();
    let Decision::Waiting { why, wants, batches } = decide(cluster, 256, NULL, &s, no_proofs, |_| true)
    else {
        panic!("nothing supports any of them")
    };
    assert_eq!(why, Lack::Choice(SeqNum(1)));
    assert_eq!((wants.len(), batches.len()), (3 * 256, 0), "three claim each number in the highest view");
}

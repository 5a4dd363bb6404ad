//! The form of VIEW-CHANGE and NEW-VIEW, rule by rule.

use super::*;
use crate::io::step::Reject;

/// VV-1: the checkpoint is one, and members alone are named.
#[test]
fn a_new_view_has_a_form() {
    let s = [(0, vc(0)), (1, vc(0)), (2, vc(0))];
    let form = |new_view| well_formed_new_view(four(), K, L, &new_view);
    assert_eq!(form(new_view(&s, (4, state(4)), &[NULL; 4])), Ok(()));
    assert_eq!(form(new_view(&s, (3, state(3)), &[])), Err(Violation::Checkpoint));
    let s = [(0, vc(0)), (1, vc(0)), (4, vc(0))];
    assert_eq!(form(new_view(&s, (0, state(0)), &[])), Err(Violation::ViewChanges));
    let s = [(0, vc(0)), (1, vc(0)), (2, vc(0)), (2, vc(0))];
    assert_eq!(form(new_view(&s, (0, state(0)), &[])), Err(Violation::ViewChanges));
}

/// VC-5: each rule of §11.4, broken once.
#[test]
fn a_view_change_that_breaks_a_rule_is_refused() {
    let good = || vc(2).c(4, state(4)).p(3, A, 4).q(6, &[(B, 4), (A, 0), (C, 0)]);
    let form = |m: &ViewChange| well_formed(four(), K, L, m);
    assert_eq!(form(&good()), Ok(()));
    let broken = |what: &str, break_it: &dyn Fn(&mut ViewChange)| {
        let mut m = good();
        break_it(&mut m);
        assert_eq!(form(&m), Err(Reject::BadViewChange), "{what}");
    };
    broken("view 0", &|m| m.view = ViewNum(0));
    broken("h is no checkpoint", &|m| m.stable = SeqNum(3));
    broken("C without h", &|m| _ = m.checkpoints.remove(0));
    broken("no C", &|m| m.checkpoints.clear());
    broken("C out of order", &|m| m.checkpoints.push((SeqNum(4), C)));
    broken("C is no checkpoint", &|m| m.checkpoints[1].0 = SeqNum(5));
    broken("C above the window", &|m| m.checkpoints[1].0 = SeqNum(8));
    broken("Q at h", &|m| {
        m.pre_prepared.insert(0, PrePrepared { seq: SeqNum(2), claims: vec![(A, ViewNum(0))] });
    });
    broken("Q above the window", &|m| m.pre_prepared[1].seq = SeqNum(7));
    broken("Q twice for a number", &|m| m.pre_prepared.push(m.pre_prepared[1].clone()));
    broken("Q with a digest twice", &|m| m.pre_prepared[1].claims[1].0 = B);
    broken("Q with too many digests", &|m| m.pre_prepared[1].claims.push((NULL, ViewNum(0))));
    broken("Q with none", &|m| m.pre_prepared[1].claims.clear());
    broken("Q of the view to come", &|m| m.pre_prepared[1].claims[0].1 = ViewNum(5));
    broken("P at h", &|m| m.prepared[0].seq = SeqNum(2));
    broken("P above the window", &|m| m.prepared[0].seq = SeqNum(7));
    broken("P twice for a number", &|m| m.prepared.push(m.prepared[0]));
    broken("P not pre-prepared", &|m| m.prepared[0].digest = B);
    broken("P without Q", &|m| _ = m.pre_prepared.remove(0));
    broken("P after its Q", &|m| m.pre_prepared[0].claims[0].1 = ViewNum(3));
    broken("P of the view to come", &|m| {
        m.prepared[0].view = ViewNum(5);
        m.pre_prepared[0].claims[0].1 = ViewNum(5);
    });
    assert!(ViewChangeOf::new(four(), K, L, ReplicaId(4), &good()).is_err());
    let high = ViewChange { stable: SeqNum(u64::MAX - 1), ..vc(0) };
    assert_eq!(form(&high), Err(Reject::BadViewChange), "no arithmetic overflows");
}

/// B27, LV-2: "w SUSPECTs for v from distinct replicas, or one from primary(v) itself". View 4's is r0.
#[test]
fn b27_leaving_a_view_needs_a_proof() {
    let leaving = |suspects: &[(u16, u64)]| {
        let suspects = suspects.iter().map(|(i, view)| (ReplicaId(*i), suspect(*view))).collect();
        well_formed(four(), K, L, &ViewChange { leave: LeaveCert { suspects }, ..vc(0) })
    };
    let bad = Err(Reject::BadLeaveCert);
    assert_eq!(leaving(&[(1, 4), (3, 4)]), Ok(()));
    assert_eq!(leaving(&[(0, 4)]), Ok(()), "the primary hands over");
    assert_eq!(leaving(&[]), bad, "absent");
    assert_eq!(leaving(&[(1, 4)]), bad, "f replicas alone");
    assert_eq!(leaving(&[(1, 4), (1, 4)]), bad, "one replica twice");
    assert_eq!(leaving(&[(1, 3), (3, 3)]), bad, "for an older view");
    assert_eq!(leaving(&[(1, 4), (4, 4)]), bad, "not a member");
}

use quorate_wire::{ClientId, Timestamp};

use super::*;

const A: Digest = Digest([0xa; 32]);
const B: Digest = Digest([0xb; 32]);

/// A reply: from whom, in which view, with which digest.
type Said = (u16, u64, Digest, bool);

fn committed(from: u16, digest: Digest) -> Said {
    (from, 0, digest, false)
}

fn tentative(from: u16, view: u64, digest: Digest) -> Said {
    (from, view, digest, true)
}

fn insert(replies: &mut Replies, path: Path, said: Said, result: Option<&[u8]>) -> Result<(), ClientReject> {
    let (from, view, digest, tentative) = said;
    let (timestamp, client) = (Timestamp(1), ClientId::new(1, 0));
    let reply = Reply { view: ViewNum(view), timestamp, client, tentative, digest, result };
    replies.insert(ReplicaId(from), path, &reply)
}

/// The digest that these replies certify, in a cluster of four.
fn certified(reads_unordered: bool, path: Path, said: &[Said]) -> Option<Digest> {
    let mut replies = Replies::new(Cluster::tolerating(1).unwrap(), reads_unordered);
    for said in said {
        let _ = insert(&mut replies, path, *said, None);
    }
    replies.certified()
}

/// [OSDI99 §4.1] "f+1 replies [...] from different replicas, and with the same t and r".
#[test]
fn f_plus_one_committed_replies_are_enough_without_unordered_reads() {
    let said = [committed(0, A), committed(2, A)];
    assert_eq!(certified(false, Path::Ordered, &said), Some(A));
    assert_eq!(certified(false, Path::Ordered, &said[..1]), None);
    assert_eq!(certified(false, Path::Ordered, &[committed(0, A), committed(2, B)]), None);
    assert_eq!(certified(false, Path::Ordered, &[committed(0, A), committed(0, A)]), None);
}

/// CL-8, A12: with reads that bypass the order a write takes a quorum, also one that fell back.
#[test]
fn a_write_takes_a_quorum_while_reads_are_unordered() {
    for path in [Path::Ordered, Path::FellBack] {
        let said = [committed(0, A), committed(2, A), committed(3, A)];
        assert_eq!(certified(true, path, &said[..2]), None);
        assert_eq!(certified(true, path, &said), Some(A));
    }
}

/// [OSDI99 §5.1] "The client waits for 2f+1 matching tentative replies".
#[test]
fn tentative_replies_take_a_quorum() {
    let said = [tentative(0, 3, A), tentative(1, 3, A), tentative(2, 3, A)];
    for reads_unordered in [false, true] {
        assert_eq!(certified(reads_unordered, Path::Ordered, &said[..2]), None);
        assert_eq!(certified(reads_unordered, Path::Ordered, &said), Some(A));
    }
}

/// CL-7, A13: all tentative ones of the same view. Committed ones may be of any.
#[test]
fn tentative_replies_of_different_views_do_not_add_up() {
    let mixed = [tentative(0, 3, A), tentative(1, 3, A), tentative(2, 4, A)];
    assert_eq!(certified(true, Path::Ordered, &mixed), None);
    let mixed = [tentative(0, 3, A), tentative(1, 3, A), committed(2, A)];
    assert_eq!(certified(true, Path::Ordered, &mixed), Some(A));
    let mixed = [tentative(0, 3, A), tentative(1, 4, A), committed(2, A)];
    assert_eq!(certified(true, Path::Ordered, &mixed), None);
    let again = [tentative(0, 3, A), tentative(1, 4, A), tentative(2, 4, A), tentative(0, 4, A)];
    assert_eq!(certified(true, Path::Ordered, &again), Some(A));
}

/// [OSDI99 §5.1] a read that was not ordered takes "2f+1 replies from different replicas with the
/// same result", none of them tentative (RO-2).
#[test]
fn an_unordered_read_takes_a_quorum() {
    let said = [committed(0, A), committed(2, A), committed(3, A)];
    assert_eq!(certified(true, Path::ReadOnly, &said[..2]), None);
    assert_eq!(certified(true, Path::ReadOnly, &said), Some(A));
    let said = [committed(0, A), committed(2, A), tentative(3, 0, A)];
    assert_eq!(certified(true, Path::ReadOnly, &said), None);
}

/// One replica has one voice, and its newest word counts.
#[test]
fn a_replica_may_change_its_reply() {
    let said = [tentative(0, 3, A), tentative(1, 4, B), tentative(2, 4, B), tentative(0, 4, B)];
    assert_eq!(certified(true, Path::Ordered, &said), Some(B));
    let said = [committed(0, A), committed(0, A), committed(0, A), committed(1, A)];
    assert_eq!(certified(true, Path::Ordered, &said), None);
}

/// A late reply does not replace a firmer or newer one.
#[test]
fn an_older_reply_does_not_replace_a_newer_one() {
    let mut replies = Replies::new(Cluster::tolerating(1).unwrap(), true);
    let mut say = |said| insert(&mut replies, Path::Ordered, said, None);
    assert_eq!(say((0, 3, A, false)), Ok(()));
    assert_eq!(say((0, 3, A, true)), Err(ClientReject::Superseded));
    assert_eq!(say((1, 3, A, true)), Ok(()));
    assert_eq!(say((1, 2, B, true)), Err(ClientReject::Superseded));
    assert_eq!(say((1, 3, A, false)), Ok(()));
}

/// CL-6, K12: the result has to be the certified one; a late one completes the certificate, and
/// counting does not start again.
#[test]
fn a_full_result_must_match_the_certificate() {
    let mut replies = Replies::new(Cluster::tolerating(1).unwrap(), true);
    let mut say = |said, result| {
        let _ = insert(&mut replies, Path::Ordered, said, result);
        (replies.certified(), replies.result().map(<[u8]>::to_vec))
    };
    assert_eq!(say(committed(0, B), Some(b"a liar's")), (None, None));
    assert_eq!(say(committed(1, A), None), (None, None));
    assert_eq!(say(committed(2, A), None), (None, None));
    assert_eq!(say(committed(3, A), None), (Some(A), None));
    assert_eq!(say(committed(3, B), None), (Some(A), None));
    assert_eq!(say(committed(2, B), None), (Some(A), None));
    assert_eq!(say(committed(1, A), Some(b"right")), (Some(A), Some(b"right".to_vec())));
    assert_eq!(say(committed(1, A), None), (Some(A), Some(b"right".to_vec())));
}

/// A replica that changes its reply has not sent the result of the new one yet.
#[test]
fn a_result_goes_with_its_digest() {
    let mut replies = Replies::new(Cluster::tolerating(1).unwrap(), true);
    insert(&mut replies, Path::Ordered, tentative(0, 1, A), Some(b"undone")).unwrap();
    for from in 0..3 {
        insert(&mut replies, Path::Ordered, tentative(from, 2, B), None).unwrap();
    }
    assert_eq!((replies.certified(), replies.result()), (Some(B), None));
}

/// CL-5: "the (f+1)-th largest view reported, not the last message's".
#[test]
fn a_liar_cannot_name_the_view() {
    let view = |views: [u64; 3]| {
        let mut replies = Replies::new(Cluster::tolerating(1).unwrap(), true);
        for (from, view) in (0..).zip(views) {
            insert(&mut replies, Path::Ordered, (from, view, A, false), None).unwrap();
        }
        replies.view_after(ViewNum(0)).map_or(0, |view| view.0)
    };
    assert_eq!(view([5, 5, 5]), 5);
    assert_eq!(view([5, 900, 5]), 5);
    assert_eq!(view([5, 0, 5]), 5);
    assert_eq!(view([6, 5, 7]), 6);
}

#[test]
fn replies_that_cannot_agree_are_seen() {
    let cannot = |said: &[Said]| {
        let mut replies = Replies::new(Cluster::tolerating(1).unwrap(), true);
        for said in said {
            insert(&mut replies, Path::ReadOnly, *said, None).unwrap();
        }
        replies.cannot_agree()
    };
    assert!(!cannot(&[]));
    assert!(!cannot(&[committed(0, A), committed(1, B), committed(2, A)]));
    assert!(cannot(&[committed(0, A), committed(1, B), committed(2, A), committed(3, B)]));
}

/// The replicas that these replies prove to be wrong, in a cluster of four.
fn contradicted(path: Path, said: &[Said]) -> Vec<u16> {
    let mut replies = Replies::new(Cluster::tolerating(1).unwrap(), true);
    let mut found = Vec::new();
    for said in said {
        let _ = insert(&mut replies, path, *said, None);
        found.extend(std::iter::from_fn(|| replies.take_contradicted(path)).map(|id| id.0));
    }
    found
}

#[test]
fn a_reply_that_f_plus_one_others_contradict_is_found_once() {
    let said = [committed(2, B), committed(0, A), committed(3, A), committed(1, A)];
    for path in [Path::Ordered, Path::FellBack] {
        assert_eq!(contradicted(path, &said), [2]);
    }
    // Whichever way round they come; also without a result.
    let said = [committed(0, A), committed(1, A), committed(3, A), committed(2, B)];
    assert_eq!(contradicted(Path::Ordered, &said), [2]);
    // Again and again: still one request.
    let said = [committed(2, B), committed(0, A), committed(3, A), committed(2, B)];
    assert_eq!(contradicted(Path::Ordered, &said), [2]);
    let said = [tentative(2, 3, B), tentative(0, 3, A), tentative(3, 3, A)];
    assert_eq!(contradicted(Path::Ordered, &said), [2]);
    let said = [tentative(2, 3, B), (0, 3, A, false), tentative(3, 3, A)];
    assert_eq!(contradicted(Path::Ordered, &said), [2], "what had committed stands in the view's order");
}

/// Never accuse a correct replica.
#[test]
fn what_correct_replicas_may_say_is_no_contradiction() {
    let cases: &[(Path, &[Said])] = &[
        // A read is answered by each from its own state, and some are behind.
        (Path::ReadOnly, &[committed(2, B), committed(0, A), committed(1, A), committed(3, A)]),
        // f others may be the liars.
        (Path::Ordered, &[committed(2, B), committed(0, A)]),
        (Path::Ordered, &[committed(2, B), committed(0, A), committed(1, Digest([0xc; 32]))]),
        // Undone in a later view, and executed again in another order.
        (Path::Ordered, &[tentative(2, 3, B), tentative(0, 4, A), tentative(3, 4, A)]),
        (Path::Ordered, &[tentative(2, 3, B), (0, 4, A, false), (1, 5, A, false), (3, 4, A, false)]),
        (Path::Ordered, &[committed(2, B), tentative(0, 4, A), tentative(3, 4, A)]),
        // It has said so itself since.
        (Path::Ordered, &[tentative(2, 3, B), tentative(2, 4, A), tentative(0, 4, A), tentative(3, 4, A)]),
    ];
    for (path, said) in cases {
        assert_eq!(contradicted(*path, said), [], "{said:?}");
    }
}

/// A replica that has refused a read, and one that lies in the same way, are not told apart: that is no result.
#[test]
fn l21_a_refused_read_is_no_contradiction() {
    for path in [Path::Ordered, Path::FellBack] {
        let said = [committed(2, Digest::ZERO), committed(0, A), committed(1, A), committed(3, A)];
        assert_eq!(contradicted(path, &said), []);
        let said = [committed(0, Digest::ZERO), committed(1, Digest::ZERO), committed(2, A)];
        assert_eq!(contradicted(path, &said), [], "nor does it contradict");
        let said = [committed(0, Digest::ZERO), committed(2, B), committed(1, A), committed(3, A)];
        assert_eq!(contradicted(path, &said), [2], "the others are compared");
    }
}

/// Results do not pile up: what was large is given back.
#[test]
fn a_large_result_does_not_stay() {
    let mut replies = Replies::new(Cluster::tolerating(1).unwrap(), true);
    insert(&mut replies, Path::Ordered, committed(1, A), Some(&vec![0; 70_000])).unwrap();
    insert(&mut replies, Path::Ordered, committed(2, A), Some(&[0; 4096])).unwrap();
    replies.clear();
    assert_eq!(replies.results[1].capacity(), 0);
    assert!(replies.results[2].capacity() >= 4096);
}

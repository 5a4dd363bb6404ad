//! Reads that are not ordered.

use super::*;

/// CL-2: a read is tried once more, and then ordered, under a new timestamp: what was said to the old
/// one proves nothing about the new one.
#[test]
fn a_read_that_is_not_answered_is_ordered() {
    let mut test = Test::four();
    test.invoke(b"get", true);
    assert_eq!(test.full(0, 100, "old"), []);
    assert_eq!(test.full(1, 100, "old"), []);
    assert_eq!(test.time_out(), [rest(100), Did::Rest { t: 100 }, Did::Wait]);
    let read = Did::Send { to: None, t: 100, read: true, full: true, sign: false };
    assert_eq!(test.time_out(), [again(100, 1), read, Did::Wait]);
    let fell = Did::Said(ClientMilestone::FellBack { from: Timestamp(100), to: Timestamp(101) });
    let ordered = Did::Send { to: None, t: 101, read: false, full: true, sign: false };
    assert_eq!(test.time_out(), [fell, ordered, Did::Wait]);
    // From here on as any other request: unsigned the first time.
    let ordered = Did::Send { to: None, t: 101, read: false, full: true, sign: false };
    assert_eq!(test.time_out(), [again(101, 1), ordered, Did::Wait]);
    assert_eq!(test.full(2, 100, "old"), rejected(2, ClientReject::OtherRequest));
    assert_eq!(test.reply(3, 101, "old", |r| r.tentative = true), []);
    test.reply(0, 101, "new", |r| r.tentative = true);
    test.reply(1, 101, "new", |r| r.tentative = true);
    let last = test.reply(2, 101, "new", |r| r.tentative = true);
    assert_eq!(last, [Did::Stop, done(101, "new", Path::FellBack)]);
    assert_eq!(test.invoke(b"put", false)[0], invoked(102, false));
}

/// RP-5: what fell back may be a write that its caller took for a read. Overtaken by a later timestamp, it is not sent again.
#[test]
fn what_fell_back_and_is_overtaken_is_not_sent_again() {
    let mut test = Test::four();
    test.invoke(b"get", true);
    for _ in 0..3 {
        test.time_out();
    }
    assert_eq!(test.full(0, 500, "old"), rejected(0, ClientReject::OtherRequest));
    let overtaken = Did::Overtaken(101, 500);
    assert_eq!(test.full(2, 500, "old")[..2], [Did::Stop, overtaken]);
}

/// DV-43: who was missed is not waited for again, and the next read is done with those who are asked.
#[test]
fn a_silent_replica_delays_one_read() {
    let mut test = Test::four();
    let asked = test.read();
    let silent = asked[1];
    for from in asked.iter().filter(|from| **from != silent) {
        assert_eq!(test.full(usize::from(*from), 100, "ok"), []);
    }
    assert_eq!(test.time_out(), [rest(100), Did::Rest { t: 100 }, Did::Wait]);
    let other = (0..4).find(|from| !asked.contains(from)).unwrap();
    assert_eq!(test.full(usize::from(other), 100, "ok"), [Did::Stop, done(100, "ok", Path::ReadOnly)]);
    for t in 101..110 {
        let asked = test.read();
        assert!(!asked.contains(&silent));
        let last = asked.iter().map(|from| test.full(usize::from(*from), t, "ok")).last().unwrap();
        assert_eq!(last, [Did::Stop, done(t, "ok", Path::ReadOnly)]);
    }
}

/// DV-43: if replies do not agree, the others are asked immediately, and the replica that was wrong, or
/// behind, is left out next.
#[test]
fn replies_that_differ_have_the_others_asked() {
    let mut test = Test::four();
    let asked = test.read();
    let replies = ["ok", "old", "ok"];
    let mut last = vec![];
    for (from, said) in asked.iter().zip(replies) {
        last = test.full(usize::from(*from), 100, said);
    }
    assert_eq!(last, [rest(100), Did::Rest { t: 100 }, Did::Wait]);
    let other = (0..4).find(|from| !asked.contains(from)).unwrap();
    assert_eq!(test.full(usize::from(other), 100, "ok"), [Did::Stop, done(100, "ok", Path::ReadOnly)]);
    assert!(!test.read().contains(&asked[1]));
}

/// [OSDI99 §5.1] "concurrent writes to data that affect the result": no need to wait for the timer.
#[test]
fn a_read_that_cannot_agree_is_ordered_at_once() {
    let mut test = Test::four();
    test.invoke(b"get", true);
    test.full(0, 100, "old");
    test.full(1, 100, "old");
    assert_eq!(test.full(2, 100, "new"), []);
    let fell = Did::Said(ClientMilestone::FellBack { from: Timestamp(100), to: Timestamp(101) });
    assert_eq!(test.full(3, 100, "new"), [fell, send(Some(0), 101), Did::Wait]);
}

/// RO-1, DV-41: where the service wants an order, f + 1 replicas that say so are enough; one may be lying, and
/// nothing is believed of it.
#[test]
fn a_read_that_needs_an_order_is_ordered_at_once() {
    let refuse = |r: &mut Reply<'_>| (r.digest, r.result) = (Digest::ZERO, None);
    let fell = Did::Said(ClientMilestone::FellBack { from: Timestamp(100), to: Timestamp(101) });
    let mut test = Test::four();
    test.invoke(b"get", true);
    assert_eq!(test.reply(0, 100, "", refuse), []);
    assert_eq!(test.reply(3, 100, "", refuse), [fell, send(Some(0), 101), Did::Wait]);
    assert_eq!(test.reply(0, 101, "", refuse), rejected(0, ClientReject::OtherRequest), "no result");
    // One liar changes nothing.
    let mut test = Test::four();
    test.invoke(b"get", true);
    assert_eq!(test.reply(1, 100, "", refuse), []);
    test.full(0, 100, "ok");
    test.full(2, 100, "ok");
    assert_eq!(test.full(3, 100, "ok"), [Did::Stop, done(100, "ok", Path::ReadOnly)]);
}

/// RO-2: a correct replica replies to a read from the committed state only.
#[test]
fn a_tentative_reply_to_a_read_does_not_count() {
    let mut test = Test::four();
    test.invoke(b"get", true);
    let tentative = test.reply(0, 100, "ok", |r| r.tentative = true);
    assert_eq!(tentative, rejected(0, ClientReject::TentativeRead));
}

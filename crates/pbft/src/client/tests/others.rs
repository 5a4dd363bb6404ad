//! What other runs and other lanes of a client have to do with a request.

use super::*;

/// RP-5, S3: the timestamp was used before, by a run of which nothing is known here.
#[test]
fn a_reply_to_another_operation_is_not_taken() {
    let old = |test: &mut Test, from, t| {
        let request = test.domains.request(lane().0, t, b"an old one");
        let digest = test.domains.reply(lane().0, t, &request, b"ok");
        test.reply(from, t, "ok", |r| r.digest = digest)
    };
    let other = |from| rejected(from, ClientReject::OtherOperation);
    let mut test = Test::four();
    test.invoke(b"put", false);
    assert_eq!(old(&mut test, 0, 100), other(0));
    let taken = ClientMilestone::TimestampTaken { from: Timestamp(100), to: Timestamp(101) };
    let mut expected = vec![Did::Said(taken), send(Some(0), 101), Did::Wait];
    expected.extend(other(2));
    assert_eq!(old(&mut test, 2, 100), expected, "f + 1 say so: it is asked for under another one");
    assert_eq!(test.quorum(101, "ok"), [Did::Stop, done(101, "ok", Path::Ordered)]);
    // A later one has been executed: whether this one was before it, nobody knows.
    test.invoke(b"put", false);
    assert_eq!(old(&mut test, 0, 500), rejected(0, ClientReject::OtherRequest));
    assert_eq!(test.reply(3, 700, "ok", |r| r.tentative = true)[0], Did::Stop);
    assert_eq!(test.invoke(b"put", false)[0], invoked(501, false), "above what a correct replica has seen");
    // One liar changes nothing.
    for t in [501, 502, u64::MAX, 501] {
        assert!(matches!(old(&mut test, 1, t)[..], [Did::Said(ClientMilestone::Rejected { .. })]));
    }
    assert_eq!(test.quorum(501, "ok"), [Did::Stop, done(501, "ok", Path::Ordered)]);
}

/// L42, RP-5: the reply is lost, and another lane of the client has got the place of this one. What replicas know is that
/// the lost entry had this timestamp: nobody can say any more what has become of the request, and it is not asked for again.
#[test]
fn l42_a_write_whose_entry_is_lost_ends_with_its_outcome_unknown() {
    let refuse = |test: &mut Test, from, t, tentative| {
        test.reply(from, t, "", |r| (r.digest, r.result, r.tentative) = (Digest::ZERO, None, tentative))
    };
    for tentative in [true, false] {
        let mut test = Test::four();
        test.invoke(b"put", false);
        test.full(3, 100, "ok");
        test.time_out();
        assert_eq!(refuse(&mut test, 0, 100, tentative), rejected(0, ClientReject::OtherRequest));
        assert_eq!(refuse(&mut test, 0, 100, tentative), rejected(0, ClientReject::OtherRequest), "one liar");
        assert_eq!(
            refuse(&mut test, 3, 99, tentative),
            rejected(3, ClientReject::OtherRequest),
            "of long ago"
        );
        let mut expected = vec![Did::Stop, Did::Overtaken(100, 100)];
        expected.extend(rejected(3, ClientReject::OtherRequest));
        assert_eq!(refuse(&mut test, 3, 100, tentative), expected);
        assert_eq!(test.invoke(b"put", false)[0], invoked(101, false));
    }
    // Replies that came before the entry was lost stay true.
    let mut test = Test::four();
    test.invoke(b"put", false);
    test.full(1, 100, "ok");
    test.full(2, 100, "ok");
    refuse(&mut test, 2, 100, false);
    assert_eq!(test.full(3, 100, "ok"), [Did::Stop, done(100, "ok", Path::Ordered)]);
}

/// What has waited for long is asked for soon once others are answered, and not before it has waited.
#[test]
fn l19_a_lane_that_waits_asks_again_when_others_are_answered() {
    let mut test = Test::four();
    assert_eq!(test.take(ClientInput::Answered), []);
    test.invoke(b"put", false);
    assert_eq!(test.take(ClientInput::Answered), [], "it has only just been sent");
    for _ in 0..12 {
        test.time_out();
    }
    assert_eq!(test.take(ClientInput::Answered), [Did::Wait]);
    let wait = |test: &mut Test| {
        let mut out = ClientActions::new();
        test.client.step(test.now, ClientInput::Timer, &mut out);
        let timer = out.list().iter().rev().find_map(|action| {
            let ClientAction::SetTimer(at) = action else { return None };
            Some(at.0 - test.now.mono_ns)
        });
        timer.unwrap()
    };
    assert!(wait(&mut test) <= 200 * MS, "and its patience begins again");
    assert_eq!(test.take(ClientInput::Answered), [], "once is enough");
}

fn keys(test: &mut Test, missing: usize) -> Vec<Did> {
    test.take(ClientInput::Keys { missing })
}

fn held(t: u64) -> [Did; 3] {
    [Did::Said(ClientMilestone::LacksKeys { timestamp: Timestamp(t) }), Did::Keys, Did::Wait]
}

/// CL-11: a request that left before all keys were here is no business of the time-out.
#[test]
fn keys_that_come_after_the_request_bring_it_again() {
    let mut test = Test::four();
    keys(&mut test, 1);
    assert_eq!(test.invoke(b"put", false)[1..], [send(Some(0), 100), Did::Wait], "a quorum can check it");
    assert_eq!((keys(&mut test, 3), keys(&mut test, 2)), (vec![], vec![]));
    assert_eq!(keys(&mut test, 1), [Did::Wait], "one may have stopped: the time-out is short");
    assert_eq!(keys(&mut test, 0), [send(Some(0), 100), Did::Wait]);
    assert_eq!(test.quorum(100, "ok"), [Did::Stop, done(100, "ok", Path::Ordered)]);
    assert_eq!(keys(&mut test, 0), [], "nothing is outstanding");
    test.invoke(b"put", false);
    test.time_out();
    assert_eq!(keys(&mut test, 0), [], "all have been asked already");
}

/// L36, CL-11: no request leaves that the primary can check and a quorum cannot. It is no retransmission when it leaves.
#[test]
fn l36_a_request_waits_until_enough_replicas_can_check_it() {
    for last in [0, 1] {
        let mut test = Test::four();
        keys(&mut test, 4);
        assert_eq!(test.invoke(b"put", false)[1..], held(100));
        assert_eq!(keys(&mut test, 3), []);
        assert_eq!(test.time_out(), held(100));
        assert_eq!(keys(&mut test, 2), []);
        if last == 0 {
            assert_eq!(keys(&mut test, 0), [send(Some(0), 100), Did::Wait]);
            let sent = Did::Send { to: None, t: 100, read: false, full: true, sign: false };
            assert_eq!(test.time_out(), [again(100, 1), sent, Did::Wait]);
        } else {
            assert_eq!(keys(&mut test, 1), [Did::Wait]);
            let sent = Did::Send { to: None, t: 100, read: false, full: true, sign: true };
            assert_eq!(test.time_out(), [again(100, 2), sent, Did::Wait]);
        }
    }
}

/// L36, CL-11: replicas that never send keys hold nothing up that a signature can prove, and where clients do not sign, the
/// request leaves with the keys. A read is held as a write is.
#[test]
fn l36_a_signature_takes_the_place_of_keys() {
    let mut test = Test::four();
    keys(&mut test, 2);
    test.invoke(b"put", false);
    assert_eq!(test.time_out(), held(100));
    let sent = Did::Send { to: None, t: 100, read: false, full: true, sign: true };
    assert_eq!(test.time_out(), [again(100, 2), sent, Did::Wait]);
    assert_eq!(keys(&mut test, 0), [], "all have been asked already");
    let mut test = Test::new(&Config { request_auth: RequestAuth::Mac, ..config(1) });
    keys(&mut test, 2);
    test.invoke(b"put", false);
    for times in 1..7 {
        let did = test.time_out();
        assert!(did.ends_with(&held(100)), "{times}: {did:?}");
    }
    assert_eq!(keys(&mut test, 0), [send(Some(0), 100), Did::Wait]);
    let mut test = Test::four();
    keys(&mut test, 2);
    assert_eq!(test.invoke(b"get", true)[1..], held(100));
    assert_eq!(test.time_out(), held(100));
    assert_eq!(keys(&mut test, 0), [Did::Read { t: 100 }, Did::Wait]);
}

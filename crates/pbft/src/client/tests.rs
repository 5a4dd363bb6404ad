//! A client with real authenticators: replies are sealed by replicas and admitted by the client's own.

use alloc::collections::BTreeMap;
use alloc::vec;

use quorate_wire::Admitted;
use quorate_wire::codec::Writer;
use quorate_wire::digest::Domains;
use quorate_wire::frame::Frame;
use quorate_wire::message::Kind;
use quorate_wire::sign::{Signer, Verifier};
use quorate_wire::{ClusterId, Digest, Door};

use super::*;
use crate::io::config::{ReadRule, Reads};

mod others;
mod reads;

const CLUSTER: ClusterId = ClusterId([9; 32]);
const MS: u64 = 1_000_000;
const FIRST: u64 = 100;

/// What a client has asked to be done, in words that are easy to compare.
#[derive(Debug, PartialEq, Eq)]
enum Did {
    /// A read, to those who are asked at first; or to the others.
    Read {
        t: u64,
    },
    Rest {
        t: u64,
    },
    Send {
        to: Option<u16>,
        t: u64,
        read: bool,
        full: bool,
        sign: bool,
    },
    Wait,
    Stop,
    Keys,
    WithoutResult(u64),
    Overtaken(u64, u64),
    Done {
        t: u64,
        result: &'static str,
        path: Path,
    },
    Said(ClientMilestone),
}

struct Test {
    client: Client,
    door: Door,
    replicas: Vec<Door>,
    domains: Domains,
    operation: Vec<u8>,
    now: Now,
}

fn config(f: u16) -> Config {
    Config { separate_above: 255, ..Config::new(Cluster::tolerating(f).unwrap(), CLUSTER) }
}

fn lane() -> ClientId {
    ClientId::new(1, 3)
}

impl Test {
    fn new(config: &Config) -> Self {
        let client = Client::new(lane(), config, Timestamp(FIRST), 1);
        let principals =
            || config.cluster.replicas().map(Principal::Replica).chain([Principal::Client(lane())]);
        let signer = |at: usize| Signer::Toy([u8::try_from(at).unwrap() + 1; 32]);
        let mut verifier = Verifier::default();
        for (at, who) in principals().enumerate() {
            verifier.insert(who, &signer(at).public());
        }
        let door = |(at, who)| {
            let entropy = [u8::try_from(at).unwrap() + 101; 32];
            Door::new(who, config.cluster, CLUSTER, 0, signer(at), verifier.clone(), entropy, 1)
        };
        let mut doors: Vec<Door> = principals().enumerate().map(door).collect();
        exchange_keys(&mut doors);
        let door = doors.pop().unwrap();
        let mut test = Self {
            client,
            door,
            replicas: doors,
            domains: Domains::new(CLUSTER),
            operation: vec![],
            now: Now::default(),
        };
        assert_eq!(test.take(ClientInput::Keys { missing: 0 }), []);
        test
    }

    fn four() -> Self {
        Self::new(&config(1))
    }

    fn take(&mut self, input: ClientInput<'_>) -> Vec<Did> {
        let mut out = ClientActions::new();
        self.client.step(self.now, input, &mut out);
        out.list().iter().map(|action| did(&out, action)).collect()
    }

    fn invoke(&mut self, operation: &[u8], read_only: bool) -> Vec<Did> {
        if self.client.outstanding().is_none() && operation.len() <= OPERATION_BYTES_MAX {
            self.operation = operation.to_vec();
        }
        self.take(ClientInput::Invoke { operation, read_only })
    }

    /// Asks for a read, and returns who is asked first.
    fn read(&mut self) -> Vec<u16> {
        let mut out = ClientActions::new();
        self.operation = b"get".to_vec();
        self.client.step(self.now, ClientInput::Invoke { operation: b"get", read_only: true }, &mut out);
        let sent = out.list().iter().find_map(|action| {
            if let ClientAction::Send { to, replier, .. } = action {
                Some((*to, replier.unwrap()))
            } else {
                None
            }
        });
        let (to, replier) = sent.unwrap();
        assert!(to.contains(ReplicaId(replier)), "who sends the result is asked");
        to.of(Cluster::tolerating(1).unwrap()).map(|replica| replica.0).collect()
    }

    /// Time passes, and the timer runs out.
    fn time_out(&mut self) -> Vec<Did> {
        self.now.mono_ns += 10_000 * MS;
        self.take(ClientInput::Timer)
    }

    fn digest(&self, t: u64, result: &str) -> Digest {
        let request = self.domains.request(lane().0, t, &self.operation);
        self.domains.reply(lane().0, t, &request, result.as_bytes())
    }

    /// A replica replies with a result, in full or with its digest alone.
    fn reply(&mut self, from: usize, t: u64, said: &str, tweak: impl FnOnce(&mut Reply<'_>)) -> Vec<Did> {
        let mut reply = Reply {
            view: ViewNum(0),
            timestamp: Timestamp(t),
            client: lane(),
            tentative: false,
            digest: self.digest(t, said),
            result: Some(said.as_bytes()),
        };
        tweak(&mut reply);
        let (mut body, mut frame) = (vec![], vec![]);
        reply.encode(&mut Writer::new(&mut body));
        self.replicas[from].seal(Kind::Reply, Some(Principal::Client(lane())), &body, &mut frame);
        let Ok(Admitted::Message(m)) = self.door.admit(0, Frame::decode(&frame).unwrap()) else {
            return vec![];
        };
        let mut out = ClientActions::new();
        self.client.step(self.now, ClientInput::Message(&m), &mut out);
        out.list().iter().map(|action| did(&out, action)).collect()
    }

    fn full(&mut self, from: usize, t: u64, said: &str) -> Vec<Did> {
        self.reply(from, t, said, |_| ())
    }

    /// Three replicas reply; returns what the third one brings about.
    fn quorum(&mut self, t: u64, said: &str) -> Vec<Did> {
        self.full(0, t, said);
        self.full(1, t, said);
        self.full(2, t, said)
    }
}

fn exchange_keys(doors: &mut [Door]) {
    let mut letters = BTreeMap::new();
    loop {
        for from in doors.iter_mut() {
            from.tick(0, 0);
            while let Some((to, frame)) = from.take_outgoing() {
                letters.insert((to.key_holder(), letters.len()), frame);
            }
        }
        if letters.is_empty() {
            return;
        }
        for ((to, _), frame) in core::mem::take(&mut letters) {
            let to = doors.iter_mut().find(|door| door.own().key_holder() == to).unwrap();
            to.admit(0, Frame::decode(&frame).unwrap()).unwrap();
        }
    }
}

fn did(out: &ClientActions, action: &ClientAction) -> Did {
    match action {
        ClientAction::Send { to, timestamp, flags, replier, sign, .. } => {
            assert_eq!(flags.signed, *sign);
            let cluster = Cluster::tolerating(1).unwrap();
            let to = match to.count() {
                4 => None,
                3 if flags.read_only && replier.is_some() => return Did::Read { t: timestamp.0 },
                1 if flags.read_only && replier.is_none() => return Did::Rest { t: timestamp.0 },
                1 if !flags.read_only => to.of(cluster).map(|replica| replica.0).next(),
                _ => panic!("{action:?}"),
            };
            Did::Send { to, t: timestamp.0, read: flags.read_only, full: replier.is_none(), sign: *sign }
        }
        ClientAction::SetTimer(_) => Did::Wait,
        ClientAction::StopTimer => Did::Stop,
        ClientAction::SendKeys => Did::Keys,
        ClientAction::Done { timestamp, result, path } => {
            let result = ["ok", "old", "new", ""].into_iter().find(|r| r.as_bytes() == out.bytes(*result));
            Did::Done { t: timestamp.0, result: result.unwrap(), path: *path }
        }
        ClientAction::DoneWithoutResult { timestamp, .. } => Did::WithoutResult(timestamp.0),
        ClientAction::Overtaken { timestamp, by } => Did::Overtaken(timestamp.0, by.0),
        ClientAction::Report(milestone) => Did::Said(*milestone),
    }
}

fn send(to: Option<u16>, t: u64) -> Did {
    Did::Send { to, t, read: false, full: false, sign: false }
}

fn invoked(t: u64, read_only: bool) -> Did {
    Did::Said(ClientMilestone::Invoked { timestamp: Timestamp(t), read_only })
}

fn rejected(from: u16, reason: ClientReject) -> Vec<Did> {
    vec![Did::Said(ClientMilestone::Rejected { from: Some(ReplicaId(from)), reason })]
}

fn again(t: u64, times: u32) -> Did {
    Did::Said(ClientMilestone::Retransmitted { timestamp: Timestamp(t), times })
}

fn rest(t: u64) -> Did {
    Did::Said(ClientMilestone::AskedRest { timestamp: Timestamp(t) })
}

fn done(t: u64, result: &'static str, path: Path) -> Did {
    Did::Done { t, result, path }
}

/// [OSDI99 §4.1] A request goes to the primary and is done with enough matching replies; the next has
/// a higher timestamp.
#[test]
fn a_request_goes_to_the_primary_and_its_result_comes_back() {
    let mut test = Test::four();
    assert_eq!(test.invoke(b"put", false), [invoked(100, false), send(Some(0), 100), Did::Wait]);
    assert_eq!(test.full(0, 100, "ok"), []);
    assert_eq!(test.full(1, 100, "ok"), []);
    assert_eq!(test.full(2, 100, "ok"), [Did::Stop, done(100, "ok", Path::Ordered)]);
    assert_eq!(test.full(3, 100, "ok"), rejected(3, ClientReject::OtherRequest), "too late");
    assert_eq!(test.invoke(b"put", false), [invoked(101, false), send(Some(0), 101), Did::Wait]);
}

/// CL-1: "Larger than SRT, or read-only: send to all replicas". DV-43: a read to as many as it needs.
#[test]
fn large_requests_go_to_all_and_reads_to_a_quorum() {
    let mut test = Test::four();
    assert_eq!(test.invoke(&[1; 255], false)[1], send(Some(0), 100));
    test.quorum(100, "ok");
    assert_eq!(test.invoke(&[1; 256], false)[1], send(None, 101));
    test.quorum(101, "ok");
    assert_eq!(test.invoke(b"get", true), [invoked(102, true), Did::Read { t: 102 }, Did::Wait]);
    assert_eq!(test.quorum(102, "ok"), [Did::Stop, done(102, "ok", Path::ReadOnly)]);
}

/// Every optimisation is a switch.
#[test]
fn what_is_switched_off_is_not_used() {
    let off = Config { read_only: false, separate: false, digest_replies: false, ..config(1) };
    let mut test = Test::new(&off);
    let full = Did::Send { to: Some(0), t: 100, read: false, full: true, sign: false };
    assert_eq!(test.invoke(&[1; 256], true), [invoked(100, false), full, Did::Wait]);
    test.full(0, 100, "ok");
    assert_eq!(test.full(1, 100, "ok"), [Did::Stop, done(100, "ok", Path::Ordered)], "f + 1, RO-6");
}

/// [BQS08, on optimistic reads] With `Reads::All` and `ReadRule::FirstReplies`, one liar among the first n - f replies
/// makes the client order the read. With `ReadRule::FirstQuorum`, the liar costs one more reply.
#[test]
fn a_read_is_given_up_by_its_rule() {
    let ask = |read_rule| {
        let mut test = Test::new(&Config { reads: Reads::All, read_rule, ..config(1) });
        let all = Did::Send { to: None, t: 100, read: true, full: false, sign: false };
        assert_eq!(test.invoke(b"get", true)[1], all);
        assert_eq!((test.full(0, 100, "new"), test.full(1, 100, "old")), (vec![], vec![]));
        let third = test.full(2, 100, "old");
        (test, third)
    };
    let (_, third) = ask(ReadRule::FirstReplies);
    let fell = ClientMilestone::FellBack { from: Timestamp(100), to: Timestamp(101) };
    assert_eq!(third[..2], [Did::Said(fell), send(Some(0), 101)]);
    let (mut test, third) = ask(ReadRule::FirstQuorum);
    assert_eq!(third, []);
    assert_eq!(test.full(3, 100, "old"), [Did::Stop, done(100, "old", Path::ReadOnly)]);
}

/// ADR 23: with `ReadRule::AnyCorrect`, f + 1 equal answers to a read are enough. A write takes as many as ever.
#[test]
fn any_correct_answer_to_a_read_is_enough_by_that_rule() {
    let mut test = Test::new(&Config { reads: Reads::All, read_rule: ReadRule::AnyCorrect, ..config(1) });
    test.invoke(b"get", true);
    assert_eq!((test.full(0, 100, "new"), test.full(1, 100, "old")), (vec![], vec![]));
    assert_eq!(test.full(2, 100, "old"), [Did::Stop, done(100, "old", Path::ReadOnly)]);
    test.invoke(b"put", false);
    assert_eq!((test.full(0, 101, "ok"), test.full(1, 101, "ok")), (vec![], vec![]));
    assert_eq!(test.full(2, 101, "ok"), [Did::Stop, done(101, "ok", Path::Ordered)]);
}

/// "we assume that the client waits for one request to complete before sending the next one".
#[test]
fn one_request_at_a_time() {
    let mut test = Test::four();
    test.invoke(b"put", false);
    let refused = |why| [Did::Said(ClientMilestone::Refused(why))];
    assert_eq!(test.invoke(b"put", false), refused(Refusal::Busy));
    test.quorum(100, "ok");
    assert_eq!(test.invoke(&vec![0; OPERATION_BYTES_MAX + 1], false), refused(Refusal::TooLong));
    assert_eq!(test.invoke(b"put", false)[0], invoked(101, false));
    test.client = Client::new(lane(), &config(1), Timestamp(u64::MAX), 1);
    assert_eq!(test.invoke(b"put", false)[0], invoked(u64::MAX, false));
    test.quorum(u64::MAX, "ok");
    assert_eq!(test.invoke(b"put", false), refused(Refusal::Exhausted), "a timestamp is never used again");
}

/// K11: replies to other requests and other lanes do not count.
#[test]
fn a_reply_to_something_else_does_not_count() {
    let mut test = Test::four();
    test.invoke(b"put", false);
    assert_eq!(test.full(0, 99, "ok"), rejected(0, ClientReject::OtherRequest));
    assert_eq!(test.full(0, 101, "ok"), rejected(0, ClientReject::OtherRequest));
    let other = ClientId::new(1, 4);
    let digest = test.domains.reply(other.0, 100, &Digest::ZERO, b"ok");
    let lane = test.reply(0, 100, "ok", |r| (r.client, r.digest) = (other, digest));
    assert_eq!(lane, rejected(0, ClientReject::OtherLane));
    test.full(1, 100, "ok");
    assert_eq!(test.full(1, 100, "ok"), [], "one voice each");
    test.full(2, 100, "ok");
    assert_eq!(test.full(3, 100, "ok"), [Did::Stop, done(100, "ok", Path::Ordered)]);
}

/// I12: a stranger has no voice, though the authenticator knows its keys.
#[test]
fn a_stranger_does_not_count() {
    let mut test = Test::new(&config(2));
    test.client = Client::new(lane(), &config(1), Timestamp(FIRST), 1);
    test.invoke(b"put", false);
    let reason = ClientReject::NotAReply;
    assert_eq!(test.full(6, 100, "ok"), [Did::Said(ClientMilestone::Rejected { from: None, reason })]);
}

/// CL-6: the certificate waits for the full result.
#[test]
fn the_full_result_may_come_last() {
    let mut test = Test::four();
    test.invoke(b"get", false);
    let digest = test.digest(100, "ok");
    for from in 0..2 {
        assert_eq!(test.reply(from, 100, "ok", |r| r.result = None), []);
    }
    let missing = ClientMilestone::ResultMissing { timestamp: Timestamp(100), digest };
    assert_eq!(test.reply(2, 100, "ok", |r| r.result = None), [Did::Said(missing)]);
    let wrong = ClientMilestone::WrongReply { from: ReplicaId(3), timestamp: Timestamp(100) };
    assert_eq!(test.full(3, 100, "old"), [Did::Said(wrong)], "with a digest of its own, from a liar");
    assert_eq!(
        test.reply(1, 100, "ok", |r| r.view = ViewNum(1)),
        [Did::Stop, done(100, "ok", Path::Ordered)]
    );
}

/// CL-2, CL-3, AU-5: to all, with full results; signed from the second time on; keys before the fourth.
#[test]
fn silence_is_answered_with_more() {
    let mut test = Test::four();
    test.invoke(b"put", false);
    let sent = |sign| Did::Send { to: None, t: 100, read: false, full: true, sign };
    assert_eq!(test.time_out(), [again(100, 1), sent(false), Did::Wait]);
    assert_eq!(test.time_out(), [again(100, 2), sent(true), Did::Wait]);
    assert_eq!(test.time_out(), [again(100, 3), sent(true), Did::Wait]);
    assert_eq!(test.time_out(), [Did::Keys, again(100, 4), sent(true), Did::Wait]);
    for times in 5..8 {
        assert_eq!(test.time_out()[0], again(100, times));
    }
    assert_eq!(test.time_out()[0], Did::Keys);
    assert_eq!(test.quorum(100, "ok"), [Did::Stop, done(100, "ok", Path::Ordered)]);
    assert_eq!(test.take(ClientInput::Timer), [], "nothing is outstanding");
    // Once may have had another reason. After twice in a row it signs for a while.
    assert_eq!(test.invoke(b"put", false)[1], send(Some(0), 101));
    test.time_out();
    test.time_out();
    let signing = Did::Said(ClientMilestone::Signing);
    assert_eq!(test.quorum(101, "ok"), [Did::Stop, done(101, "ok", Path::Ordered), signing]);
    test.now.mono_ns += 1_000 * MS;
    let signed = Did::Send { to: Some(0), t: 102, read: false, full: false, sign: true };
    assert_eq!(test.invoke(b"put", false)[1], signed);
    test.quorum(102, "ok");
    test.now.mono_ns += 1_000 * MS;
    assert_eq!(test.invoke(b"put", false)[1], send(Some(0), 103));
}

/// A request that went out signed is signed when it is sent again, though the while has ended.
#[test]
fn a_signature_stays() {
    let mut test = Test::four();
    for t in [100, 101] {
        test.invoke(b"put", false);
        test.time_out();
        test.time_out();
        test.quorum(t, "ok");
    }
    test.invoke(b"put", false);
    let sent = |times, sign| {
        [again(102, times), Did::Send { to: None, t: 102, read: false, full: true, sign }, Did::Wait]
    };
    assert_eq!(test.time_out(), sent(1, true));
    assert_eq!(test.quorum(102, "ok"), [Did::Stop, done(102, "ok", Path::Ordered)], "it did not have to");
}

/// The two fixed modes of authentication.
#[test]
fn the_mode_decides_about_signatures() {
    let mut test = Test::new(&Config { request_auth: RequestAuth::Mac, ..config(1) });
    test.invoke(b"put", false);
    for _ in 0..5 {
        test.time_out();
    }
    assert!(test.time_out().contains(&Did::Send { to: None, t: 100, read: false, full: true, sign: false }));
    let mut test = Test::new(&Config { request_auth: RequestAuth::SigMac, ..config(1) });
    assert_eq!(
        test.invoke(b"put", false)[1],
        Did::Send { to: Some(0), t: 100, read: false, full: false, sign: true }
    );
    test.time_out();
    test.time_out();
    assert_eq!(test.quorum(100, "ok"), [Did::Stop, done(100, "ok", Path::Ordered)]);
}

/// CL-5: the next request goes to the primary of the view that a correct replica has reported.
#[test]
fn the_client_follows_the_view() {
    let mut test = Test::four();
    test.invoke(b"put", false);
    test.reply(0, 100, "ok", |r| r.view = ViewNum(6));
    test.reply(1, 100, "ok", |r| r.view = ViewNum(900));
    let learned = Did::Said(ClientMilestone::ViewLearned { view: ViewNum(6) });
    let last = test.reply(2, 100, "ok", |r| r.view = ViewNum(6));
    assert_eq!(last, [learned, Did::Stop, done(100, "ok", Path::Ordered)]);
    assert_eq!(test.invoke(b"put", false)[1], send(Some(2), 101));
    // Replicas that lag do not lead it back.
    assert_eq!(test.quorum(101, "ok"), [Did::Stop, done(101, "ok", Path::Ordered)]);
    assert_eq!(test.client.view(), ViewNum(6));
}

/// [OSDI99 §4.1] "This ensures that the result is valid, since at most f replicas can be faulty":
/// whatever f liars send and in whatever order, the result is the correct replicas'.
#[test]
fn liars_cannot_make_a_result() {
    for f in [1_u16, 2] {
        let mut test = Test::new(&config(f));
        let (n, mut rng) = (test.replicas.len(), Rng::new(u64::from(f)));
        let mut below = |bound: usize| usize::try_from(rng.below(bound as u64)).unwrap();
        for t in FIRST..FIRST + 300 {
            test.invoke(b"put", false);
            let mut results = vec![];
            let mut waiting: Vec<usize> = (usize::from(f)..n).collect();
            while results.is_empty() {
                let tentative = below(2) == 0;
                let did = if below(3) > 0 {
                    let said = ["old", "new", ""][below(3)];
                    let (view, full) = (below(3) as u64, below(2) == 0);
                    test.reply(below(usize::from(f)), t, said, |r| {
                        (r.view, r.tentative) = (ViewNum(view), tentative);
                        r.result = r.result.filter(|_| full);
                    })
                } else if waiting.is_empty() {
                    panic!("all correct replicas have replied to {t}");
                } else {
                    let from = waiting.swap_remove(below(waiting.len()));
                    test.reply(from, t, "ok", |r| r.tentative = tentative)
                };
                results.extend(did.into_iter().filter(|d| matches!(d, Did::Done { .. })));
            }
            assert_eq!(results, [done(t, "ok", Path::Ordered)]);
        }
    }
}

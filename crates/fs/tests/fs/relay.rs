//! The gateway against a service of one replica: bytes of a stream in, bytes of a stream out.
#![allow(clippy::unwrap_used, clippy::panic, clippy::result_large_err, reason = "a test may panic")]

use crate::support::{Bench, Xorshift, fh, open_settings, place, split};
use quorate_fs::Fs;
use quorate_fs::nfs3::mount3::{self, MountReply, MountStat};
use quorate_fs::nfs3::operation::HEAD_BYTES;
use quorate_fs::nfs3::relay::{Connection, Limits, Ticket};
use quorate_fs::nfs3::{Call, CommitArgs, DirOp, PROGRAM, Procedure, Reply, Stat};
use quorate_fs::rpc::Status;
use quorate_fs::rpc::record::{RecordError, Records, put_record};
use quorate_fs::rpc::xdr::{self, Opaque};

const ADDRESS: [u8; 16] = [7; 16];

fn fs() -> Fs {
    Fs::new(open_settings()).unwrap()
}

/// Returns the record of a call.
fn record(b: &mut Bench, call: &Call<'_>) -> Vec<u8> {
    let operation = b.nfs_operation(call);
    let mut stream = Vec::new();
    put_record(&mut stream, &operation[HEAD_BYTES..]);
    stream
}

/// Takes the replies that wait on a connection.
fn replies(connection: &mut Connection) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut records = Records::new(2 << 20);
    while !connection.outgoing().is_empty() {
        let (taken, record) = records.take(connection.outgoing()).unwrap();
        connection.sent(taken);
        found.extend(record);
    }
    found
}

/// A call for the cluster, kept.
#[derive(Debug, PartialEq, Eq)]
struct Submitted {
    ticket: Ticket,
    operation: Vec<u8>,
    read_only: bool,
}

fn submitted(connection: &mut Connection) -> Vec<Submitted> {
    let keep = |connection: &mut Connection| {
        let submit = connection.submit()?;
        let operation = submit.operation.to_vec();
        Some(Submitted { ticket: submit.ticket, operation, read_only: submit.read_only })
    };
    std::iter::from_fn(|| keep(connection)).collect()
}

/// Many calls in flight; replies leave in the order in which they come.
#[test]
fn nfs14_many_calls_are_in_flight_and_replies_overtake() {
    let (fs, mut b) = (fs(), Bench::new());
    let root = b.root.clone();
    let names: Vec<String> = (0..50).map(|i| format!("file{i}")).collect();
    let mut stream = Vec::new();
    for name in &names {
        let place = DirOp { dir: fh(&root), name: Opaque(name.as_bytes()) };
        stream.extend(record(&mut b, &Call::Lookup(place)));
        b.file(&root, name);
    }
    let mut connection = Connection::new(ADDRESS, Limits::default());
    // As the network cuts it.
    let mut random = Xorshift::new(3);
    while !stream.is_empty() {
        let piece = usize::try_from(1 + random.below(300)).unwrap().min(stream.len());
        let taken = connection.receive(&fs, &stream[..piece]).unwrap();
        assert_eq!(taken, piece);
        stream.drain(..taken);
    }
    let calls = submitted(&mut connection);
    assert_eq!(calls.len(), 50);
    assert!(calls.iter().all(|call| call.read_only && call.operation[1..17] == ADDRESS));
    for call in calls.iter().rev() {
        let reply = b.operate(&call.operation);
        connection.replied(call.ticket, &reply);
    }
    let found = replies(&mut connection);
    let xids: Vec<u32> = found.iter().map(|reply| split(reply).0.xid).collect();
    assert!(xids.len() == 50 && xids.is_sorted_by(|a, b| a > b));
    assert!(connection.is_idle());
}

/// At its bounds a connection takes no more, and continues when there is room.
#[test]
fn nfs14_a_peer_costs_bounded_memory() {
    let (fs, mut b) = (fs(), Bench::new());
    let root = b.root.clone();
    let mut stream = Vec::new();
    for _ in 0..10 {
        stream.extend(record(&mut b, &Call::GetAttr(fh(&root))));
    }
    let limits = Limits { calls_max: 4, ..Limits::default() };
    let mut connection = Connection::new(ADDRESS, limits);
    let taken = connection.receive(&fs, &stream).unwrap();
    assert!(taken < stream.len() && !connection.is_open());
    assert_eq!(connection.receive(&fs, &stream[taken..]), Ok(0));
    let calls = submitted(&mut connection);
    assert_eq!(calls.len(), 4);
    connection.replied(calls[0].ticket, &[1; 100]);
    connection.replied(calls[0].ticket, &[1; 100]);
    assert_eq!(replies(&mut connection).len(), 1, "a call is answered once");
    assert!(connection.receive(&fs, &stream[taken..]).unwrap() > 0);
    // A client that does not take its replies is not read any more.
    let limits = Limits { reply_bytes_max: 1000, ..Limits::default() };
    let mut connection = Connection::new(ADDRESS, limits);
    connection.receive(&fs, &stream).unwrap();
    for call in submitted(&mut connection) {
        connection.replied(call.ticket, &[1; 200]);
    }
    assert_eq!(connection.receive(&fs, &stream), Ok(0));
    // Nor is what it has asked for already done, until it takes them; then what they took is free.
    let mut connection = Connection::new(ADDRESS, Limits { reply_bytes_max: 100_000, ..limits });
    connection.receive(&fs, &stream).unwrap();
    let first = connection.submit().unwrap().ticket;
    connection.replied(first, &vec![1; 100_001]);
    assert!(!connection.has_submit() && connection.submit().is_none() && connection.held() > 100_000);
    connection.sent(connection.outgoing().len());
    assert!(connection.has_submit() && connection.held() < 10_000, "{}", connection.held());
    assert_eq!(submitted(&mut connection).len(), 9);
    // A record that is announced too long ends the connection.
    let mut connection = Connection::new(ADDRESS, Limits::default());
    let error = connection.receive(&fs, &[0xff; 4]).unwrap_err();
    assert!(matches!(error, RecordError::TooLong { .. }));
}

/// A call that is sent again while it is in flight is not sent on twice.
#[test]
fn nfs14_a_retransmission_in_flight_is_one_call() {
    let (fs, mut b) = (fs(), Bench::new());
    let root = b.root.clone();
    let call = record(&mut b, &Call::Remove(place(&root, "a")));
    let mut connection = Connection::new(ADDRESS, Limits::default());
    connection.receive(&fs, &[call.clone(), call.clone()].concat()).unwrap();
    let calls = submitted(&mut connection);
    assert_eq!(calls.len(), 1);
    assert!(!calls[0].read_only);
    // Behind its reply, it is the service that knows it; over another connection too.
    let reply = b.operate(&calls[0].operation);
    connection.replied(calls[0].ticket, &reply);
    let mut other = Connection::new(ADDRESS, Limits::default());
    other.receive(&fs, &call).unwrap();
    b.file(&root, "a");
    let again = submitted(&mut other).remove(0);
    assert_eq!(b.operate(&again.operation), reply);
    assert!(b.lookup(&root, "a").is_ok());
}

/// A result that no replica has kept is asked for once more, in order; what was done is not done twice.
#[test]
fn nfs14_a_lost_result_is_asked_for_again() {
    let (fs, mut b) = (fs(), Bench::new());
    let root = b.root.clone();
    b.file(&root, "a");
    let mut connection = Connection::new(ADDRESS, Limits::default());
    let stream =
        [record(&mut b, &Call::Remove(place(&root, "a"))), record(&mut b, &Call::GetAttr(fh(&root)))];
    connection.receive(&fs, &stream.concat()).unwrap();
    let first = submitted(&mut connection);
    assert!(!first[0].read_only && first[1].read_only);
    let lost = b.operate(&first[0].operation);
    for call in &first {
        connection.ask_again(call.ticket);
    }
    let again = submitted(&mut connection);
    assert_eq!(again.len(), 2);
    for (call, before) in again.iter().zip(&first) {
        assert_eq!((call.ticket, &call.operation), (before.ticket, &before.operation));
        assert!(!call.read_only, "its turn in the order");
        let reply = b.operate(&call.operation);
        connection.replied(call.ticket, &reply);
    }
    assert_eq!(replies(&mut connection)[0], lost);
    // Whose reply has come is not asked for again.
    connection.ask_again(first[0].ticket);
    assert!(connection.is_idle() && !connection.has_submit());
}

/// Nonsense is answered without the cluster.
#[test]
fn nfs14_nonsense_does_not_reach_the_cluster() {
    let (fs, mut b) = (fs(), Bench::new());
    let mut connection = Connection::new(ADDRESS, Limits::default());
    let operation = b.operation(100_000, 0, &[]);
    let mut stream = Vec::new();
    put_record(&mut stream, &operation[HEAD_BYTES..]);
    put_record(&mut stream, b"");
    put_record(&mut stream, b"1234\0\0\0\0");
    // N6: what is no call gets no answer: a reply, or neither.
    put_record(&mut stream, &[&b"1234\0\0\0\x01"[..], &operation[HEAD_BYTES + 8..]].concat());
    put_record(&mut stream, b"12345678");
    connection.receive(&fs, &stream).unwrap();
    assert_eq!(submitted(&mut connection), []);
    let found: Vec<Status> = replies(&mut connection).iter().map(|reply| split(reply).0.status).collect();
    assert_eq!(found, [Status::ProgUnavail, Status::GarbageArgs]);
}

/// While no quorum answers: JUKEBOX in the form of each procedure.
#[test]
fn nfs16_jukebox_while_no_quorum_answers() {
    let (fs, mut b) = (fs(), Bench::new());
    let root = b.root.clone();
    let mut connection = Connection::new(ADDRESS, Limits::default());
    let gives_up = |connection: &mut Connection, stream: &[u8]| {
        connection.receive(&fs, stream).unwrap();
        let submit = connection.submit().unwrap();
        let (ticket, may_give_up) = (submit.ticket, submit.may_give_up);
        connection.replied(ticket, &[]);
        replies(connection);
        may_give_up
    };
    for (call, expected) in [
        (Call::GetAttr(fh(&root)), true),
        (Call::Lookup(place(&root, "a")), true),
        (Call::Remove(place(&root, "a")), false),
        (Call::Commit(CommitArgs { file: fh(&root), offset: 0, count: 0 }), false),
    ] {
        let stream = record(&mut b, &call);
        assert_eq!(gives_up(&mut connection, &stream), expected, "{call:?}");
    }
    for procedure in [mount3::Procedure::Mnt, mount3::Procedure::Umnt] {
        let operation = b.operation(mount3::PROGRAM, procedure as u32, &xdr::encode(&Opaque::<1024>(b"/")));
        let mut stream = Vec::new();
        put_record(&mut stream, &operation[HEAD_BYTES..]);
        assert!(gives_up(&mut connection, &stream));
    }
    let mut unanswered = |stream: &[u8]| {
        connection.receive(&fs, stream).unwrap();
        let call = submitted(&mut connection).remove(0);
        connection.unanswered(call.ticket);
        connection.unanswered(call.ticket);
        let mut found = replies(&mut connection);
        assert_eq!(found.len(), 1);
        found.remove(0)
    };
    for call in [Call::GetAttr(fh(&root)), Call::Remove(place(&root, "a")), Call::Null(())] {
        let procedure = call.procedure();
        let stream = record(&mut b, &call);
        let reply = unanswered(&stream);
        let (head, body) = split(&reply);
        assert_eq!((head.xid, head.status), (b.xid, Status::Success));
        let expected = Reply::failed(procedure, Stat::Jukebox).unwrap_or(Reply::Null(()));
        assert_eq!(Reply::decode(procedure, body), Ok(expected));
    }
    let operation = b.operation(mount3::PROGRAM, 1, &xdr::encode(&Opaque::<1024>(b"/")));
    let mut stream = Vec::new();
    put_record(&mut stream, &operation[HEAD_BYTES..]);
    let reply = unanswered(&stream);
    assert_eq!(xdr::decode(split(&reply).1), Ok(MountReply::Failed(MountStat::ServerFault)));
    assert_eq!(Procedure::from_number(0), Some(Procedure::Null));
    assert_eq!(PROGRAM, 100_003);
}

/// A service whose state is damaged has no answer: the client gets one all the same.
#[test]
fn nfs16_a_service_without_an_answer_is_a_fault_of_the_server() {
    let (fs, mut b) = (fs(), Bench::new());
    let root = b.root.clone();
    b.vandalize(0, 16, &[9, 0, 0, 0]);
    let mut connection = Connection::new(ADDRESS, Limits::default());
    connection.receive(&fs, &record(&mut b, &Call::GetAttr(fh(&root)))).unwrap();
    let call = submitted(&mut connection).remove(0);
    let reply = b.operate(&call.operation);
    assert_eq!(reply, []);
    connection.replied(call.ticket, &reply);
    let found = replies(&mut connection);
    assert_eq!(split(&found[0]).1, (Stat::ServerFault as u32).to_be_bytes());
}

/// Any bytes: an error or calls, within the bounds.
#[test]
fn nfs14_any_bytes_on_a_connection() {
    let (fs, mut b) = (fs(), Bench::new());
    let root = b.root.clone();
    let mut random = Xorshift::new(11);
    for _ in 0..2000 {
        let mut connection = Connection::new(ADDRESS, Limits { calls_max: 8, ..Limits::default() });
        let mut stream = record(&mut b, &Call::Lookup(place(&root, "a")));
        stream.extend(record(&mut b, &Call::GetAttr(fh(&root))));
        for _ in 0..random.below(6) {
            let at = usize::try_from(random.below(stream.len() as u64)).unwrap();
            stream[at] = u8::try_from(random.below(256)).unwrap();
        }
        if connection.receive(&fs, &stream).is_ok() {
            for call in submitted(&mut connection) {
                let reply = b.operate(&call.operation);
                connection.replied(call.ticket, &reply);
            }
            assert!(replies(&mut connection).len() <= 3);
        }
    }
}

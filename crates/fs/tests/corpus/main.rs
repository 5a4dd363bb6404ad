//! Every procedure of NFS and MOUNT, with every error that it can return, and calls that are malformed: the replies and
//! the states byte for byte. Replicas of different versions of the program agree only while these stay the same.
//!
//! `UPDATE_CORPUS=1 cargo test -p quorate-fs --test corpus` rewrites `corpus.txt`.
#![allow(clippy::unwrap_used, clippy::panic, clippy::result_large_err, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use quorate_fs::nfs3::operation::{HEAD_BYTES, mapped};
use quorate_fs::nfs3::relay::{Connection, Limits};
use quorate_fs::nfs3::*;
use quorate_fs::rpc::record::put_record;
use quorate_fs::rpc::xdr::{self, Opaque, Reader, Xdr};
use quorate_fs::rpc::{CallHead, OpaqueAuth, ReplyHead, Status};
use quorate_fs::settings::Atime;
use quorate_fs::{Fs, Settings};
use quorate_service::Service;
use quorate_wire::SeqNum;

#[path = "../fs/support/mod.rs"]
mod support;
mod world;

use support::Bench;
use world::{Space, USERS, World, calls, names, samples, settings};

/// The replies to some calls of one file system.
struct Replies {
    hash: blake3::Hasher,
    count: u32,
    statuses: BTreeMap<String, u32>,
}

/// Every result of each procedure.
type Seen = BTreeMap<Procedure, BTreeSet<String>>;

/// The page that is compared.
#[derive(Default)]
struct Corpus {
    text: String,
    seen: Seen,
}

impl Replies {
    fn new() -> Self {
        Self { hash: blake3::Hasher::new(), count: 0, statuses: BTreeMap::new() }
    }

    /// Has an operation executed, and notes everything that can be seen of it.
    fn of(&mut self, b: &mut Bench, operation: &[u8]) -> Vec<u8> {
        let fs = Fs::new(b.executor.service().0.read().unwrap().settings().clone()).unwrap();
        let call = operation.get(HEAD_BYTES..).unwrap_or_default();
        let immediate = fs.immediate(call);
        self.note(&[u8::from(fs.is_read_only(operation)), u8::from(immediate.is_some())]);
        self.note(&immediate.unwrap_or_default());
        let reply = b.operate(operation);
        self.note(&reply);
        self.count += 1;
        *self.statuses.entry(status(&reply)).or_default() += 1;
        reply
    }

    fn note(&mut self, bytes: &[u8]) {
        self.hash.update(&bytes.len().to_le_bytes());
        self.hash.update(bytes);
    }
}

/// Returns what the reply to a call says.
fn status(reply: &[u8]) -> String {
    let mut r = Reader::new(reply);
    match ReplyHead::decode(&mut r) {
        Ok(ReplyHead { status: Status::Success, .. }) => match r.u32() {
            Ok(0) => "Ok".into(),
            Ok(number) => Stat::from_number(number).map_or("?".into(), |stat| format!("{stat:?}")),
            Err(_) => "Nothing".into(),
        },
        Ok(head) => format!("{:?}", head.status),
        Err(_) => "Silence".into(),
    }
}

/// Returns the beginning of a digest.
fn short(bytes: &[u8]) -> String {
    bytes.iter().take(12).fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

impl Corpus {
    /// Adds a line for some replies, and the state after them.
    fn line(&mut self, title: &str, replies: &Replies, b: &mut Bench) {
        let seq = b.seq();
        let root = b.executor.checkpoint(SeqNum(seq));
        b.assert_clean();
        let counts = replies.statuses.iter().fold(String::new(), |text, (status, count)| {
            format!("{text}{}{status} {count}", if text.is_empty() { "" } else { ", " })
        });
        let (hash, root) = (short(replies.hash.finalize().as_bytes()), short(&root.0));
        let (count, ordered) = (replies.count, b.ordered);
        writeln!(
            self.text,
            "{title}: {count} calls: {counts}\n  ordered {ordered}, replies {hash}, state {root}"
        )
        .unwrap();
    }

    /// The calls of a procedure by a user.
    fn procedure(&mut self, space: Space, procedure: Procedure, user: world::User) {
        let mut world = World::new(space);
        world.become_user(user);
        let (names, mut replies) = (names(), Replies::new());
        for call in calls(procedure, &world.handles, &names) {
            let operation = world.bench.nfs_operation(&call);
            let reply = replies.of(&mut world.bench, &operation);
            // What is answered decodes, to the last byte.
            Reply::decode(procedure, support::split(&reply).1).unwrap();
            self.seen.entry(procedure).or_default().insert(status(&reply));
        }
        self.line(&format!("{procedure:?}, {space:?} space, {}", user.name), &replies, &mut world.bench);
    }

    /// The arguments of a procedure, cut, prolonged, and with another number in each place.
    fn malformed(&mut self, procedure: Procedure) {
        let mut world = World::new(Space::Enough);
        let mut replies = Replies::new();
        let sample = samples(&world.handles).into_iter().find(|call| call.procedure() == procedure).unwrap();
        let mut args = Vec::new();
        sample.encode(&mut args);
        let mut variants: Vec<Vec<u8>> = (0..args.len()).map(|len| args[..len].to_vec()).collect();
        variants.push([&args[..], &[0; 4]].concat());
        for at in (0..args.len()).step_by(4) {
            for number in [0_u32, 2, 0x0001_0000, u32::MAX] {
                let mut changed = args.clone();
                changed[at..at + 4].copy_from_slice(&number.to_be_bytes());
                variants.push(changed);
            }
        }
        for args in variants {
            let operation = world.bench.operation(PROGRAM, procedure as u32, &args);
            replies.of(&mut world.bench, &operation);
        }
        self.line(&format!("{procedure:?}, malformed"), &replies, &mut world.bench);
    }

    /// Every procedure with a credential.
    fn credential(&mut self, title: &str, settings: Settings, credential: &OpaqueAuth<'_>) {
        let world = World::new(Space::Enough);
        let World { bench: mut b, handles } = world;
        b.set(settings);
        let mut replies = Replies::new();
        for call in samples(&handles) {
            let mut args = Vec::new();
            call.encode(&mut args);
            b.xid += 1;
            let head = CallHead::new(b.xid, PROGRAM, VERSION, call.procedure() as u32);
            let operation = b.wrap(&CallHead { credential: credential.clone(), ..head }, &args);
            replies.of(&mut b, &operation);
        }
        let path = xdr::encode(&Opaque::<1024>(b"/"));
        for procedure in mount3::Procedure::ALL {
            let takes_path = matches!(procedure, mount3::Procedure::Mnt | mount3::Procedure::Umnt);
            b.xid += 1;
            let head = CallHead::new(b.xid, mount3::PROGRAM, mount3::VERSION, *procedure as u32);
            let head = CallHead { credential: credential.clone(), ..head };
            let operation = b.wrap(&head, if takes_path { &path } else { &[] });
            replies.of(&mut b, &operation);
        }
        self.line(title, &replies, &mut b);
    }

    /// Heads that are none, and those of other programs, versions and procedures.
    fn heads(&mut self) {
        let mut world = World::new(Space::Enough);
        let b = &mut world.bench;
        let mut replies = Replies::new();
        let mut heads = Vec::new();
        for program in [PROGRAM, mount3::PROGRAM, 100_000] {
            for version in [2, 3, 4] {
                for procedure in [0, 1, 5, 6, 21, 22, 23, u32::MAX] {
                    heads.push(CallHead::new(7, program, version, procedure));
                }
            }
        }
        heads.push(CallHead { rpc_version: 1, ..CallHead::new(7, PROGRAM, 3, 0) });
        heads.push(CallHead { verifier: OpaqueAuth::sys(b"body"), ..CallHead::new(7, PROGRAM, 3, 0) });
        for head in &heads {
            let operation = b.wrap(head, &[]);
            replies.of(b, &operation);
        }
        let whole = b.wrap(&CallHead::new(7, PROGRAM, 3, 0), &[]);
        for len in 0..whole.len() {
            replies.of(b, &whole[..len]);
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0x81;
            replies.of(b, &changed);
        }
        self.line("heads", &replies, b);
    }

    /// MOUNT: paths, clients and lists.
    fn mount(&mut self) {
        let mut world = World::new(Space::Enough);
        let b = &mut world.bench;
        let mut replies = Replies::new();
        let long = [b"/".as_slice(), &[b'n'; 256]].concat();
        let paths: [&[u8]; 12] = [
            b"/",
            b"",
            b"relative",
            b"/f",
            b"/d",
            b"/d/sub//",
            b"/ro",
            b"/far",
            b"/squashed",
            b"/nothing",
            b"/all/",
            &long,
        ];
        for address in [[10, 0, 0, 1], [11, 0, 0, 1], [10, 0, 0, 2]] {
            b.address = mapped(address);
            for procedure in [mount3::Procedure::Mnt, mount3::Procedure::Umnt, mount3::Procedure::Mnt] {
                for path in paths {
                    let args = xdr::encode(&Opaque::<1024>(path));
                    let operation = b.operation(mount3::PROGRAM, procedure as u32, &args);
                    replies.of(b, &operation);
                    if path.len() % 3 == 0 {
                        let operation = b.operation(mount3::PROGRAM, mount3::Procedure::Dump as u32, &[]);
                        replies.of(b, &operation);
                    }
                }
            }
        }
        for procedure in mount3::Procedure::ALL {
            for args in
                [&[][..], &[0; 4], &[0, 0, 0, 1, b'/', 0, 0, 0], &[0, 0, 0, 1, b'/', 0, 0, 1], &[0xff; 8]]
            {
                let operation = b.operation(mount3::PROGRAM, *procedure as u32, args);
                replies.of(b, &operation);
            }
        }
        self.line("MOUNT", &replies, b);
    }

    /// Calls that come again, and other calls with the same numbers.
    fn repeated(&mut self) {
        let World { bench: mut b, handles } = World::new(Space::Enough);
        let mut replies = Replies::new();
        let operations: Vec<_> = samples(&handles).iter().map(|call| b.nfs_operation(call)).collect();
        for operation in operations.iter().chain(&operations) {
            replies.of(&mut b, operation);
        }
        for user in USERS {
            b.become_user(user.uid, user.gid);
            for call in samples(&handles) {
                b.xid = 500;
                let operation = b.nfs_operation(&call);
                replies.of(&mut b, &operation);
            }
        }
        self.line("repeated", &replies, &mut b);
    }

    /// Reads with other rules for access times, and other sets of procedures that need no order.
    fn reads(&mut self, title: &str, settings: Settings) {
        let World { bench: mut b, handles } = World::new(Space::Enough);
        b.set(settings);
        let mut replies = Replies::new();
        for round in 0..3 {
            for call in samples(&handles) {
                let operation = b.nfs_operation(&call);
                replies.of(&mut b, &operation);
            }
            b.time_ns += 13 * 3600 * 1_000_000_000 * round;
        }
        self.line(title, &replies, &mut b);
    }

    /// A gateway: each call answered, lost, and answered by a damaged service.
    fn gateway(&mut self) {
        let World { bench: mut b, handles } = World::new(Space::Enough);
        let fs = Fs::new(settings(Space::Enough)).unwrap();
        let mut replies = Replies::new();
        let mut operations: Vec<_> = samples(&handles).iter().map(|call| b.nfs_operation(call)).collect();
        let path = xdr::encode(&Opaque::<1024>(b"/d"));
        for procedure in mount3::Procedure::ALL {
            let takes_path = matches!(procedure, mount3::Procedure::Mnt | mount3::Procedure::Umnt);
            let args = if takes_path { &path[..] } else { &[] };
            operations.push(b.operation(mount3::PROGRAM, *procedure as u32, args));
        }
        operations.push(b.operation(mount3::PROGRAM, 9, &[]));
        operations.push(b.operation(PROGRAM, 1, &[9; 5]));
        operations.push(vec![0; HEAD_BYTES + 3]);
        for failure in 0..3 {
            let mut connection = Connection::new(b.address, Limits::default());
            let mut stream = Vec::new();
            for operation in &operations {
                put_record(&mut stream, &operation[HEAD_BYTES..]);
                // Again while it is in flight.
                put_record(&mut stream, &operation[HEAD_BYTES..]);
            }
            assert_eq!(connection.receive(&fs, &stream), Ok(stream.len()));
            while let Some(submit) = connection.submit() {
                let (ticket, operation) = (submit.ticket, submit.operation.to_vec());
                replies.note(&[u8::from(submit.read_only), u8::from(submit.may_give_up)]);
                match failure {
                    0 => {
                        let reply = replies.of(&mut b, &operation);
                        connection.replied(ticket, &reply);
                    }
                    1 => connection.unanswered(ticket),
                    _ => connection.replied(ticket, &[]),
                }
            }
            assert!(connection.is_idle());
            replies.note(connection.outgoing());
        }
        self.line("gateway", &replies, &mut b);
    }
}

/// Returns the page.
fn corpus() -> Corpus {
    let mut corpus = Corpus::default();
    for procedure in Procedure::ALL {
        for user in USERS {
            corpus.procedure(Space::Enough, *procedure, user);
        }
        for space in [Space::Full, Space::Few] {
            for user in &USERS[..2] {
                corpus.procedure(space, *procedure, *user);
            }
        }
        corpus.malformed(*procedure);
    }
    corpus.heads();
    let sys = xdr::encode(&quorate_fs::rpc::AuthSys {
        stamp: 1,
        machine: Opaque(b"m"),
        uid: 10,
        gid: 20,
        gids: (1..17).collect(),
    });
    let credentials = [
        ("no credential", OpaqueAuth::NONE),
        ("AUTH_SYS", OpaqueAuth::sys(&sys)),
        ("a cut AUTH_SYS", OpaqueAuth::sys(&sys[..20])),
        ("a flavour that is unknown", OpaqueAuth { flavor: 6, body: Opaque(b"body") }),
    ];
    for (title, credential) in &credentials {
        for auth_none in [false, true] {
            let settings = Settings { auth_none, ..settings(Space::Enough) };
            corpus.credential(&format!("{title}, auth_none {auth_none}"), settings, credential);
        }
    }
    corpus.mount();
    corpus.repeated();
    for atime in [Atime::Strict, Atime::Relatime, Atime::None] {
        corpus.reads(&format!("access times {atime:?}"), Settings { atime, ..settings(Space::Enough) });
    }
    corpus.gateway();
    corpus
}

#[test]
fn replies_and_states_are_those_of_the_corpus() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/corpus.txt");
    let corpus = corpus();
    // Every error that an operation can return, and a success of every procedure.
    let all: BTreeSet<&str> = corpus.seen.values().flatten().map(String::as_str).collect();
    for expected in [
        "Perm",
        "NoEnt",
        "Access",
        "Exist",
        "XDev",
        "NotDir",
        "IsDir",
        "Inval",
        "FBig",
        "NoSpc",
        "RoFs",
        "MLink",
        "NameTooLong",
        "NotEmpty",
        "DQuot",
        "Stale",
        "BadHandle",
        "NotSync",
        "BadCookie",
        "TooSmall",
        "BadType",
    ] {
        assert!(all.contains(expected), "no call has the result {expected}");
    }
    let mut text = corpus.text;
    for (procedure, statuses) in &corpus.seen {
        let success = if *procedure == Procedure::Null { "Nothing" } else { "Ok" };
        assert!(statuses.contains(success), "no {procedure:?} succeeds");
        let statuses: Vec<&str> = statuses.iter().map(String::as_str).collect();
        writeln!(text, "results of {procedure:?}: {}", statuses.join(" ")).unwrap();
    }
    if std::env::var_os("UPDATE_CORPUS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    let differs = |(at, pair): (usize, (&str, &str))| {
        (pair.0 != pair.1).then(|| (at + 1, pair.0.to_owned(), pair.1.to_owned()))
    };
    let first = expected.lines().zip(text.lines()).enumerate().find_map(differs);
    assert_eq!(first, None, "line, expected, found");
    assert_eq!(expected.lines().count(), text.lines().count());
}

//! The gateway in front of a file system on loopback, over real sockets.
#![allow(clippy::unwrap_used, clippy::panic, clippy::wildcard_enum_match_arm, reason = "a test may panic")]

#[path = "../../node/tests/cluster/mod.rs"]
mod cluster;
#[path = "cluster/gateway.rs"]
mod gateway;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use cluster::Cluster;
use gateway::Door;
use quorate_fs::nfs3::calls::{Calls, mount_reply, nfs_reply};
use quorate_fs::nfs3::mount3::MountStat;
use quorate_fs::nfs3::{
    Call, CreateArgs, CreateHow, DirOp, Procedure, ReadArgs, Reply, SetAttr, StableHow, Stat, WriteArgs,
};
use quorate_fs::rpc::record::put_record;
use quorate_fs::rpc::xdr::Opaque;
use quorate_fs::settings::{Export, Squash};
use quorate_fs::{Fs, Settings};
use quorate_gateways::front::Limits;
use quorate_gateways::nfs;
use quorate_node::Waiting;
use quorate_pbft::config::Durability;

fn file_system() -> Fs {
    let export = Export { squash: Squash::Nobody, ..Export::of("/") };
    Fs::new(Settings { exports: vec![export], ..Settings::default() }).unwrap()
}

/// Returns a gateway in front of a file system.
fn relay(limits: Limits) -> Door {
    let fs = file_system();
    let cluster = Cluster::start(fs.clone());
    let (drive, socket) = cluster.client(limits.lanes);
    let front = nfs::open(([127, 0, 0, 1], 0).into(), limits, fs, drive, socket).unwrap();
    Door::run(cluster, front)
}

fn connect(door: &Door, first: u32) -> Peer {
    Peer::over(door.connect(), first)
}

/// A connection of a client.
struct Peer {
    stream: TcpStream,
    calls: Calls,
}

impl Peer {
    fn over(stream: TcpStream, first: u32) -> Self {
        Self { stream, calls: Calls::new("test", 0, 0, &[], first) }
    }

    fn of(address: SocketAddr, first: u32) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self::over(stream, first)
    }

    fn send(&mut self, call: &[u8]) {
        let mut record = Vec::new();
        put_record(&mut record, call);
        self.stream.write_all(&record).unwrap();
    }

    /// Returns the next reply, of one fragment.
    fn receive(&mut self) -> Vec<u8> {
        let mut head = [0; 4];
        self.stream.read_exact(&mut head).unwrap();
        let mut reply = vec![0; usize::try_from(u32::from_be_bytes(head) & 0x7fff_ffff).unwrap()];
        self.stream.read_exact(&mut reply).unwrap();
        reply
    }

    fn ask(&mut self, call: &Call<'_>) -> Vec<u8> {
        let bytes = self.calls.nfs(call);
        self.send(&bytes);
        self.receive()
    }

    fn mount(&mut self) -> Vec<u8> {
        let bytes = self.calls.mount("/");
        self.send(&bytes);
        mount_reply(&self.receive()).unwrap().unwrap().to_vec()
    }

    fn create(&mut self, dir: &[u8], name: &str) -> Vec<u8> {
        let place = DirOp { dir: Opaque(dir), name: Opaque(name.as_bytes()) };
        let how = CreateHow::Guarded(SetAttr { mode: Some(0o644), ..SetAttr::default() });
        let reply = self.ask(&Call::Create(CreateArgs { place, how }));
        match nfs_reply(Procedure::Create, &reply).unwrap() {
            Reply::Create(Ok(made)) => made.object.unwrap().0.to_vec(),
            other => panic!("{other:?}"),
        }
    }

    fn write(&mut self, file: &[u8], offset: u64, data: &[u8]) -> u32 {
        let count = u32::try_from(data.len()).unwrap();
        let stable = StableHow::Unstable;
        let args = WriteArgs { file: Opaque(file), offset, count, stable, data: Opaque(data) };
        let reply = self.ask(&Call::Write(args));
        match nfs_reply(Procedure::Write, &reply).unwrap() {
            Reply::Write(Ok(ok)) => {
                assert_eq!(ok.committed, StableHow::FileSync);
                ok.count
            }
            other => panic!("{other:?}"),
        }
    }

    fn read(&mut self, file: &[u8], offset: u64, count: u32) -> Vec<u8> {
        let reply = self.ask(&Call::Read(ReadArgs { file: Opaque(file), offset, count }));
        match nfs_reply(Procedure::Read, &reply).unwrap() {
            Reply::Read(Ok(ok)) => ok.data.0.to_vec(),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn what_one_connection_writes_another_reads() {
    let door = relay(Limits::default());
    let mut one = connect(&door, 1);
    let root = one.mount();
    let file = one.create(&root, "hello");
    assert_eq!(one.write(&file, 0, b"world"), 5);
    let mut other = connect(&door, 1000);
    assert_eq!(other.mount(), root);
    assert_eq!(other.read(&file, 0, 100), b"world");
    // A mebibyte goes beside the datagrams, there and back.
    let data: Vec<u8> = (0..1 << 20).map(|i: u32| (i % 251) as u8).collect();
    assert_eq!(one.write(&file, 4096, &data), 1 << 20);
    assert!(other.read(&file, 4096, 1 << 20) == data);
}

/// Calls that are sent together are in progress together, and a faulty replica is not missed.
#[test]
fn many_calls_are_under_way_on_one_connection() {
    let door = relay(Limits { lanes: 8, ..Limits::default() });
    let mut peer = connect(&door, 1);
    let root = peer.mount();
    door.cluster.pause(2);
    for number in 0..100 {
        let name = format!("file-{number}");
        let place = DirOp { dir: Opaque(&root), name: Opaque(name.as_bytes()) };
        let how = CreateHow::Guarded(SetAttr::default());
        let call = peer.calls.nfs(&Call::Create(CreateArgs { place, how }));
        peer.send(&call);
    }
    let made = (0..100).filter(|_| {
        let reply = peer.receive();
        matches!(nfs_reply(Procedure::Create, &reply), Ok(Reply::Create(Ok(_))))
    });
    assert_eq!(made.count(), 100);
}

/// A call that comes again, on a connection of its own, is not done again.
#[test]
fn a_call_that_comes_again_is_not_done_again() {
    let door = relay(Limits::default());
    let mut peer = connect(&door, 1);
    let root = peer.mount();
    let place = DirOp { dir: Opaque(&root), name: Opaque(b"once") };
    let how = CreateHow::Guarded(SetAttr::default());
    let call = peer.calls.nfs(&Call::Create(CreateArgs { place, how }));
    peer.send(&call);
    let first = peer.receive();
    assert!(matches!(nfs_reply(Procedure::Create, &first), Ok(Reply::Create(Ok(_)))));
    let mut again = connect(&door, 500);
    again.send(&call);
    assert_eq!(again.receive(), first);
    // Under another number it is another call.
    let call = peer.calls.nfs(&Call::Create(CreateArgs {
        place: DirOp { dir: Opaque(&root), name: Opaque(b"once") },
        how: CreateHow::Guarded(SetAttr::default()),
    }));
    again.send(&call);
    let reply = again.receive();
    assert!(matches!(nfs_reply(Procedure::Create, &reply), Ok(Reply::Create(Err((Stat::Exist, _))))));
}

/// Without a quorum a read is answered by JUKEBOX, and a change waits until there is one again.
#[test]
fn without_a_quorum_reads_are_put_off_and_changes_wait() {
    let door = relay(Limits { deadline_ns: 700_000_000, ..Limits::default() });
    let mut peer = connect(&door, 1);
    let root = peer.mount();
    let file = peer.create(&root, "file");
    door.cluster.pause(2);
    door.cluster.pause(3);
    let reply = peer.ask(&Call::GetAttr(Opaque(&file)));
    let put_off = Reply::GetAttr(Err((Stat::Jukebox, ())));
    assert_eq!(nfs_reply(Procedure::GetAttr, &reply), Ok(put_off));
    // MOUNT has no word for "later".
    let mount = peer.calls.mount("/");
    peer.send(&mount);
    assert_eq!(mount_reply(&peer.receive()), Ok(Err(MountStat::ServerFault)));
    let data = Opaque(&b"late"[..]);
    let args = WriteArgs { file: Opaque(&file), offset: 0, count: 4, stable: StableHow::FileSync, data };
    let call = peer.calls.nfs(&Call::Write(args));
    peer.send(&call);
    // Longer than the deadline: nothing says that it was not done.
    std::thread::sleep(Duration::from_millis(1500));
    door.cluster.resume(2);
    door.cluster.resume(3);
    let reply = peer.receive();
    assert!(matches!(nfs_reply(Procedure::Write, &reply), Ok(Reply::Write(Ok(_)))));
    assert_eq!(peer.read(&file, 0, 10), b"late");
    assert_eq!(peer.mount(), root);
}

#[test]
fn hostile_streams_end_their_own_connection_only() {
    let door = relay(Limits { stall_ns: 500_000_000, ..Limits::default() });
    let mut good = connect(&door, 1);
    let root = good.mount();
    // A record of 2 GiB is announced.
    let mut bad = connect(&door, 1);
    bad.stream.write_all(&[0xff; 4]).unwrap();
    let mut rest = Vec::new();
    assert_eq!(bad.stream.read_to_end(&mut rest).unwrap_or(0), 0);
    // Nonsense in a record of its own is answered, or dropped.
    let mut odd = connect(&door, 1);
    odd.send(&[7; 60]);
    // Half a record, and then nothing.
    let mut slow = connect(&door, 1);
    slow.stream.write_all(&[0x80, 0, 0, 40, 1, 2]).unwrap();
    assert_eq!(slow.stream.read_to_end(&mut rest).unwrap_or(0), 0);
    assert_eq!(good.mount(), root);
}

/// Tells a gateway to stop, also if the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs a gateway with a file system without replicas behind it while `test` uses it, and tells that its address and
/// its log.
fn alone(limits: Limits, durability: Durability, test: impl FnOnce(SocketAddr, &Path)) {
    static DOORS: AtomicU32 = AtomicU32::new(0);
    let (id, number) = (std::process::id(), DOORS.fetch_add(1, Ordering::Relaxed));
    let log = std::env::temp_dir().join(format!("quorate-test-alone-{id}-{number}"));
    let address = ([127, 0, 0, 1], 0).into();
    let mut front = nfs::open_alone(address, limits, file_system(), durability, &log).unwrap();
    let address = front.address().unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| front.run(Waiting::Block, &stop).unwrap());
        let _stop = Stop(&stop);
        test(address, &log);
    });
    let _ = std::fs::remove_file(&log);
}

/// Without replicas the same gateway serves the same file system; what changes it is in the log before it is answered, if
/// that is asked for, and nothing else is.
#[test]
fn the_same_door_serves_a_file_system_alone() {
    for (durability, is_logged) in
        [(Durability::Memory, false), (Durability::Async, true), (Durability::Sync, true)]
    {
        alone(Limits::default(), durability, |address, log| {
            let mut peer = Peer::of(address, 1);
            let root = peer.mount();
            let file = peer.create(&root, "hello");
            assert_eq!(peer.write(&file, 0, b"what is written"), 15);
            let logged = std::fs::read(log).unwrap_or_default();
            let has = |what: &[u8]| logged.windows(what.len()).any(|part| part == what);
            assert_eq!((has(b"hello"), has(b"what is written")), (is_logged, is_logged));
            assert_eq!(peer.read(&file, 0, 100), b"what is written");
        });
    }
}

/// Clients that ask for much and take nothing are let go before all of them together hold too much; others are
/// served in that time.
#[test]
fn those_who_do_not_take_their_replies_are_let_go() {
    const HOARDERS: u32 = 12;
    const READS: usize = 64;
    let limits = Limits { memory_bytes_max: 16 << 20, ..Limits::default() };
    alone(limits, Durability::Memory, |address, _| {
        let mut peer = Peer::of(address, 1);
        let root = peer.mount();
        let file = peer.create(&root, "hole");
        assert_eq!(peer.write(&file, 2 << 20, b"end"), 3);
        let mut hoarders: Vec<Peer> = (1..=HOARDERS).map(|number| Peer::of(address, number * 1000)).collect();
        for hoarder in &mut hoarders {
            for _ in 0..READS {
                let call = Call::Read(ReadArgs { file: Opaque(&file), offset: 0, count: 1 << 20 });
                let call = hoarder.calls.nfs(&call);
                hoarder.send(&call);
            }
        }
        assert_eq!(peer.read(&file, 2 << 20, 10), b"end");
        // While one takes all of its replies the others have been given what they may hold.
        let served = hoarders.iter_mut().filter_map(|hoarder| {
            let mut reply = vec![0; (1 << 20) + 128];
            (0..READS).try_for_each(|_| hoarder.stream.read_exact(&mut reply)).ok()
        });
        let served = served.count();
        assert!(served <= 6, "{served} of {HOARDERS} got all, 64 MiB each");
        assert_eq!(peer.read(&file, 2 << 20, 10), b"end");
    });
}

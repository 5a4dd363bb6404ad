//! What a user does with a register: every protocol, over UDP and TCP, short and long values, watching, rights.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use quorate_quorum::access::{Rights, Who};
use quorate_quorum::settings::Variant;
use quorate_quorum::{Protocol, Value};
use quorate_quorum_node::client::TOMBSTONE;
use quorate_quorum_node::lie::Lie;
use quorate_quorum_node::link::Carrier;
use quorate_quorum_node::{CallError, Config, Register};

use crate::cluster::{Cluster, N, await_state};

const PATIENCE: Duration = Duration::from_secs(60);

fn value(len: usize, seed: u8) -> Value {
    (0..len).map(|at| u8::try_from(at % 251).unwrap() ^ seed).collect()
}

/// Every protocol keeps what was written, for another client as well, over UDP and TCP, up to the longest value.
#[test]
fn every_protocol_keeps_values_of_every_length() {
    for carrier in [Carrier::Udp, Carrier::Tcp] {
        for (protocol, name) in Protocol::ALL {
            let mut cluster =
                Cluster::over(&format!("all-{carrier:?}-{name}"), Config::new(*protocol), &[], carrier);
            (0..N).for_each(|id| cluster.start(id, None));
            let (a, b) = (cluster.client(0), cluster.client(1));
            assert_eq!(a.read(b"key"), Ok(None), "{name}");
            for (seed, len) in [(1, 0), (2, 64), (3, 8 << 10), (4, (8 << 10) + 1), (5, 1 << 20)] {
                let written = a.write(b"key", value(len, seed)).unwrap();
                let read = b.read(b"key").unwrap().unwrap();
                assert_eq!((read.version, &read.value), (written.version, &value(len, seed)), "{name} {len}");
            }
            let other = b.write(b"key", value(10, 9)).unwrap();
            assert_eq!(a.read(b"key").unwrap().map(|entry| entry.version), Some(other.version), "{name}");
            assert_eq!(a.write(b"key", value((1 << 20) + 1, 1)), Err(CallError::TooLarge));
        }
    }
}

/// A deletion is a write, whichever the protocol: reads find nothing, watches say so, and the key can be written again.
#[test]
fn a_deleted_key_has_no_value_until_it_is_written_again() {
    for (protocol, name) in Protocol::ALL {
        let cluster = Cluster::start_all(&format!("delete-{name}"), *protocol);
        let (a, b) = (cluster.client(0), cluster.client(1));
        let written = a.write(b"key", value(10, 1)).unwrap();
        let deleted = b.delete(b"key").unwrap();
        assert!(deleted.version > written.version, "{name}");
        assert_eq!(a.read(b"key"), Ok(None), "{name}");
        assert!(a.watch(b"key").unwrap().next(PATIENCE).unwrap().unwrap().is_deleted(), "{name}");
        let register: Register<u64> = a.register("key");
        assert_eq!(register.read(), Ok(None), "{name}");
        register.write(&7).unwrap();
        assert_eq!(b.register::<u64>("key").read(), Ok(Some(7)), "{name}");
        assert_eq!(a.write(b"key", TOMBSTONE), Err(CallError::Reserved));
    }
}

/// Operations on different keys run at the same time, and each has its own result.
#[test]
fn many_keys_are_read_and_written_at_once() {
    let cluster = Cluster::start_all("many", Protocol::MinimalF);
    let client = cluster.client(0);
    let names: Vec<String> = (0..500).map(|key| format!("key {key}")).collect();
    let keys: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
    let mut values: Vec<_> = keys.iter().map(|key| (*key, Value::from(*key))).collect();
    values[3].1 = value((1 << 20) + 1, 1);
    let written = client.write_many(&values);
    assert_eq!(written[3], Err(CallError::TooLarge));
    let read = client.read_many(&keys);
    for (at, (written, read)) in written.iter().zip(&read).enumerate().filter(|(at, _)| *at != 3) {
        let read = read.as_ref().unwrap().as_ref().unwrap();
        assert_eq!((&*read.value, read.version), (keys[at], written.as_ref().unwrap().version));
    }
    assert_eq!(read[3], Ok(None));
    // More than may wait for the client's thread.
    let others: Vec<String> = (0..20_000).map(|key| format!("other {key}")).collect();
    let others: Vec<&[u8]> = others.iter().map(String::as_bytes).collect();
    assert_eq!(client.read_many(&others).iter().find(|read| **read != Ok(None)), None);
}

/// Readers of a long value under writes: forwarded stores come without their values, which are fetched once.
#[test]
fn long_values_are_forwarded_by_their_versions() {
    let cluster = Cluster::start_all("long", Protocol::MinimalC);
    let (writer, reader) = (cluster.client(0), cluster.client(1));
    let written = std::thread::spawn(move || {
        for seed in 0..40 {
            writer.write(b"long", value(20_000 + usize::from(seed), seed)).unwrap();
        }
        writer
    });
    let mut last = None;
    while !written.is_finished() {
        let Some(entry) = reader.read(b"long").unwrap() else { continue };
        let seed = u8::try_from(entry.value.len() - 20_000).unwrap();
        assert_eq!(entry.value, value(entry.value.len(), seed));
        assert!(last <= Some(entry.version));
        last = Some(entry.version);
    }
    written.join().unwrap();
    assert_eq!(reader.read(b"long").unwrap().unwrap().value, value(20_039, 39));
}

/// Threads use one client, and many keys are apart.
#[test]
fn many_keys_and_many_threads() {
    let cluster = Cluster::start_all("threads", Protocol::MinimalF);
    let client = cluster.client(0);
    let threads: Vec<_> = (0..4_u64)
        .map(|thread| {
            let client = client.clone();
            std::thread::spawn(move || {
                for key in 0..50_u64 {
                    let register: Register<u64> = client.register(&format!("{thread}/{key}"));
                    register.write(&(thread * 1000 + key)).unwrap();
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(client.settle(PATIENCE), Ok(0), "every server has everything");
    let other = cluster.client(1);
    for thread in 0..4_u64 {
        for key in 0..50 {
            let register: Register<u64> = other.register(&format!("{thread}/{key}"));
            assert_eq!(register.read(), Ok(Some(thread * 1000 + key)));
        }
    }
    for id in 0..N {
        assert_eq!(await_state(&other, id, |_| true).objects, 200);
    }
}

/// A watcher gets the present value and newer ones, in rising order, whether servers push or not, also from behind
/// a server that lies; and a watch that is dropped ends.
#[test]
fn a_watch_delivers_values_in_rising_order() {
    let variants =
        [Protocol::MinimalC, Protocol::MinimalF, Protocol::Phalanx, Protocol::BftBc(Variant::Optimized)];
    for protocol in variants {
        let mut cluster = Cluster::make(&format!("watch-{}", protocol.name()), Config::new(protocol), &[]);
        (0..3).for_each(|id| cluster.start(id, None));
        cluster.start(3, Some(Lie::FakeValue));
        let (writer, watcher) = (cluster.client(0), cluster.client(1));
        let register: Register<u64> = writer.register("number");
        register.write(&1).unwrap();
        let watch = watcher.watch(b"number").unwrap();
        let mut seen = vec![watch.next(PATIENCE).unwrap().unwrap()];
        for number in 2..20 {
            register.write(&number).unwrap();
            if number % 5 == 0 {
                seen.push(watch.next(PATIENCE).unwrap().unwrap());
            }
        }
        while seen.last().unwrap().value[..] != 19_u64.to_le_bytes() {
            seen.push(watch.next(PATIENCE).unwrap().unwrap());
        }
        assert!(seen.is_sorted_by(|a, b| a.version < b.version), "{seen:?}");
        let pushes = matches!(protocol, Protocol::MinimalC | Protocol::MinimalF);
        await_state(&writer, 0, |state| state.watchers == u64::from(pushes));
        drop(watch);
        await_state(&writer, 0, |state| state.watchers == 0);
    }
}

/// Servers enforce the rights on prefixes: a client that ignores them is refused, and one that respects them does not ask.
#[test]
fn rights_are_enforced_by_servers() {
    let mut config = Config::new(Protocol::MinimalF);
    let only = |principals: &[u64]| Who::These(principals.iter().copied().collect::<BTreeSet<u64>>());
    config.rules.insert("open/".to_owned(), Rights::default());
    config
        .rules
        .insert("mine/".to_owned(), Rights { readers: only(&[]), writers: only(&[1]), ..Rights::default() });
    let mut cluster = Cluster::make("rights", config.clone(), &[]);
    (0..N).for_each(|id| cluster.start(id, None));
    let (owner, other) = (cluster.client(0), cluster.client(1));
    owner.write(b"mine/a", value(3, 1)).unwrap();
    other.write(b"open/a", value(3, 1)).unwrap();
    assert_eq!(other.read(b"mine/a"), Err(CallError::NotAllowed));
    assert_eq!(other.write(b"mine/a", value(3, 2)), Err(CallError::NotAllowed));
    assert_eq!(owner.write(b"nobodys", value(3, 2)), Err(CallError::NotAllowed));
    drop(other);
    // A client whose copy of the rules says otherwise.
    config.rules.insert("mine/".to_owned(), Rights::default());
    std::fs::write(cluster.dir.join("client-1/register.toml"), config.text()).unwrap();
    let thief = cluster.client(1);
    assert_eq!(thief.write(b"mine/a", value(3, 2)), Err(CallError::NotAllowed));
    assert_eq!(thief.read(b"mine/a"), Err(CallError::NotAllowed));
    assert_eq!(owner.read(b"mine/a").unwrap().unwrap().value, value(3, 1));
    assert!(await_state(&owner, 0, |_| true).refused > 0);
}

/// One server of four is stopped, and another comes back with its disk: everything is there.
#[test]
fn a_register_survives_a_stop_and_a_restart() {
    let mut cluster = Cluster::start_all("restart", Protocol::BftBc(Variant::Optimized));
    let client = cluster.client(0);
    for round in 0..6_u8 {
        let id = usize::from(round) % N;
        cluster.stop(id);
        for key in 0..5 {
            client.write(&[key], value(50, round ^ key)).unwrap();
        }
        cluster.start(id, None);
        for key in 0..5 {
            assert_eq!(client.read(&[key]).unwrap().unwrap().value, value(50, round ^ key));
        }
        await_state(&client, id, |state| !state.lost && !state.repaired && state.objects == 5);
    }
    drop(client);
    (0..N).for_each(|id| cluster.stop(id));
    (0..N).for_each(|id| cluster.start(id, None));
    let client = cluster.client(1);
    for key in 0..5 {
        assert_eq!(client.read(&[key]).unwrap().unwrap().value, value(50, 5 ^ key));
    }
}

/// A server that lost its disk stays lost until enough others are there; then it is repaired and stands in for one of them.
/// That it answers nobody before is tested beside the server.
#[test]
fn a_lost_disk_is_repaired_by_enough_others() {
    for protocol in
        [Protocol::Phalanx, Protocol::MinimalC, Protocol::MinimalF, Protocol::BftBc(Variant::Base)]
    {
        let mut cluster = Cluster::start_all(&format!("wipe-{}", protocol.name()), protocol);
        let client = cluster.client(0);
        for key in 0..100_u8 {
            client.write(&[key], value(100, key)).unwrap();
        }
        assert_eq!(client.settle(PATIENCE), Ok(0));
        cluster.stop(0);
        cluster.wipe(0);
        // With one peer alone it cannot be repaired.
        (1..3).for_each(|id| cluster.stop(id));
        cluster.start(0, None);
        let lost = await_state(&client, 0, |state| state.lost);
        assert!(lost.repaired, "it is never whole again in this epoch");
        (1..3).for_each(|id| cluster.start(id, None));
        let state = await_state(&client, 0, |state| !state.lost);
        assert_eq!(state.objects, 100, "{}", protocol.name());
        // The repaired server is one of the three that are needed.
        cluster.stop(3);
        for key in 0..100_u8 {
            assert_eq!(client.read(&[key]).unwrap().unwrap().value, value(100, key), "{}", protocol.name());
        }
        // It was repaired on disk as well.
        cluster.stop(0);
        cluster.start(0, None);
        await_state(&client, 0, |state| !state.lost && state.repaired && state.objects == 100);
    }
}

/// One server lies in each way: every operation ends with the right value.
#[test]
fn a_liar_changes_nothing() {
    for (protocol, name) in Protocol::ALL {
        let mut cluster = Cluster::make(&format!("liar-{name}"), Config::new(*protocol), &[]);
        (1..N).for_each(|id| cluster.start(id, None));
        let client = cluster.client(0);
        for (lie, how, _) in Lie::ALL {
            cluster.start(0, Some(*lie));
            for round in 0..5_u8 {
                let sent: Arc<[u8]> = value(30, round);
                client.write(b"key", Arc::clone(&sent)).unwrap();
                assert_eq!(client.read(b"key").unwrap().unwrap().value, sent, "{name} {how}");
            }
            cluster.stop(0);
        }
    }
}

/// Strangers fill the sockets of a server with whatever they like, and a member's frames are sent again and cut: what
/// clients ask for is answered all the same.
#[test]
fn strangers_change_nothing() {
    let cluster = Cluster::start_all("strangers", Protocol::MinimalF);
    let client = cluster.client(0);
    client.write(b"key", value(9, 1)).unwrap();
    let node = std::fs::read_to_string(cluster.server(0).join("node.toml")).unwrap();
    let address =
        node.lines().find_map(|line| line.strip_prefix("listen = \"")).unwrap().trim_end_matches('"');
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut header = vec![0x42, 0x51, 2, 70, 1, 0, 0, 0];
    header.extend_from_slice(&65536_u64.to_le_bytes());
    header.extend_from_slice(&60_u32.to_le_bytes());
    for round in 0..5000_usize {
        let mut bytes = header.clone();
        bytes.resize(20 + 60 + 25 * (round % 3), u8::try_from(round % 256).unwrap());
        let last = bytes.len() - 1;
        bytes[80.min(last)] = 1;
        bytes.truncate(bytes.len() - round % 7);
        let _ = socket.send_to(&bytes, address);
    }
    // Frames of any length over TCP, in front of nothing.
    for len in [0_u32, 1, 9217, 1 << 20, u32::MAX] {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        let _ = std::io::Write::write_all(&mut stream, &[&len.to_le_bytes()[..], &vec![7; 20_000]].concat());
    }
    for round in 0..20 {
        client.write(b"key", value(20_000, round)).unwrap();
        assert_eq!(client.read(b"key").unwrap().unwrap().value, value(20_000, round));
    }
    assert!(await_state(&client, 0, |_| true).refused > 0);
}

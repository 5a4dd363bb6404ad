//! Access lists and evidence as users see them.

use std::time::{Duration, Instant};

use quorate_node::members::{Members, principal};
use quorate_quorum::access::{AccessList, Who};
use quorate_quorum::accusation::{Accusation, Offence};
use quorate_quorum::crypto::Statement;
use quorate_quorum::version::Namespace;
use quorate_quorum::{ObjectId, Protocol, ServerId, Version};
use quorate_quorum_node::client::ClientOptions;
use quorate_quorum_node::evidence::{Evidence, FILE, Public, of_directory};
use quorate_quorum_node::lie::Lie;
use quorate_quorum_node::{CallError, Client};
use quorate_wire::{ClientId, Principal};

use crate::cluster::{Cluster, N};

const PATIENCE: Duration = Duration::from_secs(60);

/// The administrator publishes a list, until these many servers have it.
fn publish(administrator: &Client, number: u64, writers: Who, servers: usize) {
    let by = [(Namespace::new(b""), (Who::All, writers))].into();
    let list = AccessList { number, by };
    let end = Instant::now() + PATIENCE;
    loop {
        let have = administrator.access(Some(list.clone()), Duration::from_secs(1)).unwrap();
        if have.len() >= servers {
            return;
        }
        assert!(Instant::now() < end, "{have:?}");
    }
}

/// Returns the number of a server's list, once it is as wanted.
fn await_number(client: &Client, server: usize, wanted: u64) {
    let end = Instant::now() + PATIENCE;
    loop {
        let lists = client.access(None, Duration::from_secs(1)).unwrap();
        let number =
            lists.get(&ServerId::at(server)).map(|list| list.as_ref().map(|signed| signed.list.number));
        if number == Some((wanted > 0).then_some(wanted)) {
            return;
        }
        assert!(Instant::now() < end, "server {server}: {number:?}");
    }
}

/// A client loses the right to write while the servers run, and gets it again. A server that was down gets the list, and a
/// server that starts again has it.
#[test]
fn an_administrator_takes_a_right_and_gives_it_back() {
    for (protocol, name) in Protocol::ALL {
        let mut cluster = Cluster::start_all(&format!("access-{name}"), *protocol);
        cluster.stop(3);
        let patient = ClientOptions { deadline: PATIENCE, ..ClientOptions::default() };
        let open =
            |number, options| Client::open(&cluster.dir.join(format!("client-{number}")), options).unwrap();
        let (user, other, administrator) = (open(0, patient), open(1, patient), open(2, patient));
        user.write(b"key", b"before".to_vec()).unwrap();
        await_number(&administrator, 0, 0);
        publish(&administrator, 1, Who::These([principal(1)].into()), 3);
        assert_eq!(user.write(b"key", b"no".to_vec()), Err(CallError::NotAllowed), "{name}");
        assert!(user.read(b"key").unwrap().is_some(), "it may read");
        drop(user);
        other.write(b"key", b"yes".to_vec()).unwrap();
        cluster.start(3, None);
        cluster.stop(0);
        cluster.start(0, None);
        await_number(&administrator, 3, 1);
        await_number(&administrator, 0, 1);
        publish(&administrator, 2, Who::All, N);
        let open =
            |number, options| Client::open(&cluster.dir.join(format!("client-{number}")), options).unwrap();
        let user = open(0, patient);
        let written = user.write(b"key", b"again".to_vec()).unwrap();
        assert_eq!(other.read(b"key").unwrap().map(|entry| entry.version), Some(written.version), "{name}");
        let evidence = other.evidence(PATIENCE).unwrap();
        assert!(evidence.len() == N && evidence.values().all(Vec::is_empty), "{name}: {evidence:?}");
    }
}

/// A client that loses the right to read hears of it as well, and its watch ends.
#[test]
fn a_client_that_may_not_read_is_told_so() {
    for (protocol, name) in Protocol::ALL {
        let cluster = Cluster::start_all(&format!("refused-{name}"), *protocol);
        let (user, other, administrator) = (cluster.client(0), cluster.client(1), cluster.client(2));
        user.write(b"key", b"value".to_vec()).unwrap();
        let watch = user.watch(b"key").unwrap();
        assert!(watch.next(PATIENCE).unwrap().is_some(), "{name}");
        let readers = Who::These([principal(1)].into());
        let by = [(Namespace::new(b""), (readers.clone(), readers))].into();
        let list = AccessList { number: 1, by };
        let end = Instant::now() + PATIENCE;
        while administrator.access(Some(list.clone()), Duration::from_secs(1)).unwrap().len() < N {
            assert!(Instant::now() < end, "{name}");
        }
        assert_eq!(user.read(b"key").map(drop), Err(CallError::NotAllowed), "{name}");
        assert_eq!(watch.next(PATIENCE), Err(CallError::NotAllowed), "{name}");
        assert!(other.read(b"key").unwrap().is_some(), "{name}");
    }
}

/// A server that refuses everybody keeps no client from anything.
#[test]
fn a_server_that_refuses_everybody_stops_nobody() {
    for (protocol, name) in Protocol::ALL {
        let mut cluster =
            Cluster::make(&format!("refuser-{name}"), quorate_quorum_node::Config::new(*protocol), &[]);
        (0..N).for_each(|id| cluster.start(id, (id == 0).then_some(Lie::Refuse)));
        let user = cluster.client(0);
        for number in 0..20_u8 {
            user.write(b"key", vec![number]).unwrap();
            assert_eq!(user.read(b"key").unwrap().unwrap().value[..], [number], "{name}");
        }
    }
}

/// A list that no administrator signed is refused.
#[test]
fn a_client_that_is_no_administrator_changes_nothing() {
    let cluster = Cluster::start_all("access-other", Protocol::MinimalF);
    let (user, administrator) = (cluster.client(0), cluster.client(2));
    publish(&administrator, 1, Who::All, N);
    let list =
        AccessList { number: 7, by: [(Namespace::new(b""), (Who::All, Who::These([].into())))].into() };
    let have = user.access(Some(list), Duration::from_millis(400)).unwrap();
    assert!(have.is_empty(), "{have:?}");
    await_number(&administrator, 1, 1);
    user.write(b"key", b"value".to_vec()).unwrap();
}

/// Only a client sees the versions that a server signs as a writer: it keeps the evidence in its directory.
#[test]
fn a_client_keeps_evidence_of_its_own() {
    for protocol in [Protocol::Phalanx, Protocol::MinimalF] {
        let mut cluster = Cluster::make(
            &format!("own-evidence-{}", protocol.name()),
            quorate_quorum_node::Config::new(protocol),
            &[],
        );
        (0..N).for_each(|id| cluster.start(id, (id == 3).then_some(Lie::Impostor)));
        let dir = cluster.dir.join("client-0");
        let members = Members::read(&dir.join("cluster.toml")).unwrap();
        let public = Public::new(&members, 1).unwrap();
        let user = cluster.client(0);
        let end = Instant::now() + PATIENCE;
        let kept = loop {
            user.write(b"key", b"value".to_vec()).unwrap();
            let kept = of_directory(&dir, (members.cluster_id(), 1));
            if !kept.list().is_empty() {
                break kept;
            }
            assert!(Instant::now() < end, "the client finds nothing");
        };
        let [accusation] = kept.list() else { panic!("one kind against one server: {kept:?}") };
        assert_eq!(accusation.accused, ServerId::at(3).into());
        assert!(public.holds(accusation) && matches!(accusation.offence, Offence::Wrote(_)));
        assert!(user.evidence(PATIENCE).unwrap().values().all(Vec::is_empty), "no server has seen it");
    }
}

/// Evidence comes from the disk of a server, in as many parts as it needs.
#[test]
fn a_client_gathers_the_evidence_of_all_servers() {
    let mut cluster = Cluster::make("evidence", quorate_quorum_node::Config::new(Protocol::MinimalF), &[]);
    let of = (Members::read(&cluster.server(0).join("cluster.toml")).unwrap().cluster_id(), 1);
    let mut kept = Evidence::default();
    for client in 1..=40 {
        let offence = Offence::Wrote((Statement::Written(Version::GENESIS), [7; 64]));
        let accused = Principal::Client(ClientId::new(client, 0));
        assert!(kept.add(Accusation { accused, object: ObjectId([1; 32]), offence }));
    }
    std::fs::write(cluster.server(2).join(FILE), kept.bytes(of)).unwrap();
    (0..N).for_each(|id| cluster.start(id, None));
    let evidence = cluster.client(0).evidence(PATIENCE).unwrap();
    assert_eq!(evidence.len(), N);
    for (server, list) in &evidence {
        assert_eq!(&list[..], if server.0 == 2 { kept.list() } else { &[] }, "server {server}");
    }
}

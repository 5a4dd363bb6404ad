//! What clients and servers see of a server that lies, as an observer learns it.

use std::time::{Duration, Instant};

use quorate_quorum::settings::Variant;
use quorate_quorum::{Protocol, ServerId};
use quorate_quorum_node::lie::Lie;
use quorate_quorum_node::suspicion::{Suspicion, Wrong, together};
use quorate_quorum_node::{Client, Config};

use crate::cluster::{Cluster, N};

/// Two clients use the register until an observer sees what is wanted. Returns all that it sees then. A client that writes
/// alone need not verify its own versions.
fn use_until(users: &[Client; 2], observer: &Client, wanted: impl Fn(&Suspicion) -> bool) -> Vec<Suspicion> {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        for (round, user) in (0..4_u8).flat_map(|round| users.iter().map(move |user| (round, user))) {
            user.write(b"key", [round; 30].to_vec()).unwrap();
            user.read(b"key").unwrap();
        }
        let states = observer.states(Duration::from_millis(300)).unwrap();
        let seen = together(states.iter().map(|(id, state)| (*id, &state.suspicions[..])), 2);
        if seen.iter().any(&wanted) {
            return seen;
        }
        assert!(Instant::now() < end, "{states:?}");
    }
}

#[test]
fn a_server_that_lies_is_suspected_and_no_other() {
    let bft_bc = Protocol::BftBc(Variant::Base);
    let cases = [
        (Protocol::Phalanx, Lie::BadCrypto, Wrong::Invalid),
        (Protocol::MinimalF, Lie::BadCrypto, Wrong::Invalid),
        (bft_bc, Lie::BadCrypto, Wrong::Invalid),
        (Protocol::Phalanx, Lie::FakeValue, Wrong::Invalid),
        (bft_bc, Lie::FakeValue, Wrong::Invalid),
        (Protocol::MinimalC, Lie::FakeValue, Wrong::Older),
        (Protocol::MinimalF, Lie::FakeSame, Wrong::Older),
        (Protocol::MinimalC, Lie::Forget, Wrong::Older),
        (Protocol::MinimalC, Lie::Inflate, Wrong::Alone),
    ];
    for (protocol, lie, wrong) in cases {
        let name = format!("{}-{lie:?}", protocol.name());
        let mut cluster = Cluster::make(&format!("suspect-{name}"), Config::new(protocol), &[]);
        (0..3).for_each(|id| cluster.start(id, None));
        cluster.start(3, Some(lie));
        let (users, observer) = ([0, 1].map(|number| cluster.client(number)), cluster.client(2));
        let seen =
            use_until(&users, &observer, |one| one.wrong == wrong && one.witness > u64::from(u16::MAX));
        assert!(seen.iter().all(|one| one.server == ServerId::at(3)), "{name}: {seen:?}");
    }
}

/// Servers that are right, one of which restarts, are not suspected.
#[test]
fn a_server_that_restarts_is_not_suspected() {
    for (protocol, name) in Protocol::ALL {
        let mut cluster = Cluster::start_all(&format!("unsuspected-{name}"), *protocol);
        let (user, observer) = (cluster.client(0), cluster.client(1));
        for round in 0..12_u8 {
            user.write(b"key", [round; 30].to_vec()).unwrap();
            user.read(b"key").unwrap();
            if round % 4 == 0 {
                cluster.stop(usize::from(round / 4));
                cluster.start(usize::from(round / 4), None);
            }
        }
        let states = observer.states(Duration::from_secs(5)).unwrap();
        assert_eq!(states.len(), N, "{name}");
        let all: Vec<_> = states.iter().flat_map(|(_, state)| state.suspicions.iter()).collect();
        assert!(all.is_empty(), "{name}: {all:?}");
    }
}

//! The faults of quorum systems (`docs/faults.md`, Q1 to Q4), each against every register in whose model
//! it is.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may panic")]

use std::sync::Arc;

use quorate_quorum::settings::Variant;
use quorate_quorum::step::Call;
use quorate_quorum::{ObjectId, Protocol, Settings, Thresholds};
use quorate_quorum_sim::cell::Cell;
use quorate_quorum_sim::checker;
use quorate_quorum_sim::history::OperationKind;
use quorate_quorum_sim::keys::Keys;
use quorate_quorum_sim::model::Model;
use quorate_quorum_sim::network::Network;
use quorate_quorum_sim::profile::Profile;
use quorate_quorum_sim::rng::Rng;
use quorate_quorum_sim::rogue::{Fault, Faulty};
use quorate_quorum_sim::scenario;
use quorate_quorum_sim::world::{End, World};
use quorate_wire::ClientId;

/// Readers and a writer in loops, with every tolerated server faulty.
fn holds(profile: Profile, f: u16) {
    for (protocol, name) in Protocol::ALL {
        // In the paper's mode MINIMAL-C asks for unsigned versions, so its timestamps must be honest.
        let unsigned = *protocol == Protocol::MinimalC && profile == Profile::InflateTimestamp;
        if unsigned {
            continue;
        }
        let mut cell = Cell::new(*protocol, f, OperationKind::Read, Model::sim2006(30));
        cell.faulty = f;
        cell.profile = profile;
        cell.load.writer = true;
        cell.load.readers = 1;
        cell.load.operations = 60;
        cell.load.warm_up = 0;
        let row = cell.run().unwrap();
        assert_eq!(row.verdict, Ok(()), "{name} with {profile:?}");
        assert_eq!(row.latency.len(), 60, "{name} with {profile:?}");
    }
}

#[test]
fn q1_old_or_forged_pairs() {
    for profile in [Profile::AckNoStore, Profile::FakeRandom, Profile::FakeSame, Profile::FakeValue] {
        holds(profile, 1);
    }
}

#[test]
fn q2_the_highest_false_timestamp() {
    for profile in [Profile::InflateTimestamp, Profile::FakeInflated, Profile::Collude] {
        holds(profile, 2);
    }
}

/// A writer with a fault beside a good writer and two readers, over reliable channels without timers.
fn beside(protocol: Protocol, fault: Fault, seed: u64) -> End {
    let mut settings = Settings::new(Thresholds::tolerating(1).unwrap(), protocol);
    settings.timing.first = 0;
    settings.timing.lease = 0;
    let network = Network::reliable(30, false);
    let mut world = World::new(Arc::new(settings), network, Keys::table(), Rng::new(seed, 1));
    for _ in 0..4 {
        world.server(None);
    }
    let object = ObjectId([2; 32]);
    let writes = |client: u64| -> Vec<(ObjectId, Call)> {
        (0..4_u64)
            .map(|number| {
                let value = [client.to_le_bytes(), number.to_le_bytes()].concat();
                (object, Call::Write(value.into()))
            })
            .collect()
    };
    let reads = || vec![(object, Call::Read); 5];
    world.client(ClientId::new(1, 0), writes(1), None);
    world.client(ClientId::new(2, 0), reads(), None);
    world.client(ClientId::new(3, 0), reads(), None);
    world.client(ClientId::new(9, 0), writes(9), Some(Box::new(Faulty::new(fault))));
    let end = world.run();
    assert_eq!(checker::check(world.history()), Ok(()), "{} {fault:?} {seed}", protocol.name());
    end
}

#[test]
fn q3_different_values_to_different_servers() {
    for seed in 0..100 {
        assert_eq!(beside(Protocol::MinimalF, Fault::Poison, seed), End::Complete, "{seed}");
    }
}

#[test]
fn q4_half_a_write_then_a_read() {
    let protocols = [Protocol::Phalanx, Protocol::MinimalF, Protocol::BftBc(Variant::Optimized)];
    for protocol in protocols {
        for mask in 0..16 {
            for seed in 0..10 {
                assert_eq!(beside(protocol, Fault::Partial(mask), seed), End::Complete, "{mask} {seed}");
            }
        }
    }
    // Outside its model (§8) MINIMAL-C hangs in some of these runs, and is atomic in all.
    let hangs = (0..100).filter(|seed| beside(Protocol::MinimalC, Fault::Poison, *seed) != End::Complete);
    assert!(hangs.count() > 0, "MINIMAL-C stands a poisonous writer");
}

#[test]
fn q5_a_client_that_may_not_write_brings_nothing_in() {
    let about = scenario::ALL.iter().filter(|scenario| scenario.name.ends_with("-unlisted-writer"));
    let names: Vec<&str> = about.clone().map(|scenario| scenario.name).collect();
    assert_eq!(names.len(), 4, "{names:?}");
    for scenario in about {
        assert_eq!(scenario.run(None), Ok(()), "{}", scenario.name);
    }
}

//! The plan of a seed's world: drawn once, before anything happens.

use std::collections::BTreeMap;

use quorate_pbft::Config;
use quorate_pbft::config::{Durability, MS, Replier, RequestAuth};
use quorate_process::ImagePace;
use quorate_wire::{Cluster, ReplicaId};

use super::kinds::FaultKind;
use super::moves;
use crate::adversary::collusion::PAIRS;
use crate::adversary::roster::{self, ROSTER};
use crate::clock::{DRIFT_MAX, OFFSET_NS_MAX};
use crate::disk::Pace;
use crate::network::Profile;
use crate::rng::{Concern, Rng};
use crate::setup::Setup;
use crate::world::Load;

/// A seed's world and its faults.
#[derive(Debug)]
pub struct Plan {
    /// The world.
    pub setup: Setup,
    /// The clients' load.
    pub load: Load,
    /// The kinds of faults that come, liars not among them.
    pub kinds: Vec<FaultKind>,
    /// The mean time between two faults, in nanoseconds.
    pub fault_every_ns: u64,
    /// The least number of faults.
    pub faults_min: u64,
    /// One more client is there, and lies.
    pub false_client: bool,
    /// Who lies, and how.
    pub faulty: Vec<(ReplicaId, String)>,
    /// What is odd about the world from the start, to be counted.
    pub odd: Vec<&'static str>,
    /// Those that lie from the start are cleaned when the faults end.
    pub healed_in_the_end: bool,
    /// Disks have faults in addition to those that are drawn.
    pub has_bad_disks: bool,
}

impl Plan {
    /// Draws a plan. Every setting obeys the rules of `Config`. Those that are given take the place of those
    /// that are drawn, and nothing else changes.
    ///
    /// A plain one draws from the faults that were there first, so that old seeds give the runs that they gave.
    pub fn draw(seed: u64, cluster: Cluster, given: Option<&Config>, rng: &mut Rng, plain: bool) -> Self {
        let mut setup = Setup::new(seed, cluster);
        let drawn = config(&setup.config, rng);
        setup.config = given.map_or(drawn, |given| Config { seed, ..given.clone() });
        setup.clients = size(rng.between(1, 4));
        setup.lanes = u16::try_from(rng.between(1, 4)).unwrap_or(1);
        setup.network = network(rng);
        setup.disk = if rng.one_in(6) { Pace { low_ns: 500_000, high_ns: 5_000_000 } } else { Pace::FAST };
        setup.task_time = if rng.one_in(2) { (0, 0) } else { (5_000, rng.between(10_000, 1_000_000)) };
        setup.page_bytes = if rng.one_in(4) { 4096 } else { 512 };
        setup.introduced = !rng.one_in(4);
        if !plain {
            let mut rng = Rng::nth(seed, Concern::DiskWeather, 0);
            // A tenth of the state, or all of it.
            setup.pages_in_memory = rng.pick(&[2, 4, 8, usize::MAX]).unwrap_or(4);
            setup.log_bytes_max = rng.pick(&[0, 0, 32 << 10, 128 << 10]).unwrap_or(0);
            // An image in one part, or in many.
            let parts = rng.pick(&[1, 3, 128]).unwrap_or(3);
            setup.image_pace = ImagePace { pages_max: parts, slots_max: 4 * parts };
        }
        let mut kinds = FaultKind::ALL.to_vec();
        kinds.truncate(if plain { FaultKind::PLAIN } else { kinds.len() });
        rng.shuffle(&mut kinds);
        let faulty = liars(&mut setup, cluster, rng, plain);
        // One client with wrong MACs stops a cluster that knows nothing else (B31).
        let false_client = rng.one_in(4) && setup.config.request_auth != RequestAuth::Mac;
        setup.clients += usize::from(false_client);
        if !plain && moves::are_drawn(seed) {
            (setup.founders, setup.has_moves) = (Some(setup.clients), true);
        }
        kinds.truncate(size(rng.between(3, if plain { 6 } else { 8 })));
        let mut odd = Vec::new();
        if !plain && rng.one_in(2) {
            setup.clocks = clocks(cluster, rng);
            odd.push("clocks apart");
        }
        if !plain && rng.one_in(12) {
            setup.inline = true;
            setup.task_time = (20 * MS, 60 * MS);
            odd.push("slow execution inline");
        }
        if faulty.iter().any(|(_, how)| PAIRS.iter().any(|pair| pair.name == how)) {
            odd.push("collusion");
        }
        Self {
            odd,
            has_bad_disks: !plain,
            healed_in_the_end: !plain && rng.one_in(3),
            load: Load::Busy(0, rng.between(1, 8) * MS),
            kinds,
            fault_every_ns: rng.between(10, 120) * MS,
            faults_min: rng.between(4, 12),
            false_client,
            faulty,
            setup,
        }
    }
}

/// Draws the settings: every optimisation on or off, small logs, so that everything is frequent.
fn config(base: &Config, rng: &mut Rng) -> Config {
    let mostly = |rng: &mut Rng| !rng.one_in(4);
    let interval = rng.pick(&[4, 8, 16]).unwrap_or(8);
    let window = interval * rng.pick(&[2, 2, 4]).unwrap_or(2);
    let request_timeout_min_ns = rng.between(30, 120) * MS;
    let status_min_ns = rng.between(20, 100) * MS;
    let config = Config {
        checkpoint_interval: interval,
        window,
        pipeline: rng.between(1, interval.min(8)),
        batch_requests_max: rng.pick(&[1, 2, 16, 1024]).unwrap_or(16),
        batch_bytes_max: rng.pick(&[5 << 10, 16 << 10, 56 << 10]).unwrap_or(56 << 10),
        batching: mostly(rng),
        separate_above: rng.pick(&[64, 255, 255, 1024]).unwrap_or(255),
        separate: mostly(rng),
        small_reply: rng.pick(&[0, 16, 64]).unwrap_or(64),
        digest_replies: mostly(rng),
        // Not drawn, so that older seeds still mean what they meant.
        collect_from: [0, 1, 2, 4][size(request_timeout_min_ns / MS % 4)],
        tentative: mostly(rng),
        read_only: mostly(rng),
        piggyback: mostly(rng),
        piggyback_ns: request_timeout_min_ns / 20,
        request_auth: rng
            .pick(&[RequestAuth::Adaptive, RequestAuth::Adaptive, RequestAuth::Mac, RequestAuth::SigMac])
            .unwrap_or(RequestAuth::Adaptive),
        durability: rng
            .pick(&[
                Durability::Sync,
                Durability::Sync,
                Durability::Sync,
                Durability::Async,
                Durability::Memory,
            ])
            .unwrap_or(Durability::Sync),
        request_timeout_min_ns,
        request_timeout_max_ns: request_timeout_min_ns * rng.between(2, 10),
        view_timeout_max_ns: 4000 * MS,
        status_ns: status_min_ns * rng.between(1, 2),
        status_min_ns,
        fetch_retry_ns: rng.between(5, 30) * MS,
        null_batch_ns: rng.between(10, 60) * MS,
        clients_max: 64,
        replier: if rng.one_in(2) { Replier::Random } else { Replier::RoundRobin },
        client_timeout_max_ns: 1000 * MS,
        ..base.clone()
    };
    if let Err(error) = config.check() {
        unreachable!("the swarm draws settings that obey the rules: {error}");
    }
    config
}

fn network(rng: &mut Rng) -> Profile {
    let near = Profile::lan();
    let base = match rng.below(4) {
        0 => Profile { delay_ns: (200_000, 5 * MS), jitter_ns: MS, ..near },
        _ => near,
    };
    let sometimes = |rng: &mut Rng, max: u64| -> u32 {
        if rng.one_in(3) { u32::try_from(rng.below(max)).unwrap_or(0) } else { 0 }
    };
    Profile {
        loss: sometimes(rng, 50_000),
        duplicate: sometimes(rng, 100_000),
        reorder: sometimes(rng, 100_000),
        reorder_ns: rng.between(1, 50) * MS,
        corrupt: sometimes(rng, 20_000),
        replay: sometimes(rng, 50_000),
        ..base
    }
}

/// Draws how far the clocks of correct replicas are apart.
fn clocks(cluster: Cluster, rng: &mut Rng) -> Vec<(i64, u64)> {
    let most = rng.pick(&[5_000_000, 50_000_000, OFFSET_NS_MAX]).unwrap_or(OFFSET_NS_MAX);
    let one = |_: ReplicaId| {
        let offset = rng.below(2 * most.unsigned_abs() + 1);
        let rate = rng.between(1_000_000 - DRIFT_MAX, 1_000_000 + DRIFT_MAX);
        (i64::try_from(offset).unwrap_or(0) - most, rate)
    };
    cluster.replicas().map(one).collect()
}

/// Draws at most `f` replicas that lie or run twice, any of them.
fn liars(setup: &mut Setup, cluster: Cluster, rng: &mut Rng, plain: bool) -> Vec<(ReplicaId, String)> {
    let mut ids: Vec<ReplicaId> = cluster.replicas().collect();
    rng.shuffle(&mut ids);
    let most = u64::try_from(cluster.f()).unwrap_or(0);
    let count = if rng.one_in(4) { 0 } else { rng.between(1, most.max(1)).min(most) };
    let mut faulty = Vec::new();
    setup.liars = BTreeMap::new();
    if !plain
        && count == 2
        && rng.one_in(2)
        && let Some(pair) = rng.pick(PAIRS)
    {
        // The first is at its worst as a primary: often it is the first one.
        if rng.one_in(2)
            && let Some(at) = ids.iter().position(|id| id.0 == 0)
        {
            ids.swap(0, at);
        }
        for (id, maker) in ids.into_iter().zip(pair.makers()) {
            setup.liars.insert(id, maker);
            faulty.push((id, pair.name.to_owned()));
        }
        return faulty;
    }
    let roster = if plain { roster::plain() } else { ROSTER.to_vec() };
    for id in ids.into_iter().take(size(count)) {
        if rng.one_in(8) {
            setup.twins.push(id);
            faulty.push((id, "runs twice".to_owned()));
        } else if let Some(entry) = rng.pick(&roster) {
            setup.liars.insert(id, entry.maker());
            faulty.push((id, entry.name.to_owned()));
        }
    }
    faulty
}

fn size(number: u64) -> usize {
    usize::try_from(number).unwrap_or(0)
}

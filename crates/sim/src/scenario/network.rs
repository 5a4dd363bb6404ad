//! What the network may do to frames and links (N1-N9). Slow-loris and half-open connections come with
//! sockets: here there are none.

use quorate_pbft::config::{Config, MS};
use quorate_pbft::step::{Milestone, Recipient, Reject};
use quorate_wire::frame::Frame;
use quorate_wire::{Kind, ReplicaId, ViewNum};

use super::row::{Expect, Scenario};
use super::stage::{Ended, Stage};
use crate::adversary::client::Forgery;
use crate::adversary::{Fate, Liar, Lie, Said};
use crate::network::{NodeId, Profile};
use crate::rng::Rng;
use crate::setup::Setup;
use crate::world::Load;

/// A tenth, in frames per million.
const TENTH: u32 = 100_000;

const SUSPECTED: Expect = Expect::Milestone("suspected", |_, m| matches!(m, Milestone::Suspected { .. }));
const VIEW_CHANGES: Expect = Expect::Count("view changes", |c| c.view_changes);
const STATUS: Expect = Expect::Count("statuses", |c| c.kinds.get("STATUS").copied().unwrap_or(0));

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[
    Scenario::new("n1_loss", &["N1"], "Three frames in ten are lost")
        .expects(&[Expect::Noted("lost"), STATUS])
        .play(|stage| weather(stage, "lost", Profile { loss: 3 * TENTH, ..Profile::lan() })),
    Scenario::new("n2_duplication", &["N2"], "Every second frame is delivered twice, the second time late")
        .expects(&[Expect::Noted("doubled"), Expect::Reject(Reject::Duplicate)])
        .play(|stage| {
            let twice = Profile { duplicate: 5 * TENTH, ..late(2 * TENTH, 20 * MS) };
            weather(stage, "doubled", twice)
        }),
    Scenario::new("n3_reordering", &["N3"], "One frame in ten is up to a second late")
        .expects(&[Expect::Noted("held back")])
        .play(|stage| weather(stage, "held back", late(TENTH, 1_000 * MS))),
    Scenario::new("n4_corruption", &["N4", "N9"], "One frame in ten is corrupted, truncated or extended")
        .expects(&[Expect::Noted("damaged"), Expect::Door("not-authentic"), Expect::Door("malformed")])
        .play(|stage| weather(stage, "damaged", Profile { corrupt: TENTH, ..Profile::lan() })),
    Scenario::new(
        "n5_replay_everything",
        &["N5", "K16"],
        "Old frames of all nodes are delivered to any node, also after key renewal and over other links (A7)",
    )
    .expects(&[
        Expect::Noted("replayed"),
        Expect::Door("own-identity"),
        Expect::Door("stale-key"),
        Expect::Door("no-key"),
        Expect::Reject(Reject::OldStatus),
        Expect::Reject(Reject::OldTimestamp),
    ])
    .with(|setup| setup.lying_backups(|| ReplayAll { heard: Vec::new() }))
    .play(|stage| {
        for _ in 0..3 {
            (0..stage.cluster().n()).for_each(|h| stage.world.renew_keys(h));
            weather(stage, "replayed", Profile { replay: 5 * TENTH, ..Profile::lan() })?;
        }
        Ok(())
    }),
    Scenario::new(
        "n6_deaf_and_mute",
        &["N6"],
        "Links work in one direction: first the primary receives nothing, then no replica receives from it",
    )
    .expects(&[SUSPECTED, VIEW_CHANGES])
    .play(|stage| {
        stage.busy(5)?;
        for deaf in [true, false] {
            let primary = primary(stage);
            let view = stage.view();
            for other in others(stage, primary) {
                let (from, to) = if deaf { (other, primary) } else { (primary, other) };
                stage.world.network.cut(node(from), node(to), true);
            }
            stage
                .until("the others go on without it", 5_000 * MS, |w| super::stage::highest_view(w) > view)?;
            stage.busy(20)?;
            stage.world.network.heal();
            stage.busy(20)?;
        }
        Ok(())
    }),
    Scenario::new(
        "n6_b20_flapping",
        &["N6", "B20"],
        "One replica after the other is disconnected and reconnected, in both directions or in one",
    )
    .expects(&[Expect::Noted("cut off"), STATUS])
    .play(|stage| {
        stage.world.set_load(Load::Busy(2 * MS, 8 * MS));
        let n = stage.cluster().n();
        for round in 0..3 * n {
            let lonely = ReplicaId::at(round % n);
            for other in others(stage, lonely) {
                stage.world.network.cut(node(other), node(lonely), round % 3 != 1);
                stage.world.network.cut(node(lonely), node(other), round % 3 != 2);
            }
            stage.note("cut off");
            stage.pass(if round % 2 == 0 { 30 * MS } else { 70 * MS })?;
            stage.world.network.heal();
            stage.pass(10 * MS)?;
        }
        Ok(())
    }),
    Scenario::new(
        "n6_b3_b20_star_topology_then_heal",
        &["N6", "B3", "B20"],
        "All nodes reach the primary only, then one backup only; healed, all are in one view again (A22)",
    )
    .expects(&[SUSPECTED, Expect::Noted("no quorum"), VIEW_CHANGES])
    .play(|stage| {
        stage.busy(5)?;
        for round in 0..2 {
            let hub = if round == 0 { primary(stage) } else { last(stage) };
            let rays = others(stage, hub);
            for (i, a) in rays.iter().enumerate() {
                for b in &rays[i + 1..] {
                    stage.world.network.cut_both(node(*a), node(*b), true);
                }
            }
            stage.world.set_load(Load::Busy(0, 2 * MS));
            let before = stage.world.committed();
            stage.pass(1_500 * MS)?;
            // What had prepared may still commit.
            let window = stage.world.config.pipeline;
            stage.require(stage.world.committed() <= before + window, "progress without a quorum")?;
            stage.note("no quorum");
            stage.world.network.heal();
            stage.busy(20)?;
            stage.until("all in one view", 5_000 * MS, together)?;
        }
        Ok(())
    }),
    Scenario::new(
        "n7_b3_half_split",
        &["N7", "B3"],
        "The replicas are partitioned into halves without a quorum; healed, the cluster continues",
    )
    .expects(&[SUSPECTED, Expect::Noted("no quorum")])
    .play(|stage| {
        stage.busy(5)?;
        for _ in 0..2 {
            let n = stage.cluster().n();
            // Two and two; three and four, where five would be a quorum.
            let nodes: Vec<NodeId> = (0..n).map(NodeId::at).collect();
            let (a, b) = nodes.split_at(n / 2);
            stage.world.network.partition(&[a, b]);
            stage.world.set_load(Load::Busy(0, 2 * MS));
            let before = stage.world.committed();
            stage.pass(1_000 * MS)?;
            let window = stage.world.config.pipeline;
            stage.require(stage.world.committed() <= before + window, "progress without a quorum")?;
            stage.note("no quorum");
            stage.world.network.heal();
            stage.busy(20)?;
        }
        Ok(())
    }),
    Scenario::new(
        "n8_asymmetric_delay",
        &["N8"],
        "Frames to higher-numbered replicas take longer than the time-out, those to lower-numbered ones are fast",
    )
    .expects(&[SUSPECTED])
    .play(|stage| {
        let n = stage.cluster().n();
        for from in 0..n {
            for to in from + 1..n {
                stage.world.network.worsen(NodeId::at(from), NodeId::at(to), 0, 120 * MS);
            }
        }
        stage.busy(40)
    }),
    Scenario::new(
        "n9_malformed_frames",
        &["N9", "B36"],
        "A request's frame is truncated at every length, extended, and has each field set to extremes",
    )
    .expects(&[Expect::Door("malformed"), Expect::Door("not-authentic"), Expect::Noted("thrown at clients")])
    .with(|setup| crate::setup::Setup { clients: 3, ..setup })
    .play(malformed),
    Scenario::new(
        "n9_b36_malformed_bodies",
        &["N9", "B36"],
        "f replicas send truncated and extended bodies and wrong counts, under valid authenticators",
    )
    .expects(&[Expect::Door("malformed"), Expect::Door("wrong-digest")])
    .with(|setup| setup.lying_primaries(|| WildBodies)),
    Scenario::new(
        "n1_time_outs_too_short",
        &["N1"],
        "Frames get lost and time-outs are short, so that each view executes some batches and is left: views last longer (TM-3)",
    )
    .sizes(&[4])
    .expects(&[VIEW_CHANGES])
    // They come to view 4 to 8. If the time-outs stayed as they are, most runs would come to view 13 to 34.
    .views_max(|_| 12)
    .with(|setup| {
        let config = Config {
            checkpoint_interval: 256,
            window: 1024,
            piggyback_ns: MS,
            fetch_retry_ns: 10 * MS,
            null_batch_ns: 10 * MS,
            request_timeout_min_ns: 20 * MS,
            request_timeout_max_ns: 20 * MS,
            ..setup.config
        };
        Setup { config, network: Profile { loss: TENTH / 2, ..setup.network }, lanes: 4, ..setup }
    })
    .play(|stage| {
        stage.world.set_load(Load::Busy(0, 2 * MS));
        stage.until("the batches", 120_000 * MS, |w| w.committed() >= 600)?;
        stage.quiet()
    }),
];

/// Returns a good network in which this many frames per million are up to `ns` late.
fn late(chance: u32, ns: u64) -> Profile {
    Profile { reorder: chance, reorder_ns: ns, ..Profile::lan() }
}

/// Keeps the clients busy while the network is bad, and records that.
fn weather(stage: &mut Stage, what: &'static str, profile: Profile) -> Ended {
    stage.world.network.set_profile(profile);
    stage.busy(40)?;
    let traffic = stage.world.network.traffic;
    let count = match what {
        "lost" => traffic.lost,
        "doubled" => traffic.doubled,
        "held back" => traffic.reordered,
        "damaged" => traffic.damaged,
        "replayed" => traffic.replayed,
        other => unreachable!("{other} is not counted"),
    };
    stage.require(count > traffic.sent / 40, format!("{count} of {} frames {what}", traffic.sent))?;
    stage.note(what);
    Ok(())
}

/// Returns the place of a replica in the network; of its first copy, if it has two.
pub(super) fn node(id: ReplicaId) -> NodeId {
    NodeId::at(id.index())
}

/// Returns all replicas but one.
pub(super) fn others(stage: &Stage, id: ReplicaId) -> Vec<ReplicaId> {
    stage.cluster().replicas().filter(|other| *other != id).collect()
}

/// Returns the primary of the highest view.
pub(super) fn primary(stage: &Stage) -> ReplicaId {
    stage.cluster().primary(ViewNum(stage.view()))
}

fn last(stage: &Stage) -> ReplicaId {
    ReplicaId::at(stage.cluster().n() - 1)
}

/// Returns whether all correct replicas work in one view.
pub(super) fn together(world: &mut crate::world::World<crate::app::KvApp>) -> bool {
    let mut views: Vec<u64> = world.core_facts().map(|facts| facts.view.0).collect();
    views.dedup();
    views.len() == 1 && world.core_facts().all(|facts| facts.normal)
}

/// Every way in which a frame may be malformed that can be listed.
fn malformed(stage: &mut Stage) -> Ended {
    let liar = super::client::liar(stage);
    stage.world.set_load(Load::Busy(2 * MS, 5 * MS));
    let operation = super::client::operation(stage, 1);
    let frame = stage.world.forge(liar, &Forgery::new(1, &operation));
    let mut bad: Vec<Vec<u8>> = (0..frame.len()).map(|len| frame[..len].to_vec()).collect();
    for more in [1, 4, 1000] {
        bad.push([&frame[..], &vec![0; more]].concat());
    }
    let extremes = [0_u32, 1, u32::MAX, u32::MAX / 2, 1 << 31, 0xffff_0000];
    for at in 0..frame.len() - 4 {
        let mut bytes = frame.to_vec();
        bytes[at..at + 4].copy_from_slice(&extremes[at % extremes.len()].to_le_bytes());
        bad.push(bytes);
    }
    let client = stage.world.clients[0].node;
    for bytes in bad {
        let bytes = bytes.into();
        stage.world.post_all(liar, &bytes);
        stage.world.transmit(NodeId::at(0), client, &bytes);
        stage.note("thrown at clients");
        stage.pass(MS / 4)?;
    }
    Ok(())
}

/// Keeps every frame that arrives, the first 4096 of them, and sometimes sends one to any node.
#[derive(Clone)]
struct ReplayAll {
    heard: Vec<Vec<u8>>,
}

impl std::fmt::Debug for ReplayAll {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ReplayAll")
    }
}

impl Liar for ReplayAll {
    fn overhear(&mut self, _rng: &mut Rng, frame: &[u8]) {
        if self.heard.len() < 4096 {
            self.heard.push(frame.to_vec());
        }
    }

    fn idle(&mut self, lie: &mut Lie<'_>) {
        let Some(old) = self.heard.get(lie.rng.index(self.heard.len())) else { return };
        let (Ok(frame), Some(to)) = (Frame::decode(old), lie.rng.pick(&lie.others())) else { return };
        if lie.rng.one_in(2) {
            lie.pass_on(Recipient::Replica(to), frame.kind, old);
        }
    }
}

/// Sends correct messages, and also bodies that cannot be decoded.
#[derive(Debug)]
struct WildBodies;

impl Liar for WildBodies {
    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        if !said.own || said.body.is_empty() {
            return Fate::Keep;
        }
        let mut body = said.body.to_vec();
        if said.kind == Kind::PrePrepare
            && let Some(last) = body.last_mut()
        {
            // The end is the choice, which the digest covers.
            *last ^= 1;
            lie.say(said.to, said.kind, &body);
            body = said.body.to_vec();
        }
        let at = lie.rng.index(body.len());
        match lie.rng.below(4) {
            0 => body.truncate(at),
            1 => body.extend_from_slice(&[0xff; 9]),
            2 => {
                let wild = lie.rng.pick(&[u32::MAX, 1 << 31, u32::MAX / 2, 0x00ff_ffff]).unwrap_or(0);
                let end = (at + 4).min(body.len());
                body[at..end].copy_from_slice(&wild.to_le_bytes()[..end - at]);
            }
            _ => body[at] ^= 1 << lie.rng.below(8),
        }
        lie.say(said.to, said.kind, &body);
        Fate::Keep
    }
}

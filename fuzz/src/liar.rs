//! An authenticated liar: one replica of four holds its own keys and says whatever the input makes
//! it say, to correct replicas and busy clients. No process may panic, hang or use
//! too much memory, and no rule that the simulator checks may break.
//!
//! The input is read byte by byte: it lets the replica's own messages pass, drops or changes them,
//! and adds others of any kind, made from the newest genuine one of that kind with small changes
//! (ByzzFuzz), or from nothing.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use quorate_pbft::step::Recipient;
use quorate_sim::adversary::{Fate, Liar, Lie, Said};
use quorate_sim::app::KvApp;
use quorate_sim::rng::Rng;
use quorate_sim::setup::Setup;
use quorate_sim::world::{Load, World};
use quorate_wire::frame::Frame;
use quorate_wire::message::Seal;
use quorate_wire::{ClientId, Cluster, Kind, ReplicaId};

use crate::{Target, feature};

/// The target.
pub const TARGET: Target = Target {
    name: "liar",
    run,
    seeds,
    input_bytes_max: 4 << 10,
    memory_bytes_max: 16 << 20,
    millis_max: 5000,
};

/// The most events of a run.
const STEPS_MAX: u64 = 800;
/// Kinds that a liar may not seal: its authenticator sends them by itself.
const NOT_SAID: &[Kind] = &[Kind::NewKey];

fn run(input: &[u8]) -> u64 {
    let mut world = world(input);
    let played = catch_unwind(AssertUnwindSafe(|| play(&mut world)));
    if played.is_err() || world.violation().is_some() {
        tell(input);
    }
    assert!(played.is_ok(), "a correct node panicked");
    assert!(world.violation().is_none(), "{:?}", world.violation());
    let counters = world.counters();
    let names = counters.rejects.iter().chain(&counters.turned_away);
    let mut parts: Vec<u64> = names.map(|(name, count)| feature(&[hash(name), magnitude(*count)])).collect();
    parts.extend([counters.view_changes, counters.state_transfers, counters.rollbacks].map(magnitude));
    feature(&parts)
}

/// Runs it once more, and prints the last lines of its trace.
fn tell(input: &[u8]) {
    let mut again = world(input);
    again.watch(80);
    _ = catch_unwind(AssertUnwindSafe(|| play(&mut again)));
    again.lines().for_each(|line| eprintln!("{line}"));
    again.cards().iter().for_each(|card| eprintln!("{card}"));
}

/// Returns a world before anything has happened. The first byte of the input says who lies.
fn world(input: &[u8]) -> World<KvApp> {
    let (liar, script) = input.split_first().unwrap_or((&0, &[]));
    let Ok(cluster) = Cluster::tolerating(1) else { unreachable!("four replicas tolerate one") };
    let script: Rc<[u8]> = script.into();
    let mut setup = Setup::new(1, cluster);
    setup.clients = 2;
    setup.lanes = 2;
    setup.config.checkpoint_interval = 4;
    setup.config.window = 8;
    setup.config.pipeline = 4;
    let id = ReplicaId(u16::from(*liar) % 4);
    let setup = setup.liar(id, move || Puppet { script: Rc::clone(&script), at: 0, heard: BTreeMap::new() });
    World::new(KvApp::default(), setup)
}

/// Lets the world run.
fn play(world: &mut World<KvApp>) {
    world.set_load(Load::Busy(0, 2_000_000));
    let mut steps = 0;
    world.run(u64::MAX, |_| {
        steps += 1;
        steps > STEPS_MAX
    });
}

fn hash(name: &str) -> u64 {
    name.bytes().fold(1, |hash: u64, byte| hash.wrapping_mul(31).wrapping_add(u64::from(byte)))
}

/// Few, some, many: how often is of no interest.
fn magnitude(count: u64) -> u64 {
    u64::from(count.checked_ilog2().map_or(0, |log| log / 2 + 1))
}

/// Says what its script says.
#[derive(Debug)]
struct Puppet {
    script: Rc<[u8]>,
    at: usize,
    /// The newest body of each kind that came in.
    heard: BTreeMap<Kind, Vec<u8>>,
}

impl Puppet {
    fn byte(&mut self) -> u8 {
        let byte = self.script.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        byte
    }

    fn number(&mut self) -> usize {
        usize::from(u16::from_le_bytes([self.byte(), self.byte()]))
    }

    fn is_over(&self) -> bool {
        self.at >= self.script.len()
    }

    /// Changes a few fields.
    fn change(&mut self, body: &mut Vec<u8>) {
        for _ in 0..=self.byte() % 4 {
            let how = self.byte();
            let at = self.number() % (body.len() + 1);
            let width = (1_usize << (how % 4)).min(body.len() - at);
            let field = &mut body[at..at + width];
            let mut bytes = [0; 8];
            bytes[..width].copy_from_slice(field);
            let value = u64::from_le_bytes(bytes);
            let value = match how / 4 % 5 {
                0 => value.wrapping_add(1),
                1 => value.wrapping_sub(1),
                2 => u64::from(self.byte()),
                3 => u64::MAX,
                _ => value ^ u64::from(self.byte()),
            };
            field.copy_from_slice(&value.to_le_bytes()[..width]);
            match how / 32 {
                6 => body.truncate(at),
                7 => {
                    let more = body[at..].to_vec();
                    body.extend_from_slice(&more);
                    body.truncate(8 << 10);
                }
                _ => {}
            }
        }
    }

    fn recipient(&mut self) -> Recipient {
        match self.byte() % 6 {
            0 => Recipient::All,
            1 => Recipient::Client(ClientId::new(1, 0)),
            replica => Recipient::Replica(ReplicaId(u16::from(replica - 2))),
        }
    }

    fn body(&mut self, kind: Kind) -> Vec<u8> {
        let mut body = self.heard.get(&kind).cloned().unwrap_or_else(|| vec![0; 120]);
        self.change(&mut body);
        body
    }
}

impl Liar for Puppet {
    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        match self.byte() {
            0..=159 => Fate::Keep,
            160..=191 => Fate::Drop,
            _ if NOT_SAID.contains(&said.kind) => Fate::Keep,
            _ => {
                let mut body = said.body.to_vec();
                self.change(&mut body);
                lie.say(said.to, said.kind, &body);
                Fate::Drop
            }
        }
    }

    fn overhear(&mut self, _rng: &mut Rng, frame: &[u8]) {
        if let Ok(frame) = Frame::decode(frame) {
            self.heard.insert(frame.kind, frame.body.to_vec());
        }
    }

    fn idle(&mut self, lie: &mut Lie<'_>) {
        if self.is_over() {
            return;
        }
        for _ in 0..self.byte() % 4 {
            let kind = Kind::ALL[usize::from(self.byte()) % Kind::ALL.len()];
            let mut to = self.recipient();
            if kind.seal() == Seal::Mac && to == Recipient::All {
                to = Recipient::Replica(ReplicaId((lie.id.0 + 1) % 4)); // a MAC is for one receiver
            }
            if !NOT_SAID.contains(&kind) && to != Recipient::Replica(lie.id) {
                let body = self.body(kind);
                lie.say(to, kind, &body);
            }
        }
    }
}

/// Scripts of one mood each: mostly silent, mostly changing, mostly adding.
fn seeds() -> Vec<Vec<u8>> {
    let moods: [fn(usize) -> u8; 4] = [
        |_| 0,
        |i| u8::try_from(i * 37 % 256).unwrap_or(0),
        |i| u8::try_from(i * i * 11 % 256).unwrap_or(0),
        |i| if i % 3 == 0 { 200 } else { u8::try_from(i * 53 % 256).unwrap_or(0) },
    ];
    (0..4_u8)
        .flat_map(|liar| moods.map(|mood| std::iter::once(liar).chain((0..600).map(mood)).collect()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_script_gives_the_same_run_and_scripts_matter() {
        let features: Vec<u64> = seeds().iter().map(|seed| run(seed)).collect();
        assert_eq!(features, seeds().iter().map(|seed| run(seed)).collect::<Vec<_>>());
        let distinct: std::collections::BTreeSet<_> = features.iter().collect();
        assert!(distinct.len() > 8, "{}", distinct.len());
    }
}

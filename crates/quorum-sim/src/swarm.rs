//! The swarm: cluster, load, network and faults drawn from a seed, within the model of a protocol
//! (§8), and what the checkers say (§17).

use std::sync::Arc;

use quorate_quorum::settings::{ClientAuth, Ts};
use quorate_quorum::step::Call;
use quorate_quorum::version::ObjectId;
use quorate_quorum::{Mutant, Protocol, Settings, Thresholds};
use quorate_wire::{ClientId, Principal};

use crate::administrator::Administrator;
use crate::checker;
use crate::client_profile::{ClientProfile, Part};
use crate::guest::Guest;
use crate::keys::Keys;
use crate::network::Network;
use crate::profile::{Behaviour, Liar, Profile};
use crate::rng::Rng;
use crate::rogue::{Actor, Fault, Faulty, Hoarder};
use crate::unlisted::{self, Unlisted};
use crate::world::{Counts, End, World};

/// Why a bug cannot be planted.
const NO_MUTANTS: &str = "this build has no mutants: build it with the feature `mutants`";

/// One run of the swarm.
#[derive(Clone, Copy, Debug)]
pub struct RegisterRun {
    /// The register.
    pub protocol: Protocol,
    /// How many liars are tolerated, and how many there are.
    pub f: u16,
    /// What everything is drawn from.
    pub seed: u64,
    /// A bug to plant.
    pub mutant: Option<Mutant>,
    /// Another register in the place of `protocol`. Its clients are correct, and no disk is lost.
    pub guest: Option<Guest>,
}

/// What a run found.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// What is wrong, if anything.
    pub finding: Option<Finding>,
    /// What the run counted.
    pub counts: Counts,
    /// What was drawn.
    pub drawn: String,
}

/// Something wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The history is not that of an atomic register.
    Violation(String),
    /// Operations of correct clients never end.
    Hang(String),
    /// A stopped client made too much visible.
    Lurking(String),
    /// An assertion of the simulator.
    Wrong(String),
}

impl Finding {
    /// Returns its kind in a word.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Violation(_) => "violation",
            Self::Hang(_) => "hang",
            Self::Lurking(_) => "lurking",
            Self::Wrong(_) => "wrong",
        }
    }

    /// Returns what it is about.
    pub fn says(&self) -> &str {
        match self {
            Self::Violation(says) | Self::Hang(says) | Self::Lurking(says) | Self::Wrong(says) => says,
        }
    }
}

/// Runs one seed.
pub fn run(run: RegisterRun) -> Result<Verdict, String> {
    let mut rng = Rng::new(run.seed, 1);
    let thresholds = Thresholds::tolerating(run.f).map_err(|error| error.to_string())?;
    let lossy = !rng.one_in(3);
    let mut settings = settings(run, thresholds, lossy, &mut rng)?;
    let (client_auth, evidence) = (settings.client_auth, settings.evidence);
    let base = rng.between(5, 60);
    let heals = 60_000;
    let network = if lossy {
        Network::lossy(base, rng.below(25), rng.below(15), heals)
    } else {
        Network::reliable(base, rng.one_in(2))
    };
    let writers = rng.between(2, 3);
    let readers = 2;
    let clients: Vec<ClientId> = (1..=writers + readers).map(|number| ClientId::new(number, 0)).collect();
    let rogues: Vec<ClientId> = (1..=3).map(|number| ClientId::new(100 + number, 0)).collect();
    let unlisted = ClientId::new(104, 0);
    let objects = [ObjectId([2; 32]), other(ObjectId([2; 32]))];
    let mut rights = Rng::new(run.seed, 5);
    let ruled = rights.one_in(4) && run.guest.is_none();
    let listed = clients.iter().take(usize::try_from(writers).unwrap_or(0)).chain(&rogues);
    let mut listed: Vec<ClientId> = listed.copied().collect();
    let administrator = ClientId::new(105, 0);
    // A good client that may not write, or loses the right: in the middle of a write it hears of that by asking again.
    // In MINIMAL-C none loses it. A STORE that some servers took and the others refuse is that of a writer that stopped half
    // way: nothing is signed, so at most f correct servers convince nobody of it, and a reader that waits for them as well
    // as for the others waits forever. MINIMAL-C does not stand such a writer (§4, §8: `minimal-c-refused-writer`).
    let visitor = ClientId::new(106, 0);
    let revoked = ruled && lossy && rights.one_in(2) && run.protocol != Protocol::MinimalC;
    if ruled {
        listed.extend(revoked.then_some(visitor));
        settings.rules = unlisted::rules(&objects, &listed);
        settings.administrators = [administrator.principal()].into();
        settings.timing.access = if lossy { rights.between(2_000, 20_000) } else { 0 };
    }
    let settings = Arc::new(settings);
    let servers = thresholds.servers().map(Principal::from);
    let strangers = rogues.iter().chain([&unlisted, &administrator, &visitor]);
    let everyone = servers.chain(clients.iter().chain(strangers).map(|client| Principal::from(*client)));
    let keys = if run.seed % 100 == 99 {
        Keys::ed25519(everyone, &mut Rng::new(run.seed, 2))
    } else {
        Keys::table()
    };
    let mut world = World::new(Arc::clone(&settings), network, keys, Rng::new(run.seed, 3));
    world.invite(run.guest);
    let mut drawn = format!("lossy {lossy}, base {base}, auth {client_auth:?}, evidence {evidence}");
    // Newer faults have a stream of their own: seeds that draw none of them stay as they were.
    let mut newer = Rng::new(run.seed, 4);
    let wiped = place_servers(run, lossy, &mut world, (&mut rng, &mut newer), &mut drawn);
    for (index, client) in clients.iter().enumerate() {
        let may_write = index < usize::try_from(writers).unwrap_or(0);
        let calls = calls(*client, may_write, &objects, &mut rng);
        world.client(*client, calls, None);
    }
    place_rogues(run, &mut world, &rogues[..2], &objects, &mut rng, &mut drawn);
    let scripted = place_named(run, &mut world, rogues[2], &objects, &mut newer, &mut drawn);
    if ruled {
        note(&mut drawn, format_args!(", {unlisted} may not write"));
        let acts = u32::try_from(rights.between(10, 60)).unwrap_or(10);
        let actor: Box<dyn Actor> = match run.protocol {
            Protocol::BftBc(_) => Box::new(Hoarder::new(objects[0], objects[1], acts)),
            _ => Box::new(Unlisted::new(objects, clients[0], acts)),
        };
        world.actor(unlisted, actor, None);
        let losers = rogues.iter().take(2).chain(revoked.then_some(&visitor));
        let losers = losers.map(|loser| (rights.below(8_000), *loser)).collect();
        let mut told: Vec<_> = thresholds.servers().collect();
        rights.shuffle(&mut told);
        told.truncate(thresholds.weak());
        let space = objects.iter().map(ObjectId::namespace).collect();
        world.actor(administrator, Box::new(Administrator::new(space, &listed, losers, told)), None);
        note(
            &mut drawn,
            format_args!(", {visitor} {}", if revoked { "loses its right" } else { "has no right" }),
        );
        world.may_lack_right(visitor);
        world.client(visitor, calls(visitor, true, &objects, &mut rights), None);
    }
    // A script may act without end.
    world.deadline = if lossy || scripted { heals + 3_000_000 } else { u64::MAX };
    if let Some(server) = wiped {
        world.wipe(server);
    }
    let end = world.run();
    let finding = judge(run, &world, end);
    Ok(Verdict { finding, counts: world.counts, drawn })
}

/// Returns the object whose name differs in one bit.
fn other(object: ObjectId) -> ObjectId {
    let mut other = object;
    other.0[0] ^= 1;
    other
}

fn settings(
    run: RegisterRun,
    thresholds: Thresholds,
    lossy: bool,
    rng: &mut Rng,
) -> Result<Settings, String> {
    let mut settings = Settings::new(thresholds, run.protocol);
    settings.timing.first = if lossy { rng.between(800, 4000) } else { 0 };
    settings.timing.longest = 40_000;
    settings.timing.lease = if lossy && rng.one_in(3) { rng.between(5_000, 50_000) } else { 0 };
    settings.always_write_back = rng.one_in(5);
    settings.relay_first = rng.one_in(4);
    settings.complete = rng.one_in(2);
    settings.late = rng.one_in(2);
    settings.cache = !rng.one_in(4);
    settings.client_auth = if rng.one_in(3) { ClientAuth::Mac } else { ClientAuth::Signature };
    settings.limits.seen = if rng.one_in(4) { 8 } else { 4096 };
    match run.protocol {
        Protocol::MinimalC => settings.ts = Ts::Read,
        Protocol::MinimalF => {
            settings.evidence = rng.one_in(3);
            settings.ts = if rng.one_in(3) { Ts::Read } else { Ts::Query };
        }
        Protocol::Phalanx | Protocol::BftBc(_) => {}
    }
    if Rng::new(run.seed, 6).one_in(4) && matches!(run.protocol, Protocol::MinimalC | Protocol::MinimalF) {
        settings.limits.unacknowledged = 1;
    }
    match run.mutant {
        Some(mutant) => settings.planted(mutant).ok_or_else(|| NO_MUTANTS.to_string()),
        None => Ok(settings),
    }
}

/// Adds the servers: b = f of them liars, one of which may be a correct one that loses its disk, and
/// over datagrams correct ones that crash and start again.
fn place_servers(
    run: RegisterRun,
    lossy: bool,
    world: &mut World,
    (rng, newer): (&mut Rng, &mut Rng),
    drawn: &mut String,
) -> Option<usize> {
    let thresholds = world.settings.thresholds;
    let mut order: Vec<usize> = (0..thresholds.n()).collect();
    rng.shuffle(&mut order);
    let faulty = order[..thresholds.f()].to_vec();
    let profiles = Profile::of(run.protocol);
    let wiped = (lossy && rng.one_in(6) && run.guest.is_none()).then(|| faulty.first().copied()).flatten();
    for server in thresholds.servers() {
        let liar = faulty.contains(&server.index()) && wiped != Some(server.index());
        let profile = rng.pick(&profiles).filter(|_| liar);
        let other = newer.one_in(4).then(|| newer.pick(Profile::NEWER)).flatten();
        let profile = profile.map(|profile| other.unwrap_or(profile));
        if let Some(profile) = profile {
            note(drawn, format_args!(", {server} {profile:?}"));
            world.group.liars.push(server);
        }
        let from = if rng.one_in(3) { rng.below(4000) } else { 0 };
        let liar = |profile| match &run.guest {
            Some(guest) => guest.behave(from) as Box<dyn Behaviour>,
            None => Box::new(Liar::new(profile, from)),
        };
        world.server(profile.map(liar));
    }
    if let Some(server) = wiped {
        note(drawn, format_args!(", r{server} wiped"));
    }
    if lossy && rng.one_in(2) {
        for _ in 0..rng.between(1, 3) {
            let server = order[rng
                .between(run.f.into(), u64::try_from(order.len()).unwrap_or(1) - 1)
                .try_into()
                .unwrap_or(0)];
            let (at, down) = (rng.below(20_000), rng.between(500, 10_000));
            note(drawn, format_args!(", r{server} down at {at} for {down}"));
            world.crash(server, at, down);
        }
    }
    wiped
}

fn calls(client: ClientId, writes: bool, objects: &[ObjectId; 2], rng: &mut Rng) -> Vec<(ObjectId, Call)> {
    let count = rng.between(2, 5);
    let call = |number: u64, rng: &mut Rng| {
        let object = objects[usize::from(rng.one_in(8))];
        if writes && !rng.one_in(4) {
            let value = [client.principal().to_le_bytes(), number.to_le_bytes()].concat();
            (object, Call::Write(value.into()))
        } else {
            (object, Call::Read)
        }
    };
    (0..count).map(|number| call(number, rng)).collect()
}

/// Adds clients that are not good, where the protocol stands them (§8).
fn place_rogues(
    run: RegisterRun,
    world: &mut World,
    rogues: &[ClientId],
    objects: &[ObjectId; 2],
    rng: &mut Rng,
    drawn: &mut String,
) {
    for (index, rogue) in rogues.iter().enumerate() {
        if (!rng.one_in(2) && index > 0) || run.guest.is_some() {
            continue;
        }
        match run.protocol {
            Protocol::MinimalC => {}
            Protocol::Phalanx if index > 0 => {}
            Protocol::BftBc(_) => {
                let acts = u32::try_from(rng.between(20, 120)).unwrap_or(20);
                let stop = (!rng.one_in(4)).then(|| rng.between(500, 6000));
                note(drawn, format_args!(", {rogue} hoards, stopped {stop:?}"));
                world.actor(*rogue, Box::new(Hoarder::new(objects[0], objects[1], acts)), stop);
            }
            Protocol::Phalanx | Protocol::MinimalF => {
                let fault = match rng.below(if run.protocol == Protocol::Phalanx { 2 } else { 4 }) {
                    0 => Fault::CrashMidWrite(u32::try_from(rng.below(9)).unwrap_or(0)),
                    1 => Fault::Partial(rng.below(16)),
                    2 => Fault::Poison,
                    _ => Fault::ListenerLeak,
                };
                note(drawn, format_args!(", {rogue} {fault:?}"));
                let calls = calls(*rogue, true, objects, rng);
                world.client(*rogue, calls, Some(Box::new(Faulty::new(fault))));
                // Servers hear at different times that it may not write any more (§15).
                if rng.one_in(2) {
                    let at = rng.below(1500);
                    for server in 0..world.settings.thresholds.n() {
                        world.revoke(server, *rogue, at + rng.below(3000));
                    }
                    note(drawn, format_args!(" revoked"));
                }
            }
        }
    }
}

/// Adds, in every fourth seed, a client with one of the profiles that have names (§10) and that the protocol tolerates.
/// Returns whether it follows a script.
fn place_named(
    run: RegisterRun,
    world: &mut World,
    me: ClientId,
    objects: &[ObjectId; 2],
    newer: &mut Rng,
    drawn: &mut String,
) -> bool {
    let evidence = world.settings.evidence;
    let profiles = ClientProfile::ALL.iter().map(|(profile, ..)| *profile);
    let profiles: Vec<ClientProfile> =
        profiles.filter(|profile| profile.is_tolerated(run.protocol, evidence)).collect();
    let drawn_one = newer.one_in(4) && run.guest.is_none();
    let Some(profile) = newer.pick(&profiles).filter(|_| drawn_one) else { return false };
    note(drawn, format_args!(", {me} {}", profile.name()));
    match profile.part(run.protocol, objects[0]) {
        Part::Behind(behaviour, writes) => {
            let calls = calls(me, writes, objects, newer);
            world.client(me, calls, Some(behaviour));
            false
        }
        Part::Script(actor, stopped) => {
            let stop = stopped.then(|| newer.between(500, 6000));
            world.actor(me, actor, stop);
            true
        }
    }
}

/// Adds to what was drawn.
fn note(drawn: &mut String, what: std::fmt::Arguments<'_>) {
    drawn.push_str(&what.to_string());
}

fn judge(run: RegisterRun, world: &World, end: End) -> Option<Finding> {
    let rights = || unlisted::check(&world.history, &world.settings.rules);
    if let Err(says) = checker::check(&world.history).and_then(|()| rights()) {
        return Some(Finding::Violation(says));
    }
    if let (Protocol::BftBc(variant), None) = (run.protocol, run.guest)
        && let Err(says) = checker::lurking::check(&world.history, variant)
    {
        return Some(Finding::Lurking(says));
    }
    if let Some(accused) = world.falsely_accused() {
        return Some(Finding::Wrong(accused));
    }
    match end {
        End::Complete => None,
        End::Hung(pending) => Some(Finding::Hang(pending.join(", "))),
        End::Wrong(says) => Some(Finding::Wrong(says)),
    }
}

/// Adds what another run counted.
pub fn add(sum: &mut Counts, other: &Counts) {
    sum.events += other.events;
    sum.messages += other.messages;
    sum.lost += other.lost;
    sum.replays += other.replays;
    sum.rejects += other.rejects;
    sum.done += other.done;
    sum.write_backs += other.write_backs;
    sum.listeners += other.listeners;
    sum.two_phases += other.two_phases;
    sum.restarts += other.restarts;
    sum.wipes += other.wipes;
    sum.stops += other.stops;
    sum.refused += other.refused;
    sum.accusations += other.accusations;
    sum.found_by_clients += other.found_by_clients;
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEEDS: u64 = 300;

    fn all_hold(protocol: Protocol, f: u16, seeds: u64) -> Counts {
        let mut sum = Counts::default();
        for seed in 0..seeds {
            let verdict = run(RegisterRun { protocol, f, seed, mutant: None, guest: None }).unwrap();
            assert_eq!(verdict.finding, None, "{} seed {seed}: {}", protocol.name(), verdict.drawn);
            add(&mut sum, &verdict.counts);
        }
        assert!(sum.done > seeds * 6 && sum.lost > 0 && sum.replays > 0 && sum.restarts > 0, "{sum:?}");
        assert!(sum.refused > 0, "{sum:?}");
        sum
    }

    /// Every profile of §10 that a protocol tolerates is drawn by some seed.
    #[test]
    fn every_tolerated_profile_is_drawn() {
        let me = ClientId::new(103, 0);
        for (protocol, name) in Protocol::ALL {
            let run = |seed| {
                run(RegisterRun { protocol: *protocol, f: 1, seed, mutant: None, guest: None }).unwrap()
            };
            let drawn: String = (0..SEEDS).map(|seed| run(seed).drawn).collect();
            for profile in Profile::of(*protocol).iter().chain(Profile::NEWER) {
                assert!(drawn.contains(&format!(" {profile:?}")), "{name}: no {profile:?}");
            }
            for (profile, named, _) in ClientProfile::ALL {
                let tolerated = profile.is_tolerated(*protocol, *protocol == Protocol::MinimalF);
                assert_eq!(drawn.contains(&format!(", {me} {named}")), tolerated, "{name}: {named}");
            }
        }
    }

    #[test]
    fn phalanx_holds() {
        assert!(all_hold(Protocol::Phalanx, 1, SEEDS).write_backs > 0);
        all_hold(Protocol::Phalanx, 2, SEEDS / 6);
    }

    #[test]
    fn minimal_c_holds() {
        assert!(all_hold(Protocol::MinimalC, 1, SEEDS).listeners > 0);
        all_hold(Protocol::MinimalC, 2, SEEDS / 6);
    }

    #[test]
    fn minimal_f_holds() {
        assert!(all_hold(Protocol::MinimalF, 1, SEEDS).listeners > 0);
        all_hold(Protocol::MinimalF, 2, SEEDS / 6);
    }

    #[test]
    fn bft_bc_holds() {
        for (protocol, _) in Protocol::ALL {
            if let Protocol::BftBc(variant) = protocol {
                let sum = all_hold(*protocol, 1, SEEDS);
                assert!(sum.stops > 0 && sum.write_backs > 0, "{sum:?}");
                assert_eq!(sum.two_phases > 0, variant.is_optimized(), "{sum:?}");
                all_hold(*protocol, 2, SEEDS / 12);
            }
        }
    }
}

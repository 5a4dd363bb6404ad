//! What an observer says of thirty states that simulated clusters come into: the verdict, the margins, a word for each
//! replica, and what to do.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::net::SocketAddr;

use quorate_node::observe::Verdict::{Degraded, Halted, Healthy, Unsafe};
use quorate_node::observe::advice::advice;
use quorate_node::observe::model::judge;
use quorate_node::observe::{Class, Item, Picture, ProbeOutcome, ProbeOutcomes, Reading, Verdict};
use quorate_pbft::config::MS;
use quorate_sim::adversary::roster;
use quorate_sim::app::{App as _, KvApp};
use quorate_sim::clock::EPOCH_NS;
use quorate_sim::disk::files::Space;
use quorate_sim::scenario::stage::setup;
use quorate_sim::setup::Setup;
use quorate_sim::world::{Load, World};
use quorate_wire::{Cluster, ReplicaId};

const SECOND: u64 = 1_000 * MS;
const HOUR_NS: i64 = 3_600_000_000_000;

/// A cluster in use, and what happens to it.
struct Sight {
    world: World<KvApp>,
    /// Digests of settings, of replicas that do not have those of the others.
    settings: BTreeMap<ReplicaId, u64>,
}

impl Sight {
    /// A cluster that tolerates f faults, with these liars, after half a second under load.
    fn new(f: usize, liars: &[(u16, &str)], change: fn(&mut Setup)) -> Self {
        let mut setup = setup(7, Cluster::tolerating(u16::try_from(f).unwrap()).unwrap());
        for (id, name) in liars {
            setup.liars.insert(ReplicaId(*id), roster::find(name).unwrap().maker());
        }
        change(&mut setup);
        let mut all = Self { world: World::new(KvApp::default(), setup), settings: BTreeMap::new() };
        all.world.set_load(Load::Busy(5 * MS, 50 * MS));
        all.pass(SECOND / 2);
        assert!(all.world.committed() > 8, "{} batches", all.world.committed());
        all
    }

    fn pass(&mut self, ns: u64) {
        self.world.run(self.world.time() + ns, |_| false);
    }

    /// Tries an operation of each kind, as the observer does, while the clients do nothing else.
    fn outcomes(&mut self) -> ProbeOutcomes {
        self.world.set_load(Load::Idle);
        let mut outcome = |lane, text| {
            let ask = KvApp::default().parse(text).unwrap();
            let until = self.world.time() + 6 * SECOND;
            let is_served = self.world.run(until, |world| world.is_free(1, lane))
                && self.world.ask_for(1, lane, &ask)
                && self.world.run(until, |world| world.is_free(1, lane));
            Some(if is_served { ProbeOutcome::Served } else { ProbeOutcome::Silence })
        };
        ProbeOutcomes { ordered: outcome(0, "put k 1"), read_only: outcome(1, "get k"), large: None }
    }

    /// What the observer sees.
    fn picture(&mut self) -> Picture {
        let outcomes = self.outcomes();
        let cluster = self.world.cluster();
        let seconds = |ns: u64| (EPOCH_NS + ns) / SECOND;
        let item = |(replica, (count, last)): (&ReplicaId, &(u64, u64))| Item {
            class: Class::WrongReplies,
            replica: *replica,
            count: *count,
            first: seconds(*last),
            last: seconds(*last),
            by: "client-0".to_owned(),
        };
        let evidence = self.world.accused().iter().map(item).collect();
        let statements = cluster.replicas().map(|id| self.world.statement(id)).collect();
        let digest = |id| Some(self.settings.get(&id).copied().unwrap_or(1));
        let settings = cluster.replicas().map(digest).collect();
        let now_s = seconds(self.world.time());
        judge(Reading { cluster, statements, settings, evidence, outcomes, now_s })
    }

    fn host(&self, id: u16) -> usize {
        self.world.host_of(ReplicaId(id))
    }

    fn crash(&mut self, ids: &[u16]) {
        for id in ids {
            self.world.crash(self.host(*id));
        }
        self.pass(5 * SECOND);
    }

    fn restart(&mut self, id: u16) {
        self.world.restart(self.host(id));
    }

    fn fill(&mut self, id: u16, space: Space) {
        self.world.fill_disk(self.host(id), space);
        self.pass(3 * SECOND);
    }

    fn set_settings(&mut self, ids: &[u16]) {
        for id in self.world.cluster().replicas() {
            let differs = ids.contains(&id.0);
            self.world.state_settings(id, vec![0, if differs { 8 } else { 7 }]);
            if differs {
                self.settings.insert(id, 2);
            }
        }
    }
}

/// A state: its name; what leads to it; the verdict, the further crashes and Byzantine replicas that are tolerated; the
/// replicas that are not ok; and the beginning of each advice.
struct State {
    name: &'static str,
    f: usize,
    liars: &'static [(u16, &'static str)],
    change: fn(&mut Setup),
    play: fn(&mut Sight),
    says: (Verdict, usize, usize),
    words: &'static [(u16, &'static str)],
    advice: &'static [&'static str],
}

const fn state(name: &'static str, f: usize, play: fn(&mut Sight)) -> State {
    State { name, f, liars: &[], change: |_| (), play, says: (Healthy, f, f), words: &[], advice: &[] }
}

impl State {
    const fn lying(self, liars: &'static [(u16, &'static str)]) -> Self {
        Self { liars, ..self }
    }

    const fn with(self, change: fn(&mut Setup)) -> Self {
        Self { change, ..self }
    }

    const fn is(
        self,
        says: (Verdict, usize, usize),
        words: &'static [(u16, &'static str)],
        advice: &'static [&'static str],
    ) -> Self {
        Self { says, words, advice, ..self }
    }
}

const STATES: [State; 30] = [
    state("all is well", 1, |_| ()),
    state("a lossy network", 1, |s| {
        s.pass(2 * SECOND);
        s.world.set_load(Load::Idle);
        s.pass(SECOND);
    })
    .with(|setup| setup.network.loss = 50_000),
    state("a backup has crashed", 1, |s| s.crash(&[3])).is(
        (Degraded, 0, 1),
        &[(3, "silent")],
        &["replica-3 is silent: check its process, and UDP and TCP 10.0.0.4:7000 | quorate replica --dir replica-3"],
    ),
    state("the primary has crashed", 1, |s| s.crash(&[0])).is(
        (Degraded, 0, 1),
        &[(0, "silent")],
        &["replica-0 is silent"],
    ),
    state("a backup has restarted", 1, |s| {
        s.crash(&[3]);
        s.restart(3);
        s.pass(5 * SECOND);
    }),
    state("two have crashed", 1, |s| s.crash(&[1, 2])).is(
        (Halted, 0, 1),
        &[(1, "silent"), (2, "silent")],
        &["2 replicas do not answer: nothing is executed, and nothing acknowledged is lost. Start r1 or r2: one of them is enough"],
    ),
    state("three have crashed", 1, |s| s.crash(&[0, 1, 2])).is(
        (Halted, 0, 1),
        &[(0, "silent"), (1, "silent"), (2, "silent")],
        &["3 replicas do not answer: nothing is executed, and nothing acknowledged is lost. Start r0 or r1 or r2: 2 of them are enough"],
    ),
    state("all have crashed", 1, |s| s.crash(&[0, 1, 2, 3])).is(
        (Halted, 0, 1),
        &[(0, "silent"), (1, "silent"), (2, "silent"), (3, "silent")],
        &["4 replicas do not answer"],
    ),
    state("all have crashed and started again", 1, |s| {
        s.crash(&[0, 1, 2, 3]);
        (0..4).for_each(|id| s.restart(id));
        s.pass(10 * SECOND);
    }),
    state("two of seven have crashed", 2, |s| s.crash(&[1, 6])).is(
        (Degraded, 0, 2),
        &[(1, "silent"), (6, "silent")],
        &["replica-1 is silent", "replica-6 is silent"],
    ),
    state("three of seven have crashed", 2, |s| s.crash(&[1, 2, 6])).is(
        (Halted, 0, 2),
        &[(1, "silent"), (2, "silent"), (6, "silent")],
        &["3 replicas do not answer: nothing is executed, and nothing acknowledged is lost. Start r1 or r2 or r6: one of them is enough"],
    ),
    state("a backup hangs", 1, |s| {
        s.world.pause(s.host(2), 1_000 * SECOND);
        s.pass(3 * SECOND);
    })
    .is((Degraded, 0, 1), &[(2, "silent")], &["replica-2 is silent"]),
    state("the primary hung", 1, |s| {
        s.world.pause(s.host(0), 5 * SECOND);
        s.pass(20 * SECOND);
    }),
    state("a backup is cut off from everyone", 1, |s| {
        s.world.cut_off(ReplicaId(1), true);
        s.pass(3 * SECOND);
    })
    .is((Degraded, 0, 1), &[(1, "silent")], &["replica-1 is silent"]),
    state("a backup is cut off from the replicas only", 1, |s| {
        s.world.cut_off(ReplicaId(1), false);
        s.pass(3 * SECOND);
    })
    .is((Degraded, 0, 1), &[(1, "slow")], &["r1 is behind what the others keep"]),
    state("two are cut off from the replicas only", 1, |s| {
        s.world.cut_off(ReplicaId(1), false);
        s.world.cut_off(ReplicaId(2), false);
        s.pass(3 * SECOND);
    })
    .is((Halted, 0, 1), &[], &["a quorum answers, but no operation was executed in time"]),
    state("a disk was lost, and the replica waits for the others", 1, |s| {
        s.world.wipe(s.host(3));
        s.pass(SECOND);
        s.world.cut_off(ReplicaId(3), false);
        s.restart(3);
        s.pass(3 * SECOND);
    })
    .is((Degraded, 0, 1), &[(3, "rejoining")], &["r3 "]),
    state("a disk was lost, and the replica is back", 1, |s| {
        s.world.wipe(s.host(3));
        s.pass(SECOND);
        s.restart(3);
        s.pass(20 * SECOND);
    }),
    state("a disk is full", 1, |s| s.fill(2, Space::None)).is(
        (Degraded, 0, 1),
        &[(2, "disk full")],
        &["make room on the disk of replica-2: it continues by itself"],
    ),
    state("a disk was full", 1, |s| {
        s.fill(2, Space::None);
        s.fill(2, Space::Enough);
        s.pass(5 * SECOND);
    }),
    state("a disk is full, and another replica has crashed", 1, |s| {
        s.fill(2, Space::None);
        s.crash(&[3]);
    })
    .is(
        (Halted, 0, 1),
        &[(2, "disk full"), (3, "silent")],
        &["one replica does not answer: nothing is executed", "make room on the disk of replica-2"],
    ),
    state("a clock is an hour ahead", 1, |s| {
        s.world.disturb_clock(s.host(2), HOUR_NS, 1_000_000);
        s.pass(2 * SECOND);
    })
    .is(
        (Degraded, 0, 1),
        &[(2, "clock-off")],
        &["set the clock of replica-2 right (1h00m ahead): it votes for nothing | chronyc makestep"],
    ),
    state("the clock of the primary is an hour behind", 1, |s| {
        s.world.disturb_clock(s.host(0), -HOUR_NS, 1_000_000);
        s.pass(10 * SECOND);
    })
    .is((Degraded, 0, 1), &[(0, "clock-off")], &["set the clock of replica-0 right (1h00m behind)"]),
    state("a replica lies to clients", 1, |s| s.pass(SECOND)).lying(&[(2, "replies")]).is(
        (Degraded, 0, 0),
        &[(2, "wrong replies")],
        &["r2 answers clients wrongly; they use the answers of the others"],
    ),
    state("a replica of seven lies to clients, and another one has crashed", 2, |s| s.crash(&[1]))
        .lying(&[(2, "replies")])
        .is(
            (Degraded, 0, 1),
            &[(1, "silent"), (2, "wrong replies")],
            &["r2 answers clients wrongly", "replica-1 is silent"],
        ),
    state("a replica of four lies to clients, and another one has crashed", 1, |s| s.crash(&[1]))
        .lying(&[(2, "replies")])
        .is(
            (Halted, 0, 0),
            &[(1, "silent"), (2, "wrong replies")],
            &["a quorum answers, but no operation was executed", "r2 answers clients wrongly", "replica-1 is silent"],
        ),
    state("a replica lied to clients more than a minute ago", 1, |s| {
        s.world.clean(s.host(2));
        s.restart(2);
        s.pass(3 * SECOND);
        s.world.set_load(Load::Idle);
        s.pass(90 * SECOND);
    })
    .lying(&[(2, "replies")])
    .is((Healthy, 1, 1), &[], &["the evidence is history"]),
    state("the settings of one differ", 1, |s| s.set_settings(&[2])).is(
        (Degraded, 0, 0),
        &[(2, "settings differ")],
        &["settings differ: "],
    ),
    state("two of seven differ in their settings, and one has crashed", 2, |s| {
        s.set_settings(&[2, 5]);
        s.crash(&[1]);
    })
    .is((Degraded, 0, 0), &[(1, "silent"), (2, "settings differ"), (5, "settings differ")], &["settings differ", "settings differ", "replica-1 is silent"]),
    state("two of four differ in their settings", 1, |s| s.set_settings(&[2, 3])).is(
        (Unsafe, 0, 0),
        &[(2, "settings differ"), (3, "settings differ")],
        &["more than f = 1 replicas contradict the others", "settings differ", "settings differ"],
    ),
];

#[test]
fn thirty_states_are_judged_as_they_are() {
    let mut wrong = Vec::new();
    for state in &STATES {
        let mut sight = Sight::new(state.f, state.liars, state.change);
        (state.play)(&mut sight);
        let picture = sight.picture();
        let words: Vec<(u16, &str)> = picture
            .replicas
            .iter()
            .map(|replica| (replica.id.0, replica.word.name()))
            .filter(|(_, word)| *word != "ok")
            .collect();
        let addresses: Vec<SocketAddr> = (1..=7).map(|i| SocketAddr::from(([10, 0, 0, i], 7000))).collect();
        let said: Vec<String> = advice(&picture, &addresses)
            .into_iter()
            .map(|one| format!("{} | {}", one.what, one.command.unwrap_or_default()))
            .collect();
        let says = (picture.verdict, picture.may_stop, picture.may_lie);
        let is_right = says == state.says
            && words == state.words
            && said.len() == state.advice.len()
            && state.advice.iter().zip(&said).all(|(start, said)| said.starts_with(start));
        println!("{}: {says:?} {words:?}, {}", state.name, picture.margins());
        if !is_right {
            wrong.push(format!("{}: {says:?}, {words:?}, {said:#?}, {:?}", state.name, picture.outcomes));
        }
        if let Some(violation) = sight.world.violation() {
            wrong.push(format!("{}: {violation:?}", state.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

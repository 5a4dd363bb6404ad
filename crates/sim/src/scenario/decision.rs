//! Schedules for single conditions of a new primary's decision (DP-1 to DP-3), which random runs hit about once in
//! ten thousand: the null batch in place of what others have discarded (A18), and a batch that prepared once and was
//! outvoted later.
//!
//! The roles follow from n: `late` replicas, which know nothing of what committed and of which the first is the
//! primary of view 2; the `absent` one, the primary of view 1, which is disconnected when it would be needed as a
//! witness; the Byzantine ones, which are the last `f` and hide what they know; and the others.

use quorate_pbft::config::{Config, MS};
use quorate_pbft::step::{Recipient, Reject};
use quorate_wire::message::ViewChange;
use quorate_wire::{Kind, ReplicaId, SeqNum, ViewNum};

use super::row::{Expect, Scenario};
use super::stage::{Ended, Stage, last_f};
use crate::adversary::{Fate, Liar, Lie, Said};
use crate::setup::Setup;

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[
    Scenario::new(
        "p1_h1_another_batch_after_a_restart",
        &["P1", "H1"],
        "The primary proposes another batch to a replica that has restarted since it voted (D1)",
    )
    .expects(&[Expect::Reject(Reject::Conflicts), Expect::Noted("restarted with a vote")])
    .with(|setup| {
        // Time enough for the one that restarts to hear from the others before it votes again.
        let config = Config { request_timeout_min_ns: 1_000 * MS, ..setup.config };
        Setup { config, ..setup }.lying_primaries(|| SecondThought)
    })
    .play(|stage| another_after_restart(stage, false)),
    Scenario::new(
        "p1_h6_another_batch_after_a_lost_disk",
        &["P1", "H6"],
        "The primary proposes another batch to a replica that has lost its disk since it voted (§14.4)",
    )
    .sizes(&[7])
    .expects(&[
        Expect::Reject(Reject::Conflicts),
        Expect::Count("restarts without memory", |c| c.kinds.get("QUERY-STABLE").copied().unwrap_or(0)),
    ])
    .with(|setup| {
        let config = Config { request_timeout_min_ns: 1_000 * MS, ..setup.config };
        Setup { config, ..setup }.liar(ReplicaId(0), || SecondThought)
    })
    .play(|stage| another_after_restart(stage, true)),
    Scenario::new(
        "k6_vc_null",
        &["K6"],
        "VIEW-CHANGEs claim that the null batch prepared in a view that no replica entered",
    )
    .expects(&[
        Expect::Heard(Kind::ViewChange),
        Expect::Named,
        Expect::Noted("the decision waits for a witness"),
    ])
    .with(|setup| setup.lying_backups(|| ClaimsNull))
    .play(claims_null),
    Scenario::new(
        "k8_outvoted",
        &["K8"],
        "A batch that prepared at one replica comes back after another batch committed",
    )
    .expects(&[Expect::Heard(Kind::ViewChange), Expect::Noted("the decision waits for a witness")])
    .with(|setup| forgetful(setup, ViewNum(0)))
    .play(|stage| outvoted(stage, 1)),
    Scenario::new(
        "k8_outvoted_vs_gc",
        &["K8"],
        "The same, while one replica that knows of the commit has discarded its entries (DP-2)",
    )
    .sizes(&[7])
    .expects(&[Expect::Heard(Kind::ViewChange), Expect::Noted("the decision waits for a witness")])
    .with(|setup| {
        let setup = forgetful(setup, ViewNum(0));
        let config = Config { checkpoint_interval: 2, window: 4, pipeline: 2, ..setup.config };
        Setup { config, ..setup }
    })
    .play(|stage| outvoted(stage, 2)),
    Scenario::new(
        "k8_null_vs_gc",
        &["K8"],
        "Batches committed; one correct replica has discarded its entries, Byzantine ones hide theirs (A18)",
    )
    .sizes(&[7])
    .expects(&[Expect::Heard(Kind::ViewChange), Expect::Noted("the decision waits for a witness")])
    .with(|setup| forgetful(setup, ViewNum(u64::MAX)))
    .play(null_vs_gc),
];

/// Nothing is tentative and nothing waits for a carrier, so that each step of a schedule ends before the next.
fn forgetful(setup: Setup, claims_of: ViewNum) -> Setup {
    let config = Config { piggyback: false, tentative: false, ..setup.config };
    Setup { config, ..setup }.lying_backups(move || Forgetful { claims_of })
}

/// P1: what it proposes at number 2 it also proposes to the last replicas at number 1, where they have
/// accepted something else.
#[derive(Debug)]
struct SecondThought;

impl Liar for SecondThought {
    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        if said.kind == Kind::PrePrepare
            && let Some((view, SeqNum(2), batch)) = lie.batch(said.body)
        {
            let other = lie.propose(view, SeqNum(1), &batch);
            for to in last_f(lie.config().cluster) {
                lie.say(Recipient::Replica(to), said.kind, &other);
            }
        }
        Fate::Keep
    }
}

/// K8: in its VIEW-CHANGE nothing has prepared, it holds the first checkpoint only, and it has pre-prepared
/// nothing but what it has in one view.
#[derive(Debug)]
struct Forgetful {
    claims_of: ViewNum,
}

impl Liar for Forgetful {
    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        // It does not help out with what it has left out, either.
        if said.kind == Kind::Proof {
            return Fate::Drop;
        }
        if said.kind != Kind::ViewChange || !said.own {
            return Fate::Keep;
        }
        let Ok(mut wrong) = ViewChange::decode(said.body) else { return Fate::Keep };
        if wrong.stable == SeqNum(0) {
            wrong.checkpoints.truncate(1);
        }
        wrong.prepared.clear();
        for entry in &mut wrong.pre_prepared {
            entry.claims.retain(|(_, view)| *view == self.claims_of);
        }
        wrong.pre_prepared.retain(|entry| !entry.claims.is_empty());
        lie.say_with(said.to, said.kind, |w| wrong.encode(w));
        Fate::Drop
    }
}

/// K6: in its VIEW-CHANGE the null batch has prepared everywhere, in the view before.
#[derive(Debug)]
struct ClaimsNull;

impl Liar for ClaimsNull {
    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        if said.kind != Kind::ViewChange || !said.own {
            return Fate::Keep;
        }
        let Ok(mut wrong) = ViewChange::decode(said.body) else { return Fate::Keep };
        let (null, before) = (lie.domains().null_batch(), ViewNum(wrong.view.0.saturating_sub(1)));
        for p in &mut wrong.prepared {
            (p.digest, p.view) = (null, before);
        }
        for q in &mut wrong.pre_prepared {
            q.claims = vec![(null, before)];
        }
        lie.say_with(said.to, said.kind, |w| wrong.encode(w));
        Fate::Drop
    }
}

/// The roles of the replicas.
struct Cast {
    /// Knows nothing of what committed. The first is the primary of view 2.
    late: Vec<ReplicaId>,
    /// The primary of view 1, and cut off in view 2.
    absent: ReplicaId,
    /// Everyone else that is correct. The first is the primary of view 0, and the first to discard.
    rest: Vec<ReplicaId>,
    liars: Vec<ReplicaId>,
}

impl Cast {
    fn of(stage: &Stage) -> Self {
        let f = stage.cluster().f();
        let (all, liars) = (stage.all(), stage.last_f());
        let late: Vec<ReplicaId> = all[2..2 + f].to_vec();
        let absent = all[1];
        let rest = all
            .iter()
            .copied()
            .filter(|id| *id != absent && !late.contains(id) && !liars.contains(id))
            .collect();
        Self { late, absent, rest, liars }
    }

    /// Everyone but those that are late.
    fn others(&self) -> Vec<ReplicaId> {
        self.rest.iter().chain([&self.absent]).chain(&self.liars).copied().collect()
    }
}

/// Views 0 and 1 end before anything is taken over; the liars say that something prepared in view 1. Their
/// word alone counts for nothing, and against it the new primary needs everyone's.
fn claims_null(stage: &mut Stage) -> Ended {
    stage.answer(0, 0, "put x 1", 5_000 * MS)?;
    stage.until_executed(&stage.all(), 1, 1_000 * MS)?;
    // The primary of view 1 is away when view 0 ends, and the primary of view 0 is not heard.
    stage.isolate(&[ReplicaId(1)]);
    stage.mute(Kind::PrePrepare, &[ReplicaId(0)], &stage.all());
    stage.ask(0, 0, "put x 2");
    stage.until("view 2", 20_000 * MS, |w| w.core_facts().any(|facts| facts.view.0 >= 2))?;
    stage.pass(50 * MS)?;
    stage.waits_for_witness(2)?;
    stage.mend();
    stage.quiet()
}

/// Lets only the first of `cast.rest` learn that a checkpoint is stable: the others get too few messages.
fn one_may_discard(stage: &mut Stage, cast: &Cast) {
    let keeping: Vec<ReplicaId> = cast.rest[1..].iter().chain([&cast.absent]).copied().collect();
    stage.mute(Kind::Checkpoint, &cast.liars, &keeping);
    stage.mute(Kind::Checkpoint, &keeping, &cast.liars);
}

/// Brings those that are late back, though not to what they have missed, and takes the absent one away.
/// Then the view ends, and the next decision lacks a witness until the absent one is there again.
fn decide_without_witness(stage: &mut Stage, cast: &Cast, view: u64) -> Ended {
    stage.mend();
    let others = cast.others();
    for kind in [
        Kind::PrePrepare,
        Kind::Prepare,
        Kind::Commit,
        Kind::Committed,
        Kind::Checkpoint,
        Kind::Body,
        Kind::NewView,
        Kind::MetaData,
        Kind::Data,
    ] {
        stage.mute(kind, &others, &cast.late);
    }
    for kind in [Kind::Checkpoint, Kind::Proof] {
        stage.mute(kind, &cast.liars, &stage.all());
        stage.mute(kind, &stage.all(), &cast.liars);
    }
    stage.mute(Kind::Checkpoint, &cast.rest[..1], &others);
    stage.isolate(&[cast.absent]);
    stage.ask(1, 0, "put y 1");
    stage.until("the view ends", 20_000 * MS, |w| w.core_facts().any(|facts| facts.view.0 >= view))?;
    stage.pass(1_500 * MS)?;
    stage.waits_for_witness(view)?;
    stage.mend();
    stage.quiet()
}

/// A backup votes for a batch, does not hear that it prepared, restarts, perhaps without its disk, and is
/// proposed another one.
fn another_after_restart(stage: &mut Stage, wiped: bool) -> Ended {
    let (all, last) = (stage.all(), stage.last_f()[0]);
    stage.mute(Kind::Prepare, &all, &[last]);
    stage.mute(Kind::Commit, &all, &all);
    stage.ask(0, 0, "put x 1");
    stage.pass(20 * MS)?;
    let accepted = stage.evidence().accepted().get(&1).cloned().unwrap_or_default();
    stage.require(accepted.iter().any(|a| a.by == last), "it has voted")?;
    stage.note("restarted with a vote");
    let host = stage.world.host_of(last);
    stage.world.crash(host);
    if wiped {
        stage.world.wipe(host);
    }
    stage.world.restart(host);
    // It agrees with the client on new keys, so that the other batch convinces it.
    stage.ask(1, 0, "get x");
    stage.pass(400 * MS)?;
    stage.ask(1, 1, "put y 1");
    stage.pass(100 * MS)?;
    stage.mend();
    stage.busy(10)
}

/// A18: batches up to the first checkpoint commit while some are cut off; one discards its entries.
fn null_vs_gc(stage: &mut Stage) -> Ended {
    let cast = Cast::of(stage);
    stage.isolate(&cast.late);
    one_may_discard(stage, &cast);
    let interval = stage.world.config.checkpoint_interval;
    for value in 0..interval {
        stage.answer(0, 0, &format!("put x {value}"), 20_000 * MS)?;
    }
    let first = cast.rest[0];
    stage.until("one has discarded", 5_000 * MS, |w| w.checkers.facts(first).stable.0 >= interval)?;
    decide_without_witness(stage, &cast, 1)
}

/// Batches at the first `last` numbers prepare at one replica in view 0, others commit there in view 1, and
/// in view 2 those that know are one too few. If a checkpoint is taken at `last`, one of them has discarded
/// its entries.
fn outvoted(stage: &mut Stage, last: u64) -> Ended {
    let cast = Cast::of(stage);
    let (all, primary, witness) = (stage.all(), cast.rest[0], cast.late[0]);
    let ignorant: Vec<ReplicaId> = cast.rest[1..].iter().chain([&cast.absent]).copied().collect();
    stage.mute(Kind::PrePrepare, &[primary], &ignorant);
    stage.mute(Kind::Prepare, &all, &stage.all_but(&[witness]));
    stage.mute(Kind::Commit, &all, &all);
    stage.mute(Kind::Body, &all, &ignorant);
    for (client, seq) in (1..=last).enumerate() {
        stage.ask(client, 0, "put x first");
        stage.until("prepared at one", 1_000 * MS, |w| {
            w.checkers.facts(witness).prepared.contains_key(&seq)
        })?;
    }
    // View 1 without those that are late. Nothing more comes of view 0, and nothing new of view 1.
    stage.isolate(&cast.late);
    stage.until("view 1", 20_000 * MS, |w| {
        let facts = w.checkers.facts(primary);
        facts.normal && facts.view.0 == 1
    })?;
    stage.mend();
    stage.isolate(&cast.late);
    stage.mute(Kind::PrePrepare, &[cast.absent], &all);
    one_may_discard(stage, &cast);
    let knowing: Vec<ReplicaId> = cast.rest.iter().chain([&cast.absent]).copied().collect();
    stage.until_executed(&knowing, last, 1_000 * MS)?;
    if last >= stage.world.config.checkpoint_interval {
        stage.until("one has discarded", 1_000 * MS, |w| w.checkers.facts(primary).stable.0 >= last)?;
    }
    stage.require(stage.view() == 1, "view 1 does")?;
    decide_without_witness(stage, &cast, 2)
}

impl Stage {
    /// Asks that nobody has entered `view` or a later one: what is known does not decide.
    fn waits_for_witness(&mut self, view: u64) -> Ended {
        let entered = self.world.core_facts().any(|facts| facts.normal && facts.view.0 >= view);
        self.require(!entered, "nobody may decide without the one that is absent")?;
        self.note("the decision waits for a witness");
        Ok(())
    }
}

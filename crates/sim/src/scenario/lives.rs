//! Lives: what a replica that has lost its disk begins, and what it or a liar makes of that (L150 to L152).

use quorate_pbft::config::{Config, MS, RequestAuth};
use quorate_pbft::step::Milestone;
use quorate_wire::{Kind, ReplicaId, ViewNum};

use super::host::{REJOIN_NS, everyone_remembers};
use super::row::{Expect, Scenario};
use super::stage::{Ended, Stage};
use crate::adversary::noise::Reborn;
use crate::adversary::{Liar, Lie};
use crate::setup::Setup;
use crate::world::Load;

const REJOINED: Expect = Expect::Milestone("rejoined", |_, m| matches!(m, Milestone::Rejoined { .. }));

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[
    Scenario::new(
        "l150_lives_at_will",
        &["L150"],
        "f liars have lost nothing, and begin a new life ten times a second: few views are left for that (RC-6)",
    )
    .expects(&[Expect::Heard(Kind::Request), Expect::Count("view-changes", |c| c.view_changes)])
    .views_max(|cluster| 2 + 10 * u64::try_from(cluster.f()).unwrap_or(1))
    .with(|setup| setup.lying_backups(Reborn::default))
    .play(|stage| {
        stage.busy(20)?;
        // The first primary hands its view over: the next one rests on what the liars say.
        stage.world.crash(0);
        stage.world.restart(0);
        stage.until_view(1, 5_000 * MS)?;
        stage.world.set_load(Load::Busy(0, 5 * MS));
        stage.pass(10_000 * MS)
    }),
    Scenario::new(
        "l150_disk_lost_again_and_again",
        &["L150"],
        "A replica loses its disk eleven times within a minute, in an idle cluster: it rejoins each time, the last time late (RC-6)",
    )
    .expects(&[REJOINED, Expect::Noted("it had to wait")])
    .play(loses_its_disk_again),
    Scenario::new(
        "l151_restart_after_a_rejoin",
        &["L151"],
        "A replica rejoins in view 1, gets no NEW-VIEW and restarts; one in view 0 proposes to it: it does not vote (RC-11c)",
    )
    .sizes(&[6])
    .expects(&[REJOINED, Expect::Noted("restarted without a NEW-VIEW"), Expect::Noted("asked in view 0")])
    .with(|setup| {
        // Each replica times a request as soon as it has it.
        Setup { config: Config { request_auth: RequestAuth::SigMac, ..setup.config }, ..setup }
    })
    .play(restart_after_a_rejoin),
    Scenario::new(
        "l152_a_request_that_is_no_recovery",
        &["L152"],
        "A liar asks for nothing and falls silent; a replica that fetches that state expects null batches no less than the others (RC-10)",
    )
    .sizes(&[4])
    .expects(&[Expect::Heard(Kind::Request), Expect::Noted("one has fetched it")])
    .views_max(|_| 0)
    .with(|setup| {
        // The liar falls silent before the null batches are through.
        let config = Config { null_batch_ns: 200 * MS, pipeline: 2, ..setup.config };
        Setup { config, ..setup }.lying_backups(AsksForNothing::default)
    })
    .play(request_that_is_no_recovery),
];

/// Asks once for what is no operation of replicas.
#[derive(Debug, Default)]
struct AsksForNothing {
    has_asked: bool,
}

impl Liar for AsksForNothing {
    fn idle(&mut self, lie: &mut Lie<'_>) {
        if !std::mem::replace(&mut self.has_asked, true) {
            lie.ask(b"nothing", false);
        }
    }
}

fn loses_its_disk_again(stage: &mut Stage) -> Ended {
    stage.busy(20)?;
    stage.quiet()?;
    let started = stage.world.at;
    for loss in 0..11 {
        stage.world.wipe(3);
        stage.world.restart(3);
        let wait = if loss < 10 { REJOIN_NS } else { 80_000 * MS };
        stage.until("it has rejoined", wait, everyone_remembers)?;
    }
    if stage.world.at > started + 60_000 * MS {
        stage.note("it had to wait");
    }
    Ok(())
}

fn request_that_is_no_recovery(stage: &mut Stage) -> Ended {
    let late = [ReplicaId(2)];
    let rest = stage.all_but(&late);
    // It gets no batch, but state.
    for kind in [Kind::PrePrepare, Kind::Prepare, Kind::Commit, Kind::Committed, Kind::Body] {
        stage.mute(kind, &rest, &late);
    }
    while stage.executed(ReplicaId(0)) < 8 {
        stage.answer(0, 0, "incr n 1", 5_000 * MS)?;
    }
    stage.until("r2 has fetched the state after n=8", 5_000 * MS, |w| {
        w.checkers.facts(ReplicaId(2)).executed.0 >= 8
    })?;
    stage.note("one has fetched it");
    stage.world.crash(3);
    stage.mend();
    // Long enough for a null batch, which one of the three that are left would refuse.
    stage.pass(2_000 * MS)?;
    stage.answer(0, 0, "incr n 1", 10_000 * MS).map(|_| ())
}

fn restart_after_a_rejoin(stage: &mut Stage) -> Ended {
    let (late, lost) = (ReplicaId(0), ReplicaId(5));
    let rest = stage.all_but(&[late, lost]);
    stage.busy(20)?;
    stage.quiet()?;
    stage.world.wipe(5);
    // Four leave view 0. The other two learn nothing of the view change.
    let all = stage.all();
    for kind in [Kind::Suspect, Kind::ViewChange, Kind::NewView] {
        stage.mute(kind, &all, &[late, lost]);
    }
    stage.mute(Kind::PrePrepare, &[late], &rest);
    stage.ask(0, 0, "incr n 1");
    stage.until_entered(&rest, 1, 20_000 * MS)?;
    stage.world.restart(5);
    stage.until("r5 has rejoined", REJOIN_NS, |w| {
        w.checkers.facts(ReplicaId(5)).remembers && !w.hosts[5].amnesic
    })?;
    let noted = stage.executed(lost);
    stage.until_executed(&[late], noted, 10_000 * MS)?;
    stage.require(!stage.world.checkers.facts(lost).normal, "r5 has got no NEW-VIEW")?;
    stage.world.crash(5);
    stage.world.restart(5);
    stage.require(!stage.world.hosts[5].amnesic, "r5 restarts with its memory")?;
    stage.note("restarted without a NEW-VIEW");
    stage.pass(500 * MS)?;
    stage.hold_requests(1, &rest);
    stage.ask(1, 0, "incr n 1");
    stage.until("r0 has proposed in view 0", 5_000 * MS, |w| {
        let accepted = w.evidence.iter().flat_map(|e| e.accepted().range(noted + 1..));
        accepted.flat_map(|(_, all)| all).any(|a| a.by == late && a.view == ViewNum(0))
    })?;
    stage.note("asked in view 0");
    stage.pass(500 * MS)
}

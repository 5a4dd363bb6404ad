//! Requests that some replicas take for authentic and others do not (AU-1 to AU-6).

use quorate_pbft::config::MS;
use quorate_pbft::step::Reject;

use quorate_wire::{Kind, ReplicaId, ViewNum};

use super::client::operation;
use super::row::{Expect, Scenario};
use super::stage::{Ended, Stage, last_f};
use crate::adversary::client::Forgery;
use crate::adversary::sly::ReadOfItsOwn;
use crate::adversary::{Fate, Liar, Lie, Said};
use crate::setup::Setup;

/// The Byzantine client.
const CLIENT: usize = 2;

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[
    Scenario::new(
        "l126_a_replica_calls_its_request_a_read",
        &["L126", "K17"],
        "A signature does not cover the flag: a replica's request that says it is read-only is refused, or no batch with it prepares (AU-1)",
    )
    .expects(&[Expect::Reject(Reject::UnprovenRequest)])
    .views_max(|_| 0)
    .with(|setup| setup.lying_backups(ReadOfItsOwn::default))
    .play(|stage| {
        stage.busy(40)?;
        stage.pass(1_000 * MS)
    }),
    Scenario::new(
        "l127_vouched_without_room",
        &["L127"],
        "Backups have no room for a client's request that others vouch for: they take its body for the batch that names it (SR-4)",
    )
    .expects(&[Expect::Noted("ordered"), Expect::Door("not-authentic")])
    .views_max(|_| 0)
    .with(|setup| Setup { clients: 3, ..setup }.lying_backups(|| OnlyVouches))
    .play(vouched_without_room),
    Scenario::new(
        "l128_each_backup_lacks_another_request",
        &["L128", "C1"],
        "A batch has a request for each backup that only this backup cannot check: the others vouch for it (AU-2)",
    )
    .expects(&[Expect::Noted("ordered"), Expect::Count("REQ-REJECT", |c| c.kinds.get("REQ-REJECT").copied().unwrap_or(0))])
    .views_max(|_| 0)
    .with(|setup| Setup { clients: 3, ..setup })
    .play(|stage| few_can_check_each(stage, stage.cluster().n() - 2)),
    Scenario::new(
        "l128_f_backups_can_check_each_request",
        &["L128", "C1"],
        "Each request of a batch is one that only the primary and f backups can check: these f vouch for it (AU-2)",
    )
    .expects(&[Expect::Noted("ordered"), Expect::Count("REQ-REJECT", |c| c.kinds.get("REQ-REJECT").copied().unwrap_or(0))])
    .views_max(|_| 0)
    .with(|setup| Setup { clients: 3, ..setup })
    .play(|stage| few_can_check_each(stage, stage.cluster().f())),
    Scenario::new(
        "l129_unsigned_before_signed",
        &["L129", "C1"],
        "A client on probation sends the primary an unsigned request, and then an older one that it has signed: that is ordered (AU-5)",
    )
    .expects(&[Expect::Noted("on probation everywhere"), Expect::Noted("ordered"), Expect::Reject(Reject::OnProbation)])
    .views_max(|cluster| u64::try_from(cluster.n()).unwrap_or(0))
    .with(|setup| Setup { clients: 3, ..setup })
    .play(unsigned_before_signed),
];

/// A batch has a request for each backup. Of the backups, only this one and those after it, `few` in all, can check it.
fn few_can_check_each(stage: &mut Stage, few: usize) -> Ended {
    stage.answer(0, 0, "incr n 1", 5_000 * MS)?;
    for t in 1..=10 {
        let before = stage.world.checkers.commands();
        let mut datagram = Vec::new();
        let mut backups = stage.all_but(&[ReplicaId(0)]);
        for lane in (0..).take(backups.len()) {
            backups.rotate_left(1);
            let request = Forgery::new(t, &operation(stage, t)).lane(lane).spoiled(&backups[few..]);
            datagram.extend_from_slice(&stage.world.forge(CLIENT, &request));
        }
        stage.world.post(CLIENT, ReplicaId(0), &datagram.into());
        let after = before + u64::try_from(backups.len()).unwrap_or(0);
        stage.until("all are ordered", 500 * MS, |w| w.checkers.commands() >= after)?;
        stage.note("ordered");
    }
    Ok(())
}

/// Deceives each primary once, so that the first one is the primary again. Each of them knows the client for a liar.
fn unsigned_before_signed(stage: &mut Stage) -> Ended {
    stage.answer(0, 0, "incr n 1", 5_000 * MS)?;
    for view in 0..u64::try_from(stage.cluster().n()).unwrap_or(0) {
        let primary = stage.cluster().primary(ViewNum(view));
        let request = Forgery::new(1, &operation(stage, 1)).spoiled(&stage.all_but(&[primary]));
        let frame = stage.world.forge(CLIENT, &request.lane(u16::try_from(view).unwrap_or(0)));
        stage.world.post(CLIENT, primary, &frame);
        stage.until_view(view + 1, 2_000 * MS)?;
    }
    stage.note("on probation everywhere");
    for (lane, t) in (20..).zip([50, 51, 52]) {
        let before = stage.world.checkers.commands();
        let unsigned = Forgery::new(100, &operation(stage, 100)).lane(lane);
        let frame = stage.world.forge(CLIENT, &unsigned);
        stage.world.post(CLIENT, ReplicaId(0), &frame);
        stage.pass(20 * MS)?;
        let signed = Forgery::new(t, &operation(stage, t)).lane(lane).signed(true);
        let frame = stage.world.forge(CLIENT, &signed);
        for to in stage.all_but(&[ReplicaId(0)]) {
            stage.world.post(CLIENT, to, &frame);
        }
        stage.until("it is ordered", 1_000 * MS, |w| w.checkers.commands() > before)?;
        stage.note("ordered");
    }
    Ok(())
}

/// Vouches for what is authentic there, and says nothing else.
#[derive(Debug)]
struct OnlyVouches;

impl Liar for OnlyVouches {
    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        if said.kind == Kind::ReqAck {
            return Fate::Keep;
        }
        lie.count();
        Fate::Drop
    }
}

/// The first f + 1 replicas can check a request, and the liars. The other backups can't, and are full of requests of its
/// client that nobody else can check.
fn vouched_without_room(stage: &mut Stage) -> Ended {
    let (all, liars) = (stage.all(), last_f(stage.cluster()));
    let (first, last) = all.split_at(stage.cluster().f() + 1);
    let full: Vec<ReplicaId> = last.iter().copied().filter(|id| !liars.contains(id)).collect();
    stage.answer(0, 0, "incr n 1", 5_000 * MS)?;
    for lane in 1..=17 {
        let request = Forgery::new(1, &vec![0; 1_000_000]).lane(lane).spoiled(first);
        let frame = stage.world.forge(CLIENT, &request);
        for to in &full {
            stage.world.post(CLIENT, *to, &frame);
        }
    }
    stage.pass(200 * MS)?;
    let before = stage.world.checkers.commands();
    let request = Forgery::new(1, &vec![0; 60_000]).spoiled(&full);
    let frame = stage.world.forge(CLIENT, &request);
    stage.world.post_all(CLIENT, &frame);
    stage.until("it is ordered", 500 * MS, |w| w.checkers.commands() > before)?;
    stage.note("ordered");
    Ok(())
}
